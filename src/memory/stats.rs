//! Statistics of a pool, under PyTorch's names.

use std::collections::BTreeMap;

/// A counter over time, as in PyTorch's `memory_stats`: current value, peak and totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Current value.
    pub current: u64,
    /// Highest value since creation or since the last [`MemoryStats::reset_peaks`].
    pub peak: u64,
    /// Sum of all increases.
    pub allocated: u64,
    /// Sum of all decreases.
    pub freed: u64,
}

impl Stat {
    /// Increases the value by `n`.
    pub fn add(&mut self, n: u64) {
        self.current += n;
        self.peak = self.peak.max(self.current);
        self.allocated += n;
    }

    /// Decreases the value by `n`, which must be at most the current value.
    pub fn sub(&mut self, n: u64) {
        self.current -= n;
        self.freed += n;
    }

    /// Sets the value to `n` and counts the difference as an increase or a decrease. Used for values derived
    /// from other counters.
    pub fn set(&mut self, n: u64) {
        if n >= self.current { self.add(n - self.current) } else { self.sub(self.current - n) }
    }
}

/// One [`Stat`] per label, such as a class or a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, Stat>);

impl Tally {
    /// Returns the counter of `label`, which is created at 0 if it is missing.
    pub fn of(&mut self, label: &str) -> &mut Stat {
        self.0.entry(label.to_owned()).or_default()
    }

    /// Iterates over labels and counters in label order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Stat)> {
        self.0.iter().map(|(label, stat)| (label.as_str(), stat))
    }

    /// Returns the counter of `label`, or `None` if the label has none.
    pub fn get(&self, label: &str) -> Option<&Stat> {
        self.0.get(label)
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&mut self) {
        self.0.values_mut().for_each(|stat| stat.peak = stat.current);
    }
}

/// Statistics of a pool. The module [`memory`](super) defines the terms. Values are bytes unless a field is
/// documented as a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes of live blocks, padded.
    pub allocated: Stat,
    /// Bytes of all pages.
    pub reserved: Stat,
    /// Bytes of live blocks and of blocks whose free is deferred.
    pub active: Stat,
    /// Requested bytes of live blocks.
    pub requested: Stat,
    /// Bytes of holes in pages with at least one active block.
    pub inactive_split: Stat,
    /// Count of live blocks.
    pub allocations: Stat,
    /// Count of pages; `allocated` is the number of native allocations ever made.
    pub segments: Stat,
    /// Number of times that idle pages were released to make room for a new page.
    pub num_alloc_retries: u64,
    /// Number of requests that failed for lack of memory.
    pub num_ooms: u64,
}

impl MemoryStats {
    /// Resets the peaks to the current values.
    pub fn reset_peaks(&mut self) {
        let Self { allocated, reserved, active, requested, inactive_split, allocations, segments, .. } = self;
        for stat in [allocated, reserved, active, requested, inactive_split, allocations, segments] {
            stat.peak = stat.current;
        }
    }

    /// Returns the share of the reserved bytes that is not allocated, 0 to 1 (GMLake's definition); 0 if
    /// nothing is reserved.
    pub fn fragmentation(&self) -> f64 {
        if self.reserved.current == 0 {
            return 0.0;
        }
        1.0 - self.allocated.current as f64 / self.reserved.current as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_tracks_peak_and_sums() {
        let mut stat = Stat::default();
        stat.add(5);
        stat.sub(3);
        stat.set(4);
        stat.set(1);
        assert_eq!(stat, Stat { current: 1, peak: 5, allocated: 7, freed: 6 });
        let mut all = MemoryStats { active: stat, ..MemoryStats::default() };
        all.reset_peaks();
        assert_eq!(all.active.peak, 1);
    }
}
