//! The table and the JSON lines.

use crate::{
    args::{Args, Kind},
    measure::Timing,
    shape::Shape,
    size::readable,
};
use serde::Serialize;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// The JSON file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("--json: cannot write {}: {source}", .path.display())]
pub(crate) struct FileError {
    path: PathBuf,
    source: io::Error,
}

/// Checks that results can be written, before anything is measured. Leaves what is in the file.
pub(crate) fn check_writable(path: Option<&Path>) -> Result<(), FileError> {
    match path {
        Some(path) if !is_stdout(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map(drop).map_err(|source| FileError {
                path: path.to_owned(),
                source,
            })
        }
        _ => Ok(()),
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// One line of results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) shape: Shape,
    pub(crate) timing: Timing,
    /// Wrong elements on all ranks; `None` if nothing was checked.
    pub(crate) wrong: Option<u64>,
}

/// A JSON line.
#[derive(Serialize)]
struct Record<'a> {
    collective: &'a str,
    ranks: usize,
    transport: &'a str,
    dtype: &'a str,
    redop: &'a str,
    bytes: usize,
    count: usize,
    time_us: f64,
    p50_us: f64,
    p99_us: f64,
    algbw_gbps: f64,
    busbw_gbps: f64,
    wrong: Option<u64>,
}

/// Writes the results as they come. Only rank 0 has one.
pub(crate) struct Report {
    args: Args,
    ranks: usize,
    transport: String,
    table: bool,
    json: Option<Box<dyn Write>>,
    bus_bandwidths: Vec<f64>,
    wrong: Option<u64>,
}

impl Report {
    pub(crate) fn new(args: &Args, ranks: usize) -> Result<Self, FileError> {
        let json: Option<Box<dyn Write>> = match &args.json {
            None => None,
            Some(path) if is_stdout(path) => Some(Box::new(io::stdout())),
            Some(path) => {
                let file = File::create(path).map_err(|source| FileError {
                    path: path.to_owned(),
                    source,
                })?;
                Some(Box::new(file))
            }
        };
        Ok(Report {
            args: args.clone(),
            ranks,
            transport: String::new(),
            table: !args.json.as_deref().is_some_and(is_stdout),
            json,
            bus_bandwidths: Vec::new(),
            wrong: None,
        })
    }

    fn dtype(&self) -> &'static str {
        match self.args.collective {
            Kind::Barrier => "none",
            _ => self.args.dtype.name(),
        }
    }

    fn redop(&self) -> &'static str {
        self.args.reduction().map_or("none", |op| op.name())
    }

    /// Writes the head of the table. `transport` is what the ranks really use.
    pub(crate) fn start(&mut self, transport: String) -> io::Result<()> {
        self.transport = transport;
        if !self.table {
            return Ok(());
        }
        let Args {
            collective,
            min,
            max,
            factor,
            check,
            ..
        } = &self.args;
        let mut out = io::stdout().lock();
        write!(
            out,
            "# nexar-perf {collective}: {} ranks, transport {}",
            self.ranks, self.transport
        )?;
        if *collective != Kind::Barrier {
            let (min, max) = (readable(*min), readable(*max));
            write!(out, ", {min} to {max} by factor {factor}, checks {check}")?;
        }
        writeln!(out, "\n#")?;
        writeln!(
            out,
            "#{:>11} {:>13} {:>6} {:>11} {:>5} {:>10} {:>7} {:>7} {:>6}",
            "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"
        )?;
        writeln!(
            out,
            "#{:>11} {:>13} {:>6} {:>11} {:>5} {:>10} {:>7} {:>7} {:>6}",
            "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""
        )?;
        out.flush()
    }

    pub(crate) fn row(&mut self, row: Row) -> io::Result<()> {
        let Row {
            shape,
            timing,
            wrong,
        } = row;
        let algorithm = shape.algorithm_bandwidth(timing.time);
        let bus = algorithm * shape.bus_factor();
        self.bus_bandwidths.push(bus);
        self.wrong = wrong.map(|wrong| wrong + self.wrong.unwrap_or_default());
        if self.table {
            let root = match self.args.collective {
                Kind::Broadcast => self.args.root.to_string(),
                _ => "-1".into(),
            };
            let wrong = wrong.map_or("N/A".into(), |wrong| wrong.to_string());
            let mut out = io::stdout().lock();
            writeln!(
                out,
                "{:>12} {:>13} {:>6} {:>11} {root:>5} {:>10} {algorithm:>7.3} {bus:>7.3} {wrong:>6}",
                shape.bytes(),
                shape.count,
                self.dtype(),
                self.redop(),
                format_time(timing.time),
            )?;
            out.flush()?;
        }
        let record = Record {
            collective: self.args.collective.name(),
            ranks: self.ranks,
            transport: &self.transport,
            dtype: self.dtype(),
            redop: self.redop(),
            bytes: shape.bytes(),
            count: shape.count,
            time_us: microseconds(timing.time),
            p50_us: microseconds(timing.p50),
            p99_us: microseconds(timing.p99),
            algbw_gbps: algorithm,
            busbw_gbps: bus,
            wrong,
        };
        let Some(json) = &mut self.json else {
            return Ok(());
        };
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        json.write_all(&line)?;
        json.flush()
    }

    /// Writes the foot of the table.
    pub(crate) fn finish(self) -> io::Result<()> {
        if !self.table {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        match self.wrong {
            Some(0) => writeln!(out, "# Wrong elements: 0 OK")?,
            Some(wrong) => writeln!(out, "# Wrong elements: {wrong} FAILED")?,
            None => writeln!(out, "# Wrong elements: not checked")?,
        }
        if self.args.collective != Kind::Barrier && !self.bus_bandwidths.is_empty() {
            let sum: f64 = self.bus_bandwidths.iter().sum();
            let average = sum / self.bus_bandwidths.len() as f64;
            writeln!(out, "# Average bus bandwidth: {average:.3} GB/s")?;
        }
        out.flush()
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Microseconds with as many digits as mean something.
fn format_time(time: Duration) -> String {
    match microseconds(time) {
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 10_000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}
