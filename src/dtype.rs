//! Element types a tensor can be stored in. Arithmetic is `f32` whatever the storage.

use std::fmt;

/// How one element is stored on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary32: parameters, activations, gradients.
    F32,
    /// Unsigned 32-bit: class indices, token ids.
    U32,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 | Self::U32 => 4,
        }
    }

    /// The lower-case name used in reports: `f32`, `u32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::U32 => "u32",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
