//! Messages between ranks 0 and 1: how long one takes, and how many go one way.

use crate::{
    args::Args,
    check::{Pattern, Verdict},
    measure::{Operation, Repeats, Timing, measure, measure_loops},
    rank::RankError,
    report::{Column, format_rate, format_time, microseconds, per_second},
    sweep::{Benchmark, Context, allocate},
    values::{Place, Value},
};
use nexar_collectives::{Communicator, Result};
use serde::Serialize;
use std::time::Duration;

/// Sends and receives that are under way at the same time in a stream, each with a tag of its own.
const LANES: usize = 2;

/// A stream is made of as many messages as make up so many bytes, within these bounds; then comes an answer.
const STREAM_BYTES: usize = 16 << 20;
const STREAM_MESSAGES: std::ops::RangeInclusive<usize> = 4..=256;

/// The tag of messages that are answered.
const PING: u64 = LANES as u64;

/// How far apart the data of the messages of a stream can begin, so that one in the wrong place differs.
const SHIFTS: usize = 64;

/// Messages of one size, with buffers for the largest size. Ranks but 0 and 1 do nothing.
pub(crate) struct Messages<'a, E> {
    comm: &'a Communicator,
    args: &'a Args,
    count: usize,
    /// What this rank sends.
    outgoing: Vec<E>,
    /// What arrives, in each lane.
    incoming: [Vec<E>; LANES],
}

impl<'a, E: Value> Messages<'a, E> {
    pub(crate) fn new(
        comm: &'a Communicator,
        args: &'a Args,
    ) -> std::result::Result<Self, RankError> {
        let largest = args.sizes().last().unwrap_or_default() / E::DATA_TYPE.size();
        let buffer = |elements| match comm.rank() {
            0 | 1 => allocate(elements),
            _ => Ok(Vec::new()),
        };
        let mut outgoing = buffer(largest.saturating_add(SHIFTS))?;
        Self::pattern(comm.rank(), outgoing.len()).fill(0, &mut outgoing);
        Ok(Messages {
            comm,
            args,
            count: largest,
            outgoing,
            incoming: [buffer(largest)?, buffer(largest)?],
        })
    }

    /// What a rank sends.
    fn pattern(rank: usize, len: usize) -> Pattern<E> {
        Pattern::new(len, |index| E::input(None, 1, Place { rank, index }))
    }

    fn bytes(&self) -> usize {
        self.count * E::DATA_TYPE.size()
    }

    /// Messages of a stream, in each lane.
    fn stream_messages(&self) -> usize {
        let messages = STREAM_BYTES / self.bytes().max(1);
        messages.clamp(*STREAM_MESSAGES.start(), *STREAM_MESSAGES.end()) / LANES
    }

    /// A message from rank 0 to rank 1 and one back.
    async fn ping_pong(&mut self) -> Result<()> {
        let (comm, count) = (self.comm, self.count);
        let (outgoing, incoming) = (&self.outgoing, &mut self.incoming[0]);
        match comm.rank() {
            0 => {
                comm.send(&outgoing[..count], 1, PING).await?;
                comm.recv(&mut incoming[..count], 1, PING).await?;
            }
            1 => {
                comm.recv(&mut incoming[..count], 0, PING).await?;
                comm.send(&outgoing[..count], 0, PING).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A stream from rank 0 to rank 1, and an empty message back when all of it has arrived.
    async fn stream(&mut self, verdict: Option<&mut Verdict>) -> Result<()> {
        let messages = self.stream_messages();
        let (comm, count) = (self.comm, self.count);
        match comm.rank() {
            0 => {
                let outgoing = &self.outgoing[..];
                let send = async |lane| {
                    for at in shifts(lane, messages) {
                        comm.send(&outgoing[at..at + count], 1, lane as u64).await?;
                    }
                    Ok::<_, nexar_collectives::Error>(())
                };
                tokio::try_join!(send(0), send(1))?;
                comm.recv::<E>(&mut [], 1, PING).await?;
            }
            1 => {
                let len = self.outgoing.len();
                let pattern = verdict.is_some().then(|| Self::pattern(0, len));
                let recv = async |lane, buffer: &mut [E]| {
                    let mut verdict = Verdict::default();
                    for at in shifts(lane, messages) {
                        let received = comm.recv(buffer, 0, lane as u64).await?;
                        if let Some(pattern) = &pattern {
                            verdict.wrong += u64::from(received.count != count);
                            pattern.compare(at, buffer, 0, &mut verdict);
                            buffer.fill(E::default());
                        }
                    }
                    Ok::<_, nexar_collectives::Error>(verdict)
                };
                let [first, second] = &mut self.incoming;
                let (first, second) =
                    tokio::try_join!(recv(0, &mut first[..count]), recv(1, &mut second[..count]))?;
                if let Some(verdict) = verdict {
                    verdict.merge(first);
                    verdict.merge(second);
                }
                comm.send::<E>(&[], 0, PING).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Where the data of each message of a lane begins.
fn shifts(lane: usize, messages: usize) -> impl Iterator<Item = usize> {
    (0..messages).map(move |message| (message * LANES + lane) % SHIFTS)
}

/// Round trips.
struct PingPong<'a, 'b, E>(&'b mut Messages<'a, E>);

impl<E: Value> Operation for PingPong<'_, '_, E> {
    fn comm(&self) -> &Communicator {
        self.0.comm
    }

    async fn run(&mut self) -> Result<()> {
        self.0.ping_pong().await
    }

    fn is_timed(&self) -> bool {
        self.0.comm.rank() == 0
    }
}

/// Streams.
struct Stream<'a, 'b, E>(&'b mut Messages<'a, E>);

impl<E: Value> Operation for Stream<'_, '_, E> {
    fn comm(&self) -> &Communicator {
        self.0.comm
    }

    async fn run(&mut self) -> Result<()> {
        self.0.stream(None).await
    }

    fn is_timed(&self) -> bool {
        self.0.comm.rank() == 0
    }
}

/// What is measured at one size.
pub(crate) struct Figures {
    /// Half round trips.
    latency: Timing,
    /// The time of one message of a stream.
    message: Duration,
}

/// A JSON line.
#[derive(Serialize)]
struct Record<'a> {
    operation: &'a str,
    ranks: usize,
    transport: &'a str,
    dtype: &'a str,
    bytes: usize,
    count: usize,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    messages_per_s: f64,
    stream_gbps: f64,
    wrong: Option<u64>,
}

impl<E: Value> Benchmark for Messages<'_, E> {
    type Figures = Figures;

    const COLUMNS: &'static [Column] = &[
        Column::new(11, "size", "(B)"),
        Column::new(13, "count", "(elements)"),
        Column::new(6, "type", ""),
        Column::new(10, "mean", "(us)"),
        Column::new(10, "p50", "(us)"),
        Column::new(10, "p99", "(us)"),
        Column::new(10, "stream", "(msg/s)"),
        Column::new(7, "stream", "(GB/s)"),
    ];

    fn comm(&self) -> &Communicator {
        self.comm
    }

    fn headline(&self) -> String {
        self.args.describe_sizes()
    }

    fn resize(&mut self, bytes: usize) {
        self.count = bytes / E::DATA_TYPE.size();
    }

    async fn check(&mut self, verdict: &mut Verdict) -> Result<()> {
        let (rank, count) = (self.comm.rank(), self.count);
        if rank < 2 {
            self.incoming[0][..count].fill(E::default());
            self.ping_pong().await?;
            let theirs = Self::pattern(1 - rank, self.outgoing.len());
            theirs.compare(0, &self.incoming[0][..count], 0, verdict);
        }
        self.stream(Some(verdict)).await
    }

    async fn measure(&mut self, repeats: Repeats) -> Result<Figures> {
        let round_trip = measure(&mut PingPong(self), repeats).await?;
        let stream = measure_loops(&mut Stream(self), repeats).await?;
        let messages = (self.stream_messages() * LANES) as u32;
        Ok(Figures {
            latency: Timing {
                time: round_trip.time / 2,
                p50: round_trip.p50 / 2,
                p99: round_trip.p99 / 2,
            },
            message: stream / messages,
        })
    }

    fn row(&mut self, figures: Figures, context: Context<'_>) -> (Vec<String>, impl Serialize) {
        let Figures { latency, message } = figures;
        let messages_per_s = per_second(message);
        let record = Record {
            operation: "send-recv",
            ranks: context.ranks,
            transport: context.transport,
            dtype: E::DATA_TYPE.name(),
            bytes: self.bytes(),
            count: self.count,
            mean_us: microseconds(latency.time),
            p50_us: microseconds(latency.p50),
            p99_us: microseconds(latency.p99),
            messages_per_s,
            stream_gbps: self.bytes() as f64 * messages_per_s / 1e9,
            wrong: context.wrong,
        };
        let cells = vec![
            record.bytes.to_string(),
            record.count.to_string(),
            record.dtype.into(),
            format_time(latency.time),
            format_time(latency.p50),
            format_time(latency.p99),
            format_rate(messages_per_s),
            format!("{:.3}", record.stream_gbps),
        ];
        (cells, record)
    }
}
