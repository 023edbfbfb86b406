//! The reduction kernels against a plain loop.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nexar_core::{DataType, ReduceOp};
use nexar_device::reduce;
use std::{hint::black_box, time::Duration};

const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

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
            // One byte off any alignment, as chunks from the network are.
            let (mut acc, incoming) = (vec![0x3c; bytes + 1], vec![1; bytes + 1]);
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(bytes.to_string(), |b| {
                b.iter(|| {
                    let (acc, incoming) = (&mut acc[1..], black_box(&incoming[1..]));
                    reduce::reduce(dtype, op, acc, incoming)
                });
            });
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
    targets = plain, kernels
}
criterion_main!(benches);
