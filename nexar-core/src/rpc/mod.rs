//! Remote calls between the ranks of a group: handlers by name, typed, raw and streamed replies.
//!
//! ```
//! use nexar_core::rpc::{Rpc, RpcOptions};
//! # use nexar_core::membership::{JoinRequest, SeedRoute, join};
//! # use nexar_core::transport::{PeerId, Transport, memory::MemoryNetwork};
//! # use std::{convert::Infallible, sync::Arc, time::Duration};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let network = MemoryNetwork::new(1);
//! # let a = Arc::new(network.bind(None, PeerId::new("a"))?);
//! # let b = Arc::new(network.bind(None, PeerId::new("b"))?);
//! # let seed = a.local_addr();
//! # let request = |rank| JoinRequest::new("job", 2).with_rank(Some(rank));
//! # let dial = SeedRoute::Dial(vec![(b, seed)]);
//! # let (first, second) = (request(0), request(1));
//! # let (a, b) = tokio::try_join!(join(SeedRoute::Here(a), &first), join(dial, &second))?;
//! // On each rank, from its mesh:
//! let zero = Rpc::new(Arc::new(a.group(7, vec![0, 1])?), RpcOptions::default());
//! let one = Rpc::new(Arc::new(b.group(7, vec![0, 1])?), RpcOptions::default());
//!
//! one.register("mean", |call, values: Vec<f64>| async move {
//!     assert_eq!(call.source(), 0);
//!     match values.len() {
//!         0 => Err("no values"),
//!         count => Ok(values.iter().sum::<f64>() / count as f64),
//!     }
//! })?;
//! let mean: f64 = zero.call(1, "mean", &[1.0, 2.0, 6.0].to_vec()).await?;
//! assert_eq!(mean, 3.0);
//! let error = zero.within(Duration::from_secs(1)).call::<_, f64>(1, "mean", &Vec::<f64>::new()).await;
//! assert!(error.unwrap_err().to_string().ends_with("the handler failed: no values"));
//!
//! one.register_stream("count", |_, to: u32, items| async move {
//!     for number in 0..to {
//!         items.send(&number).await?;
//!     }
//!     Ok::<_, nexar_core::rpc::ItemError>(())
//! })?;
//! let mut numbers = zero.call_stream(1, "count", &3_u32).await?;
//! while let Some(number) = numbers.next().await? {
//!     let _: u32 = number;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Handlers
//!
//! A handler is an async function that is registered under a name. It runs as a task of the runtime that was
//! current when the first one was registered (see [`RpcOptions::runtime`]), never on the thread of the transport,
//! so that one that blocks delays other handlers at most. Its future is dropped, at its next await, when
//! the time limit of the call has passed, when the caller drops the call, exits or leaves, and when this
//! rank shuts down. A handler that panics fails its call only.
//!
//! A call may come as soon as the other rank has made its communicator. Register handlers before a barrier,
//! or call again after [`RpcFailure::NoSuchMethod`].
//!
//! # Calls by handlers
//!
//! Handlers may call any rank, the one included that waits for them, to any depth, and may use other
//! communicators. Calls that are made inside of a handler's future or by its
//! [`caller`](CallContext::caller) are known as such: they do not count towards
//! [`RpcOptions::max_handlers`] and have bounds of their own, so that handlers never wait for places held
//! by those who wait for them. A call from a task that a handler has spawned is an ordinary one, unless it
//! is made by that caller.
//!
//! # Order
//!
//! Handlers are started in the order in which the calls of one rank were first polled, as far as their
//! bodies are small; they run at the same time.
//!
//! # Cost
//!
//! Calls that are made at the same time go out together, and so do answers. A body of up to
//! [`INLINE_LIMIT`] bytes goes with its call; a larger one, and each streamed reply, has a stream of its
//! own, so that nothing is delayed behind it, at the price of another round trip. A call to the own rank
//! uses no network, but its handler is a task all the same.
//!
//! # Cancel safety
//!
//! Dropping the future of a call cancels it at the callee, where the handler may have begun, or ended.
//!
//! # Bounds
//!
//! For each pair of ranks and direction, and separately for calls by handlers and all others:
//!
//! - [`MAX_CALLS`] calls that are not answered, with small requests of [`MAX_REQUESTS`] bytes together.
//!   Further calls wait at the caller, in order, within their time limits;
//! - [`MAX_TRANSFERS`] large bodies that come at a time; the others stay at their sender. A large body
//!   takes no more memory than three times what has arrived of it, and 1 MiB. At the callee, large requests and
//!   replies are held by calls that count as running handlers;
//! - [`STREAM_WINDOW`] bytes and one item of each streamed reply that the caller has not taken, at the
//!   caller and at the callee together;
//! - [`SEND_QUEUE`] bytes of answers that wait to be written, and one small answer for each handler that
//!   was running then: no further handlers are started for a rank that does not read its answers.
//!
//! Lanes of calls are always read, so that they do not use up the connection's flow control.
//!
//! # Failures
//!
//! When the communicator fails, all its calls fail with that [`Failure`] at once. When a
//! rank leaves, calls to it fail once the answers that it sent before have come; others go on. Both are an
//! [`RpcFailure::Failed`]. Any other error concerns one call only. All are an [`Error::Rpc`].

mod attend;
mod bulk;
mod call;
mod caller;
mod context;
mod error;
mod flow;
mod items;
mod job;
mod method;
mod options;
mod peer;
mod registry;
mod replies;
mod runtime;
mod serve;
mod state;

pub use caller::Caller;
pub use context::{CallContext, Cancellation};
pub use error::{RpcError, RpcFailure};
pub use items::{ItemError, ItemSender};
pub use options::RpcOptions;
pub use replies::Replies;

use crate::{
    Error, Failure, Result,
    lane::OutLane,
    mesh::{Group, GroupListener, Listening},
    task::run_on,
    transport::{SendStream, Transport},
    wire::rpc::FailureCode,
};
use bytes::Bytes;
use method::{Streaming, Whole};
use serde::{Serialize, de::DeserializeOwned};
use state::Inner;
use std::{
    fmt::{self, Display},
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

/// Longest body, in bytes, that goes with its call or answer.
pub const INLINE_LIMIT: usize = 64 << 10;

/// Calls from one rank to another that are not answered.
pub const MAX_CALLS: usize = 4096;

/// Bytes of small requests from one rank to another that are not answered.
pub const MAX_REQUESTS: usize = 4 << 20;

/// Large bodies that come from one rank at a time.
pub const MAX_TRANSFERS: usize = 16;

/// Bytes that wait to be written to one rank before no further handlers are started for it.
pub const SEND_QUEUE: usize = 1 << 20;

/// Bytes of a streamed reply, [`ITEM_COST`] for each item included, that its caller has not taken before the
/// handler waits.
pub const STREAM_WINDOW: usize = 1 << 20;

/// What an item costs of the window beyond its length.
pub const ITEM_COST: usize = 64;

/// The callee is told when so much of a window has become free.
const RETURN_CREDIT: usize = STREAM_WINDOW / 4;

/// With so many calls in progress, requests are gathered before they are written.
const CROWD: usize = 4;

/// How long handlers may run on when their rank shuts down.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Longest chunk that is read at once.
const MAX_READ: usize = 256 << 10;

/// Reads from one lane in a row, so that the others get their turn.
const READS_IN_A_ROW: usize = 8;

/// Priority of large bodies and streamed replies where the transport knows priorities: below everything else.
const BULK_PRIORITY: i32 = -10;

/// The remote calls of one communicator, made and answered. All its methods may be called from any number
/// of tasks at a time.
///
/// Each group has one at most. Drop it together with the group, [`drain`](Rpc::drain) before: dropping
/// cancels the calls in progress in both directions.
pub struct Rpc<T: Transport> {
    caller: Caller<T>,
}

impl<T: Transport> Rpc<T> {
    /// The calls of a group.
    pub fn new(group: Arc<Group<T>>, options: RpcOptions) -> Self {
        let inner = Inner::new(Arc::clone(&group), options);
        group.listen(Listening::Calls, Some(inner.hub.clone()));
        // Something may have come before.
        inner.hub.changed();
        let limit = group.limits().operation;
        Rpc {
            caller: Caller {
                inner,
                limit,
                depth: None,
            },
        }
    }

    /// The group.
    pub fn group(&self) -> &Arc<Group<T>> {
        &self.caller.inner.group
    }

    /// For calls with another time limit than that of operations.
    pub fn within(&self, limit: Duration) -> Caller<T> {
        Caller {
            limit,
            ..self.caller.clone()
        }
    }

    /// Registers a handler for calls of a type, whose requests and replies are encoded with
    /// [postcard](https://docs.rs/postcard): both sides have to mean the same types.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a name that is empty, longer than 255 bytes or taken;
    /// [`Error::Config`] where the thread for handlers cannot be started.
    pub fn register<Request, Reply, E, F, Fut>(&self, name: &str, handler: F) -> Result<()>
    where
        Request: DeserializeOwned,
        Reply: Serialize,
        E: Display,
        F: Fn(CallContext<T>, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, E>> + Send + 'static,
    {
        let method = Whole(move |context: CallContext<T>, body: Bytes| {
            let request = method::decode(&body);
            let reply = request.map(|request| handler(context, request));
            async move { method::encode(&reply?.await.map_err(method::failed)?) }
        });
        self.add(name, Arc::new(method))
    }

    /// Registers a handler for calls whose bodies are bytes as they are. Otherwise like
    /// [`register`](Self::register).
    pub fn register_raw<E, F, Fut>(&self, name: &str, handler: F) -> Result<()>
    where
        E: Display,
        F: Fn(CallContext<T>, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, E>> + Send + 'static,
    {
        let method = Whole(move |context: CallContext<T>, body: Bytes| {
            let reply = handler(context, body);
            async move { reply.await.map_err(method::failed) }
        });
        self.add(name, Arc::new(method))
    }

    /// Registers a handler that replies with any number of items, one by one. Otherwise like
    /// [`register`](Self::register).
    pub fn register_stream<Request, Item, E, F, Fut>(&self, name: &str, handler: F) -> Result<()>
    where
        Request: DeserializeOwned,
        Item: 'static,
        E: Display,
        F: Fn(CallContext<T>, Request, ItemSender<Item>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        let method = Streaming(move |context: CallContext<T>, body: Bytes, items| {
            let items = ItemSender::new(items, &context);
            let request = method::decode(&body);
            let end = request.map(|request| handler(context, request, items));
            async move { end?.await.map(|()| Bytes::new()).map_err(method::failed) }
        });
        self.add(name, Arc::new(method))
    }

    fn add(&self, name: &str, method: Arc<dyn registry::Method<T>>) -> Result<()> {
        let inner = &self.caller.inner;
        if let Err(error) = inner.runtime.handle() {
            let reason = format!("no thread for handlers could be started: {error}");
            return Err(Error::Config(crate::ConfigError::new(
                "rpc runtime",
                reason,
            )));
        }
        inner.methods.add(name, method)
    }

    /// Removes a method; false if there was none of that name. Calls that have come before are handled.
    pub fn unregister(&self, name: &str) -> bool {
        self.caller.inner.methods.remove(name)
    }

    /// Calls a method of a rank, which may be this one, within the time limit of operations.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a rank that does not exist or a name that cannot be registered, else
    /// [`Error::Rpc`].
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the call is cancelled; its handler may have begun, or ended.
    pub async fn call<Request, Reply>(
        &self,
        rank: usize,
        method: &str,
        request: &Request,
    ) -> Result<Reply>
    where
        Request: Serialize + ?Sized,
        Reply: DeserializeOwned,
    {
        self.caller.call(rank, method, request).await
    }

    /// Calls a method with bytes as they are. No bytes are copied but of small requests and replies.
    /// Otherwise like [`call`](Self::call).
    pub async fn call_raw(&self, rank: usize, method: &str, request: Bytes) -> Result<Bytes> {
        self.caller.call_raw(rank, method, request).await
    }

    /// Calls a method that streams its reply. The time limit is for the whole of it. It waits for room to
    /// send the request only: what else can go wrong is found by [`Replies::next`].
    /// Otherwise like [`call`](Self::call).
    pub async fn call_stream<Request, Item>(
        &self,
        rank: usize,
        method: &str,
        request: &Request,
    ) -> Result<Replies<T, Item>>
    where
        Request: Serialize + ?Sized,
    {
        self.caller.call_stream(rank, method, request).await
    }

    /// What is in progress at the moment.
    pub fn stats(&self) -> RpcStats {
        self.caller.inner.with(|core| core.stats())
    }

    /// Ends the calls of this rank: those in progress fail, and so do later ones. Calls from other ranks are
    /// refused; handlers that run have half a second to end, then they are cancelled. Waits until the
    /// other ranks' transports have the answers. Ranks that cannot be reached are passed over. All
    /// handlers are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] when the communicator has failed.
    ///
    /// # Cancel safety
    ///
    /// It can be called again.
    pub async fn drain(&self) -> Result<()> {
        let transport = self.group().transport();
        transport.drive(self.drain_lanes()).await;
        match self.group().failure() {
            None | Some(Failure::ShutDown) => Ok(()),
            Some(failure) => Err(self.caller.failed("drain", failure)),
        }
    }

    async fn drain_lanes(&self) {
        let inner = &self.caller.inner;
        inner.with(|core| core.stop());
        inner.methods.clear();
        if !self.settle().await {
            inner.with(|core| core.stop_serving_all(FailureCode::NotServed));
            self.settle().await;
        }
        let mut lanes = inner.with(|core| core.close());
        for lane in &mut lanes {
            if let OutLane::Open(stream) = lane {
                // A lane that broke has nothing to wait for.
                let _ = stream.finish();
            }
        }
        for lane in &mut lanes {
            if let OutLane::Open(stream) = lane {
                let _ = stream.acked().await;
            }
        }
    }

    /// Waits for the handlers that run, but not for long; whether they have ended.
    async fn settle(&self) -> bool {
        let inner = &self.caller.inner;
        let sleep = tokio::time::sleep;
        let mut clock = pin!(run_on(inner.hub.background(), async move {
            sleep(DRAIN_GRACE).await
        }));
        poll_fn(|cx| {
            if inner.with(|core| core.poll_settled(cx)).is_ready() {
                return Poll::Ready(true);
            }
            clock.as_mut().poll(cx).map(|_| false)
        })
        .await
    }
}

impl<T: Transport> Drop for Rpc<T> {
    fn drop(&mut self) {
        let inner = &self.caller.inner;
        inner.group.listen(Listening::Calls, None);
        // Dropping a lane ends it.
        drop(inner.with(|core| core.close()));
        inner.methods.clear();
    }
}

impl<T: Transport> fmt::Debug for Rpc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rpc")
            .field("group", self.group())
            .field("stats", &self.stats())
            .finish()
    }
}

/// What an [`Rpc`] has in progress at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RpcStats {
    /// Calls of this rank, those included that are cancelled and not yet answered.
    pub calls: usize,
    /// Handlers that run.
    pub handlers: usize,
    /// Calls of other ranks that wait for a handler to end.
    pub waiting: usize,
    /// Bytes that wait to be written.
    pub queued_bytes: usize,
}

/// The value of a body. Trailing bytes are an error.
fn decode<R: DeserializeOwned>(body: &[u8]) -> Result<R, String> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}
