//! Measuring nexar: with nexar-perf, as anybody would.

use super::{
    CompareError, Subject,
    plan::{Line, Operation},
    process,
};
use serde::Deserialize;
use std::path::Path;
use tokio::process::Command;

/// What is needed of the JSON lines of nexar-perf.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    time_us: Option<f64>,
    mean_us: Option<f64>,
    messages_per_s: Option<f64>,
    calls_per_s_64: Option<f64>,
}

/// Microseconds of one operation.
pub(super) async fn measure(
    perf: &Path,
    subject: Subject,
    line: &Line,
) -> Result<f64, CompareError> {
    let output = process::output("nexar-perf", &mut command(perf, subject, line)).await?;
    time(line, &output).ok_or_else(|| CompareError::NoResult {
        program: "nexar-perf".into(),
        line: *line,
    })
}

fn command(perf: &Path, subject: Subject, line: &Line) -> Command {
    let mut command = process::command(perf);
    command.args(arguments(subject, line));
    if !line.spin {
        command.env("NEXAR_SPIN_US", "0");
    }
    command
}

fn arguments(subject: Subject, line: &Line) -> Vec<String> {
    let operation = match line.operation {
        Operation::HalfRoundTrip | Operation::Stream => "send-recv",
        Operation::Call | Operation::Calls => "rpc",
        collective => collective.name(),
    };
    let (ranks, bytes) = (line.ranks.to_string(), line.bytes.to_string());
    let mut words = vec![operation, "-n", &ranks, "--transport", subject.title()];
    words.extend(["--check", "off", "--json", "-"]);
    if line.bytes > 0 {
        words.extend(["--min", &bytes, "--max", &bytes]);
    }
    words.into_iter().map(str::to_owned).collect()
}

/// The time in what nexar-perf prints.
fn time(line: &Line, output: &str) -> Option<f64> {
    let record: Record = serde_json::from_str(output.lines().next()?).ok()?;
    let us = match line.operation {
        Operation::HalfRoundTrip | Operation::Call => record.mean_us?,
        Operation::Stream => 1e6 / record.messages_per_s?,
        Operation::Calls => 1e6 / record.calls_per_s_64?,
        _ => record.time_us?,
    };
    (us.is_finite() && us > 0.0).then_some(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_those_of_nexar_perf() {
        let line = Line::new(Operation::AllGather, 4, 1 << 20);
        assert_eq!(
            arguments(Subject::S2nQuic, &line).join(" "),
            "all-gather -n 4 --transport s2n-quic --check off --json - --min 1048576 --max 1048576"
        );
        let line = Line::new(Operation::Barrier, 2, 0);
        assert_eq!(
            arguments(Subject::Quinn, &line).join(" "),
            "barrier -n 2 --transport quinn --check off --json -"
        );
    }

    #[test]
    fn each_operation_has_its_time() {
        let collective = r#"{"collective":"all-reduce","ranks":2,"transport":"quinn","bytes":8,"time_us":12.5,"p50_us":13.0,"wrong":null}"#;
        let messages = r#"{"operation":"send-recv","bytes":8,"mean_us":11.5,"p50_us":11.0,"messages_per_s":2000.0,"stream_gbps":2.0}"#;
        let calls =
            r#"{"operation":"rpc","bytes":8,"mean_us":50.0,"p50_us":45.0,"calls_per_s_64":125000}"#;
        let time = |operation, output| time(&Line::new(operation, 2, 8), output);
        assert_eq!(time(Operation::AllReduce, collective), Some(12.5));
        assert_eq!(time(Operation::HalfRoundTrip, messages), Some(11.5));
        assert_eq!(time(Operation::Stream, messages), Some(500.0));
        assert_eq!(time(Operation::Call, calls), Some(50.0));
        assert_eq!(time(Operation::Calls, calls), Some(8.0));
        for nothing in ["", "# nexar-perf", "{}", messages] {
            assert_eq!(time(Operation::AllReduce, nothing), None, "{nothing}");
        }
        assert_eq!(time(Operation::Stream, r#"{"messages_per_s":0.0}"#), None);
    }
}
