//! `nexar-perf` as its users start it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests count as tests")]

#[path = "../common/mod.rs"]
mod common;

mod collectives;
mod messages;
mod options;

use common::{PERF, lines, output};
use serde_json::Value;
use std::process::Output;

const QUICK: [&str; 4] = ["--iters", "2", "--factor", "8"];

fn perf(args: &[&str]) -> Output {
    let args: Vec<&str> = args.iter().chain(&QUICK).copied().collect();
    output(PERF, &args)
}

/// The JSON lines of a run that has to succeed.
fn records(args: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = args.iter().chain(&["--json", "-"]).copied().collect();
    let run = perf(&args);
    assert!(run.status.success(), "{args:?}: {:?}", lines(&run.stderr));
    assert_eq!(lines(&run.stderr), [""; 0]);
    lines(&run.stdout)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn assert_keys(record: &Value, expected: &[&str]) {
    let mut expected = expected.to_vec();
    let object = record.as_object().unwrap();
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

fn numbers(records: &[Value], key: &str) -> Vec<u64> {
    records
        .iter()
        .map(|record| record[key].as_u64().unwrap())
        .collect()
}
