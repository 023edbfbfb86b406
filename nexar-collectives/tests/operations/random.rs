//! Random sequences of operations on networks with random delays, over several communicators at once: what is in
//! flight of one operation meets the next ones.

use super::{
    common::{memory_world, on_all, share},
    exchanges::{all_to_all, all_to_all_v, neighbors},
    moves::{all_gather, all_gather_v, rooted, rooted_v},
    reductions::{all_reduce, all_reduce_many, reduce, reduce_scatter, reduce_scatter_v},
    scans::scans,
};
use nexar_collectives::{Communicator, ReduceOp, TimeLimits, f16, transport::Transport};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// The same numbers on all ranks.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % limit as u64) as usize
    }

    fn count(&mut self) -> usize {
        let limit = [1, 3, 20, 600, 3_000, 20_000][self.below(6)];
        self.below(limit)
    }

    fn counts(&mut self, world: usize) -> Vec<usize> {
        let limit = [1, 2, 9, 2_000][self.below(4)];
        (0..world).map(|_| self.below(limit)).collect()
    }
}

async fn sequence<T: Transport>(comm: &Communicator<T>, seed: u64, steps: usize) {
    let mut dice = Dice(seed);
    let world = comm.world_size();
    for _ in 0..steps {
        let count = dice.count();
        let root = [dice.below(world)];
        let op = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Average][dice.below(3)];
        let counts = dice.counts(world);
        match dice.below(13) {
            0 => comm.barrier().await.unwrap(),
            1 => all_reduce::<_, i16>(comm, count, op).await,
            2 => all_reduce::<_, f16>(comm, count, op).await,
            3 => reduce::<_, u64>(comm, count, op, &root).await,
            4 => scans::<_, i32>(comm, count, op).await,
            5 => reduce_scatter::<_, f32>(comm, count / world, op).await,
            6 => reduce_scatter_v::<_, u8>(comm, &counts, op).await,
            7 => all_reduce_many::<_, u32>(comm, &counts, op).await,
            8 => rooted::<_, u16>(comm, count, &root).await,
            9 => rooted_v::<_, u16>(comm, &counts, &root).await,
            10 => all_gather::<_, u32>(comm, count / world).await,
            11 => {
                all_gather_v::<_, bool>(comm, &counts).await;
                neighbors::<_, u32>(comm, counts[0]).await;
            }
            _ => {
                all_to_all::<_, u64>(comm, count / world).await;
                let of = |from: usize, to: usize| counts[(from + 2 * to) % world];
                all_to_all_v::<_, i8>(comm, of).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_sequences_with_delays() {
    for seed in 0..12 {
        let world = [2, 3, 4, 5, 7, 8][seed as usize % 6];
        let (network, _, ranks) = memory_world(world, TimeLimits::default()).await;
        network.set_delay(Duration::from_micros(100), Duration::from_millis(seed % 4));
        on_all(&share(ranks), |comm| async move {
            let backwards = comm.split(Some(0), -(comm.rank() as i64)).await;
            let comms = [comm, Arc::new(backwards.unwrap().unwrap())];
            let mut tasks = JoinSet::new();
            for (number, comm) in comms.into_iter().enumerate() {
                let seed = seed * 2 + number as u64;
                tasks.spawn(async move { sequence(&comm, seed, 25).await });
            }
            tasks.join_all().await;
        })
        .await;
    }
}

#[tokio::test]
async fn random_sequences_over_quic() {
    for world in [2, 5] {
        let ranks = share(Communicator::local(world).await.unwrap());
        on_all(&ranks, |comm| async move {
            let copy = comm.duplicate().await.unwrap();
            tokio::join!(sequence(&comm, 77, 60), sequence(&copy, 78, 60));
        })
        .await;
    }
}
