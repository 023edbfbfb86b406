//! Sums on the CPU: a plain loop, nexar-device and nexar 0.2.0 one after the other on the same buffers.
//!
//! ```text
//! cargo bench --manifest-path nexar-bench/peers/nexar-0.2/reduce/Cargo.toml --target-dir target/nexar-compare/reduce
//! ```

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nexar_core::DataType;
use peer_nexar_0_2_reduce::Buffers;
use std::{hint::black_box, time::Duration};

const SIZES: [usize; 3] = [64 << 10, 1 << 20, 64 << 20];
const TYPES: [DataType; 4] = [DataType::F32, DataType::Bf16, DataType::F16, DataType::I32];

fn sums(c: &mut Criterion) {
    for dtype in TYPES {
        for bytes in SIZES {
            let mut buffers = match Buffers::new(dtype, bytes) {
                Ok(buffers) => buffers,
                Err(error) => return eprintln!("{error}"),
            };
            let mut group = c.benchmark_group(format!("{dtype} sum of {} KiB", bytes >> 10));
            group.throughput(Throughput::Bytes(bytes as u64));
            match dtype {
                DataType::I32 => {
                    group.bench_function("plain", |b| {
                        b.iter(|| black_box(&mut buffers).plain_i32())
                    });
                }
                // For the 16-bit types too: the same bytes of f32, which is as fast as memory allows.
                _ => {
                    group.bench_function("plain f32", |b| {
                        b.iter(|| black_box(&mut buffers).plain())
                    });
                }
            }
            let Ok(mut buffers) = Buffers::new(dtype, bytes) else {
                return;
            };
            group.bench_function("nexar-device", |b| {
                b.iter(|| black_box(&mut buffers).ours())
            });
            group.bench_function("nexar 0.2.0", |b| {
                b.iter(|| black_box(&mut buffers).theirs())
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
        .sample_size(10);
    targets = sums
}
criterion_main!(benches);
