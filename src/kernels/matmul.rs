//! Kernels for matrix products. Each exists for every way in which its two operands can be held.

use super::{Kernel, NONE, SHARE8, SHARED, STORE_FOURS, STORE_LANES, TILE64, TILE128};

const PARAMS: &str = wgsl!("prelude/matmul_params");
const FOURS: &str = wgsl!("prelude/matmul_fours");
const ONES: &str = wgsl!("prelude/matmul_ones");
const STEP4: &str = wgsl!("prelude/matmul_step4");
const TILES: &str = wgsl!("prelude/matmul_tiles");
const QUADS: &str = wgsl!("prelude/matmul_quads");
const BLOCKS: &str = wgsl!("prelude/matmul_blocks");

/// How the elements of a product's operand are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// In 32 bits.
    F32,
    /// As IEEE binary16, two to a word.
    F16,
    /// As bfloat16, two to a word.
    Bf16,
}

impl Held {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The lower-case name used in kernels' names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// The text by which an operand that is held like this is read: `A` is operand 0, `B` operand 1.
    pub(in crate::kernels) const fn operand(self, operand: usize) -> &'static str {
        OPERANDS[operand][self as usize]
    }

    /// What that text builds on in `kernel`.
    pub(in crate::kernels) fn numbers(self, kernel: &Kernel) -> Option<&'static str> {
        match self {
            Self::F32 => None,
            Self::F16 if CPU_KERNELS.contains(&kernel) => Some(wgsl!("prelude/matmul_of_f16_cpu")),
            Self::F16 => Some(wgsl!("prelude/matmul_of_f16")),
            Self::Bf16 => Some(wgsl!("prelude/matmul_of_bf16")),
        }
    }
}

const OPERANDS: [[&str; 3]; 2] = [
    [wgsl!("prelude/matmul_a_f32"), wgsl!("prelude/matmul_a_f16"), wgsl!("prelude/matmul_a_bf16")],
    [wgsl!("prelude/matmul_b_f32"), wgsl!("prelude/matmul_b_f16"), wgsl!("prelude/matmul_b_bf16")],
];

const TRANSPOSES: &[&[(&str, f64)]] = &[
    &[("TRANSPOSE_A", 0.0), ("TRANSPOSE_B", 0.0)],
    &[("TRANSPOSE_A", 0.0), ("TRANSPOSE_B", 1.0)],
    &[("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 0.0)],
    &[("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 1.0)],
];

/// A product of operands in 32 bits; [`reading`](crate::kernels::reading) makes the others of it.
macro_rules! product {
    ($id:ident, $name:literal, $elements:expr, $store:expr, [$($part:expr),*], $workgroup:literal, $variants:expr) => {
        #[doc = concat!("`C = op(A) · op(B)`, ", $name)]
        pub static $id: Kernel = Kernel {
            name: $name,
            parts: &[PARAMS, Held::F32.operand(0), Held::F32.operand(1), $elements, $store, $($part),*],
            slots: &[1, 2, 3],
            workgroup: $workgroup,
            variants: $variants,
        };
    };
}

product!(
    MATMUL_ANY,
    "matmul_any",
    ONES,
    STORE_LANES,
    [STEP4, wgsl!("matmul_any")],
    64,
    &[&[("LANES_N", 8.0), ("LANES_M", 8.0)], &[("LANES_N", 4.0), ("LANES_M", 2.0)]]
);
product!(
    MATMUL_CPU_ANY,
    "matmul_cpu_any",
    ONES,
    STORE_LANES,
    [SHARED, SHARE8, wgsl!("matmul_cpu_any")],
    8,
    NONE
);
product!(MATMUL_TILED64, "matmul_tiled64", ONES, STORE_LANES, [TILES, QUADS, TILE64], 64, TRANSPOSES);
product!(MATMUL_TILED128, "matmul_tiled128", FOURS, STORE_FOURS, [TILES, BLOCKS, TILE128], 256, TRANSPOSES);

/// A product in which the lanes of a subgroup share what they read of A; the last parts say how B lies.
macro_rules! sharing {
    ($id:ident, $name:literal, [$($part:expr),*]) => {
        product!($id, $name, FOURS, STORE_FOURS, [STEP4, $($part),*], 8, NONE);
    };
}

const B_ROWS: &str = wgsl!("prelude/matmul_b_rows");
const B_COLUMNS: &str = wgsl!("prelude/matmul_b_columns");

sharing!(MATMUL_CPU_NN, "matmul_cpu_nn", [B_ROWS, wgsl!("matmul_cpu")]);
sharing!(MATMUL_CPU_NT, "matmul_cpu_nt", [B_COLUMNS, wgsl!("matmul_cpu")]);
sharing!(MATMUL_CPU_TN, "matmul_cpu_tn", [wgsl!("matmul_cpu_tn")]);
sharing!(MATMUL_CPU8_NN, "matmul_cpu8_nn", [B_ROWS, wgsl!("matmul_cpu8")]);
sharing!(MATMUL_CPU8_NT, "matmul_cpu8_nt", [B_COLUMNS, wgsl!("matmul_cpu8")]);
sharing!(MATMUL_CPU8_TN, "matmul_cpu8_tn", [wgsl!("matmul_cpu8_tn")]);

pub(super) const KERNELS: [&Kernel; 3] = [&MATMUL_ANY, &MATMUL_TILED64, &MATMUL_TILED128];

/// Those that only CPU adapters run.
pub(super) const CPU_KERNELS: [&Kernel; 7] = [
    &MATMUL_CPU_ANY,
    &MATMUL_CPU_NN,
    &MATMUL_CPU_NT,
    &MATMUL_CPU_TN,
    &MATMUL_CPU8_NN,
    &MATMUL_CPU8_NT,
    &MATMUL_CPU8_TN,
];
