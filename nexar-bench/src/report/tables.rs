//! The results as tables in Markdown.

use super::{
    Amount, Machine, Measurement,
    format::{minute, significant},
    plan::{self, Group},
};
use std::time::{Duration, UNIX_EPOCH};

/// Results further apart than this are not from one run.
const ONE_RUN: Duration = Duration::from_secs(3600);

/// Fewer bytes are a matter of time, not of a rate.
const WORTH_A_RATE: u64 = 64 << 10;

const COMMAND: &str = "cargo bench -p nexar-bench --bench transports";

/// The tables, with a heading for each group of results, and what has not been measured. `chart` is where the page
/// finds the chart, if there is one.
pub fn tables(results: &[Measurement], machine: &Machine, chart: Option<&str>) -> String {
    let mut text = introduction(results, machine);
    if let Some(path) = chart {
        push(
            &mut text,
            &format!("![Bytes per second by transport]({path})"),
        );
    }
    for group in Group::ALL {
        push(&mut text, &format!("### {}", title(group)));
        push(&mut text, explanation(group));
        let rows: Vec<_> = results.iter().filter(|m| m.group == group).collect();
        if !rows.is_empty() {
            push(&mut text, &table(group, &rows, results));
        }
        if let Some(note) = missing(group, &rows) {
            push(&mut text, &note);
        }
    }
    text
}

/// Adds a block.
pub(crate) fn push(text: &mut String, block: &str) {
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(block.trim_end());
}

fn introduction(results: &[Measurement], machine: &Machine) -> String {
    let newest = results.iter().map(|m| m.written).max();
    let oldest = results.iter().map(|m| m.written).min();
    let (newest, oldest) = (newest.unwrap_or(UNIX_EPOCH), oldest.unwrap_or(UNIX_EPOCH));
    let mut text = machine.describe(newest);
    let complete = Group::ALL.iter().all(|&group| {
        let rows: Vec<_> = results.iter().filter(|m| m.group == group).collect();
        missing(group, &rows).is_none()
    });
    if !complete {
        let note = format!(
            "**These are a part of the results**; what is missing stands below each table. \
             All of them: `{COMMAND} --features s2n-quic`."
        );
        push(&mut text, &note);
    }
    if newest.duration_since(oldest).unwrap_or_default() > ONE_RUN {
        let note = format!(
            "**The results are not from one run**: the first was written on {}, the last on {}. Ratios compare \
             across runs.",
            minute(oldest),
            minute(newest)
        );
        push(&mut text, &note);
    }
    push(
        &mut text,
        "Two processes, or one for each rank, each on a `current_thread` runtime. Figures are medians with \
         their 95 % confidence intervals; GB are 10^9 bytes. The last columns say how many times as fast \
         this is as plain TCP, as TLS over TCP, and as the QUIC implementation beneath without nexar, in \
         the same run: above 1 is faster.",
    );
    text
}

fn title(group: Group) -> &'static str {
    match group {
        Group::RoundTrip => "Round trip",
        Group::MessageRate => "Message rate",
        Group::OneWay => "Stream, one way",
        Group::BothWays => "Stream, both ways at the same time",
        Group::AllReduce => "All-reduce",
        Group::Formation => "Forming a group",
    }
}

/// What tells the cases of a group apart.
fn cases(group: Group) -> &'static str {
    match group {
        Group::RoundTrip | Group::MessageRate | Group::OneWay | Group::BothWays => "size",
        Group::AllReduce => "ranks, size",
        Group::Formation => "ranks",
    }
}

fn explanation(group: Group) -> &'static str {
    match group {
        Group::RoundTrip => "8 bytes to the other process and back.",
        Group::MessageRate => {
            "64 bytes in each send, 10,000 sends and then a confirmation. Streams have no borders between \
             messages; nexar's messages are found by source and tag."
        }
        Group::OneWay => {
            "From the first byte sent until the receiver's confirmation has come back."
        }
        Group::BothWays => "GB/s in each direction.",
        Group::AllReduce => {
            "f32 sum in place. GB/s are the bytes of the buffer by the time. Two ranks exchange their \
             buffers, so there the yardstick is to move as many bytes both ways, without adding them up."
        }
        Group::Formation => {
            "From opening the endpoints in processes that are already running until every rank is connected \
             to every other."
        }
    }
}

/// In what a group is given.
enum Unit {
    Microseconds,
    Milliseconds,
    MessagesPerSecond,
    Gigabytes,
}

impl Unit {
    fn of(group: Group) -> Self {
        match group {
            Group::RoundTrip | Group::AllReduce => Unit::Microseconds,
            Group::Formation => Unit::Milliseconds,
            Group::MessageRate => Unit::MessagesPerSecond,
            Group::OneWay | Group::BothWays => Unit::Gigabytes,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::MessagesPerSecond => "messages/s",
            Unit::Gigabytes => "GB/s",
        }
    }

    /// The figure for an iteration of `seconds`.
    fn value(&self, m: &Measurement, seconds: f64) -> f64 {
        match self {
            Unit::Microseconds => seconds * 1e6,
            Unit::Milliseconds => seconds * 1e3,
            Unit::MessagesPerSecond => m.rate(seconds),
            Unit::Gigabytes => m.rate(seconds) / 1e9,
        }
    }
}

fn table(group: Group, rows: &[&Measurement], results: &[Measurement]) -> String {
    let unit = Unit::of(group);
    let rate = (group == Group::AllReduce).then_some("GB/s");
    let mut head = vec![cases(group), "", unit.name(), "95 %"];
    head.extend(rate);
    let compared = group != Group::Formation;
    if compared {
        head.extend(["x TCP", "x TLS", "x QUIC alone"]);
    }
    let mut text = line(&head);
    text.push_str("|---|---|");
    text.push_str(&"--:|".repeat(head.len() - 2));
    text.push('\n');
    for m in rows {
        let value = |seconds| unit.value(m, seconds);
        let (a, b) = (value(m.time.low), value(m.time.high));
        let mut cells = vec![
            m.case.clone(),
            m.subject.clone(),
            significant(value(m.time.median)),
            format!("{}-{}", significant(a.min(b)), significant(a.max(b))),
        ];
        cells.extend(rate.map(|_| match m.amount {
            Amount::Bytes(bytes) if bytes >= WORTH_A_RATE => {
                significant(m.rate(m.time.median) / 1e9)
            }
            _ => String::new(),
        }));
        if compared {
            cells.extend(ratios(m, results));
        }
        text.push_str(&line(&cells));
    }
    text
}

fn line<S: AsRef<str>>(cells: &[S]) -> String {
    let mut text = String::from("|");
    for cell in cells {
        text.push(' ');
        text.push_str(cell.as_ref());
        text.push_str(" |");
    }
    text.push('\n');
    text
}

/// How many times as fast as its yardsticks something is.
fn ratios(m: &Measurement, results: &[Measurement]) -> [String; 3] {
    let beneath = plan::beneath(&m.subject);
    [Some(plan::TCP), Some(plan::TLS), beneath.as_deref()].map(|yardstick| {
        let found = yardstick.and_then(|name| find(m, name, results));
        found.map_or(String::new(), |y| {
            format!("{:.2}", y.time.median / m.time.median)
        })
    })
}

/// What does the same with another subject.
fn find<'a>(m: &Measurement, subject: &str, results: &'a [Measurement]) -> Option<&'a Measurement> {
    if m.subject == subject {
        return None;
    }
    let (group, case) = match m.group {
        Group::AllReduce => (Group::BothWays, plan::exchanged(&m.case)?),
        group => (group, m.case.as_str()),
    };
    results
        .iter()
        .find(|y| y.group == group && y.case == case && y.subject == subject)
}

/// What a group lacks, and how to measure it.
fn missing(group: Group, rows: &[&Measurement]) -> Option<String> {
    let cases = group.cases();
    let mut lacking = Vec::new();
    for subject in group.subjects() {
        let has = |case: &String| rows.iter().any(|m| m.subject == subject && m.case == *case);
        let absent: Vec<_> = cases.iter().filter(|case| !has(case)).cloned().collect();
        if absent.len() == cases.len() {
            lacking.push(subject);
        } else if !absent.is_empty() {
            lacking.push(format!("{subject} ({})", absent.join("; ")));
        }
    }
    if lacking.is_empty() {
        return None;
    }
    let command = format!("`{COMMAND} -- {}`", group.id());
    let what = match rows.is_empty() {
        true => "all of this".into(),
        false => lacking.join(", "),
    };
    let feature = match lacking.iter().any(|subject| subject.contains("s2n-quic")) {
        true => ", s2n-quic with `--features s2n-quic` before the `--`",
        false => "",
    };
    Some(format!("Not measured: {what}. {command} does it{feature}."))
}

#[cfg(test)]
mod tests {
    use super::{super::fixture, *};

    fn part() -> Vec<Measurement> {
        let one_way = |subject, seconds| {
            let bytes = Amount::Bytes(64 << 20);
            fixture::measurement(Group::OneWay, subject, "64 MiB", bytes, seconds)
        };
        let exchange = Amount::Bytes(1 << 20);
        vec![
            one_way("nexar quinn", 0.025),
            one_way("TCP", 0.02),
            one_way("quinn alone", 0.0225),
            fixture::measurement(Group::BothWays, "TLS over TCP", "1 MiB", exchange, 1e-3),
            fixture::measurement(
                Group::AllReduce,
                "nexar quinn",
                "2 ranks, 1 MiB",
                exchange,
                5e-4,
            ),
            fixture::measurement(
                Group::AllReduce,
                "nexar quinn",
                "4 ranks, 1 MiB",
                exchange,
                0.04,
            ),
        ]
    }

    #[test]
    fn figures_have_intervals_units_and_ratios() {
        let text = tables(&part(), &fixture::machine(), None);
        for line in [
            "2026-11-30, Example CPU, 2 cores, Linux 6.18, loopback; rustc 1.95.0, commit 0123abc.",
            "| size |  | GB/s | 95 % | x TCP | x TLS | x QUIC alone |",
            "|---|---|--:|--:|--:|--:|--:|",
            "| 64 MiB | nexar quinn | 2.68 | 2.15-3.36 | 0.80 |  | 0.90 |",
            "| 64 MiB | TCP | 3.36 | 2.68-4.19 |  |  |  |",
            "| 64 MiB | quinn alone | 2.98 | 2.39-3.73 | 0.89 |  |  |",
            "| ranks, size |  | us | 95 % | GB/s | x TCP | x TLS | x QUIC alone |",
            "| 2 ranks, 1 MiB | nexar quinn | 500 | 400-625 | 2.10 |  | 2.00 |  |",
            "| 4 ranks, 1 MiB | nexar quinn | 40,000 | 32,000-50,000 | 0.026 |  |  |  |",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!text.contains("!["));
    }

    #[test]
    fn what_is_missing_is_named_with_its_command() {
        let text = tables(&part(), &fixture::machine(), None);
        for part in [
            "**These are a part of the results**",
            "Not measured: all of this. `cargo bench -p nexar-bench --bench transports -- formation` does it",
            "nexar quinn (64 KiB; 1 MiB), nexar s2n-quic, TCP (64 KiB; 1 MiB), TLS over TCP,",
            "s2n-quic with `--features s2n-quic`",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_full_report_has_no_notes() {
        let text = tables(&fixture::everything(), &fixture::machine(), Some("a.svg"));
        assert!(
            !text.contains("Not measured") && !text.contains("**"),
            "{text}"
        );
        assert!(text.contains("](a.svg)"));
        for group in Group::ALL {
            let rows = group.cases().len() * group.subjects().len();
            let section = text
                .split("### ")
                .find(|s| s.starts_with(title(group)))
                .unwrap();
            assert_eq!(
                section.lines().filter(|l| l.starts_with('|')).count(),
                rows + 2
            );
        }
    }

    #[test]
    fn results_of_several_runs_are_told() {
        let mut results = fixture::everything();
        assert!(!tables(&results, &fixture::machine(), None).contains("not from one run"));
        results[0].written += Duration::from_secs(7200);
        let text = tables(&results, &fixture::machine(), None);
        assert!(
            text.contains(
                "the first was written on 2026-11-30 00:53, the last on 2026-11-30 02:53"
            ),
            "{text}"
        );
    }
}
