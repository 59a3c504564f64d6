//! Rotary position embedding, with angles computed directly from the formula.

use super::Array;
use crate::graph::Rope;

pub(super) fn rotary(x: Array, heads: usize, rope: &Rope, back: bool) -> Vec<f64> {
    let [_, positions, all_heads, columns] = *x.shape.dims() else { unreachable!("inferred") };
    let half = columns / 2;
    let mut y = x.data.to_vec();
    for (i, head) in y.chunks_mut(columns.max(1)).enumerate() {
        if i % all_heads >= heads {
            continue;
        }
        let position = (i / all_heads % positions) as f64;
        for c in 0..half {
            let angle = position * rope.frequency(c, columns);
            let (sin, cos) = if back { (-angle).sin_cos() } else { angle.sin_cos() };
            (head[c], head[c + half]) =
                (head[c] * cos - head[c + half] * sin, head[c + half] * cos + head[c] * sin);
        }
    }
    y
}
