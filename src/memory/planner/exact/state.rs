//! The state of the search: the placed items, the least offsets of the others, and a trail to undo both.

use super::super::greedy::Layout;
use super::super::instance::Instance;

/// A partial packing.
pub(super) struct State<'a> {
    pub instance: &'a Instance,
    pub capacity: u64,
    /// Sizes rounded up to the unit of the offsets.
    pub padded: Vec<u64>,
    /// The most that this rounding adds to one item: the topmost item need not be rounded.
    pub padding: u64,
    /// Items alive together with each item.
    pub neighbours: Vec<Vec<u32>>,
    /// Offset of each placed item; for an unplaced item, a lower bound of its offset.
    pub least: Vec<u64>,
    pub placed: Vec<bool>,
    /// Padded bytes per slice that are not placed yet.
    pub rest: Vec<u64>,
    /// How often each slice failed, plus one. It is kept between searches: this is what restarts learn.
    pub failures: Vec<u64>,
    /// By slice: the least offset among unplaced items; valid for the part being searched.
    pub ground: Vec<u64>,
    /// By slice: scratch for the bounds and for counting candidates.
    pub scratch: Vec<u64>,
    /// Scratch for the bounds: unplaced items by least offset.
    pub by_release: Vec<(u64, u32)>,
    /// Unplaced items of the parts being searched, innermost part last.
    pub parts: Vec<u32>,
    /// Candidates of the open decisions, innermost last.
    pub candidates: Vec<u32>,
    changes: Vec<(u32, u64)>,
    placements: Vec<u32>,
}

/// A point of the trail to return to.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    changes: usize,
    placements: usize,
}

impl<'a> State<'a> {
    /// Creates a state in which only the fixed items are placed.
    pub(super) fn new(instance: &'a Instance, capacity: u64) -> Self {
        let n = instance.len();
        let movable: Vec<usize> = instance.movable().filter(|&i| instance.size[i] > 0).collect();
        let mut neighbours = vec![Vec::new(); n];
        let mut rest = vec![0; instance.slices];
        let padded: Vec<u64> = (0..n).map(|i| instance.padded(i)).collect();
        for &i in &movable {
            let others = movable.iter().filter(|&&j| j != i && instance.together(i, j));
            neighbours[i] = others.map(|&j| j as u32).collect();
            rest[instance.span(i)].iter_mut().for_each(|bytes| *bytes += padded[i]);
        }
        // Items of size 0 conflict with no item: they lie at the lowest place from the start.
        let least = (0..n).map(|i| instance.fixed[i].unwrap_or_else(|| instance.lift(i, 0))).collect();
        Self {
            padding: (0..n).map(|i| padded[i] - instance.size[i]).max().unwrap_or(0),
            padded,
            neighbours,
            least,
            placed: vec![false; n],
            rest,
            failures: vec![1; instance.slices],
            ground: vec![0; instance.slices],
            scratch: vec![0; instance.slices],
            by_release: Vec::new(),
            parts: Vec::new(),
            candidates: Vec::new(),
            changes: Vec::new(),
            placements: Vec::new(),
            instance,
            capacity,
        }
    }

    /// Returns the current layout.
    pub(super) fn layout(&self) -> Layout {
        let offset: Vec<u64> =
            (0..self.least.len())
                .map(|i| {
                    if self.instance.size[i] > 0 {
                        self.least[i]
                    } else {
                        self.instance.fixed[i].unwrap_or(0)
                    }
                })
                .collect();
        let height = offset.iter().zip(&self.instance.size).map(|(offset, size)| offset + size).max();
        Layout { chunk: vec![0; offset.len()], offset, heights: vec![height.unwrap_or(0)] }
    }

    /// Returns the current point of the trail.
    pub(super) fn mark(&self) -> Mark {
        Mark { changes: self.changes.len(), placements: self.placements.len() }
    }

    /// Undoes all changes since `mark`.
    pub(super) fn undo(&mut self, mark: Mark) {
        for (item, least) in self.changes.drain(mark.changes..).rev() {
            self.least[item as usize] = least;
        }
        for item in self.placements.drain(mark.placements..) {
            let i = item as usize;
            self.placed[i] = false;
            self.rest[self.instance.span(i)].iter_mut().for_each(|bytes| *bytes += self.padded[i]);
        }
    }

    /// Undoes all changes.
    pub(super) fn reset(&mut self) {
        self.undo(Mark { changes: 0, placements: 0 });
        self.parts.clear();
        self.candidates.clear();
    }

    /// Raises the least offset of an unplaced item to the first allowed one at or above `from`; returns false
    /// if the item then does not fit the capacity.
    pub(super) fn raise(&mut self, item: u32, from: u64) -> bool {
        let i = item as usize;
        self.changes.push((item, self.least[i]));
        self.least[i] = self.instance.lift(i, from);
        self.least[i].saturating_add(self.instance.size[i]) <= self.capacity
    }

    /// Places `item` at its least offset; returns false if one of its neighbours then does not fit the
    /// capacity.
    pub(super) fn place(&mut self, item: u32) -> bool {
        let i = item as usize;
        self.placed[i] = true;
        self.placements.push(item);
        self.rest[self.instance.span(i)].iter_mut().for_each(|bytes| *bytes -= self.padded[i]);
        let top = self.least[i] + self.padded[i];
        for k in 0..self.neighbours[i].len() {
            let other = self.neighbours[i][k];
            let j = other as usize;
            if !self.placed[j] && self.least[j] < top && !self.raise(other, top) {
                let common = self.instance.span(i).start.max(self.instance.span(j).start)
                    ..self.instance.span(i).end.min(self.instance.span(j).end);
                self.failures[common].iter_mut().for_each(|count| *count += 1);
                return false;
            }
        }
        true
    }
}
