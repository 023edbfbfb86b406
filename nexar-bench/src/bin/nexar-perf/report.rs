//! The table and the JSON lines.

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

/// A column of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) width: usize,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
}

impl Column {
    pub(crate) const fn new(width: usize, title: &'static str, unit: &'static str) -> Self {
        Column { width, title, unit }
    }
}

/// The last column of every table.
const WRONG: Column = Column::new(6, "#wrong", "");

/// Writes the results as they come. Only rank 0 has one.
pub(crate) struct Report {
    columns: Vec<Column>,
    table: bool,
    json: Option<Box<dyn Write>>,
    wrong: Option<u64>,
}

impl Report {
    /// A report in a table with these columns and that of wrong elements.
    pub(crate) fn new(json: Option<&Path>, columns: &[Column]) -> Result<Self, FileError> {
        let table = !json.is_some_and(is_stdout);
        let json: Option<Box<dyn Write>> = match json {
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
            columns: columns.iter().copied().chain([WRONG]).collect(),
            table,
            json,
            wrong: None,
        })
    }

    /// Writes the head of the table.
    pub(crate) fn start(&mut self, headline: &str) -> io::Result<()> {
        let of = |text: fn(&Column) -> &'static str| self.columns.iter().map(text).collect();
        let (titles, units): (Vec<_>, Vec<_>) = (of(|c| c.title), of(|c| c.unit));
        self.print(&[
            format!("# nexar-perf {headline}"),
            "#".into(),
            self.line('#', &titles),
            self.line('#', &units),
        ])
    }

    /// Writes a line of the table, whose cells are those of all columns but that of wrong elements (`None` if
    /// nothing was checked), and one of JSON.
    pub(crate) fn row(
        &mut self,
        cells: &[String],
        wrong: Option<u64>,
        record: &impl Serialize,
    ) -> io::Result<()> {
        self.wrong = wrong.map(|wrong| wrong + self.wrong.unwrap_or_default());
        let wrong = wrong.map_or("N/A".into(), |wrong| wrong.to_string());
        let cells: Vec<&str> = cells.iter().chain([&wrong]).map(String::as_str).collect();
        self.print(&[self.line(' ', &cells)])?;
        let Some(json) = &mut self.json else {
            return Ok(());
        };
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        json.write_all(&line)?;
        json.flush()
    }

    /// Writes the foot of the table.
    pub(crate) fn finish(self, summary: Option<String>) -> io::Result<()> {
        let mut lines = vec![match self.wrong {
            Some(0) => "# Wrong elements: 0 OK".into(),
            Some(wrong) => format!("# Wrong elements: {wrong} FAILED"),
            None => "# Wrong elements: not checked".into(),
        }];
        lines.extend(summary.map(|summary| format!("# {summary}")));
        self.print(&lines)
    }

    fn line(&self, first: char, cells: &[&str]) -> String {
        let mut line = String::from(first);
        for (at, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            if at > 0 {
                line.push(' ');
            }
            line.push_str(&format!("{cell:>width$}", width = column.width));
        }
        line
    }

    fn print(&self, lines: &[String]) -> io::Result<()> {
        if !self.table {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        for line in lines {
            writeln!(out, "{line}")?;
        }
        out.flush()
    }
}

pub(crate) fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Microseconds with as many digits as mean something.
pub(crate) fn format_time(time: Duration) -> String {
    match microseconds(time) {
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 10_000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// A number per second.
pub(crate) fn format_rate(rate: f64) -> String {
    format!("{rate:.0}")
}

/// How many times per second something happens that takes `time`.
pub(crate) fn per_second(time: Duration) -> f64 {
    match time.as_secs_f64() {
        seconds if seconds > 0.0 => 1.0 / seconds,
        _ => 0.0,
    }
}
