//! A matrix product alone on the device, to see how long it takes.

use std::time::{Duration, Instant};

use super::{ProgramId, Session};
use crate::dtype::{Precision, Rounding, WeightStorage};
use crate::error::Result;
use crate::graph::{Init, Params};
use crate::limits::Limits;
use crate::plan::{Forward, Plan};

/// A product `[m, n, k]` with the operands transposed that are said to be, both held in `precision`.
pub(super) fn product(
    [m, n, k]: [usize; 3],
    [ta, tb]: [bool; 2],
    precision: Precision,
    limits: &Limits,
) -> Result<Plan> {
    let held = match precision {
        Precision::F32 => WeightStorage::F32,
        Precision::F16 => WeightStorage::F16(Rounding::Nearest),
        Precision::Bf16 => WeightStorage::Bf16(Rounding::Nearest),
    };
    let params = Params::new(0);
    let product = Forward::trace(&params, "c", |trace| {
        let operand = |name: &str, [rows, columns]: [usize; 2], transposed: bool| {
            let shape = if transposed { [columns, rows] } else { [rows, columns] };
            trace.param(&params.add(name, shape, Init::fan_in(4)))
        };
        operand("a", [m, k], ta).matmul_transposed(&operand("b", [k, n], tb), ta, tb)
    })?;
    product.plan_in(precision, held, limits)
}

/// Runs of each side; the best counts.
const RUNS: u32 = 5;

/// The shortest run of each session, by the clock. They take turns, and first runs, which compile, do not count.
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
