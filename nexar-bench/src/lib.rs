//! What the tools of nexar share: starting the ranks of a program on this machine
//! ([`launch`]), log lines ([`log`]) and the values of their command-line options ([`options`]).
//!
//! The tools themselves are the binaries `nexar-perf`, which measures collectives and prints the table
//! of nccl-tests, and `nexar-run`, which starts N local ranks of any program.
#![warn(missing_docs)]

pub mod launch;
pub mod log;
pub mod options;
