//! Conversion of parameters and optimizer state between the host's `f32` and the type stored on the device.

use std::ops::Range;

use crate::compile::{Plan, StorageId};
use crate::dtype::DType;
use crate::dtype::blocks::BLOCK;
use crate::graph::PartOf;

/// Element type and elements of a parameter or optimizer state.
#[derive(Clone, Copy)]
pub(super) struct StateLayout {
    pub(super) dtype: DType,
    /// Number of the elements that this rank has.
    pub(super) elements: u64,
    /// For state of which each rank has a part: which elements this one has.
    pub(super) part_of: Option<PartOf>,
}

impl StateLayout {
    pub(super) fn of(plan: &Plan, storage: StorageId) -> Self {
        let graph = plan.graph();
        let known = graph.parameters.get(storage.0 as usize).map(|param| param.shape().numel());
        let mut values = graph.ids().filter(|(_, value)| value.class.is_persistent());
        let value = values.find(|(id, _)| plan.program.storage_of[id.index()] == Some(storage));
        match value {
            Some((_, value)) => {
                Self { dtype: value.dtype, elements: value.shape.numel(), part_of: value.part_of }
            }
            // A parameter that no operation reads.
            None => Self { dtype: DType::F32, elements: known.unwrap_or(0), part_of: None },
        }
    }

    /// Number of the elements of the whole.
    pub(super) fn whole(self) -> u64 {
        self.part_of.map_or(self.elements, |part| part.whole.numel())
    }

    /// Returns a range of this rank's elements; `whole` returns a range of the whole.
    pub(super) fn own(self, own: Range<u64>, mut whole: impl FnMut(Range<u64>) -> Vec<f32>) -> Vec<f32> {
        let Some(part) = self.part_of else {
            return whole(own);
        };
        let joined = part.runs(own).map(whole).reduce(|mut all, run| {
            all.extend(run);
            all
        });
        joined.unwrap_or_default()
    }

    /// Packs a range of 32-bit words. `part` returns the `f32` elements of a range.
    pub(super) fn words(self, words: Range<u64>, part: impl FnOnce(Range<u64>) -> Vec<f32>) -> Vec<u32> {
        if let Some(size) = self.dtype.block_words() {
            let (first, last) = (words.start / size, words.end.div_ceil(size));
            let blocks = self.dtype.pack(&part(first * BLOCK..(last * BLOCK).min(self.elements)));
            return blocks[(words.start - first * size) as usize..(words.end - first * size) as usize]
                .to_vec();
        }
        let of_a_word = if self.dtype.is_half() { 2 } else { 1 };
        let end = (words.end * of_a_word).min(self.elements);
        self.dtype.pack(&part(words.start * of_a_word..end))
    }

    /// Unpacks all elements: those of fewer bits are widened, `u32` words are returned as their bits.
    pub(super) fn widened(self, words: &[u32]) -> Vec<f32> {
        self.dtype.unpack(words, self.elements as usize)
    }
}
