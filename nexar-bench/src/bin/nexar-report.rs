//! Writes the results of the bench `transports` into a page, as tables and a chart.

use clap::Parser;
use nexar_bench::{
    files::{self, FileError},
    report::{self, Machine, ReportError},
};
use std::{path::PathBuf, process::ExitCode};

/// Writes what `cargo bench -p nexar-bench --bench transports` has measured into a page, as tables between
/// the lines `<!-- transports:begin -->` and `<!-- transports:end -->`, and as a chart. Run it in the root of the
/// repository, on the machine that has measured, with the sources that were measured: it writes down both.
#[derive(Debug, Parser)]
#[command(name = "nexar-report", version)]
struct Args {
    /// Directory of criterion's results [default: criterion in CARGO_TARGET_DIR, or target/criterion]
    #[arg(long, value_name = "DIR", env = "CRITERION_HOME")]
    criterion: Option<PathBuf>,

    /// Page to write the tables into
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    page: PathBuf,

    /// Where to write the chart
    #[arg(long, value_name = "FILE", default_value = "docs/transports.svg")]
    chart: PathBuf,

    /// Target directory of cargo
    #[arg(
        long,
        value_name = "DIR",
        env = "CARGO_TARGET_DIR",
        default_value = "target"
    )]
    target_dir: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("{path}: {source}", path = path.display())]
    Page { path: PathBuf, source: ReportError },
    #[error(transparent)]
    File(#[from] FileError),
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nexar-report: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that can fail comes before the first file is written.
fn run(args: &Args) -> Result<(), Error> {
    let directory = match &args.criterion {
        Some(directory) => directory.clone(),
        None => args.target_dir.join("criterion"),
    };
    let results = report::read(&directory)?;
    let page = files::read(&args.page)?;
    let chart = report::chart(&results)?;
    let link = chart
        .as_ref()
        .map(|_| report::link(&args.page, &args.chart));
    let tables = report::tables(&results, &Machine::this(), link.as_deref());
    let page = report::insert(&page, "transports", &tables).map_err(|source| Error::Page {
        path: args.page.clone(),
        source,
    })?;
    match chart {
        Some(svg) => files::write(&args.chart, &svg)?,
        None => eprintln!("nexar-report: no chart, since there are no results of transfers"),
    }
    Ok(files::write(&args.page, &page)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn without_results_nothing_is_written() {
        let missing = std::env::temp_dir().join(format!("nexar-report-{}", std::process::id()));
        let paths = ["page.md", "chart.svg"].map(|name| missing.join(name));
        let [page, chart] = paths.clone();
        let args = Args {
            criterion: Some(missing),
            page,
            chart,
            target_dir: "target".into(),
        };
        let error = run(&args).unwrap_err().to_string();
        assert!(error.contains("--bench transports"), "{error}");
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
