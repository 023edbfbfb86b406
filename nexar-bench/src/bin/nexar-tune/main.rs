//! Writes the tables that decide about the algorithms of collectives.

mod constants;
mod measure;
mod write;

use clap::Parser;
use constants::Constants;
use measure::Perf;
use nexar_bench::{
    files::{self, FileError},
    report::ReportError,
};
use nexar_collectives::{
    Collective,
    tune::{self, Hosts, Line, Machine},
};
use std::{
    io,
    path::PathBuf,
    process::ExitCode,
    sync::Mutex,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Derives from a cost model which algorithm a collective uses in which world and for which size, for ranks of one
/// host and of several, and prints the tables. The model simulates the schedules of all ranks, with constants that
/// are measured on this machine (some 10 s) or given. Takes some minutes; run it in the root of the repository.
#[derive(Debug, Parser)]
#[command(name = "nexar-tune", version)]
struct Args {
    #[command(flatten)]
    constants: Constants,

    /// Write the tables into the source and the documentation
    #[arg(long)]
    write: bool,

    /// Derive nothing: measure each algorithm between processes on this machine, beside what the model says
    #[arg(long, conflicts_with = "write")]
    measure: bool,

    /// Numbers of ranks to measure
    #[arg(long, value_name = "RANKS", value_delimiter = ',', default_value = "2,4,8", requires = "measure",
        value_parser = clap::value_parser!(u16).range(2..=256))]
    ranks: Vec<u16>,

    /// Collectives to derive or to measure, such as all_reduce [default: all; only with --measure, or to print]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = collective, conflicts_with = "write")]
    collective: Vec<Collective>,

    /// The nexar-perf that measures [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    perf: Option<PathBuf>,

    /// The source file with the tables
    #[arg(
        long,
        value_name = "FILE",
        default_value = "nexar-collectives/src/schedule/table/data.rs"
    )]
    source: PathBuf,

    /// The page with the tables
    #[arg(long, value_name = "FILE", default_value = "docs/algorithms.md")]
    page: PathBuf,
}

fn collective(name: &str) -> Result<Collective, String> {
    let names: Vec<_> = tune::collectives().map(Collective::name).collect();
    tune::collectives()
        .find(|collective| collective.name() == name)
        .ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Measure(#[from] measure::MeasureError),
    #[error("{path}: {source}", path = path.display())]
    Page { path: PathBuf, source: ReportError },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot find this program: {0}")]
    Itself(io::Error),
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nexar-tune: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    let perf = match &args.perf {
        Some(perf) => perf.clone(),
        None => std::env::current_exe()
            .map_err(Error::Itself)?
            .with_file_name("nexar-perf"),
    };
    let perf = Perf(perf);
    let constants = args.constants.complete(&perf)?;
    eprint!("{}", constants.describe());
    let all: Vec<Collective> = match args.collective.as_slice() {
        [] => tune::collectives().collect(),
        some => some.to_vec(),
    };
    if args.measure {
        let machine = constants.machine(Hosts::One);
        return Ok(measure::compare(&perf, &machine, &all, &args.ranks)?);
    }
    let tables = [Hosts::One, Hosts::Several].map(|hosts| (hosts, constants.machines(hosts)));
    let tables = tables.map(|(hosts, machines)| (hosts, derive(&machines, hosts, &all)));
    for (hosts, lines) in &tables {
        print!("{}", write::markdown(*hosts, lines));
    }
    if !args.write {
        return Ok(());
    }
    let page = files::read(&args.page)?;
    let page = write::insert(&page, &constants, &tables).map_err(|source| Error::Page {
        path: args.page.clone(),
        source,
    })?;
    files::write(&args.source, &write::source(&constants, &tables))?;
    Ok(files::write(&args.page, &page)?)
}

/// The lines of all collectives, which are derived side by side.
fn derive(machines: &[Machine], hosts: Hosts, collectives: &[Collective]) -> Vec<Line> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Vec<Line>)>> = Mutex::default();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(collective) = collectives.get(at) else {
                return;
            };
            let lines = tune::derive(machines, hosts, *collective);
            done.lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .push((at, lines));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().flat_map(|(_, lines)| lines).collect()
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
    fn collectives_have_the_names_of_the_setting() {
        assert_eq!(collective("all_reduce"), Ok(Collective::AllReduce));
        assert!(collective("all-reduce").unwrap_err().contains("all_reduce"));
    }
}
