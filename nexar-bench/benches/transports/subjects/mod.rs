//! The subjects, a file each.

mod messenger;
mod nexar;
#[cfg(feature = "quinn")]
mod quinn;
#[cfg(feature = "s2n-quic")]
mod s2n_quic;
mod tcp;
mod tls;

pub(crate) use nexar::bind;

use crate::subject::AnySubject;
use nexar_quic::Backend;

/// The transports of nexar in this build.
pub(crate) fn backends() -> impl Iterator<Item = Backend> {
    [Backend::Quinn, Backend::S2nQuic]
        .into_iter()
        .filter(|backend| backend.is_available())
}

/// Everything that is compared, in the order of measuring: what is compared with one another comes close
/// together.
pub(crate) fn all() -> Vec<Box<dyn AnySubject>> {
    let mut all: Vec<Box<dyn AnySubject>> = vec![Box::new(tcp::Tcp), Box::new(tls::Tls)];
    for backend in backends() {
        all.push(Box::new(nexar::Nexar(backend)));
        all.push(Box::new(messenger::Messages(backend)));
    }
    #[cfg(feature = "quinn")]
    all.push(Box::new(quinn::Quinn));
    #[cfg(feature = "s2n-quic")]
    all.push(Box::new(s2n_quic::S2nQuic));
    all
}
