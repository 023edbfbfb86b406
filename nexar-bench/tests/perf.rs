//! `nexar-perf` as its users start it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests count as tests")]

mod common;

use common::{PERF, Running, command, line, lines, output, send_signal};
use nexar_quic::Backend;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Output;

const KEYS: [&str; 13] = [
    "collective",
    "ranks",
    "transport",
    "dtype",
    "redop",
    "bytes",
    "count",
    "time_us",
    "p50_us",
    "p99_us",
    "algbw_gbps",
    "busbw_gbps",
    "wrong",
];

const SEND_RECV_KEYS: [&str; 12] = [
    "operation",
    "ranks",
    "transport",
    "dtype",
    "bytes",
    "count",
    "mean_us",
    "p50_us",
    "p99_us",
    "messages_per_s",
    "stream_gbps",
    "wrong",
];

const COLLECTIVES: [&str; 18] = [
    "all-reduce",
    "all-reduce-many",
    "reduce",
    "broadcast",
    "all-gather",
    "all-gather-v",
    "gather",
    "gather-v",
    "scatter",
    "scatter-v",
    "reduce-scatter",
    "reduce-scatter-v",
    "all-to-all",
    "all-to-all-v",
    "neighbor-all-to-all",
    "scan",
    "exclusive-scan",
    "barrier",
];

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

fn assert_keys<const N: usize>(record: &Value, mut expected: [&str; N]) {
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

#[test]
fn json_lines_have_exactly_the_documented_keys() {
    let records = records(&["all-reduce", "-n", "2", "--max", "4K"]);
    for record in &records {
        assert_keys(record, KEYS);
        assert_eq!(record["collective"], "all-reduce");
        assert_eq!(record["transport"], Backend::default().name());
        assert_eq!(
            (&record["dtype"], &record["redop"]),
            (&"f32".into(), &"sum".into())
        );
        for time in ["time_us", "p50_us", "p99_us"] {
            assert!(record[time].as_f64().unwrap() > 0.0);
        }
    }
    assert_eq!(numbers(&records, "bytes"), [8, 64, 512, 4096]);
    assert_eq!(numbers(&records, "count"), [2, 16, 128, 1024]);
}

fn run_collectives(collectives: &[&str], ranks: u64) {
    let (world, root) = (ranks.to_string(), (ranks - 1).to_string());
    for collective in collectives.iter().copied() {
        let records = records(&[
            collective, "-n", &world, "--root", &root, "--min", "12", "--max", "50K",
        ]);
        assert_eq!(
            numbers(&records, "wrong"),
            vec![0; records.len()],
            "{collective} of {ranks}"
        );
        assert_eq!(numbers(&records, "ranks"), vec![ranks; records.len()]);
        for record in &records {
            assert_keys(record, KEYS);
            assert_eq!(record["collective"], collective);
        }
        let bytes = numbers(&records, "bytes");
        let blocks = match collective {
            "barrier" => {
                assert_eq!(bytes, [0]);
                continue;
            }
            "all-gather" | "gather" | "scatter" | "reduce-scatter" | "all-to-all" => ranks,
            "neighbor-all-to-all" => 2,
            _ => 1,
        };
        let block = 4 * blocks;
        let whole = [12, 96, 768, 6144, 49_152].map(|size| size / block * block);
        assert_eq!(bytes, whole, "{collective} of {ranks}");
        let counts = whole.map(|bytes| bytes / block);
        assert_eq!(numbers(&records, "count"), counts);
    }
}

#[test]
fn one_rank() {
    run_collectives(&COLLECTIVES, 1);
}

#[test]
fn two_ranks() {
    run_collectives(&COLLECTIVES, 2);
}

#[test]
fn three_ranks() {
    run_collectives(&COLLECTIVES, 3);
}

#[test]
fn five_ranks() {
    let some = [
        "all-reduce",
        "reduce-scatter-v",
        "gather",
        "all-to-all-v",
        "neighbor-all-to-all",
    ];
    run_collectives(&some, 5);
}

#[test]
fn types_and_reductions() {
    for (dtype, op) in [
        ("bf16", "sum"),
        ("f16", "product"),
        ("f64", "average"),
        ("i8", "average"),
        ("u64", "max"),
        ("u16", "bit-xor"),
        ("bool", "logical-and"),
    ] {
        let options = [
            "-n", "3", "--dtype", dtype, "--op", op, "--min", "30K", "--max", "30K",
        ];
        for collective in ["all-reduce", "reduce-scatter-v", "scan"] {
            if (collective, op) == ("scan", "average") {
                continue;
            }
            let args: Vec<&str> = [collective].iter().chain(&options).copied().collect();
            let records = records(&args);
            assert_eq!(numbers(&records, "wrong"), [0], "{collective} {dtype} {op}");
            assert_eq!(
                (&records[0]["dtype"], &records[0]["redop"]),
                (&dtype.into(), &op.into())
            );
        }
    }
}

/// Messages between ranks 0 and 1, beside a rank that does nothing.
#[test]
fn messages() {
    for (ranks, dtype, sizes) in [
        ("2", "f32", vec![12, 96, 768, 6144, 49_152, 393_216]),
        ("3", "u16", vec![12, 96]),
    ] {
        let max = sizes[sizes.len() - 1].to_string();
        let options = ["-n", ranks, "--dtype", dtype, "--min", "12", "--max", &max];
        let args: Vec<&str> = ["send-recv"].iter().chain(&options).copied().collect();
        let records = records(&args);
        assert_eq!(numbers(&records, "bytes"), sizes);
        let element = if dtype == "u16" { 2 } else { 4 };
        let counts: Vec<_> = sizes.iter().map(|size| size / element).collect();
        assert_eq!(numbers(&records, "count"), counts);
        assert_eq!(numbers(&records, "wrong"), vec![0; sizes.len()]);
        for record in &records {
            assert_keys(record, SEND_RECV_KEYS);
            assert_eq!(record["operation"], "send-recv");
            assert_eq!(record["dtype"], dtype);
            for figure in [
                "mean_us",
                "p50_us",
                "p99_us",
                "messages_per_s",
                "stream_gbps",
            ] {
                assert!(record[figure].as_f64().unwrap() > 0.0, "{figure}: {record}");
            }
        }
    }
}

#[test]
fn the_table_of_messages() {
    let run = perf(&["send-recv", "-n", "2", "--max", "64"]);
    assert!(run.status.success());
    let table = lines(&run.stdout);
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(Into::into).collect() };
    let header = table.iter().find(|line| line.contains("p99")).unwrap();
    let titles = [
        "#", "size", "count", "type", "mean", "p50", "p99", "stream", "stream", "#wrong",
    ];
    assert_eq!(words(header), titles);
    let rows: Vec<_> = table.iter().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows.len(), 2);
    let row = words(rows[1]);
    assert_eq!(row[..3], ["64", "16", "f32"]);
    assert_eq!((row.len(), row[8].as_str()), (9, "0"));
    assert_eq!(table.last().unwrap(), "# Wrong elements: 0 OK");
}

/// More tensors than elements, and more elements than tensors.
#[test]
fn tensors() {
    let args = [
        "all-reduce-many",
        "-n",
        "2",
        "--tensors",
        "7",
        "--max",
        "512",
    ];
    let records = records(&args);
    assert_eq!(numbers(&records, "wrong"), [0; 3]);
}

#[test]
fn a_broadcast_from_another_root() {
    let records = records(&[
        "broadcast",
        "-n",
        "3",
        "--root",
        "2",
        "--max",
        "4K",
        "--dtype",
        "i16",
    ]);
    assert_eq!(numbers(&records, "wrong"), [0; 4]);
    assert_eq!(records[0]["redop"], "none");
}

#[test]
fn the_table_is_that_of_nccl_tests_and_json_goes_to_a_file() {
    let directory = std::env::temp_dir().join(format!("nexar-perf-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("rows.json");
    let run = perf(&[
        "all-reduce",
        "-n",
        "2",
        "--max",
        "64",
        "--json",
        file.to_str().unwrap(),
    ]);
    assert!(run.status.success());
    let table = lines(&run.stdout);
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(Into::into).collect() };
    let header = table.iter().find(|line| line.contains("redop")).unwrap();
    assert_eq!(
        words(header.trim_start_matches('#')),
        [
            "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"
        ]
    );
    let rows: Vec<_> = table.iter().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows.len(), 2);
    let row = words(rows[1]);
    assert_eq!(row[..5], ["64", "16", "f32", "sum", "-1"]);
    assert_eq!((row.len(), row[8].as_str()), (9, "0"));
    assert!(
        rows.iter().all(|row| row.len() == header.len()),
        "{table:#?}"
    );
    let json = std::fs::read_to_string(&file).unwrap();
    assert_eq!(json.lines().count(), 2);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn without_checks_nothing_is_claimed() {
    let run = perf(&[
        "all-gather",
        "-n",
        "2",
        "--max",
        "8",
        "--check",
        "off",
        "--json",
        "-",
    ]);
    let record: Value = serde_json::from_str(&lines(&run.stdout)[0]).unwrap();
    assert_eq!(record["wrong"], Value::Null);
    assert!(run.status.success());
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let cases: [(&[&str], &str); 15] = [
        (
            &["all-reduce", "-n", "2", "--dtype", "bool"],
            "not supported for bool",
        ),
        (
            &["reduce-scatter-v", "-n", "2", "--op", "bit-or"],
            "not supported for f32",
        ),
        (&["all-reduce", "-n", "2", "--dtype", "float"], "bf16"),
        (&["all-reduce", "-n", "2", "--max", "8T"], "8T"),
        (&["broadcast", "-n", "2", "--root", "2"], "--root"),
        (&["scatter-v", "-n", "3", "--root", "3"], "no rank 3"),
        (
            &["scan", "-n", "2", "--op", "average"],
            "there is no scan of average; --op can be sum",
        ),
        (&["send-recv", "-n", "1"], "at least 2 ranks"),
        (&["send-recv", "-n", "2", "--dtype", "text"], "bf16"),
        (&["all-reduce-many", "-n", "2", "--tensors", "0"], "0"),
        (&["all-shuffle", "-n", "2"], "neighbor-all-to-all"),
        (
            &["gather", "-n", "2", "--min", "2K", "--max", "1K"],
            "--min",
        ),
        (&["all-reduce"], "-n RANKS"),
        (&["all-reduce", "-n", "0"], "0"),
        (
            &["all-reduce", "-n", "1", "--json", "/nonexistent/rows.json"],
            "/nonexistent/rows.json",
        ),
    ];
    for (args, expected) in cases {
        let run = perf(args);
        let stderr = lines(&run.stderr).join("\n");
        assert_eq!(run.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
        assert!(run.stdout.is_empty());
    }
}

#[test]
fn both_runtimes_work() {
    for runtime in ["multi-thread", "current-thread"] {
        let records = records(&[
            "all-reduce",
            "-n",
            "2",
            "--max",
            "512",
            "--runtime",
            runtime,
        ]);
        assert_eq!(numbers(&records, "wrong"), [0; 3]);
    }
}

/// Ranks take the transports in turn, and the head of the table names what they use.
#[test]
fn a_group_mixes_transports() {
    if !cfg!(all(feature = "quinn", feature = "s2n-quic")) {
        eprintln!("skipped: needs the features quinn and s2n-quic");
        return;
    }
    let mixed = "quinn,s2n-quic";
    let args = ["all-reduce", "-n", "3", "--transport", mixed, "--max", "4K"];
    let run = perf(&args);
    assert!(run.status.success(), "{:?}", lines(&run.stderr));
    let table = lines(&run.stdout);
    let head = format!("3 ranks, transport {mixed}");
    assert!(table[0].contains(&head), "{table:#?}");
    let rows: Vec<_> = table.iter().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows.len(), 4, "{table:#?}");
    for row in rows {
        assert_eq!(row.split_whitespace().last(), Some("0"), "{table:#?}");
    }

    let records = records(&args);
    assert_eq!(numbers(&records, "wrong"), [0; 4]);
    assert!(records.iter().all(|record| record["transport"] == mixed));
}

#[test]
fn joins_as_a_rank_when_something_else_starts_it() {
    let args = [
        "-n",
        "2",
        "--",
        PERF,
        "all-reduce",
        "--max",
        "64",
        "--json",
        "-",
        "--iters",
        "1",
    ];
    let run = output(common::RUN, &args);
    assert!(run.status.success(), "{:?}", lines(&run.stderr));
    let stdout = lines(&run.stdout);
    assert_eq!(stdout.len(), 4);
    assert!(
        stdout.iter().all(|line| line.starts_with("[0] {")),
        "{stdout:?}"
    );
}

#[test]
fn a_world_of_another_size_is_refused() {
    let run = output(
        common::RUN,
        &["-n", "2", "--", PERF, "all-reduce", "-n", "3", "--max", "8"],
    );
    assert_eq!(run.status.code(), Some(2));
    assert!(
        lines(&run.stderr)
            .join(" ")
            .contains("NEXAR_WORLD_SIZE is 2")
    );
}

#[test]
fn survivors_of_a_killed_rank_name_it() {
    let script = format!("echo pid $$; exec {PERF} all-reduce -b 1M -e 1M -f 2 --iters 1000000");
    let mut run = command(common::RUN, &["-n", "3", "--", "sh", "-c", &script]);
    run.env("NEXAR_DETECTION_SECS", "2");
    let mut run = Running::start(run);
    let mut victim = None;
    // The head of the table comes once the group has formed.
    loop {
        let line = line(&mut run.stdout);
        if let Some(pid) = line.strip_prefix("[1] pid ") {
            victim = Some(pid.parse().unwrap());
        }
        if line.starts_with("[0] #") && line.contains("(elements)") && victim.is_some() {
            break;
        }
    }
    send_signal(victim.unwrap(), Signal::KILL);
    let (status, _, stderr) = run.finish();
    assert_eq!(status.code(), Some(137));
    for rank in [0, 2] {
        let prefix = format!("[{rank}] nexar-perf: ");
        let named = stderr
            .iter()
            .any(|l| l.starts_with(&prefix) && l.contains("rank 1 is lost"));
        assert!(named, "rank {rank}: {stderr:#?}");
    }
}

/// Each process ends as soon as it has its own error, and the other still gets the real reason.
#[test]
fn processes_that_disagree_both_say_so() {
    for (first, second) in [
        ("all-reduce -b 4K -e 4K", "all-reduce -b 8K -e 8K"),
        ("all-reduce -b 4K -e 4K", "all-reduce -b 4K -e 4K -d i32"),
        ("all-reduce -b 4K -e 4K", "all-reduce -b 4K -e 4K -o max"),
        ("all-reduce -b 1M -e 1M", "broadcast -b 1M -e 1M"),
        ("broadcast -b 4K -e 4K", "broadcast -b 4K -e 4K -r 1"),
    ] {
        let script = format!(
            "if [ $NEXAR_RANK = 0 ]; then set -- {first}; else set -- {second}; fi; exec {PERF} $@"
        );
        let run = output(common::RUN, &["-n", "2", "--", "sh", "-c", &script]);
        let stderr = lines(&run.stderr);
        assert_eq!(run.status.code(), Some(3), "{first}, {second}: {stderr:#?}");
        for rank in [0, 1] {
            let prefix = format!("[{rank}] nexar-perf: ");
            let named = stderr
                .iter()
                .any(|l| l.starts_with(&prefix) && l.contains("mismatch: rank 0 calls"));
            assert!(named, "{first}, {second}, rank {rank}: {stderr:#?}");
        }
    }
}
