//! Self-test of matrix products.

use super::exact::{Exact, Factor, numbers};
use crate::compile::Plan;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{ProgramId, Session};
use crate::graph::{Mode, Params, Tensor, Trace};
use crate::limits::Limits;

/// A product of the self-test.
struct Case {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    transposed: [bool; 2],
    /// Which operands are stored in 16 bits.
    narrow: [bool; 2],
}

/// Returns cases with sizes that are not multiples of any tile and sizes that are multiples of four; few
/// results and many, which use different blocks; inner dimensions shorter and longer than the depth of a
/// tile; each transposition; and operands in 32 and 16 bits.
fn cases() -> Vec<Case> {
    const TRANSPOSED: [[bool; 2]; 3] = [[false, false], [false, true], [true, false]];
    const SIZES: [[usize; 4]; 6] = [
        [1, 67, 41, 1],
        [1, 33, 131, 45],
        [3, 17, 19, 7],
        [33, 130, 131, 35],
        [33, 132, 136, 36],
        [1, 64, 64, 200],
    ];
    const NARROW: [[bool; 2]; 6] =
        [[true, false], [false, false], [false, true], [true, true], [true, true], [false, false]];
    let of_size = |([batch, m, n, k], narrow): ([usize; 4], _)| {
        TRANSPOSED.map(|transposed| Case { batch, m, n, k, transposed, narrow })
    };
    SIZES.into_iter().zip(NARROW).flat_map(of_size).collect()
}

/// Multiplies on the device and compares each element with the product in `f64`.
pub(super) fn test(device: &Device, limits: &Limits) -> Result<()> {
    let cases = cases();
    let params = Params::new(0);
    let shape = |case: &Case, rows: usize, columns: usize, swap: bool| {
        let [rows, columns] = if swap { [columns, rows] } else { [rows, columns] };
        [case.batch, rows, columns]
    };
    let graph = Trace::record(&params, Mode::Eval, "0", |trace| {
        let mut products = cases.iter().enumerate().map(|(i, case)| {
            let [ta, tb] = case.transposed;
            let a = trace.input(&format!("a{i}"), shape(case, case.m, case.k, ta));
            let b = trace.input(&format!("b{i}"), shape(case, case.k, case.n, tb));
            let narrow = |x: Tensor, narrow| if narrow { x.cast(DType::F16) } else { x };
            let (a, b) = (narrow(a, case.narrow[0]), narrow(b, case.narrow[1]));
            let product = a.matmul_transposed(&b, ta, tb);
            if i > 0 {
                trace.output(&i.to_string(), &product);
            }
            product
        });
        let first = products.next().expect("there are cases");
        products.for_each(drop);
        first
    })?;
    let mut session = Session::new(device, &Plan::of_graph(graph, None, limits)?)?;
    session.set_accept_non_finite(true);
    let factors: Vec<[Vec<f32>; 2]> = cases.iter().enumerate().map(|(i, case)| of_case(i, case)).collect();
    for (i, [a, b]) in factors.iter().enumerate() {
        session.feed(&format!("a{i}"), a)?;
        session.feed(&format!("b{i}"), b)?;
    }
    session.run(ProgramId(0))?;
    for (i, (case, [a, b])) in cases.iter().zip(&factors).enumerate() {
        let results: Vec<f32> = session.output(ProgramId(0), &i.to_string())?;
        compare(case, a, b, &results)?;
    }
    Ok(())
}

/// Returns the factors of a case. In the cases of the second size (k = 45), the first factor has an infinity
/// and a NaN.
fn of_case(i: usize, case: &Case) -> [Vec<f32>; 2] {
    let mut a = numbers(&format!("a{i}"), case.batch * case.m * case.k);
    let b = numbers(&format!("b{i}"), case.batch * case.k * case.n);
    if case.k == 45 {
        a[7] = f32::INFINITY;
        a[50] = f32::NAN;
    }
    [a, b]
}

fn compare(case: &Case, a: &[f32], b: &[f32], results: &[f32]) -> Result<()> {
    let Case { batch, m, n, k, transposed: [ta, tb], .. } = *case;
    let (a, b) = (Factor::new(a, [m, k], ta), Factor::new(b, [k, n], tb));
    for (row, results) in results.chunks(n).enumerate() {
        let matrix = row / m;
        let mut all = vec![Exact::default(); n];
        for step in 0..k {
            let x = (a.exact[row * k + step], a.lost[row * k + step]);
            let at = (matrix * k + step) * n;
            let line = b.exact[at..at + n].iter().zip(&b.lost[at..at + n]);
            for (exact, (y, y_lost)) in all.iter_mut().zip(line) {
                exact.add(x, (*y, *y_lost));
            }
        }
        let mut results = results.iter().zip(&all).enumerate();
        if let Some((column, (result, exact))) = results.find(|(_, (result, exact))| !exact.admits(**result))
        {
            let transposed = match (ta, tb) {
                (true, _) => ", the first transposed",
                (_, true) => ", the second transposed",
                _ => "",
            };
            return Err(Error::Internal(format!(
                "[{batch}, {m}, {k}] · [{batch}, {k}, {n}]{transposed}, row {row}, column {column}: {result:e} instead of \
                 {:e} ± {:.1e}",
                exact.sum,
                exact.bound()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn product(case: &Case, a: &[f32], b: &[f32], round: fn(f32) -> f32) -> Vec<f32> {
        let Case { batch, m, n, k, transposed: [ta, tb], .. } = *case;
        let rounded = |x: &f32| f16::from_f32(*x).to_f32();
        let [a, b] = [a, b].map(|factor| factor.iter().map(rounded).collect::<Vec<f32>>());
        let element = |at: usize| {
            let (matrix, row, column) = (at / (m * n), at / n % m, at % n);
            (0..k).fold(0.0f32, |sum, step| {
                let x = a[matrix * m * k + if ta { step * m + row } else { row * k + step }];
                let y = b[matrix * k * n + if tb { column * k + step } else { step * n + column }];
                round(sum + x * y)
            })
        };
        (0..batch * m * n).map(element).collect()
    }

    #[test]
    fn self_test_accepts_32_bit_sums_and_rejects_errors() {
        let mut failed = 0;
        for (i, case) in cases().iter().enumerate() {
            let [a, b] = of_case(i, case);
            let right = product(case, &a, &b, |sum| sum);
            compare(case, &a, &b, &right).unwrap();
            let coarse = product(case, &a, &b, |sum| half::bf16::from_f32(sum).to_f32());
            failed += u32::from(compare(case, &a, &b, &coarse).is_err());
            // All elements shifted by one, and then the last one replaced by NaN.
            let mut wrong = right.clone();
            wrong.rotate_left(1);
            assert!(compare(case, &a, &b, &wrong).is_err(), "case {i}");
            wrong = right.clone();
            let last = right.len() - 1;
            wrong[last] = f32::NAN;
            assert!(compare(case, &a, &b, &wrong).is_err() || right[last].is_nan(), "case {i}");
        }
        assert!(failed >= 15, "only {failed} cases tell sums of 8 bits from sums of 24");
    }
}
