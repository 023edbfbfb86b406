//! The collectives on slices.

use super::{
    Communicator,
    requests::{Input, Output, bytes_of, moved, reduced},
};
use nexar_core::{Element, ReduceOp, Result, transport::Transport};
use nexar_device::DeviceAdapter;

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/barrier.md")]
    pub async fn barrier(&self) -> Result<()> {
        self.engine().run(self.place().barrier()).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/broadcast.md")]
    pub async fn broadcast<E: Element>(&self, data: &mut [E], root: usize) -> Result<()> {
        let request = (self.place()).broadcast(moved::<E>(), Output::of(data), root)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/reduce.md")]
    pub async fn reduce<E: Element>(
        &self,
        data: &mut [E],
        op: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = (self.place()).reduce(elements, Output::of(data), root)?;
        self.engine().run(request).await
    }

    /// Fills `output` on `root` with the element-wise reduction of all ranks' `input`, which stays as it is. On the other
    /// ranks `output` stays as it is and may be empty.
    ///
    /// Otherwise as [`reduce`](Self::reduce), which has an example.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce); also [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ
    /// on the root.
    pub async fn reduce_into<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        op: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).reduce_into(elements, input, output, root)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_reduce.md")]
    pub async fn all_reduce<E: Element>(&self, data: &mut [E], op: ReduceOp) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = self.place().all_reduce(elements, Output::of(data));
        self.engine().run(request).await
    }

    /// Fills `output` on every rank with the element-wise reduction of all ranks' `input`, which stays as it is. All
    /// lengths are the same.
    ///
    /// Otherwise as [`all_reduce`](Self::all_reduce), which has an example.
    ///
    /// # Errors
    ///
    /// As [`all_reduce`](Self::all_reduce); also [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the
    /// lengths differ.
    pub async fn all_reduce_into<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        op: ReduceOp,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).all_reduce_into(elements, input, output)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_reduce_scaled.md")]
    pub async fn all_reduce_scaled<E: Element>(&self, data: &mut [E], factor: E) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, ReduceOp::Sum)?;
        scale(data, factor)?;
        let request = self.place().all_reduce(elements, Output::of(data));
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/scan.md")]
    pub async fn scan<E: Element>(&self, data: &mut [E], op: ReduceOp) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = (self.place()).scan(elements, Output::of(data), false)?;
        self.engine().run(request).await
    }

    /// Fills `output` on rank r with the element-wise reduction of the `input` of ranks 0 to r. `input` stays as it is.
    ///
    /// Otherwise as [`scan`](Self::scan), which has an example.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan); also [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ.
    pub async fn scan_into<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        op: ReduceOp,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).scan_into(elements, input, output, false)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/exclusive_scan.md")]
    pub async fn exclusive_scan<E: Element>(&self, data: &mut [E], op: ReduceOp) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = (self.place()).scan(elements, Output::of(data), true)?;
        self.engine().run(request).await
    }

    /// Fills `output` on rank r with the element-wise reduction of the `input` of ranks 0 to r − 1. On rank 0 it stays
    /// as it is, so that it can be given the value that suits the reduction before, such as 0.
    ///
    /// Otherwise as [`exclusive_scan`](Self::exclusive_scan), which has an example.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan); also [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the lengths differ.
    pub async fn exclusive_scan_into<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        op: ReduceOp,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).scan_into(elements, input, output, true)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_gather.md")]
    pub async fn all_gather<E: Element>(&self, input: &[E], output: &mut [E]) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).all_gather(moved::<E>(), input, output)?;
        self.engine().run(request).await
    }

    /// All-gather in which each rank's block is already in its place in `data`, which consists of one block for each
    /// rank.
    ///
    /// Otherwise as [`all_gather`](Self::all_gather), which has an example.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    pub async fn all_gather_in_place<E: Element>(&self, data: &mut [E]) -> Result<()> {
        let request = (self.place()).all_gather_in_place(moved::<E>(), Output::of(data))?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_gather_v.md")]
    pub async fn all_gather_v<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        counts: &[usize],
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).all_gather_v(moved::<E>(), input, output, counts)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/gather.md")]
    pub async fn gather<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        root: usize,
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).gather(moved::<E>(), input, output, root)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/gather_v.md")]
    pub async fn gather_v<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).gather_v(moved::<E>(), input, output, counts, root)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/scatter.md")]
    pub async fn scatter<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        root: usize,
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).scatter(moved::<E>(), input, output, root)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/scatter_v.md")]
    pub async fn scatter_v<E: Element>(
        &self,
        input: &[E],
        counts: &[usize],
        output: &mut [E],
        root: usize,
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).scatter_v(moved::<E>(), input, counts, output, root)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/reduce_scatter.md")]
    pub async fn reduce_scatter<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        op: ReduceOp,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).reduce_scatter(elements, input, output)?;
        self.engine().run(request).await
    }

    /// Reduce-scatter in which each rank's result replaces its own block of `data`, which consists of one block for each
    /// rank. The other blocks have unspecified values afterwards.
    ///
    /// Otherwise as [`reduce_scatter`](Self::reduce_scatter), which has an example.
    ///
    /// # Errors
    ///
    /// As [`reduce_scatter`](Self::reduce_scatter).
    pub async fn reduce_scatter_in_place<E: Element>(
        &self,
        data: &mut [E],
        op: ReduceOp,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = (self.place()).reduce_scatter_in_place(elements, Output::of(data))?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/reduce_scatter_v.md")]
    pub async fn reduce_scatter_v<E: Element>(
        &self,
        input: &[E],
        output: &mut [E],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).reduce_scatter_v(elements, input, output, counts)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_to_all.md")]
    pub async fn all_to_all<E: Element>(&self, input: &[E], output: &mut [E]) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).all_to_all(moved::<E>(), input, output)?;
        self.engine().run(request).await
    }

    /// All-to-all in which what comes from rank i replaces what goes to it.
    ///
    /// Otherwise as [`all_to_all`](Self::all_to_all), which has an example.
    ///
    /// # Errors
    ///
    /// As [`all_to_all`](Self::all_to_all).
    pub async fn all_to_all_in_place<E: Element>(&self, data: &mut [E]) -> Result<()> {
        let request = (self.place()).all_to_all_in_place(moved::<E>(), Output::of(data))?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_to_all_v.md")]
    pub async fn all_to_all_v<E: Element>(
        &self,
        input: &[E],
        send_counts: &[usize],
        output: &mut [E],
        recv_counts: &[usize],
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let (sends, expects) = ((input, send_counts), (output, recv_counts));
        let request = (self.place()).all_to_all_v(moved::<E>(), sends, expects)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/neighbor_all_to_all.md")]
    pub async fn neighbor_all_to_all<E: Element>(
        &self,
        neighbors: &[usize],
        input: &[E],
        output: &mut [E],
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).neighbor_all_to_all(moved::<E>(), neighbors, input, output)?;
        self.engine().run(request).await
    }

    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/neighbor_all_to_all_v.md")]
    pub async fn neighbor_all_to_all_v<E: Element>(
        &self,
        neighbors: &[usize],
        input: &[E],
        send_counts: &[usize],
        output: &mut [E],
        recv_counts: &[usize],
    ) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let (sends, expects) = ((input, send_counts), (output, recv_counts));
        let request =
            (self.place()).neighbor_all_to_all_v(moved::<E>(), neighbors, sends, expects)?;
        self.engine().run(request).await
    }
}

/// Multiplies all elements.
pub(super) fn scale<E: Element>(data: &mut [E], factor: E) -> Result<()> {
    let factors = [factor; 1024];
    for part in data.chunks_mut(factors.len()) {
        let factors = E::as_bytes(&factors[..part.len()]);
        let part = bytes_of(part);
        nexar_device::reduce::reduce(E::DATA_TYPE, ReduceOp::Product, part, factors).map_err(
            |error| nexar_core::Error::InvalidArgument {
                operation: "all_reduce_scaled",
                reason: error.to_string(),
            },
        )?;
    }
    Ok(())
}
