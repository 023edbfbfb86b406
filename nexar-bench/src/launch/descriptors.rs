//! How many files the launcher may have open: every rank costs it some.

use super::LaunchError;
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Per rank: the pipes of both outputs, and one by which the system tells of its end.
const PER_RANK: u64 = 3;

/// The launcher's own, and those that are open only while a rank is started.
const OWN: u64 = 24;

/// The limit that this process was started with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit(Rlimit);

impl Limit {
    /// Raises the soft limit to the hard one.
    pub(super) fn raise() -> Self {
        let found = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: found.maximum,
            ..found
        };
        // If the system does not allow it, the ranks may still be few enough.
        let _ = setrlimit(Resource::Nofile, raised);
        Limit(found)
    }

    /// Sets the limit back, in a rank: one system call.
    pub(super) fn restore(self) -> Result<(), Errno> {
        setrlimit(Resource::Nofile, self.0)
    }
}

/// Says what to do about it if it was the limit that kept `rank` from being started.
pub(super) fn explain(error: LaunchError, rank: usize, world_size: usize) -> LaunchError {
    match &error {
        LaunchError::Start { source, .. } if Errno::from_io_error(source) == Some(Errno::MFILE) => {
            LaunchError::Descriptors {
                rank,
                world_size,
                limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
                needed: (world_size as u64).saturating_mul(PER_RANK) + OWN,
            }
        }
        _ => error,
    }
}
