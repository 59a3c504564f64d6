//! A strategy that learns: it records one step, plans it, and places the blocks of the next step by the plan.
//!
//! The idea is STAlloc's (arXiv 2507.16274). The plan is made by the offset
//! [`planner`](crate::memory::planner) and lies in one block of [`Bins`], the *arena*. What deviates from the
//! recorded step is placed by the bins, outside the arena: a planned place is safe without a search.

use super::handle::{Handle, Slots};
use super::{Allocation, Bins, Padded, Span, Strategy, no_space, pad};
use crate::memory::AllocError;
use crate::memory::planner::{Item, Options, Problem, solve};

/// How many recorded allocations may be missing before the following ones count as deviations.
const LOOK_AHEAD: usize = 16;

/// No event of this step.
const NEVER: u32 = u32::MAX;

/// Places blocks by the plan of the step before; the first step, and what deviates, by [`Bins`].
///
/// [`Strategy::end_step`] ends a step. Blocks that outlive their step are in no plan.
///
/// ```
/// use wgrad::memory::{Learned, Strategy};
/// let mut learned = Learned::new(256)?;
/// learned.add_page(0, 1024, 1)?;
/// for _ in 0..3 {
///     let first = learned.alloc(512, 1)?;
///     let second = learned.alloc(512, 1)?;
///     learned.free(first.handle)?;
///     learned.free(second.handle)?;
///     learned.end_step();
/// }
/// # Ok::<(), wgrad::memory::AllocError>(())
/// ```
#[derive(Debug)]
pub struct Learned {
    bins: Bins,
    blocks: Slots<Held>,
    step: u32,
    /// Allocations and frees of this step so far.
    clock: u32,
    /// Allocations of this step.
    record: Vec<Recorded>,
    /// Whether this step differed from the plan.
    deviated: bool,
    plan: Vec<Planned>,
    /// Bytes of the plan.
    height: u64,
    arena: Option<Allocation>,
    /// The next allocation of the plan.
    next: usize,
    /// Planned blocks by the time of their free, and how many of these times have passed.
    ends: Vec<(u32, u32)>,
    passed: usize,
    /// Planned blocks that are alive although the recorded step had freed them.
    overdue: Vec<u32>,
    planned_live: usize,
    planned_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Recorded {
    want: Padded,
    from: u32,
    /// `NEVER` if the block outlives the step.
    until: u32,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    want: Padded,
    from: u32,
    /// Offset in the arena; `u64::MAX` if the bins place it.
    offset: u64,
    live: bool,
    /// Index into `overdue`; `NEVER` if it is not there.
    overdue: u32,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    span: Span,
    source: Source,
    step: u32,
    /// Index into the record of that step.
    recorded: u32,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Bins(Handle),
    Plan(u32),
}

impl Learned {
    /// Creates the strategy without pages. `granule` is in bytes: every offset and size is a multiple of it.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        Ok(Self {
            bins: Bins::new(granule)?,
            blocks: Slots::new(),
            step: 0,
            clock: 0,
            record: Vec::new(),
            deviated: false,
            plan: Vec::new(),
            height: 0,
            arena: None,
            next: 0,
            ends: Vec::new(),
            passed: 0,
            overdue: Vec::new(),
            planned_live: 0,
            planned_bytes: 0,
        })
    }

    /// Replaces the plan by one of the recorded step. If the step cannot be planned, the next one has no plan.
    fn learn(&mut self) {
        if let Some(arena) = self.arena.take() {
            // Only its own handle refers to it, and no planned block is alive.
            let _ = self.bins.free(arena.handle);
        }
        let granule = self.bins.granule();
        let transient = |recorded: &&Recorded| recorded.until != NEVER;
        let items = self.record.iter().filter(transient).map(|recorded| {
            Item::new("", recorded.from.into(), recorded.until.into(), recorded.want.size)
                .aligned(recorded.want.align.max(granule))
        });
        let packing = solve(&Problem::new(items.collect()), &Options::default()).ok();
        self.plan.clear();
        self.ends.clear();
        self.height = packing.as_ref().map_or(0, |packing| packing.certificate.height);
        let mut places = packing.iter().flat_map(|packing| &packing.solution.placements);
        for recorded in &self.record {
            let place = if recorded.until == NEVER { None } else { places.next() };
            if place.is_some() {
                self.ends.push((recorded.until, self.plan.len() as u32));
            }
            let offset = place.map_or(u64::MAX, |place| place.offset);
            let Recorded { want, from, .. } = *recorded;
            self.plan.push(Planned { want, from, offset, live: false, overdue: NEVER });
        }
        self.ends.sort_unstable();
    }

    /// Reserves the arena, at the first allocation of a step.
    #[cold]
    fn place_arena(&mut self) {
        let align = self.plan.iter().map(|planned| planned.want.align).max().unwrap_or(1);
        self.arena = self.bins.alloc(self.height, align).ok();
    }

    /// Returns the planned place of an allocation of `want`; `None` if it deviates from the plan.
    #[inline]
    fn by_plan(&mut self, want: Padded) -> Option<(u32, Span)> {
        let arena = self.arena?.span;
        let ahead = self.plan.get(self.next..)?;
        let same = |planned: &Planned| planned.want == want;
        let skipped = ahead.iter().take(LOOK_AHEAD).position(same);
        self.deviated |= skipped != Some(0);
        let index = self.next + skipped?;
        self.next = index + 1;
        let Planned { from, offset, live, .. } = self.plan[index];
        while let Some(&(_, ended)) = self.ends.get(self.passed).filter(|(until, _)| *until < from) {
            self.passed += 1;
            let planned = &mut self.plan[ended as usize];
            if planned.live && planned.overdue == NEVER {
                planned.overdue = self.overdue.len() as u32;
                self.overdue.push(ended);
            }
        }
        if offset == u64::MAX || live {
            self.deviated |= live;
            return None;
        }
        // All other planned blocks that are alive were alive together with this one in the plan.
        let blocked = |&other: &u32| {
            let other = &self.plan[other as usize];
            other.offset < offset + want.size && offset < other.offset + other.want.size
        };
        if self.overdue.iter().any(blocked) {
            self.deviated = true;
            return None;
        }
        self.plan[index].live = true;
        self.planned_live += 1;
        self.planned_bytes += want.size;
        let span = Span { page: arena.page, offset: arena.offset + offset, size: want.size };
        Some((index as u32, span))
    }

    /// Removes a planned block from the live ones.
    #[inline]
    fn end_planned(&mut self, index: u32) {
        let planned = &mut self.plan[index as usize];
        planned.live = false;
        self.planned_live -= 1;
        self.planned_bytes -= planned.want.size;
        let place = std::mem::replace(&mut planned.overdue, NEVER);
        if place != NEVER {
            self.overdue.swap_remove(place as usize);
            if let Some(&moved) = self.overdue.get(place as usize) {
                self.plan[moved as usize].overdue = place;
            }
        }
    }
}

impl Strategy for Learned {
    fn add_page(&mut self, page: u32, bytes: u64, request: u64) -> Result<(), AllocError> {
        self.bins.add_page(page, bytes, request)
    }

    /// Removes an idle page; a plan whose arena lies there is suspended until the next step.
    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        if self.planned_live == 0
            && let Some(arena) = self.arena.take_if(|arena| arena.span.page == page)
        {
            self.bins.free(arena.handle)?;
        }
        self.bins.remove_page(page)
    }

    #[inline]
    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let want = pad(self, size, align)?;
        if self.clock == 0 && self.arena.is_none() && self.height > 0 {
            self.place_arena();
        }
        let before = (self.next, self.deviated);
        let (source, span) = match self.by_plan(want) {
            Some((index, span)) => (Source::Plan(index), span),
            None => match self.bins.alloc(want.size, want.align) {
                Ok(allocation) => (Source::Bins(allocation.handle), allocation.span),
                Err(_) => {
                    (self.next, self.deviated) = before;
                    return Err(no_space(self, want.size, want.align));
                }
            },
        };
        let recorded = self.record.len() as u32;
        self.record.push(Recorded { want, from: self.clock, until: NEVER });
        self.clock += 1;
        let handle = self.blocks.insert(Held { span, source, step: self.step, recorded });
        Ok(Allocation { span, handle })
    }

    #[inline]
    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        let held = self.blocks.remove(handle)?;
        if held.step == self.step {
            self.record[held.recorded as usize].until = self.clock;
        }
        self.clock += 1;
        match held.source {
            Source::Plan(index) => self.end_planned(index),
            Source::Bins(handle) => {
                self.bins.free(handle)?;
            }
        }
        Ok(held.span)
    }

    /// Plans the recorded step if it differed from the plan. While a planned block is alive, the plan stays.
    fn end_step(&mut self) -> Option<u64> {
        self.deviated |= self.next != self.plan.len() || self.arena.is_none();
        let learns = self.deviated && self.planned_live == 0 && !self.record.is_empty();
        if learns {
            self.learn();
        }
        self.step = self.step.wrapping_add(1);
        (self.clock, self.next, self.passed, self.deviated) = (0, 0, 0, false);
        self.record.clear();
        // What is still alive was to be freed: its place is taken until it is.
        self.overdue.clear();
        for (index, planned) in self.plan.iter_mut().enumerate() {
            planned.overdue = NEVER;
            if planned.live {
                planned.overdue = self.overdue.len() as u32;
                self.overdue.push(index as u32);
            }
        }
        (learns && self.height > 0).then_some(self.height)
    }

    fn granule(&self) -> u64 {
        self.bins.granule()
    }

    fn capacity(&self) -> u64 {
        self.bins.capacity()
    }

    fn free_bytes(&self) -> u64 {
        let arena = self.arena.map_or(0, |arena| arena.span.size);
        self.bins.free_bytes() + arena - self.planned_bytes
    }

    fn live(&self) -> usize {
        self.blocks.len()
    }

    fn free_spans(&self) -> Vec<Span> {
        let mut spans = self.bins.free_spans();
        let Some(Allocation { span: arena, .. }) = self.arena else { return spans };
        let planned = |held: &Held| matches!(held.source, Source::Plan(_)).then_some(held.span);
        let mut live: Vec<Span> = self.blocks.iter().filter_map(|(_, held)| planned(held)).collect();
        live.sort_unstable();
        let mut from = arena.offset;
        for span in live {
            spans.push(Span { size: span.offset - from, offset: from, page: arena.page });
            from = span.offset + span.size;
        }
        spans.push(Span { size: arena.offset + arena.size - from, offset: from, page: arena.page });
        spans.retain(|span| span.size > 0);
        spans.sort_unstable();
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three blocks of which bins need five kibibytes and a plan four.
    fn step(learned: &mut Learned, sizes: [u64; 4]) -> Vec<Allocation> {
        let [a, b, c, d] = sizes;
        let alloc = |learned: &mut Learned, size| learned.alloc(size, 1).expect("room");
        let first = alloc(learned, a);
        let second = alloc(learned, b);
        let third = alloc(learned, c);
        learned.free(second.handle).expect("live");
        let fourth = alloc(learned, d);
        let all = vec![first, third, fourth];
        for (i, x) in all.iter().enumerate() {
            for y in &all[..i] {
                let (x, y) = (x.span, y.span);
                assert!(x.offset + x.size <= y.offset || y.offset + y.size <= x.offset, "{x:?} {y:?}");
            }
        }
        all
    }

    fn finish(learned: &mut Learned, live: Vec<Allocation>) -> Option<u64> {
        for block in live {
            learned.free(block.handle).expect("live");
        }
        learned.end_step()
    }

    fn learned(bytes: u64) -> Learned {
        let mut learned = Learned::new(256).expect("a power of two");
        learned.add_page(0, bytes, 1).expect("a fresh page");
        learned
    }

    const STEP: [u64; 4] = [1024, 1024, 1024, 2048];

    #[test]
    fn second_step_fits_in_the_height_of_its_plan() {
        let mut learned = learned(5120);
        let live = step(&mut learned, STEP);
        assert_eq!(finish(&mut learned, live), Some(4096));
        learned.remove_page(0).expect("idle");
        learned.add_page(1, 4096, 4096).expect("a fresh page");
        for _ in 0..3 {
            let live = step(&mut learned, STEP);
            assert_eq!((learned.free_bytes(), learned.free_spans()), (0, vec![]));
            assert_eq!(finish(&mut learned, live), None, "the plan holds");
        }
        learned.remove_page(1).expect("nothing is planned there now");
        assert_eq!((learned.capacity(), learned.free_bytes()), (0, 0));
    }

    #[test]
    fn deviations_are_placed_beside_the_plan_and_learned() {
        let mut learned = learned(16_384);
        let live = step(&mut learned, STEP);
        finish(&mut learned, live);
        // An allocation that was not recorded, then one that is missing.
        let more = learned.alloc(3072, 1).expect("room");
        let live = step(&mut learned, [1024, 1024, 512, 2048]);
        assert!(live.iter().all(|block| block.span.offset != more.span.offset));
        learned.free(more.handle).expect("live");
        assert!(finish(&mut learned, live).is_some(), "a new plan");
        // A block that is freed in the step after: its place is not handed out until then.
        let kept = step(&mut learned, STEP);
        learned.end_step();
        let live = step(&mut learned, STEP);
        for (x, y) in kept.iter().flat_map(|x| live.iter().map(move |y| (x.span, y.span))) {
            assert!(x.offset + x.size <= y.offset || y.offset + y.size <= x.offset, "{x:?} {y:?}");
        }
        finish(&mut learned, kept);
        finish(&mut learned, live);
        assert_eq!(learned.free_bytes(), 16_384);
    }
}
