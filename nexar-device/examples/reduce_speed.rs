//! Prints how fast the reductions run, in gigabytes of narrow incoming data per second, beside a plain loop over
//! aligned f32.
//!
//! ```text
//! cargo run --release -p nexar-device --example reduce_speed [DTYPE]
//! ```

use nexar_core::{DataType, ReduceOp};
use nexar_device::reduce::{self, ReduceError, parallel};
use std::{env, hint::black_box, time::Instant};

const SIZES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 64 << 20];
const FLOATS: [DataType; 4] = [DataType::F32, DataType::F64, DataType::F16, DataType::Bf16];

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

/// A line of the table: one of the functions at every size.
fn row(name: String, speed: impl Fn(usize) -> f64) {
    let [a, b, c, d] = SIZES.map(speed);
    println!("{name:<32}{a:>10.1}{b:>10.1}{c:>10.1}{d:>10.1}");
}

#[inline(never)]
fn plain(acc: &mut [f32], incoming: &[f32]) {
    for (a, b) in acc.iter_mut().zip(incoming) {
        *a += *b;
    }
}

fn plain_speed(bytes: usize) -> f64 {
    let (mut acc, incoming) = (vec![1.0f32; bytes / 4], vec![1e-9f32; bytes / 4]);
    measure(bytes, || plain(black_box(&mut acc), black_box(&incoming)))
}

/// Buffers of so many bytes, one byte off any alignment. As floats their elements are ordinary numbers.
fn buffer(bytes: usize) -> Vec<u8> {
    vec![0x3c; bytes + 1]
}

fn two(bytes: (usize, usize), f: impl Fn(&mut [u8], &mut [u8]) -> Result<(), ReduceError>) -> f64 {
    let (mut acc, mut narrow) = (buffer(bytes.0), buffer(bytes.1));
    measure(bytes.1, || {
        let result = f(&mut acc[1..], black_box(&mut narrow[1..]));
        assert!(black_box(result).is_ok());
    })
}

fn reductions(dtype: DataType) {
    use ReduceOp::{LogicalAnd, Min, Product, Sum};
    for op in [Sum, Product, Min, LogicalAnd] {
        if op.check(dtype).is_err() {
            continue;
        }
        row(format!("{dtype} {op}"), |bytes| {
            two((bytes, bytes), |acc, b| reduce::reduce(dtype, op, acc, b))
        });
        if op == Sum {
            row(format!("{dtype} {op}, parallel"), |bytes| {
                two((bytes, bytes), |acc, b| parallel::reduce(dtype, op, acc, b))
            });
        }
    }
    row(format!("{dtype} fill"), |bytes| {
        let element = &[0x3c; 8][..dtype.size()];
        two((bytes, bytes), |acc, _| reduce::fill(dtype, acc, element))
    });
}

fn accumulators(dtype: DataType) {
    let op = ReduceOp::Average;
    let Some(wide) = reduce::accumulator(dtype, op) else {
        return;
    };
    let both = |bytes| (bytes / dtype.size() * wide.size(), bytes);
    row(format!("{dtype} widen"), |bytes| {
        two(both(bytes), |acc, b| reduce::widen(dtype, wide, acc, b))
    });
    row(format!("{dtype} accumulate"), |bytes| {
        two(both(bytes), |acc, b| {
            reduce::accumulate(dtype, wide, op, acc, b)
        })
    });
    for world in [2, 3] {
        row(format!("{dtype} finish average of {world}"), |bytes| {
            two(both(bytes), |acc, out| {
                reduce::finish(dtype, wide, op, world, out, acc)
            })
        });
    }
}

fn casts(from: DataType) {
    for to in FLOATS {
        row(format!("cast {from} to {to}"), |bytes| {
            let out = bytes / from.size() * to.size();
            two((out, bytes), |out, source| {
                reduce::cast(from, to, out, source)
            })
        });
    }
}

fn main() {
    let only = env::args().nth(1);
    println!(
        "{:<32}{:>10}{:>10}{:>10}{:>10}  GB/s",
        "", "4 KiB", "64 KiB", "1 MiB", "64 MiB"
    );
    row("f32 plain loop".into(), plain_speed);
    for dtype in DataType::ALL {
        if only.as_ref().is_some_and(|only| only != dtype.name()) {
            continue;
        }
        reductions(dtype);
        accumulators(dtype);
        if dtype.is_float() {
            casts(dtype);
        }
    }
}
