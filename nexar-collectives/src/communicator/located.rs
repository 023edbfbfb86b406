//! Minimum and maximum with the place where it is found.

use super::{Communicator, requests::Output};
use crate::{
    digest::digest_named,
    engine::{Elements, Request},
    location::{LOCATED, combine, pack, unpack},
};
use nexar_core::{DataType, Element, Error, Result, transport::Transport};
use nexar_device::DeviceAdapter;

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    /// Replaces each of `values` on every rank by the smallest of the ranks' values at that place, and the location
    /// beside it by that of the rank which had it: `locations` may hold ranks, indices, or whatever numbers say
    /// where a value comes from. Of equal values the lowest location wins; NaN wins over every number. The length
    /// is the same on all ranks.
    ///
    /// This is MPI's `MPI_MINLOC`. Cost: an all-reduce of elements of 16 bytes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> nexar_collectives::Result<()> {
    /// let comm = &nexar_collectives::Communicator::local(1).await?[0];
    /// let (mut losses, mut ranks) = ([0.5_f32, 0.25], [comm.rank() as u64; 2]);
    /// comm.all_reduce_min_location(&mut losses, &mut ranks).await?;
    /// assert_eq!((losses, ranks), ([0.5, 0.25], [0, 0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the lengths differ; [`Error::Operation`].
    ///
    /// # Cancel safety
    ///
    /// As for all collectives, but that the buffers stay as they are.
    pub async fn all_reduce_min_location<E: Element>(
        &self,
        values: &mut [E],
        locations: &mut [u64],
    ) -> Result<()> {
        self.all_reduce_location(values, locations, false).await
    }

    /// Like [`all_reduce_min_location`](Self::all_reduce_min_location), with the largest value: MPI's `MPI_MAXLOC`.
    ///
    /// # Errors
    ///
    /// As [`all_reduce_min_location`](Self::all_reduce_min_location).
    ///
    /// # Cancel safety
    ///
    /// That of [`all_reduce_min_location`](Self::all_reduce_min_location).
    pub async fn all_reduce_max_location<E: Element>(
        &self,
        values: &mut [E],
        locations: &mut [u64],
    ) -> Result<()> {
        self.all_reduce_location(values, locations, true).await
    }

    async fn all_reduce_location<E: Element>(
        &self,
        values: &mut [E],
        locations: &mut [u64],
        want_max: bool,
    ) -> Result<()> {
        let name = match want_max {
            false => "all_reduce_min_location",
            true => "all_reduce_max_location",
        };
        if values.len() != locations.len() {
            let (values, locations) = (values.len(), locations.len());
            let reason = format!("there are {values} values, but {locations} locations");
            return Err(Error::InvalidArgument {
                operation: name,
                reason,
            });
        }
        let pairs = values.iter().zip(&*locations);
        let mut located: Vec<[u8; LOCATED]> = pairs
            .map(|(value, location)| pack(*value, *location))
            .collect();
        let combine = move |acc: &mut [u8], incoming: &[u8], _| {
            combine_all(E::DATA_TYPE, want_max, acc, incoming);
        };
        let elements = Elements::Custom {
            size: LOCATED,
            ordered: false,
            combine: &combine,
        };
        let len = located.len();
        let bytes = located.as_flattened_mut();
        let request = self.place().all_reduce(elements, Output { bytes, len });
        let digest = digest_named(name, [E::DATA_TYPE as u64]);
        self.engine().run(Request { digest, ..request }).await?;
        for ((value, location), found) in values.iter_mut().zip(locations).zip(&located) {
            *location = unpack(found, value);
        }
        Ok(())
    }
}

fn combine_all(dtype: DataType, want_max: bool, acc: &mut [u8], incoming: &[u8]) {
    let (acc, _) = acc.as_chunks_mut::<LOCATED>();
    let (incoming, _) = incoming.as_chunks::<LOCATED>();
    for (acc, incoming) in acc.iter_mut().zip(incoming) {
        *acc = combine(dtype, want_max, acc, incoming);
    }
}
