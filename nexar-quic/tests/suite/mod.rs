//! What every backend must do: the cases, which the test binaries of the backends share.

pub(crate) mod common;
mod conformance;
mod drive;
mod handshake;
mod site;
mod transport;
