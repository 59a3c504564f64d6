//! The script of a choice, with the bytes alive while it runs. They match the program built from the script, without building it.
//! Another choice for some slots is measured by what it changes.

use std::cmp::Reverse;
use std::ops::Range;

use super::change::{Change, missing_after};
use super::cost_model::CostModel;
use super::heights::Meter;
use super::script::{Retention, Writer};
use super::uses::{Finder, Use, alive_before, brought, fresh, is_read_after};
use crate::compile::passes::ScheduleEntry;

/// Memory and time of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::compile) struct Measure {
    /// Maximum bytes alive at once within the step.
    pub peak: u64,
    /// Bytes above the target, summed over the steps.
    pub excess: u64,
    /// Number of steps above the target.
    pub over: u64,
    /// Modelled time of recomputation and of copies of offloaded results, in seconds.
    pub again_s: f64,
}

/// What another choice needs: as in [`Measure`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub excess: u64,
    pub again_s: f64,
}

/// A step without recomputation takes less than `1 << UNITS` units of time. Sums of whole units do not depend on their order.
const UNITS: i32 = 48;

/// A script, and the bytes alive in it. It consists of blocks, one for each operation of the order: what is recomputed for it, then the
/// operation itself.
pub(in crate::compile) struct Timeline<'a> {
    model: &'a CostModel,
    /// The target peak, in bytes.
    target: i64,
    /// Units of time in a second.
    units: f64,
    writer: Writer<'a>,
    finder: Finder,
    meter: Meter,
    retention: Vec<Retention>,
    now: Measure,
    /// Units of time of recomputation and copies.
    again: u64,
    blocks: Blocks,
    /// Bytes alive during each step.
    heights: Vec<i64>,
    /// Bytes alive before each block.
    alive: Vec<i64>,
    /// Bytes of inputs that nothing reads. They are freed after the first step.
    unread: u64,
    /// The blocks that use each slot, in order.
    uses: Vec<Vec<Use>>,
    change: Change,
}

/// What is recomputed for each block.
#[derive(Default)]
struct Blocks {
    /// The first step of each block, among all steps, and the number of these.
    starts: Vec<usize>,
    /// The steps that are recomputed.
    steps: Vec<ScheduleEntry>,
}

impl Blocks {
    fn number(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// What is recomputed for a block.
    fn steps(&self, block: usize) -> &[ScheduleEntry] {
        &self.steps[self.starts[block] - block..self.starts[block + 1] - block - 1]
    }

    /// Appends a block; the last start is missing.
    fn push(&mut self, steps: &[ScheduleEntry]) {
        self.starts.push(self.steps.len() + self.starts.len());
        self.steps.extend_from_slice(steps);
    }

    /// Appends blocks of another script.
    fn copy(&mut self, other: &Self, blocks: Range<usize>) {
        let by = self.steps.len() + self.starts.len();
        let from = other.starts[blocks.start];
        self.starts.extend(other.starts[blocks.clone()].iter().map(|start| start + by - from));
        let steps = other.starts[blocks.start] - blocks.start..other.starts[blocks.end] - blocks.end;
        self.steps.extend_from_slice(&other.steps[steps]);
    }

    /// The steps of some blocks, among all steps.
    fn range(&self, blocks: Range<usize>) -> Range<usize> {
        self.starts[blocks.start]..self.starts[blocks.end]
    }
}

impl<'a> Timeline<'a> {
    /// The script of a choice. If it cannot be written, there is none yet: [`Timeline::set`].
    pub(in crate::compile) fn new(model: &'a CostModel, target: u64, retention: &[Retention]) -> Self {
        let (slots, blocks) = (model.slots.len(), model.order.len());
        let (_, exponent) = libm::frexp(model.seconds());
        let mut timeline = Self {
            model,
            target: i64::try_from(target).unwrap_or(i64::MAX),
            units: libm::ldexp(1.0, UNITS - exponent),
            writer: Writer::new(model),
            finder: Finder::new(slots),
            meter: Meter::new(slots),
            retention: retention.to_vec(),
            now: Measure::default(),
            again: 0,
            blocks: Blocks::default(),
            heights: Vec::new(),
            alive: Vec::new(),
            unread: 0,
            uses: vec![Vec::new(); slots],
            change: Change::new(slots, blocks),
        };
        timeline.set(retention);
        timeline
    }

    pub(in crate::compile) fn now(&self) -> Measure {
        self.now
    }

    pub(super) fn retention(&self) -> &[Retention] {
        &self.retention
    }

    /// Work of the last measurement, in units that take about as much time each, the same on every machine.
    pub(super) fn work(&self) -> u64 {
        let Change { slots, steps, used, heights, shifted, .. } = &self.change;
        let shifted: usize = shifted.iter().map(|(blocks, _)| self.blocks.range(blocks.clone()).len()).sum();
        (16 + 2 * slots.len() + 4 * steps.len() + used.len() + 2 * heights.len() + shifted / 32) as u64
    }

    /// The target peak, in bytes.
    pub(super) fn target(&self) -> u64 {
        self.target as u64
    }

    /// Another target peak.
    pub(super) fn aim(&mut self, target: u64) {
        self.target = i64::try_from(target).unwrap_or(i64::MAX);
        self.sum_up();
    }

    /// Number of steps of the script.
    pub(super) fn steps(&self) -> u64 {
        self.heights.len() as u64
    }

    fn time(&self, steps: &[ScheduleEntry]) -> u64 {
        let seconds = |step: &ScheduleEntry| match brought(self.model, step) {
            Some(slot) => self.model.slots[slot as usize].away_s.unwrap_or(0.0),
            None => self.model.works[step.node as usize].seconds,
        };
        steps.iter().map(|step| (seconds(step) * self.units).round() as u64).sum()
    }

    /// Writes the script of another choice. If a slot cannot be recomputed when it is needed, nothing changes.
    pub(super) fn set(&mut self, retention: &[Retention]) -> Option<Measure> {
        let model = self.model;
        let before = self.writer.restart();
        let mut blocks = Blocks { starts: vec![0], steps: Vec::new() };
        for at in 0..model.order.len() {
            if self.writer.write_before(at, retention, &mut blocks.steps).is_err() {
                self.writer.resume(before);
                return None;
            }
            blocks.starts.push(blocks.steps.len() + at + 1);
        }
        self.writer.log.clear();
        self.retention.copy_from_slice(retention);
        self.again = self.time(&blocks.steps);
        self.uses.iter_mut().for_each(Vec::clear);
        let number = blocks.number();
        for block in 0..number {
            self.finder.add(model, block, blocks.steps(block), 0);
            self.finder.drain(|slot, [how, _]| {
                self.uses[slot as usize].push(Use { block: block as u32, how });
            });
        }
        self.alive.clear();
        self.alive.resize(number + 2, 0);
        self.unread = 0;
        for (slot, uses) in model.slots.iter().zip(&self.uses) {
            if slot.input && uses.is_empty() {
                self.unread += slot.bytes;
            }
            alive_before(slot, uses, number, |from, until| {
                self.alive[from] += slot.bytes as i64;
                self.alive[until + 1] -= slot.bytes as i64;
            });
        }
        let mut sum = 0;
        self.alive.iter_mut().for_each(|alive| {
            sum += *alive;
            *alive = sum;
        });
        self.heights.clear();
        for block in 0..number {
            let uses = &self.uses;
            let after = |slot: u32| is_read_after(&model.slots[slot as usize], &uses[slot as usize], block);
            let ends = if block == 0 { self.unread } else { 0 };
            let steps = (blocks.steps(block), model.order[block]);
            self.meter.heights(model, steps, (self.alive[block], ends), after, &mut self.heights);
        }
        self.blocks = blocks;
        self.sum_up();
        Some(self.now)
    }

    fn sum_up(&mut self) {
        let above = |height: &i64| (height - self.target).max(0) as u64;
        self.now = Measure {
            peak: self.heights.iter().copied().max().unwrap_or(0).max(0) as u64,
            excess: self.heights.iter().map(above).sum(),
            over: self.heights.iter().filter(|&&height| height > self.target).count() as u64,
            again_s: self.again as f64 / self.units,
        };
    }

    /// Measures another choice for some slots, which [`Timeline::keep`] can then take. `None` if a slot cannot be recomputed when it
    /// is needed, if the excess is more than `most`, or if it does not take less than `below_s` again.
    pub(super) fn measure(
        &mut self,
        choices: &mut dyn Iterator<Item = (usize, Retention)>,
        most: u64,
        below_s: f64,
    ) -> Option<Outcome> {
        self.change.begin();
        let written = self.write(choices);
        self.restore();
        let again_s = self.change.again as f64 / self.units;
        if !written || again_s >= below_s {
            return None;
        }
        self.find_uses();
        self.measure_heights();
        let excess = self.change.excess;
        (excess <= most).then_some(Outcome { excess, again_s })
    }

    /// Writes the blocks again of which another choice may change what they recompute. `false` if one cannot be written.
    fn write(&mut self, choices: &mut dyn Iterator<Item = (usize, Retention)>) -> bool {
        let Self { model, writer, retention, blocks, uses, change, .. } = self;
        for (slot, choice) in choices {
            if retention[slot] == choice {
                continue;
            }
            change.meet(slot as u32, retention[slot], writer.made(slot as u32));
            retention[slot] = choice;
            writer.forget(slot as u32);
            change.follow(slot as u32, &uses[slot], None);
        }
        writer.log.clear();
        let mut looked = std::mem::take(&mut change.looked);
        let mut possible = blocks.number() > 0;
        while let Some(Reverse((block, slot))) = change.queue.pop().filter(|_| possible) {
            looked.clear();
            looked.push(slot);
            while let Some(&Reverse((_, slot))) = change.queue.peek().filter(|next| next.0.0 == block) {
                if !looked.contains(&slot) {
                    looked.push(slot);
                }
                change.queue.pop();
            }
            let before = blocks.steps(block);
            for slot in before.iter().flat_map(|step| fresh(model, step)) {
                if writer.made(slot) == block as u32 {
                    writer.forget(slot);
                }
            }
            let start = change.steps.len();
            possible = writer.write_before(block, retention, &mut change.steps).is_ok();
            for (slot, made) in writer.log.drain(..) {
                change.meet(slot, retention[slot as usize], made);
                if !looked.contains(&slot) {
                    looked.push(slot);
                }
            }
            for &slot in &looked {
                let (number, choice, made) = change.met[slot as usize];
                debug_assert_eq!(number, change.number, "a slot that differs was met");
                let now = missing_after(block, retention[slot as usize], writer.made(slot));
                if missing_after(block, choice, made) != now {
                    change.follow(slot, &uses[slot as usize], Some(block));
                }
            }
            if change.steps[start..] == *before {
                change.steps.truncate(start);
            } else {
                change.written.push((block, start..change.steps.len()));
            }
        }
        change.looked = looked;
        possible
    }

    /// Notes how the slots that were met are under the other choice, and restores the present one.
    fn restore(&mut self) {
        let Self { writer, retention, change, .. } = self;
        for (slot, choice, made) in &mut change.slots {
            let (_, before, made_before) = change.met[*slot as usize];
            *choice = std::mem::replace(&mut retention[*slot as usize], before);
            *made = writer.made(*slot);
            writer.set_made(*slot, made_before);
        }
        writer.log.clear();
        let blocks = self.change.written.iter();
        let before: u64 = blocks.map(|&(block, _)| self.time(self.blocks.steps(block))).sum();
        self.change.again = self.again - before + self.time(&self.change.steps);
    }

    /// Finds the slots that other blocks use, where other bytes are alive, and which blocks to measure.
    fn find_uses(&mut self) {
        let Self { model, finder, blocks, uses, change, .. } = self;
        for i in 0..change.written.len() {
            let (block, steps) = change.written[i].clone();
            finder.add(model, block, blocks.steps(block), 0);
            finder.add(model, block, &change.steps[steps], 1);
            finder.drain(|slot, [before, how]| {
                if before != how {
                    change.differing.push((slot, Use { block: block as u32, how }));
                }
            });
            change.measure(block);
        }
        change.differing.sort_unstable();
        let differing = std::mem::take(&mut change.differing);
        for differing in differing.chunk_by(|a, b| a.0 == b.0) {
            let slot = differing[0].0;
            let (known, before) = (&model.slots[slot as usize], &uses[slot as usize]);
            let start = change.used.len();
            let mut rest = before.as_slice();
            for &(_, other) in differing {
                let (earlier, later) = rest.split_at(rest.partition_point(|old| old.block < other.block));
                change.used.extend_from_slice(earlier);
                change.used.extend((other.how != 0).then_some(other));
                let replaced = later.first().is_some_and(|old| old.block == other.block);
                rest = &later[usize::from(replaced)..];
            }
            change.used.extend_from_slice(rest);
            change.listed[slot as usize] = (change.number, change.uses.len() as u32);
            change.uses.push((slot, start..change.used.len()));
            change.compare(known, before, start, blocks.number());
        }
        change.differing = differing;
    }

    /// Measures the blocks that have other steps, or read something last, and how much more is alive during the others.
    fn measure_heights(&mut self) {
        let Self { model, target, meter, blocks, heights, alive, uses, change, .. } = self;
        let above = |height: i64| (height - *target).max(0);
        change.measured.sort_unstable();
        change.added_at.sort_unstable();
        change.added_at.dedup();
        let (mut excess, mut from, mut shift, mut next) = (0, 0, 0, 0);
        let measured = std::mem::take(&mut change.measured);
        for (i, end) in measured.iter().copied().chain([blocks.number()]).enumerate() {
            while let Some(&at) = change.added_at.get(next).filter(|at| **at <= end) {
                change.shift(from..at, shift);
                (from, shift, next) = (from.max(at), shift + change.added[at], next + 1);
            }
            change.shift(from..end, shift);
            from = end + 1;
            if i == measured.len() {
                break;
            }
            let start = change.heights.len();
            let mut new = std::mem::take(&mut change.heights);
            let after = |slot: u32| is_read_after(&model.slots[slot as usize], change.uses(slot, uses), end);
            let written = change.written.binary_search_by_key(&end, |(block, _)| *block);
            let steps = match written {
                Ok(at) => &change.steps[change.written[at].1.clone()],
                Err(_) => blocks.steps(end),
            };
            let ends = if end == 0 { self.unread } else { 0 };
            let before = alive[end] + shift;
            meter.heights(model, (steps, model.order[end]), (before, ends), after, &mut new);
            let old = heights[blocks.range(end..end + 1)].iter().map(|&height| above(height)).sum::<i64>();
            excess += new[start..].iter().map(|&height| above(height)).sum::<i64>() - old;
            change.results.push((before, start..new.len()));
            change.heights = new;
        }
        change.measured = measured;
        for (range, shift) in &change.shifted {
            let heights = &heights[blocks.range(range.clone())];
            excess += heights.iter().map(|&height| above(height + shift) - above(height)).sum::<i64>();
        }
        change.excess = self.now.excess.saturating_add_signed(excess);
    }

    /// Makes another choice for some slots. `None`, and nothing changes, if a slot cannot be recomputed when it is needed.
    pub(super) fn take(&mut self, choices: &mut dyn Iterator<Item = (usize, Retention)>) -> Option<Measure> {
        self.measure(choices, u64::MAX, f64::INFINITY)?;
        Some(self.keep())
    }

    /// Makes the choice that was measured last the present one.
    pub(super) fn keep(&mut self) -> Measure {
        let Self { writer, retention, blocks, heights, alive, uses, change, .. } = self;
        for &(slot, choice, made) in &change.slots {
            retention[slot as usize] = choice;
            writer.set_made(slot, made);
        }
        writer.log.clear();
        for (slot, used) in &change.uses {
            let uses = &mut uses[*slot as usize];
            uses.clear();
            uses.extend_from_slice(&change.used[used.clone()]);
        }
        for (range, shift) in &change.shifted {
            heights[blocks.range(range.clone())].iter_mut().for_each(|height| *height += shift);
            alive[range.clone()].iter_mut().for_each(|alive| *alive += shift);
        }
        for (&block, (before, new)) in change.measured.iter().zip(&change.results) {
            alive[block] = *before;
            let old = blocks.range(block..block + 1);
            if old.len() == new.len() {
                heights[old].copy_from_slice(&change.heights[new.clone()]);
            }
        }
        self.replace_blocks();
        self.again = self.change.again;
        self.sum_up();
        self.now
    }

    /// Replaces the steps of the blocks that were written again, and the heights where there are more or fewer steps.
    fn replace_blocks(&mut self) {
        let Self { blocks, heights, change, .. } = self;
        if change.written.is_empty() {
            return;
        }
        let old = std::mem::take(blocks);
        let mut new_heights = Vec::with_capacity(heights.len() + change.heights.len());
        let mut from = 0;
        for (block, steps) in change.written.iter().map(|(block, steps)| (*block, steps.clone())) {
            let at = change.measured.binary_search(&block).unwrap_or_default();
            blocks.copy(&old, from..block);
            new_heights.extend_from_slice(&heights[old.range(from..block)]);
            blocks.push(&change.steps[steps]);
            new_heights.extend_from_slice(&change.heights[change.results[at].1.clone()]);
            from = block + 1;
        }
        blocks.copy(&old, from..old.number());
        new_heights.extend_from_slice(&heights[old.range(from..old.number())]);
        blocks.starts.push(new_heights.len());
        *heights = new_heights;
    }
}
