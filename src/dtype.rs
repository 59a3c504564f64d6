//! Element types of stored tensors. Arithmetic is `f32` for every storage type.

pub(crate) mod blocks;
mod pairs;

use std::fmt;

/// Tensors with fewer elements stay in 32 bits: the extra dispatches would cost more than the saved bytes.
pub(crate) const SMALLEST_HALF: u64 = 1024;

/// How one element is stored on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary32: parameters, activations, gradients.
    F32,
    /// Unsigned 32-bit: class indices, token ids.
    U32,
    /// IEEE binary16, two to a word: 11 bits of precision, magnitudes from 6e-8 to 65,504.
    F16,
    /// The upper half of a binary32, two to a word: 8 bits of precision, the range of `f32`.
    BF16,
    /// A whole number from -127 to 127 times the scale of its group of 64, a bf16: 8.25 bits with it.
    Int8,
    /// A whole number from -7 to 7 times the scale of its group of 64: 4.25 bits.
    Int4,
    /// One of 16 quantiles of the normal distribution (NF4, Dettmers et al. 2023) times the scale of its group of 64:
    /// 4.25 bits.
    Nf4,
    /// The least number of its group of 64 plus a whole number from 0 to 255 times the group's step, both bf16: 8.5 bits with them. Only
    /// activations that wait for the backward pass.
    Uint8,
    /// The same with numbers from 0 to 15: 4.5 bits.
    Uint4,
}

impl DType {
    /// Returns the bytes of `n` elements, rounded up to whole words of four bytes, or to whole blocks of 128 elements with a
    /// a word or two for their scales, so that no word belongs to two tensors.
    pub const fn bytes(self, n: u64) -> u64 {
        if let Some(words) = self.block_words() {
            return n.div_ceil(blocks::BLOCK).saturating_mul(4 * words);
        }
        match self {
            Self::F16 | Self::BF16 => n.div_ceil(2).saturating_mul(4),
            _ => n.saturating_mul(4),
        }
    }

    /// Returns the largest finite number of a float type; for `u32`, that of `f32`.
    pub fn largest(self) -> f32 {
        match self {
            Self::F16 => half::f16::MAX.to_f32(),
            Self::BF16 => half::bf16::MAX.to_f32(),
            _ => f32::MAX,
        }
    }

    /// Whether elements are 16-bit floats, stored as pairs in 32-bit words. Only casts, views, copies,
    /// element-wise chains, matrix products, sums of squares, images of convolutions, embeddings and updates take them.
    pub const fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::BF16)
    }

    /// Whether elements are codes of 4 or 8 bits, in blocks with scales. Only casts, views, sums of squares and the second
    /// operand of matrix products take them.
    pub const fn is_quantised(self) -> bool {
        self.block_words().is_some()
    }

    /// Whether elements are codes with a least number for each group.
    pub(crate) const fn is_affine(self) -> bool {
        matches!(self, Self::Uint8 | Self::Uint4)
    }

    /// Whether a word holds several elements.
    pub(crate) const fn is_packed(self) -> bool {
        self.is_half() || self.is_quantised()
    }

    /// Returns the lower-case name used in reports: `f32`, `u32`, `f16`, `bf16`, `int8`, `int4`, `nf4`, `uint8`, `uint4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Nf4 => "nf4",
            Self::Uint8 => "uint8",
            Self::Uint4 => "uint4",
            Self::F32 => "f32",
            Self::U32 => "u32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Storage of the activations that a training step saves for its backward pass. Arithmetic, sums, weights,
/// gradients, statistics and optimizer state are always `f32`.
///
/// With 8 and 4 bits, an element is the least number of its group of 64 plus a multiple of the group's step, rounded stochastically: its
/// expected value is the activation, and its error is below a step, which is 1/255 or 1/15 of the group's range and of 1/128 of the least
/// number's magnitude (ActNN, Chen et al. 2021). So are activations that the backward pass multiplies, normalizes, or evaluates a smooth function of. Others are stored as with
/// [`Precision::Bf16`]: operands of attention and of comparisons. ReLUs and clamps store bit masks, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, as [`DType::F16`].
    F16,
    /// 16 bits, as [`DType::BF16`].
    Bf16,
    /// 8.5 bits, as [`DType::Uint8`]; where the errors would be large, 16 bits.
    Int8,
    /// 4.5 bits, as [`DType::Uint4`]; where the errors would be large, 16 bits.
    Int4,
}

impl Precision {
    /// Every precision, in the order of reports.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Int8, Self::Int4];

    /// Returns the storage type of activations that are not in [codes](Self::codes); `None` if they are stored as computed.
    pub const fn storage(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::F16 => Some(DType::F16),
            Self::Bf16 | Self::Int8 | Self::Int4 => Some(DType::BF16),
        }
    }

    /// Returns the storage type of activations that are stored in 8 or 4 bits, if some are.
    pub const fn codes(self) -> Option<DType> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => None,
            Self::Int8 => Some(DType::Uint8),
            Self::Int4 => Some(DType::Uint4),
        }
    }

    /// Returns the lower-case name used in reports and by the command line: `f32`, `f16`, `bf16`, `int8`, `int4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// Returns the precision of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == name)
    }
}

/// Storage of large weights in training: matrices, tables and kernels of [`WeightStorage::SMALLEST`] elements
/// or more. There is no 32-bit copy of 16-bit weights: every reader widens them, and an update computes in
/// `f32` and rounds the result. Biases, scales and running statistics are small and affect many numbers, so
/// they are always `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightStorage {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, as [`DType::F16`]. Numbers beyond ±65,504 become infinite.
    F16(Rounding),
    /// 16 bits, as [`DType::BF16`].
    Bf16(Rounding),
    /// 24 bits: 16 as [`DType::BF16`], which the network computes with, and 8 of optimizer state (FlashOptim, Gonzalez Ortiz
    /// et al. 2026), with which the update has a number of 16 significant bits. Small updates add up, and nothing is drawn.
    /// Files of weights have the 16 bits, those of training state both.
    Bf24,
}

/// Storage of large weights that are not trained: as [`WeightStorage`], without an update that rounds, and in fewer bits. Tables of
/// embeddings are stored as [`FrozenStorage::Bf16`] where this is one of 4 or 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrozenStorage {
    /// 32 bits.
    F32,
    /// 16 bits, as [`DType::F16`]. Numbers beyond ±65,504 become infinite.
    F16,
    /// 16 bits, as [`DType::BF16`].
    Bf16,
    /// 8.25 bits, as [`DType::Int8`].
    Int8,
    /// 4.25 bits, as [`DType::Int4`].
    Int4,
    /// 4.25 bits, as [`DType::Nf4`].
    Nf4,
}

impl FrozenStorage {
    /// Every storage, in the order of reports.
    pub const ALL: [Self; 6] = [Self::F32, Self::F16, Self::Bf16, Self::Int8, Self::Int4, Self::Nf4];

    /// Returns the type of the elements.
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
            Self::Int8 => DType::Int8,
            Self::Int4 => DType::Int4,
            Self::Nf4 => DType::Nf4,
        }
    }

    /// Returns the lower-case name used in reports and by the command line: `f32`, `f16`, `bf16`, `int8`, `int4`, `nf4`.
    pub const fn name(self) -> &'static str {
        self.dtype().name()
    }

    /// Returns the storage of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|storage| storage.name() == name)
    }
}

/// Rounding of updated weights to 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To nearest, ties to even: an update of less than half the distance to the next number is lost.
    #[default]
    Nearest,
    /// Stochastic: up or down at random, so that the expected result is the unrounded number and small
    /// updates add up.
    Stochastic,
}

impl WeightStorage {
    /// Tensors with fewer elements stay in 32 bits: the cost of extra dispatches would exceed the saved
    /// bytes.
    pub const SMALLEST: u64 = 1024;

    /// The names that [`WeightStorage::named`] knows.
    pub const NAMES: [&'static str; 4] = ["f32", "f16", "bf16", "bf24"];

    /// Returns the type of large weights in the network; `None` for 32 bits.
    pub const fn storage(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::F16(_) => Some(DType::F16),
            Self::Bf16(_) | Self::Bf24 => Some(DType::BF16),
        }
    }

    /// Returns the rounding.
    pub const fn rounding(self) -> Rounding {
        match self {
            Self::F32 | Self::Bf24 => Rounding::Nearest,
            Self::F16(rounding) | Self::Bf16(rounding) => rounding,
        }
    }

    /// Returns the lower-case name used in reports and by the command line: `f32`, `f16`, `bf16`, `bf24`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16(_) => "f16",
            Self::Bf16(_) => "bf16",
            Self::Bf24 => "bf24",
        }
    }

    /// Returns the storage of this name.
    pub fn named(name: &str, rounding: Rounding) -> Option<Self> {
        let all = [Self::F32, Self::F16(rounding), Self::Bf16(rounding), Self::Bf24];
        all.into_iter().find(|w| w.name() == name)
    }
}

impl fmt::Display for WeightStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        f.write_str(if self.rounding() == Rounding::Stochastic { " stochastic" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_16_bit_tensors_are_whole_words() {
        assert_eq!([0, 1, 2, 3].map(|n| DType::F16.bytes(n)), [0, 4, 4, 8]);
        assert_eq!(DType::BF16.bytes(u64::MAX), u64::MAX, "it saturates");
        assert_eq!(DType::U32.bytes(3), 12);
    }
}
