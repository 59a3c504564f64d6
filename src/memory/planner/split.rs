//! Distributes items that exceed one buffer among several buffers. The fullest instant should fill each of
//! them, so that their heights add up to the bound where possible.

use std::cmp::Reverse;

use super::greedy::Layout;
use super::instance::Instance;
use super::order::live_bytes;

/// Returns the chunk of each item, or `None` if an item does not fit any chunk. Chunk 0 holds the fixed
/// items.
pub(super) fn deal(instance: &Instance, limit: u64) -> Option<Vec<u32>> {
    let live = live_bytes(instance);
    let peak = (0..instance.slices).max_by_key(|&slice| (live[slice], Reverse(slice)))?;
    let mut chunks =
        Chunks { instance, limit, live: Vec::new(), tops: Vec::new(), of: vec![0; instance.len()] };
    for i in (0..instance.len()).filter(|&i| instance.fixed[i].is_some()) {
        chunks.put(i, 0);
    }
    let mut order: Vec<usize> = instance.movable().collect();
    let width = |i: usize| instance.last[i] - instance.first[i];
    // The items alive at the peak decide the heights. The longest-lived ones go together, which fills their
    // buffer evenly over time.
    order.sort_by_key(|&i| {
        let area = u128::from(instance.padded(i)) * u128::from(width(i));
        (
            !instance.span(i).contains(&peak),
            Reverse(if instance.span(i).contains(&peak) { width(i).into() } else { area }),
            i,
        )
    });
    for i in order {
        let chunk = chunks.choose(i, instance.span(i).contains(&peak))?;
        chunks.put(i, chunk);
    }
    Some(chunks.of)
}

struct Chunks<'a> {
    instance: &'a Instance,
    limit: u64,
    /// By chunk: bytes alive in each slice.
    live: Vec<Vec<u64>>,
    /// By chunk: most bytes alive in any slice.
    tops: Vec<u64>,
    of: Vec<u32>,
}

impl Chunks<'_> {
    /// Returns the last chunk that need not grow, else the one that grows least. An item alive at the peak
    /// makes chunks grow in any case, so it goes to the last chunk with room: shorter-lived items then share
    /// the last chunk.
    fn choose(&self, i: usize, at_peak: bool) -> Option<usize> {
        let size = self.instance.padded(i);
        let mut least: Option<(u64, usize)> = None;
        for chunk in (0..self.tops.len()).rev() {
            let below = self.live[chunk][self.instance.span(i)].iter().max().copied().unwrap_or(0);
            let top = below.checked_add(size)?;
            if top > self.limit {
                continue;
            }
            let growth = top.saturating_sub(self.tops[chunk]);
            if at_peak || growth == 0 {
                return Some(chunk);
            }
            if least.is_none_or(|(known, _)| growth < known) {
                least = Some((growth, chunk));
            }
        }
        match least {
            Some((_, chunk)) => Some(chunk),
            None => (size <= self.limit).then_some(self.tops.len()),
        }
    }

    fn put(&mut self, i: usize, chunk: usize) {
        if chunk == self.tops.len() {
            self.live.push(vec![0; self.instance.slices]);
            self.tops.push(0);
        }
        for bytes in &mut self.live[chunk][self.instance.span(i)] {
            *bytes += self.instance.padded(i);
            self.tops[chunk] = self.tops[chunk].max(*bytes);
        }
        self.of[i] = chunk as u32;
    }
}

/// Combines the layouts of the chunks into one layout. Each part holds its items' positions and a layout with
/// a single chunk.
pub(super) fn join(items: usize, parts: &[(Vec<usize>, Layout)]) -> Layout {
    let mut whole = Layout { chunk: vec![0; items], offset: vec![0; items], heights: Vec::new() };
    for (chunk, (members, part)) in parts.iter().enumerate() {
        for (position, &i) in members.iter().enumerate() {
            whole.chunk[i] = chunk as u32;
            whole.offset[i] = part.offset[position];
        }
        whole.heights.push(part.heights[0]);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::super::problem::Item;
    use super::*;

    #[test]
    fn short_lived_items_share_a_chunk_and_heights_add_up_to_the_peak() {
        let items = [
            Item::new("weights", 0, 9, 6),
            Item::new("more weights", 0, 9, 5),
            Item::new("early", 0, 4, 3),
            Item::new("peak", 4, 6, 4),
            Item::new("late", 6, 9, 4),
        ];
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        assert_eq!(deal(&instance, 10), Some(vec![0, 1, 1, 1, 1]));
        assert_eq!(deal(&instance, 5), None);
    }
}
