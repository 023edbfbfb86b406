//! The lanes of a communicator: who reads the lasting ones, what waits to be written on them, and lanes
//! for single bodies.

mod breakage;
mod bulk;
mod hub;
mod out;

pub(crate) use breakage::Breakage;
pub(crate) use bulk::BulkLane;
pub(crate) use hub::{Hub, LaneWaker, Pump};
pub(crate) use out::{OutLane, OutQueue};
