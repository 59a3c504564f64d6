//! Cuts a packing that exceeds one buffer. The items are packed into one line, which is cut at offsets that
//! no item alive at the fullest instant crosses. At each cut stands a wall that the other items must not
//! cross either.

use std::cmp::Reverse;

use super::greedy::Layout;
use super::instance::Instance;
use super::order::live_bytes;

/// Returns the line with a wall at each cut, and the offsets of the walls. Returns `None` if an item is fixed
/// or longer than `limit`, or if alignments differ: an offset that is aligned in the line need not be aligned
/// in its chunk.
pub(super) fn raise_walls(instance: &Instance, line: &Layout, limit: u64) -> Option<(Instance, Vec<u64>)> {
    let apart = |&alignment: &u64| !instance.unit.is_multiple_of(alignment);
    if instance.fixed.iter().any(Option::is_some) || instance.alignment.iter().any(apart) {
        return None;
    }
    let live = live_bytes(instance);
    let peak = (0..instance.slices).max_by_key(|&slice| (live[slice], Reverse(slice)))?;
    let mut ends: Vec<u64> = (0..instance.len())
        .filter(|&i| instance.span(i).contains(&peak))
        .map(|i| line.offset[i] + instance.padded(i))
        .collect();
    ends.sort_unstable();
    let (mut walls, mut from, mut reached) = (Vec::new(), 0, 0);
    for end in ends {
        if end - from > limit {
            if reached == from {
                return None;
            }
            // Each wall below shifts this one up by one unit.
            walls.push(reached + instance.unit * walls.len() as u64);
            from = reached;
        }
        reached = end;
    }
    Some((instance.with_walls(&walls), walls))
}

/// Splits the layout of the walled line into chunks at the walls. Returns `None` if a chunk is higher than
/// `limit`.
pub(super) fn along_walls(instance: &Instance, line: &Layout, walls: &[u64], limit: u64) -> Option<Layout> {
    let mut cut = Layout { chunk: Vec::new(), offset: Vec::new(), heights: vec![0; walls.len() + 1] };
    for i in 0..instance.len() {
        let chunk = walls.partition_point(|&wall| wall < line.offset[i]);
        let floor = if chunk == 0 { 0 } else { walls[chunk - 1] + instance.unit };
        let offset = line.offset[i] - floor;
        cut.heights[chunk] = cut.heights[chunk].max(offset + instance.size[i]);
        cut.chunk.push(chunk as u32);
        cut.offset.push(offset);
    }
    cut.heights.iter().all(|&height| height <= limit).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::super::problem::Item;
    use super::*;

    #[test]
    fn arena_is_cut_where_the_peak_allows() {
        let items = [
            Item::new("weights", 0, 9, 6),
            Item::new("peak", 4, 6, 4),
            Item::new("early", 0, 4, 3),
            Item::new("late", 6, 9, 4),
        ];
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        let line = Layout { chunk: vec![0; 4], offset: vec![0, 6, 6, 6], heights: vec![10] };
        let (walled, walls) = raise_walls(&instance, &line, 7).expect("6 bytes fit");
        assert_eq!((walls.clone(), walled.len()), (vec![6], 5));
        let lifted = Layout { chunk: vec![0; 5], offset: vec![0, 7, 7, 7, 6], heights: vec![11] };
        let cut = along_walls(&instance, &lifted, &walls, 7).expect("both parts are low enough");
        assert_eq!((cut.chunk, cut.offset, cut.heights), (vec![0, 1, 1, 1], vec![0, 0, 0, 0], vec![6, 4]));
        assert!(raise_walls(&instance, &line, 5).is_none());
        let mixed: Vec<Item> = items.into_iter().zip([1, 2, 3, 4]).map(|(item, a)| item.aligned(a)).collect();
        let mixed = Instance::new(&mixed.iter().collect::<Vec<_>>());
        assert!(raise_walls(&mixed, &line, 7).is_none());
    }
}
