//! Packing problems whose lowest height is known: small ones by brute force, larger ones by construction.
//! Only the types are taken from the planner.
#![allow(dead_code, reason = "each test program uses a part")]

use wgrad::memory::planner::{Item, Problem};
use wgrad::random;

/// A problem with its lowest height.
#[derive(Clone, Debug)]
pub struct Known {
    /// The items to pack.
    pub problem: Problem,
    /// The lowest height of all packings, in bytes.
    pub optimum: u64,
}

/// Returns the lowest offset for item `next` that the items at `places` leave free.
pub fn lowest_place(items: &[Item], places: &[(usize, u64)], next: usize) -> u64 {
    let item = &items[next];
    let meets = |other: &Item| item.lower < other.upper && other.lower < item.upper;
    let mut taken: Vec<(u64, u64)> = places
        .iter()
        .filter(|&&(placed, _)| meets(&items[placed]) && items[placed].size > 0)
        .map(|&(placed, offset)| (offset, offset + items[placed].size))
        .collect();
    taken.sort_unstable();
    let mut offset = 0;
    for (start, end) in taken {
        if offset + item.size <= start {
            break;
        }
        offset = offset.max(end.next_multiple_of(item.alignment));
    }
    offset
}

/// Finds the lowest height by trying every order, each item at the lowest place that the ones before it
/// leave. Some order gives an optimum, because in every packing the items can be pushed down.
fn lowest_of_all_orders(items: &[Item], places: &mut Vec<(usize, u64)>, height: u64, best: &mut u64) {
    if height >= *best {
        return;
    }
    if places.len() == items.len() {
        *best = height;
        return;
    }
    for next in 0..items.len() {
        if places.iter().any(|&(placed, _)| placed == next) {
            continue;
        }
        let item = &items[next];
        let offset = item.fixed.map_or_else(|| lowest_place(items, places, next), |place| place.offset);
        places.push((next, offset));
        lowest_of_all_orders(items, places, height.max(offset + item.size), best);
        places.pop();
    }
}

/// Returns the lowest height of a few items in one arena, in bytes.
pub fn brute_force(items: &[Item]) -> u64 {
    let mut ordered = items.to_vec();
    ordered.sort_by_key(|item| item.fixed.is_none());
    let fixed = ordered.iter().filter(|item| item.fixed.is_some()).count();
    let mut places: Vec<(usize, u64)> =
        (0..fixed).map(|i| (i, ordered[i].fixed.map_or(0, |place| place.offset))).collect();
    let height = places.iter().map(|&(i, offset)| offset + ordered[i].size).max().unwrap_or(0);
    let mut best = u64::MAX;
    lowest_of_all_orders(&ordered, &mut places, height, &mut best);
    best
}

/// Returns the maximum of live bytes over all instants: of all items with sizes rounded up to the step that all
/// offsets share, and of the items at multiples of each alignment with sizes rounded up to it, in each case
/// except for the item that gains most by being on top; at least the highest end of an item with a fixed place.
pub fn live_bytes(items: &[Item]) -> u64 {
    let items: Vec<&Item> = items.iter().filter(|item| item.size > 0).collect();
    let largest = items.iter().map(|item| item.alignment).max().unwrap_or(1);
    let steps = (1..=largest).filter(|step| {
        let shared = items.iter().all(|item| item.alignment % step == 0);
        shared || items.iter().any(|item| item.alignment == *step)
    });
    let at = |step: u64, instant: u64| {
        let alive =
            items.iter().filter(|i| i.lower <= instant && instant < i.upper && i.alignment % step == 0);
        let rounded = |item: &Item| item.size.div_ceil(step) * step;
        let on_top = alive.clone().map(|item| rounded(item) - item.size).max().unwrap_or(0);
        alive.map(|item| rounded(item)).sum::<u64>() - on_top
    };
    let fullest = steps.flat_map(|step| items.iter().map(move |item| (step, item.lower)));
    let fullest = fullest.map(|(step, instant)| at(step, instant)).max().unwrap_or(0);
    let ends = items.iter().filter_map(|item| Some(item.fixed?.offset + item.size));
    fullest.max(ends.max().unwrap_or(0))
}

/// Random numbers that depend only on a seed.
pub struct Draws {
    key: u64,
    drawn: u64,
}

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self { key: random::key(seed, "problem"), drawn: 0 }
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        random::bits(self.key, self.drawn) % limit
    }
}

/// Returns `count` items of a few bytes, alive for a few instants.
pub fn small_items(draws: &mut Draws, count: usize) -> Vec<Item> {
    let item = |_| {
        let lower = draws.below(8);
        Item::new("item", lower, lower + 1 + draws.below(5), 1 + draws.below(6))
    };
    (0..count).map(item).collect()
}

/// Returns about `count` items whose live bytes are `height` at every instant: items that end leave bytes for
/// items that start, but not necessarily contiguous ones.
pub fn dense_items(draws: &mut Draws, count: usize, height: u64) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for now in 0.. {
        let alive = items.iter().filter(|item| item.upper > now).map(|item| item.size).sum::<u64>();
        let mut free = height - alive;
        while free > 0 {
            let size = 1 + draws.below(free);
            items.push(Item::new("item", now, now + 1 + draws.below(4), size));
            free -= size;
        }
        if items.len() >= count {
            break;
        }
    }
    items
}

/// Seeds for [`with_gap`], found by search: about one in 10,000 qualifies.
pub const GAPS: [u64; 12] =
    [16164, 29183, 29813, 73602, 147_484, 66833, 80134, 88875, 116_700, 219_565, 317_122, 340_876];

/// Returns a few items that cannot be packed as low as their maximum of live bytes, from a seed of [`GAPS`].
pub fn with_gap(seed: u64) -> Known {
    let mut draws = Draws::new(seed);
    let height = 3 + draws.below(5);
    let items = dense_items(&mut draws, 8, height);
    let optimum = brute_force(&items);
    assert!(optimum > live_bytes(&items), "seed {seed} has no gap");
    Known { optimum, problem: Problem::new(items) }
}

/// Cuts `[lower, upper)` × `height` bytes into items: they can be packed into it, and no packing of them is
/// lower.
pub fn cut(draws: &mut Draws, (lower, upper): (u64, u64), height: u64, pieces: usize) -> Vec<Item> {
    let mut parts = vec![(lower, upper, height)];
    for _ in 0..20 * pieces {
        if parts.len() == pieces {
            break;
        }
        let which = draws.below(parts.len() as u64) as usize;
        let (lower, upper, size) = parts[which];
        if draws.below(2) == 0 && upper - lower > 1 {
            let middle = lower + 1 + draws.below(upper - lower - 1);
            parts[which].1 = middle;
            parts.push((middle, upper, size));
        } else if size > 1 {
            let below = 1 + draws.below(size - 1);
            parts[which].2 = below;
            parts.push((lower, upper, size - below));
        }
    }
    parts.into_iter().map(|(lower, upper, size)| Item::new("piece", lower, upper, size)).collect()
}

/// Composes a large problem of small ones with a gap, so that its lowest height is known and exceeds its
/// maximum of live bytes.
///
/// Small problems, with sizes and times scaled, alternate with rectangles that are cut into `pieces` and are
/// no higher than the highest small problem's optimum. Below them are items that live for the whole time:
/// they add their bytes to every packing, because whatever lies above one of them can be moved down by its
/// size once it is removed.
pub fn composed(seed: u64, cores: &[Known], pieces: usize) -> Known {
    let mut draws = Draws::new(seed);
    let (mut items, mut time, mut highest) = (Vec::new(), 0, 0);
    // The optimum depends on all scales, so they are drawn before the heights of the rectangles.
    let scales: Vec<u64> = cores.iter().map(|_| 20 + draws.below(20)).collect();
    let optimum = cores.iter().zip(&scales).map(|(core, scale)| core.optimum * scale).max().unwrap_or(0);
    for (core, scale) in cores.iter().zip(scales) {
        let stretch = 1 + draws.below(3);
        for item in &core.problem.items {
            let at = |instant: u64| time + stretch * instant;
            items.push(Item::new("core", at(item.lower), at(item.upper), scale * item.size));
            highest = highest.max(at(item.upper));
        }
        let length = 6 + draws.below(20);
        let height = optimum - 1 - draws.below(optimum / 4);
        items.extend(cut(&mut draws, (highest, highest + length), height, pieces));
        highest += length;
        time = highest;
    }
    let below = 10 + draws.below(optimum);
    let slabs = cut(&mut draws, (0, 1), below, 3);
    items.extend(slabs.into_iter().map(|slab| Item::new("slab", 0, time, slab.size)));
    Known { problem: Problem::new(items), optimum: optimum + below }
}

/// Cuts a piece into four that turn around a fifth; `None` if it is too small.
fn windmill(draws: &mut Draws, (lower, upper, bottom, top): Piece) -> Option<[Piece; 5]> {
    if upper - lower < 3 || top - bottom < 3 {
        return None;
    }
    let left = lower + 1 + draws.below(upper - lower - 2);
    let right = left + 1 + draws.below(upper - left - 1);
    let low = bottom + 1 + draws.below(top - bottom - 2);
    let high = low + 1 + draws.below(top - low - 1);
    Some([
        (lower, right, bottom, low),
        (right, upper, bottom, high),
        (left, upper, high, top),
        (lower, left, low, top),
        (left, right, low, high),
    ])
}

/// First and last instant, first and last byte.
type Piece = (u64, u64, u64, u64);

/// Cuts `[0, length)` × `height` units of `unit` bytes into about `pieces` items, whose lowest height is the
/// rectangle's. One cut in four is a windmill, so that no straight cut separates all items. Items are aligned to
/// `unit`.
pub fn windmills(seed: u64, (length, height): (u64, u64), unit: u64, pieces: usize) -> Known {
    let mut draws = Draws::new(seed);
    let mut parts: Vec<Piece> = vec![(0, length, 0, height)];
    for _ in 0..20 * pieces {
        if parts.len() >= pieces {
            break;
        }
        // Of three pieces the largest is cut.
        let area = |part: &Piece| u128::from(part.1 - part.0) * u128::from(part.3 - part.2);
        let which = (0..3).map(|_| draws.below(parts.len() as u64) as usize);
        let which = which.max_by_key(|&part| area(&parts[part])).expect("three");
        let part @ (lower, upper, bottom, top) = parts[which];
        let turned = if draws.below(4) == 0 { windmill(&mut draws, part) } else { None };
        if let Some(five) = turned {
            parts[which] = five[0];
            parts.extend(&five[1..]);
        } else if draws.below(2) == 0 && upper - lower > 1 {
            let middle = lower + 1 + draws.below(upper - lower - 1);
            parts[which].1 = middle;
            parts.push((middle, upper, bottom, top));
        } else if top - bottom > 1 {
            let middle = bottom + 1 + draws.below(top - bottom - 1);
            parts[which].3 = middle;
            parts.push((lower, upper, middle, top));
        }
    }
    let items = parts.iter().map(|&(lower, upper, bottom, top)| {
        Item::new("piece", lower, upper, (top - bottom) * unit).aligned(unit)
    });
    Known { problem: Problem::new(items.collect()), optimum: height * unit }
}

/// Removes items until no instant is fuller than `percent` of the rectangle that they were cut from: they still
/// fit into it, and how much lower they can be packed is not known.
pub fn thinned(seed: u64, known: Known, percent: u64) -> Known {
    let mut draws = Draws::new(seed);
    let most = known.optimum / 100 * percent;
    let Known { mut problem, optimum } = known;
    let mut full: Vec<u64> = (0..problem.items.iter().map(|item| item.upper).max().unwrap_or(0)).collect();
    let live = |items: &[Item], instant: u64| {
        items.iter().filter(|i| i.lower <= instant && instant < i.upper).map(|i| i.size).sum::<u64>()
    };
    while !full.is_empty() {
        full.retain(|&instant| live(&problem.items, instant) > most);
        let Some(&instant) = full.get(draws.below(full.len().max(1) as u64) as usize) else { break };
        let mut alive: Vec<usize> = (0..problem.items.len()).collect();
        alive.retain(|&i| problem.items[i].lower <= instant && instant < problem.items[i].upper);
        alive.sort_by_key(|&i| problem.items[i].size);
        alive.truncate(alive.len().div_ceil(2));
        problem.items.swap_remove(alive[draws.below(alive.len() as u64) as usize]);
    }
    Known { problem, optimum }
}

/// Sets `copies` of training steps side by side in one arena: each starts at another time, stretched and scaled
/// at random, so that a few run at once. Items are aligned to 512 bytes, as SOMAS aligns them.
pub fn side_by_side(seed: u64, steps: &[Problem], copies: usize) -> Problem {
    let mut draws = Draws::new(seed);
    let (mut items, mut time) = (Vec::new(), 0);
    for copy in 0..copies {
        let step = &steps[copy % steps.len()];
        let (stretch, scale) = (4 + draws.below(8), 2 + draws.below(20));
        let length = stretch * step.items.iter().map(|item| item.upper).max().unwrap_or(0);
        for item in &step.items {
            // Ends differ by a little, because the copies share the instants of one sequence.
            let at = |instant: u64, more: u64| time + stretch * instant + more;
            let late = draws.below(stretch);
            let size = (item.size * scale / 8).next_multiple_of(512);
            items.push(Item::new("tensor", at(item.lower, 0), at(item.upper, late), size).aligned(512));
        }
        time += length / 4 + draws.below(length / 4 + 1);
    }
    Problem::new(items)
}
