//! Kernels for convolutions. Each exists in variants from one text: its source read as it is or through a batch norm, and,
//! where it adds a bias, with and without one.

use super::{ACTIVATION, ACTIVATIONS, ELEM4, GRID, Kernel, NONE};

const CONV: &str = wgsl!("prelude/conv");
const CONV_WEIGHT: &str = wgsl!("prelude/conv_weight");
const WITH_BIAS: &str = wgsl!("prelude/with_bias");
const WITHOUT_BIAS: &str = wgsl!("prelude/without_bias");
const PLAIN: &str = wgsl!("prelude/source_plain");
const NORMED: &str = wgsl!("prelude/source_normed");

/// `[plain, normed]`.
macro_rules! sourced {
    ($id:ident, $name:literal, [$($part:expr),*], $workgroup:literal) => {
        #[doc = concat!("`shaders/", $name, ".wgsl`: its source as it is, and through a batch norm.")]
        pub static $id: [Kernel; 2] = [
            Kernel {
                name: $name,
                parts: &[PLAIN, $($part,)* wgsl!($name)],
                slots: &[1, 2, 3],
                workgroup: $workgroup,
                variants: NONE,
            },
            Kernel {
                name: concat!($name, "_normed"),
                parts: &[ELEM4, ACTIVATION, NORMED, $($part,)* wgsl!($name)],
                slots: &[1, 2, 3, 5, 6, 7, 8],
                workgroup: $workgroup,
                variants: ACTIVATIONS,
            },
        ];
    };
}

/// `[[plain, normed] without a bias, [plain, normed] with one]`.
macro_rules! biased {
    ($id:ident, $name:literal, [$($part:expr),*]) => {
        #[doc = concat!("`shaders/", $name, ".wgsl`: without a bias for each channel and with one, each with its source as it \
                 is and through a batch norm.")]
        pub static $id: [[Kernel; 2]; 2] = [
            [
                Kernel {
                    name: $name,
                    parts: &[PLAIN, $($part,)* WITHOUT_BIAS, wgsl!($name)],
                    slots: &[1, 2, 3],
                    workgroup: 64,
                    variants: NONE,
                },
                Kernel {
                    name: concat!($name, "_normed"),
                    parts: &[ELEM4, ACTIVATION, NORMED, $($part,)* WITHOUT_BIAS, wgsl!($name)],
                    slots: &[1, 2, 3, 5, 6, 7, 8],
                    workgroup: 64,
                    variants: ACTIVATIONS,
                },
            ],
            [
                Kernel {
                    name: concat!($name, "_bias"),
                    parts: &[PLAIN, $($part,)* WITH_BIAS, wgsl!($name)],
                    slots: &[1, 2, 3, 4],
                    workgroup: 64,
                    variants: NONE,
                },
                Kernel {
                    name: concat!($name, "_normed_bias"),
                    parts: &[ELEM4, ACTIVATION, NORMED, $($part,)* WITH_BIAS, wgsl!($name)],
                    slots: &[1, 2, 3, 4, 5, 6, 7, 8],
                    workgroup: 64,
                    variants: ACTIVATIONS,
                },
            ],
        ];
    };
}

biased!(CONV_DIRECT, "conv_direct", [GRID, CONV]);
biased!(CONV_TILED, "conv_tiled", [CONV]);
sourced!(CONV_CPU, "conv_cpu", [CONV], 8);
sourced!(CONV_WEIGHT_CPU, "conv_weight_cpu", [CONV_WEIGHT], 8);
sourced!(CONV_WEIGHT_DIRECT, "conv_weight_direct", [GRID, CONV_WEIGHT], 64);
sourced!(CONV_WEIGHT_TILED, "conv_weight_tiled", [CONV_WEIGHT], 64);

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
