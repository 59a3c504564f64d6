//! Elements of 4 and 8 bits on the host, in the blocks that a device has: the codes of 128 elements, and a word with the scales of
//! its two groups of 64, as bf16. An element is its code's level times its group's scale. Of activations there is a word for each
//! group, with the least number in the lower half and the scale, a step, in the upper one; elements are the sum.

use half::bf16;

use super::DType;

/// Elements of a block.
pub(crate) const BLOCK: u64 = 128;
/// Elements with a scale of their own.
const GROUP: usize = 64;

/// Levels of NF4 (Dettmers et al. 2023): quantiles of the normal distribution, with 0, as bitsandbytes has them.
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

impl DType {
    /// Elements that share a scale.
    pub(crate) const GROUP: usize = GROUP;

    /// Returns the words of a block: those of its codes, and one of scales, or one of each group's least number and step; `None` for types
    /// without blocks.
    pub(crate) const fn block_words(self) -> Option<u64> {
        let codes = BLOCK * self.code_bits() as u64 / 32;
        match self {
            Self::Int8 | Self::Int4 | Self::Nf4 => Some(codes + 1),
            Self::Uint8 | Self::Uint4 => Some(codes + 2),
            Self::F32 | Self::U32 | Self::F16 | Self::BF16 => None,
        }
    }

    /// Bits of a code.
    const fn code_bits(self) -> usize {
        if matches!(self, Self::Int8 | Self::Uint8) { 8 } else { 4 }
    }

    /// Elements as blocks, the first of a word in its lowest bits. Each element gets the nearest level. A group with NaN is all
    /// NaN.
    pub(super) fn pack_blocks(self, elements: &[f32]) -> Vec<u32> {
        let bits = self.code_bits();
        let mut words = Vec::new();
        for block in elements.chunks(BLOCK as usize) {
            let start = words.len();
            words.resize(start + self.block_words().unwrap_or(0) as usize, 0);
            for (g, group) in block.chunks(GROUP).enumerate() {
                let [least, scale] = self.terms(group);
                let (at, shift) = self.term_at(g);
                words[start + at] |= (scale.to_bits() >> 16) << shift | least.to_bits() >> 16;
                for (i, x) in group.iter().enumerate() {
                    let at = (g * GROUP + i) * bits;
                    words[start + at / 32] |= self.code((x - least) / scale) << (at % 32);
                }
            }
        }
        words
    }

    /// The `n` elements of blocks.
    pub(super) fn unpack_blocks(self, words: &[u32], n: usize) -> Vec<f32> {
        let bits = self.code_bits();
        let size = self.block_words().unwrap_or(1) as usize;
        let element = |i: usize| {
            let block = &words[i / BLOCK as usize * size..][..size];
            let within = i % BLOCK as usize;
            let code = block[within * bits / 32] >> (within * bits % 32) & ((1 << bits) - 1);
            let (at, shift) = self.term_at(within / GROUP);
            let scale = f32::from_bits(block[at] >> shift << 16);
            let least = if self.is_affine() { f32::from_bits(block[at] << 16) } else { 0.0 };
            least + self.level(code) * scale
        };
        (0..n).map(element).collect()
    }

    /// What elements become that are rounded stochastically to [`DType::Uint8`] or [`DType::Uint4`] and decoded again; `draw` returns
    /// 32 random bits for an element. A group with NaN or infinity is all NaN.
    pub(crate) fn stochastic(self, elements: &[f32], draw: impl Fn(usize) -> u32) -> Vec<f32> {
        let mut decoded = Vec::with_capacity(elements.len());
        for group in elements.chunks(GROUP) {
            let [least, step] = self.terms(group);
            for x in group {
                let up = (draw(decoded.len()) >> 8) as f32 / (1 << 24) as f32;
                let level = ((x - least) / step + up).floor().clamp(0.0, self.outermost());
                decoded.push(least + if step == 0.0 { 0.0 } else { level * step });
            }
        }
        decoded
    }

    /// The word of a block, and the bits of it, with the scale of group `g`; a least number is in the lower half of its word.
    const fn term_at(self, g: usize) -> (usize, usize) {
        let codes = BLOCK as usize * self.code_bits() / 32;
        if self.is_affine() { (codes + g, 16) } else { (codes, 16 * g) }
    }

    /// The number of a group to which multiples of its scale are added, and the scale, as bf16. The least number is rounded down and
    /// its step up, so that all elements lie between the levels. Else the largest element gets the outermost level, so that
    /// levels are packed into the same codes again.
    fn terms(self, group: &[f32]) -> [f32; 2] {
        let most = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        if group.iter().any(|x| x.is_nan()) || self.is_affine() && most == f32::INFINITY {
            return [0.0, f32::NAN];
        }
        if !self.is_affine() {
            return [0.0, bf16::from_f32(most / self.outermost()).to_f32().min(bf16::MAX.to_f32())];
        }
        // Away from 0 if `up`, else towards it.
        let cut = |x: f32, up: bool| {
            let magnitude = (x.abs().to_bits() + if up { 0xffff } else { 0 }).min(0x7f7f_ffff) & 0xffff_0000;
            f32::from_bits(magnitude).copysign(x)
        };
        let [low, high] = [f32::min, f32::max].map(|of| group.iter().copied().reduce(of).unwrap_or(0.0));
        let least = cut(low, low < 0.0);
        let step = cut((high / self.outermost() - least / self.outermost()).max(0.0), true);
        [least, if step < f32::MIN_POSITIVE { 0.0 } else { step }]
    }

    /// The largest level.
    fn outermost(self) -> f32 {
        match self {
            Self::Int8 => 127.0,
            Self::Int4 => 7.0,
            Self::Uint8 => 255.0,
            Self::Uint4 => 15.0,
            _ => 1.0,
        }
    }

    fn level(self, code: u32) -> f32 {
        match self {
            Self::Int8 => code as f32 - 128.0,
            Self::Int4 => code as f32 - 8.0,
            Self::Uint8 | Self::Uint4 => code as f32,
            _ => NF4[code as usize],
        }
    }

    /// The code of the level nearest to `x`; that of 0 for NaN, which the scale has.
    fn code(self, x: f32) -> u32 {
        match self {
            Self::Int8 => (x.round_ties_even().clamp(-127.0, 127.0) as i32 + 128) as u32,
            Self::Int4 => (x.round_ties_even().clamp(-7.0, 7.0) as i32 + 8) as u32,
            Self::Uint8 | Self::Uint4 => x.round_ties_even().clamp(0.0, self.outermost()) as u32,
            _ if x.is_nan() => 7,
            _ => NF4.windows(2).filter(|pair| x > (pair[0] + pair[1]) / 2.0).count() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [DType; 3] = [DType::Int8, DType::Int4, DType::Nf4];
    const AFFINE: [DType; 2] = [DType::Uint8, DType::Uint4];

    #[test]
    fn elements_come_back_within_half_a_level() {
        // Groups of other sizes, one of zeros, and a last block that is not full.
        let element = |i: usize| match i / GROUP {
            1 => 0.0,
            group => (i as f32 * 0.7).sin() * 10f32.powi(group as i32 - 3),
        };
        let elements: Vec<f32> = (0..300).map(element).collect();
        for (dtype, step) in ALL.into_iter().zip([0.5 / 127.0, 0.5 / 7.0, 0.152]) {
            let words = dtype.pack(&elements);
            assert_eq!(words.len() as u64 * 4, dtype.bytes(300), "{dtype}");
            let back = dtype.unpack(&words, 300);
            for (i, (x, y)) in elements.iter().zip(&back).enumerate() {
                let group = &elements[i / GROUP * GROUP..300.min(i / GROUP * GROUP + GROUP)];
                let most = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                assert!((x - y).abs() <= most * step * 1.02, "{dtype} {i}: {x} and {y}, most {most}");
            }
            // Levels times scales come back as they are: parameters may be read and set again.
            assert_eq!(dtype.pack(&back), words, "{dtype}");
        }
    }

    /// The error of a step is bounded by the range of its group, and on average there is none.
    #[test]
    fn stochastic_rounding_is_unbiased_and_within_a_step() {
        let element = |i: usize| {
            let around = [0.0, 100.0, -3.0, 1e-42, 0.25][i / GROUP];
            around + (i as f32 * 0.7).sin() * [1.0, 0.5, 0.0, 0.0, 10.0][i / GROUP]
        };
        let elements: Vec<f32> = (0..5 * GROUP - 7).map(element).collect();
        for dtype in AFFINE {
            let mut sums = vec![0.0f64; elements.len()];
            const DRAWS: u32 = 4000;
            for n in 0..DRAWS {
                let draw = |i: usize| crate::random::bits(7, u64::from(n) << 32 | i as u64) as u32;
                let rounded = dtype.stochastic(&elements, draw);
                sums.iter_mut().zip(&rounded).for_each(|(sum, x)| *sum += f64::from(*x));
            }
            for (i, (x, sum)) in elements.iter().zip(&sums).enumerate() {
                let group = &elements[i / GROUP * GROUP..elements.len().min(i / GROUP * GROUP + GROUP)];
                let [low, high] =
                    [f32::min, f32::max].map(|of| group.iter().copied().reduce(of).expect("some"));
                let step = f64::from((high - low) * 1.02 + low.abs() / 120.0) / f64::from(dtype.outermost());
                let mean = sum / f64::from(DRAWS);
                // The bound is five standard deviations of a mean over `DRAWS` draws.
                let allowed = 5.0 * 0.5 * step / f64::from(DRAWS).sqrt() + 1e-6 * f64::from(x.abs()) + 1e-37;
                assert!((mean - f64::from(*x)).abs() <= allowed, "{dtype} {i}: {x} becomes {mean}");
                let one = f64::from(dtype.stochastic(&elements, |_| u32::MAX)[i]);
                assert!(
                    (one - f64::from(*x)).abs() <= step + 1e-37,
                    "{dtype} {i}: {x} becomes {one}, a step is {step}"
                );
            }
            let back = dtype.unpack(&dtype.pack(&elements), elements.len());
            let near = |(i, (x, y)): (usize, (&f32, &f32))| {
                (x - y).abs() <= [0.14, 0.2, 0.02, 1e-37, 1.4][i / GROUP] * 0.5
            };
            assert!(elements.iter().zip(&back).enumerate().all(near), "{dtype}");
            assert_eq!(dtype.pack(&elements).len() as u64 * 4, dtype.bytes(elements.len() as u64));
            for stray in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut group = vec![1.0; 2 * GROUP];
                group[3] = stray;
                let rounded = dtype.stochastic(&group, |_| 0);
                assert!(rounded[..GROUP].iter().all(|x| x.is_nan()) && rounded[GROUP..] == [1.0; GROUP]);
            }
        }
    }

    #[test]
    fn levels_are_kept_and_nan_fills_its_group() {
        for dtype in ALL {
            let most = dtype.outermost();
            let elements = [most, -most, 0.0, -0.0, f32::NAN];
            assert_eq!(dtype.unpack(&dtype.pack(&elements[..4]), 4), elements[..4], "{dtype}");
            let words = dtype.pack(&[&elements[4..], &[1.0; 100][..]].concat());
            let back = dtype.unpack(&words, 101);
            assert!(back[..GROUP].iter().all(|x| x.is_nan()), "{dtype}");
            assert!(back[GROUP..].iter().all(|x| (x - 1.0).abs() < 0.01), "{dtype}");
        }
        assert_eq!(DType::Nf4.unpack(&DType::Nf4.pack(&NF4), 16), NF4);
    }
}
