//! Measures nexar beside other libraries, and writes the comparison into a page.

use clap::Parser;
use nexar_bench::{
    compare::{self, CompareError, Options, Peer, Results, Sources, Tools},
    files::{self, FileError},
    report::{self, ReportError},
};
use std::{
    env, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Numbers of ranks that have a chart.
const CHARTS: [usize; 3] = [2, 4, 8];

/// Measures nexar beside Open MPI, Gloo and nexar 0.2.0, all in turn, and writes tables between the lines
/// `<!-- compare:begin -->` and `<!-- compare:end -->` of a page, and charts beside it. Run it in the root of the
/// repository, as a release build, and leave the machine alone meanwhile. Libraries that are not installed are
/// skipped: Open MPI needs mpicc and mpirun, Gloo needs a Python with torch, nexar 0.2.0 needs a network for
/// cargo.
#[derive(Debug, Parser)]
#[command(name = "nexar-compare", version, max_term_width = 100)]
struct Args {
    /// Libraries to compare with
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "openmpi,gloo,nexar-0.2"
    )]
    peers: Vec<Peer>,

    /// Python with torch
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,

    /// How many times each library has its turn
    #[arg(long, value_name = "COUNT", default_value = "5")]
    pairs: NonZeroUsize,

    /// One turn, and only 8 B and 1 MiB
    #[arg(long)]
    quick: bool,

    /// Measure only lines with this in their names, as in "all-reduce n=2"; the others keep their results
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Print the names of the lines, and measure nothing
    #[arg(long)]
    list: bool,

    /// Measure nothing: write page and charts of the results that there are
    #[arg(long, conflicts_with_all = ["quick", "only", "list"])]
    report_only: bool,

    /// File of the results [default: nexar-compare/results.json in cargo's target directory]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// Page to write the tables into
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    page: PathBuf,

    /// Directory of the charts
    #[arg(long, value_name = "DIR", default_value = "docs/")]
    charts: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error("{path}: {source}", path = path.display())]
    Page { path: PathBuf, source: ReportError },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("this is not a release build, whose times would count: cargo run --release ...")]
    NotRelease,
    #[error("there are no results in {path}: measure first, without --report-only", path = .0.display())]
    NoResults(PathBuf),
    #[error("cannot start a runtime: {0}")]
    Runtime(io::Error),
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nexar-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    let options = Options {
        pairs: if args.quick {
            NonZeroUsize::MIN
        } else {
            args.pairs
        },
        only: args.only.clone(),
        quick: args.quick,
    };
    let lines = options.lines()?;
    if args.list {
        lines.iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    let target = target_directory()?;
    let default = || target.join("nexar-compare/results.json");
    let file = args.results.clone().unwrap_or_else(default);
    // A page that cannot be written should not come to light after half an hour.
    let page = files::read(&args.page)?;
    insert(args, &page, "")?;
    if args.report_only && !file.exists() {
        return Err(Error::NoResults(file));
    }
    let mut results = Results::read(&file)?;
    if !args.report_only {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let sources = Sources {
            package: env!("CARGO_MANIFEST_DIR").into(),
            target,
            python: args.python.clone(),
        };
        runtime.block_on(async {
            let tools = Tools::build(sources, &args.peers).await?;
            compare::measure(&options, &tools, &mut results, |results| {
                results.write(&file)
            })
            .await
        })?;
    }
    write_report(args, &page, &results)
}

/// The directory that this program is in is `release` in the target directory.
fn target_directory() -> Result<PathBuf, Error> {
    let this = Path::new("nexar-compare");
    let program = env::current_exe().map_err(FileError::of("find", this))?;
    match program.parent() {
        Some(release) if release.ends_with("release") => release
            .parent()
            .map(Path::to_owned)
            .ok_or(Error::NotRelease),
        _ => Err(Error::NotRelease),
    }
}

fn write_report(args: &Args, page: &str, results: &Results) -> Result<(), Error> {
    let mut charts = Vec::new();
    for ranks in CHARTS {
        let Some(svg) = compare::chart(results, ranks)? else {
            continue;
        };
        let path = args.charts.join(format!("all-reduce-{ranks}.svg"));
        charts.push((ranks, report::link(&args.page, &path)));
        files::write(&path, &svg)?;
    }
    let page = insert(args, page, &compare::tables(results, &charts))?;
    Ok(files::write(&args.page, &page)?)
}

fn insert(args: &Args, page: &str, text: &str) -> Result<String, Error> {
    report::insert(page, "compare", text).map_err(|source| Error::Page {
        path: args.page.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Args::command().debug_assert();
        let args = Args::parse_from(["nexar-compare"]);
        assert_eq!(args.peers, Peer::ALL);
        assert_eq!(args.pairs.get(), 5);
        let args = Args::parse_from(["nexar-compare", "--peers", "gloo,openmpi"]);
        assert_eq!(args.peers, [Peer::Gloo, Peer::OpenMpi]);
    }

    #[test]
    fn only_a_release_build_measures() {
        // Tests are in a directory of their own.
        assert!(matches!(target_directory(), Err(Error::NotRelease)));
    }
}
