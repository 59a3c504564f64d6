//! The height already packed in each slice of time (the floor), and the items that wait at each slice to be
//! placed.
//!
//! A segment tree over the slices. A waiting item is represented by its rank alone. Placing a wide item
//! raises the floors of all its slices at once: no work is done for each slice or for each waiting item.

/// No item waits.
pub(super) const NO_ONE: u32 = u32::MAX;

/// A node of the segment tree: a summary of its span of slices.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The highest floor.
    highest: u64,
    /// The lowest floor of a slice where an item waits; `u64::MAX` if none does.
    lowest: u64,
    /// Lowest rank of the items that wait at a floor of `lowest`.
    next: u32,
    /// Lowest rank of all items that wait.
    first: u32,
    /// Whether the whole span has the same floor. The fields of the descendants are then stale, except
    /// `first`.
    flat: bool,
}

impl Node {
    const EMPTY: Self = Self { highest: 0, lowest: u64::MAX, next: NO_ONE, first: NO_ONE, flat: false };

    /// Sets the floor of the whole span to `height`.
    fn flatten(&mut self, height: u64) {
        self.highest = height;
        self.flat = true;
        self.settle();
    }

    /// Updates a flat node after a change of `first`.
    fn settle(&mut self) {
        self.lowest = if self.first == NO_ONE { u64::MAX } else { self.highest };
        self.next = self.first;
    }
}

/// A floor per slice. Raising a range, the maximum over a range, and the first item that waits at the lowest
/// floor take logarithmic time.
#[derive(Clone, Debug)]
pub(super) struct Floors {
    leaves: usize,
    nodes: Vec<Node>,
}

impl Floors {
    /// Creates floors of 0. `first` is the lowest rank of the items that wait at each slice, or `NO_ONE`.
    pub(super) fn new(first: &[u32]) -> Self {
        let leaves = first.len().next_power_of_two();
        let mut floors = Self { leaves, nodes: vec![Node::EMPTY; 2 * leaves] };
        for (slice, &first) in first.iter().enumerate() {
            let leaf = &mut floors.nodes[leaves + slice];
            leaf.first = first;
            leaf.flatten(0);
        }
        for node in (1..leaves).rev() {
            floors.nodes[node].first = floors.nodes[2 * node].first.min(floors.nodes[2 * node + 1].first);
        }
        floors.nodes[1].flatten(0);
        floors
    }

    /// Returns the lowest floor of a slice where an item waits, and the lowest rank of the items that wait at
    /// it.
    pub(super) fn lowest(&self) -> Option<(u64, u32)> {
        let root = &self.nodes[1];
        (root.first != NO_ONE).then_some((root.lowest, root.next))
    }

    /// Sets the lowest rank of the items that wait at `slice`; `NO_ONE` if none does.
    pub(super) fn await_at(&mut self, slice: u32, first: u32) {
        let mut at = self.leaves + slice as usize;
        self.nodes[at].first = first;
        self.nodes[at].settle();
        while at > 1 {
            at /= 2;
            let (left, right) = (self.nodes[2 * at], self.nodes[2 * at + 1]);
            let node = &mut self.nodes[at];
            let before = (node.lowest, node.next, node.first);
            node.first = left.first.min(right.first);
            if node.flat {
                node.settle();
            } else {
                (node.lowest, node.next) = lower(&left, &right);
            }
            if before == (node.lowest, node.next, node.first) {
                return;
            }
        }
    }

    /// Sets the floor of the slices `[first, last)` to `height`.
    pub(super) fn raise(&mut self, first: u32, last: u32, height: u64) {
        self.raise_within(1, (0, self.leaves), (first as usize, last as usize), height);
    }

    fn raise_within(&mut self, at: usize, span: (usize, usize), range: (usize, usize), height: u64) {
        if range.0 <= span.0 && span.1 <= range.1 {
            self.nodes[at].flatten(height);
            return;
        }
        if std::mem::take(&mut self.nodes[at].flat) {
            let height = self.nodes[at].highest;
            self.nodes[2 * at].flatten(height);
            self.nodes[2 * at + 1].flatten(height);
        }
        let middle = usize::midpoint(span.0, span.1);
        if range.0 < middle {
            self.raise_within(2 * at, (span.0, middle), range, height);
        }
        if range.1 > middle {
            self.raise_within(2 * at + 1, (middle, span.1), range, height);
        }
        let (left, right) = (self.nodes[2 * at], self.nodes[2 * at + 1]);
        let node = &mut self.nodes[at];
        node.highest = left.highest.max(right.highest);
        (node.lowest, node.next) = lower(&left, &right);
    }

    /// Returns the highest floor over `[first, last)` and a slice that has it.
    pub(super) fn highest(&self, first: u32, last: u32) -> (u64, u32) {
        let (floor, slice) = self.highest_within(1, (0, self.leaves), (first as usize, last as usize));
        (floor, slice as u32)
    }

    fn highest_within(&self, at: usize, span: (usize, usize), range: (usize, usize)) -> (u64, usize) {
        let node = &self.nodes[at];
        if node.flat {
            return (node.highest, span.0.max(range.0));
        }
        if range.0 <= span.0 && span.1 <= range.1 {
            return (node.highest, self.slice_of_highest(at, span));
        }
        let middle = usize::midpoint(span.0, span.1);
        if range.1 <= middle {
            return self.highest_within(2 * at, (span.0, middle), range);
        }
        if range.0 >= middle {
            return self.highest_within(2 * at + 1, (middle, span.1), range);
        }
        let left = self.highest_within(2 * at, (span.0, middle), range);
        let right = self.highest_within(2 * at + 1, (middle, span.1), range);
        if left.0 >= right.0 { left } else { right }
    }

    fn slice_of_highest(&self, mut at: usize, span: (usize, usize)) -> usize {
        let (mut low, mut high) = span;
        while !self.nodes[at].flat {
            let middle = usize::midpoint(low, high);
            let goes_left = self.nodes[2 * at].highest >= self.nodes[2 * at + 1].highest;
            (low, high) = if goes_left { (low, middle) } else { (middle, high) };
            at = 2 * at + usize::from(!goes_left);
        }
        low
    }
}

/// Returns the lower of the lowest floors of two nodes, and the lowest rank that waits there.
fn lower(left: &Node, right: &Node) -> (u64, u32) {
    match left.lowest.cmp(&right.lowest) {
        std::cmp::Ordering::Less => (left.lowest, left.next),
        std::cmp::Ordering::Equal => (left.lowest, left.next.min(right.next)),
        std::cmp::Ordering::Greater => (right.lowest, right.next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_match_an_array() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut array = [0u64; 11];
        let mut waiting = [NO_ONE; 11];
        waiting[3] = 7;
        let mut floors = Floors::new(&waiting);
        for round in 0..1000 {
            let first = draw(11) as u32;
            let last = first + 1 + draw(u64::from(11 - first)) as u32;
            let range = first as usize..last as usize;
            let (highest, slice) = floors.highest(first, last);
            assert_eq!(highest, *array[range.clone()].iter().max().expect("not empty"));
            assert!(range.contains(&(slice as usize)) && array[slice as usize] == highest);
            let lowest = (0..11).filter(|&s| waiting[s] != NO_ONE).map(|s| (array[s], waiting[s])).min();
            assert_eq!(floors.lowest(), lowest);
            if round % 3 == 0 {
                let height = draw(100);
                floors.raise(first, last, height);
                array[range].fill(height);
            } else {
                waiting[first as usize] = if draw(2) == 0 { NO_ONE } else { draw(50) as u32 };
                floors.await_at(first, waiting[first as usize]);
            }
        }
    }
}
