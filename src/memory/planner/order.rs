//! Orders in which greedy packing takes the items.

use std::cmp::Reverse;
use std::fmt;

use super::instance::Instance;

/// What greedy packing looks at first; ties go to the larger, then the earlier item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Largest size first.
    Size,
    /// Largest size × lifetime first.
    Area,
    /// Longest lifetime first.
    Lifetime,
    /// Items alive at the fullest instant first ("greedy by breadth", Pisarchyk & Lee 2020, arXiv 2001.03288).
    Breadth,
    /// Items alive together with the most others first (as in TVM's unified static memory planner).
    Conflicts,
    /// As they come to life.
    Time,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Size => "size",
            Order::Area => "area",
            Order::Lifetime => "lifetime",
            Order::Breadth => "breadth",
            Order::Conflicts => "conflicts",
            Order::Time => "time",
        })
    }
}

impl Order {
    /// Every order, those that win most often first.
    pub(super) const ALL: [Order; 6] =
        [Order::Size, Order::Area, Order::Lifetime, Order::Breadth, Order::Conflicts, Order::Time];

    /// Positions of all items, first to pack first.
    pub(super) fn of(self, instance: &Instance) -> Vec<u32> {
        let lifetime = |i: usize| u128::from(instance.last[i] - instance.first[i]);
        let size = |i: usize| u128::from(instance.size[i]);
        let key: Vec<u128> = match self {
            Order::Size => (0..instance.len()).map(size).collect(),
            Order::Area => (0..instance.len()).map(|i| size(i) * lifetime(i)).collect(),
            Order::Lifetime => (0..instance.len()).map(lifetime).collect(),
            Order::Breadth => breadth(instance),
            Order::Conflicts => conflicts(instance),
            Order::Time => (0..instance.len()).map(|i| u128::from(u32::MAX - instance.first[i])).collect(),
        };
        let mut order: Vec<u32> = (0..instance.len() as u32).collect();
        order.sort_by_key(|&i| {
            let i = i as usize;
            (Reverse(key[i]), Reverse(instance.size[i]), instance.first[i], Reverse(instance.last[i]), i)
        });
        order
    }
}

/// Bytes alive in each slice.
pub(super) fn live_bytes(instance: &Instance) -> Vec<u128> {
    let mut change = vec![0i128; instance.slices + 1];
    for i in 0..instance.len() {
        change[instance.first[i] as usize] += i128::from(instance.size[i]);
        change[instance.last[i] as usize] -= i128::from(instance.size[i]);
    }
    let mut live = 0;
    change.pop();
    change
        .iter()
        .map(|delta| {
            live += delta;
            live as u128
        })
        .collect()
}

/// Rank of the fullest slice of each item: higher is fuller.
fn breadth(instance: &Instance) -> Vec<u128> {
    let live = live_bytes(instance);
    let mut by_load: Vec<usize> = (0..instance.slices).collect();
    by_load.sort_by_key(|&slice| (Reverse(live[slice]), slice));
    let mut rank = vec![0u128; instance.slices];
    for (position, &slice) in by_load.iter().enumerate() {
        rank[slice] = (instance.slices - position) as u128;
    }
    let tallest = RangeMax::new(&rank);
    (0..instance.len()).map(|i| tallest.over(instance.first[i] as usize, instance.last[i] as usize)).collect()
}

/// Number of items that each item is alive together with: all, less those that end before it and those that start after.
fn conflicts(instance: &Instance) -> Vec<u128> {
    let (mut started, mut ended) = (vec![0u128; instance.slices + 1], vec![0u128; instance.slices + 1]);
    for i in 0..instance.len() {
        started[instance.first[i] as usize] += 1;
        ended[instance.last[i] as usize] += 1;
    }
    for slice in 0..instance.slices {
        started[slice + 1] += started[slice];
        ended[slice + 1] += ended[slice];
    }
    (0..instance.len())
        .map(|i| started[instance.last[i] as usize - 1] - ended[instance.first[i] as usize])
        .collect()
}

/// Sparse table for the maximum over a range of slices in O(1).
struct RangeMax(Vec<Vec<u128>>);

impl RangeMax {
    fn new(values: &[u128]) -> Self {
        let mut levels = vec![values.to_vec()];
        let mut width = 1;
        while 2 * width <= values.len() {
            let below = &levels[levels.len() - 1];
            let level = (0..=values.len() - 2 * width).map(|i| below[i].max(below[i + width])).collect();
            levels.push(level);
            width *= 2;
        }
        Self(levels)
    }

    /// Maximum over the non-empty range `[first, last)`.
    fn over(&self, first: usize, last: usize) -> u128 {
        let level = (last - first).ilog2() as usize;
        self.0[level][first].max(self.0[level][last - (1 << level)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Item;
    use super::*;

    #[test]
    fn orders_differ_as_named() {
        let items = [
            Item::new("big", 5, 6, 100),
            Item::new("long", 0, 9, 3),
            Item::new("early", 0, 2, 60),
            Item::new("mid", 1, 3, 70),
        ];
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        let first = |order: Order| order.of(&instance)[0];
        assert_eq!(first(Order::Size), 0);
        assert_eq!(first(Order::Area), 0);
        assert_eq!(first(Order::Lifetime), 1);
        assert_eq!(first(Order::Conflicts), 1);
        assert_eq!(Order::Time.of(&instance), [3, 2, 1, 0]);
        assert_eq!(Order::Breadth.of(&instance), [3, 2, 1, 0]);
    }
}
