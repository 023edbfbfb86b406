//! Messages and remote calls between two ranks.

use crate::{assert_keys, common::lines, numbers, perf, records};

const KEYS: [&str; 12] = [
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

/// Messages between ranks 0 and 1, beside a rank that does nothing.
const CALL_KEYS: [&str; 11] = [
    "operation",
    "ranks",
    "transport",
    "bytes",
    "mean_us",
    "p50_us",
    "p99_us",
    "calls_per_s_1",
    "calls_per_s_16",
    "calls_per_s_64",
    "wrong",
];

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
            assert_keys(record, &KEYS);
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

#[test]
fn remote_calls() {
    for (args, sizes) in [
        (
            &["-n", "2", "--min", "32K", "--max", "256K"][..],
            vec![32_768, 262_144],
        ),
        (&["-n", "3", "--min", "7"], vec![7]),
    ] {
        let args: Vec<&str> = ["rpc"].iter().chain(args).copied().collect();
        let records = records(&args);
        assert_eq!(numbers(&records, "bytes"), sizes);
        assert_eq!(numbers(&records, "wrong"), vec![0; sizes.len()]);
        for record in &records {
            assert_keys(record, &CALL_KEYS);
            assert_eq!(record["operation"], "rpc");
            for figure in &CALL_KEYS[4..10] {
                assert!(record[figure].as_f64().unwrap() > 0.0, "{figure}: {record}");
            }
        }
    }
}
