//! The largest batch and the longest sequence under a budget, found by planning.

use std::collections::BTreeMap;

use super::{PlanOptions, Recompute, TrainStep};
use crate::compile::recompute::SearchEffort;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::progress;
use crate::units::Bytes;

/// Upper bound on the batch, and on the tokens of a sequence in units of [`TOKENS`].
const MOST: usize = 1 << 24;

/// Lengths of sequences are multiples of this: those between would be slower for their size.
const TOKENS: usize = 64;

/// The largest batch with a plan that fits `budget`; 0 if not even one sample fits. `step` traces the model
/// for a number of samples. It makes plans and runs nothing: a few, because the bytes of two batches tell those of others, or with
/// [`Recompute::Auto`](crate::compile::Recompute::Auto) more. There the batch is doubled, then bisected, in two searches: a quick
/// one, and from its result on one with the full effort of [`TrainStep::plan`].
///
/// # Errors
/// As [`TrainStep::plan`], except for errors that mean that the batch is too large.
pub fn max_batch(
    step: impl FnMut(usize) -> Result<TrainStep>,
    options: &PlanOptions,
    budget: Bytes,
    limits: &Limits,
) -> Result<usize> {
    max_batches(step, options, [budget], limits).map(|[most]| most)
}

/// [`max_batch`] for several budgets, which share what was planned.
pub(crate) fn max_batches<const N: usize>(
    step: impl FnMut(usize) -> Result<TrainStep>,
    options: &PlanOptions,
    budgets: [Bytes; N],
    limits: &Limits,
) -> Result<[usize; N]> {
    most_that_fit("largest batch: plans", step, options, budgets, limits)
}

/// The most tokens in each sequence, a multiple of 64, with a plan that fits `budget`; 0 if not even 64 fit. `step` traces the
/// model for a number of tokens. The search is that of [`max_batch`].
///
/// # Errors
/// As [`TrainStep::plan`], except for errors that mean that the sequence is too long.
pub fn max_seq(
    mut step: impl FnMut(usize) -> Result<TrainStep>,
    options: &PlanOptions,
    budget: Bytes,
    limits: &Limits,
) -> Result<usize> {
    let step = |units: usize| step(units * TOKENS);
    let [most] = most_that_fit("longest sequence: plans", step, options, [budget], limits)?;
    Ok(TOKENS * most)
}

fn most_that_fit<const N: usize>(
    what: &'static str,
    mut step: impl FnMut(usize) -> Result<TrainStep>,
    options: &PlanOptions,
    budgets: [Bytes; N],
    limits: &Limits,
) -> Result<[usize; N]> {
    let task = progress::task(what, None);
    let mut plans = 0;
    let mut traced = |size: usize| {
        plans += 1;
        task.done(plans - 1);
        step(size)
    };
    let mut found = [0; N];
    if options.recompute == Recompute::Auto {
        for (found, budget) in found.iter_mut().zip(budgets) {
            let options = PlanOptions { budget: Some(budget), ..*options };
            let fits = |size: usize, effort: SearchEffort| -> Result<bool> {
                let fits = traced(size).and_then(|step| step.fits(&options, limits, effort));
                possible(size, fits).map(|fits| fits == Some(true))
            };
            // After the doubling, each plan halves the interval.
            *found = bisected(fits, |high| task.expect(u64::from(2 * high.ilog2()).max(1)))?;
        }
        return Ok(found);
    }
    let options = PlanOptions { budget: None, ..*options };
    let mut known = BTreeMap::new();
    let mut total = |size: usize| -> Result<Option<u64>> {
        if let Some(total) = known.get(&size) {
            return Ok(*total);
        }
        let planned = traced(size).and_then(|step| step.plan_over_budget(&options, limits));
        let total = possible(size, planned)?.map(|plan| plan.footprint().total());
        known.insert(size, total);
        Ok(total)
    };
    for (found, Bytes(budget)) in found.iter_mut().zip(budgets) {
        *found = interpolated(&mut total, budget)?;
    }
    Ok(found)
}

/// `None` for a size that is too large for the limits, or for the model, which fits no budget.
fn possible<T>(size: usize, planned: Result<T>) -> Result<Option<T>> {
    match planned {
        Ok(planned) => Ok(Some(planned)),
        Err(Error::TensorTooLarge { .. } | Error::Pack(_)) => Ok(None),
        // What can be traced at the least size has no other mistake.
        Err(Error::Trace(_) | Error::TooManyElements(_)) if size > 1 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The largest number whose `total` is at most `budget`; 0 if there is none. `None` is more than any budget. Totals are nearly a
/// straight line: where it meets the budget is tried, then its neighbours.
fn interpolated(mut total: impl FnMut(usize) -> Result<Option<u64>>, budget: u64) -> Result<usize> {
    let mut sum = |size: usize| total(size).map(|total| total.unwrap_or(u64::MAX));
    let first = sum(1)?;
    if first > budget {
        return Ok(0);
    }
    // Numbers with their totals: one below `low`, the largest that fits, and the least that does not.
    let (mut low, mut high) = ((1, first), (MOST + 1, u64::MAX));
    let mut below: Option<(usize, u64)> = None;
    let (mut halve, mut ahead) = (false, 1);
    while high.0 - low.0 > 1 {
        let meets = |(a, at_a): (usize, u64), (b, at_b): (usize, u64)| {
            let slope = (at_b.saturating_sub(at_a)) as f64 / (b - a) as f64;
            a.saturating_add(((budget - at_a.min(budget)) as f64 / slope.max(1e-9)) as usize)
        };
        let guess = match below {
            _ if high.1 < u64::MAX && !halve => meets(low, high),
            _ if high.0 <= MOST => low.0 + (high.0 - low.0) / 2,
            Some(below) => {
                // What hardly grows so far says little of what is far away, where plans take long.
                let grows = low.1.saturating_sub(below.1) > low.1 / 1000;
                meets(below, low).min(if grows { MOST } else { 32 * low.0 }).max(low.0 + ahead)
            }
            None => 2,
        };
        // Where totals do not grow, the steps do.
        ahead = (2 * ahead).min(MOST);
        let guess = guess.clamp(low.0 + 1, high.0 - 1);
        let (at, gap) = (sum(guess)?, high.0 - low.0);
        if at <= budget {
            (below, low) = (Some(low), (guess, at));
        } else {
            high = (guess, at);
        }
        // A line that is far off must not make many steps.
        halve = !halve && high.0 - low.0 > gap / 2;
    }
    Ok(low.0)
}

/// The largest number that `fits`; 0 if none does. Uses quick checks first, and full effort from their result on. `bracketed`
/// is called with the first power of two that does not fit.
fn bisected(
    mut fits: impl FnMut(usize, SearchEffort) -> Result<bool>,
    bracketed: impl FnOnce(usize),
) -> Result<usize> {
    let (mut low, mut high) = (0, 1);
    while high <= MOST && fits(high, SearchEffort::Near)? {
        (low, high) = (high, (2 * high).min(MOST + 1));
    }
    bracketed(high);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle, SearchEffort::Near)? { low = middle } else { high = middle }
    }
    // A quick check may miss a plan that fits, but never accepts a batch that does not fit.
    let mut ahead = 1;
    while low + ahead <= MOST && fits(low + ahead, SearchEffort::All)? {
        (low, ahead) = (low + ahead, 2 * ahead);
    }
    while ahead > 1 {
        ahead /= 2;
        if fits(low + ahead, SearchEffort::All)? {
            low += ahead;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thorough_search_finds_batches_that_the_quick_one_misses() {
        for seen in [0, 1, 5, 64, 1000] {
            for more in [0, 1, 2, 3, 7, 100] {
                let fits = |batch: usize, effort: SearchEffort| {
                    Ok(batch <= if effort == SearchEffort::All { seen + more } else { seen })
                };
                assert_eq!(bisected(fits, |_| ()).expect("found"), seen + more, "{seen} and {more} more");
            }
        }
        assert_eq!(bisected(|_, _| Ok(true), |_| ()).expect("found"), MOST, "it ends");
    }

    #[test]
    fn interpolation_finds_the_last_that_fits_in_a_few_plans() {
        // Lines with steps, curves, cliffs beyond which nothing can be, and constants.
        type Shape = fn(u64) -> Option<u64>;
        let shapes: [(&str, Shape, usize); 6] = [
            ("a line", |n| Some(1_000_000 + 12_345 * n), 6),
            ("a line with steps", |n| Some(5_000_000 + (12_345 * n).next_multiple_of(4096)), 7),
            ("a curve", |n| Some(1_000 + 100 * n + n * n), 30),
            ("a cliff", |n| (n <= 777).then(|| 10 * n), 40),
            ("a constant, then much", |n| Some(if n <= 300 { 5 } else { 1 << 50 }), 60),
            ("a constant", |_| Some(1), 26),
        ];
        for (name, shape, most) in shapes {
            for budget in [0, 1, 1_500_000, 5_100_000, 20_000_000, 1_000_000_000] {
                let mut plans = 0;
                let total = |size: usize| {
                    plans += 1;
                    Ok(shape(size as u64))
                };
                let found = interpolated(total, budget).expect("found");
                let fits = |size: usize| shape(size as u64).is_some_and(|total| total <= budget);
                assert!(found == 0 || fits(found), "{name}, {budget}: {found}");
                assert!(found == MOST || !fits(found + 1), "{name}, {budget}: {found}");
                assert!(plans <= most, "{name}, {budget}: {plans} plans");
            }
        }
    }
}
