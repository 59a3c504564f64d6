//! What a pool knows about itself, under PyTorch's names.

use std::collections::BTreeMap;

/// One number over time, as in PyTorch's `memory_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// Most ever, or since [`MemoryStats::reset_peaks`].
    pub peak: u64,
    /// Sum of all increases.
    pub allocated: u64,
    /// Sum of all decreases.
    pub freed: u64,
}

impl Stat {
    /// Grows by `n`.
    pub fn add(&mut self, n: u64) {
        self.current += n;
        self.peak = self.peak.max(self.current);
        self.allocated += n;
    }

    /// Shrinks by `n`, which must not be more than there is.
    pub fn sub(&mut self, n: u64) {
        self.current -= n;
        self.freed += n;
    }

    /// Moves to a value that is derived from others.
    pub fn set(&mut self, n: u64) {
        if n >= self.current { self.add(n - self.current) } else { self.sub(self.current - n) }
    }
}

/// The same number for each of several labels, such as classes or layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, Stat>);

impl Tally {
    /// The number of a label, which starts from 0.
    pub fn of(&mut self, label: &str) -> &mut Stat {
        self.0.entry(label.to_owned()).or_default()
    }

    /// Labels and numbers, by label.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Stat)> {
        self.0.iter().map(|(label, stat)| (label.as_str(), stat))
    }

    /// The number of a label, if it ever had one.
    pub fn get(&self, label: &str) -> Option<&Stat> {
        self.0.get(label)
    }

    /// Starts the peaks again from the present values.
    pub fn reset_peaks(&mut self) {
        self.0.values_mut().for_each(|stat| stat.peak = stat.current);
    }
}

/// Statistics of a pool; the words are defined in [`memory`](super). Bytes, unless a field says that it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes of live blocks, padded.
    pub allocated: Stat,
    /// Bytes of all pages.
    pub reserved: Stat,
    /// Bytes of live blocks and of blocks whose return is deferred.
    pub active: Stat,
    /// Bytes that callers asked for, of live blocks.
    pub requested: Stat,
    /// Bytes of holes in pages in which something is active.
    pub inactive_split: Stat,
    /// Count of live blocks.
    pub allocations: Stat,
    /// Count of pages; `allocated` is the number of native allocations ever made.
    pub segments: Stat,
    /// Times that idle pages were released to make room for a new one.
    pub num_alloc_retries: u64,
    /// Requests that failed for lack of memory.
    pub num_ooms: u64,
}

impl MemoryStats {
    /// Starts the peaks again from the present values.
    pub fn reset_peaks(&mut self) {
        let Self { allocated, reserved, active, requested, inactive_split, allocations, segments, .. } = self;
        for stat in [allocated, reserved, active, requested, inactive_split, allocations, segments] {
            stat.peak = stat.current;
        }
    }

    /// Share of the reserved bytes in which nothing is allocated, 0 to 1 (GMLake's definition); 0 if nothing is reserved.
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
