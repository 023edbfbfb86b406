//! Numbers that stand for arguments which all ranks must give alike.

/// A number for a sequence of numbers, never 0. Different sequences have different numbers but for a chance of
/// 2^-64. It is the same on every platform, and part of the wire format.
pub(crate) fn digest(values: impl IntoIterator<Item = u64>) -> u64 {
    let mixed = values.into_iter().fold(SEED, |state, value| {
        mix(state.wrapping_add(STEP) ^ mix(value.wrapping_add(STEP)))
    });
    mixed.max(1)
}

/// A number for a name and further numbers.
pub(crate) fn digest_named(name: &str, values: impl IntoIterator<Item = u64>) -> u64 {
    let bytes = name.bytes().map(u64::from);
    digest([name.len() as u64].into_iter().chain(bytes).chain(values))
}

const SEED: u64 = 0x6e65_7861_7200_0001;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014: Fast Splittable Pseudorandom Number Generators).
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn order_length_and_value_count() {
        let sequences: [&[u64]; 8] = [
            &[],
            &[0],
            &[0, 0],
            &[1],
            &[1, 0],
            &[0, 1],
            &[1 << 63],
            &[u64::MAX],
        ];
        let numbers: HashSet<u64> = sequences
            .iter()
            .map(|values| digest(values.iter().copied()))
            .collect();
        assert_eq!(numbers.len(), sequences.len());
        assert_ne!(digest_named("ab", [1]), digest_named("a", [98, 1]));
    }

    #[test]
    fn the_numbers_stay() {
        assert_eq!(digest([1, 2, 3]), digest([1, 2, 3]));
        assert_eq!(digest([]), SEED);
    }
}
