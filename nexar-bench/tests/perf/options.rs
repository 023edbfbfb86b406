//! Options, tables, and how ranks are started.

use crate::common::{self, PERF, lines, output};
use crate::{numbers, perf, records};
use serde_json::Value;

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
    let cases: [(&[&str], &str); 19] = [
        (&["rpc", "-n", "1"], "rpc: it takes at least 2 ranks"),
        (
            &["all-reduce-compressed", "-n", "2", "--dtype", "f64"],
            "it compresses f32, not f64",
        ),
        (
            &["all-reduce-compressed", "-n", "2", "--op", "min"],
            "--op can be sum, average",
        ),
        (
            &["all-reduce-compressed", "-n", "2", "--compressor", "zip"],
            "blocks:LENGTH",
        ),
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
