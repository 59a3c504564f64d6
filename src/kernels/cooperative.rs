//! Cooperative matrices, 8 × 8 and 16 × 16: kernels for products, whose operands have 32 or 16 bits, and the texts by which
//! [`cooperating`](crate::kernels::cooperating) makes kernels for convolutions.

use super::{ACTIVATIONS, Held, IMAGE, Kernel, STORE_LANES, TILE64};

/// Subgroups of all sizes, blocks of all shapes, each transpose, lines of any length and of fours.
const VARIANTS: &[&[(&str, f64)]] = &[
    &[("LANES", 32.0), ("FOURS_A", 1.0), ("FOURS_B", 1.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("ROWS", 2.0), ("TRANSPOSE_B", 1.0), ("FOURS_A", 1.0)],
    &[("LANES", 32.0), ("COLUMNS", 4.0), ("TRANSPOSE_A", 1.0), ("FOURS_B", 1.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("COLUMNS", 4.0), ("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 1.0)],
    &[("LANES", 64.0), ("GROUPS_N", 2.0)],
    &[("LANES", 16.0), ("GROUPS_N", 2.0), ("ROWS", 2.0), ("TRANSPOSE_A", 1.0)],
];

/// The same without what only products are told, and with the function that a batch norm of the image is followed by.
const BLOCKS: &[&[(&str, f64)]] = &[
    &[("LANES", 32.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("ROWS", 2.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("COLUMNS", 4.0)],
    &[("LANES", 64.0), ("GROUPS_N", 2.0)],
    &[("LANES", 16.0), ("GROUPS_N", 2.0), ("ROWS", 2.0)],
];
const NORMED_BLOCKS: &[&[(&str, f64)]] = &[
    &[("LANES", 32.0), ("ACTIVATION", 0.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("ROWS", 2.0), ("ACTIVATION", 1.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("COLUMNS", 4.0), ("ACTIVATION", 2.0)],
    &[("LANES", 64.0), ("GROUPS_N", 2.0), ("ACTIVATION", 1.0)],
];

const SIDE8: &str = wgsl!("prelude/cooperative8");
const SIDE16: &str = wgsl!("prelude/cooperative16");
const COOPERATIVE_TILES: &str = wgsl!("prelude/cooperative_tiles");
const COOPERATIVE_QUADS: &str = wgsl!("prelude/cooperative_quads");
const COOPERATIVE_IMAGE: &str = wgsl!("prelude/cooperative_image_f16");
const COOPERATIVE: &str = wgsl!("cooperative");

/// The texts of a convolution in tiles, or of the gradient of its weight, by cooperative matrices; `half`: its image is in `f16`.
pub(in crate::kernels) fn cooperating_parts(base: &Kernel, side: u32, half: bool) -> Vec<&'static str> {
    let own = base.parts.iter().copied().filter(|part| *part != TILE64);
    let own = own.map(|part| if half && part == IMAGE { COOPERATIVE_IMAGE } else { part });
    // The first enables what the others use.
    let matrices = if side == 8 { SIDE8 } else { SIDE16 };
    let last = [COOPERATIVE_TILES, COOPERATIVE_QUADS, COOPERATIVE];
    std::iter::once(matrices).chain(own).chain(last).collect()
}

/// Its constants, as examples.
pub(in crate::kernels) fn cooperating_variants(base: &Kernel) -> &'static [&'static [(&'static str, f64)]] {
    if base.variants == ACTIVATIONS { NORMED_BLOCKS } else { BLOCKS }
}

macro_rules! cooperative {
    ($name:expr, $side:expr, $a:literal, $b:literal) => {
        Kernel {
            name: $name,
            parts: &[
                $side,
                wgsl!("prelude/matmul_params"),
                wgsl!($a),
                wgsl!($b),
                COOPERATIVE_TILES,
                STORE_LANES,
                wgsl!("prelude/cooperative_product"),
                COOPERATIVE,
            ],
            slots: &[1, 2, 3],
            workgroup: 256,
            variants: VARIANTS,
        }
    };
    ($name:literal, $side:expr) => {
        [
            [
                cooperative!($name, $side, "prelude/cooperative_a_f32", "prelude/cooperative_b_f32"),
                cooperative!(
                    concat!($name, "_f32_f16"),
                    $side,
                    "prelude/cooperative_a_f32",
                    "prelude/cooperative_b_f16"
                ),
            ],
            [
                cooperative!(
                    concat!($name, "_f16_f32"),
                    $side,
                    "prelude/cooperative_a_f16",
                    "prelude/cooperative_b_f32"
                ),
                cooperative!(
                    concat!($name, "_f16"),
                    $side,
                    "prelude/cooperative_a_f16",
                    "prelude/cooperative_b_f16"
                ),
            ],
        ]
    };
}

/// The kernel for matrices of `side` × `side`; `None` for operands in bfloat16, whose range `f16` has not.
pub fn matmul_cooperative(side: u32, held: [Held; 2]) -> Option<&'static Kernel> {
    let place = |held| match held {
        Held::F32 => Some(0),
        Held::F16 => Some(1),
        Held::Bf16 => None,
    };
    let kernels = if side == 8 { &MATMUL_COOPERATIVE8 } else { &MATMUL_COOPERATIVE16 };
    Some(&kernels[place(held[0])?][place(held[1])?])
}

/// For matrices of 8 × 8, by whether A, and whether B, is in 16 bits.
pub static MATMUL_COOPERATIVE8: [[Kernel; 2]; 2] = cooperative!("matmul_cooperative8", SIDE8);
/// The same for matrices of 16 × 16.
pub static MATMUL_COOPERATIVE16: [[Kernel; 2]; 2] = cooperative!("matmul_cooperative16", SIDE16);

pub(super) static KERNELS: [&Kernel; 8] = [
    &MATMUL_COOPERATIVE8[0][0],
    &MATMUL_COOPERATIVE8[0][1],
    &MATMUL_COOPERATIVE8[1][0],
    &MATMUL_COOPERATIVE8[1][1],
    &MATMUL_COOPERATIVE16[0][0],
    &MATMUL_COOPERATIVE16[0][1],
    &MATMUL_COOPERATIVE16[1][0],
    &MATMUL_COOPERATIVE16[1][1],
];
