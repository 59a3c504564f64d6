//! Which bytes are in use at which time. Finds room for an item without visiting every item placed before it.
//!
//! A segment tree over the slices of time. A node stores two sets of byte ranges: those of items that cover
//! its whole span, and those of items that overlap its span anywhere. Adjacent ranges are merged into one
//! *run*, so that in a dense packing the sets stay small regardless of the number of items.

use super::greedy::Fit;

/// A run of bytes in use: `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
}

/// Disjoint runs in ascending order; no two touch.
#[derive(Clone, Debug, Default)]
struct Runs(Vec<Run>);

impl Runs {
    fn add(&mut self, start: u64, end: u64) {
        let low = self.0.partition_point(|run| run.end < start);
        let high = low + self.0[low..].partition_point(|run| run.start <= end);
        if low == high {
            self.0.insert(low, Run { start, end });
            return;
        }
        let merged = Run { start: start.min(self.0[low].start), end: end.max(self.0[high - 1].end) };
        self.0[low] = merged;
        self.0.drain(low + 1..high);
    }

    /// The first run that ends above `offset`.
    fn next(&self, offset: u64) -> Option<Run> {
        let at = match self.0.first() {
            Some(first) if first.end > offset => 0,
            _ => self.0.partition_point(|run| run.end <= offset),
        };
        self.0.get(at).copied()
    }
}

/// An item to place, and where it may end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// First slice.
    pub first: u32,
    /// One past the last slice.
    pub last: u32,
    /// Size in bytes.
    pub size: u64,
    /// The offset is a multiple of this.
    pub alignment: u64,
    /// Which gap is taken.
    pub fit: Fit,
    /// Largest offset at which the item may end.
    pub limit: u64,
}

/// Bytes in use over time in one line of memory.
#[derive(Clone, Debug)]
pub(super) struct Occupancy {
    leaves: usize,
    /// By node: bytes of items that cover its span.
    covering: Vec<Runs>,
    /// By node: bytes of items that overlap its span.
    touching: Vec<Runs>,
}

impl Occupancy {
    /// Creates an empty occupancy over `slices` slices.
    pub(super) fn new(slices: usize) -> Self {
        let leaves = slices.next_power_of_two();
        let nodes = vec![Runs::default(); 2 * leaves];
        Self { leaves, covering: nodes.clone(), touching: nodes }
    }

    /// Marks the bytes `[start, end)` as used in the slices `[first, last)`.
    pub(super) fn take(&mut self, first: u32, last: u32, start: u64, end: u64) {
        for side in [first as usize, last as usize - 1] {
            let mut node = self.leaves + side;
            while node > 0 {
                self.touching[node].add(start, end);
                node /= 2;
            }
        }
        for node in spans(self.leaves, first, last) {
            self.covering[node].add(start, end);
            self.touching[node].add(start, end);
        }
    }

    /// Returns an offset at or above `from` that has room for the request; `None` if there is none within the
    /// limit.
    pub(super) fn room(&self, from: u64, request: Request) -> Option<u64> {
        let Request { first, last, size, alignment, fit, limit } = request;
        let mut sets: Vec<&Runs> = spans(self.leaves, first, last).map(|node| &self.touching[node]).collect();
        let (mut left, mut right) = (self.leaves + first as usize, self.leaves + last as usize - 1);
        while left > 0 {
            sets.push(&self.covering[left]);
            if right != left {
                sets.push(&self.covering[right]);
            }
            left /= 2;
            right /= 2;
        }
        sets.retain(|set| !set.0.is_empty());
        let mut tightest: Option<(u64, u64)> = None;
        let mut offset = from;
        loop {
            offset = free_from(&sets, offset, alignment)?;
            let top = offset.checked_add(size).filter(|&top| top <= limit);
            let ceiling = sets.iter().filter_map(|set| set.next(offset)).map(|run| run.start).min();
            let Some(ceiling) = ceiling else {
                return tightest.map(|(_, offset)| offset).or(top.map(|_| offset));
            };
            if top.is_some_and(|top| top <= ceiling) {
                if fit == Fit::First {
                    return Some(offset);
                }
                if tightest.is_none_or(|(least, _)| ceiling - offset < least) {
                    tightest = Some((ceiling - offset, offset));
                }
            }
            if ceiling >= limit {
                return tightest.map(|(_, offset)| offset);
            }
            offset = ceiling;
        }
    }
}

/// Returns the lowest aligned offset at or above `from` that is not inside any run; `None` beyond 64 bits.
fn free_from(sets: &[&Runs], from: u64, alignment: u64) -> Option<u64> {
    let mut offset = from.checked_next_multiple_of(alignment)?;
    let (mut index, mut settled) = (0, 0);
    while settled < sets.len() {
        match sets[index].next(offset) {
            Some(run) if run.start <= offset => {
                offset = run.end.checked_next_multiple_of(alignment)?;
                settled = 1;
            }
            _ => settled += 1,
        }
        index = (index + 1) % sets.len();
    }
    Some(offset)
}

/// Returns the nodes that together span exactly `[first, last)`.
fn spans(leaves: usize, first: u32, last: u32) -> impl Iterator<Item = usize> {
    let (mut left, mut right) = (leaves + first as usize, leaves + last as usize);
    let mut pending: Option<usize> = None;
    std::iter::from_fn(move || {
        if let Some(node) = pending.take() {
            return Some(node);
        }
        while left < right {
            let (low, high) = (left, right - 1);
            let (take_low, take_high) = (left % 2 == 1, right % 2 == 1);
            left = left.div_ceil(2);
            right /= 2;
            match (take_low, take_high) {
                (true, true) => {
                    pending = (high != low).then_some(high);
                    return Some(low);
                }
                (true, false) => return Some(low),
                (false, true) => return Some(high),
                (false, false) => {}
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_exactly_the_range() {
        for leaves in [1usize, 2, 8, 16] {
            for first in 0..leaves as u32 {
                for last in first + 1..=leaves as u32 {
                    let mut covered = vec![0; leaves];
                    for node in spans(leaves, first, last) {
                        let depth = node.ilog2();
                        let width = leaves >> depth;
                        let start = (node - (1 << depth)) * width;
                        covered[start..start + width].iter_mut().for_each(|count| *count += 1);
                    }
                    let expected: Vec<i32> =
                        (0..leaves as u32).map(|leaf| i32::from(first <= leaf && leaf < last)).collect();
                    assert_eq!(covered, expected, "[{first}, {last}) of {leaves}");
                }
            }
        }
    }

    #[test]
    fn free_space_matches_a_map_of_bytes() {
        let (slices, bytes) = (13u32, 64u64);
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut occupancy = Occupancy::new(slices as usize);
        let mut map = vec![vec![false; bytes as usize]; slices as usize];
        for _ in 0..400 {
            let first = draw(u64::from(slices)) as u32;
            let last = first + 1 + draw(u64::from(slices - first)) as u32;
            let (size, alignment) = (1 + draw(6), 1 + draw(4));
            let free = |offset: u64| {
                map[first as usize..last as usize].iter().all(|slice| {
                    (offset..offset + size).all(|byte| !slice.get(byte as usize).unwrap_or(&true))
                })
            };
            let request = Request { first, last, size, alignment, fit: Fit::First, limit: bytes };
            let expected = (0..bytes).step_by(alignment as usize).find(|&offset| free(offset));
            assert_eq!(occupancy.room(0, request), expected);
            if let Some(offset) = expected.filter(|_| draw(3) > 0) {
                occupancy.take(first, last, offset, offset + size);
                for slice in &mut map[first as usize..last as usize] {
                    slice[offset as usize..(offset + size) as usize].fill(true);
                }
            }
        }
    }
}
