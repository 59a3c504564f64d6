//! Adapter requirements of kernels.

use crate::limits::{Limits, MAX_LOOP_ITERATIONS};

/// Adapter requirements of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Minimum subgroup size; 0 if it uses no subgroup operations.
    pub(super) subgroup: u32,
    /// Threads per workgroup.
    pub(super) threads: u32,
    /// Bytes of workgroup memory.
    pub(super) workgroup_bytes: u32,
}

impl Needs {
    /// Met by every adapter.
    pub(super) const NOTHING: Self = Self { subgroup: 0, threads: 64, workgroup_bytes: 0 };
    /// Lanes of a subgroup that share their loads by broadcast.
    pub(super) const SHARING: Self = Self { subgroup: 8, threads: 8, workgroup_bytes: 0 };
    /// `shaders/tile/tile.wgsl`.
    pub(super) const TILE: Self = Self { subgroup: 0, threads: 64, workgroup_bytes: 8192 };

    /// Whether a thread can loop over `steps` of the inner dimension within [`MAX_LOOP_ITERATIONS`]. Checked
    /// only for tiles in workgroup memory on software adapters, where a step takes more than one iteration.
    pub(super) fn ends(&self, steps: u64, limits: &Limits) -> bool {
        !limits.class.is_cpu() || self.workgroup_bytes == 0 || steps <= MAX_LOOP_ITERATIONS * 3 / 4
    }

    /// Whether an adapter meets the requirements.
    pub(super) fn met_by(&self, limits: &Limits) -> bool {
        limits.min_subgroup >= self.subgroup
            && limits.max_invocations >= self.threads
            && limits.max_workgroup_bytes >= self.workgroup_bytes
    }
}
