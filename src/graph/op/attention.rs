//! Settings of attention, the layout of its operands, and which keys a query sees.

use std::ops::Range;

use crate::dtype::DType;
use crate::shape::Shape;

/// Attention: scores `scale q·k`, softmax over the keys that a query may see, dropout, and the sum of the
/// values with these weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attend {
    /// Numbers of query heads and key heads if queries, keys and values are packed in one tensor
    /// `[b, s, h + 2 hkv, d]`, in this order. `None`: they are three tensors.
    pub packed: Option<[usize; 2]>,
    /// The keys that each query sees.
    pub band: Band,
    /// Queries see keys of their own document alone: the operand after queries, keys and values, and after the gradient of
    /// the result, is `u32 [b, t, 2]`, where the document of each key's position starts and where it ends.
    pub documents: bool,
    /// Position of the first query among the keys. `band` counts it; it says which documents are those of the queries.
    pub offset: u32,
    /// ALiBi: the score of query `i` with key `j` falls by `|i - j|` times [`Attend::slope`].
    pub alibi: bool,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores become `cap tanh(score / cap)`, before ALiBi; 0: they stay.
    pub cap: f32,
    /// Probability that a weight becomes 0; the others are scaled by `1/(1-p)`. If above 0, the step scalars
    /// are the last operand.
    pub dropout: f64,
    /// Key of the random draw.
    pub key: u32,
    /// Where the heads are some of a layer's, as on a rank that has a part of it: the first, and how many query heads the layer has.
    /// Slopes and draws are those of the layer.
    pub heads_of: Option<[usize; 2]>,
}

/// The keys that queries see: query `i` those at positions `i - before ..= i + after`. The queries that see a key are the band
/// [`Band::transposed`]. `shaders/attention/operands.wgsl` computes the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Positions before the query's own, at most [`Band::FAR`].
    pub before: u32,
    /// Positions after the query's own, at most [`Band::FAR`].
    pub after: u32,
}

impl Band {
    /// No tensor has a position as far away.
    pub const FAR: u32 = i32::MAX as u32;
    /// Every query sees every key.
    pub const ALL: Self = Self { before: Self::FAR, after: Self::FAR };

    /// Returns the band of a window of `window` positions in each direction, the query's own included; `causal`: none after
    /// the query.
    pub fn new(causal: bool, window: Option<usize>) -> Self {
        let far = window.map_or(Self::FAR, |window| (window.max(1) - 1).min(Self::FAR as usize) as u32);
        Self { before: far, after: if causal { 0 } else { far } }
    }

    /// Returns the band of queries of which the first is at position `offset` of the keys, which it sees from the first one on.
    pub fn moved(self, offset: usize) -> Self {
        let far = |distance: usize| distance.min(Self::FAR as usize) as u32;
        let before =
            if self.before == Self::FAR { Self::FAR } else { self.before.saturating_sub(far(offset)) };
        Self { before, after: far((self.after as usize).saturating_add(offset)) }
    }

    /// Returns the band of the queries that see a key.
    pub fn transposed(self) -> Self {
        Self { before: self.after, after: self.before }
    }

    /// Returns the positions, of `count`, that are seen from position `at`.
    pub fn seen(self, at: usize, count: usize) -> Range<usize> {
        let end = count.min(at + self.after as usize + 1);
        at.saturating_sub(self.before as usize).min(end)..end
    }

    /// Returns how many tiles of `tile` positions, of `count` positions in all, are seen from `own` positions in a row: at
    /// most, wherever these lie.
    pub fn tiles(self, own: usize, tile: usize, count: usize) -> usize {
        let length = (self.before as usize).saturating_add(own).saturating_add(self.after as usize);
        count.div_ceil(tile).min((length - 1).div_ceil(tile) + 1)
    }

    /// Returns the number of pairs of one of `rows` queries with one of `cols` keys that it sees. Every query sees a key.
    pub fn pairs(self, rows: usize, cols: usize) -> u64 {
        let [before, after, rows, cols] =
            [u64::from(self.before), u64::from(self.after), rows as u64, cols as u64];
        // The ends of the ranges that the last key does not end, i + after + 1, and the others; then the starts after 0.
        let open = cols.saturating_sub(after + 1).min(rows);
        let ends = open * (after + 1) + open * open.saturating_sub(1) / 2 + (rows - open) * cols;
        let late = rows.saturating_sub(before + 1);
        ends - late * (late + 1) / 2
    }
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
    /// Positions of the caches among the operands of [`Op::CachedAttention`](super::Op::CachedAttention).
    pub const CACHES: [usize; 2] = [3, 4];
    /// Position of the pages of each text among them; its length is next.
    pub const PAGES: usize = 5;

    /// Element types of caches.
    pub(crate) const CACHED: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::Uint8];

    /// Checks that kernels store a cache of this shape in this type: a group of codes is within a head.
    pub(crate) fn check_cache(dtype: DType, shape: Shape) -> Result<(), String> {
        if !Self::CACHED.contains(&dtype) {
            return Err(format!("in {dtype}: it is stored in f32, f16, bf16 or uint8"));
        }
        let group = DType::GROUP;
        if dtype == DType::Uint8 && !shape.last().is_multiple_of(group) {
            return Err(format!(
                "{shape} in {dtype}: it takes heads of multiples of {group} elements; f16 and bf16 take others"
            ));
        }
        Ok(())
    }

    /// Returns the number of operands that hold queries, keys and values.
    pub fn operands(&self) -> usize {
        if self.packed.is_some() { 1 } else { 3 }
    }

    /// Returns where the documents are among `operands` operands of the operation or of its gradient.
    pub fn documents_of(&self, operands: usize) -> Option<usize> {
        self.documents.then(|| operands - 1 - usize::from(self.dropout > 0.0))
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
        if self.band.seen(rows - 1, cols).is_empty() {
            return Err(format!(
                "attention with a window of {}: the last of {rows} queries sees none of {cols} keys; give it a window of at \
                 least {}",
                self.band.before + 1,
                rows - cols + 1
            ));
        }
        Ok(AttendSizes { batch, heads, kv_heads, rows, cols, size })
    }

    /// Returns which head of its layer the first of `heads` heads is, and how many the layer has.
    pub fn layer_heads(&self, heads: usize) -> [usize; 2] {
        self.heads_of.unwrap_or([0, heads])
    }

    /// Returns ALiBi's slope of head `head` of `heads` (Press et al. 2022), 0 without: for a power of two of heads
    /// `2^(-8 (head + 1) / heads)`. Otherwise the first heads have the slopes of the next lower power of two, the others every
    /// second slope of the next higher one.
    pub fn slope(&self, head: usize, heads: usize) -> f64 {
        if !self.alibi {
            return 0.0;
        }
        let [first, heads] = self.layer_heads(heads);
        let head = first + head;
        let lower = Self::lower_power(heads);
        let exponent = match head.checked_sub(lower) {
            None => 8.0 * (head + 1) as f64 / lower as f64,
            Some(other) => 4.0 * (2 * other + 1) as f64 / lower as f64,
        };
        (-exponent).exp2()
    }

    /// Returns the score of a query and a key with this product, before ALiBi, and its derivative by the product.
    pub fn capped(&self, product: f64) -> (f64, f64) {
        let (scale, cap) = (f64::from(self.scale), f64::from(self.cap));
        if cap == 0.0 {
            return (product * scale, scale);
        }
        let t = (product * scale / cap).tanh();
        (cap * t, scale * (1.0 - t * t))
    }

    /// Returns the largest power of two that is not above `heads`.
    pub fn lower_power(heads: usize) -> usize {
        1 << heads.max(1).ilog2()
    }

    /// Returns the multiplications and additions of `products` products of tiles of scores, and of the softmax between
    /// them. Scores that no query sees are not computed.
    pub fn flops(&self, sizes: AttendSizes, products: u64) -> u64 {
        let pairs =
            self.band.pairs(sizes.rows, sizes.cols).saturating_mul((sizes.batch * sizes.heads) as u64);
        pairs.saturating_mul(2 * products * sizes.size as u64 + 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_count_what_they_see() {
        for (causal, window) in
            [(false, None), (true, None), (false, Some(1)), (true, Some(3)), (false, Some(4))]
        {
            for offset in (0..5).filter(|&offset| window.is_none_or(|window| offset < window)) {
                counts_what_it_sees(causal, window, offset);
            }
        }
    }

    fn counts_what_it_sees(causal: bool, window: Option<usize>, offset: usize) {
        let band = Band::new(causal, window).moved(offset);
        for (rows, cols) in [(1, 1), (9, 9), (4, 9), (9, 8), (1, 7)] {
            let sees = |i: usize, j: usize| {
                let at = offset + i;
                (!causal || j <= at) && window.is_none_or(|window| at.abs_diff(j) < window)
            };
            let mut pairs = 0;
            for i in 0..rows {
                let wanted: Vec<usize> = (0..cols).filter(|&j| sees(i, j)).collect();
                assert_eq!(band.seen(i, cols).collect::<Vec<_>>(), wanted, "{band:?}: {i} of {cols}");
                pairs += wanted.len();
            }
            for j in 0..cols {
                let wanted: Vec<usize> = (0..rows).filter(|&i| sees(i, j)).collect();
                assert_eq!(band.transposed().seen(j, rows).collect::<Vec<_>>(), wanted, "{band:?}: {j}");
            }
            if band.seen(rows - 1, cols).is_empty() {
                continue;
            }
            assert_eq!(band.pairs(rows, cols), pairs as u64, "{band:?} of {rows} and {cols}");
            for (own, tile) in [(4, 2), (2, 4), (3, 3)] {
                let seen = |start: usize| {
                    let end = (start + own).min(rows) - 1;
                    band.seen(end, cols).end.div_ceil(tile) - band.seen(start, cols).start / tile
                };
                let most = (0..rows).step_by(own).map(seen).max().expect("a row");
                let bound = band.tiles(own, tile, cols);
                assert!(most <= bound, "{band:?}: {bound} tiles, {most} needed");
                // The bound of a window is that of own rows in its middle.
                assert!(
                    window.is_none() || rows < 9 || bound <= most + 1,
                    "{band:?}: {bound} tiles, {most} needed"
                );
            }
        }
    }

    /// The slopes of the published code for 8, 3 and 12 heads.
    #[test]
    fn slopes_are_the_published_ones() {
        let attend = Attend {
            packed: None,
            band: Band::ALL,
            documents: false,
            offset: 0,
            alibi: true,
            scale: 1.0,
            cap: 0.0,
            dropout: 0.0,
            key: 0,
            heads_of: None,
        };
        let slopes = |heads: usize| (0..heads).map(|head| attend.slope(head, heads)).collect::<Vec<_>>();
        assert_eq!(slopes(8), (1..9).map(|i| 0.5f64.powi(i)).collect::<Vec<_>>());
        assert_eq!(slopes(3), [1.0 / 16.0, 1.0 / 256.0, 0.25]);
        assert_eq!(slopes(12)[7..11], [1.0 / 256.0, 0.5f64.powf(0.5), 0.5f64.powf(1.5), 0.5f64.powf(2.5)]);
    }
}
