//! What can go wrong with the CUDA driver.

use crate::adapter::DeviceError;
use std::{fmt, io, path::PathBuf, sync::Arc};

/// The name of the adapter in errors and tables.
pub(super) const ADAPTER: &str = "cuda";

/// Why the CUDA driver cannot be used, or what it reports. In a [`DeviceError`] it is the source of
/// [`DeviceError::Backend`].
///
/// `Debug` shows the message, as `Display` does: a `main` that returns this error prints it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// No library of the driver can be loaded.
    #[error(
        "the CUDA driver library cannot be loaded; tried {}; install the NVIDIA driver, or set \
         NEXAR_CUDA_DRIVER to the path of its library",
        list(.tried)
    )]
    LibraryNotFound {
        /// The libraries that were tried, in this order.
        tried: Vec<Tried>,
    },
    /// The library is not that of a CUDA driver, or of one that is too old.
    #[error(
        "{} has no symbol {symbol}; it takes the library of a CUDA driver for CUDA {wanted} or later",
        .library.display()
    )]
    SymbolMissing {
        /// The library.
        library: PathBuf,
        /// The function that it lacks.
        symbol: &'static str,
        /// The version of CUDA whose drivers have all that the adapter needs.
        wanted: &'static str,
    },
    /// The driver works, but has no device.
    #[error(
        "the CUDA driver {} finds no device; check `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        .library.display()
    )]
    NoDevice {
        /// The library of the driver.
        library: PathBuf,
    },
    /// There is no device of this number.
    #[error("there is no CUDA device {ordinal}: the driver has {count}, counted from 0")]
    NoSuchDevice {
        /// The number asked for.
        ordinal: u32,
        /// How many devices there are.
        count: u32,
    },
    /// A call of the driver failed, or work that was enqueued before it.
    #[error("{call}: {name} ({code}): {text}")]
    Driver {
        /// The function that reported it.
        call: &'static str,
        /// The driver's code, a `CUresult`.
        code: i32,
        /// The name of the code, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// The driver's own words.
        text: String,
    },
    /// Slots of this length cannot be.
    #[error(
        "staging slots of {bytes} bytes cannot be: take a multiple of 16 from 16 to {}",
        super::MAX_SLOT_LEN
    )]
    SlotLength {
        /// The length asked for.
        bytes: usize,
    },
    /// That many slots cannot be.
    #[error("{slots} staging slots cannot be: take 1 to {}", super::MAX_SLOTS)]
    Slots {
        /// The number asked for.
        slots: usize,
    },
    /// A transfer was polled again after it had been ready.
    #[error("the transfer has given its result already; do not poll it again")]
    TransferFinished,
    /// The system starts no thread.
    #[error("no thread for {purpose} can be started: {source}")]
    Thread {
        /// What the thread was for.
        purpose: &'static str,
        /// What the system says.
        source: Arc<io::Error>,
    },
}

impl CudaError {
    /// The driver's code, if the driver reported an error.
    pub fn code(&self) -> Option<i32> {
        match self {
            CudaError::Driver { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(super) fn during(self, operation: &'static str) -> DeviceError {
        DeviceError::Backend {
            adapter: ADAPTER,
            operation,
            source: Arc::new(self),
        }
    }
}

/// A library that was tried in vain; see [`CudaError::LibraryNotFound`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tried {
    /// Its name or path.
    pub library: PathBuf,
    /// What the system says.
    pub reason: String,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.library.display(), self.reason)
    }
}

fn list(tried: &[Tried]) -> String {
    let tried: Vec<String> = tried.iter().map(Tried::to_string).collect();
    tried.join(", ")
}

impl fmt::Debug for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<CudaError> for nexar_core::Error {
    fn from(error: CudaError) -> Self {
        nexar_core::Error::Device {
            operation: "CUDA",
            source: Arc::new(error),
        }
    }
}
