//! Sums, means and maxima of the rows of a table.

use super::Tensor;
use crate::dtype::DType;

/// How the rows of a bag combine: [`Tensor::embedding_bag`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bag {
    /// Their sum.
    Sum,
    /// Their mean; PyTorch's default.
    #[default]
    Mean,
    /// The largest element of each column.
    Max,
}

impl Tensor {
    /// Combines the rows of this table `[v, d]` that each bag selects: `ids [n, k]`, `u32` → `[n, d]`
    /// (`torch.nn.EmbeddingBag` with bags of `k` ids). Ids equal to `padding` are ignored, so that bags may have fewer
    /// rows; a bag without any gives zeros. The row of `padding` gets no gradient from them.
    ///
    /// # Mistakes
    /// Ids that are not `[n, k]`; a `padding` that is no row of the table, or beyond 2²⁴.
    #[track_caller]
    #[must_use]
    pub fn embedding_bag(&self, ids: &Tensor, bag: Bag, padding: Option<u32>) -> Tensor {
        if ids.shape.rank() != 2 {
            return self.mistake(format!("embedding_bag takes ids [n, k], got {}", ids.shape), self.shape);
        }
        let rows = self.embedding(ids);
        let Some(padding) = padding else {
            return match bag {
                Bag::Sum => rows.sum(&[1]),
                Bag::Mean => rows.mean(&[1]),
                Bag::Max => rows.max(&[1]),
            };
        };
        // Ids are compared as floats.
        if padding as usize >= self.dim(0) || padding >= 1 << 24 {
            let message = format!("embedding_bag: padding {padding} is no row of the table {}", self.shape);
            return self.mistake(message, self.shape);
        }
        // 1 where a row counts, else 0.
        let counts = ids.cast(DType::F32).offset(-(padding as f32)).abs().clamp(0.0, 1.0).unsqueeze(2);
        let count = counts.sum(&[1]);
        match bag {
            Bag::Sum => rows.masked(&counts).sum(&[1]),
            Bag::Mean => rows.masked(&counts).sum(&[1]).div(&count.clamp(1.0, f32::MAX)),
            Bag::Max => rows.masked_fill(&(1.0 - counts), f32::MIN).max(&[1]).masked(&count),
        }
    }
}
