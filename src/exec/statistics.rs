//! Memory statistics of a run, under PyTorch's names.

use std::collections::BTreeMap;
use std::fmt;

#[cfg(not(target_family = "wasm"))]
use super::Eager;
use super::Session;
use crate::compile::{Footprint, Plan};
use crate::device::DriverMemory;
use crate::json::Json;
use crate::memory::{MemoryStats, Stat, Tally, memory_summary};

/// Memory statistics of a run at one moment; the terms are defined in [`memory`](crate::memory).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Name of the adapter, for the header of the table.
    pub adapter: String,
    /// Bytes and counts of all allocations. Staging, uniform and readback buffers are allocated as long as
    /// the run is open.
    pub memory: MemoryStats,
    /// Allocated bytes by class, `parameters` to `inputs`, and by purpose for other buffers.
    pub by_class: Tally,
    /// Allocated bytes by layer, for tensors only.
    pub by_layer: Tally,
    /// What the driver's allocator reports for the whole device, other runs included; `None` if it reports
    /// nothing.
    pub driver: Option<DriverMemory>,
}

impl RunStats {
    /// Returns the statistics as JSON, with PyTorch's keys: `allocated_bytes.all.peak`.
    pub fn json(&self) -> Json {
        let m = &self.memory;
        let numbers = [
            ("allocated_bytes.all", &m.allocated),
            ("active_bytes.all", &m.active),
            ("requested_bytes.all", &m.requested),
            ("reserved_bytes.all", &m.reserved),
            ("inactive_split_bytes.all", &m.inactive_split),
            ("allocation.all", &m.allocations),
            ("segment.all", &m.segments),
        ];
        let mut entries: Vec<(String, Json)> = Vec::new();
        let labelled = |tally: &Tally, kind: &str| -> Vec<(String, Stat)> {
            tally.iter().map(|(label, stat)| (format!("allocated_bytes.{kind}.{label}"), *stat)).collect()
        };
        let all = numbers.into_iter().map(|(key, stat)| (key.to_owned(), *stat));
        let all = all.chain(labelled(&self.by_class, "class")).chain(labelled(&self.by_layer, "layer"));
        for (key, Stat { current, peak, allocated, freed }) in all {
            for (what, n) in
                [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)]
            {
                entries.push((format!("{key}.{what}"), n.into()));
            }
        }
        entries.push(("num_alloc_retries".to_owned(), m.num_alloc_retries.into()));
        entries.push(("num_ooms".to_owned(), m.num_ooms.into()));
        entries.push(("driver_allocated_bytes".to_owned(), self.driver.map(|d| d.allocated).into()));
        entries.push(("driver_reserved_bytes".to_owned(), self.driver.map(|d| d.reserved).into()));
        Json::object(entries)
    }
}

impl fmt::Display for RunStats {
    /// Formats the table of PyTorch's `memory_summary`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let notes: Vec<String> = self.driver.iter().map(ToString::to_string).collect();
        let parts = [("allocated, by class", &self.by_class), ("allocated, by layer", &self.by_layer)];
        f.write_str(&memory_summary(&self.adapter, &self.memory, &parts, &notes))
    }
}

/// Number of runs of each plan of a session, and the plan that ran last.
#[derive(Default)]
pub(super) struct History {
    /// Runs since the session was opened.
    total: Vec<u64>,
    /// Whether each plan ran since peaks were reset.
    recent: Vec<bool>,
    last: Option<usize>,
}

impl History {
    pub(super) fn of(plans: usize) -> Self {
        Self { total: vec![0; plans], recent: vec![false; plans], last: None }
    }

    pub(super) fn ran(&mut self, plan: usize) {
        self.total[plan] += 1;
        self.recent[plan] = true;
        self.last = Some(plan);
    }
}

/// Changes that one run of a plan makes to the statistics, counted from 0.
#[derive(Default)]
struct StepUse {
    allocated: Stat,
    requested: Stat,
    allocations: Stat,
    by_class: BTreeMap<&'static str, Stat>,
    by_layer: BTreeMap<String, Stat>,
}

impl StepUse {
    /// Simulates the step, operation by operation. Where a result takes over its operand's memory, the class
    /// changes.
    fn of(plan: &Plan) -> Self {
        let program = &plan.program;
        let end = program.order.len();
        let mut born = vec![Vec::new(); end + 1];
        let mut changes = vec![Vec::new(); end + 1];
        let mut dead = vec![Vec::new(); end + 1];
        for (i, storage) in program.storages.iter().enumerate().filter(|(_, s)| !s.persistent) {
            born[storage.first].push(i);
            dead[storage.last.min(end)].push(i);
            for pair in storage.tenants.windows(2) {
                changes[pair[1].0].push((i, pair[0].1, pair[1].1));
            }
        }
        let mut it = Self::default();
        for position in 0..=end {
            for &(i, before, after) in &changes[position] {
                let bytes = program.storages[i].bytes;
                it.by_class.entry(before.name()).or_default().sub(bytes);
                it.by_class.entry(after.name()).or_default().add(bytes);
            }
            for &i in &born[position] {
                let storage = &program.storages[i];
                it.allocated.add(storage.bytes);
                it.requested.add(storage.used_bytes);
                it.allocations.add(1);
                it.by_class.entry(storage.class_at(storage.first).name()).or_default().add(storage.bytes);
                it.by_layer.entry(program.layer_of(i).to_owned()).or_default().add(storage.bytes);
            }
            // Memory of outputs stays allocated until the next step.
            for &i in dead[position].iter().filter(|_| position < end) {
                let storage = &program.storages[i];
                it.allocated.sub(storage.bytes);
                it.requested.sub(storage.used_bytes);
                it.allocations.sub(1);
                it.by_class.entry(storage.class_at(storage.last).name()).or_default().sub(storage.bytes);
                it.by_layer.entry(program.layer_of(i).to_owned()).or_default().sub(storage.bytes);
            }
        }
        it
    }
}

/// Combines a constant `base` with the changes that the runs made.
fn combined(base: u64, uses: &[StepUse], history: &History, pick: impl Fn(&StepUse) -> Option<Stat>) -> Stat {
    let of = |i: usize| pick(&uses[i]).unwrap_or_default();
    let left = history.last.map_or(0, |i| of(i).current);
    let recent = (0..uses.len()).filter(|&i| history.recent[i]).map(|i| of(i).peak).max().unwrap_or(0);
    let total: u64 = (0..uses.len()).map(|i| history.total[i] * of(i).allocated).sum();
    let (current, allocated) = (base + left, base + total);
    Stat { current, peak: base + recent.max(left), allocated, freed: allocated - current }
}

impl Session {
    /// Returns what the session holds now and its peaks, by class and by layer. It is computed from the plans
    /// and from which plans ran, so it costs steps nothing.
    pub fn memory_stats(&self) -> RunStats {
        let uses: Vec<StepUse> = self.programs.iter().map(|program| StepUse::of(&program.plan)).collect();
        let history = &self.history;
        let state_plan = &self.state_plan.program;
        let (mut allocated, mut requested, mut count) = (0, 0, 0);
        let (mut classes, mut layers) = (BTreeMap::new(), BTreeMap::new());
        for (i, storage) in state_plan.storages.iter().enumerate().filter(|(_, s)| s.persistent) {
            allocated += storage.bytes;
            requested += storage.used_bytes;
            count += 1;
            *classes.entry(storage.class_at(0).name()).or_insert(0) += storage.bytes;
            *layers.entry(state_plan.layer_of(i).to_owned()).or_insert(0) += storage.bytes;
        }
        let Footprint { persistent, step, uniforms, staging, readback, transfer, offload, .. } =
            self.footprint();
        let others = uniforms + staging + readback + transfer + offload;
        let arenas = self.arenas.persistent.len() + self.arenas.step.len();
        let (allocated, requested) = (allocated + others, requested + others);
        count += (self.buffers() - arenas) as u64;
        let still = |n: u64| Stat { current: n, peak: n, allocated: n, freed: 0 };
        let all = combined(allocated, &uses, history, |u| Some(u.allocated));
        let reserved = persistent + step + others;
        // While nothing lives in the step's arenas they could be released as a whole, so they do not count as
        // inactive splits.
        let hole = |alive: u64| if alive > allocated { reserved - alive } else { reserved - step - alive };
        let holes = [hole(all.current), hole(all.peak)];
        let memory = MemoryStats {
            allocated: all,
            active: all,
            reserved: still(reserved),
            requested: combined(requested, &uses, history, |u| Some(u.requested)),
            inactive_split: Stat {
                current: holes[0],
                peak: holes[0].max(holes[1]),
                allocated: holes[0],
                freed: 0,
            },
            allocations: combined(count, &uses, history, |u| Some(u.allocations)),
            segments: still(self.buffers() as u64),
            ..MemoryStats::default()
        };
        let mut by_class = Tally::default();
        for class in crate::graph::Class::ALL.map(crate::graph::Class::name) {
            let base = classes.get(class).copied().unwrap_or(0);
            *by_class.of(class) = combined(base, &uses, history, |u| u.by_class.get(class).copied());
        }
        let purposes = [
            ("uniforms", uniforms),
            ("staging", staging),
            ("readback", readback),
            ("transfer", transfer),
            ("offload", offload),
        ];
        for (purpose, bytes) in purposes.into_iter().filter(|(name, bytes)| *bytes > 0 || *name != "offload")
        {
            *by_class.of(purpose) = still(bytes);
        }
        let mut by_layer = Tally::default();
        let names = uses.iter().flat_map(|u| u.by_layer.keys()).chain(layers.keys());
        for layer in names {
            let base = layers.get(layer).copied().unwrap_or(0);
            *by_layer.of(layer) = combined(base, &uses, history, |u| u.by_layer.get(layer).copied());
        }
        let device = self.device();
        let adapter = device.adapter().name.clone();
        RunStats { adapter, memory, by_class, by_layer, driver: device.driver_memory() }
    }

    /// Resets the peaks to the current values (PyTorch's `reset_peak_memory_stats`).
    pub fn reset_peak_memory_stats(&mut self) {
        self.history.recent.fill(false);
    }
}

#[cfg(not(target_family = "wasm"))]
impl Eager {
    /// Returns what the run holds now and its peaks, by class and by layer. [`Eager::stats`] covers the pool
    /// alone; here the buffers outside of the pool count as well.
    pub fn memory_stats(&self) -> RunStats {
        let mut memory = *self.stats();
        let mut by_class = self.by_class.clone();
        let others = self.device_bytes() - memory.reserved.current;
        let count = self.ledger.buffers() as u64;
        let grown = |stat: &mut Stat, n: u64| {
            *stat = Stat {
                current: stat.current + n,
                peak: stat.peak + n,
                allocated: stat.allocated + n,
                freed: stat.freed,
            };
        };
        for stat in [&mut memory.allocated, &mut memory.active, &mut memory.requested, &mut memory.reserved] {
            grown(stat, others);
        }
        grown(&mut memory.allocations, count);
        grown(&mut memory.segments, count);
        by_class.of("uniforms, staging, readback, transfer").add(others);
        let device = &self.ledger.device;
        let adapter = device.adapter().name.clone();
        RunStats {
            adapter,
            memory,
            by_class,
            by_layer: self.by_layer.clone(),
            driver: device.driver_memory(),
        }
    }

    /// Resets the peaks to the current values (PyTorch's `reset_peak_memory_stats`).
    pub fn reset_peak_memory_stats(&mut self) {
        self.pool.reset_peaks();
        self.by_class.reset_peaks();
        self.by_layer.reset_peaks();
    }

    /// Returns names and bytes of all live allocations, for a [`Monitor`](crate::train::Monitor) at the end
    /// of an epoch.
    pub fn live(&self) -> Vec<(String, u64)> {
        self.pool.live().map(|live| (live.name.to_string(), live.block.size)).collect()
    }

    /// Returns pages, live tensors and the logged events as a snapshot for <https://pytorch.org/memory_viz>.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn dump(&self) -> crate::memory::Dump {
        self.pool.dump()
    }
}
