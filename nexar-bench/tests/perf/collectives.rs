//! Collectives: results, sizes, failures.

use crate::common::{PERF, RUN, Running, command, line, lines, output, send_signal};
use crate::{assert_keys, numbers, records};
use nexar_quic::Backend;
use rustix::process::Signal;

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

#[test]
fn json_lines_have_exactly_the_documented_keys() {
    let records = records(&["all-reduce", "-n", "2", "--max", "4K"]);
    for record in &records {
        assert_keys(record, &KEYS);
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
            assert_keys(record, &KEYS);
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
fn compressed_data() {
    for (ranks, compressor, op) in [
        ("2", "top-k:0.1", "sum"),
        ("3", "random-k:0.25", "average"),
        ("3", "blocks:64", "sum"),
    ] {
        let records = records(&[
            "all-reduce-compressed",
            "-n",
            ranks,
            "--compressor",
            compressor,
            "--op",
            op,
            "--max",
            "50K",
        ]);
        assert_eq!(numbers(&records, "bytes"), [8, 64, 512, 4096, 32_768]);
        assert_eq!(numbers(&records, "wrong"), [0; 5], "{compressor}");
        for record in &records {
            let mut keys = KEYS.to_vec();
            keys.push("compressor");
            assert_keys(record, &keys);
            assert_eq!(record["compressor"], compressor);
            assert_eq!(
                (&record["dtype"], &record["redop"]),
                (&"f32".into(), &op.into())
            );
        }
    }
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
fn survivors_of_a_killed_rank_name_it() {
    let script = format!("echo pid $$; exec {PERF} all-reduce -b 1M -e 1M -f 2 --iters 1000000");
    let mut run = command(RUN, &["-n", "3", "--", "sh", "-c", &script]);
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
        let run = output(RUN, &["-n", "2", "--", "sh", "-c", &script]);
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
