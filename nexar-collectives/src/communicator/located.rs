//! Minimum and maximum with the place where it is found.

use super::{
    Communicator,
    requests::{Output, invalid},
};
use crate::{
    digest::digest,
    engine::{Elements, Engine, Request, Turn},
    location::{LOCATED, combine, pack, unpack},
};
use nexar_core::{Collective, DataType, Element, Result, transport::Transport};
use nexar_device::DeviceAdapter;

impl<T: Transport, D: DeviceAdapter> Communicator<T, D> {
    #[doc = include_str!("../../docs/links.txt")]
    #[doc = include_str!("../../docs/all_reduce_location.md")]
    pub async fn all_reduce_min_location<E: Element>(
        &self,
        values: &mut [E],
        locations: &mut [u64],
    ) -> Result<()> {
        self.all_reduce_location(values, locations, false).await
    }

    /// Replaces each of `values` on every rank by the largest that a rank has at that place, and the location beside it by
    /// that of the same rank.
    ///
    /// Otherwise as [`all_reduce_min_location`](Self::all_reduce_min_location), which has an example.
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
        let mut turn = self.engine().turn().await;
        all_reduce_location(self.engine(), &mut turn, values, locations, want_max).await
    }
}

/// The call of which it is a part.
pub(super) const fn location_kind(want_max: bool) -> Collective {
    match want_max {
        false => Collective::AllReduceMinLocation,
        true => Collective::AllReduceMaxLocation,
    }
}

/// Checks that every value has a location.
pub(super) fn check_pairs(collective: Collective, values: usize, locations: usize) -> Result<()> {
    if values == locations {
        return Ok(());
    }
    let reason = format!("there are {values} values, but {locations} locations");
    Err(invalid(collective, reason))
}

pub(super) async fn all_reduce_location<T: Transport, E: Element>(
    engine: &Engine<T>,
    turn: &mut Turn<T>,
    values: &mut [E],
    locations: &mut [u64],
    want_max: bool,
) -> Result<()> {
    let collective = location_kind(want_max);
    check_pairs(collective, values.len(), locations.len())?;
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
    let request = engine
        .place()
        .all_reduce(elements, Output::host(bytes, len));
    let request = Request {
        collective,
        digest: digest([E::DATA_TYPE as u64]),
        ..request
    };
    engine.run_in(turn, request).await?;
    for ((value, location), found) in values.iter_mut().zip(locations).zip(&located) {
        *location = unpack(found, value);
    }
    Ok(())
}

fn combine_all(dtype: DataType, want_max: bool, acc: &mut [u8], incoming: &[u8]) {
    let (acc, _) = acc.as_chunks_mut::<LOCATED>();
    let (incoming, _) = incoming.as_chunks::<LOCATED>();
    for (acc, incoming) in acc.iter_mut().zip(incoming) {
        *acc = combine(dtype, want_max, acc, incoming);
    }
}
