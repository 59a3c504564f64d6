//! Elements on the host as the words that a device has; numbers of 16 bits are two to a word.

use half::{bf16, f16};

use super::DType;

impl DType {
    /// Elements as words of this type's memory, the first of a pair in the lower half; beside an odd last one is a 0. Halves
    /// are the nearest, ties to even; what is beyond the largest number is infinite, NaN stays NaN. Of types in blocks, elements begin
    /// at a block.
    pub(crate) fn pack(self, elements: &[f32]) -> Vec<u32> {
        let bits = |x: &f32| match self {
            Self::F16 => u32::from(f16::from_f32(*x).to_bits()),
            Self::BF16 => u32::from(bf16::from_f32(*x).to_bits()),
            _ => x.to_bits(),
        };
        if self.is_quantised() {
            return self.pack_blocks(elements);
        }
        match self.is_half() {
            true => {
                elements.chunks(2).map(|pair| bits(&pair[0]) | pair.get(1).map_or(0, bits) << 16).collect()
            }
            false => elements.iter().map(bits).collect(),
        }
    }

    /// The `n` elements of words that [`DType::pack`] made.
    pub(crate) fn unpack(self, words: &[u32], n: usize) -> Vec<f32> {
        let halves = || words.iter().flat_map(|word| [*word as u16, (word >> 16) as u16]).take(n);
        match self {
            Self::F16 => halves().map(|bits| f16::from_bits(bits).to_f32()).collect(),
            Self::BF16 => halves().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            Self::F32 | Self::U32 => words.iter().map(|word| f32::from_bits(*word)).collect(),
            _ => self.unpack_blocks(words, n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_last_element_takes_a_whole_word() {
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            let words = dtype.pack(&[1.0, -2.0, 0.5]);
            assert_eq!(words.len() as u64 * 4, dtype.bytes(3));
            assert_eq!(dtype.unpack(&words, 3), [1.0, -2.0, 0.5]);
        }
    }
}
