//! How a group forms.
//!
//! Every process dials the seed and says who it is and where it can be reached; when all have come, the
//! seed hands out ranks and the table of members and is out of the picture. Then every rank dials the
//! ranks below its own and is dialled by those above, which gives one connection for each pair.
//!
//! The seed may be a rank of the group itself, on the same endpoint, or a process that only introduces the
//! others ([`serve_seed`]), such as a launcher.

mod dial;
mod listener;
mod seed;

pub use dial::{JoinRequest, SeedRoute, join};
pub use seed::{SeedSettings, serve_seed};

pub(crate) use listener::{Greeting, Listener};

use crate::{
    transport::{Connection, NewConnection, Transport},
    wire::join::Table,
};

/// The sending streams of a transport.
pub type SendOf<T> = <<T as Transport>::Connection as Connection>::SendStream;
/// The receiving streams of a transport.
pub type RecvOf<T> = <<T as Transport>::Connection as Connection>::RecvStream;

/// A connection to another rank, with its control stream.
pub(crate) struct Link<T: Transport> {
    pub(crate) new: NewConnection<T::Connection>,
    pub(crate) send: SendOf<T>,
    pub(crate) recv: RecvOf<T>,
}

/// A complete set of connections: one for each other rank.
pub(crate) struct Links<T: Transport> {
    pub(crate) table: Table,
    pub(crate) links: Vec<Option<Link<T>>>,
    pub(crate) listener: Listener<T>,
}
