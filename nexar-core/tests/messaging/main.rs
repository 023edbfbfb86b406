//! Point-to-point messages on the in-memory network.

mod basics;
mod cancel;
mod endings;
mod limits;
mod random;
mod world;
