//! The adapter: which memory there is, and the way to it.

use crate::{
    file::MappedFile,
    queue::FileQueue,
    slots::Pool,
    worker::{Direction, Job, Workers},
};
use nexar_device::{Access, Capabilities, DeviceAdapter, DeviceError, MemorySpace, Region};
use std::{io, ops::Range, path::Path, sync::Arc};

pub(crate) const NAME: &str = "mapped file";

/// Files as memory: `MemorySpace::Device(n)` is the n-th one. Clones are handles to the same files.
#[derive(Debug, Clone)]
pub(crate) struct MappedFiles(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: Vec<Arc<MappedFile>>,
    pool: Arc<Pool>,
    workers: Arc<Workers>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.workers.close();
    }
}

impl MappedFiles {
    /// Creates the files, or empties them, with `len` bytes each, to be copied by `slots` slots of `slot_len` bytes.
    ///
    /// # Errors
    ///
    /// Those of the file system and of starting threads.
    pub(crate) fn create<P: AsRef<Path>>(
        paths: &[P],
        len: usize,
        slot_len: usize,
        slots: usize,
    ) -> io::Result<MappedFiles> {
        let create = |path: &P| MappedFile::create(path.as_ref(), len).map(Arc::new);
        // A slot is as long as whole elements of every type are, whatever is asked for.
        let slot_len = slot_len.max(1).next_multiple_of(16);
        Ok(MappedFiles(Arc::new(Inner {
            files: paths.iter().map(create).collect::<io::Result<_>>()?,
            pool: Arc::new(Pool::new(slot_len, slots.max(1))),
            workers: Workers::start()?,
        })))
    }

    /// Bytes of a file that are in use, rounded up for each region.
    pub(crate) fn used_bytes(&self, space: MemorySpace) -> usize {
        self.file(space).map_or(0, |file| file.used_bytes())
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.0.workers
    }

    fn file(&self, space: MemorySpace) -> Option<&Arc<MappedFile>> {
        match space {
            MemorySpace::Device(number) => self.0.files.get(number as usize),
            _ => None,
        }
    }
}

fn unreachable(what: String, space: MemorySpace) -> DeviceError {
    DeviceError::Unreachable {
        adapter: NAME,
        what,
        space,
    }
}

// SAFETY: every allocation is a part of a file of its own; a region is only in the queue that `open` returns, and in the
// copies that it has enqueued.
unsafe impl DeviceAdapter for MappedFiles {
    type Queue = FileQueue;

    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.slot_len = self.0.pool.slot_len;
        capabilities.slots = self.0.pool.slots;
        capabilities
    }

    /// An address that lies in no mapping is none of this adapter's, which has no use for other memory of the host.
    fn space_of(&self, address: *const u8) -> Option<MemorySpace> {
        let lies_in = |file: &Arc<MappedFile>| file.addresses().contains(&address.addr());
        let number = self.0.files.iter().position(lies_in)?;
        Some(MemorySpace::Device(number as u32))
    }

    fn allocate(&self, space: MemorySpace, length: usize) -> Result<Region, DeviceError> {
        let file = self.file(space);
        let file = file.ok_or_else(|| unreachable(format!("{length} bytes"), space))?;
        let part = file.take(length);
        let part = part.ok_or_else(|| DeviceError::Length {
            bytes: length,
            what: format!("allocation that {space} has room for"),
        })?;
        let address = file.at(part.start);
        let owner = Owner {
            file: Arc::clone(file),
            part,
            inner: Arc::clone(&self.0),
        };
        // SAFETY: the part is live, zero and nobody else's until its owner is dropped.
        Ok(unsafe { Region::from_raw(address, length, space, 0, owner) })
    }

    /// Nothing but this adapter's queues writes the mappings, so that `Region::stream` says nothing here. An adapter
    /// for a device with streams would record an event on it now, and let the queue's copies wait for that.
    fn open(&self, region: Region) -> Result<Access<FileQueue>, DeviceError> {
        let what = || format!("{} bytes at {:?}", region.len(), region.address());
        let file = self.file(region.space());
        let file = file.ok_or_else(|| unreachable(what(), region.space()))?;
        // A region may come from outside, by its address: a wrong one must not become a wild copy. One that is empty
        // may be anywhere.
        let (addresses, start) = (file.addresses(), region.address().addr());
        let lies_in = addresses.contains(&start) && region.len() <= addresses.end - start;
        if !lies_in && !region.is_empty() {
            return Err(unreachable(what(), region.space()));
        }
        Ok(Access::Staged(FileQueue {
            files: self.clone(),
            region: Arc::new(region),
            number: self.0.pool.enter(),
            after: self.0.workers.enqueued(),
        }))
    }
}

/// What a region keeps alive.
struct Owner {
    file: Arc<MappedFile>,
    part: Range<usize>,
    inner: Arc<Inner>,
}

impl Drop for Owner {
    /// May run anywhere, in an asynchronous task, too: the wait for the disk is left to the thread. Should the part
    /// be taken again before that, its old bytes are of no interest any more.
    fn drop(&mut self) {
        self.file.give_back(self.part.clone());
        let flush = Job::Flush(Arc::clone(&self.file), self.part.clone());
        self.inner.workers.enqueue(Direction::In, flush);
    }
}
