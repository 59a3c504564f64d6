//! Counter-based random numbers: element `i` of stream `key` depends on nothing else.

/// SplitMix64's finalizer (Steele, Lea & Flood 2014): a bijection that scrambles all bits.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the key of a stream, a separate one for each seed and name.
pub fn key(seed: u64, name: &str) -> u64 {
    name.bytes().fold(mix(seed ^ 0x9e37_79b9_7f4a_7c15), |h, byte| mix(h ^ u64::from(byte)))
}

/// Returns 64 random bits: element `index` of stream `key`.
pub fn bits(key: u64, index: u64) -> u64 {
    mix(key.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Returns a uniform number in [0, 1) with 24 bits: element `index` of stream `key`.
pub fn uniform(key: u64, index: u64) -> f32 {
    (bits(key, index) >> 40) as f32 / (1u32 << 24) as f32
}

/// Returns a standard normal number by Box and Muller (1958): element `index` of stream `key`.
pub fn normal(key: u64, index: u64) -> f32 {
    let word = bits(key, index);
    let unit = |part: u64| (part as f64 + 0.5) / 4_294_967_296.0;
    let (u, v) = (unit(word >> 32), unit(word & 0xffff_ffff));
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}

/// Returns a permutation of `0..n` by Fisher and Yates, determined by `key`.
pub(crate) fn permutation(key: u64, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        let j = ((u128::from(bits(key, i as u64)) * (i as u128 + 1)) >> 64) as usize;
        order.swap(i, j);
    }
    order
}

/// Splits `0..n` by chance: `share` of the indices, and the others.
pub(crate) fn split(n: usize, share: f64, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let mut first = permutation(key(seed, "split"), n);
    let cut = ((n as f64 * share).round() as usize).min(n);
    let second = first.split_off(cut);
    (first, second)
}

/// A permutation of `0..n` that is computed element by element, without a list: for `n` so large that one would
/// be a burden.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bijection {
    key: u64,
    n: u64,
    /// Half the bits of the domain, the smallest even power of two that has `n` elements.
    half: u32,
}

impl Bijection {
    pub(crate) fn new(key: u64, n: usize) -> Self {
        let bits = u64::BITS - (n as u64).saturating_sub(1).leading_zeros();
        Self { key, n: n as u64, half: bits.div_ceil(2).max(1) }
    }

    /// Returns element `i < n`. A Feistel network permutes the domain (Luby & Rackoff 1988); what falls outside
    /// of `0..n` is permuted again (Black & Rogaway 2002), less than four times on average.
    pub(crate) fn at(self, i: usize) -> usize {
        let mask = (1u64 << self.half) - 1;
        let mut x = i as u64;
        loop {
            let (mut left, mut right) = (x >> self.half, x & mask);
            for round in 0..4 {
                (left, right) = (right, left ^ (bits(self.key ^ (round << 56), right) & mask));
            }
            x = left << self.half | right;
            if x < self.n {
                return x as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bijections_hold_every_index_once() {
        for n in [1, 2, 5, 64, 1000, 4097] {
            let order = Bijection::new(3, n);
            let mut all: Vec<usize> = (0..n).map(|i| order.at(i)).collect();
            assert!(n < 5 || !all.is_sorted(), "{n}");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..n), "{n}");
        }
        let (a, b) = (Bijection::new(1, 1 << 40), Bijection::new(2, 1 << 40));
        assert!((0..100).any(|i| a.at(i) != b.at(i)));
        // The mean of uniform numbers in 0..2^40.
        let mean = (0..10_000).map(|i| a.at(i) as f64).sum::<f64>() / 10_000.0 / (1u64 << 40) as f64;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn moments_match_the_distributions() {
        let n = 100_000u64;
        let k = key(7, "fc1.weight");
        let mean = |f: &dyn Fn(u64) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
        assert!((mean(&|i| f64::from(uniform(k, i))) - 0.5).abs() < 5e-3);
        assert!(mean(&|i| f64::from(normal(k, i))).abs() < 1e-2);
        assert!((mean(&|i| f64::from(normal(k, i)).powi(2)) - 1.0).abs() < 2e-2);
        assert!((0..n).all(|i| (0.0..1.0).contains(&uniform(k, i)) && normal(k, i).is_finite()));
    }

    #[test]
    fn streams_differ_by_name_and_seed() {
        assert_ne!(key(1, "a"), key(1, "b"));
        assert_ne!(key(1, "a"), key(2, "a"));
        assert_ne!(bits(key(1, "a"), 0), bits(key(1, "a"), 1));
    }

    #[test]
    fn permutations_hold_every_index_once() {
        let mut order = permutation(3, 1000);
        assert_ne!(order[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
        assert!(permutation(3, 0).is_empty());
    }
}
