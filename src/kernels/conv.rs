//! Kernels for convolutions. Each exists in variants from one text: its source read as it is, through a batch norm, or as
//! the join of two; and, where it adds a bias, without and with one.

use super::{
    ACTIVATION, ACTIVATIONS, ELEM4, GRID, IMAGE, Kernel, NONE, SHARE4, SHARE8, SHARED, STORE_LANES,
    STORE_ONE, TILE64, TILE128,
};

const CONV: &str = wgsl!("prelude/conv");
const CONV_OPERANDS: &str = wgsl!("prelude/conv_operands");
const CONV_WEIGHT: &str = wgsl!("prelude/conv_weight");
const CONV_WEIGHT_OPERANDS: &str = wgsl!("prelude/conv_weight_operands");
const BLOCKS_OF_QUADS: &str = wgsl!("prelude/blocks_of_quads");
const WITH_BIAS: &str = wgsl!("prelude/with_bias");
const WITHOUT_BIAS: &str = wgsl!("prelude/without_bias");
const TURN1: &str = wgsl!("prelude/conv_turn1");
const TURN2: &str = wgsl!("prelude/conv_turn2");
const PLAIN: &str = wgsl!("prelude/source_plain");
const NORMED: &str = wgsl!("prelude/source_normed");
const ONE: &str = wgsl!("prelude/one_source");
const TWO: &str = wgsl!("prelude/two_sources");

/// The variants of a convolution: `[plain, normed, joined]`.
macro_rules! sources {
    ($name:expr, [$($part:expr),*], [$($slot:literal),*], $workgroup:literal) => {
        [
            Kernel {
                name: $name,
                parts: &[PLAIN, IMAGE, ONE, $($part),*],
                slots: &[1, 2, 3, $($slot),*],
                workgroup: $workgroup,
                variants: NONE,
            },
            Kernel {
                name: concat!($name, "_normed"),
                parts: &[ELEM4, ACTIVATION, NORMED, IMAGE, ONE, $($part),*],
                slots: &[1, 2, 3, $($slot,)* 5, 6, 7, 8],
                workgroup: $workgroup,
                variants: ACTIVATIONS,
            },
            Kernel {
                name: concat!($name, "_joined"),
                parts: &[PLAIN, IMAGE, TWO, $($part),*],
                slots: &[1, 2, 3, $($slot,)* 5],
                workgroup: $workgroup,
                variants: NONE,
            },
        ]
    };
}

/// The variants of a weight's gradient: `[plain, normed]`.
macro_rules! weight_sources {
    ($name:literal, [$($part:expr),*], $workgroup:literal) => {
        [
            Kernel {
                name: $name,
                parts: &[PLAIN, IMAGE, CONV_WEIGHT, $($part),*],
                slots: &[1, 2, 3],
                workgroup: $workgroup,
                variants: NONE,
            },
            Kernel {
                name: concat!($name, "_normed"),
                parts: &[ELEM4, ACTIVATION, NORMED, IMAGE, CONV_WEIGHT, $($part),*],
                slots: &[1, 2, 3, 5, 6, 7, 8],
                workgroup: $workgroup,
                variants: ACTIVATIONS,
            },
        ]
    };
}

/// `shaders/conv_direct.wgsl`, without a bias and with one.
pub static CONV_DIRECT: [[Kernel; 3]; 2] = [
    sources!("conv_direct", [GRID, CONV, STORE_ONE, WITHOUT_BIAS, wgsl!("conv_direct")], [], 64),
    sources!("conv_direct_bias", [GRID, CONV, STORE_ONE, WITH_BIAS, wgsl!("conv_direct")], [4], 64),
];
/// `shaders/tile64.wgsl` of a convolution's operands, without a bias and with one.
pub static CONV_TILED64: [[Kernel; 3]; 2] = [
    sources!("conv_tiled64", [CONV, STORE_LANES, WITHOUT_BIAS, CONV_OPERANDS, TILE64], [], 64),
    sources!("conv_tiled64_bias", [CONV, STORE_LANES, WITH_BIAS, CONV_OPERANDS, TILE64], [4], 64),
];
/// `shaders/tile128.wgsl` of the same.
pub static CONV_TILED128: [[Kernel; 3]; 2] = [
    sources!(
        "conv_tiled128",
        [CONV, STORE_LANES, WITHOUT_BIAS, CONV_OPERANDS, BLOCKS_OF_QUADS, TILE128],
        [],
        256
    ),
    sources!(
        "conv_tiled128_bias",
        [CONV, STORE_LANES, WITH_BIAS, CONV_OPERANDS, BLOCKS_OF_QUADS, TILE128],
        [4],
        256
    ),
];
/// `shaders/conv_cpu.wgsl`: `conv_pack` has put the bias behind the weights.
pub static CONV_CPU: [Kernel; 3] =
    sources!("conv_cpu", [CONV, STORE_LANES, TURN2, SHARED, SHARE8, wgsl!("conv_cpu")], [], 8);
/// The same for subgroups of four.
pub static CONV_CPU4: [Kernel; 3] =
    sources!("conv_cpu4", [CONV, STORE_LANES, TURN1, SHARED, SHARE4, wgsl!("conv_cpu")], [], 8);
/// `shaders/conv_weight_cpu.wgsl`
pub static CONV_WEIGHT_CPU: [Kernel; 2] =
    weight_sources!("conv_weight_cpu", [SHARED, SHARE8, wgsl!("conv_weight_cpu")], 8);
/// The same for subgroups of four.
pub static CONV_WEIGHT_CPU4: [Kernel; 2] =
    weight_sources!("conv_weight_cpu4", [SHARED, SHARE4, wgsl!("conv_weight_cpu")], 8);
/// `shaders/conv_weight_direct.wgsl`
pub static CONV_WEIGHT_DIRECT: [Kernel; 2] =
    weight_sources!("conv_weight_direct", [GRID, wgsl!("conv_weight_direct")], 64);
/// `shaders/tile64.wgsl` of the operands of a weight's gradient.
pub static CONV_WEIGHT_TILED64: [Kernel; 2] =
    weight_sources!("conv_weight_tiled64", [CONV_WEIGHT_OPERANDS, TILE64], 64);
/// `shaders/tile128.wgsl` of the same.
pub static CONV_WEIGHT_TILED128: [Kernel; 2] =
    weight_sources!("conv_weight_tiled128", [CONV_WEIGHT_OPERANDS, BLOCKS_OF_QUADS, TILE128], 256);

/// `shaders/conv_pack.wgsl`: without a bias for each channel, and with one.
pub static CONV_PACK: [Kernel; 2] = [
    Kernel {
        name: "conv_pack",
        parts: &[GRID, WITHOUT_BIAS, wgsl!("conv_pack")],
        slots: &[1, 2],
        workgroup: 64,
        variants: NONE,
    },
    Kernel {
        name: "conv_pack_bias",
        parts: &[GRID, WITH_BIAS, wgsl!("conv_pack")],
        slots: &[1, 2, 4],
        workgroup: 64,
        variants: NONE,
    },
];

pub(super) const KERNELS: [&Kernel; 36] = [
    &CONV_DIRECT[0][0],
    &CONV_DIRECT[0][1],
    &CONV_DIRECT[0][2],
    &CONV_DIRECT[1][0],
    &CONV_DIRECT[1][1],
    &CONV_DIRECT[1][2],
    &CONV_TILED64[0][0],
    &CONV_TILED64[0][1],
    &CONV_TILED64[0][2],
    &CONV_TILED64[1][0],
    &CONV_TILED64[1][1],
    &CONV_TILED64[1][2],
    &CONV_TILED128[0][0],
    &CONV_TILED128[0][1],
    &CONV_TILED128[0][2],
    &CONV_TILED128[1][0],
    &CONV_TILED128[1][1],
    &CONV_TILED128[1][2],
    &CONV_CPU[0],
    &CONV_CPU[1],
    &CONV_CPU[2],
    &CONV_CPU4[0],
    &CONV_CPU4[1],
    &CONV_CPU4[2],
    &CONV_PACK[0],
    &CONV_PACK[1],
    &CONV_WEIGHT_CPU[0],
    &CONV_WEIGHT_CPU[1],
    &CONV_WEIGHT_CPU4[0],
    &CONV_WEIGHT_CPU4[1],
    &CONV_WEIGHT_DIRECT[0],
    &CONV_WEIGHT_DIRECT[1],
    &CONV_WEIGHT_TILED64[0],
    &CONV_WEIGHT_TILED64[1],
    &CONV_WEIGHT_TILED128[0],
    &CONV_WEIGHT_TILED128[1],
];
