//! The search: depth first, one decision per node; independent parts are solved one after the other.

use super::super::budget::Budget;
use super::state::State;

/// How the slice of the next decision is chosen among the local minima of the skyline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Most failures per candidate.
    MostFailures,
    /// Least free space × candidates per failure.
    LeastSlack,
}

/// A connected set of unplaced items, linked by common slices: `parts[begin..end]`, sorted by first slice,
/// over the slices `[first, last)`.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub begin: usize,
    pub end: usize,
    pub first: usize,
    pub last: usize,
}

/// The search ran out of nodes or budget before the answer was known.
struct Cut;

struct Attempt<'a> {
    rank: &'a [u32],
    choice: Choice,
    nodes: u64,
    budget: &'a mut Budget,
}

impl State<'_> {
    /// Searches from the initial state; candidates of lower rank are tried first. Returns `Some(true)` with
    /// the packing in `self`, `Some(false)` if it is proved that there is none, `None` if `nodes` or the
    /// budget ran out first.
    pub(super) fn search(
        &mut self,
        rank: &[u32],
        choice: Choice,
        nodes: u64,
        budget: &mut Budget,
    ) -> Option<bool> {
        self.reset();
        let instance = self.instance;
        let mut items: Vec<u32> =
            instance.movable().filter(|&i| instance.size[i] > 0).map(|i| i as u32).collect();
        items.sort_by_key(|&item| instance.first[item as usize]);
        if items.iter().any(|&item| {
            self.least[item as usize].saturating_add(instance.size[item as usize]) > self.capacity
        }) {
            return Some(false);
        }
        let end = items.len();
        self.parts = items;
        let mut attempt = Attempt { rank, choice, nodes, budget };
        self.search_parts(Part { begin: 0, end, first: 0, last: 0 }, &mut attempt).ok()
    }

    /// Splits the unplaced items of `whole` where no item crosses, and solves part by part. The part with the
    /// most failures comes first, because one unsolvable part makes the whole unsolvable.
    fn search_parts(&mut self, whole: Part, attempt: &mut Attempt) -> Result<bool, Cut> {
        let base = self.parts.len();
        let mut parts: Vec<Part> = Vec::new();
        for k in whole.begin..whole.end {
            let item = self.parts[k];
            if self.placed[item as usize] {
                continue;
            }
            let span = self.instance.span(item as usize);
            let at = self.parts.len();
            match parts.last_mut() {
                Some(part) if span.start < part.last => {
                    part.last = part.last.max(span.end);
                    part.end = at + 1;
                }
                _ => parts.push(Part { begin: at, end: at + 1, first: span.start, last: span.end }),
            }
            self.parts.push(item);
        }
        if parts.len() > 1 {
            let failures = |part: &Part| self.failures[part.first..part.last].iter().copied().max();
            parts.sort_by_cached_key(|part| (std::cmp::Reverse(failures(part)), part.begin));
        }
        let mut solved = true;
        for part in parts {
            solved = self.search_part(part, attempt)?;
            if !solved {
                break;
            }
        }
        self.parts.truncate(base);
        Ok(solved)
    }

    /// Decides which item, if any, lies at one point of the skyline, until the part is packed or proved
    /// unsolvable.
    fn search_part(&mut self, part: Part, attempt: &mut Attempt) -> Result<bool, Cut> {
        let (start, base) = (self.mark(), self.candidates.len());
        loop {
            let work = 8 * (part.end - part.begin + part.last - part.first) as u64;
            let touched: u64 = self.parts[part.begin..part.end]
                .iter()
                .map(|&item| self.instance.span(item as usize).len() as u64)
                .sum();
            if attempt.nodes == 0 || !attempt.budget.spend(work + 2 * touched) {
                return Err(Cut);
            }
            attempt.nodes -= 1;
            if !self.has_room(part) {
                break;
            }
            let slice = self.choose_slice(part, attempt.choice);
            let floor = self.ground[slice];
            self.candidates.truncate(base);
            for k in part.begin..part.end {
                if self.lies_at(self.parts[k], slice, floor) {
                    self.candidates.push(self.parts[k]);
                }
            }
            let end = self.candidates.len();
            self.candidates[base..end].sort_unstable_by_key(|&item| attempt.rank[item as usize]);
            for k in base..end {
                let item = self.candidates[k];
                if (base..k).any(|earlier| self.are_twins(self.candidates[earlier], item)) {
                    continue;
                }
                let before = self.mark();
                if self.place(item) && self.search_parts(part, attempt)? {
                    return Ok(true);
                }
                self.undo(before);
            }
            if !self.leave_empty(slice, floor, base, end) {
                break;
            }
        }
        self.candidates.truncate(base);
        self.undo(start);
        Ok(false)
    }

    /// Whether `item` would lie at offset `floor` and be alive in `slice`.
    fn lies_at(&self, item: u32, slice: usize, floor: u64) -> bool {
        let i = item as usize;
        self.least[i] == floor && self.instance.span(i).contains(&slice)
    }

    /// Whether two candidates for one point are interchangeable.
    fn are_twins(&self, a: u32, b: u32) -> bool {
        let of = |item: u32| {
            let i = item as usize;
            (self.instance.span(i), self.instance.size[i], self.instance.alignment[i])
        };
        of(a) == of(b)
    }

    /// Decides that none of the candidates lies at `floor` in `slice`: each of them then lies on an item that
    /// is not placed yet, or on a fixed one. Returns false if that is impossible.
    ///
    /// The candidates are all alive together, so their least offsets are raised in the order of the lowest
    /// place that the other items leave them.
    fn leave_empty(&mut self, slice: usize, floor: u64, base: usize, end: usize) -> bool {
        let mut raised: Vec<(u64, u32)> = Vec::with_capacity(end - base);
        for &item in &self.candidates[base..end] {
            let i = item as usize;
            let support = |&&other: &&u32| !self.placed[other as usize] && !self.lies_at(other, slice, floor);
            let top = |&other: &u32| self.least[other as usize] + self.padded[other as usize];
            let lowest = self.neighbours[i].iter().filter(support).map(top).min();
            let fixed = self.lowest_fixed_top(i, floor);
            raised.push((lowest.unwrap_or(u64::MAX).min(fixed), item));
        }
        raised.sort_unstable();
        let mut lowest = u64::MAX;
        for (others, item) in raised {
            if !self.raise(item, others.min(lowest)) {
                self.failures[slice] += 1;
                return false;
            }
            lowest = lowest.min(self.least[item as usize] + self.padded[item as usize]);
        }
        true
    }

    /// Returns the lowest top above `floor` of a fixed item that is alive together with item `i`; `u64::MAX`
    /// if there is none.
    fn lowest_fixed_top(&self, i: usize, floor: u64) -> u64 {
        let tops = self.instance.fixed.iter().enumerate().filter_map(|(other, offset)| {
            let top = (*offset)? + self.instance.size[other];
            (top > floor && self.instance.together(i, other)).then_some(top)
        });
        tops.min().unwrap_or(u64::MAX)
    }

    /// Returns the slice to decide next. It must be in a local minimum: consecutive slices with the same
    /// ground between slices with higher ground. No unplaced item can get below an item that lies there, so
    /// its place is final.
    fn choose_slice(&mut self, part: Part, choice: Choice) -> usize {
        let count = &mut self.scratch;
        count[part.first..part.last].fill(0);
        for &item in &self.parts[part.begin..part.end] {
            let i = item as usize;
            for slice in self.instance.span(i) {
                count[slice] += u64::from(self.ground[slice] == self.least[i]);
            }
        }
        let mut best = (f64::NEG_INFINITY, part.first);
        let mut low = part.first;
        while low < part.last {
            let ground = self.ground[low];
            let mut high = low + 1;
            while high < part.last && self.ground[high] == ground {
                high += 1;
            }
            let walled_left = low == part.first || self.ground[low - 1] > ground;
            let walled_right = high == part.last || self.ground[high] > ground;
            if walled_left && walled_right && ground < u64::MAX {
                for slice in low..high {
                    let candidates = self.scratch[slice] as f64;
                    let failures = self.failures[slice] as f64;
                    let slack = (self.capacity + self.padding - ground - self.rest[slice]) as f64;
                    let score = match choice {
                        Choice::MostFailures => failures / candidates,
                        Choice::LeastSlack => -(slack + 1.0) * candidates / failures,
                    };
                    if score > best.0 {
                        best = (score, slice);
                    }
                }
            }
            low = high;
        }
        best.1
    }
}
