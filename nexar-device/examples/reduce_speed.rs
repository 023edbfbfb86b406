//! Prints how fast the reductions run, in gigabytes of incoming data per second, beside a plain loop over
//! aligned f32.
//!
//! ```text
//! cargo run --release -p nexar-device --example reduce_speed
//! ```

use nexar_core::{DataType, ReduceOp};
use nexar_device::reduce;
use std::{hint::black_box, time::Instant};

/// The best of several rounds, in GB/s.
fn measure(bytes: usize, mut f: impl FnMut()) -> f64 {
    let repetitions = (64 << 20) / bytes;
    let best = (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..repetitions).for_each(|_| f());
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    (bytes * repetitions) as f64 / best / 1e9
}

#[inline(never)]
fn plain(acc: &mut [f32], incoming: &[f32]) {
    for (a, b) in acc.iter_mut().zip(incoming) {
        *a += *b;
    }
}

fn main() -> Result<(), reduce::ReduceError> {
    let sizes = [4 << 10, 64 << 10, 1 << 20];
    println!(
        "{:<24}{:>10}{:>10}{:>10}  GB/s",
        "", "4 KiB", "64 KiB", "1 MiB"
    );
    let row = |name: String, speeds: [f64; 3]| {
        println!(
            "{name:<24}{:>10.1}{:>10.1}{:>10.1}",
            speeds[0], speeds[1], speeds[2]
        );
    };
    row(
        "f32 plain loop".into(),
        sizes.map(|bytes| {
            let (mut acc, incoming) = (vec![1.0f32; bytes / 4], vec![1e-9f32; bytes / 4]);
            measure(bytes, || plain(black_box(&mut acc), black_box(&incoming)))
        }),
    );
    for dtype in DataType::ALL {
        for op in [
            ReduceOp::Sum,
            ReduceOp::Product,
            ReduceOp::Min,
            ReduceOp::LogicalAnd,
        ] {
            if op.check(dtype).is_err() {
                continue;
            }
            let speeds = sizes.map(|bytes| {
                // One byte off any alignment.
                let (mut acc, incoming) = (vec![0x3c; bytes + 1], vec![0x01; bytes + 1]);
                measure(bytes, || {
                    let (acc, incoming) = (&mut acc[1..], &incoming[1..]);
                    let result = reduce::reduce(dtype, op, acc, black_box(incoming));
                    assert!(black_box(result).is_ok());
                })
            });
            row(format!("{dtype} {op}"), speeds);
        }
    }
    for dtype in DataType::ALL {
        let Some(wide) = reduce::accumulator(dtype, ReduceOp::Average) else {
            continue;
        };
        let run = |what: usize| {
            sizes.map(|bytes| {
                let mut narrow = vec![0x01u8; bytes + 1];
                let mut acc = vec![0u8; bytes / dtype.size() * wide.size() + 1];
                measure(bytes, || {
                    let (acc, narrow) = (&mut acc[1..], black_box(&mut narrow[1..]));
                    let op = ReduceOp::Average;
                    let result = match what {
                        0 => reduce::widen(dtype, wide, acc, narrow),
                        1 => reduce::accumulate(dtype, wide, op, acc, narrow),
                        _ => reduce::finish(dtype, wide, op, 3, narrow, acc),
                    };
                    assert!(black_box(result).is_ok());
                })
            })
        };
        row(format!("{dtype} widen"), run(0));
        row(format!("{dtype} accumulate"), run(1));
        row(format!("{dtype} finish average"), run(2));
    }
    Ok(())
}
