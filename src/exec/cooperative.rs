//! Cooperative matrices on trial: what an adapter offers is used when it has shown here that it is right, and faster than the
//! kernels that would run otherwise. Drivers have offered them with wrong results, and slower.

use std::time::Duration;

use half::f16;

use super::{ProgramId, Session, trial};
use crate::device::Device;
use crate::dtype::{DType, Precision};
use crate::error::{Error, Result};
use crate::graph::{Mode, Params, Tensor, Trace};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::random;

/// What plans for a device may count on: its limits and, with [`Precision::F16`] on a GPU that offers them, cooperative
/// matrices that passed [`test_cooperative`] and won [`race_cooperative`]. That takes a fraction of a second, once for a
/// device, or for an adapter and driver if [`DeviceOptions::cache`](crate::device::DeviceOptions::cache) names a folder.
/// Software adapters have no hardware for them: there they are not even tried.
pub fn limits_for(device: &Device, precision: Precision) -> Limits {
    let limits = device.limits();
    if precision != Precision::F16 || limits.class.is_cpu() {
        return limits.clone();
    }
    let cooperative = device.adapter().cooperative.filter(|_| proven(device));
    Limits { cooperative, ..limits.clone() }
}

/// Under which name the verdict is noted, and its words.
const NOTE: &str = "cooperative";
const WON: &str = "right and faster";

fn proven(device: &Device) -> bool {
    if let Some(verdict) = device.note(NOTE) {
        return verdict == WON;
    }
    let name = &device.adapter().name;
    let verdict = match test_cooperative(device).and_then(|_| race_cooperative(device)) {
        Ok(race) if race.is_won() => {
            log::info!("{name}: cooperative matrices are right and faster: {race}");
            WON.to_owned()
        }
        Ok(race) => format!("right and not faster: {race}"),
        // That may be otherwise the next time.
        Err(error) if error.is_out_of_memory() => {
            log::warn!("{name}: cooperative matrices are not tried: {error}");
            return false;
        }
        Err(error) => error.to_string(),
    };
    if verdict != WON {
        log::warn!("{name}: cooperative matrices are not used: {verdict}");
    }
    device.set_note(NOTE, &verdict);
    verdict == WON
}

/// The device's limits with what it offers, tried or not.
fn untried(device: &Device) -> Result<Limits> {
    let cooperative = device.adapter().cooperative;
    if cooperative.is_none() {
        let name = &device.adapter().name;
        return Err(Error::Option(format!(
            "`{name}` offers no cooperative matrices, or they are switched off"
        )));
    }
    Ok(Limits { cooperative, ..device.limits().clone() })
}

/// A product of the self-test.
struct Case {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    transposed: [bool; 2],
    /// Which operand is held in 16 bits.
    narrow: [bool; 2],
}

/// Sizes that fit no tile and sizes in fours, few results and many (which have other blocks), inner dimensions shorter and
/// longer than a tile is deep, each transpose, operands in 32 and 16 bits.
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

/// Numbers with all exponents from 2⁻²⁰ to 2¹² and both signs, among them zeros; every third cannot be held in `f16`.
fn numbers(name: &str, count: usize) -> Vec<f32> {
    let key = random::key(0, name);
    let number = |i: u64| {
        let bits = random::bits(key, i);
        let size = 2.0f32.powi((bits % 33) as i32 - 20) * (1.0 + random::uniform(key ^ 1, i));
        let signed = if bits & 1 << 40 == 0 { size } else { -size };
        match bits >> 41 & 0xf {
            0 => 0.0,
            1..=5 => signed,
            _ => f16::from_f32(signed).to_f32(),
        }
    };
    (0..count as u64).map(number).collect()
}

/// Multiplies on the device and compares each element with the product in `f64`. Returns the limits to plan with if one wants
/// cooperative matrices whether they are faster or not.
///
/// An element may differ by what rounding to `f16` does to its factors (2⁻¹¹ of each, or 2⁻²⁴ where `f16` has no normal
/// numbers), and by a rounding to `f32` for each step of K; tensor cores cut where they should round, so it counts twice.
///
/// # Errors
/// [`Error::Option`] if the device offers no cooperative matrices; [`Error::Internal`] with the first element that is wrong;
/// what compiling and running return.
pub fn test_cooperative(device: &Device) -> Result<Limits> {
    let limits = untried(device)?;
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
    let mut session = Session::new(device, &Plan::of_graph(graph, None, &limits)?)?;
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
    Ok(limits)
}

/// The factors of a case: in the second an infinity and a NaN.
fn of_case(i: usize, case: &Case) -> [Vec<f32>; 2] {
    let mut a = numbers(&format!("a{i}"), case.batch * case.m * case.k);
    let b = numbers(&format!("b{i}"), case.batch * case.k * case.n);
    if case.k == 45 {
        a[7] = f32::INFINITY;
        a[50] = f32::NAN;
    }
    [a, b]
}

/// A factor as it would be without transposition, with what rounding to `f16` may change of each element.
struct Factor {
    exact: Vec<f64>,
    lost: Vec<f64>,
}

impl Factor {
    fn new(data: &[f32], [rows, columns]: [usize; 2], transposed: bool) -> Self {
        let place = |at: usize| {
            let (matrix, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
            matrix * rows * columns + if transposed { column * rows + row } else { row * columns + column }
        };
        let element = |at: usize| f64::from(data[place(at)]);
        let exact: Vec<f64> = (0..data.len()).map(element).collect();
        let lost = |x: f64| {
            let fits = f16::from_f64(x).to_f64() == x;
            if fits { 0.0 } else { x.abs() / 2048.0 + 1.0 / f64::from(1 << 24) }
        };
        Self { lost: exact.iter().copied().map(lost).collect(), exact }
    }
}

fn compare(case: &Case, a: &[f32], b: &[f32], results: &[f32]) -> Result<()> {
    let Case { batch, m, n, k, transposed: [ta, tb], .. } = *case;
    let (a, b) = (Factor::new(a, [m, k], ta), Factor::new(b, [k, n], tb));
    for (row, results) in results.chunks(n).enumerate() {
        let matrix = row / m;
        // What the row should be, how far it may be from that, and the sum of its products' magnitudes.
        let mut all = vec![[0.0f64; 3]; n];
        for step in 0..k {
            let (x, x_lost) = (a.exact[row * k + step], a.lost[row * k + step]);
            let at = (matrix * k + step) * n;
            let line = b.exact[at..at + n].iter().zip(&b.lost[at..at + n]);
            for ([sum, bound, magnitude], (y, y_lost)) in all.iter_mut().zip(line) {
                *sum += x * y;
                *bound += x_lost * (y.abs() + y_lost) + y_lost * x.abs();
                *magnitude += (x * y).abs();
            }
        }
        for (column, (&result, [sum, bound, magnitude])) in results.iter().zip(all).enumerate() {
            let (result, steps) = (f64::from(result), k as f64 + 1.0);
            let bound = bound + 2.0 * steps * f64::from(f32::EPSILON) * magnitude;
            let right = match sum.is_finite() {
                true => (result - sum).abs() <= bound,
                false => result == sum || result.is_nan() && sum.is_nan(),
            };
            if !right {
                let transposed = match (ta, tb) {
                    (true, _) => ", the first transposed",
                    (_, true) => ", the second transposed",
                    _ => "",
                };
                return Err(Error::Internal(format!(
                    "[{batch}, {m}, {k}] · [{batch}, {k}, {n}]{transposed}, row {row}, column {column}: {result:e} instead of \
                     {sum:e} ± {bound:.1e}"
                )));
            }
        }
    }
    Ok(())
}

/// Times of the same product, by cooperative matrices and by what would run otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Race {
    /// Rows and columns of both factors.
    pub size: usize,
    /// With cooperative matrices.
    pub cooperative: Duration,
    /// Without.
    pub otherwise: Duration,
}

impl Race {
    /// Whether cooperative matrices won clearly: by a tenth, so that chance does not decide.
    pub fn is_won(&self) -> bool {
        self.cooperative.as_secs_f64() * 1.1 < self.otherwise.as_secs_f64()
    }
}

impl std::fmt::Display for Race {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, cooperative, otherwise } = self;
        write!(f, "{size}³ takes {cooperative:.2?} with and {otherwise:.2?} without them")
    }
}

/// Multiplies square matrices held in `f16` with cooperative matrices and without, in turns: 2,048³ on a GPU, 256³ on a CPU.
///
/// # Errors
/// [`Error::Option`] if the device offers no cooperative matrices; what running returns, such as too little memory.
pub fn race_cooperative(device: &Device) -> Result<Race> {
    let with = untried(device)?;
    let size = if with.class.is_cpu() { 256 } else { 2048 };
    let runner = |limits: &Limits| {
        Session::new(device, &trial::product([size; 3], [false; 2], Precision::F16, limits)?)
    };
    let [cooperative, otherwise] = trial::shortest(&mut [runner(&with)?, runner(device.limits())?])?;
    Ok(Race { size, cooperative, otherwise })
}

#[cfg(test)]
mod tests {
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
    fn sums_in_32_bits_pass_and_others_do_not() {
        let mut failed = 0;
        for (i, case) in cases().iter().enumerate() {
            let [a, b] = of_case(i, case);
            let right = product(case, &a, &b, |sum| sum);
            compare(case, &a, &b, &right).unwrap();
            let coarse = product(case, &a, &b, |sum| half::bf16::from_f32(sum).to_f32());
            failed += u32::from(compare(case, &a, &b, &coarse).is_err());
            // Each in its neighbour's place, and one that is no number.
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

    #[test]
    fn chance_wins_no_race() {
        let race = |cooperative: u64, otherwise: u64| {
            let [cooperative, otherwise] = [cooperative, otherwise].map(Duration::from_micros);
            Race { size: 2048, cooperative, otherwise }.is_won()
        };
        assert!(race(100, 200) && race(100, 111));
        assert!(!race(100, 109) && !race(200, 100));
    }
}
