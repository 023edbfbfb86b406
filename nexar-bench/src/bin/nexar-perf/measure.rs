//! Taking times.
//!
//! An operation takes as long as on its slowest rank: the ranks' times are combined by maximum before
//! anything is computed from them.

use nexar_collectives::{Communicator, ReduceOp, Result};
use std::time::{Duration, Instant};

/// Loops of back-to-back operations; their median counts.
const LOOPS: usize = 5;

/// Time for all loops together, where the number of operations is chosen here.
const LOOP_BUDGET: Duration = Duration::from_millis(200);
const MAX_ITERS: u64 = 10_000;

/// Time for the operations that are timed one by one.
const SINGLE_BUDGET: Duration = Duration::from_millis(100);
const SINGLES: std::ops::RangeInclusive<u64> = 3..=10_000;

/// The time of one operation is known once a batch took this long, or had so many operations.
const BATCH_TIME: Duration = Duration::from_millis(20);
const MAX_BATCH: u64 = 2048;

/// Operations before the measurement where their number is given neither by the user nor by the time.
const WARMUP: u32 = 5;

/// What is measured.
pub(crate) trait Operation {
    fn comm(&self) -> &Communicator;

    /// Does this rank's part once.
    async fn run(&mut self) -> Result<()>;

    /// Whether the times of this rank count. Those of at least one rank do.
    fn is_timed(&self) -> bool {
        true
    }
}

/// How often to run the operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeats {
    pub(crate) iters: Option<u32>,
    pub(crate) warmup: Option<u32>,
}

/// Times of one operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timing {
    /// Back-to-back operations divided by their number, median of the loops.
    pub(crate) time: Duration,
    /// Median of single operations.
    pub(crate) p50: Duration,
    /// 99th percentile of single operations.
    pub(crate) p99: Duration,
}

/// Measures operations back to back, and then one by one.
pub(crate) async fn measure(work: &mut impl Operation, repeats: Repeats) -> Result<Timing> {
    let (iters, singles) = plan(work, repeats).await?;
    let time = loops(work, iters).await?;
    work.comm().barrier().await?;
    let mut single = Vec::with_capacity(singles as usize);
    for _ in 0..singles {
        single.push(nanoseconds(batch(work, 1).await?));
    }
    let single = slowest(work, single).await?;
    Ok(Timing {
        time,
        p50: percentile(&single, 50),
        p99: percentile(&single, 99),
    })
}

/// Measures operations back to back: the time of one.
pub(crate) async fn measure_loops(work: &mut impl Operation, repeats: Repeats) -> Result<Duration> {
    let (iters, _) = plan(work, repeats).await?;
    loops(work, iters).await
}

async fn loops(work: &mut impl Operation, iters: u64) -> Result<Duration> {
    let mut loops = Vec::with_capacity(LOOPS);
    for _ in 0..LOOPS {
        work.comm().barrier().await?;
        let elapsed = batch(work, iters).await?;
        loops.push(nanoseconds(elapsed) / iters);
    }
    let loops = slowest(work, loops).await?;
    Ok(percentile(&loops, 50))
}

/// Warms up; gives the operations per loop and those to time one by one, the same on every rank.
async fn plan(work: &mut impl Operation, repeats: Repeats) -> Result<(u64, u64)> {
    let warmup = match (repeats.warmup, repeats.iters) {
        (Some(warmup), _) => warmup,
        (None, Some(_)) => WARMUP,
        (None, None) => 1,
    };
    batch(work, warmup.into()).await?;
    if let Some(iters) = repeats.iters {
        return Ok((iters.into(), u64::from(iters).min(*SINGLES.end())));
    }
    let mut size = 1;
    loop {
        work.comm().barrier().await?;
        let mut time = [nanoseconds(batch(work, size).await?)];
        work.comm().broadcast(&mut time, 0).await?;
        if time[0] >= nanoseconds(BATCH_TIME) || size >= MAX_BATCH {
            return Ok(repetitions(time[0] / size));
        }
        size *= 2;
    }
}

/// Operations per loop and single ones that fit the budgets.
fn repetitions(nanoseconds_each: u64) -> (u64, u64) {
    let fit = |budget| nanoseconds(budget) / nanoseconds_each.max(1);
    let iters = (fit(LOOP_BUDGET) / LOOPS as u64).clamp(1, MAX_ITERS);
    (
        iters,
        fit(SINGLE_BUDGET).clamp(*SINGLES.start(), *SINGLES.end()),
    )
}

async fn batch(work: &mut impl Operation, operations: u64) -> Result<Duration> {
    let start = Instant::now();
    for _ in 0..operations {
        work.run().await?;
    }
    Ok(start.elapsed())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// For each operation the time of its slowest rank, in ascending order.
async fn slowest(work: &impl Operation, mut times: Vec<u64>) -> Result<Vec<u64>> {
    if !work.is_timed() {
        times.fill(0);
    }
    work.comm().all_reduce(&mut times, ReduceOp::Max).await?;
    times.sort_unstable();
    Ok(times)
}

/// The smallest time that at least `percent` of the sorted `times` do not exceed.
fn percentile(times: &[u64], percent: usize) -> Duration {
    let rank = (times.len() * percent).div_ceil(100).max(1);
    Duration::from_nanos(times.get(rank - 1).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!(percentile(&times, 50), Duration::from_nanos(100));
        assert_eq!(percentile(&times, 99), Duration::from_nanos(198));
        assert_eq!(percentile(&times[..5], 50), Duration::from_nanos(3));
        assert_eq!(percentile(&times[..3], 99), Duration::from_nanos(3));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn repetitions_fit_the_budget_and_are_bounded() {
        assert_eq!(repetitions(100_000), (400, 1000));
        assert_eq!(repetitions(0), (MAX_ITERS, 10_000));
        assert_eq!(repetitions(u64::MAX), (1, 3));
    }
}
