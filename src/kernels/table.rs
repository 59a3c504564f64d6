//! Every kernel: the WGSL files it is joined from, its binding slots, and the constants it is compiled with.

use crate::random::mix;

/// A kernel: `parts` joined, with one entry point `main`.
#[derive(Debug, PartialEq)]
pub struct Kernel {
    /// Name in reports and labels.
    pub name: &'static str,
    /// WGSL texts, joined in this order; the last is the kernel's own file.
    pub parts: &'static [&'static str],
    /// Binding numbers of the storage buffers, all `read_write`. Binding 0 is the `Params` uniform.
    pub slots: &'static [u32],
    /// Threads of one workgroup; where constants decide, the most of any variant.
    pub workgroup: u32,
    /// Every set of constants the lowering uses, as examples that the shader tests compile.
    pub variants: &'static [&'static [(&'static str, f64)]],
}

impl Kernel {
    /// A number that differs between kernels whose text differs, the same in every process.
    pub(crate) fn digest(&self) -> u64 {
        let add = |digest: u64, word: u64| mix(digest ^ word).wrapping_add(word);
        self.parts.iter().fold(0, |digest, part| {
            part.as_bytes().chunks(8).fold(add(digest, part.len() as u64), |digest, chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                add(digest, u64::from_le_bytes(word))
            })
        })
    }
}

macro_rules! wgsl {
    ($name:literal) => {
        include_str!(concat!("../../shaders/", $name, ".wgsl"))
    };
}

pub(super) const GRID: &str = wgsl!("prelude/grid");
pub(super) const ELEM1: &str = wgsl!("prelude/elem1");
pub(super) const ELEM4: &str = wgsl!("prelude/elem4");
/// `ELEM4` where memory is gone through in words of 64 bits.
pub(super) const ELEM4_U64: &str = wgsl!("prelude/elem4_u64");
const OUT_OF_PLACE: &str = wgsl!("prelude/out_of_place");
const IN_PLACE: &str = wgsl!("prelude/in_place");
pub(super) const UNARY_FUNCTIONS: &str = wgsl!("prelude/unary_functions");
pub(super) const NAN: &str = wgsl!("prelude/nan");
const UNARY_OPS: &str = wgsl!("prelude/unary_ops");
pub(super) const BINARY_FUNCTIONS: &str = wgsl!("prelude/binary_functions");
const BINARY_OPS: &str = wgsl!("prelude/binary_ops");
pub(super) const DROPPED: &str = wgsl!("prelude/dropout");
pub(super) const HALF_F16: &str = wgsl!("prelude/half_f16");
pub(super) const HALF_BF16: &str = wgsl!("prelude/half_bf16");
pub(super) const WIDENED: &str = wgsl!("prelude/widened");
pub(super) const ACTIVATION: &str = wgsl!("prelude/activation");
const STRIDED: &str = wgsl!("prelude/strided");
pub(super) const PCG4D: &str = wgsl!("prelude/pcg4d");

pub(super) const STORE_FOURS: &str = wgsl!("prelude/store_fours");
pub(super) const STORE_LANES: &str = wgsl!("prelude/store_lanes");
/// What the lanes of a subgroup read for each other; `SHARE8` or, for smaller subgroups, `SHARE4` follows.
pub(super) const SHARED: &str = wgsl!("prelude/shared");
pub(super) const SHARE8: &str = wgsl!("prelude/share8");
pub(super) const SHARE4: &str = wgsl!("prelude/share4");
pub(super) const STORE_ONE: &str = wgsl!("prelude/store_one");
pub(super) const TILE64: &str = wgsl!("tile64");
pub(super) const TILE128: &str = wgsl!("tile128");
pub(super) const IMAGE: &str = wgsl!("prelude/image_f32");
pub(super) const IMAGE_HALF: &str = wgsl!("prelude/image_half");
const ONLINE: &str = wgsl!("prelude/online");
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

placed!(UNARY, UNARY_IN_PLACE, "unary", ELEM4, [NAN, UNARY_FUNCTIONS, UNARY_OPS], [], 64, UNARY_CODES);
placed!(
    UNARY_GRAD,
    UNARY_GRAD_IN_PLACE,
    "unary_grad",
    ELEM4,
    [NAN, UNARY_FUNCTIONS, UNARY_OPS],
    [3],
    64,
    UNARY_CODES
);
placed!(
    BINARY,
    BINARY_IN_PLACE,
    "binary",
    ELEM4,
    [NAN, BINARY_FUNCTIONS, BINARY_OPS],
    [3],
    256,
    BINARY_CODES
);
placed!(MASK_GRAD, MASK_GRAD_IN_PLACE, "mask_grad", ELEM4, [], [3], 64, NONE);
placed!(
    BINARY_STRIDED,
    BINARY_STRIDED_IN_PLACE,
    "binary_strided",
    ELEM1,
    [NAN, BINARY_FUNCTIONS, BINARY_OPS, STRIDED],
    [3],
    64,
    BINARY_CODES
);
placed!(DROPOUT, DROPOUT_IN_PLACE, "dropout", ELEM4, [PCG4D, DROPPED], [3], 64, NONE);
placed!(
    CROSS_ENTROPY_GRAD,
    CROSS_ENTROPY_GRAD_IN_PLACE,
    "cross_entropy_grad",
    ELEM4,
    [NAN],
    [3, 4, 5],
    64,
    NONE
);
placed!(SOFTMAX, SOFTMAX_IN_PLACE, "softmax", ELEM1, [NAN], [], 8, LOG);
placed!(SOFTMAX_GRAD, SOFTMAX_GRAD_IN_PLACE, "softmax_grad", ELEM1, [NAN], [3], 8, LOG);
placed!(SOFTMAX_FOURS, SOFTMAX_FOURS_IN_PLACE, "softmax_fours", ELEM4, [NAN, ONLINE], [], 8, LOG);
placed!(SOFTMAX_GRAD_FOURS, SOFTMAX_GRAD_FOURS_IN_PLACE, "softmax_grad_fours", ELEM4, [NAN], [3], 8, LOG);
placed!(SOFTMAX_WG, SOFTMAX_WG_IN_PLACE, "softmax_wg", ELEM1, [NAN, GROUP_REDUCE], [], 128, LOG);
placed!(
    SOFTMAX_GRAD_WG,
    SOFTMAX_GRAD_WG_IN_PLACE,
    "softmax_grad_wg",
    ELEM1,
    [NAN, GROUP_REDUCE],
    [3],
    128,
    LOG
);
kernel!(CROSS_ENTROPY, "cross_entropy", [GRID, ELEM4, NAN, ONLINE], [1, 2, 3, 4], 8, NONE);
kernel!(CROSS_ENTROPY_WG, "cross_entropy_wg", [NAN, GROUP_REDUCE], [1, 2, 3, 4], 128, NONE);
const MASKS: &[&[(&str, f64)]] = &[&[("F", 8.0)], &[("F", 9.0)], &[("F", 10.0)]];
kernel!(MASK, "mask", [GRID, ELEM4, NAN, wgsl!("prelude/mask")], [1, 2], 64, MASKS);
kernel!(MASK_WG, "mask_wg", [GRID, ELEM4, NAN, wgsl!("prelude/mask")], [1, 2], 64, MASKS);
kernel!(LABEL_SHARE, "label_share", [GRID], [1, 2], 8, NONE);
kernel!(COPY, "copy", [GRID, STRIDED], [1, 2], 64, NONE);
kernel!(FILL, "fill", [GRID], [1], 64, NONE);
kernel!(CAST, "cast", [GRID], [1, 2], 64, &[&[("TO_U32", 0.0)], &[("TO_U32", 1.0)]]);
kernel!(
    REDUCE,
    "reduce",
    [GRID, STRIDED, NAN],
    [1, 2],
    32,
    &[&[("MODE", 0.0)], &[("MODE", 1.0)], &[("MODE", 2.0)]]
);
kernel!(LOSS_SCALE_SEED, "loss_scale_seed", [], [1, 2], 1, NONE);
kernel!(NOT_FINITE, "not_finite", [GRID], [1, 2], 8, NONE);
kernel!(NOT_FINITE_END, "not_finite_end", [], [1, 2], 1, NONE);
kernel!(LOSS_SCALE, "loss_scale", [], [1, 2, 3, 4, 5], 1, NONE);
kernel!(MOVING_AVERAGE, "moving_average", [GRID, ELEM4], [1, 2, 3, 4], 64, NONE);

#[path = "updates.rs"]
mod updates;
pub use updates::*;
#[path = "attention.rs"]
mod attention;
pub use attention::*;
/// `shaders/half_pack.wgsl` and `shaders/half_unpack.wgsl` for one format.
macro_rules! halves {
    ($pack:ident, $pack_name:literal, $unpack:ident, $unpack_name:literal, $format:expr) => {
        /// 16 bits from 32.
        pub static $pack: Kernel = Kernel {
            name: $pack_name,
            parts: &[GRID, $format, wgsl!("half_pack")],
            slots: &[1, 2],
            workgroup: 64,
            variants: NONE,
        };
        /// 32 bits from 16.
        pub static $unpack: Kernel = Kernel {
            name: $unpack_name,
            parts: &[GRID, $format, WIDENED, wgsl!("half_unpack")],
            slots: &[1, 2],
            workgroup: 64,
            variants: NONE,
        };
    };
}

halves!(PACK_F16, "pack_f16", UNPACK_F16, "unpack_f16", HALF_F16);
halves!(PACK_BF16, "pack_bf16", UNPACK_BF16, "unpack_bf16", HALF_BF16);

#[path = "cooperative.rs"]
mod cooperative;
pub use cooperative::*;
#[path = "conv.rs"]
mod conv;
pub use conv::*;
#[path = "images.rs"]
mod images;
use images::ACTIVATIONS;
pub use images::*;
#[path = "matmul.rs"]
mod matmul;
pub use matmul::*;
#[path = "rows.rs"]
mod rows;
pub use rows::*;

/// Every kernel there is, for tests and warm-up.
pub static ALL: &[&Kernel] = {
    static MORE: [&Kernel; OTHERS.len() + updates::KERNELS.len()] = join(OTHERS, &updates::KERNELS);
    static MOST: [&Kernel; MORE.len() + attention::KERNELS.len()] = join(&MORE, &attention::KERNELS);
    static IMAGES: [&Kernel; MOST.len() + conv::KERNELS.len()] = join(&MOST, &conv::KERNELS);
    static NEARLY: [&Kernel; IMAGES.len() + matmul::KERNELS.len()] = join(&IMAGES, &matmul::KERNELS);
    static LESS: [&Kernel; NEARLY.len() + matmul::CPU_KERNELS.len()] = join(&NEARLY, &matmul::CPU_KERNELS);
    static JOINED: [&Kernel; LESS.len() + cooperative::KERNELS.len()] = join(&LESS, &cooperative::KERNELS);
    &JOINED
};

const fn join<const N: usize>(
    a: &'static [&'static Kernel],
    b: &'static [&'static Kernel],
) -> [&'static Kernel; N] {
    let mut all = [a[0]; N];
    let mut i = 1;
    while i < N {
        all[i] = if i < a.len() { a[i] } else { b[i - a.len()] };
        i += 1;
    }
    all
}

/// All but those of attention, convolutions, matrix products and updates.
static OTHERS: &[&Kernel] = &[
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
    &MASK,
    &MASK_WG,
    &MASK_GRAD,
    &MASK_GRAD_IN_PLACE,
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
    &SOFTMAX_FOURS,
    &SOFTMAX_FOURS_IN_PLACE,
    &SOFTMAX_GRAD_FOURS,
    &SOFTMAX_GRAD_FOURS_IN_PLACE,
    &SOFTMAX_WG,
    &SOFTMAX_WG_IN_PLACE,
    &SOFTMAX_GRAD_WG,
    &SOFTMAX_GRAD_WG_IN_PLACE,
    &CROSS_ENTROPY,
    &CROSS_ENTROPY_WG,
    &LABEL_SHARE,
    &COPY,
    &FILL,
    &CAST,
    &PACK_F16,
    &UNPACK_F16,
    &PACK_BF16,
    &UNPACK_BF16,
    &REDUCE,
    &LOSS_SCALE_SEED,
    &NOT_FINITE,
    &NOT_FINITE_END,
    &LOSS_SCALE,
    &MOVING_AVERAGE,
    &LAYER_NORM[0],
    &LAYER_NORM[1],
    &LAYER_NORM[2],
    &RMS_NORM[0],
    &RMS_NORM[1],
    &RMS_NORM[2],
    &LAYER_NORM_GRAD[0],
    &LAYER_NORM_GRAD[1],
    &LAYER_NORM_GRAD[2],
    &LAYER_NORM_GRAD_IN_PLACE[0],
    &LAYER_NORM_GRAD_IN_PLACE[1],
    &LAYER_NORM_GRAD_IN_PLACE[2],
    &RMS_NORM_GRAD[0],
    &RMS_NORM_GRAD[1],
    &RMS_NORM_GRAD[2],
    &RMS_NORM_GRAD_IN_PLACE[0],
    &RMS_NORM_GRAD_IN_PLACE[1],
    &RMS_NORM_GRAD_IN_PLACE[2],
    &LAYER_NORM_SUMS[0],
    &LAYER_NORM_SUMS[1],
    &RMS_NORM_SUMS[0],
    &RMS_NORM_SUMS[1],
    &LAYER_NORM_SUMS_END[0],
    &LAYER_NORM_SUMS_END[1],
    &RMS_NORM_SUMS_END[0],
    &RMS_NORM_SUMS_END[1],
    &EMBEDDING[0],
    &EMBEDDING[1],
    &EMBEDDING_F16[0],
    &EMBEDDING_F16[1],
    &EMBEDDING_BF16[0],
    &EMBEDDING_BF16[1],
    &EMBEDDING_SUMS[0],
    &EMBEDDING_SUMS[1],
    &ROTARY[0],
    &ROTARY[1],
    &ROTARY_IN_PLACE[0],
    &ROTARY_IN_PLACE[1],
    &ROTARY_ANGLES,
    &SORT_START,
    &SORT_COUNT,
    &SORT_SCAN,
    &SORT_BASES,
    &SORT_MOVE,
];
