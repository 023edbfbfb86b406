//! Keeps the C library from giving memory back to the system after every burst of datagrams.

/// Largest block whose release glibc takes as a hint (its `DEFAULT_MMAP_THRESHOLD_MAX` is 32 MiB).
const HINT: usize = 31 << 20;

/// Tells glibc's allocator, once, to keep some free memory. By default it returns the top of the heap to the
/// system as soon as 128 KiB are free there, and datagrams of 64 KiB that come and go make it do so all the
/// time: page faults then take a tenth of the processor time. When a block of this size is freed, glibc
/// raises its thresholds, so that up to 62 MiB of free memory stay in the process. The block itself is never
/// touched and costs nothing. Other allocators take no notice.
pub(crate) fn keep_freed_memory() {
    use std::sync::Once;
    static DONE: Once = Once::new();
    DONE.call_once(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(HINT))));
}
