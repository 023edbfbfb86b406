//! Reductions of one's own.

use super::{
    Communicator,
    requests::{Input, Output},
};
use crate::{
    digest::digest_named,
    engine::{Combine, Elements, Request},
};
use bytemuck::Pod;
use nexar_core::{Error, Result, transport::Transport};
use nexar_device::DeviceAdapter;
use std::fmt;

/// Longest element of a reduction of one's own, in bytes.
const MAX_ELEMENT: usize = 4096;

#[doc = include_str!("../../docs/links.txt")]
#[doc = include_str!("../../docs/reduction.md")]
pub struct Reduction<E> {
    name: String,
    ordered: bool,
    combine: Box<Combine>,
    element: std::marker::PhantomData<fn(&E)>,
}

impl<E: Pod> Reduction<E> {
    /// A reduction that may be applied in any order. All ranks give it the same name: different names are a
    /// mismatch.
    ///
    /// A panic of the function is the caller's, and aborts the operation on the other ranks.
    pub fn commutative(
        name: impl Into<String>,
        combine: impl Fn(&E, &E) -> E + Send + Sync + 'static,
    ) -> Self {
        Self::new(name.into(), false, combine)
    }

    /// A reduction that is applied in the order of the ranks: the first argument comes from lower ranks than the
    /// second. Otherwise as [`commutative`](Self::commutative).
    pub fn ordered(
        name: impl Into<String>,
        combine: impl Fn(&E, &E) -> E + Send + Sync + 'static,
    ) -> Self {
        Self::new(name.into(), true, combine)
    }

    fn new(
        name: String,
        ordered: bool,
        combine: impl Fn(&E, &E) -> E + Send + Sync + 'static,
    ) -> Self {
        let size = size_of::<E>().max(1);
        let combine = move |acc: &mut [u8], incoming: &[u8], incoming_first: bool| {
            for (acc, incoming) in acc.chunks_exact_mut(size).zip(incoming.chunks_exact(size)) {
                let own: E = bytemuck::pod_read_unaligned(acc);
                let other: E = bytemuck::pod_read_unaligned(incoming);
                let result = match incoming_first {
                    true => combine(&other, &own),
                    false => combine(&own, &other),
                };
                acc.copy_from_slice(bytemuck::bytes_of(&result));
            }
        };
        Reduction {
            name,
            ordered,
            combine: Box::new(combine),
            element: std::marker::PhantomData,
        }
    }

    pub(super) fn elements(&self, operation: &'static str) -> Result<Elements<'_>> {
        let size = size_of::<E>();
        if (1..=MAX_ELEMENT).contains(&size) {
            return Ok(Elements::Custom {
                size,
                ordered: self.ordered,
                combine: &*self.combine,
            });
        }
        let reason = format!("an element has {size} bytes, but must have 1 to {MAX_ELEMENT}");
        Err(Error::InvalidArgument { operation, reason })
    }

    pub(super) fn stamp<'a, Q>(&self, request: Request<'a, Q>) -> Request<'a, Q> {
        let digest = digest_named(&self.name, [u64::from(self.ordered), request.digest]);
        Request { digest, ..request }
    }
}

impl<E> fmt::Debug for Reduction<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction")
            .field("name", &self.name)
            .field("ordered", &self.ordered)
            .finish_non_exhaustive()
    }
}

fn input<E: Pod>(data: &[E]) -> Input<'_> {
    Input::host(bytemuck::cast_slice(data), data.len())
}

fn output<E: Pod>(data: &mut [E]) -> Output<'_> {
    let len = data.len();
    Output::host(bytemuck::cast_slice_mut(data), len)
}

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// [`all_reduce`](Self::all_reduce) with a [`Reduction`] of one's own, which has an example.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for elements of no bytes or more than 4096; [`Error::Operation`], with a mismatch where
    /// the ranks name different reductions.
    pub async fn all_reduce_with<E: Pod>(
        &self,
        data: &mut [E],
        reduction: &Reduction<E>,
    ) -> Result<()> {
        let elements = reduction.elements("all_reduce")?;
        let request = self.place().all_reduce(elements, output(data));
        self.engine().run(reduction.stamp(request)).await
    }

    /// [`reduce`](Self::reduce) with a [`Reduction`] of one's own, which has an example.
    ///
    /// # Errors
    ///
    /// As [`all_reduce_with`](Self::all_reduce_with), and if there is no rank `root`.
    pub async fn reduce_with<E: Pod>(
        &self,
        data: &mut [E],
        reduction: &Reduction<E>,
        root: usize,
    ) -> Result<()> {
        let elements = reduction.elements("reduce")?;
        let request = self.place().reduce(elements, output(data), root)?;
        self.engine().run(reduction.stamp(request)).await
    }

    /// [`reduce_scatter`](Self::reduce_scatter) with a [`Reduction`] of one's own, which has an example.
    ///
    /// # Errors
    ///
    /// As [`all_reduce_with`](Self::all_reduce_with), and if the lengths do not fit.
    pub async fn reduce_scatter_with<E: Pod>(
        &self,
        from: &[E],
        to: &mut [E],
        reduction: &Reduction<E>,
    ) -> Result<()> {
        let elements = reduction.elements("reduce_scatter")?;
        let request = (self.place()).reduce_scatter(elements, input(from), output(to))?;
        self.engine().run(reduction.stamp(request)).await
    }

    /// [`scan`](Self::scan) with a [`Reduction`] of one's own, which has an example.
    ///
    /// # Errors
    ///
    /// As [`all_reduce_with`](Self::all_reduce_with).
    pub async fn scan_with<E: Pod>(&self, data: &mut [E], reduction: &Reduction<E>) -> Result<()> {
        let elements = reduction.elements("scan")?;
        let request = self.place().scan(elements, output(data), false)?;
        self.engine().run(reduction.stamp(request)).await
    }

    /// [`exclusive_scan`](Self::exclusive_scan) with a [`Reduction`] of one's own, which has an example.
    ///
    /// # Errors
    ///
    /// As [`all_reduce_with`](Self::all_reduce_with).
    pub async fn exclusive_scan_with<E: Pod>(
        &self,
        data: &mut [E],
        reduction: &Reduction<E>,
    ) -> Result<()> {
        let elements = reduction.elements("exclusive_scan")?;
        let request = self.place().scan(elements, output(data), true)?;
        self.engine().run(reduction.stamp(request)).await
    }
}
