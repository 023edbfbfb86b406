//! Medians, and ratios pair by pair.

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n.is_multiple_of(2) => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

/// How many times as long the peer takes: above 1, nexar is faster.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Ratio {
    /// The median of the pairs.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How many pairs there are.
    pub pairs: usize,
}

impl Ratio {
    /// Of the times of a peer and of nexar, taken in turn. Pairs with a failure do not count; `None` without a
    /// pair.
    pub(super) fn of(peer: &[Option<f64>], ours: &[Option<f64>]) -> Option<Self> {
        let pairs = peer.iter().zip(ours);
        let ratios: Vec<_> = pairs
            .filter_map(|(peer, ours)| Some((*peer)? / (*ours)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        Some(Ratio {
            median: median(&ratios)?,
            low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            high: ratios.iter().copied().fold(0.0, f64::max),
            pairs: ratios.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn ratios_are_pair_by_pair() {
        let ours = [Some(1.0), Some(2.0), Some(10.0), None, Some(0.0)];
        let peer = [Some(2.0), Some(2.0), Some(50.0), Some(9.0), Some(9.0)];
        let ratio = Ratio::of(&peer, &ours).unwrap();
        let expected = Ratio {
            median: 2.0,
            low: 1.0,
            high: 5.0,
            pairs: 3,
        };
        assert_eq!(ratio, expected);
        assert_eq!(Ratio::of(&peer[..0], &ours), None);
        assert_eq!(Ratio::of(&[None], &ours), None);
    }
}
