//! What the tools of nexar share: starting the ranks of a program on this machine
//! ([`launch`]), log lines ([`log`]), the values of their command-line options ([`options`]), files ([`files`]), tables of
//! what the benches have measured ([`report`]), and measuring nexar beside other libraries ([`compare`]).
//!
//! The tools themselves are the binaries `nexar-perf`, which measures collectives and prints the table
//! of nccl-tests, `nexar-run`, which starts N local ranks of any program, `nexar-report`, which writes
//! the tables, `nexar-compare`, which measures and writes the comparison, and `nexar-tune`, which derives from a
//! cost model which algorithm is used when.
#![warn(missing_docs)]

pub mod compare;
pub mod files;
pub mod launch;
pub mod log;
pub mod options;
pub mod report;
