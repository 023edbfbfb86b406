//! Time limits.

use crate::ConfigError;
use std::time::Duration;

/// The time limits of a group. All ranks should use the same.
///
/// ```
/// use nexar_core::TimeLimits;
/// use std::time::Duration;
/// let limits = TimeLimits::default().with_operation(Duration::from_secs(60));
/// assert_eq!(limits.detection, Duration::from_secs(4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeLimits {
    /// How long to wait for all ranks to join. Default: 60 s.
    pub join: Duration,
    /// How long an operation may take in all, the wait for late ranks included. Default: 300 s.
    /// Shorter finds a stuck rank sooner; longer forgives long computations and slow links.
    pub operation: Duration,
    /// A rank of which nothing was heard for so long is declared lost. Default: 4 s, so that an
    /// operation on a dead peer fails within 5 s. Ranks send a heartbeat four times in that span; shorter finds
    /// a dead rank sooner but may take a stalled machine or link for a dead one.
    pub detection: Duration,
    /// How long a clean leave waits for the others' confirmation. Default: 10 s.
    pub leave: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        TimeLimits {
            join: Duration::from_secs(60),
            operation: Duration::from_secs(300),
            detection: Duration::from_secs(4),
            leave: Duration::from_secs(10),
        }
    }
}

impl TimeLimits {
    /// Shortest detection time: below it, scheduling delays look like dead ranks.
    pub const MIN_DETECTION: Duration = Duration::from_millis(200);

    /// With another limit for joining.
    pub fn with_join(mut self, limit: Duration) -> Self {
        self.join = limit;
        self
    }

    /// With another limit for operations.
    pub fn with_operation(mut self, limit: Duration) -> Self {
        self.operation = limit;
        self
    }

    /// With another detection time.
    pub fn with_detection(mut self, limit: Duration) -> Self {
        self.detection = limit;
        self
    }

    /// With another limit for leaving.
    pub fn with_leave(mut self, limit: Duration) -> Self {
        self.leave = limit;
        self
    }

    /// An error where a limit makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.detection < Self::MIN_DETECTION {
            return Err(ConfigError::new(
                "detection time",
                format!(
                    "{:?} is below the minimum of {:?}",
                    self.detection,
                    Self::MIN_DETECTION
                ),
            ));
        }
        for (name, limit) in [("join", self.join), ("operation", self.operation)] {
            if limit.is_zero() {
                return Err(ConfigError::new(
                    format!("{name} time limit"),
                    "it cannot be 0",
                ));
            }
        }
        Ok(())
    }
}
