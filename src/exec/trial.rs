//! Timing of a single matrix product or convolution on the device.

use std::time::{Duration, Instant};

use super::{ProgramId, Session};
use crate::compile::{Forward, Plan};
use crate::dtype::{Precision, Rounding, WeightStorage};
use crate::error::Result;
use crate::graph::{Init, Params, Window};
use crate::limits::Limits;

/// Plans a product of sizes `[m, n, k]`, with the selected operands transposed and both stored in
/// `precision`.
pub(super) fn product(
    [m, n, k]: [usize; 3],
    [ta, tb]: [bool; 2],
    precision: Precision,
    limits: &Limits,
) -> Result<Plan> {
    let params = Params::new(0);
    let product = Forward::trace(&params, "c", |trace| {
        let operand = |name: &str, [rows, columns]: [usize; 2], transposed: bool| {
            let shape = if transposed { [columns, rows] } else { [rows, columns] };
            trace.param(&params.add(name, shape, Init::fan_in(4)))
        };
        operand("a", [m, k], ta).matmul_transposed(&operand("b", [k, n], tb), ta, tb)
    })?;
    product.plan_in(precision, held(precision), limits)
}

/// Plans a padded 3 × 3 convolution of sizes `[samples, channels, result channels, side]`, with operands
/// stored in `precision`.
pub(super) fn convolution(
    [n, c, o, side]: [usize; 4],
    precision: Precision,
    limits: &Limits,
) -> Result<Plan> {
    let params = Params::new(0);
    let convolution = Forward::trace(&params, "y", |trace| {
        let operand = |name: &str, shape: [usize; 4]| trace.param(&params.add(name, shape, Init::fan_in(4)));
        let weight = operand("w", [o, c, 3, 3]);
        operand("x", [n, c, side, side]).conv2d(&weight, None, Window::square(3).padding(1), 1)
    })?;
    convolution.plan_in(precision, held(precision), limits)
}

fn held(precision: Precision) -> WeightStorage {
    match precision {
        Precision::F32 => WeightStorage::F32,
        Precision::F16 => WeightStorage::F16(Rounding::Nearest),
        Precision::Bf16 | Precision::Int8 | Precision::Int4 => WeightStorage::Bf16(Rounding::Nearest),
    }
}

/// Timed runs of each session; the shortest counts.
const RUNS: u32 = 5;

/// Returns the shortest wall-clock time of each session. The sessions alternate, and the first run of each is
/// a warm-up that does not count.
pub(super) fn shortest<const N: usize>(sessions: &mut [Session; N]) -> Result<[Duration; N]> {
    let mut best = [Duration::MAX; N];
    for run in 0..=RUNS {
        for (session, best) in sessions.iter_mut().zip(&mut best) {
            let start = Instant::now();
            session.run(ProgramId(0))?;
            session.wait()?;
            if run > 0 {
                *best = start.elapsed().min(*best);
            }
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Products;

    #[test]
    fn trial_convolution_uses_the_named_tiles() {
        for (products, kernel) in
            [(Products::default(), "conv_tiled64"), (Products::all("direct"), "conv_direct")]
        {
            let limits =
                Limits::named("nvidia").expect("a preset").choosing(|kernels| kernels.products = products);
            let plan = convolution([8, 64, 64, 56], Precision::F32, &limits).expect("it is valid");
            let names: Vec<_> =
                plan.program.launches.iter().map(|(launch, _)| &*launch.kernel.name).collect();
            // Pieces of the inner dimension may be added up afterwards.
            assert_eq!(names[0], kernel, "{names:?}");
        }
    }
}
