//! Settings of attention and the layout of its operands.

use crate::shape::Shape;

/// Attention: scores `scale q·k`, softmax over the keys that a query may see, dropout, and the sum of the
/// values with these weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attend {
    /// Numbers of query heads and key heads if queries, keys and values are packed in one tensor
    /// `[b, s, h + 2 hkv, d]`, in this order. `None`: they are three tensors.
    pub packed: Option<[usize; 2]>,
    /// Query `i` sees keys `0..=i` only.
    pub causal: bool,
    /// Factor of the scores.
    pub scale: f32,
    /// Probability that a weight becomes 0; the others are scaled by `1/(1-p)`. If above 0, the step scalars
    /// are the last operand.
    pub dropout: f64,
    /// Key of the random draw.
    pub key: u32,
}

/// Lengths of an attention's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttendSizes {
    /// Samples.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values; a divisor of `heads`.
    pub kv_heads: usize,
    /// Queries.
    pub rows: usize,
    /// Keys.
    pub cols: usize,
    /// Elements of a head.
    pub size: usize,
}

/// Maximum head size of the kernels, in elements. Head sizes are multiples of four.
pub const MAX_HEAD: usize = 256;

impl Attend {
    /// Returns the number of operands that hold queries, keys and values.
    pub fn operands(&self) -> usize {
        if self.packed.is_some() { 1 } else { 3 }
    }

    /// Returns the lengths, from the shapes of the first [`Attend::operands`] operands.
    ///
    /// # Errors
    /// A sentence that names the mismatch.
    pub fn sizes(&self, inputs: &[Shape]) -> Result<AttendSizes, String> {
        let rank4 = |shape: Shape| match *shape.dims() {
            [b, s, h, d] if b * s * h * d > 0 => Ok([b, s, h, d]),
            _ => Err(format!("attention takes [batch, length, heads, head size], not empty, got {shape}")),
        };
        let [batch, rows, lead, size] = rank4(inputs[0])?;
        let (heads, kv_heads, cols) = match self.packed {
            Some([heads, kv_heads]) => {
                if heads + 2 * kv_heads != lead {
                    return Err(format!(
                        "attention of {heads} heads with {kv_heads} key and {kv_heads} value heads takes {} in all, \
                         got {lead} in {}",
                        heads + 2 * kv_heads,
                        inputs[0]
                    ));
                }
                (heads, kv_heads, rows)
            }
            None => {
                let (k, v) = (rank4(inputs[1])?, rank4(inputs[2])?);
                if k != v || k[0] != batch || k[3] != size {
                    return Err(format!(
                        "attention: q {} with k {} and v {}: batch and head size must be equal, k and v of one shape",
                        inputs[0], inputs[1], inputs[2]
                    ));
                }
                (lead, k[2], k[1])
            }
        };
        if kv_heads == 0 || heads == 0 || heads % kv_heads != 0 {
            return Err(format!(
                "attention: {heads} query heads are not divisible by {kv_heads} key heads; each key head serves the \
                 same number of query heads"
            ));
        }
        Ok(AttendSizes { batch, heads, kv_heads, rows, cols, size })
    }
}
