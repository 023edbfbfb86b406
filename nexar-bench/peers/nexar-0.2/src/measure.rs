//! Taking times, as the other peers do.

use crate::{Result, work::Work};
use nexar::DataType;
use std::time::{Duration, Instant};

const LOOPS: usize = 5;
const LOOP_BUDGET: Duration = Duration::from_millis(250);
const BATCH_TIME: Duration = Duration::from_millis(20);
const MAX_BATCH: u64 = 2048;
const MAX_ITERATIONS: u64 = 10_000;

/// Seconds of one operation, back to back, on the slowest rank: the median of some loops.
pub(crate) async fn measure(work: &mut Work) -> Result<f64> {
    let iterations = iterations(work).await?;
    let mut times = [0; LOOPS];
    for time in &mut times {
        work.client.barrier().await?;
        let elapsed = batch(work, iterations).await?;
        if work.client.rank() == 0 || !work.operation.is_one_sided() {
            *time = nanoseconds(elapsed) / iterations;
        }
    }
    let mut slowest = slowest(work, times).await?;
    slowest.sort_unstable();
    Ok(slowest[LOOPS / 2] as f64 / 1e9 / work.operation.parts())
}

/// Back-to-back operations in a loop: the same number on every rank.
async fn iterations(work: &mut Work) -> Result<u64> {
    batch(work, 1).await?;
    let mut size = 1;
    loop {
        work.client.barrier().await?;
        let mut time = [nanoseconds(batch(work, size).await?)];
        // SAFETY: the one element stays where it is until the operation is over.
        unsafe {
            let pointer = time.as_mut_ptr() as u64;
            work.client.broadcast(pointer, 1, DataType::U64, 0).await?;
        }
        if time[0] >= nanoseconds(BATCH_TIME) || size >= MAX_BATCH {
            let fit = nanoseconds(LOOP_BUDGET) / LOOPS as u64 / (time[0] / size).max(1);
            return Ok(fit.clamp(1, MAX_ITERATIONS));
        }
        size *= 2;
    }
}

async fn batch(work: &mut Work, times: u64) -> Result<Duration> {
    let start = Instant::now();
    for _ in 0..times {
        work.run().await?;
    }
    Ok(start.elapsed())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The largest of all ranks' values, for each loop.
async fn slowest(work: &Work, own: [u64; LOOPS]) -> Result<[u64; LOOPS]> {
    let client = &work.client;
    let mut all = vec![0_u64; LOOPS * client.world_size() as usize];
    // SAFETY: `all` has room for the values of every rank, and both stay where they are meanwhile.
    unsafe {
        let (from, to) = (own.as_ptr() as u64, all.as_mut_ptr() as u64);
        client.all_gather(from, to, LOOPS, DataType::U64).await?;
    }
    let mut slowest = [0; LOOPS];
    for of_rank in all.chunks_exact(LOOPS) {
        for (largest, &value) in slowest.iter_mut().zip(of_rank) {
            *largest = value.max(*largest);
        }
    }
    Ok(slowest)
}
