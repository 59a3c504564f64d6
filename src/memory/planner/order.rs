//! Orders in which items are packed.

use std::cmp::Reverse;
use std::fmt;

use super::instance::Instance;

/// The sort key of the packing order. Ties go to the larger, then the longer-lived, then the earlier item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Largest size first.
    Size,
    /// Largest size × lifetime first.
    Area,
    /// Longest lifetime first.
    Lifetime,
    /// Alive in most slices first: the lifetime is counted in slices rather than in the caller's time.
    Slices,
    /// Items alive at the fullest instant first ("greedy by breadth", Pisarchyk & Lee 2020, arXiv
    /// 2001.03288).
    Breadth,
    /// By breadth; among items with equally full instants, the largest area first ("TAW" of MiniMalloc).
    BreadthArea,
    /// By breadth; among items with equally full instants, the longest first ("TWA" of MiniMalloc).
    BreadthLifetime,
    /// Like `BreadthArea`, but instants in the same band, 1/20 of the peak wide, count as equally full.
    BandArea,
    /// Like `BreadthLifetime`, but instants in the same band, 1/20 of the peak wide, count as equally full.
    BandLifetime,
    /// By the same bands; within a band, the item that reaches farthest to both sides of the fullest instant
    /// first. Nested lifetimes, like those of a forward and a backward pass, are then packed inside one
    /// another.
    BandReach,
    /// Like `BandReach`, but with each item's own fullest instant: items that live around another peak are
    /// nested around that peak.
    BandNest,
    /// Items alive together with the most others first (as in TVM's unified static memory planner).
    Conflicts,
    /// Earliest start of the lifetime first.
    Time,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Size => "size",
            Order::Area => "area",
            Order::Lifetime => "lifetime",
            Order::Slices => "slices",
            Order::Breadth => "breadth",
            Order::BreadthArea => "breadth and area",
            Order::BreadthLifetime => "breadth and lifetime",
            Order::BandArea => "breadth band and area",
            Order::BandLifetime => "breadth band and lifetime",
            Order::BandReach => "breadth band and reach",
            Order::BandNest => "breadth band and nesting",
            Order::Conflicts => "conflicts",
            Order::Time => "time",
        })
    }
}

impl Order {
    /// Returns the positions of all items in packing order.
    pub(super) fn of(self, instance: &Instance) -> Vec<u32> {
        let all = 0..instance.len();
        let width = |i: usize| u128::from(instance.last[i] - instance.first[i]);
        let size = |i: usize| u128::from(instance.size[i]);
        // Sizes and durations of 64 bits each: their product fits.
        let area = |i: usize| size(i) * u128::from(instance.duration[i]);
        let fullest = || fullest_slice(instance);
        let key: Vec<(u128, u128)> = match self {
            Order::Size => all.map(|i| (size(i), 0)).collect(),
            Order::Area => all.map(|i| (area(i), 0)).collect(),
            Order::Lifetime => all.map(|i| (u128::from(instance.duration[i]), area(i))).collect(),
            Order::Slices => all.map(|i| (width(i), area(i))).collect(),
            Order::Breadth => fullest().into_iter().map(|(_, rank)| (rank, 0)).collect(),
            Order::BreadthArea => fullest().iter().enumerate().map(|(i, full)| (full.0, area(i))).collect(),
            Order::BreadthLifetime => {
                fullest().iter().enumerate().map(|(i, full)| (full.0, width(i))).collect()
            }
            Order::BandArea => {
                bands(&fullest()).enumerate().map(|(i, band)| (band, size(i) * width(i))).collect()
            }
            Order::BandLifetime => bands(&fullest()).enumerate().map(|(i, band)| (band, width(i))).collect(),
            Order::BandReach => bands(&fullest()).zip(reach(instance)).collect(),
            Order::BandNest => {
                let fullest = fullest();
                bands(&fullest).zip(nest(instance, &fullest)).collect()
            }
            Order::Conflicts => conflicts(instance).into_iter().map(|count| (count, 0)).collect(),
            Order::Time => all.map(|i| (u128::from(u32::MAX - instance.first[i]), 0)).collect(),
        };
        let mut order: Vec<u32> = (0..instance.len() as u32).collect();
        order.sort_by_key(|&i| {
            let i = i as usize;
            (Reverse(key[i]), Reverse(instance.size[i]), Reverse(instance.duration[i]), instance.first[i], i)
        });
        order
    }
}

/// Returns the inverse of an order: the position of each item in it.
pub(super) fn ranks(order: &[u32]) -> Vec<u32> {
    let mut rank = vec![0; order.len()];
    for (position, &item) in order.iter().enumerate() {
        rank[item as usize] = position as u32;
    }
    rank
}

/// Returns the bytes alive in each slice.
pub(super) fn live_bytes(instance: &Instance) -> Vec<u128> {
    let mut change = vec![0i128; instance.slices + 1];
    for i in 0..instance.len() {
        change[instance.first[i] as usize] += i128::from(instance.size[i]);
        change[instance.last[i] as usize] -= i128::from(instance.size[i]);
    }
    let mut live = 0;
    let running = |delta: &i128| {
        live += delta;
        live as u128
    };
    change[..instance.slices].iter().map(running).collect()
}

/// Returns all slices, the fullest first.
fn by_load(live: &[u128]) -> Vec<usize> {
    let mut slices: Vec<usize> = (0..live.len()).collect();
    slices.sort_unstable_by_key(|&slice| (Reverse(live[slice]), slice));
    slices
}

/// Returns for each item the bytes alive in the fullest of its slices and the rank of that slice: higher is
/// fuller.
fn fullest_slice(instance: &Instance) -> Vec<(u128, u128)> {
    let live = live_bytes(instance);
    let by_load = by_load(&live);
    let mut rank = vec![0u32; instance.slices];
    for (position, &slice) in by_load.iter().enumerate() {
        rank[slice] = (instance.slices - position) as u32;
    }
    let tallest = RangeMax::new(&rank);
    let of_item = |i: usize| {
        let rank = tallest.over(instance.first[i] as usize, instance.last[i] as usize);
        (live[by_load[instance.slices - rank as usize]], u128::from(rank))
    };
    (0..instance.len()).map(of_item).collect()
}

/// Returns the bytes alive in the fullest slice of each item, in units of 1/20 of the peak.
fn bands(fullest: &[(u128, u128)]) -> impl Iterator<Item = u128> + '_ {
    let peak = fullest.iter().map(|(live, _)| *live).max().unwrap_or(0).max(1);
    fullest.iter().map(move |(live, _)| live * 20 / peak)
}

/// Returns, for each item alive in the fullest slice, twice the number of slices from there to its nearer
/// end; for the other items, the lifetime in slices.
fn reach(instance: &Instance) -> Vec<u128> {
    let live = live_bytes(instance);
    let peak = (0..instance.slices).max_by_key(|&slice| (live[slice], Reverse(slice))).unwrap_or(0);
    let of_item = |i: usize| {
        let span = instance.span(i);
        let slices = match span.contains(&peak) {
            true => 2 * (peak + 1 - span.start).min(span.end - peak),
            false => span.len(),
        };
        slices as u128
    };
    (0..instance.len()).map(of_item).collect()
}

/// Returns for each item twice the number of slices from its own fullest slice to its nearer end.
fn nest(instance: &Instance, fullest: &[(u128, u128)]) -> Vec<u128> {
    let mut by_rank: Vec<usize> = vec![0; instance.slices + 1];
    for (position, slice) in by_load(&live_bytes(instance)).into_iter().enumerate() {
        by_rank[instance.slices - position] = slice;
    }
    let of_item = |(i, full): (usize, &(u128, u128))| {
        let (span, peak) = (instance.span(i), by_rank[full.1 as usize]);
        2 * (peak + 1 - span.start).min(span.end - peak) as u128
    };
    fullest.iter().enumerate().map(of_item).collect()
}

/// Returns for each item the number of items alive together with it (itself included): all, less those that
/// end before it starts and those that start after it ends.
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
    let of_item = |i: usize| started[instance.last[i] as usize - 1] - ended[instance.first[i] as usize];
    (0..instance.len()).map(of_item).collect()
}

/// Sparse table for the maximum over a range of slices in O(1).
struct RangeMax(Vec<Vec<u32>>);

impl RangeMax {
    fn new(values: &[u32]) -> Self {
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
    fn over(&self, first: usize, last: usize) -> u32 {
        let level = (last - first).ilog2() as usize;
        self.0[level][first].max(self.0[level][last - (1 << level)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Item;
    use super::*;

    #[test]
    fn orders_sort_by_their_names() {
        let items = [
            Item::new("big", 5, 6, 100),
            Item::new("long", 0, 9, 3),
            Item::new("early", 0, 2, 60),
            Item::new("mid", 1, 3, 70),
        ];
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        let cases = [
            (Order::Size, [0, 3, 2, 1]),
            (Order::Area, [3, 2, 0, 1]),
            (Order::Lifetime, [1, 3, 2, 0]),
            (Order::Slices, [1, 3, 2, 0]),
            (Order::Breadth, [3, 2, 1, 0]),
            (Order::BreadthArea, [3, 2, 1, 0]),
            (Order::BreadthLifetime, [1, 3, 2, 0]),
            (Order::BandArea, [3, 2, 1, 0]),
            (Order::BandLifetime, [1, 3, 2, 0]),
            (Order::BandReach, [3, 2, 1, 0]),
            (Order::BandNest, [3, 2, 1, 0]),
            (Order::Conflicts, [1, 3, 2, 0]),
            (Order::Time, [3, 2, 1, 0]),
        ];
        for (order, expected) in cases {
            assert_eq!(order.of(&instance), expected, "{order}");
        }
        assert_eq!(ranks(&[2, 0, 1]), [1, 2, 0]);
        assert_eq!(live_bytes(&instance), [133, 103]);
    }
}
