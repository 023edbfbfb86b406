//! Communicators made from others.

use super::{
    Communicator, Shared,
    requests::{Input, Output, invalid, moved},
};
use crate::digest::digest;
use nexar_core::{Collective, Failure, Result, transport::Transport};
use nexar_device::DeviceAdapter;
use std::sync::Arc;

/// What a rank says of itself in a split: whether it takes part, its colour, its key.
const WORDS: usize = 3;

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/split.md")]
    pub async fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Self>> {
        let place = self.place();
        let own = [u64::from(color.is_some()), color.unwrap_or(0), key as u64];
        let mut all = vec![0u64; WORDS * place.world];
        let mut turn = self.engine().turn().await;
        let (input, output) = (Input::of(&own), Output::of(&mut all));
        let mut request = place.all_gather(moved::<u64>(), input, output)?;
        request.collective = Collective::Split;
        let sequence = self.engine().run_in(&mut turn, request).await?;

        let mut ranks: Vec<(i64, usize)> = (all.chunks_exact(WORDS).zip(0..))
            .filter(|(said, _)| color.is_some() && said[..2] == own[..2])
            .map(|(said, rank)| (said[2] as i64, rank))
            .collect();
        ranks.sort_unstable();
        let ranks: Vec<usize> = ranks.into_iter().map(|(_, rank)| rank).collect();
        self.derive(Collective::Split, sequence, &ranks, &mut turn)
            .await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/duplicate.md")]
    pub async fn duplicate(&self) -> Result<Self> {
        let collective = Collective::Duplicate;
        let mut turn = self.engine().turn().await;
        let request = self.place().labelled_barrier(collective, 0);
        let sequence = self.engine().run_in(&mut turn, request).await?;
        let ranks: Vec<usize> = (0..self.world_size()).collect();
        let derived = self.derive(collective, sequence, &ranks, &mut turn).await?;
        derived.ok_or_else(|| invalid(collective, "this rank is not among its ranks"))
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/subgroup.md")]
    pub async fn subgroup(&self, ranks: &[usize]) -> Result<Option<Self>> {
        let collective = Collective::Subgroup;
        let mut seen = vec![false; self.world_size()];
        for rank in ranks {
            match seen.get_mut(*rank) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return Err(invalid(collective, format!("rank {rank} occurs twice"))),
                None => {
                    let reason = format!(
                        "rank {rank} does not exist in a world of {}",
                        self.world_size()
                    );
                    return Err(invalid(collective, reason));
                }
            }
        }
        let list = digest(ranks.iter().map(|rank| *rank as u64));
        let mut turn = self.engine().turn().await;
        let request = self.place().labelled_barrier(collective, list);
        let sequence = self.engine().run_in(&mut turn, request).await?;
        self.derive(collective, sequence, ranks, &mut turn).await
    }

    /// Makes a communicator of some of this one's ranks. Nobody uses it before all of them have it.
    async fn derive(
        &self,
        collective: Collective,
        sequence: u64,
        ranks: &[usize],
        turn: &mut crate::engine::Turn<T>,
    ) -> Result<Option<Self>> {
        let group = self.group();
        let member = ranks.contains(&self.rank());
        let mut derived = None;
        if let Some(first) = ranks.first().filter(|_| member) {
            let id = digest([group.id(), sequence, *first as u64]);
            let members = ranks.iter().map(|rank| group.members()[*rank]).collect();
            let made = self.mesh.group(id, members).map_err(|error| {
                let failure = group.fail(Failure::Aborted {
                    rank: self.rank(),
                    reason: error.to_string(),
                });
                self.engine().error(collective, Some(sequence), failure)
            })?;
            derived = Some(Communicator {
                shared: Shared::new(
                    made,
                    self.engine().overrides(),
                    self.shared.rpc_options.clone(),
                    true,
                ),
                mesh: Arc::clone(&self.mesh),
                device: self.device.clone(),
            });
        }
        let request = self.place().labelled_barrier(collective, 0);
        self.engine().run_in(turn, request).await?;
        Ok(derived)
    }
}
