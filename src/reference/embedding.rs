//! Embedding and its gradient.

use super::Array;
use crate::graph::Share;

/// Returns the row of an id; the last row for an id out of range.
fn row(id: f64, rows: usize) -> usize {
    (id as usize).min(rows - 1)
}

pub(super) fn embedding(table: Array, ids: Array) -> Vec<f64> {
    let columns = table.shape.last();
    let rows = table.data.len() / columns;
    let one = |&id: &f64| {
        let start = row(id, rows) * columns;
        &table.data[start..start + columns]
    };
    ids.data.iter().flat_map(one).copied().collect()
}

pub(super) fn grad(
    ids: Array,
    dy: Array,
    earlier: Option<Array>,
    rows: usize,
    share: Option<Share>,
) -> Vec<f64> {
    let columns = dy.shape.last();
    let mut table = vec![0.0; rows * columns];
    let own = share.map_or(0..table.len(), |Share { start, len }| start as usize..(start + len) as usize);
    if let Some(earlier) = earlier {
        table[own.clone()].copy_from_slice(earlier.data);
    }
    for (&id, dy) in ids.data.iter().zip(dy.data.chunks(columns)) {
        let start = row(id, rows) * columns;
        table[start..start + columns].iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
    }
    table[own].to_vec()
}
