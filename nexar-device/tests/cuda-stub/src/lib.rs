//! A stand-in for the CUDA driver, for tests on machines without a GPU.
//!
//! This crate is built twice: as a shared library that exports functions of the driver under their names, and
//! as a Rust library for the tests that use it. [`Stub`] loads the former as a driver with a state of its own.
//!
//! ```
//! use nexar_cuda_stub::Stub;
//!
//! # fn in_a_test() {
//! let stub = Stub::new();
//! stub.set("devices", 3);
//! stub.set("delay_max_us", 500);
//! stub.fail("cuMemAlloc_v2", 2, 2);
//! // Load the driver from `stub.path()` and use it. Then:
//! assert_eq!(stub.counter("pageable_copies"), 0);
//! assert_eq!(stub.counter("live_device_buffers"), 0);
//! assert_eq!(stub.counter("calls:cuCtxSynchronize"), 0);
//! # }
//! ```
//!
//! # What is like the driver
//!
//! - Streams run by themselves, on threads: the legacy default stream (0 and 1), that of each thread (2), blocking and
//!   non-blocking ones. Events keep what they were recorded as; who waits for one waits for what was recorded then.
//! - A copy moves its bytes late, at a random moment of the last quarter of its time, never when it is called: what
//!   is read too early is old, what is overwritten too early is lost. Copies of a device in one direction share its
//!   bandwidth; delays come on top of that and overlap with other copies.
//! - Copies of pageable memory to the host return when they are done, those from the host when the memory is staged:
//!   at once up to 64 KiB, else when they are done.
//! - Addresses of devices are no memory of the host: to read one there is a SIGSEGV. They are never used again, and there
//!   are gaps between them. A copy that leaves its allocation, or comes after it was freed, breaks its context with
//!   error 700, when it runs. New memory, pinned or of a device, is full of 0xDB.
//! - Calls need a current context, where the driver wants one. Each device has its primary context and no other.
//!   Once its last user releases it, its memory, streams and events are gone. A broken one stays broken.
//!
//! No kernels run, there is no managed memory, and no peer-to-peer access except by copies.
//!
//! # Settings
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `devices` | number of devices, before `cuInit` | 2 |
//! | `memory` | bytes of each device | 16 GiB |
//! | `hold` | while it is not 0, no copy or fill moves its bytes or ends | 0 |
//! | `bandwidth_out` | from device to host, bytes per second, 0 for no limit | 0 |
//! | `bandwidth_in` | from host to device, bytes per second, 0 for no limit | 0 |
//! | `delay_us` | that each copy and fill takes besides, µs | 0 |
//! | `delay_max_us` | at most so much more than that, at random, µs | 0 |
//! | `seed` | of the random numbers | 1 |
//!
//! # Counters
//!
//! | key | meaning |
//! |---|---|
//! | `calls:` and a function's name | calls of the function, also those that fail |
//! | `synchronizing_calls` | calls that wait for the device or may, also those that fail: `cuCtxSynchronize`, `cuStreamSynchronize`, `cuEventSynchronize`, `cuMemAlloc_v2`, `cuMemFree_v2`, `cuMemHostAlloc`, `cuMemFreeHost`, `cuMemHostRegister_v2`, `cuMemHostUnregister`, pageable copies |
//! | `pageable_copies` | copies from or to host memory that is not pinned |
//! | `copies_out`, `bytes_out` | copies from a device to the host that moved their bytes |
//! | `copies_in`, `bytes_in` | copies from the host to a device that moved their bytes |
//! | `live_device_buffers`, `live_device_bytes` | memory of devices that was not freed |
//! | `live_pinned`, `live_pinned_bytes` | host memory that is pinned, allocated or registered |
//! | `live_streams`, `live_events` | streams and events that were not destroyed |
//! | `retained_contexts` | retains without a release, of all devices |
//! | `write_combined` | allocations of write-combined host memory, also those that were freed |
//! | `illegal_accesses` | copies and fills that left their allocation, or came too early or too late for it |
//! | `freed_in_use` | memory, of a device or pinned, that was freed while a copy was about to use it |
//!
//! What goes with its context counts as live for ever, so that leaks show.

#[cfg(unix)]
mod abi;
#[cfg(unix)]
mod alloc;
#[cfg(unix)]
mod codes;
#[cfg(unix)]
mod context;
#[cfg(unix)]
mod control;
#[cfg(unix)]
mod copy;
#[cfg(unix)]
mod driver;
#[cfg(unix)]
mod memory;
#[cfg(unix)]
mod ops;
#[cfg(unix)]
mod stream;
#[cfg(unix)]
mod stub;
#[cfg(unix)]
mod worker;

#[cfg(unix)]
pub use stub::Stub;
