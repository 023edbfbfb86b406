//! Sets of bytes.

use std::ops::Range;

/// A set of bytes as ranges, in order, neither overlapping nor adjoining. Nearly always there is one at most.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<usize>>);

impl Ranges {
    pub(super) fn insert(&mut self, mut range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let from = self.0.partition_point(|other| other.end < range.start);
        let to = self.0.partition_point(|other| other.start <= range.end);
        if let Some(touched) = self.0.get(from..to)
            && let (Some(first), Some(last)) = (touched.first(), touched.last())
        {
            range = range.start.min(first.start)..range.end.max(last.end);
        }
        self.0.splice(from..to, [range]);
    }

    pub(super) fn contains(&self, range: &Range<usize>) -> bool {
        let holds = |own: &Range<usize>| own.start <= range.start && range.end <= own.end;
        self.0.iter().any(holds)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a range out.
    pub(super) fn pop(&mut self) -> Option<Range<usize>> {
        self.0.pop()
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_become_one() {
        let mut ranges = Ranges::default();
        for (range, expected) in [
            (4..6, vec![4..6]),
            (10..12, vec![4..6, 10..12]),
            (0..2, vec![0..2, 4..6, 10..12]),
            (2..3, vec![0..3, 4..6, 10..12]),
            (7..7, vec![0..3, 4..6, 10..12]),
            (5..11, vec![0..3, 4..12]),
            (3..4, vec![0..12]),
            (5..6, vec![0..12]),
            (20..21, vec![0..12, 20..21]),
            (0..30, vec![0..30]),
        ] {
            ranges.insert(range);
            assert_eq!(ranges.0, expected);
        }
        assert!(ranges.contains(&(0..30)) && ranges.contains(&(7..9)));
        assert!(!ranges.contains(&(29..31)));
        assert_eq!((ranges.pop(), ranges.pop()), (Some(0..30), None));
    }
}
