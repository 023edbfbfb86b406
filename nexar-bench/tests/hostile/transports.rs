//! Which transports the ranks of a case use.

use nexar_quic::Backend;

/// The transports of a group: one, or two that the ranks use in turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix(&'static [Backend]);

pub(crate) const QUINN: Mix = Mix(&[Backend::Quinn]);
pub(crate) const S2N_QUIC: Mix = Mix(&[Backend::S2nQuic]);
pub(crate) const MIXED: Mix = Mix(&[Backend::Quinn, Backend::S2nQuic]);

impl Mix {
    pub(crate) fn of(self, rank: usize) -> Backend {
        self.0[rank % self.0.len()]
    }

    /// Runs a case unless one of the transports is missing.
    pub(crate) fn run(self, case: fn(Mix)) {
        match self.0.iter().find(|backend| !backend.is_available()) {
            Some(missing) => crate::skip(&format!("{missing} is not part of this build")),
            None => case(self),
        }
    }
}

/// Makes tests of functions that take a [`Mix`]: one for each transport, and one for both together.
macro_rules! on_each_transport {
    ($($case:ident),+ $(,)?) => {$(
        mod $case {
            #[test]
            fn quinn() {
                crate::transports::QUINN.run(super::$case);
            }

            #[test]
            fn s2n_quic() {
                crate::transports::S2N_QUIC.run(super::$case);
            }

            #[test]
            fn mixed() {
                crate::transports::MIXED.run(super::$case);
            }
        }
    )+};
}
