//! Runs quinn's drivers.

mod runtime;
mod socket;

pub(crate) use runtime::Runtime;
pub(crate) use socket::Socket;
