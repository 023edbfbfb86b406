//! Traffic beside what is measured.

use crate::{rank::RankError, sweep::allocate};
use nexar_collectives::{Communicator, ReduceOp, Result};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::task::JoinHandle;

/// All-reduces on a communicator of their own, one after the other in a task of their own, until they are
/// stopped.
pub(crate) struct Load {
    ended: Arc<AtomicBool>,
    task: JoinHandle<Result<()>>,
}

impl Load {
    /// Starts with all-reduces of `bytes`. All ranks do.
    pub(crate) async fn start(
        comm: &Communicator,
        bytes: usize,
    ) -> std::result::Result<Self, RankError> {
        let comm = comm.duplicate().await?;
        let data = allocate(bytes.div_ceil(size_of::<f32>()))?;
        let ended = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(run(comm, data, Arc::clone(&ended)));
        Ok(Load { ended, task })
    }

    /// Ends them on all ranks, after the one in progress.
    pub(crate) async fn stop(self) -> std::result::Result<(), RankError> {
        self.ended.store(true, Ordering::Relaxed);
        self.task.await.map_err(std::io::Error::other)??;
        Ok(())
    }
}

async fn run(comm: Communicator, mut data: Vec<f32>, ended: Arc<AtomicBool>) -> Result<()> {
    loop {
        comm.all_reduce(&mut data, ReduceOp::Sum).await?;
        let mut all_ended = [u8::from(ended.load(Ordering::Relaxed))];
        comm.all_reduce(&mut all_ended, ReduceOp::Min).await?;
        if all_ended[0] > 0 {
            return comm.shutdown().await;
        }
    }
}
