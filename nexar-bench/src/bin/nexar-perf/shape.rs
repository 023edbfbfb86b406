//! What a size means for each collective, as in nccl-tests.

use crate::args::Kind;
use std::time::Duration;

/// A size, translated to elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    kind: Kind,
    world_size: usize,
    element: usize,
    /// Elements; of one rank's block where there are blocks.
    pub(crate) count: usize,
}

impl Shape {
    /// The largest shape of at most `bytes`.
    pub(crate) fn new(kind: Kind, bytes: usize, element: usize, world_size: usize) -> Self {
        let elements = bytes / element;
        let count = match kind {
            Kind::AllReduce | Kind::Broadcast => elements,
            Kind::AllGather | Kind::ReduceScatter => elements / world_size,
            Kind::Barrier => 0,
        };
        Shape {
            kind,
            world_size,
            element,
            count,
        }
    }

    /// Elements that a rank puts in.
    pub(crate) fn input(&self) -> usize {
        match self.kind {
            Kind::ReduceScatter => self.count * self.world_size,
            _ => self.count,
        }
    }

    /// Elements that a rank gets out.
    pub(crate) fn output(&self) -> usize {
        match self.kind {
            Kind::AllGather => self.count * self.world_size,
            _ => self.count,
        }
    }

    /// Bytes of the larger buffer.
    pub(crate) fn bytes(&self) -> usize {
        self.input().max(self.output()) * self.element
    }

    /// Size / time, in GB/s.
    pub(crate) fn algorithm_bandwidth(&self, time: Duration) -> f64 {
        match time.as_secs_f64() {
            seconds if seconds > 0.0 => self.bytes() as f64 / seconds / 1e9,
            _ => 0.0,
        }
    }

    /// What to multiply the algorithm bandwidth with to get the bandwidth of the links.
    pub(crate) fn bus_factor(&self) -> f64 {
        let n = self.world_size as f64;
        match self.kind {
            Kind::AllReduce => 2.0 * (n - 1.0) / n,
            Kind::AllGather | Kind::ReduceScatter => (n - 1.0) / n,
            Kind::Broadcast => 1.0,
            Kind::Barrier => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down_to_whole_blocks() {
        let shape = Shape::new(Kind::AllReduce, 13, 4, 5);
        assert_eq!((shape.count, shape.bytes()), (3, 12));
        let shape = Shape::new(Kind::AllGather, 100, 4, 3);
        assert_eq!((shape.count, shape.bytes(), shape.output()), (8, 96, 24));
        let shape = Shape::new(Kind::ReduceScatter, 1000, 8, 5);
        assert_eq!((shape.count, shape.bytes(), shape.input()), (25, 1000, 125));
        let shape = Shape::new(Kind::AllGather, 8, 4, 4);
        assert_eq!((shape.count, shape.bytes()), (0, 0));
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let time = Duration::from_millis(2);
        let shape = |kind| Shape::new(kind, 4_000_000, 4, 4);
        let algorithm = shape(Kind::AllReduce).algorithm_bandwidth(time);
        assert!((algorithm - 2.0).abs() < 1e-9);
        assert_eq!(shape(Kind::AllReduce).bus_factor(), 1.5);
        assert_eq!(shape(Kind::AllGather).bus_factor(), 0.75);
        assert_eq!(shape(Kind::ReduceScatter).bus_factor(), 0.75);
        assert_eq!(shape(Kind::Broadcast).bus_factor(), 1.0);
        assert_eq!(shape(Kind::Barrier).algorithm_bandwidth(time), 0.0);
    }
}
