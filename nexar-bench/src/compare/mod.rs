//! nexar beside other libraries: measures them in turn, and makes tables and charts of the results.
//!
//! ```no_run
//! use nexar_bench::compare::{self, Results};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), compare::CompareError> {
//! let results = Results::read(Path::new("target/nexar-compare/results.json"))?;
//! println!("{}", compare::tables(&results, &[]));
//! # Ok(())
//! # }
//! ```

mod chart;
#[cfg(test)]
mod fixture;
mod ours;
mod peers;
pub mod plan;
mod process;
mod results;
mod run;
mod stats;
mod subject;
mod tables;
pub mod targets;

pub use chart::chart;
pub use peers::{Sources, Tools};
pub use results::{Entry, PeerState, Results};
pub use run::{Options, measure};
pub use stats::{Ratio, median};
pub use subject::{Peer, Subject};
pub use tables::tables;

use crate::files::FileError;
use std::path::PathBuf;

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The results are not what this program writes.
    #[error(
        "{path} does not have results of nexar-compare ({source}): remove it and measure again",
        path = path.display()
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// A program cannot be started, fails, or does not end in time.
    #[error("{program}: {reason}")]
    Process {
        /// Its name.
        program: String,
        /// What happened.
        reason: String,
    },
    /// A program has not printed what it should have.
    #[error("{program} has not printed a result of {line}")]
    NoResult {
        /// Its name.
        program: String,
        /// What was measured.
        line: plan::Line,
    },
    /// Nothing that is measured has this in its name.
    #[error("--only: nothing is called '{0}'; --list shows the names")]
    NothingMatches(String),
    /// The chart could not be drawn.
    #[error("cannot draw a chart: {0}")]
    Chart(String),
}
