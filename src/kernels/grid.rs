//! Grids of dispatches: no dimension may exceed the limit of the adapter.

use super::{Kernel, Launch, Operand, Site};

/// Returns the number of vec4s for `n` elements; the last one may reach into padding.
pub(super) fn quads(n: u64) -> u32 {
    n.div_ceil(4) as u32
}

/// Returns a grid of at least `groups` workgroups, split over x and y.
pub(super) fn fold(groups: u64, max: u32) -> [u32; 3] {
    let rows = groups.div_ceil(u64::from(max)).max(1);
    let columns = groups.div_ceil(rows).max(1);
    [columns as u32, rows as u32, 1]
}

/// Returns a launch of at least `threads` threads; `params` follow the word `threads_x`.
pub(super) fn per_thread(
    site: &Site,
    kernel: &Kernel,
    threads: u64,
    memory: Vec<Operand>,
    params: &[u32],
) -> Launch<Operand> {
    let grid = fold(threads.div_ceil(u64::from(kernel.workgroup)), site.limits.max_workgroups);
    let mut words = vec![grid[0] * kernel.workgroup];
    words.extend_from_slice(params);
    Launch { kernel: kernel.clone(), constants: Vec::new(), memory, params: words, grid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_grids_cover_everything_within_the_limit() {
        for groups in [0, 1, 65_535, 65_536, 1 << 26, 65_535 * 65_535] {
            let [x, y, z] = fold(groups, 65_535);
            assert!((1..=65_535).contains(&x) && (1..=65_535).contains(&y) && z == 1);
            assert!(u64::from(x) * u64::from(y) >= groups);
        }
    }
}
