//! Kernels for attention. Each is joined from: the parameters, how operands lie, what is read and written, whether weights
//! drop out, and how rows are shared.

use super::{GRID, Kernel, NAN, NONE, PCG4D};

/// The kernels of one pass for one way to share rows: operands apart or packed, without and with dropout.
#[derive(Debug)]
pub struct Pass {
    /// Three operands, no dropout.
    pub apart: Kernel,
    /// Three operands, dropout.
    pub apart_dropout: Kernel,
    /// One operand, no dropout.
    pub packed: Kernel,
    /// One operand, dropout.
    pub packed_dropout: Kernel,
}

impl Pass {
    /// The kernel of an operation.
    pub const fn of(&self, packed: bool, dropout: bool) -> &Kernel {
        match (packed, dropout) {
            (false, false) => &self.apart,
            (false, true) => &self.apart_dropout,
            (true, false) => &self.packed,
            (true, true) => &self.packed_dropout,
        }
    }
}

/// The three passes: the result, the gradient of the queries, those of keys and values.
#[derive(Debug)]
pub struct Passes {
    /// `o` and `lse`.
    pub forward: Pass,
    /// `dq`.
    pub dq: Pass,
    /// `dk` and `dv`.
    pub dkv: Pass,
}

const PARAMS: &str = wgsl!("prelude/attention_params");
const APART: &str = wgsl!("prelude/attention_apart");
const PACKED: &str = wgsl!("prelude/attention_packed");
const FORWARD: &str = wgsl!("prelude/attention_forward");
const BACKWARD: &str = wgsl!("prelude/attention_backward");
const DQ: &str = wgsl!("prelude/attention_dq");
const DKV: &str = wgsl!("prelude/attention_dkv");
const DQKV: &str = wgsl!("prelude/attention_dqkv");
const WHOLE: &str = wgsl!("prelude/attention_whole");
const DROPOUT: &str = wgsl!("prelude/attention_dropout");
const TILE: &str = wgsl!("prelude/attention_tile");

macro_rules! variant {
    ($name:expr, $workgroup:literal, [$($slot:literal),*], [$($part:expr),*]) => {
        Kernel {
            name: $name,
            parts: &[NAN, PARAMS, $($part),*],
            slots: &[$($slot),*],
            workgroup: $workgroup,
            variants: NONE,
        }
    };
}

macro_rules! passes {
    ($id:ident, $suffix:literal, $workgroup:literal, [$($share:expr),*], $forward:expr, $dq:expr, $dkv:expr) => {
        #[doc = concat!("Attention as `attention_", $suffix, "`.")]
        pub static $id: Passes = Passes {
            forward: Pass {
                apart: variant!(concat!("attention_", $suffix), $workgroup, [1, 2, 3, 4, 5],
                    [APART, FORWARD, WHOLE, $($share,)* $forward]),
                apart_dropout: variant!(concat!("attention_dropout_", $suffix), $workgroup, [1, 2, 3, 4, 5, 8],
                    [APART, FORWARD, PCG4D, DROPOUT, $($share,)* $forward]),
                packed: variant!(concat!("attention_packed_", $suffix), $workgroup, [1, 4, 5],
                    [PACKED, FORWARD, WHOLE, $($share,)* $forward]),
                packed_dropout: variant!(concat!("attention_packed_dropout_", $suffix), $workgroup, [1, 4, 5, 8],
                    [PACKED, FORWARD, PCG4D, DROPOUT, $($share,)* $forward]),
            },
            dq: Pass {
                apart: variant!(concat!("attention_dq_", $suffix), $workgroup, [1, 2, 3, 4, 5, 6],
                    [APART, BACKWARD, DQ, WHOLE, $($share,)* $dq]),
                apart_dropout: variant!(concat!("attention_dq_dropout_", $suffix), $workgroup,
                    [1, 2, 3, 4, 5, 6, 8], [APART, BACKWARD, DQ, PCG4D, DROPOUT, $($share,)* $dq]),
                packed: variant!(concat!("attention_dq_packed_", $suffix), $workgroup, [1, 4, 5, 6],
                    [PACKED, BACKWARD, DQKV, WHOLE, $($share,)* $dq]),
                packed_dropout: variant!(concat!("attention_dq_packed_dropout_", $suffix), $workgroup,
                    [1, 4, 5, 6, 8], [PACKED, BACKWARD, DQKV, PCG4D, DROPOUT, $($share,)* $dq]),
            },
            dkv: Pass {
                apart: variant!(concat!("attention_dkv_", $suffix), $workgroup, [1, 2, 3, 4, 5, 6, 7],
                    [APART, BACKWARD, DKV, WHOLE, $($share,)* $dkv]),
                apart_dropout: variant!(concat!("attention_dkv_dropout_", $suffix), $workgroup,
                    [1, 2, 3, 4, 5, 6, 7, 8], [APART, BACKWARD, DKV, PCG4D, DROPOUT, $($share,)* $dkv]),
                packed: variant!(concat!("attention_dkv_packed_", $suffix), $workgroup, [1, 4, 5, 6],
                    [PACKED, BACKWARD, DQKV, WHOLE, $($share,)* $dkv]),
                packed_dropout: variant!(concat!("attention_dkv_packed_dropout_", $suffix), $workgroup,
                    [1, 4, 5, 6, 8], [PACKED, BACKWARD, DQKV, PCG4D, DROPOUT, $($share,)* $dkv]),
            },
        };
    };
}

passes!(
    ATTENTION_CPU8,
    "cpu8",
    8,
    [wgsl!("prelude/attention_eights"), TILE],
    wgsl!("attention_cpu"),
    wgsl!("attention_cpu_dq"),
    wgsl!("attention_cpu_dkv")
);
passes!(
    ATTENTION_CPU4,
    "cpu4",
    8,
    [wgsl!("prelude/attention_fours"), TILE],
    wgsl!("attention_cpu"),
    wgsl!("attention_cpu_dq"),
    wgsl!("attention_cpu_dkv")
);

passes!(
    ATTENTION_TILED,
    "tiled",
    64,
    [wgsl!("prelude/attention_tiles")],
    wgsl!("attention_tiled"),
    wgsl!("attention_tiled_dq"),
    wgsl!("attention_tiled_dkv")
);

/// `shaders/attention_means.wgsl`
pub static ATTENTION_MEANS: Kernel = Kernel {
    name: "attention_means",
    parts: &[GRID, wgsl!("attention_means")],
    slots: &[1, 2, 3, 4],
    workgroup: 64,
    variants: NONE,
};

/// Every kernel of this file.
pub(super) static KERNELS: [&Kernel; 37] = [
    &ATTENTION_MEANS,
    &ATTENTION_CPU8.forward.apart,
    &ATTENTION_CPU8.forward.apart_dropout,
    &ATTENTION_CPU8.forward.packed,
    &ATTENTION_CPU8.forward.packed_dropout,
    &ATTENTION_CPU8.dq.apart,
    &ATTENTION_CPU8.dq.apart_dropout,
    &ATTENTION_CPU8.dq.packed,
    &ATTENTION_CPU8.dq.packed_dropout,
    &ATTENTION_CPU8.dkv.apart,
    &ATTENTION_CPU8.dkv.apart_dropout,
    &ATTENTION_CPU8.dkv.packed,
    &ATTENTION_CPU8.dkv.packed_dropout,
    &ATTENTION_CPU4.forward.apart,
    &ATTENTION_CPU4.forward.apart_dropout,
    &ATTENTION_CPU4.forward.packed,
    &ATTENTION_CPU4.forward.packed_dropout,
    &ATTENTION_CPU4.dq.apart,
    &ATTENTION_CPU4.dq.apart_dropout,
    &ATTENTION_CPU4.dq.packed,
    &ATTENTION_CPU4.dq.packed_dropout,
    &ATTENTION_CPU4.dkv.apart,
    &ATTENTION_CPU4.dkv.apart_dropout,
    &ATTENTION_CPU4.dkv.packed,
    &ATTENTION_CPU4.dkv.packed_dropout,
    &ATTENTION_TILED.forward.apart,
    &ATTENTION_TILED.forward.apart_dropout,
    &ATTENTION_TILED.forward.packed,
    &ATTENTION_TILED.forward.packed_dropout,
    &ATTENTION_TILED.dq.apart,
    &ATTENTION_TILED.dq.apart_dropout,
    &ATTENTION_TILED.dq.packed,
    &ATTENTION_TILED.dq.packed_dropout,
    &ATTENTION_TILED.dkv.apart,
    &ATTENTION_TILED.dkv.apart_dropout,
    &ATTENTION_TILED.dkv.packed,
    &ATTENTION_TILED.dkv.packed_dropout,
];
