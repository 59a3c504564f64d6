//! The largest batch under a budget, found by planning.

use super::{PlanOptions, Recompute, TrainStep};
use crate::compile::recompute::SearchEffort;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::progress;
use crate::units::Bytes;

/// Upper bound on the batch.
const MOST: usize = 1 << 24;

/// The largest batch with a plan that fits `budget`; 0 if not even one sample fits. `step` traces the model
/// for a number of samples. The search doubles the batch, then bisects; it makes plans and runs nothing. With
/// [`Recompute::Auto`](crate::compile::Recompute::Auto) there are two searches: a quick one, and
/// from its result on one with the full effort of [`TrainStep::plan`].
///
/// # Errors
/// As [`TrainStep::plan`], except for errors that mean that the batch is too large.
pub fn max_batch(
    mut step: impl FnMut(usize) -> Result<TrainStep>,
    options: &PlanOptions,
    budget: Bytes,
    limits: &Limits,
) -> Result<usize> {
    let options = PlanOptions { budget: Some(budget), ..*options };
    let task = progress::task("largest batch: plans", None);
    let mut plans = 0;
    let fits = |batch: usize, effort: SearchEffort| -> Result<bool> {
        plans += 1;
        task.done(plans - 1);
        match step(batch)?.fits(&options, limits, effort) {
            Ok(fits) => Ok(fits),
            Err(Error::TensorTooLarge { .. } | Error::Pack(_)) => Ok(false),
            Err(error) => Err(error),
        }
    };
    // After the doubling, each plan halves the interval.
    let bracketed = |high: usize| task.expect(u64::from(2 * high.ilog2()).max(1));
    largest(fits, bracketed, options.recompute == Recompute::Auto)
}

/// The largest number that `fits`; 0 if none does. Uses quick checks first and, with `thorough`, full effort
/// from their result on. `bracketed` is called with the first power of two that does not fit.
fn largest(
    mut fits: impl FnMut(usize, SearchEffort) -> Result<bool>,
    bracketed: impl FnOnce(usize),
    thorough: bool,
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
    if !thorough {
        return Ok(low);
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
                assert_eq!(
                    largest(fits, |_| (), true).expect("found"),
                    seen + more,
                    "{seen} and {more} more"
                );
                assert_eq!(largest(fits, |_| (), false).expect("found"), seen);
            }
        }
        assert_eq!(largest(|_, _| Ok(true), |_| (), true).expect("found"), MOST, "it ends");
    }
}
