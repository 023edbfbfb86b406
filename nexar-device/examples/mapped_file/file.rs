//! One file as a memory space: its mapping, and which parts of it are in use.

use memmap2::{MmapOptions, MmapRaw};
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    ops::Range,
    path::Path,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Parts begin at multiples of this, which suits every element type and keeps them in cache lines of their own.
const ALIGNMENT: usize = 64;

/// A file of a fixed length, all of it mapped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: MmapRaw,
    parts: Mutex<Parts>,
}

#[derive(Debug)]
struct Parts {
    /// Where unused parts begin and end; no two of them touch.
    free: BTreeMap<usize, usize>,
    /// From here on nothing was ever used: the file is zero there.
    fresh: usize,
    used_bytes: usize,
}

impl MappedFile {
    /// Creates or empties the file and maps `len` bytes of it, which are zero.
    pub(crate) fn create(path: &Path, len: usize) -> io::Result<MappedFile> {
        let len = len.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        file.set_len(len as u64)?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(MappedFile {
            map,
            parts: Mutex::new(Parts {
                free: BTreeMap::from([(0, len)]),
                fresh: 0,
                used_bytes: 0,
            }),
        })
    }

    /// The addresses of the mapping.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.map.as_mut_ptr().addr();
        start..start + self.map.len()
    }

    /// The address of a byte.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(offset)
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.parts().used_bytes
    }

    /// Takes a part of at least `len` bytes, all zero; none where no gap is as long.
    ///
    /// Zeroing what was used before may wait for the disk, as allocating memory may anywhere.
    pub(crate) fn take(&self, len: usize) -> Option<Range<usize>> {
        let len = len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let mut parts = self.parts();
        let mut gaps = parts.free.iter();
        let (&start, &end) = gaps.find(|(start, end)| *end - *start >= len)?;
        parts.free.remove(&start);
        if start + len < end {
            parts.free.insert(start + len, end);
        }
        parts.used_bytes += len;
        let used_before = parts.fresh.saturating_sub(start).min(len);
        parts.fresh = parts.fresh.max(start + len);
        // Whoever gives a part back does not wait for the disk.
        drop(parts);
        // SAFETY: the part lies in the mapping, and nobody else has it any more: the copies of dropped regions are
        // over.
        unsafe { ptr::write_bytes(self.at(start), 0, used_before) };
        Some(start..start + len)
    }

    /// Gives a part back. What it holds stays in the file until the part is taken again.
    pub(crate) fn give_back(&self, part: Range<usize>) {
        let mut parts = self.parts();
        parts.used_bytes -= part.len();
        let (mut start, mut end) = (part.start, part.end);
        // It joins the gaps that it touches.
        if let Some((&before, _)) = parts
            .free
            .range(..start)
            .next_back()
            .filter(|gap| *gap.1 == start)
        {
            parts.free.remove(&before);
            start = before;
        }
        if let Some(after) = parts.free.remove(&end) {
            end = after;
        }
        parts.free.insert(start, end);
    }

    /// Waits until a part has reached the disk.
    pub(crate) fn flush(&self, part: Range<usize>) -> io::Result<()> {
        self.map.flush_range(part.start, part.len())
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
