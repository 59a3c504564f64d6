//! Greedy packing: places items one by one in a given order, each into a gap between the items already
//! placed.

use std::fmt;

use super::instance::Instance;
use super::occupancy::Occupancy;

/// Which gap an item goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The lowest that holds it.
    First,
    /// The smallest that holds it; above all items if no gap holds it.
    Best,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fit::First => "first fit",
            Fit::Best => "best fit",
        })
    }
}

/// Places of all items of an instance. Chunk 0 is the arena itself; further chunks are added when a limit is
/// reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Chunk of each item.
    pub chunk: Vec<u32>,
    /// Offset of each item in its chunk, in bytes.
    pub offset: Vec<u64>,
    /// Height of each chunk in bytes.
    pub heights: Vec<u64>,
}

impl Layout {
    /// Returns the sum of the heights of all chunks, saturating.
    pub(super) fn height(&self) -> u64 {
        self.heights.iter().fold(0, |sum, height| sum.saturating_add(*height))
    }
}

/// Packs all items of `instance` in `order`; `limit` is the largest height of a chunk. Fixed items are placed
/// first, at their offsets. Returns `None` if an offset does not fit 64 bits or an item does not fit any
/// chunk.
pub(super) fn pack(instance: &Instance, order: &[u32], fit: Fit, limit: Option<u64>) -> Option<Layout> {
    let height = limit.unwrap_or(u64::MAX);
    let n = instance.len();
    let mut layout = Layout { chunk: vec![0; n], offset: vec![0; n], heights: vec![0] };
    let mut chunks = vec![Occupancy::new(instance.slices)];
    for (i, offset) in instance.fixed.iter().enumerate() {
        if let Some(offset) = *offset {
            put(instance, i, 0, offset, &mut chunks, &mut layout)?;
        }
    }
    for &i in order {
        let i = i as usize;
        if instance.fixed[i].is_some() {
            continue;
        }
        let request = instance.request(i, fit, height);
        let mut chunk = 0;
        let offset = loop {
            if let Some(offset) = chunks[chunk].room(0, request) {
                break offset;
            }
            // An item that does not fit an empty chunk does not fit any.
            if limit.is_none() || layout.heights[chunk] == 0 {
                return None;
            }
            chunk += 1;
            if chunk == chunks.len() {
                chunks.push(Occupancy::new(instance.slices));
                layout.heights.push(0);
            }
        };
        put(instance, i, chunk, offset, &mut chunks, &mut layout)?;
    }
    Some(layout)
}

fn put(
    instance: &Instance,
    i: usize,
    chunk: usize,
    offset: u64,
    chunks: &mut [Occupancy],
    layout: &mut Layout,
) -> Option<()> {
    let top = offset.checked_add(instance.size[i])?;
    layout.chunk[i] = chunk as u32;
    layout.offset[i] = offset;
    layout.heights[chunk] = layout.heights[chunk].max(top);
    if instance.size[i] > 0 {
        chunks[chunk].take(instance.first[i], instance.last[i], offset, top);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::problem::Item;
    use super::*;

    fn packed(items: &[Item], fit: Fit, limit: Option<u64>) -> Option<Layout> {
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        let order: Vec<u32> = (0..items.len() as u32).collect();
        pack(&instance, &order, fit, limit)
    }

    #[test]
    fn first_fit_takes_the_lowest_gap_and_best_fit_the_tightest() {
        let items = [
            Item::new("floor", 0, 2, 10),
            Item::new("wide gap", 0, 2, 8),
            Item::new("shelf", 0, 2, 10),
            Item::new("tight gap", 0, 2, 4),
            Item::new("roof", 0, 2, 10),
            Item::new("late", 2, 3, 4),
        ];
        let mut fixed: Vec<Item> = items[..5].to_vec();
        for (item, offset) in fixed.iter_mut().zip([0, 10, 18, 28, 32]) {
            item.fixed = Some(super::super::problem::Placement { arena: 0, offset });
        }
        fixed.retain(|item| !item.name.ends_with("gap"));
        fixed.push(Item::new("new", 1, 2, 3).aligned(2));
        let offset = |fit| packed(&fixed, fit, None).map(|layout| layout.offset[3]);
        assert_eq!(offset(Fit::First), Some(10));
        assert_eq!(offset(Fit::Best), Some(28));
    }

    #[test]
    fn a_limit_opens_further_chunks() {
        let items = [Item::new("a", 0, 2, 6), Item::new("b", 0, 2, 6), Item::new("c", 1, 2, 4)];
        let layout = packed(&items, Fit::First, Some(10)).expect("each item fits a chunk");
        assert_eq!(layout.chunk, [0, 1, 0]);
        assert_eq!(layout.heights, [10, 6]);
        assert_eq!(packed(&items, Fit::First, Some(5)), None);
    }

    #[test]
    fn sizes_near_64_bits_do_not_wrap() {
        let giant = |lower, upper| Item::new("g", lower, upper, u64::MAX - 3).aligned(4);
        assert_eq!(packed(&[giant(0, 2), giant(1, 2)], Fit::Best, None), None);
        let apart = packed(&[giant(0, 1), giant(1, 2)], Fit::First, None).expect("they never meet");
        assert_eq!(apart.height(), u64::MAX - 3);
    }
}
