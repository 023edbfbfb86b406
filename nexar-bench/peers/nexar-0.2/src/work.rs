//! The operations, on buffers of one size.

use crate::Result;
use nexar::{DataType, NexarClient, NexarMessage, ReduceOp};
use std::sync::Arc;
use tokio::task::JoinSet;

const STREAM_MESSAGES: usize = 16;
const CALLERS: usize = 64;
const CALLS_EACH: usize = 16;
const ECHO: u16 = 1;

/// Tags of messages: two lanes of a stream, and the rest.
const LANES: [u32; 2] = [0, 1];
const PING: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    AllReduce,
    Barrier,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    HalfRoundTrip,
    Stream,
    Call,
    Calls,
}

impl Operation {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "all-reduce" => Operation::AllReduce,
            "barrier" => Operation::Barrier,
            "broadcast" => Operation::Broadcast,
            "all-gather" => Operation::AllGather,
            "reduce-scatter" => Operation::ReduceScatter,
            "all-to-all" => Operation::AllToAll,
            "half-round-trip" => Operation::HalfRoundTrip,
            "stream" => Operation::Stream,
            "call" => Operation::Call,
            "calls-64" => Operation::Calls,
            _ => return None,
        })
    }

    /// One run consists of so many operations.
    pub(crate) fn parts(self) -> f64 {
        match self {
            Operation::HalfRoundTrip => 2.0,
            Operation::Stream => STREAM_MESSAGES as f64,
            Operation::Calls => (CALLERS * CALLS_EACH) as f64,
            _ => 1.0,
        }
    }

    /// Whether only the time of rank 0 counts.
    pub(crate) fn is_one_sided(self) -> bool {
        use Operation::{Call, Calls, HalfRoundTrip, Stream};
        matches!(self, HalfRoundTrip | Stream | Call | Calls)
    }
}

pub(crate) struct Work {
    pub(crate) client: Arc<NexarClient>,
    pub(crate) operation: Operation,
    bytes: usize,
    data: Vec<f32>,
    other: Vec<f32>,
}

impl Work {
    pub(crate) fn new(client: Arc<NexarClient>, operation: Operation, bytes: usize) -> Self {
        let elements = bytes / size_of::<f32>();
        Work {
            client,
            operation,
            bytes,
            // Not zeros: zeroed memory that nobody has touched is one page, and always in the cache.
            data: vec![1.0; elements],
            other: vec![1.0; elements],
        }
    }

    /// This rank's part of one run.
    pub(crate) async fn run(&mut self) -> Result<()> {
        match self.operation {
            Operation::HalfRoundTrip => self.round_trip().await,
            Operation::Stream => self.stream().await,
            Operation::Call => self.call().await,
            Operation::Calls => self.crowd().await,
            _ => self.collective().await,
        }
    }

    async fn collective(&mut self) -> Result<()> {
        let (data, other) = self.pointers();
        let (client, count) = (&self.client, self.data.len());
        let block = count / client.world_size() as usize;
        let (f32, sum) = (DataType::F32, ReduceOp::Sum);
        // SAFETY: both buffers have `count` elements, stay where they are until the operation is over, and `count`
        // elements are the most that any of these reads or writes.
        unsafe {
            match self.operation {
                Operation::AllReduce => client.all_reduce(data, count, f32, sum).await?,
                Operation::Broadcast => client.broadcast(data, count, f32, 0).await?,
                Operation::AllGather => client.all_gather(other, data, block, f32).await?,
                Operation::ReduceScatter => {
                    client.reduce_scatter(data, other, block, f32, sum).await?;
                }
                Operation::AllToAll => client.all_to_all(data, other, block, f32).await?,
                _ => client.barrier().await?,
            }
        }
        Ok(())
    }

    async fn round_trip(&mut self) -> Result<()> {
        let (data, other) = self.pointers();
        let (client, bytes) = (&self.client, self.bytes);
        // SAFETY: both buffers have `bytes` bytes and stay where they are until the messages are through.
        unsafe {
            match client.rank() {
                0 => {
                    client.send(data, bytes, 1, PING).await?;
                    client.recv(other, bytes, 1, PING).await?;
                }
                1 => {
                    client.recv(other, bytes, 0, PING).await?;
                    client.send(data, bytes, 0, PING).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Messages one way, two at a time, and an answer when all have arrived.
    async fn stream(&mut self) -> Result<()> {
        let (data, other) = self.pointers();
        let (client, bytes) = (&self.client, self.bytes);
        let rank = client.rank();
        let lane = async |buffer: u64, tag: u32| {
            for _ in 0..STREAM_MESSAGES / LANES.len() {
                // SAFETY: as above; each lane has a buffer of its own.
                unsafe {
                    match rank {
                        0 => client.send(buffer, bytes, 1, tag).await?,
                        _ => client.recv(buffer, bytes, 0, tag).await?,
                    }
                }
            }
            Ok::<_, nexar::NexarError>(())
        };
        if rank > 1 {
            return Ok(());
        }
        tokio::try_join!(lane(data, LANES[0]), lane(other, LANES[1]))?;
        // SAFETY: there is at least one byte.
        unsafe {
            match rank {
                0 => client.recv(data, 1, 1, PING).await?,
                _ => client.send(data, 1, 0, PING).await?,
            }
        }
        Ok(())
    }

    async fn call(&mut self) -> Result<()> {
        if self.client.rank() == 0 {
            self.client.rpc(1, ECHO, &vec![7; self.bytes]).await?;
        }
        Ok(())
    }

    async fn crowd(&mut self) -> Result<()> {
        if self.client.rank() != 0 {
            return Ok(());
        }
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (client, request) = (Arc::clone(&self.client), vec![7; self.bytes]);
            callers.spawn(async move {
                for _ in 0..CALLS_EACH {
                    client.rpc(1, ECHO, &request).await?;
                }
                Ok::<_, nexar::NexarError>(())
            });
        }
        for result in callers.join_all().await {
            result?;
        }
        Ok(())
    }

    fn pointers(&mut self) -> (u64, u64) {
        let pointer = |buffer: &mut Vec<f32>| buffer.as_mut_ptr() as u64;
        (pointer(&mut self.data), pointer(&mut self.other))
    }
}

/// Takes calls from now on; [`serve`] answers them.
pub(crate) async fn register(client: &NexarClient) {
    client.register_rpc(ECHO, Arc::new(<[u8]>::to_vec)).await;
}

/// Answers calls from rank 0 with their requests.
pub(crate) async fn serve(client: Arc<NexarClient>) {
    let dispatcher = Arc::new(client.rpc_dispatcher());
    while let Ok(message) = client.recv_rpc_request(0).await {
        let NexarMessage::Rpc {
            req_id,
            fn_id,
            payload,
        } = message
        else {
            continue;
        };
        let (client, dispatcher) = (Arc::clone(&client), Arc::clone(&dispatcher));
        tokio::spawn(async move {
            if let Ok(peer) = client.peer(0) {
                // A caller without an answer says so.
                let _ = dispatcher
                    .handle_request(peer, req_id, fn_id, &payload)
                    .await;
            }
        });
    }
}
