//! The reduction kernels against a plain loop, in the sizes of a chunk, of a cache and of memory. Throughput is in
//! bytes of the narrow type.

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use nexar_core::{DataType, ReduceOp};
use nexar_device::reduce::{self, ReduceError, parallel};
use std::{hint::black_box, time::Duration};

const SIZES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 64 << 20];
/// From here on several threads may take part.
const LARGE: [usize; 2] = [8 << 20, 64 << 20];
const HALVES: [DataType; 2] = [DataType::F16, DataType::Bf16];

fn plain(c: &mut Criterion) {
    let mut group = c.benchmark_group("f32 sum, plain loop");
    for bytes in SIZES {
        let (mut acc, incoming) = (vec![1.0f32; bytes / 4], vec![1e-9f32; bytes / 4]);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(bytes.to_string(), |b| {
            b.iter(|| {
                for (a, b) in black_box(&mut acc).iter_mut().zip(black_box(&incoming)) {
                    *a += *b;
                }
            });
        });
    }
}

/// Runs `f` on buffers one byte off any alignment, as chunks from the network are. Whatever the type of their
/// elements, these are ordinary numbers.
fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: String,
    (acc, narrow): (usize, usize),
    f: impl Fn(&mut [u8], &mut [u8]) -> Result<(), ReduceError>,
) {
    let (mut acc, mut incoming) = (vec![0x3c; acc + 1], vec![0x3c; narrow + 1]);
    group.throughput(Throughput::Bytes(narrow as u64));
    group.bench_function(name, |b| {
        b.iter(|| f(&mut acc[1..], black_box(&mut incoming[1..])));
    });
}

fn kernels(c: &mut Criterion) {
    for (dtype, op) in [
        (DataType::F32, ReduceOp::Sum),
        (DataType::F32, ReduceOp::Max),
        (DataType::F64, ReduceOp::Sum),
        (DataType::Bf16, ReduceOp::Sum),
        (DataType::F16, ReduceOp::Sum),
        (DataType::I32, ReduceOp::Sum),
        (DataType::U8, ReduceOp::BitXor),
    ] {
        let mut group = c.benchmark_group(format!("{dtype} {op}"));
        for bytes in SIZES {
            bench(&mut group, bytes.to_string(), (bytes, bytes), |acc, b| {
                reduce::reduce(dtype, op, acc, b)
            });
        }
    }
}

/// What collectives do with 16-bit floats.
fn accumulators(c: &mut Criterion) {
    let op = ReduceOp::Average;
    for dtype in HALVES {
        let Some(wide) = reduce::accumulator(dtype, op) else {
            continue;
        };
        let mut group = c.benchmark_group(format!("{dtype} accumulator"));
        for bytes in SIZES {
            let both = (bytes / dtype.size() * wide.size(), bytes);
            bench(&mut group, format!("widen/{bytes}"), both, |acc, b| {
                reduce::widen(dtype, wide, acc, b)
            });
            bench(&mut group, format!("accumulate/{bytes}"), both, |acc, b| {
                reduce::accumulate(dtype, wide, op, acc, b)
            });
            for world in [2, 3] {
                let name = format!("finish {world} ranks/{bytes}");
                bench(&mut group, name, both, |acc, out| {
                    reduce::finish(dtype, wide, op, world, out, acc)
                });
            }
        }
    }
}

fn casts_and_fills(c: &mut Criterion) {
    let mut group = c.benchmark_group("cast");
    for half in HALVES {
        for bytes in SIZES {
            let f32s = DataType::F32;
            bench(
                &mut group,
                format!("{half} to f32/{bytes}"),
                (2 * bytes, bytes),
                |out, b| reduce::cast(half, f32s, out, b),
            );
            bench(
                &mut group,
                format!("f32 to {half}/{bytes}"),
                (2 * bytes, bytes),
                |b, out| reduce::cast(f32s, half, out, b),
            );
        }
    }
    group.finish();
    let mut group = c.benchmark_group("f32 fill");
    for bytes in SIZES {
        bench(
            &mut group,
            bytes.to_string(),
            (bytes, bytes),
            |buffer, _| reduce::fill(DataType::F32, buffer, &[0, 0, 0x80, 0x3f]),
        );
    }
}

/// On one thread, and on as many as CPUs are idle.
fn threads(c: &mut Criterion) {
    for dtype in [DataType::F32, DataType::Bf16] {
        let mut group = c.benchmark_group(format!("{dtype} sum on threads"));
        for bytes in LARGE {
            bench(
                &mut group,
                format!("one/{bytes}"),
                (bytes, bytes),
                |acc, b| reduce::reduce(dtype, ReduceOp::Sum, acc, b),
            );
            bench(
                &mut group,
                format!("idle/{bytes}"),
                (bytes, bytes),
                |acc, b| parallel::reduce(dtype, ReduceOp::Sum, acc, b),
            );
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .without_plots()
        .nresamples(2000)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(20);
    targets = plain, kernels, accumulators, casts_and_fills, threads
}
criterion_main!(benches);
