//! A data set from a closure.

use super::{Batch, Dataset};
use crate::error::Result;

/// A data set whose batches a closure makes: see [`from_fn`].
#[derive(Clone, Debug)]
pub struct FromFn<F> {
    len: usize,
    batch: F,
}

/// Returns a data set of `len` samples. `batch` makes a batch of the samples with the given indices, in their
/// order; as long as it makes the same sample for the same index, runs that are shuffled or continued are
/// exact.
///
/// ```
/// use std::sync::Arc;
/// use wgrad::data::{Batch, Loader, from_fn};
///
/// let parabola = from_fn(1000, |samples| {
///     let x: Vec<f32> = samples.iter().map(|&i| i as f32 / 1000.0).collect();
///     let y: Vec<f32> = x.iter().map(|x| x * x).collect();
///     Ok(Batch::new(samples.len()).with("x", x).with("y", y))
/// });
/// let loader = Loader::new(Arc::new(parabola), 32)?.shuffled(0);
/// assert_eq!(loader.batches(), 32);
/// # Ok::<(), wgrad::Error>(())
/// ```
pub fn from_fn<F: Fn(&[usize]) -> Result<Batch> + Send + Sync>(len: usize, batch: F) -> FromFn<F> {
    FromFn { len, batch }
}

impl<F: Fn(&[usize]) -> Result<Batch> + Send + Sync> Dataset for FromFn<F> {
    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        (self.batch)(samples)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Loader;
    use super::*;
    use crate::error::Error;

    #[test]
    fn batches_of_a_closure_are_shuffled_and_continued_exactly() {
        let data = from_fn(10, |samples| {
            let x: Vec<f32> = samples.iter().map(|&i| i as f32).collect();
            Ok(Batch::new(samples.len()).with("x", x))
        });
        let loader = Loader::new(Arc::new(data), 4).unwrap().shuffled(1);
        let epoch: Vec<Batch> = loader.epoch(3, 0).collect::<Result<_>>().unwrap();
        assert_eq!(loader.epoch(3, 1).collect::<Result<Vec<_>>>().unwrap(), epoch[1..]);
        let mut all: Vec<f32> = epoch.iter().flat_map(|batch| batch.f32("x").to_vec()).collect();
        all.sort_by(f32::total_cmp);
        assert_eq!(all, (0..10).map(|i| i as f32).collect::<Vec<_>>());
    }

    #[test]
    fn errors_and_batches_of_another_length_end_the_epoch() {
        let wrong = |message: &str| Error::Data { what: "row 7".to_owned(), message: message.to_owned() };
        let broken = Arc::new(from_fn(10, move |_: &[usize]| Err(wrong("is damaged"))));
        let short = Arc::new(from_fn(10, |_: &[usize]| Ok(Batch::new(1))));
        let first = |data: Arc<dyn Dataset>| {
            let loader = Loader::new(data, 4).unwrap();
            loader.epoch(0, 0).next().unwrap().unwrap_err().to_string()
        };
        assert_eq!(first(broken), "row 7: is damaged");
        assert!(first(short).contains("a batch of 1, asked for 4 samples"));
    }
}
