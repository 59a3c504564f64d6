//! What kernels need of an adapter.

use crate::limits::{Limits, MAX_LOOP_ITERATIONS};

/// What a kernel needs of an adapter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Threads of the smallest subgroup; 0 for none.
    pub(super) subgroup: u32,
    /// Threads of a workgroup.
    pub(super) threads: u32,
    /// Bytes of workgroup memory.
    pub(super) workgroup_bytes: u32,
}

impl Needs {
    /// Nothing that an adapter could lack.
    pub(super) const NOTHING: Self = Self { subgroup: 0, threads: 64, workgroup_bytes: 0 };
    /// Lanes that hand round what they read.
    pub(super) const SHARING: Self = Self { subgroup: 8, threads: 8, workgroup_bytes: 0 };
    /// `shaders/tile/tile64.wgsl`
    pub(super) const TILE64: Self = Self { subgroup: 0, threads: 64, workgroup_bytes: 8704 };
    /// `shaders/tile/tile128.wgsl`
    pub(super) const TILE128: Self = Self { subgroup: 0, threads: 256, workgroup_bytes: 16_384 };

    /// Whether a thread's loops over so many steps of the inner dimension end in time: of tiles in workgroup memory each step
    /// takes more than one of the iterations that software adapters give.
    pub(super) fn ends(&self, steps: u64, limits: &Limits) -> bool {
        !limits.class.is_cpu() || self.workgroup_bytes == 0 || steps <= MAX_LOOP_ITERATIONS * 3 / 4
    }

    /// Whether an adapter has it.
    pub(super) fn met_by(&self, limits: &Limits) -> bool {
        limits.min_subgroup >= self.subgroup
            && limits.max_invocations >= self.threads
            && limits.max_workgroup_bytes >= self.workgroup_bytes
    }
}
