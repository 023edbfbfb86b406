//! The collectives on slices.

use super::{
    Communicator,
    requests::{Input, Output, moved, reduced},
};
use nexar_core::{Element, ReduceOp, Result, transport::Transport};
use nexar_device::DeviceAdapter;

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// Waits until all ranks have called it.
    ///
    /// Cost: ⌈log₂ n⌉ rounds of one small message (dissemination).
    ///
    /// # Errors
    ///
    /// [`Error::Operation`](crate::Error::Operation).
    pub async fn barrier(&self) -> Result<()> {
        self.engine().run(self.place().barrier()).await
    }

    /// Replaces `data` on every rank by that of `root`. The length is the same on all ranks.
    ///
    /// The root returns once all ranks that it sends to have entered the call, not when they have the data.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there is no rank `root`;
    /// [`Error::Operation`](crate::Error::Operation).
    pub async fn broadcast<E: Element>(&self, data: &mut [E], root: usize) -> Result<()> {
        let request = (self.place()).broadcast(moved::<E>(), Output::of(data), root)?;
        self.engine().run(request).await
    }

    /// Replaces `data` on `root` by the element-wise reduction of all ranks' data. The data of the other ranks
    /// stays as it is. The length is the same on all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if `op` is not defined for `E`;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there is no rank `root`;
    /// [`Error::Operation`](crate::Error::Operation).
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

    /// Fills `output` on `root` with the element-wise reduction of all ranks' `input`. On the other ranks
    /// `output` stays as it is and may be empty.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce); also if the lengths differ on the root.
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

    /// Replaces `data` on every rank by the element-wise reduction of all ranks' data. The length is the
    /// same on all ranks. Every rank gets the same bits.
    ///
    /// Cost: about `2 (n-1)/n` times the data sent by each rank; ⌈log₂ n⌉ rounds if it is small.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if `op` is not defined for `E`;
    /// [`Error::Operation`](crate::Error::Operation).
    pub async fn all_reduce<E: Element>(&self, data: &mut [E], op: ReduceOp) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = self.place().all_reduce(elements, Output::of(data));
        self.engine().run(request).await
    }

    /// Fills `output` on every rank with the element-wise reduction of all ranks' `input`. All lengths are the
    /// same.
    ///
    /// # Errors
    ///
    /// As [`all_reduce`](Self::all_reduce), and [`Error::InvalidArgument`](crate::Error::InvalidArgument) if
    /// the lengths differ.
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

    /// All-reduce with the sum, in which each rank's data counts `factor` times; the ranks may have different
    /// factors. The products are rounded to `E` before they are added; those of integers wrap.
    ///
    /// # Errors
    ///
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Cancel safety
    ///
    /// As for all collectives; `data` may also have been multiplied and no more.
    pub async fn all_reduce_scaled<E: Element>(&self, data: &mut [E], factor: E) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, ReduceOp::Sum)?;
        scale(data, factor)?;
        let request = self.place().all_reduce(elements, Output::of(data));
        self.engine().run(request).await
    }

    /// Replaces `data` on rank r by the element-wise reduction of the data of ranks 0 to r. The length is the
    /// same on all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if `op` is not defined for `E`;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for [`ReduceOp::Average`];
    /// [`Error::Operation`](crate::Error::Operation).
    pub async fn scan<E: Element>(&self, data: &mut [E], op: ReduceOp) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = (self.place()).scan(elements, Output::of(data), false)?;
        self.engine().run(request).await
    }

    /// Fills `output` on rank r with the element-wise reduction of the `input` of ranks 0 to r.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan); also if the lengths differ.
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

    /// Replaces `data` on rank r by the element-wise reduction of the data of ranks 0 to r - 1. On rank 0 it
    /// stays as it is.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    pub async fn exclusive_scan<E: Element>(&self, data: &mut [E], op: ReduceOp) -> Result<()> {
        let elements = reduced(E::DATA_TYPE, op)?;
        let request = (self.place()).scan(elements, Output::of(data), true)?;
        self.engine().run(request).await
    }

    /// Fills `output` on rank r with the element-wise reduction of the `input` of ranks 0 to r - 1. On rank 0
    /// it stays as it is, so that it can be given the value that suits the reduction before, such as 0.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan); also if the lengths differ.
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

    /// Fills `output` with the `input` of all ranks, in the order of the ranks. `input` has the same length on all
    /// ranks, and `output` is world size times as long.
    ///
    /// Cost: each rank sends its input to all others.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the lengths do not fit;
    /// [`Error::Operation`](crate::Error::Operation).
    pub async fn all_gather<E: Element>(&self, input: &[E], output: &mut [E]) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).all_gather(moved::<E>(), input, output)?;
        self.engine().run(request).await
    }

    /// All-gather in which each rank's block is already in its place in `data`, which consists of one block for
    /// each rank.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
    pub async fn all_gather_in_place<E: Element>(&self, data: &mut [E]) -> Result<()> {
        let request = (self.place()).all_gather_in_place(moved::<E>(), Output::of(data))?;
        self.engine().run(request).await
    }

    /// All-gather of blocks of different lengths: `counts` has the length of each rank's `input`, and is the same
    /// on all ranks. `output` has as many elements as they are together.
    ///
    /// # Errors
    ///
    /// As [`all_gather`](Self::all_gather).
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

    /// Fills `output` on `root` with the `input` of all ranks, in the order of the ranks. On the other ranks
    /// `output` stays as it is and may be empty. `input` has the same length on all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there is no rank `root`, or the lengths do
    /// not fit there; [`Error::Operation`](crate::Error::Operation).
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

    /// Gather of blocks of different lengths: `counts` has the length of each rank's `input`. `output` and
    /// `counts` matter on the root only.
    ///
    /// # Errors
    ///
    /// As [`gather`](Self::gather). A rank whose input has another length than the root expects is a mismatch.
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

    /// Fills the `output` of rank r with the r-th block of the `input` of `root`. On the other ranks `input`
    /// does not matter and may be empty. `output` has the same length on all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there is no rank `root`, or the lengths do
    /// not fit there; [`Error::Operation`](crate::Error::Operation).
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

    /// Scatter of blocks of different lengths: `counts` has the length of each rank's `output`. `input` and
    /// `counts` matter on the root only.
    ///
    /// # Errors
    ///
    /// As [`scatter`](Self::scatter). A rank whose output has another length than the root sends is a mismatch.
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

    /// Reduces the `input` of all ranks element by element and fills `output` with this rank's block of the
    /// result: rank r gets the r-th. `input` is world size times as long as `output` and stays
    /// unchanged.
    ///
    /// Cost: about `(n-1)/n` times the input sent by each rank.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the lengths do not fit;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if `op` is not defined for `E`;
    /// [`Error::Operation`](crate::Error::Operation).
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

    /// Reduce-scatter in which each rank's result replaces its own block of `data`. The other blocks have
    /// unspecified values afterwards.
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

    /// Reduce-scatter with blocks of different lengths: `counts` has the length of each rank's `output`, and is
    /// the same on all ranks. `input` has as many elements as they are together.
    ///
    /// # Errors
    ///
    /// As [`reduce_scatter`](Self::reduce_scatter).
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

    /// Sends the j-th block of `input` to rank j, and fills the i-th block of `output` with what rank i sends
    /// here. Both consist of one block for each rank, all of the same length.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the lengths do not fit;
    /// [`Error::Operation`](crate::Error::Operation).
    pub async fn all_to_all<E: Element>(&self, input: &[E], output: &mut [E]) -> Result<()> {
        let (input, output) = (Input::of(input), Output::of(output));
        let request = (self.place()).all_to_all(moved::<E>(), input, output)?;
        self.engine().run(request).await
    }

    /// All-to-all in which what comes from rank i replaces what goes to it.
    ///
    /// # Errors
    ///
    /// As [`all_to_all`](Self::all_to_all).
    pub async fn all_to_all_in_place<E: Element>(&self, data: &mut [E]) -> Result<()> {
        let request = (self.place()).all_to_all_in_place(moved::<E>(), Output::of(data))?;
        self.engine().run(request).await
    }

    /// All-to-all with blocks of different lengths: `send_counts` has the lengths of the blocks of `input`, and
    /// `recv_counts` those of `output`.
    ///
    /// # Errors
    ///
    /// As [`all_to_all`](Self::all_to_all). Two ranks of which one sends another number than the other expects
    /// are a mismatch.
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

    /// Exchanges a block with each of `neighbors`: the i-th block of `input` goes to the i-th of them, and the
    /// i-th block of `output` comes from there. All blocks have the same length.
    ///
    /// Every rank makes the call, with a list of its own, which may be empty. If a rank lists another, that
    /// lists it, too. A rank may list itself, and another several times: what it sends first there is what the
    /// other receives first from it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rank that does not exist, or lengths that
    /// do not fit; [`Error::Operation`](crate::Error::Operation), with a mismatch where only one of two ranks
    /// lists the other or their lengths differ.
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

    /// Neighbour exchange with blocks of different lengths: `send_counts` has the lengths of the blocks of
    /// `input`, and `recv_counts` those of `output`, in the order of `neighbors`. A rank that is listed several
    /// times has the same counts each time.
    ///
    /// # Errors
    ///
    /// As [`neighbor_all_to_all`](Self::neighbor_all_to_all).
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
fn scale<E: Element>(data: &mut [E], factor: E) -> Result<()> {
    let factors = [factor; 1024];
    for part in data.chunks_mut(factors.len()) {
        let factors = E::as_bytes(&factors[..part.len()]);
        let part = Output::of(part).bytes;
        nexar_device::reduce::reduce(E::DATA_TYPE, ReduceOp::Product, part, factors).map_err(
            |error| nexar_core::Error::InvalidArgument {
                operation: "all_reduce_scaled",
                reason: error.to_string(),
            },
        )?;
    }
    Ok(())
}
