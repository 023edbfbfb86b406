//! Measuring, in turn.

use super::{
    CompareError, Entry, PeerState, Results, Subject, Tools, ours,
    plan::{self, Line},
};
use crate::report::{Machine, format};
use std::num::NonZeroUsize;

/// What to measure, and how often.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many times each library has its turn.
    pub pairs: NonZeroUsize,
    /// Only lines with this in their names.
    pub only: Option<String>,
    /// Only some of the sizes.
    pub quick: bool,
}

impl Options {
    /// The lines to measure.
    ///
    /// # Errors
    ///
    /// [`CompareError::NothingMatches`].
    pub fn lines(&self) -> Result<Vec<Line>, CompareError> {
        let mut lines = match self.quick {
            true => plan::quick_lines(),
            false => plan::lines(),
        };
        if let Some(part) = &self.only {
            lines.retain(|line| line.to_string().contains(part.as_str()));
            if lines.is_empty() {
                return Err(CompareError::NothingMatches(part.clone()));
            }
        }
        Ok(lines)
    }
}

/// Measures, and replaces what the results have of the same lines. Calls `save` whenever some lines are done.
/// What fails is told on standard error and has no figure.
///
/// # Errors
///
/// [`CompareError::NothingMatches`], and those of `save`.
pub async fn measure(
    options: &Options,
    tools: &Tools,
    results: &mut Results,
    mut save: impl FnMut(&Results) -> Result<(), CompareError>,
) -> Result<(), CompareError> {
    let lines = options.lines()?;
    let machine = Machine::this();
    for (peer, state) in tools.peers() {
        if let PeerState::Missing(reason) = state {
            eprintln!("nexar-compare: {} is skipped: {reason}", peer.name());
        }
        results.peers.insert(*peer, state.clone());
    }
    for batch in plan::batches(&lines) {
        let mut turns = Turns {
            tools,
            entries: batch
                .iter()
                .map(|line| Entry::new(*line, machine.clone()))
                .collect(),
        };
        for pair in 1..=options.pairs.get() {
            turns.take(pair, options.pairs).await;
        }
        for entry in turns.entries {
            results.put(entry);
        }
        save(results)?;
    }
    Ok(())
}

/// A batch that is being measured.
struct Turns<'a> {
    tools: &'a Tools,
    entries: Vec<Entry>,
}

impl Turns<'_> {
    /// Everybody's turn: line by line, and at last those that take seconds to start, once for all lines.
    async fn take(&mut self, pair: usize, pairs: NonZeroUsize) {
        let subjects = |slow: bool| {
            let tools = self.tools;
            let all = Subject::ALL.into_iter();
            all.filter(move |s| s.starts_slowly() == slow && tools.has(*s))
        };
        let (quick, slow): (Vec<_>, Vec<_>) = (subjects(false).collect(), subjects(true).collect());
        let lines: Vec<_> = self.entries.iter().map(|entry| entry.line).collect();
        for line in &lines {
            for &subject in &quick {
                if subject.measures(line) {
                    self.measure(subject, &[*line]).await;
                }
            }
        }
        for subject in slow {
            let measured: Vec<_> = lines
                .iter()
                .filter(|l| subject.measures(l))
                .copied()
                .collect();
            self.measure(subject, &measured).await;
        }
        for entry in &self.entries {
            eprintln!("{}, {pair} of {pairs}: {}", entry.line, last(entry));
        }
    }

    async fn measure(&mut self, subject: Subject, lines: &[Line]) {
        let Some(first) = lines.first() else { return };
        let measured = match subject.peer() {
            None => {
                let time = ours::measure(self.tools.perf(), subject, first).await;
                time.map(|us| vec![(*first, us)])
            }
            Some(_) => self.tools.measure_peer(subject, lines).await,
        };
        let times = measured.unwrap_or_else(|error| {
            eprintln!("nexar-compare: {first}, {}: {error}", subject.title());
            Vec::new()
        });
        for entry in self.entries.iter_mut().filter(|e| lines.contains(&e.line)) {
            let time = times.iter().find(|(line, _)| *line == entry.line);
            let of_subject = entry.us.entry(subject).or_default();
            of_subject.push(time.map(|(_, us)| *us));
        }
    }
}

/// The times of the last turn.
fn last(entry: &Entry) -> String {
    let times = entry.us.iter().map(|(subject, times)| {
        let time = times.last().copied().flatten();
        let time = time.map_or("failed".into(), format::duration);
        format!("{} {time}", subject.title())
    });
    times.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(only: Option<&str>, quick: bool) -> Options {
        Options {
            pairs: NonZeroUsize::MIN,
            only: only.map(str::to_owned),
            quick,
        }
    }

    #[test]
    fn a_part_of_a_name_chooses_lines() {
        assert_eq!(options(None, false).lines().unwrap(), plan::lines());
        let lines = options(Some("n=4"), false).lines().unwrap();
        assert!(lines.iter().all(|line| line.ranks == 4) && lines.len() > 10);
        let lines = options(Some("all-reduce n=2"), true).lines().unwrap();
        let names: Vec<_> = lines.iter().map(Line::to_string).collect();
        assert_eq!(
            names,
            [
                "all-reduce n=2 8 B",
                "all-reduce n=2 1 MiB",
                "all-reduce n=2 8 B spin off"
            ]
        );
        let error = options(Some("n=3"), false).lines().unwrap_err();
        assert!(error.to_string().contains("'n=3'"));
    }
}
