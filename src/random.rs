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

#[cfg(test)]
mod tests {
    use super::*;

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
