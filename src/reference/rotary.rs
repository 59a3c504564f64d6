//! Rotary position embedding, with angles computed directly from the formula.

use super::Array;
use crate::graph::Rope;

/// `inputs`: `x`, and its positions unless they are those along the second axis.
pub(super) fn rotary(inputs: &[Array], heads: usize, rope: &Rope, back: bool) -> Vec<f64> {
    let x = inputs[0];
    let [_, positions, all_heads, columns] = *x.shape.dims() else { unreachable!("inferred") };
    let half = columns / 2;
    let mut y = x.data.to_vec();
    for (i, head) in y.chunks_mut(columns.max(1)).enumerate() {
        if i % all_heads >= heads {
            continue;
        }
        let row = i / all_heads;
        let position = inputs.get(1).map_or((row % positions) as f64, |of| of.data[row]);
        for c in 0..half {
            let angle = position * rope.frequency(c, columns);
            let (sin, cos) = if back { (-angle).sin_cos() } else { angle.sin_cos() };
            (head[c], head[c + half]) =
                (head[c] * cos - head[c + half] * sin, head[c + half] * cos + head[c] * sin);
        }
    }
    y
}
