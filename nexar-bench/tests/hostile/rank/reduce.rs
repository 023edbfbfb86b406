//! A rank that makes collective calls.

use super::{Orders, Result, say};
use nexar_collectives::{Communicator, ReduceOp};
use std::sync::atomic::Ordering::Relaxed;

/// All-reduces until rank 0 is told to stop.
pub(super) async fn run(orders: &Orders, elements: usize) -> Result<()> {
    let comm = Communicator::from_env().await?;
    say("joined");
    let (own, world) = (comm.rank() as i64, comm.world_size() as i64);
    let ranks = world * (world - 1) / 2;
    loop {
        orders.block().await?;
        let step = orders.position.load(Relaxed) as i64;
        let value = |index: usize| index as i64 + step;
        let mut data: Vec<i64> = (0..elements).map(|index| value(index) + own).collect();
        // The last element carries the wish to stop.
        let stop = i64::from(comm.rank() == 0 && orders.stopped());
        data.push(stop);
        comm.all_reduce(&mut data, ReduceOp::Sum).await?;
        let stopped = data.pop() == Some(1);
        let right = |(index, sum): (usize, &i64)| *sum == value(index) * world + ranks;
        if !data.iter().enumerate().all(right) {
            return Err(format!("step {step} has a wrong sum").into());
        }
        orders.step("step");
        if stopped {
            break;
        }
    }
    Ok(comm.shutdown().await?)
}
