//! Calls in which each rank exchanges what it lists.

use super::{Input, Output, Place, check_len, check_number, invalid, request};
use crate::{
    engine::{Elements, Request},
    schedule::{Link, Operation},
};
use nexar_core::{Collective, Exchange, Result, mesh::Exchanges};
use std::sync::Arc;

impl Place {
    pub(crate) fn all_to_all_v<'a, Q>(
        self,
        elements: Elements<'a>,
        (input, sends): (Input<'a, Q>, &[usize]),
        (output, expects): (Output<'a, Q>, &[usize]),
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::AllToAllV;
        check_number(collective, "send counts", sends.len(), self.world)?;
        check_number(collective, "receive counts", expects.len(), self.world)?;
        let links = (0..self.world).zip(sends).zip(expects);
        let links = links.map(|((rank, sends), expects)| Link {
            rank,
            sends: *sends,
            expects: *expects,
        });
        self.exchange(collective, elements, links.collect(), input, output)
    }

    pub(crate) fn neighbor_all_to_all<'a, Q>(
        self,
        elements: Elements<'a>,
        neighbors: &[usize],
        input: Input<'a, Q>,
        output: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::NeighborAllToAll;
        let number = neighbors.len();
        if !input.len.is_multiple_of(number.max(1)) {
            let reason = format!(
                "input has {} elements, which is no multiple of the {number} neighbors",
                input.len
            );
            return Err(invalid(collective, reason));
        }
        check_len(collective, "output", output.len, input.len)?;
        let count = input.len / number.max(1);
        let links = neighbors.iter().map(|rank| Link {
            rank: *rank,
            sends: count,
            expects: count,
        });
        self.exchange(collective, elements, links.collect(), input, output)
    }

    pub(crate) fn neighbor_all_to_all_v<'a, Q>(
        self,
        elements: Elements<'a>,
        neighbors: &[usize],
        (input, sends): (Input<'a, Q>, &[usize]),
        (output, expects): (Output<'a, Q>, &[usize]),
    ) -> Result<Request<'a, Q>> {
        let collective = Collective::NeighborAllToAllV;
        check_number(collective, "send counts", sends.len(), neighbors.len())?;
        check_number(collective, "receive counts", expects.len(), neighbors.len())?;
        let links = neighbors.iter().zip(sends).zip(expects);
        let links = links.map(|((rank, sends), expects)| Link {
            rank: *rank,
            sends: *sends,
            expects: *expects,
        });
        self.exchange(collective, elements, links.collect(), input, output)
    }

    fn exchange<'a, Q>(
        self,
        collective: Collective,
        elements: Elements<'a>,
        links: Arc<[Link]>,
        input: Input<'a, Q>,
        output: Output<'a, Q>,
    ) -> Result<Request<'a, Q>> {
        let sum = |count: fn(&Link) -> usize| {
            let mut counts = links.iter().map(count);
            counts.try_fold(0usize, |sum, count| sum.checked_add(count))
        };
        let too_many = || {
            invalid(
                collective,
                "the counts add up to more than a buffer can have",
            )
        };
        let sends = sum(|link| link.sends).ok_or_else(too_many)?;
        let expects = sum(|link| link.expects).ok_or_else(too_many)?;
        check_len(collective, "input", input.len, sends)?;
        check_len(collective, "output", output.len, expects)?;
        let exchanges = self.exchanges(collective, &links)?;
        let operation = Operation::Exchange { links };
        Ok(Request {
            exchanges: Some(exchanges),
            ..request(collective, operation, elements, input.bytes, output.bytes)
        })
    }

    /// What each rank is told of the links to it. A rank that is listed several times has equal counts in all
    /// of its links, so that the sums tell all of them.
    fn exchanges(self, collective: Collective, links: &[Link]) -> Result<Exchanges> {
        let mut first: Vec<Option<Link>> = vec![None; self.world];
        let mut exchanges: Vec<Option<Exchange>> = vec![None; self.world];
        for link in links {
            let rank = link.rank;
            let Some(exchange) = exchanges.get_mut(rank) else {
                let world = self.world;
                let reason = format!("rank {rank} does not exist in a world of {world}");
                return Err(invalid(collective, reason));
            };
            if *first[rank].get_or_insert(*link) != *link {
                let reason = format!(
                    "rank {rank} is listed more than once with different counts, which cannot be told \
                     apart: list it once, or with equal counts"
                );
                return Err(invalid(collective, reason));
            }
            let exchange = exchange.get_or_insert_default();
            exchange.sends += link.sends as u64;
            exchange.expects += link.expects as u64;
            exchange.blocks += 1;
        }
        Ok(exchanges.into())
    }
}
