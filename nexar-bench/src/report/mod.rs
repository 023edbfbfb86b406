//! Tables and a chart of what the bench `transports` has measured.
//!
//! ```no_run
//! use nexar_bench::report;
//! use std::path::Path;
//!
//! # fn main() -> Result<(), report::ReportError> {
//! let results = report::read(Path::new("target/criterion"))?;
//! println!("{}", report::tables(&results, &report::Machine::this(), None));
//! # Ok(())
//! # }
//! ```

pub(crate) mod chart;
#[cfg(test)]
mod fixture;
pub(crate) mod format;
mod machine;
mod page;
pub mod plan;
mod results;
#[cfg(test)]
pub(crate) mod svg;
pub(crate) mod tables;

pub use chart::chart;
pub use machine::Machine;
pub use page::{insert, link};
pub use results::{Amount, Measurement, Time, read};
pub use tables::tables;

use std::{io, path::PathBuf};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Nothing has been measured.
    #[error(
        "there are no results of the bench `transports` in {directory}: run \
         `cargo bench -p nexar-bench --bench transports` first, or say with --criterion where they are",
        directory = directory.display()
    )]
    NoResults {
        /// Where they should be.
        directory: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what criterion writes.
    #[error(
        "{path} is not a result of criterion's ({source}): remove it and measure again",
        path = path.display()
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// The page has no place for the tables.
    #[error(
        "the page needs one line `{begin}` and after it one line `{end}`, between which the tables go"
    )]
    Markers {
        /// The line before the tables.
        begin: String,
        /// The line after them.
        end: String,
    },
    /// The chart could not be drawn.
    #[error("cannot draw the chart: {0}")]
    Chart(String),
}
