//! Memory layout: persistent storages get arenas of their own, and the rest is packed by lifetime.

use super::program::{Program, Storage, StorageId};
use crate::compile::plan::Settings;
use crate::error::Result;
use crate::limits::{ALIGNMENT, Limits};
use crate::memory::planner::{self, Certificate, Item, Options, Problem};

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arena {
    /// Holds parameters and optimizer state, which outlive the step.
    pub persistent: bool,
    /// Index among the buffers of its kind.
    pub index: u32,
}

impl std::fmt::Display for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", if self.persistent { "persistent" } else { "step" }, self.index)
    }
}

/// A memory location: all that a kernel knows about memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The buffer.
    pub arena: Arena,
    /// Byte offset in the buffer, a multiple of [`ALIGNMENT`].
    pub offset: u64,
}

/// A region for each storage, and the sizes of all arenas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where each of [`Program::storages`] starts.
    pub regions: Vec<Region>,
    /// Bytes of each persistent arena.
    pub persistent: Vec<u64>,
    /// Bytes of each step arena.
    pub step: Vec<u64>,
    /// Unused bytes after each step storage, filled with a pattern that debug runs check.
    pub guard_bytes: u64,
}

/// The storages of a step as a packing problem: one item for each storage that is not persistent, in order.
pub(in crate::compile) fn step_problem(
    program: &Program,
    limits: &Limits,
    reuse: bool,
    guard_bytes: u64,
) -> Problem {
    let end = program.order.len() as u64 + 1;
    let item = |storage: &Storage| {
        let (from, to) = if reuse { (storage.first as u64, storage.last as u64 + 1) } else { (0, end) };
        Item::new(storage.name.clone(), from, to, storage.bytes + guard_bytes).aligned(ALIGNMENT)
    };
    let items = program.storages.iter().filter(|s| !s.persistent).map(item).collect();
    Problem { items, max_arena: Some(limits.max_buffer / ALIGNMENT * ALIGNMENT), max_item: None }
}

/// Of a step with more tensors than this a packing takes seconds, most of them for the last of one part in [`LET_BE`] above the
/// bound, which suffices.
const LARGE: usize = 2500;
const LET_BE: u64 = 4000;

impl Layout {
    pub(in crate::compile) fn pack(
        program: &Program,
        limits: &Limits,
        settings: &Settings,
    ) -> Result<(Self, Certificate)> {
        let &Settings { reuse, guard_bytes, packing, .. } = settings;
        let storages = &program.storages;
        let everywhere = Region { arena: Arena { persistent: true, index: 0 }, offset: 0 };
        let mut layout = Self {
            regions: vec![everywhere; storages.len()],
            persistent: Vec::new(),
            step: Vec::new(),
            guard_bytes,
        };
        layout.place_persistent(storages, limits);
        let transient: Vec<usize> = (0..storages.len()).filter(|&i| !storages[i].persistent).collect();
        let problem = step_problem(program, limits, reuse, guard_bytes);
        let near = || planner::lower_bound(&problem.items).map(|bound| bound.saturating_add(bound / LET_BE));
        let capacity = if problem.items.len() > LARGE { near() } else { None };
        let packing = planner::solve(&problem, &Options { effort: packing, capacity, ..Options::default() })?;
        for (&i, placement) in transient.iter().zip(&packing.solution.placements) {
            let arena = Arena { persistent: false, index: placement.arena };
            layout.regions[i] = Region { arena, offset: placement.offset };
        }
        layout.step = packing.solution.arenas.clone();
        Ok((layout, packing.certificate))
    }

    /// Places persistent storages one after another, and starts the next buffer when one is full, so that
    /// programs over the same parameters agree. A row is placed as one piece. What is larger than a buffer starts one and
    /// continues in the next.
    fn place_persistent(&mut self, storages: &[Storage], limits: &Limits) {
        let mut bytes: Vec<u64> = storages.iter().map(|s| s.bytes).collect();
        for storage in storages {
            if let Some((first, start)) = storage.after {
                bytes[first.0 as usize] = start + storage.bytes;
            }
        }
        for (i, storage) in storages.iter().enumerate().filter(|(_, s)| s.persistent) {
            if let Some((first, start)) = storage.after {
                let Region { arena, offset } = self.regions[first.0 as usize];
                self.regions[i] = Region { arena, offset: offset + start };
                continue;
            }
            match self.persistent.last() {
                Some(used) if used + bytes[i] <= limits.max_buffer => {}
                _ => self.persistent.push(0),
            }
            let index = self.persistent.len() - 1;
            let arena = Arena { persistent: true, index: index as u32 };
            self.regions[i] = Region { arena, offset: self.persistent[index] };
            let in_buffer = if storage.in_buffer < storage.bytes { storage.in_buffer } else { bytes[i] };
            let mut left = bytes[i];
            while left > in_buffer {
                left -= in_buffer;
                self.persistent.insert(index, in_buffer);
            }
            *self.persistent.last_mut().expect("one was pushed") += left;
        }
    }

    /// The location of a byte of a storage. Its end, where something of no bytes may lie, is in its last buffer.
    pub fn locate(&self, program: &Program, storage: StorageId, offset: u64) -> Region {
        let Region { mut arena, offset: start } = self.regions[storage.0 as usize];
        let Storage { bytes, in_buffer, .. } = program.storages[storage.0 as usize];
        let buffer = (offset / in_buffer).min((bytes - 1) / in_buffer);
        arena.index += buffer as u32;
        Region { arena, offset: start + offset - buffer * in_buffer }
    }

    /// The parts of a storage, each in another buffer: its location, its bytes, and those of elements, without padding.
    pub fn parts(&self, program: &Program, storage: StorageId) -> impl Iterator<Item = (Region, u64, u64)> {
        let Storage { bytes, used_bytes, in_buffer, .. } = program.storages[storage.0 as usize];
        (0..bytes).step_by(in_buffer as usize).map(move |start| {
            let len = |all: u64| (start + in_buffer).min(all) - start;
            (self.locate(program, storage, start), len(bytes), len(used_bytes))
        })
    }

    /// Bytes of all persistent arenas.
    pub fn persistent_bytes(&self) -> u64 {
        self.persistent.iter().sum()
    }

    /// Every arena with its size in bytes.
    pub fn arenas(&self) -> impl Iterator<Item = (Arena, u64)> {
        let kind = |persistent: bool| {
            move |(index, bytes): (usize, &u64)| (Arena { persistent, index: index as u32 }, *bytes)
        };
        let persistent = self.persistent.iter().enumerate().map(kind(true));
        persistent.chain(self.step.iter().enumerate().map(kind(false)))
    }
}
