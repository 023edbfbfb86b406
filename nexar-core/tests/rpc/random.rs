//! Many calls of all kinds, some of which are dropped or run out of time, on a network with delays.

use crate::world::{World, body, within};
use bytes::Bytes;
use nexar_core::{
    Error,
    rpc::{ItemError, ItemSender, RpcFailure, RpcOptions},
    transport::memory::MemoryNetwork,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{convert::Infallible, time::Duration};
use tokio::{task::JoinSet, time::timeout};

fn register(world: &World) {
    for rpc in &world.ranks {
        rpc.register_raw("echo", |_, request: Bytes| async move {
            let pause = request.len() as u64 % 4;
            if pause > 0 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            Ok::<_, Infallible>(request)
        })
        .unwrap();
        rpc.register("back", |call, left: u8| async move {
            let Some(next) = left.checked_sub(1) else {
                return Ok(1);
            };
            let caller = call.caller().ok_or("shut down")?;
            let below = caller.call::<_, u32>(call.source(), "back", &next).await;
            below.map(|below| below + 1).map_err(|_| "failed")
        })
        .unwrap();
        rpc.register_stream("count", |_, to: u32, items: ItemSender<u32>| async move {
            for number in 0..to {
                items.send(&number).await?;
            }
            Ok::<_, ItemError>(())
        })
        .unwrap();
    }
}

/// One call; an error only if its time is over.
async fn call(rpc: &crate::world::Calls, to: usize, kind: u32, size: usize) -> Result<(), Error> {
    match kind {
        0 => {
            let left = (size % 9) as u8;
            let reply = rpc.call::<_, u32>(to, "back", &left).await?;
            assert_eq!(reply, u32::from(left) + 1);
        }
        1 => {
            let count = size as u32 % 3000;
            let mut items = rpc.call_stream::<_, u32>(to, "count", &count).await?;
            for number in 0..count {
                assert_eq!(items.next().await?, Some(number));
            }
            assert_eq!(items.next().await?, None);
        }
        _ => {
            let sent = Bytes::from(body(size, size));
            let caller = rpc.within(Duration::from_millis(if kind == 2 { 8 } else { 60_000 }));
            match caller.call_raw(to, "echo", sent.clone()).await {
                Ok(reply) => assert!(reply == sent),
                Err(Error::Rpc(error)) if kind == 2 => {
                    assert!(
                        matches!(error.cause, RpcFailure::TimedOut { .. }),
                        "{error}"
                    );
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn calls_of_all_kinds_at_a_time() {
    for (seed, size) in [(1, 2), (2, 3), (3, 5), (4, 2), (5, 1)] {
        let network = MemoryNetwork::new(seed);
        let options = RpcOptions::default().with_max_handlers(3 + seed as usize);
        let world = World::on(network, size, crate::world::short(), options).await;
        register(&world);
        if seed > 1 {
            let delays = (Duration::from_micros(300), Duration::from_millis(2));
            world.network.set_delay(delays.0, delays.1);
        }
        let mut rng = StdRng::seed_from_u64(seed);
        let mut tasks = JoinSet::new();
        for _ in 0..400 {
            let rpc = world.ranks[rng.random_range(0..size)].clone();
            let (to, kind) = (rng.random_range(0..size), rng.random_range(0..6));
            let bytes = match rng.random_range(0..5) {
                0 => rng.random_range(0..300_000),
                _ => rng.random_range(0..3000),
            };
            let patience = match rng.random_range(0..3) {
                0 => Duration::from_micros(rng.random_range(0..20_000)),
                _ => Duration::from_secs(60),
            };
            let begin = Duration::from_micros(rng.random_range(0..30_000));
            tasks.spawn(async move {
                tokio::time::sleep(begin).await;
                if let Ok(done) = timeout(patience, call(&rpc, to, kind, bytes)).await {
                    done.unwrap();
                }
            });
        }
        let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        within(Duration::from_secs(30), all).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        for rpc in &world.ranks {
            assert_eq!(rpc.stats(), Default::default(), "seed {seed}");
            assert_eq!(rpc.group().failure(), None);
        }
    }
}
