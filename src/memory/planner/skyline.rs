//! Packing from the ground up: always the item that can lie lowest, ties by rank.
//!
//! Every packing can be pushed down until each item lies on the ground or on another one, and then be built in
//! the order of offsets; so some ranking leads to an optimum. This is the greedy dive of MiniMalloc's search
//! (Moffitt, ASPLOS 2023, doi 10.1145/3623278.3624752).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::budget::Budget;
use super::greedy::Layout;
use super::instance::Instance;

/// Packs all items of a modest `instance` into one chunk; a lower rank wins at equal offsets. `None` if the budget ends.
pub(super) fn pack(instance: &Instance, rank: &[u32], budget: &mut Budget) -> Option<Layout> {
    let n = instance.len();
    let mut layout = Layout { chunk: vec![0; n], offset: vec![0; n], heights: vec![0] };
    let mut floors = Floors::new(instance.slices);
    let mut queue = Queue::new(instance.slices);
    for (i, &rank) in rank.iter().enumerate() {
        match instance.fixed[i] {
            Some(offset) => {
                layout.offset[i] = offset;
                layout.heights[0] = layout.heights[0].max(offset + instance.size[i]);
            }
            None => queue.timed.push(Reverse((instance.lift(i, 0), rank, i as u32))),
        }
    }
    let cost = look_cost(instance);
    while let Some(look) = queue.next(&floors) {
        let i = look.item as usize;
        let width = u64::from(instance.last[i] - instance.first[i]);
        if !budget.spend(cost + width / 2 + MOVE_COST * std::mem::take(&mut queue.moves)) {
            return None;
        }
        let (floor, slice) = floors.over(instance.first[i], instance.last[i]);
        let offset = if floor > queue.level { floor } else { instance.lift(i, queue.level) };
        if floor > queue.level {
            queue.wait(look, floor, slice);
        } else if offset > queue.level {
            queue.timed.push(Reverse((offset, look.rank, look.item)));
        } else {
            layout.offset[i] = offset;
            layout.heights[0] = layout.heights[0].max(offset + instance.size[i]);
            if instance.size[i] > 0 {
                floors.set(instance.first[i], instance.last[i], offset + instance.padded(i));
            }
        }
        queue.reopen(look, &floors);
    }
    Some(layout)
}

/// An item to look at, and the slice it waited at, if it did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Look {
    rank: u32,
    item: u32,
    slice: Option<u32>,
}

/// Unplaced items, by where they may go next.
///
/// An item is looked at when the lowest level still open reaches its place. Until then it waits at a slice that
/// holds it up. Of those that wait at one slice only the first in rank is looked at: if it is placed it holds up the others,
/// which need not be touched.
struct Queue {
    /// The offset at which items are being placed.
    level: u64,
    /// What may lie at the level, first in rank on top.
    ready: BinaryHeap<Reverse<Look>>,
    /// By slice: items held up there, rank before item.
    waiting: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    /// By slice: whether it is in `slices`, or its first item in `ready`.
    listed: Vec<bool>,
    /// Slices where items wait, by a floor that they have or had.
    slices: BinaryHeap<Reverse<(u64, u32)>>,
    /// Items with a place of their own to wait for: offset, rank, item.
    timed: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// How often a slice was listed again at a higher floor since this was last asked.
    moves: u64,
}

impl Queue {
    fn new(slices: usize) -> Self {
        Self {
            level: 0,
            ready: BinaryHeap::new(),
            waiting: vec![BinaryHeap::new(); slices],
            listed: vec![false; slices],
            slices: BinaryHeap::new(),
            timed: BinaryHeap::new(),
            moves: 0,
        }
    }

    /// Lets an item wait at `slice`, whose floor is `floor`.
    fn wait(&mut self, look: Look, floor: u64, slice: usize) {
        self.waiting[slice].push(Reverse((look.rank, look.item)));
        if !std::mem::replace(&mut self.listed[slice], true) {
            self.slices.push(Reverse((floor, slice as u32)));
        }
    }

    /// Lists the slice that `look` came from again, if others wait there.
    fn reopen(&mut self, look: Look, floors: &Floors) {
        let Some(slice) = look.slice else { return };
        if self.waiting[slice as usize].is_empty() {
            self.listed[slice as usize] = false;
            return;
        }
        let floor = floors.at(slice);
        if floor > self.level {
            self.slices.push(Reverse((floor, slice)));
        } else {
            self.open(slice);
        }
    }

    fn open(&mut self, slice: u32) {
        if let Some(Reverse((rank, item))) = self.waiting[slice as usize].pop() {
            self.ready.push(Reverse(Look { rank, item, slice: Some(slice) }));
        }
    }

    /// The next item to look at; the level rises when nothing more can lie at it.
    fn next(&mut self, floors: &Floors) -> Option<Look> {
        loop {
            let Some(Reverse(look)) = self.ready.pop() else {
                if !self.rise(floors) {
                    return None;
                }
                continue;
            };
            let floor = look.slice.map_or(self.level, |slice| floors.at(slice));
            match look.slice {
                // What was placed since the slice was opened holds up all that wait there.
                Some(slice) if floor > self.level => {
                    self.waiting[slice as usize].push(Reverse((look.rank, look.item)));
                    self.slices.push(Reverse((floor, slice)));
                }
                _ => return Some(look),
            }
        }
    }

    /// Raises the level to the lowest place anything waits for, and makes ready what waits for it. False if nothing waits.
    fn rise(&mut self, floors: &Floors) -> bool {
        let mut lowest = None;
        let timed = self.timed.peek().map(|Reverse((offset, ..))| *offset);
        loop {
            let Some(mut top) = self.slices.peek_mut() else { break };
            let Reverse((floor, slice)) = *top;
            if lowest.or(timed).is_some_and(|at_most| floor > at_most) {
                break;
            }
            let now = floors.at(slice);
            if now > floor {
                *top = Reverse((now, slice));
                self.moves += 1;
                continue;
            }
            PeekMut::pop(top);
            lowest = Some(floor);
            self.open(slice);
        }
        while let Some(&Reverse((offset, rank, item))) = self.timed.peek() {
            if lowest.is_some_and(|lowest| offset > lowest) {
                break;
            }
            lowest = Some(offset);
            self.timed.pop();
            self.ready.push(Reverse(Look { rank, item, slice: None }));
        }
        self.level = lowest.unwrap_or(self.level);
        lowest.is_some()
    }
}

/// Units of work for listing a slice again.
const MOVE_COST: u64 = 200;

/// Units of work for looking at one item once.
pub(super) fn look_cost(instance: &Instance) -> u64 {
    100 * u64::from(instance.slices.ilog2() + 1)
}

/// A height per slice: set over a range, maximum over a range, both in logarithmic time.
struct Floors {
    leaves: usize,
    /// By node: the maximum over its span.
    highest: Vec<u64>,
    /// By node: whether its whole span has one height, so that what is stored below is out of date.
    level: Vec<bool>,
    /// By slice: its height.
    heights: Vec<u64>,
}

impl Floors {
    fn new(slices: usize) -> Self {
        let leaves = slices.next_power_of_two();
        Self {
            leaves,
            highest: vec![0; 2 * leaves],
            level: vec![false; 2 * leaves],
            heights: vec![0; slices],
        }
    }

    fn set(&mut self, first: u32, last: u32, height: u64) {
        self.heights[first as usize..last as usize].fill(height);
        self.set_within(1, (0, self.leaves), (first as usize, last as usize), height);
    }

    fn set_within(&mut self, node: usize, span: (usize, usize), range: (usize, usize), height: u64) {
        if range.0 <= span.0 && span.1 <= range.1 {
            self.highest[node] = height;
            self.level[node] = true;
            return;
        }
        if std::mem::take(&mut self.level[node]) {
            for child in [2 * node, 2 * node + 1] {
                self.highest[child] = self.highest[node];
                self.level[child] = true;
            }
        }
        let middle = usize::midpoint(span.0, span.1);
        if range.0 < middle {
            self.set_within(2 * node, (span.0, middle), range, height);
        }
        if range.1 > middle {
            self.set_within(2 * node + 1, (middle, span.1), range, height);
        }
        self.highest[node] = self.highest[2 * node].max(self.highest[2 * node + 1]);
    }

    fn at(&self, slice: u32) -> u64 {
        self.heights[slice as usize]
    }

    /// The maximum over `[first, last)` and a slice that has it.
    fn over(&self, first: u32, last: u32) -> (u64, usize) {
        self.over_within(1, (0, self.leaves), (first as usize, last as usize))
    }

    fn over_within(&self, node: usize, span: (usize, usize), range: (usize, usize)) -> (u64, usize) {
        if self.level[node] {
            return (self.highest[node], span.0.max(range.0));
        }
        if range.0 <= span.0 && span.1 <= range.1 {
            return (self.highest[node], self.slice_of_highest(node, span));
        }
        let middle = usize::midpoint(span.0, span.1);
        if range.1 <= middle {
            return self.over_within(2 * node, (span.0, middle), range);
        }
        if range.0 >= middle {
            return self.over_within(2 * node + 1, (middle, span.1), range);
        }
        let left = self.over_within(2 * node, (span.0, middle), range);
        let right = self.over_within(2 * node + 1, (middle, span.1), range);
        if left.0 >= right.0 { left } else { right }
    }

    fn slice_of_highest(&self, mut node: usize, span: (usize, usize)) -> usize {
        let (mut low, mut high) = span;
        while !self.level[node] && high - low > 1 {
            let middle = usize::midpoint(low, high);
            let goes_left = self.highest[2 * node] >= self.highest[2 * node + 1];
            (low, high) = if goes_left { (low, middle) } else { (middle, high) };
            node = 2 * node + usize::from(!goes_left);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Item;
    use super::*;

    #[test]
    fn floors_agree_with_an_array() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut floors = Floors::new(11);
        let mut array = [0u64; 11];
        for _ in 0..500 {
            let first = draw(11) as u32;
            let last = first + 1 + draw(u64::from(11 - first)) as u32;
            let range = first as usize..last as usize;
            let (highest, slice) = floors.over(first, last);
            assert_eq!(highest, *array[range.clone()].iter().max().expect("not empty"));
            assert!(range.contains(&slice) && array[slice] == highest);
            let height = draw(100);
            floors.set(first, last, height);
            array[range].fill(height);
            assert_eq!(floors.at(first), height);
        }
    }

    #[test]
    fn the_lowest_place_goes_first_and_fixed_items_are_stepped_over() {
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
