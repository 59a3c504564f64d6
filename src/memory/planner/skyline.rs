//! Skyline packing, from offset 0 upwards: always places the item that can lie lowest; ties are broken by
//! rank.
//!
//! Every packing can be pushed down until each item lies at offset 0 or on another item, and can then be
//! built in the order of offsets. So some ranking leads to an optimum. This is the greedy dive of
//! MiniMalloc's search (Moffitt, ASPLOS 2023, doi 10.1145/3623278.3624752).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::budget::Budget;
use super::floors::{Floors, NO_ONE};
use super::greedy::Layout;
use super::instance::Instance;

/// Packs all items of `instance` into one chunk; among items that can lie equally low, the first in `order`
/// is placed first. The instance must be modest (`Instance::is_modest`). Returns `None` if the budget runs
/// out.
pub(super) fn pack(instance: &Instance, order: &[u32], budget: &mut Budget) -> Option<Layout> {
    let n = instance.len();
    let mut layout = Layout { chunk: vec![0; n], offset: vec![0; n], heights: vec![0] };
    let mut queue = Queue::new(instance, order);
    for (i, offset) in instance.fixed.iter().enumerate() {
        if let Some(offset) = *offset {
            layout.offset[i] = offset;
            layout.heights[0] = layout.heights[0].max(offset + instance.size[i]);
        }
    }
    let cost = look_cost(instance);
    if !budget.spend(SETUP_COST * n as u64) {
        return None;
    }
    while let Some((level, look)) = queue.next() {
        if !budget.spend(cost) {
            return None;
        }
        let i = order[look.rank as usize] as usize;
        let (floor, slice) = queue.floors.highest(instance.first[i], instance.last[i]);
        if floor > level {
            queue.leave(look);
            queue.wait(look.rank, slice);
            continue;
        }
        let offset = instance.lift(i, level);
        if offset > level {
            queue.leave(look);
            queue.wait_for(look.rank, offset);
            continue;
        }
        layout.offset[i] = offset;
        layout.heights[0] = layout.heights[0].max(offset + instance.size[i]);
        if instance.size[i] > 0 {
            queue.floors.raise(instance.first[i], instance.last[i], offset + instance.padded(i));
        }
        queue.follow(look, slice);
    }
    Some(layout)
}

/// An item to try, and the slice that it waits at, or `NOWHERE`.
#[derive(Clone, Copy)]
struct Look {
    rank: u32,
    slice: u32,
}

/// Unplaced items, by the lowest offset where they may lie next.
///
/// Each item waits at a slice of its lifetime whose floor keeps it from lying lower. Of the items that wait
/// at the lowest floor, the first in rank is tried: either it can be placed, or it moves to a slice with a
/// higher floor. Of items of the same kin only the first is queued.
struct Queue {
    floors: Floors,
    /// By slice: ranks of the items that wait there.
    waiting: Vec<BinaryHeap<Reverse<u32>>>,
    /// By rank: the slice where it waits, or `NOWHERE`.
    place: Vec<u32>,
    /// By rank: the next item of the same kin, or `NO_ONE`.
    follower: Vec<u32>,
    /// Items that wait for an offset rather than at a slice: offset, rank.
    timed: BinaryHeap<Reverse<(u64, u32)>>,
}

const NOWHERE: u32 = u32::MAX;

impl Queue {
    fn new(instance: &Instance, order: &[u32]) -> Self {
        let mut waiting: Vec<Vec<Reverse<u32>>> = vec![Vec::new(); instance.slices];
        let mut place = vec![NOWHERE; order.len()];
        let mut follower = vec![NO_ONE; order.len()];
        let mut latest = vec![NO_ONE; order.len()];
        for (rank, &i) in order.iter().enumerate() {
            let i = i as usize;
            if instance.fixed[i].is_some() {
                continue;
            }
            match std::mem::replace(&mut latest[instance.kin[i] as usize], rank as u32) {
                NO_ONE => {
                    place[rank] = instance.first[i];
                    waiting[instance.first[i] as usize].push(Reverse(rank as u32));
                }
                before => follower[before as usize] = rank as u32,
            }
        }
        let first: Vec<u32> =
            waiting.iter().map(|ranks| ranks.first().map_or(NO_ONE, |Reverse(rank)| *rank)).collect();
        let waiting = waiting.into_iter().map(BinaryHeap::from).collect();
        Self { floors: Floors::new(&first), waiting, place, follower, timed: BinaryHeap::new() }
    }

    /// Returns the lowest offset at which an item may lie next, and the first item to try there.
    fn next(&self) -> Option<(u64, Look)> {
        let waits = self.floors.lowest();
        let timed = self.timed.peek().map(|Reverse(timed)| *timed);
        let (level, rank) = match (waits, timed) {
            (Some(waits), Some(timed)) => waits.min(timed),
            (waits, timed) => waits.or(timed)?,
        };
        Some((level, Look { rank, slice: self.place[rank as usize] }))
    }

    /// Removes an item from the place where it waits.
    fn leave(&mut self, look: Look) {
        if look.slice == NOWHERE {
            self.timed.pop();
            return;
        }
        // `next` returned it, so it is the first in this heap.
        self.waiting[look.slice as usize].pop();
        self.note(look.slice);
    }

    /// Removes an item that was placed, and queues the next item of the same kin.
    fn follow(&mut self, look: Look, slice: u32) {
        let next = self.follower[look.rank as usize];
        if next == NO_ONE {
            self.leave(look);
        } else if look.slice == NOWHERE {
            self.timed.pop();
            self.wait(next, slice);
        } else {
            self.waiting[look.slice as usize].pop();
            self.wait(next, look.slice);
        }
    }

    /// Queues an item at `slice`.
    fn wait(&mut self, rank: u32, slice: u32) {
        self.place[rank as usize] = slice;
        self.waiting[slice as usize].push(Reverse(rank));
        self.note(slice);
    }

    /// Queues an item until the lowest level reaches `offset`.
    fn wait_for(&mut self, rank: u32, offset: u64) {
        self.place[rank as usize] = NOWHERE;
        self.timed.push(Reverse((offset, rank)));
    }

    fn note(&mut self, slice: u32) {
        let first = self.waiting[slice as usize].peek().map_or(NO_ONE, |Reverse(rank)| *rank);
        self.floors.await_at(slice, first);
    }
}

/// Units of work per item for sorting the items and setting up.
const SETUP_COST: u64 = 500;

/// Units of work for trying one item once: more when the floors do not fit in a cache.
pub(super) fn look_cost(instance: &Instance) -> u64 {
    130 + (instance.slices as u64 / 128).min(400)
}

#[cfg(test)]
mod tests {
    use super::super::order::Order;
    use super::super::problem::Item;
    use super::*;

    #[test]
    fn work_grows_with_the_items_not_with_their_lifetimes() {
        // Successive training steps with persistent weights, nested activations and short-lived workspaces.
        let (steps, layers) = (40, 100);
        let mut items = Vec::new();
        for step in 0..steps {
            let (start, end) = (4 * layers * step, 4 * layers * (step + 1));
            for layer in 0..layers {
                let size = 64 * (1 + layer * 7 % 13);
                items.push(Item::new("weight", 0, 4 * layers * steps, size));
                items.push(Item::new("activation", start + 2 * layer, end - 2 * layer, 3 * size));
                items.push(Item::new("workspace", start + 2 * layer, start + 2 * layer + 2, size / 2));
            }
        }
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        for order in [Order::BandNest, Order::BandArea, Order::Size] {
            let mut budget = Budget::new(u64::MAX, None);
            assert!(pack(&instance, &order.of(&instance), &mut budget).is_some());
            let looks = (u64::MAX - budget.left()) / look_cost(&instance);
            assert!(looks < 12 * items.len() as u64, "{order}: {looks} looks at {} items", items.len());
        }
    }

    #[test]
    fn lowest_place_is_filled_first_and_fixed_items_are_skipped() {
        let items = [
            Item::new("wide", 0, 4, 10),
            Item::new("left", 0, 2, 5).aligned(4),
            Item::new("held", 2, 4, 6).fixed_at(0, 12),
            Item::new("right", 3, 4, 3),
        ];
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        let layout = pack(&instance, &[0, 1, 2, 3], &mut Budget::new(u64::MAX, None)).expect("no limit");
        assert_eq!(layout.offset, [0, 12, 12, 18]);
        assert_eq!(layout.heights, [21]);
        assert_eq!(pack(&instance, &[0, 1, 2, 3], &mut Budget::new(1, None)), None);
    }
}
