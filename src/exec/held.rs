//! What lives from step to step, between the host's `f32` and how the device holds it.

use std::ops::Range;

use crate::compile::{Plan, StorageId};
use crate::dtype::DType;

/// Type and number of the elements of a parameter or optimizer state.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) dtype: DType,
    pub(super) elements: u64,
}

impl Held {
    pub(super) fn of(plan: &Plan, storage: StorageId) -> Self {
        let graph = plan.graph();
        let known = graph.parameters.get(storage.0 as usize).map(|param| param.shape().numel());
        let mut values = graph.ids().filter(|(_, value)| value.class.is_persistent());
        let value = values.find(|(id, _)| plan.program.storage_of[id.index()] == Some(storage));
        match value {
            Some((_, value)) => Self { dtype: value.dtype, elements: value.shape.numel() },
            // A parameter that nothing reads.
            None => Self { dtype: DType::F32, elements: known.unwrap_or(0) },
        }
    }

    /// The words of so much memory, from the elements that `part` gives.
    pub(super) fn words(self, words: Range<u64>, part: impl FnOnce(Range<u64>) -> Vec<f32>) -> Vec<u32> {
        let of_a_word = if self.dtype.is_half() { 2 } else { 1 };
        let end = (words.end * of_a_word).min(self.elements);
        self.dtype.pack(&part(words.start * of_a_word..end))
    }

    /// The elements in all of its words. What is no `f32` comes as its bits.
    pub(super) fn widened(self, words: &[u32]) -> Vec<f32> {
        self.dtype.unpack(words, self.elements as usize)
    }
}
