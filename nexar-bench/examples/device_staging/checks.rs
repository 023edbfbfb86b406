//! What to look at first on a GPU: things that a stand-in for the driver can only claim.

use super::Result;
use nexar_collectives::{
    MemorySpace,
    cuda::{CudaAdapter, CudaBuffer},
};
use std::{thread, time::Instant};

pub(crate) async fn run(adapter: &CudaAdapter, space: MemorySpace) -> Result<()> {
    println!("\n| check | result |\n|---|---|");
    free_without_context(adapter, space)?;
    thread_stream(adapter, space).await?;
    latency(adapter, space).await
}

/// Memory that is freed on a thread without a context is free: otherwise this takes more than a GPU has.
fn free_without_context(adapter: &CudaAdapter, space: MemorySpace) -> Result<()> {
    let (length, times) = (1 << 30, 400);
    for _ in 0..times {
        let buffer = CudaBuffer::<u8>::zeroed(adapter, space, length)?;
        let freed = thread::spawn(move || drop(buffer)).join();
        freed.map_err(|_| "a thread that freed memory panicked")?;
    }
    println!("| {times} times 1 GiB, freed on threads without a context | as expected |");
    Ok(())
}

/// The default stream of the thread, which candle uses.
async fn thread_stream(adapter: &CudaAdapter, space: MemorySpace) -> Result<()> {
    let data: Vec<u32> = (0..1 << 20).collect();
    let buffer = CudaBuffer::from_slice(adapter, space, &data).await?;
    // SAFETY: every thread has this stream.
    let buffer = unsafe { buffer.on_stream(2) };
    let mut back = vec![0; data.len()];
    buffer.copy_to(&mut back).await?;
    let verdict = if back == data {
        "as expected"
    } else {
        "WRONG DATA"
    };
    println!("| stream 2, the default stream of the thread | {verdict} |");
    Ok(())
}

/// How long it takes until the end of a copy is noticed.
async fn latency(adapter: &CudaAdapter, space: MemorySpace) -> Result<()> {
    let buffer = CudaBuffer::<u32>::zeroed(adapter, space, 4)?;
    let mut times = Vec::new();
    for _ in 0..1000 {
        let start = Instant::now();
        buffer.copy_to(&mut [0; 4]).await?;
        times.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (median, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "| 16 bytes to the host, until the future is done: median, 99 % | {median:.1}, {late:.1} us |"
    );
    Ok(())
}
