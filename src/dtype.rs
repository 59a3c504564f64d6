//! Element types a tensor can be stored in. Arithmetic is `f32` whatever the storage.

mod pairs;

use std::fmt;

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
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// Bytes of `n` elements: whole words of four bytes, so that no word belongs to two tensors.
    pub const fn bytes(self, n: u64) -> u64 {
        match self {
            Self::F32 | Self::U32 => n.saturating_mul(4),
            Self::F16 | Self::BF16 => n.div_ceil(2).saturating_mul(4),
        }
    }

    /// The largest number, for floats; the largest `f32` for the others.
    pub fn largest(self) -> f32 {
        match self {
            Self::F16 => half::f16::MAX.to_f32(),
            Self::BF16 => half::bf16::MAX.to_f32(),
            _ => f32::MAX,
        }
    }

    /// Held as pairs in words of 32 bits: only casts, views, copies, chains of functions, matrix products, images of
    /// convolutions, embeddings and updates take it.
    pub const fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::BF16)
    }

    /// The lower-case name used in reports: `f32`, `u32`, `f16`, `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
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

/// In how many bits a training step keeps activations for its backward pass. Arithmetic, sums, weights, gradients,
/// statistics and optimizer state are `f32` in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32.
    #[default]
    F32,
    /// 16, as [`DType::F16`].
    F16,
    /// 16, as [`DType::BF16`].
    Bf16,
}

impl Precision {
    /// Every precision, in the order of reports.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// How activations are stored; `None` for as they are computed.
    pub const fn storage(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::F16 => Some(DType::F16),
            Self::Bf16 => Some(DType::BF16),
        }
    }

    /// The lower-case name used in reports and by the command line: `f32`, `f16`, `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// The precision of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == name)
    }
}

/// How training holds its large weights: matrices, tables and kernels of [`WeightStorage::SMALLEST`] elements or more. In
/// 16 bits there is no copy in 32: whoever reads one widens it, an update computes in `f32` and rounds what it stores. Biases,
/// scales and running statistics are small and decide about many numbers: they are `f32` in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightStorage {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, as [`DType::F16`]. What is beyond ±65,504 becomes infinite.
    F16(Rounding),
    /// 16 bits, as [`DType::BF16`].
    Bf16(Rounding),
}

/// How a new weight becomes one of 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest, ties to even: a step of less than half the distance to the next number is lost.
    #[default]
    Nearest,
    /// Up or down by chance, the nearer the likelier, so that the expected result is the number itself: small steps add up.
    Stochastic,
}

impl WeightStorage {
    /// Tensors of fewer elements stay in 32 bits: their dispatches would cost more than their bytes are worth.
    pub const SMALLEST: u64 = 1024;

    /// The names that [`WeightStorage::named`] knows.
    pub const NAMES: [&'static str; 3] = ["f32", "f16", "bf16"];

    /// The type of large weights; `None` for 32 bits.
    pub const fn storage(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::F16(_) => Some(DType::F16),
            Self::Bf16(_) => Some(DType::BF16),
        }
    }

    /// How they are rounded.
    pub const fn rounding(self) -> Rounding {
        match self {
            Self::F32 => Rounding::Nearest,
            Self::F16(rounding) | Self::Bf16(rounding) => rounding,
        }
    }

    /// The lower-case name used in reports and by the command line: `f32`, `f16`, `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16(_) => "f16",
            Self::Bf16(_) => "bf16",
        }
    }

    /// The storage of this name.
    pub fn named(name: &str, rounding: Rounding) -> Option<Self> {
        [Self::F32, Self::F16(rounding), Self::Bf16(rounding)].into_iter().find(|w| w.name() == name)
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
