//! Kernels for rows: norms, embedding, rotary embedding.

use super::{
    ELEM1, ELEM4, GRID, GROUP_REDUCE, HALF_BF16, HALF_F16, IN_PLACE, Kernel, NONE, OUT_OF_PLACE, WIDENED,
};

const ALONE: &str = wgsl!("prelude/alone");
const TOGETHER: &str = wgsl!("prelude/together");
const TOTAL1: &str = wgsl!("prelude/total1");
const TOTAL4: &str = wgsl!("prelude/total4");
const LAYER: &str = wgsl!("prelude/layer_norm");
const RMS: &str = wgsl!("prelude/rms_norm");
const LAYER_RESULTS: &str = wgsl!("prelude/layer_norm_results");
const RMS_RESULTS: &str = wgsl!("prelude/rms_norm_results");
const LAYER_END: &str = wgsl!("prelude/layer_norm_end");
const RMS_END: &str = wgsl!("prelude/rms_norm_end");
const SORT: &str = wgsl!("prelude/sort");

/// One text in three forms: a thread for each row, the same in fours, a workgroup for each row.
macro_rules! by_rows {
    ($id:ident, $name:literal, $end:literal, $file:literal, [$($part:expr),*], [$($slot:literal),*]) => {
        /// A thread for each row, the same in fours, a workgroup for each row.
        pub static $id: [Kernel; 3] = [
            Kernel {
                name: concat!($name, $end),
                parts: &[ELEM1, TOTAL1, ALONE, $($part,)* wgsl!($file)],
                slots: &[$($slot),*],
                workgroup: 8,
                variants: NONE,
            },
            Kernel {
                name: concat!($name, "_fours", $end),
                parts: &[ELEM4, TOTAL4, ALONE, $($part,)* wgsl!($file)],
                slots: &[$($slot),*],
                workgroup: 8,
                variants: NONE,
            },
            Kernel {
                name: concat!($name, "_wg", $end),
                parts: &[ELEM1, TOTAL1, GROUP_REDUCE, TOGETHER, $($part,)* wgsl!($file)],
                slots: &[$($slot),*],
                workgroup: 128,
                variants: NONE,
            },
        ];
    };
}

/// One text for elements one by one, and for elements in fours.
macro_rules! by_width {
    ($id:ident, $name:literal, $end:literal, $file:literal, [$($part:expr),*], [$($slot:literal),*], $workgroup:literal) => {
        /// Elements one by one, and in fours.
        pub static $id: [Kernel; 2] = [
            Kernel {
                name: concat!($name, $end),
                parts: &[GRID, ELEM1, $($part,)* wgsl!($file)],
                slots: &[$($slot),*],
                workgroup: $workgroup,
                variants: NONE,
            },
            Kernel {
                name: concat!($name, "_fours", $end),
                parts: &[GRID, ELEM4, $($part,)* wgsl!($file)],
                slots: &[$($slot),*],
                workgroup: $workgroup,
                variants: NONE,
            },
        ];
    };
}

/// Rows of a table in 16 bits, elements one by one, and in fours.
macro_rules! embedding_of {
    ($id:ident, $name:literal, $format:expr) => {
        /// Elements one by one, and in fours.
        pub static $id: [Kernel; 2] = [
            Kernel {
                name: $name,
                parts: &[GRID, ELEM1, $format, wgsl!("prelude/table_half1"), wgsl!("embedding")],
                slots: &[1, 2, 3],
                workgroup: 64,
                variants: NONE,
            },
            Kernel {
                name: concat!($name, "_fours"),
                parts: &[GRID, ELEM4, $format, WIDENED, wgsl!("prelude/table_half4"), wgsl!("embedding")],
                slots: &[1, 2, 3],
                workgroup: 64,
                variants: NONE,
            },
        ];
    };
}

by_rows!(LAYER_NORM, "layer_norm", "", "row_norm", [LAYER, LAYER_RESULTS], [1, 2, 3, 4, 5]);
by_rows!(RMS_NORM, "rms_norm", "", "row_norm", [RMS, RMS_RESULTS], [1, 2, 3, 4]);
by_rows!(LAYER_NORM_GRAD, "layer_norm_grad", "", "row_norm_grad", [OUT_OF_PLACE, LAYER], [1, 2, 3, 4, 5]);
by_rows!(
    LAYER_NORM_GRAD_IN_PLACE,
    "layer_norm_grad",
    "_in_place",
    "row_norm_grad",
    [IN_PLACE, LAYER],
    [2, 3, 4, 5]
);
by_rows!(RMS_NORM_GRAD, "rms_norm_grad", "", "row_norm_grad", [OUT_OF_PLACE, RMS], [1, 2, 3, 4, 5]);
by_rows!(
    RMS_NORM_GRAD_IN_PLACE,
    "rms_norm_grad",
    "_in_place",
    "row_norm_grad",
    [IN_PLACE, RMS],
    [2, 3, 4, 5]
);
by_width!(LAYER_NORM_SUMS, "layer_norm_sums", "", "row_norm_sums", [LAYER], [1, 2, 3, 4], 64);
by_width!(RMS_NORM_SUMS, "rms_norm_sums", "", "row_norm_sums", [RMS], [1, 2, 3, 4], 64);
by_width!(LAYER_NORM_SUMS_END, "layer_norm_sums_end", "", "row_norm_sums_end", [LAYER_END], [1, 2, 3], 8);
by_width!(RMS_NORM_SUMS_END, "rms_norm_sums_end", "", "row_norm_sums_end", [RMS_END], [1, 2], 8);
by_width!(EMBEDDING, "embedding", "", "embedding", [wgsl!("prelude/table_f32")], [1, 2, 3], 64);
embedding_of!(EMBEDDING_F16, "embedding_f16", HALF_F16);
embedding_of!(EMBEDDING_BF16, "embedding_bf16", HALF_BF16);
by_width!(EMBEDDING_SUMS, "embedding_sums", "_in_place", "embedding_sums", [], [1, 2, 3], 64);
by_width!(ROTARY, "rotary", "", "rotary", [OUT_OF_PLACE], [1, 2, 3], 64);
by_width!(ROTARY_IN_PLACE, "rotary", "_in_place", "rotary", [IN_PLACE], [2, 3], 64);
kernel!(ROTARY_ANGLES, "rotary_angles", [GRID], [1], 64, NONE);
kernel!(SORT_START, "sort_start", [GRID], [1, 2], 64, NONE);
kernel!(SORT_COUNT, "sort_count", [GRID, SORT], [1, 2], 8, NONE);
kernel!(SORT_SCAN, "sort_scan", [GRID, SORT], [1, 2], 8, NONE);
kernel!(SORT_BASES, "sort_bases", [GRID, SORT], [1, 2], 8, NONE);
kernel!(SORT_MOVE, "sort_move", [GRID, SORT], [1, 2, 3, 4], 8, NONE);
