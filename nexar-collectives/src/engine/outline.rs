//! Keeps compile times and binaries small.

use pin_project_lite::pin_project;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

pin_project! {
    /// A future that is compiled once for all of its callers. The methods of a communicator exist for every
    /// element type; without this the whole engine would be compiled into each.
    pub(crate) struct Outlined<F> {
        #[pin]
        pub(crate) future: F,
    }
}

impl<F: Future> Future for Outlined<F> {
    type Output = F::Output;

    #[inline(never)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}
