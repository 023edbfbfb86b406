//! Numbers that every rank computes alike, on every platform and in every release.

/// The increment of SplitMix64.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64.
pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One number for several.
pub(super) fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    let fold = |state: u64, word| mix(state.wrapping_add(GAMMA) ^ mix(word));
    words.into_iter().fold(0, fold)
}

/// One number for a text.
pub(super) fn digest_of_text(text: &str) -> u64 {
    digest(text.bytes().map(u64::from))
}

/// SplitMix64: G. L. Steele Jr., D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA
/// 2014). Written out here because both ends of a connection must draw the same numbers, whatever they were built
/// with.
#[derive(Debug, Clone)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number below `bound`. Off from uniform by less than `bound / 2^64`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut generator = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| generator.next()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, published);
    }

    #[test]
    fn digests_tell_values_and_their_order_apart() {
        let digests = [
            digest([]),
            digest([0]),
            digest([0, 0]),
            digest([1, 0]),
            digest([0, 1]),
            digest_of_text("ab"),
            digest_of_text("ba"),
        ];
        for (i, first) in digests.iter().enumerate() {
            assert!(digests[..i].iter().all(|second| second != first));
        }
    }
}
