//! Kernels for images.

use super::{ACTIVATION, ELEM1, ELEM4, GRID, GROUP_REDUCE, IN_PLACE, Kernel, NAN, NONE, OUT_OF_PLACE};

const POOL: &str = wgsl!("prelude/pool");
const AVERAGES: &str = wgsl!("prelude/averages");
const PIECES: &str = wgsl!("prelude/pieces");
const RESAMPLE_AXIS: &str = wgsl!("prelude/resample");
const CHANNELS: &str = wgsl!("prelude/channels");
const ALONE: &str = wgsl!("prelude/alone");
const TOGETHER: &str = wgsl!("prelude/together");

/// A pair of kernels from one text: a thread for each job (CPU adapters), and a workgroup (GPUs).
macro_rules! teamed {
    ($alone:ident, $together:ident, $name:literal, [$($part:expr),*], [$($slot:literal),*]) => {
        /// One thread for each job.
        pub static $alone: Kernel = Kernel {
            name: $name,
            parts: &[CHANNELS, $($part,)* ALONE, wgsl!($name)],
            slots: &[$($slot),*],
            workgroup: 8,
            variants: NONE,
        };
        /// One workgroup for each job.
        pub static $together: Kernel = Kernel {
            name: concat!($name, "_wg"),
            parts: &[CHANNELS, $($part,)* GROUP_REDUCE, TOGETHER, wgsl!($name)],
            slots: &[$($slot),*],
            workgroup: 128,
            variants: NONE,
        };
    };
}

const AVERAGED: &[&[(&str, f64)]] =
    &[&[("COUNT_PADDING", 0.0)], &[("COUNT_PADDING", 1.0)], &[("ADAPTIVE", 1.0)]];
const NEAREST: &[&[(&str, f64)]] = &[&[("NEAREST", 0.0)], &[("NEAREST", 1.0)]];
pub(super) const ACTIVATIONS: &[&[(&str, f64)]] =
    &[&[("ACTIVATION", 0.0)], &[("ACTIVATION", 1.0)], &[("ACTIVATION", 2.0)]];

kernel!(MAX_POOL, "max_pool", [GRID, POOL, NAN], [1, 2, 3], 64, NONE);
kernel!(MAX_POOL_GRAD, "max_pool_grad", [GRID, POOL], [1, 2, 3], 64, NONE);
kernel!(AVG_POOL, "avg_pool", [GRID, PIECES, AVERAGES], [1, 2], 64, AVERAGED);
kernel!(AVG_POOL_GRAD, "avg_pool_grad", [GRID, PIECES, AVERAGES], [1, 2], 64, AVERAGED);
kernel!(RESAMPLE, "resample", [GRID, RESAMPLE_AXIS], [1, 2], 64, NEAREST);
kernel!(RESAMPLE_GRAD, "resample_grad", [GRID, PIECES, RESAMPLE_AXIS], [1, 2], 64, NEAREST);
kernel!(RUNNING_STATS, "running_stats", [GRID], [1, 2, 3, 4], 64, NONE);
teamed!(BATCH_STATS, BATCH_STATS_WG, "batch_stats", [], [1, 2]);
teamed!(BATCH_NORM_SUMS, BATCH_NORM_SUMS_WG, "batch_norm_sums", [ELEM1, ACTIVATION], [1, 2, 3, 4, 5, 6, 7]);
kernel!(BATCH_STATS_END, "batch_stats_end", [CHANNELS], [1, 2, 3, 4], 8, NONE);
kernel!(BATCH_NORM_SUMS_END, "batch_norm_sums_end", [CHANNELS], [1, 2, 3, 4, 5, 6, 7, 8], 8, NONE);
placed!(BATCH_NORM, BATCH_NORM_IN_PLACE, "batch_norm", ELEM1, [ACTIVATION], [3, 4, 5, 6], 64, ACTIVATIONS);
placed!(
    BATCH_NORM_GRAD,
    BATCH_NORM_GRAD_IN_PLACE,
    "batch_norm_grad",
    ELEM1,
    [ACTIVATION],
    [3, 4],
    64,
    ACTIVATIONS
);

/// `shaders/batch_norm.wgsl` and `batch_norm_grad.wgsl` in fours; each in memory of its own, then in place.
pub static BATCH_NORM_FOURS: [Kernel; 4] = [
    Kernel {
        name: "batch_norm4",
        parts: &[GRID, ELEM4, OUT_OF_PLACE, ACTIVATION, wgsl!("batch_norm")],
        ..BATCH_NORM
    },
    Kernel {
        name: "batch_norm4_in_place",
        parts: &[GRID, ELEM4, IN_PLACE, ACTIVATION, wgsl!("batch_norm")],
        ..BATCH_NORM_IN_PLACE
    },
    Kernel {
        name: "batch_norm_grad4",
        parts: &[GRID, ELEM4, OUT_OF_PLACE, ACTIVATION, wgsl!("batch_norm_grad")],
        ..BATCH_NORM_GRAD
    },
    Kernel {
        name: "batch_norm_grad4_in_place",
        parts: &[GRID, ELEM4, IN_PLACE, ACTIVATION, wgsl!("batch_norm_grad")],
        ..BATCH_NORM_GRAD_IN_PLACE
    },
];
