//! Conversion of parameters and optimizer state between the host's `f32` and the type stored on the device.

use std::ops::Range;

use crate::compile::{Plan, StorageId};
use crate::dtype::DType;

/// Element type and element count of a parameter or optimizer state.
#[derive(Clone, Copy)]
pub(super) struct StateLayout {
    pub(super) dtype: DType,
    pub(super) elements: u64,
}

impl StateLayout {
    pub(super) fn of(plan: &Plan, storage: StorageId) -> Self {
        let graph = plan.graph();
        let known = graph.parameters.get(storage.0 as usize).map(|param| param.shape().numel());
        let mut values = graph.ids().filter(|(_, value)| value.class.is_persistent());
        let value = values.find(|(id, _)| plan.program.storage_of[id.index()] == Some(storage));
        match value {
            Some((_, value)) => Self { dtype: value.dtype, elements: value.shape.numel() },
            // A parameter that no operation reads.
            None => Self { dtype: DType::F32, elements: known.unwrap_or(0) },
        }
    }

    /// Packs a range of 32-bit words. `part` returns the `f32` elements of a range.
    pub(super) fn words(self, words: Range<u64>, part: impl FnOnce(Range<u64>) -> Vec<f32>) -> Vec<u32> {
        let of_a_word = if self.dtype.is_half() { 2 } else { 1 };
        let end = (words.end * of_a_word).min(self.elements);
        self.dtype.pack(&part(words.start * of_a_word..end))
    }

    /// Unpacks all elements: 16-bit floats are widened, `u32` words are returned as their bits.
    pub(super) fn widened(self, words: &[u32]) -> Vec<f32> {
        self.dtype.unpack(words, self.elements as usize)
    }
}
