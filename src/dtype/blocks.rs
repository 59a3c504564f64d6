//! Elements of 4 and 8 bits on the host, in the blocks that a device has: the codes of 128 elements, and a word with the scales of
//! its two groups of 64, as bf16. An element is its code's level times its group's scale.

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
    /// Returns the words of a block: those of its codes, and one of scales; `None` for types without blocks.
    pub(crate) const fn block_words(self) -> Option<u64> {
        match self {
            Self::Int8 | Self::Int4 | Self::Nf4 => Some(BLOCK * self.code_bits() as u64 / 32 + 1),
            Self::F32 | Self::U32 | Self::F16 | Self::BF16 => None,
        }
    }

    /// Bits of a code.
    const fn code_bits(self) -> usize {
        if matches!(self, Self::Int8) { 8 } else { 4 }
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
                let scale = self.scale(group);
                *words.last_mut().expect("a block has words") |= (scale.to_bits() >> 16) << (16 * g);
                for (i, x) in group.iter().enumerate() {
                    let at = (g * GROUP + i) * bits;
                    words[start + at / 32] |= self.code(x / scale) << (at % 32);
                }
            }
        }
        words
    }

    /// What elements become that are rounded stochastically to codes of [`DType::Int8`] or [`DType::Int4`] and decoded again;
    /// `draw` returns 32 random bits for an element. A group whose scale would be subnormal is 0; one with NaN or infinity is all
    /// NaN.
    pub(crate) fn stochastic(self, elements: &[f32], draw: impl Fn(usize) -> u32) -> Vec<f32> {
        let most = self.outermost();
        let mut decoded = Vec::with_capacity(elements.len());
        for group in elements.chunks(GROUP) {
            let scale = if group.iter().all(|x| x.is_finite()) { self.scale(group) } else { f32::NAN };
            let tiny = scale < f32::MIN_POSITIVE;
            for x in group {
                let up = (draw(decoded.len()) >> 8) as f32 / (1 << 24) as f32;
                let level = (x / scale + up).floor().clamp(-most, most);
                decoded.push(if tiny { 0.0 } else { level * scale });
            }
        }
        decoded
    }

    /// The scale of a group: the largest element gets the outermost level, so that levels are packed into the same codes again.
    fn scale(self, group: &[f32]) -> f32 {
        let most = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let nearest = bf16::from_f32(most / self.outermost()).to_f32().min(bf16::MAX.to_f32());
        if group.iter().any(|x| x.is_nan()) { f32::NAN } else { nearest }
    }

    /// The `n` elements of blocks.
    pub(super) fn unpack_blocks(self, words: &[u32], n: usize) -> Vec<f32> {
        let bits = self.code_bits();
        let size = self.block_words().unwrap_or(1) as usize;
        let element = |i: usize| {
            let block = &words[i / BLOCK as usize * size..][..size];
            let within = i % BLOCK as usize;
            let code = block[within * bits / 32] >> (within * bits % 32) & ((1 << bits) - 1);
            let scale = f32::from_bits(block[size - 1] >> (16 * (within / GROUP)) << 16);
            self.level(code) * scale
        };
        (0..n).map(element).collect()
    }

    /// The largest level.
    fn outermost(self) -> f32 {
        match self {
            Self::Int8 => 127.0,
            Self::Int4 => 7.0,
            _ => 1.0,
        }
    }

    fn level(self, code: u32) -> f32 {
        match self {
            Self::Int8 => code as f32 - 128.0,
            Self::Int4 => code as f32 - 8.0,
            _ => NF4[code as usize],
        }
    }

    /// The code of the level nearest to `x`; that of 0 for NaN, which the scale has.
    fn code(self, x: f32) -> u32 {
        match self {
            Self::Int8 => (x.round_ties_even().clamp(-127.0, 127.0) as i32 + 128) as u32,
            Self::Int4 => (x.round_ties_even().clamp(-7.0, 7.0) as i32 + 8) as u32,
            _ if x.is_nan() => 7,
            _ => NF4.windows(2).filter(|pair| x > (pair[0] + pair[1]) / 2.0).count() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [DType; 3] = [DType::Int8, DType::Int4, DType::Nf4];

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
