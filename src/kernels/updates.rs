//! Kernels of optimizers, each for weights in 32 bits, in `f16` and in `bf16`.

use super::{ELEM4, GRID, HALF_BF16, HALF_F16, Kernel, PCG4D, WIDENED};

const IN_F32: &str = wgsl!("prelude/weight_f32");
const IN_HALF: &str = wgsl!("prelude/weight_half");

/// The last constant of a kernel over weights in 16 bits says how they are rounded.
macro_rules! with_rounding {
    ($([$($constant:expr),*])*) => {
        &[$(&[$($constant,)* ("STOCHASTIC", 0.0)], &[$($constant,)* ("STOCHASTIC", 1.0)]),*]
    };
}

macro_rules! update {
    ($id:ident, $name:literal, [$($part:expr),*], $slots:expr, $workgroup:literal, $([$($constant:expr),*])*) => {
        #[doc = concat!("`", $name, "`, for weights in `f32`, `f16` and `bf16`.")]
        pub static $id: [Kernel; 3] = [
            Kernel {
                name: $name,
                parts: &[GRID, ELEM4, IN_F32, $($part),*],
                slots: $slots,
                workgroup: $workgroup,
                variants: &[$(&[$($constant),*]),*],
            },
            Kernel {
                name: concat!($name, "_f16"),
                parts: &[GRID, PCG4D, HALF_F16, WIDENED, ELEM4, IN_HALF, $($part),*],
                slots: $slots,
                workgroup: $workgroup,
                variants: with_rounding!($([$($constant),*])*),
            },
            Kernel {
                name: concat!($name, "_bf16"),
                parts: &[GRID, PCG4D, HALF_BF16, WIDENED, ELEM4, IN_HALF, $($part),*],
                slots: $slots,
                workgroup: $workgroup,
                variants: with_rounding!($([$($constant),*])*),
            },
        ];
    };
}

const DYNAMIC_8BIT: &str = wgsl!("prelude/dynamic_8bit");

update!(SGD, "sgd", [wgsl!("prelude/without_momentum"), wgsl!("sgd")], &[1, 2, 3], 64, []);
update!(
    MOMENTUM,
    "momentum",
    [wgsl!("prelude/with_momentum"), wgsl!("sgd")],
    &[1, 2, 3, 4],
    64,
    [("NESTEROV", 0.0)][("NESTEROV", 1.0)]
);
update!(ADAM, "adam", [wgsl!("adam")], &[1, 2, 3, 4, 5], 256, [("DECOUPLED", 0.0)][("DECOUPLED", 1.0)]);
update!(LION, "lion", [wgsl!("lion")], &[1, 2, 3, 4], 64, []);
update!(ADAFACTOR, "adafactor", [wgsl!("adafactor")], &[1, 2, 3, 4, 5], 64, []);
update!(
    ADAM8,
    "adam8",
    [DYNAMIC_8BIT, wgsl!("adam8")],
    &[1, 2, 3, 4, 5, 6],
    8,
    [("TAIL", 1.0)][("TAIL", 4.0)]
);
update!(
    ADAM8_WG,
    "adam8_wg",
    [DYNAMIC_8BIT, wgsl!("adam8_wg")],
    &[1, 2, 3, 4, 5, 6],
    64,
    [("TAIL", 1.0)][("TAIL", 4.0)]
);

/// All of them.
pub(super) static KERNELS: [&Kernel; 21] = [
    &SGD[0],
    &SGD[1],
    &SGD[2],
    &MOMENTUM[0],
    &MOMENTUM[1],
    &MOMENTUM[2],
    &ADAM[0],
    &ADAM[1],
    &ADAM[2],
    &LION[0],
    &LION[1],
    &LION[2],
    &ADAFACTOR[0],
    &ADAFACTOR[1],
    &ADAFACTOR[2],
    &ADAM8[0],
    &ADAM8[1],
    &ADAM8[2],
    &ADAM8_WG[0],
    &ADAM8_WG[1],
    &ADAM8_WG[2],
];
