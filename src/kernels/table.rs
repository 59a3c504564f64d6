//! Every kernel: the WGSL files it is joined from, its binding slots, and the constants it is compiled with.

/// A kernel: `parts` joined, with one entry point `main`.
#[derive(Debug, PartialEq)]
pub struct Kernel {
    /// Name in reports and labels.
    pub name: &'static str,
    /// WGSL texts, joined in this order; the last is the kernel's own file.
    pub parts: &'static [&'static str],
    /// Binding numbers of the storage buffers, all `read_write`. Binding 0 is the `Params` uniform.
    pub slots: &'static [u32],
    /// Threads of one workgroup.
    pub workgroup: u32,
    /// Every set of constants the lowering uses, as examples that the shader tests compile.
    pub variants: &'static [&'static [(&'static str, f64)]],
}

macro_rules! wgsl {
    ($name:literal) => {
        include_str!(concat!("../../shaders/", $name, ".wgsl"))
    };
}

const GRID: &str = wgsl!("prelude/grid");
const ELEM1: &str = wgsl!("prelude/elem1");
const ELEM4: &str = wgsl!("prelude/elem4");
const OUT_OF_PLACE: &str = wgsl!("prelude/out_of_place");
const IN_PLACE: &str = wgsl!("prelude/in_place");
const UNARY_OPS: &str = wgsl!("prelude/unary_ops");
const BINARY_OPS: &str = wgsl!("prelude/binary_ops");
const STRIDED: &str = wgsl!("prelude/strided");

const GROUP_REDUCE: &str = wgsl!("prelude/group_reduce");

const LOG: &[&[(&str, f64)]] = &[&[("LOG", 0.0)], &[("LOG", 1.0)]];
const NONE: &[&[(&str, f64)]] = &[&[]];
const UNARY_CODES: &[&[(&str, f64)]] = &[
    &[("F", 0.0)],
    &[("F", 1.0)],
    &[("F", 2.0)],
    &[("F", 3.0)],
    &[("F", 4.0)],
    &[("F", 5.0)],
    &[("F", 6.0)],
    &[("F", 7.0)],
    &[("F", 8.0)],
    &[("F", 9.0)],
    &[("F", 10.0)],
    &[("F", 11.0)],
    &[("F", 12.0)],
    &[("F", 13.0)],
    &[("F", 14.0)],
    &[("F", 15.0)],
];
const BINARY_CODES: &[&[(&str, f64)]] = &[
    &[("F", 0.0)],
    &[("F", 1.0), ("SWAP", 1.0)],
    &[("F", 2.0)],
    &[("F", 3.0)],
    &[("F", 4.0)],
    &[("F", 5.0)],
    &[("F", 6.0)],
    &[("F", 7.0)],
    &[("F", 8.0)],
    &[("F", 9.0)],
];

/// A pair of kernels from one text: results in memory of their own, or over the first operand.
macro_rules! placed {
    ($away:ident, $over:ident, $name:literal, $elem:expr, [$($part:expr),*], [$($slot:literal),*], $workgroup:literal, $variants:expr) => {
        /// Result in memory of its own.
        pub static $away: Kernel = Kernel {
            name: $name,
            parts: &[GRID, $elem, OUT_OF_PLACE, $($part,)* wgsl!($name)],
            slots: &[1, 2, $($slot),*],
            workgroup: $workgroup,
            variants: $variants,
        };
        /// Result over the first operand.
        pub static $over: Kernel = Kernel {
            name: concat!($name, "_in_place"),
            parts: &[GRID, $elem, IN_PLACE, $($part,)* wgsl!($name)],
            slots: &[2, $($slot),*],
            workgroup: $workgroup,
            variants: $variants,
        };
    };
}

macro_rules! kernel {
    ($id:ident, $name:literal, [$($part:expr),*], [$($slot:literal),*], $workgroup:literal, $variants:expr) => {
        #[doc = concat!("`shaders/", $name, ".wgsl`")]
        pub static $id: Kernel = Kernel {
            name: $name,
            parts: &[$($part,)* wgsl!($name)],
            slots: &[$($slot),*],
            workgroup: $workgroup,
            variants: $variants,
        };
    };
}

placed!(UNARY, UNARY_IN_PLACE, "unary", ELEM4, [UNARY_OPS], [], 64, UNARY_CODES);
placed!(UNARY_GRAD, UNARY_GRAD_IN_PLACE, "unary_grad", ELEM4, [UNARY_OPS], [3], 64, UNARY_CODES);
placed!(BINARY, BINARY_IN_PLACE, "binary", ELEM4, [BINARY_OPS], [3], 64, BINARY_CODES);
placed!(
    BINARY_STRIDED,
    BINARY_STRIDED_IN_PLACE,
    "binary_strided",
    ELEM1,
    [BINARY_OPS, STRIDED],
    [3],
    64,
    BINARY_CODES
);
placed!(DROPOUT, DROPOUT_IN_PLACE, "dropout", ELEM4, [], [3], 64, NONE);
placed!(
    CROSS_ENTROPY_GRAD,
    CROSS_ENTROPY_GRAD_IN_PLACE,
    "cross_entropy_grad",
    ELEM1,
    [],
    [3, 4, 5],
    64,
    NONE
);
placed!(SOFTMAX, SOFTMAX_IN_PLACE, "softmax", ELEM1, [], [], 8, LOG);
placed!(SOFTMAX_GRAD, SOFTMAX_GRAD_IN_PLACE, "softmax_grad", ELEM1, [], [3], 8, LOG);
placed!(SOFTMAX_WG, SOFTMAX_WG_IN_PLACE, "softmax_wg", ELEM1, [GROUP_REDUCE], [], 128, LOG);
placed!(SOFTMAX_GRAD_WG, SOFTMAX_GRAD_WG_IN_PLACE, "softmax_grad_wg", ELEM1, [GROUP_REDUCE], [3], 128, LOG);
kernel!(CROSS_ENTROPY, "cross_entropy", [GRID], [1, 2, 3, 4], 8, NONE);
kernel!(LABEL_COUNT, "label_count", [GRID], [1, 2], 8, NONE);
kernel!(LABEL_SHARE, "label_share", [], [1, 2], 1, NONE);
kernel!(COPY, "copy", [GRID, STRIDED], [1, 2], 64, NONE);
kernel!(FILL, "fill", [GRID], [1], 64, NONE);
kernel!(CAST, "cast", [GRID], [1, 2], 64, &[&[("TO_U32", 0.0)], &[("TO_U32", 1.0)]]);
kernel!(
    REDUCE,
    "reduce",
    [GRID, STRIDED],
    [1, 2],
    32,
    &[&[("MODE", 0.0)], &[("MODE", 1.0)], &[("MODE", 2.0)]]
);
kernel!(
    MATMUL_ANY,
    "matmul_any",
    [],
    [1, 2, 3],
    64,
    &[&[("LANES_N", 8.0), ("LANES_M", 8.0)], &[("LANES_N", 4.0), ("LANES_M", 2.0)],]
);
kernel!(MATMUL_CPU_ANY, "matmul_cpu_any", [], [1, 2, 3], 8, NONE);
kernel!(MATMUL_CPU_NN, "matmul_cpu_nn", [], [1, 2, 3], 8, NONE);
kernel!(MATMUL_CPU_NT, "matmul_cpu_nt", [], [1, 2, 3], 8, NONE);
kernel!(MATMUL_CPU_TN, "matmul_cpu_tn", [], [1, 2, 3], 8, NONE);
kernel!(
    MATMUL_TILED,
    "matmul_tiled",
    [],
    [1, 2, 3],
    64,
    &[
        &[("TRANSPOSE_A", 0.0), ("TRANSPOSE_B", 0.0)],
        &[("TRANSPOSE_A", 0.0), ("TRANSPOSE_B", 1.0)],
        &[("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 0.0)],
        &[("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 1.0)],
    ]
);
kernel!(ADAM, "adam", [GRID], [1, 2, 3, 4, 5], 64, &[&[("DECOUPLED", 0.0)], &[("DECOUPLED", 1.0)]]);

/// `shaders/sgd.wgsl` without state.
pub static SGD: Kernel = Kernel {
    name: "sgd",
    parts: &[GRID, wgsl!("prelude/without_momentum"), wgsl!("sgd")],
    slots: &[1, 2, 3],
    workgroup: 64,
    variants: NONE,
};

/// `shaders/sgd.wgsl` with a velocity.
pub static MOMENTUM: Kernel = Kernel {
    name: "momentum",
    parts: &[GRID, wgsl!("prelude/with_momentum"), wgsl!("sgd")],
    slots: &[1, 2, 3, 4],
    workgroup: 64,
    variants: &[&[("NESTEROV", 0.0)], &[("NESTEROV", 1.0)]],
};

const CONV: &str = wgsl!("prelude/conv");
const CONV_WEIGHT: &str = wgsl!("prelude/conv_weight");
const WITH_BIAS: &str = wgsl!("prelude/with_bias");
const WITHOUT_BIAS: &str = wgsl!("prelude/without_bias");
const POOL: &str = wgsl!("prelude/pool");
const AVERAGES: &str = wgsl!("prelude/averages");
const RESAMPLE_AXIS: &str = wgsl!("prelude/resample");
const CHANNELS: &str = wgsl!("prelude/channels");
const ALONE: &str = wgsl!("prelude/alone");
const TOGETHER: &str = wgsl!("prelude/together");
const ACTIVATION: &str = wgsl!("prelude/activation");

/// A pair of kernels from one text: with a bias at the last slot, and without.
macro_rules! biased {
    ($without:ident, $with:ident, $name:literal, [$($part:expr),*], [$($slot:literal),*], $workgroup:literal) => {
        /// Without a bias.
        pub static $without: Kernel = Kernel {
            name: $name,
            parts: &[$($part,)* WITHOUT_BIAS, wgsl!($name)],
            slots: &[$($slot),*],
            workgroup: $workgroup,
            variants: NONE,
        };
        /// With a bias for each channel.
        pub static $with: Kernel = Kernel {
            name: concat!($name, "_bias"),
            parts: &[$($part,)* WITH_BIAS, wgsl!($name)],
            slots: &[$($slot,)* 4],
            workgroup: $workgroup,
            variants: NONE,
        };
    };
}

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
const ACTIVATIONS: &[&[(&str, f64)]] =
    &[&[("ACTIVATION", 0.0)], &[("ACTIVATION", 1.0)], &[("ACTIVATION", 2.0)]];

biased!(CONV_PACK, CONV_PACK_BIAS, "conv_pack", [GRID], [1, 2], 64);
biased!(CONV_DIRECT, CONV_DIRECT_BIAS, "conv_direct", [GRID, CONV], [1, 2, 3], 64);
biased!(CONV_TILED, CONV_TILED_BIAS, "conv_tiled", [CONV], [1, 2, 3], 64);
kernel!(CONV_CPU, "conv_cpu", [CONV], [1, 2, 3], 8, NONE);
kernel!(CONV_WEIGHT_CPU, "conv_weight_cpu", [CONV_WEIGHT], [1, 2, 3], 8, NONE);
kernel!(CONV_WEIGHT_DIRECT, "conv_weight_direct", [GRID, CONV_WEIGHT], [1, 2, 3], 64, NONE);
kernel!(CONV_WEIGHT_TILED, "conv_weight_tiled", [CONV_WEIGHT], [1, 2, 3], 64, NONE);
kernel!(MAX_POOL, "max_pool", [GRID, POOL], [1, 2, 3], 64, NONE);
kernel!(MAX_POOL_GRAD, "max_pool_grad", [GRID, POOL], [1, 2, 3], 64, NONE);
kernel!(AVG_POOL, "avg_pool", [GRID, POOL, AVERAGES], [1, 2], 64, AVERAGED);
kernel!(AVG_POOL_GRAD, "avg_pool_grad", [GRID, POOL, AVERAGES], [1, 2], 64, AVERAGED);
kernel!(RESAMPLE, "resample", [GRID, RESAMPLE_AXIS], [1, 2], 64, NEAREST);
kernel!(RESAMPLE_GRAD, "resample_grad", [GRID, RESAMPLE_AXIS], [1, 2], 64, NEAREST);
kernel!(RUNNING_STATS, "running_stats", [GRID], [1, 2, 3, 4], 64, NONE);
teamed!(BATCH_STATS, BATCH_STATS_WG, "batch_stats", [], [1, 2]);
teamed!(BATCH_NORM_SUMS, BATCH_NORM_SUMS_WG, "batch_norm_sums", [ELEM1, ACTIVATION], [1, 2, 3, 4, 5, 6, 7]);
kernel!(BATCH_STATS_END, "batch_stats_end", [CHANNELS], [1, 2, 3, 4, 5], 8, NONE);
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

/// Every kernel there is, for tests and warm-up.
pub static ALL: &[&Kernel] = &[
    &CONV_PACK,
    &CONV_PACK_BIAS,
    &CONV_DIRECT,
    &CONV_DIRECT_BIAS,
    &CONV_TILED,
    &CONV_TILED_BIAS,
    &CONV_CPU,
    &CONV_WEIGHT_CPU,
    &CONV_WEIGHT_DIRECT,
    &CONV_WEIGHT_TILED,
    &MAX_POOL,
    &MAX_POOL_GRAD,
    &AVG_POOL,
    &AVG_POOL_GRAD,
    &RESAMPLE,
    &RESAMPLE_GRAD,
    &RUNNING_STATS,
    &BATCH_STATS,
    &BATCH_STATS_WG,
    &BATCH_NORM_SUMS,
    &BATCH_NORM_SUMS_WG,
    &BATCH_STATS_END,
    &BATCH_NORM_SUMS_END,
    &BATCH_NORM,
    &BATCH_NORM_IN_PLACE,
    &BATCH_NORM_GRAD,
    &BATCH_NORM_GRAD_IN_PLACE,
    &BATCH_NORM_FOURS[0],
    &BATCH_NORM_FOURS[1],
    &BATCH_NORM_FOURS[2],
    &BATCH_NORM_FOURS[3],
    &UNARY,
    &UNARY_IN_PLACE,
    &UNARY_GRAD,
    &UNARY_GRAD_IN_PLACE,
    &BINARY,
    &BINARY_IN_PLACE,
    &BINARY_STRIDED,
    &BINARY_STRIDED_IN_PLACE,
    &DROPOUT,
    &DROPOUT_IN_PLACE,
    &CROSS_ENTROPY_GRAD,
    &CROSS_ENTROPY_GRAD_IN_PLACE,
    &SOFTMAX,
    &SOFTMAX_IN_PLACE,
    &SOFTMAX_GRAD,
    &SOFTMAX_GRAD_IN_PLACE,
    &SOFTMAX_WG,
    &SOFTMAX_WG_IN_PLACE,
    &SOFTMAX_GRAD_WG,
    &SOFTMAX_GRAD_WG_IN_PLACE,
    &CROSS_ENTROPY,
    &LABEL_COUNT,
    &LABEL_SHARE,
    &COPY,
    &FILL,
    &CAST,
    &REDUCE,
    &SGD,
    &MOMENTUM,
    &ADAM,
    &MATMUL_ANY,
    &MATMUL_CPU_ANY,
    &MATMUL_CPU_NN,
    &MATMUL_CPU_NT,
    &MATMUL_CPU_TN,
    &MATMUL_TILED,
];
