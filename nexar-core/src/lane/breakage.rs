//! A member whose stream broke.

use crate::{mesh::VERDICT_LIMIT, transport::StreamError};
use tokio::time::Instant;

/// The first stream of a member that broke, and when. The control stream is to say why; if it does not, the member
/// is lost.
#[derive(Debug, Default)]
pub(crate) struct Breakage(Option<(String, Instant)>);

impl Breakage {
    /// A stream broke.
    pub(crate) fn note(&mut self, error: &StreamError) {
        self.0
            .get_or_insert_with(|| (error.to_string(), Instant::now()));
    }

    /// What broke, where the control stream has had its time to say why.
    pub(crate) fn for_good(&self, now: Instant) -> Option<&str> {
        let (error, since) = self.0.as_ref()?;
        (now.saturating_duration_since(*since) >= VERDICT_LIMIT).then_some(error)
    }
}
