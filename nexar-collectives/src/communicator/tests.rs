//! The choice of algorithms by where the ranks are.

use super::*;
use crate::{
    engine::{Elements, Request, Source, Target},
    schedule::{Collective, Hosts, Operation, Plan, select},
};
use nexar_core::{
    DataType, ReduceOp,
    transport::{
        PeerId,
        memory::{MemoryNetwork, MemoryTransport},
    },
};
use std::{convert::Infallible, net::SocketAddr};
use tokio::task::JoinSet;

type MemoryCommunicator = Communicator<MemoryTransport>;

/// A rank at each of these addresses.
async fn ranks_at(addresses: &[&str]) -> Vec<MemoryCommunicator> {
    let network = MemoryNetwork::new(7);
    let addresses: Vec<SocketAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
    let mut joins = JoinSet::new();
    for (rank, address) in addresses.iter().enumerate() {
        let identity = PeerId::new(&format!("rank {rank}"));
        let transport = Arc::new(network.bind(Some(*address), identity).unwrap());
        let route = match rank {
            0 => SeedRoute::Here(transport),
            _ => SeedRoute::Dial(vec![(transport, addresses[0])]),
        };
        let request = JoinRequest::new("test", addresses.len()).with_rank(Some(rank));
        joins.spawn(Communicator::join(route, request, CpuAdapter));
    }
    let ranks = joins.join_all().await.into_iter().map(Result::unwrap);
    let mut ranks: Vec<_> = ranks.collect();
    ranks.sort_by_key(Communicator::rank);
    ranks
}

const BYTES: usize = 64 << 20;

/// What a rank chooses for a long all-reduce.
fn chosen(rank: &MemoryCommunicator) -> Plan {
    rank.engine().plan(&Request::<Infallible> {
        collective: Collective::AllReduce,
        operation: Operation::AllReduce { count: BYTES / 4 },
        elements: Elements::Reduced(DataType::F32, ReduceOp::Sum),
        digest: 0,
        exchanges: None,
        input: Source::none(),
        output: Target::none(),
    })
}

fn expected(world: usize, hosts: Hosts) -> Plan {
    let operation = Operation::AllReduce { count: BYTES / 4 };
    select(&operation, 4, world, hosts, None, false, false)
}

#[tokio::test]
async fn all_ranks_know_alike_whether_they_share_a_host() {
    assert_ne!(expected(3, Hosts::One), expected(3, Hosts::Several));
    for (addresses, hosts) in [
        (["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"], Hosts::One),
        (["127.0.0.1:1", "[::1]:2", "127.0.0.2:3"], Hosts::One),
        (["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"], Hosts::Several),
    ] {
        for rank in ranks_at(&addresses).await {
            assert_eq!(chosen(&rank), expected(3, hosts), "{addresses:?}");
        }
    }
}

#[tokio::test]
async fn communicators_made_from_others_look_at_their_own_members() {
    let addresses = [
        "10.0.0.1:1",
        "10.0.0.2:1",
        "10.0.0.1:2",
        "10.0.0.2:2",
        "10.0.0.1:3",
    ];
    let mut calls = JoinSet::new();
    for rank in ranks_at(&addresses).await {
        calls.spawn(async move {
            let number = rank.rank() as u64;
            assert_eq!(chosen(&rank), expected(5, Hosts::Several));
            let host = rank.split(Some(number % 2), 0).await.unwrap().unwrap();
            let size = host.world_size();
            assert_eq!(chosen(&host), expected(size, Hosts::One));
            let mixed = rank.split(Some(number / 2), 0).await.unwrap().unwrap();
            let hosts = match number {
                4 => Hosts::One,
                _ => Hosts::Several,
            };
            assert_eq!(chosen(&mixed), expected(mixed.world_size(), hosts));
            drop((host, mixed));
            rank.shutdown().await.unwrap();
        });
    }
    calls.join_all().await;
}
