//! The results as tables in Markdown.

use super::{
    Entry, PeerState, Results, Subject,
    plan::{self, Line, Operation},
    targets::{self, Bound, Verdict},
};
use crate::{
    options::readable,
    report::{
        format::{date, duration, significant},
        tables::push,
    },
};
use std::collections::BTreeSet;

const COMMAND: &str = "cargo run --release -p nexar-bench --bin nexar-compare";

/// A table.
struct Section {
    title: &'static str,
    explanation: &'static str,
    has: fn(&Line) -> bool,
}

const SECTIONS: &[Section] = &[
    Section {
        title: "All-reduce",
        explanation: "The size is that of the data of a rank.",
        has: |line| line.spin && line.operation == Operation::AllReduce,
    },
    Section {
        title: "Barrier",
        explanation: "",
        has: |line| line.operation == Operation::Barrier,
    },
    Section {
        title: "Other collectives",
        explanation: "The size is that of all blocks together: of what every rank has after an all-gather \
                      and before a reduce-scatter or an all-to-all, and of the one block of a broadcast. Each \
                      library does the same work.",
        has: |line| plan::COLLECTIVES.contains(&line.operation),
    },
    Section {
        title: "Messages between two ranks",
        explanation: "Half a round trip of a message that is answered, and the rate of messages one way, two of \
                      them under way at a time.",
        has: |line| {
            let messages = [Operation::HalfRoundTrip, Operation::Stream];
            line.spin && messages.contains(&line.operation)
        },
    },
    Section {
        title: "Remote calls",
        explanation: "The round trip of one caller, and the calls per second of 64, of 8 bytes each way.",
        has: |line| line.operation.is_call(),
    },
    Section {
        title: "Without spinning",
        explanation: "With `NEXAR_SPIN_US=0`, a rank that waits sleeps at once and leaves its core to others.",
        has: |line| !line.spin,
    },
];

/// The tables with their introduction. `charts` are numbers of ranks, and where the page finds their charts of
/// the all-reduce.
pub fn tables(results: &Results, charts: &[(usize, String)]) -> String {
    let mut text = introduction(results);
    for section in SECTIONS {
        push(&mut text, &format!("### {}", section.title));
        if !section.explanation.is_empty() {
            push(&mut text, section.explanation);
        }
        let plan: Vec<_> = sorted(section);
        let measured = plan.iter().filter_map(|line| results.entry(line));
        let rows: Vec<_> = measured.map(|entry| row(entry, section, results)).collect();
        if !rows.is_empty() {
            push(&mut text, &head(section));
            text.push('\n');
            text.push_str(&rows.join("\n"));
        }
        let missing: Vec<_> = plan
            .iter()
            .filter(|line| results.entry(line).is_none())
            .map(|line| format!("`{line}`"))
            .collect();
        if !missing.is_empty() {
            let names = missing.join(", ");
            push(&mut text, &format!("Not measured: {names}."));
        }
        if section.title == SECTIONS[0].title {
            for (ranks, path) in charts {
                push(
                    &mut text,
                    &format!("![All-reduce of {ranks} ranks]({path})"),
                );
            }
        }
    }
    text
}

fn introduction(results: &Results) -> String {
    let Some(newest) = results.entries.iter().max_by_key(|entry| entry.measured) else {
        return format!("Nothing has been measured yet: `{COMMAND}` does it.");
    };
    let mut text = newest.machine.describe(newest.time_measured());
    text.push_str(&libraries(results));
    let [met, missed, unknown] = targets::count(results);
    let turns = turns(results);
    push(
        &mut text,
        &format!(
            "`{COMMAND}` measured each line {turns}: nexar on quinn, its default, nexar on s2n-quic, and each \
             other library; f32 sum, default settings, one process for each rank. Figures are medians of the \
             time of one operation, back to back, on the slowest rank. Behind a figure of another library \
             stands how many times as long as nexar on quinn it takes, the median of the ratios pair by pair, \
             and their range: above 1, nexar is faster. Neither Open MPI nor Gloo encrypts anything; Open MPI \
             looks for data all the time."
        ),
    );
    push(
        &mut text,
        &format!("Targets: {met} met, {missed} missed, {unknown} not measured."),
    );
    if let Some(note) = mixture(results) {
        push(&mut text, &note);
    }
    text
}

/// How many turns everybody had.
fn turns(results: &Results) -> String {
    let entries = results.entries.iter();
    let turns = entries.filter_map(|entry| entry.us.values().map(Vec::len).max());
    let turns: BTreeSet<_> = turns.collect();
    match (turns.first(), turns.last()) {
        (Some(1) | None, Some(1) | None) => "once".into(),
        (Some(fewest), Some(most)) if fewest < most => format!("{fewest} to {most} times in turn"),
        (_, most) => format!("{} times in turn", most.unwrap_or(&1)),
    }
}

/// The versions of the other libraries.
fn libraries(results: &Results) -> String {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for (peer, state) in &results.peers {
        match state {
            PeerState::Installed(version) => there.push(version.as_str()),
            PeerState::Missing(_) => missing.push(peer.name()),
        }
    }
    let mut text = String::new();
    for (what, names) in [("Beside it", there), ("Not installed", missing)] {
        if !names.is_empty() {
            text.push_str(&format!(" {what}: {}.", names.join(", ")));
        }
    }
    text
}

/// A note if the results are not from one build on one machine.
fn mixture(results: &Results) -> Option<String> {
    let builds: BTreeSet<_> = results
        .entries
        .iter()
        .map(|entry| {
            let machine = &entry.machine;
            let day = date(entry.time_measured());
            format!("{} on {} ({day})", machine.commit, machine.cpu)
        })
        .collect();
    let builds: Vec<_> = builds.into_iter().collect();
    (builds.len() > 1).then(|| {
        let list = builds.join(", ");
        format!("**The results are not from one run**: {list}. Ratios are.")
    })
}

/// The lines of a table: by operation, ranks and size.
fn sorted(section: &Section) -> Vec<Line> {
    let mut lines = plan::lines();
    lines.retain(section.has);
    lines.sort();
    lines
}

/// The columns of a table.
fn columns(section: &Section) -> Vec<Subject> {
    let lines = sorted(section);
    let measures = |subject: &Subject| lines.iter().any(|line| subject.measures(line));
    Subject::ALL.into_iter().filter(measures).collect()
}

fn head(section: &Section) -> String {
    let columns = columns(section);
    let titles: Vec<_> = columns.iter().map(|subject| subject.title()).collect();
    format!(
        "| | {} | target |\n|---|{}---|",
        titles.join(" | "),
        "--:|".repeat(columns.len())
    )
}

fn row(entry: &Entry, section: &Section, results: &Results) -> String {
    let columns = columns(section);
    let cells: Vec<_> = columns.iter().map(|s| cell(entry, *s, results)).collect();
    let targets: Vec<_> = targets::bounds(&entry.line)
        .map(|bound| target(bound, entry))
        .collect();
    let (name, cells, targets) = (name(&entry.line), cells.join(" | "), targets.join("; "));
    format!("| {name} | {cells} | {targets} |")
}

fn name(line: &Line) -> String {
    let (operation, ranks) = (line.operation.name(), line.ranks);
    match line.bytes {
        0 => format!("{operation}, {ranks} ranks"),
        bytes => format!("{operation}, {ranks} ranks, {}", readable(bytes)),
    }
}

fn cell(entry: &Entry, subject: Subject, results: &Results) -> String {
    if !subject.measures(&entry.line) {
        return String::new();
    }
    let Some(time) = entry.time(subject) else {
        let state = subject.peer().and_then(|peer| results.peers.get(&peer));
        return match (entry.us.contains_key(&subject), state) {
            (true, _) => "failed".into(),
            (false, Some(PeerState::Missing(_))) => "not installed".into(),
            (false, _) => "not measured".into(),
        };
    };
    let figure = figure(&entry.line, time);
    match entry.ratio(subject).filter(|_| subject.peer().is_some()) {
        Some(ratio) if ratio.pairs > 1 => {
            let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(factor);
            format!("{figure}, {median} ({low}-{high})")
        }
        Some(ratio) => format!("{figure}, {}", factor(ratio.median)),
        None => figure,
    }
}

fn figure(line: &Line, us: f64) -> String {
    match line.operation {
        Operation::Stream => {
            let rate = targets::gigabytes_per_second(line, us);
            format!("{} GB/s", significant(rate))
        }
        Operation::Calls => format!("{} calls/s", significant(1e6 / us)),
        _ => duration(us),
    }
}

/// Two digits behind the point where they tell anything.
fn factor(value: f64) -> String {
    match value {
        v if v >= 9.95 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

fn target(bound: Bound, entry: &Entry) -> String {
    let what = match bound {
        Bound::Faster(subject) => format!("faster than {}", subject.title()),
        Bound::AtLeast(subject, times) => format!("at least {times:.1} x {}", subject.title()),
        Bound::Below(us) => format!("below {us} us"),
        Bound::GigabytesPerSecond(rate) => format!("at least {rate} GB/s"),
        Bound::CallsPerSecond(rate) => format!("at least {} calls/s", significant(rate)),
    };
    match targets::verdict(bound, entry) {
        Verdict::Met => format!("met: {what}"),
        Verdict::Missed => format!("**missed**: {what}"),
        Verdict::Unknown => format!("not measured: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixture, *};
    use crate::compare::Peer;

    const MIB: usize = 1 << 20;

    fn part() -> Results {
        let mut results = Results::default();
        let missing = PeerState::Missing("mpicc: not installed".into());
        results.peers.insert(Peer::OpenMpi, missing);
        let torch = PeerState::Installed("Gloo of torch 2".into());
        results.peers.insert(Peer::Gloo, torch);
        let line = Line::new(Operation::AllReduce, 4, MIB);
        let mut entry = fixture::entry(line, &[(Subject::S2nQuic, 2100.0)]);
        let times = [2000.0, 2500.0, 2200.0].map(Some).to_vec();
        entry.us.insert(Subject::Quinn, times);
        let times = vec![Some(3000.0), Some(5000.0), None];
        entry.us.insert(Subject::Gloo, times);
        entry.us.insert(Subject::Nexar02, vec![None; 3]);
        results.put(entry);
        let line = Line::new(Operation::Stream, 2, MIB);
        results.put(fixture::entry(line, &[(Subject::Quinn, 1048.576)]));
        let line = Line::new(Operation::Calls, 2, 8);
        let times = [(Subject::Quinn, 6.25), (Subject::Nexar02, 100.0)];
        results.put(fixture::entry(line, &times));
        results
    }

    fn assert_lines(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{line}\n{text}");
        }
    }

    #[test]
    fn figures_stand_with_ratios_ranges_and_targets() {
        let text = tables(&part(), &[(4, "all-reduce-4.svg".into())]);
        assert_lines(
            &text,
            &[
                "2026-11-30, Example CPU, 2 cores, Linux 6.18, loopback; rustc 1.95.0, commit 0123abc. \
                 Beside it: Gloo of torch 2. Not installed: openmpi.",
                "| | quinn | s2n-quic | Open MPI | Gloo | nexar 0.2.0 | nexar 0.2.0 QUIC | target |",
                "|---|--:|--:|--:|--:|--:|--:|---|",
                "| all-reduce, 4 ranks, 1 MiB | 2.20 ms | 2.10 ms | not installed | 4.00 ms, 1.75 (1.50-2.00) | \
                 failed | not measured | not measured: at least 1.0 x Open MPI; met: faster than Gloo; not measured: \
                 faster than nexar 0.2.0 |",
                "![All-reduce of 4 ranks](all-reduce-4.svg)",
                "| stream, 2 ranks, 1 MiB | 1.00 GB/s | not measured | not installed | not measured | not \
                 measured | not measured | **missed**: at least 2.5 GB/s |",
                "| | quinn | s2n-quic | nexar 0.2.0 | target |",
                "| calls-64, 2 ranks, 8 B | 160,000 calls/s | not measured | 10,000 calls/s, 16 | met: at least 150,000 \
                 calls/s |",
                "Not measured: `barrier n=2`, `barrier n=4`, `barrier n=8`.",
            ],
        );
        assert!(text.contains("Targets: 2 met, 1 missed, "));
        assert!(text.contains("measured each line 1 to 3 times in turn: "));
    }

    #[test]
    fn a_full_comparison_has_no_notes() {
        let text = tables(&fixture::everything(), &[]);
        for note in [
            "Not measured",
            "not measured:",
            "not from one run",
            "failed",
            "Not installed",
        ] {
            assert!(!text.contains(note), "{note}\n{text}");
        }
        let rows = text.lines().filter(|line| line.starts_with("| "));
        assert_eq!(rows.count(), plan::lines().len() + SECTIONS.len());
        for section in SECTIONS {
            assert!(text.contains(&format!("### {}\n", section.title)));
        }
    }

    #[test]
    fn results_of_several_builds_are_told() {
        let mut results = fixture::everything();
        let mut entry = results.entries[0].clone();
        entry.machine.commit = "fedcba9".into();
        results.put(entry);
        let text = tables(&results, &[]);
        let note =
            "0123abc on Example CPU (2026-11-30), fedcba9 on Example CPU (2026-11-30). Ratios are.";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn without_results_the_command_is_named() {
        assert!(tables(&Results::default(), &[]).contains(COMMAND));
    }
}
