//! Part of a data set.

use std::sync::Arc;

use super::{Batch, Dataset};
use crate::error::{Error, Result};
use crate::random;

/// Some samples of a data set, in an order of their own.
#[derive(Clone)]
pub struct Subset {
    data: Arc<dyn Dataset>,
    samples: Vec<usize>,
}

impl Subset {
    /// Creates a data set of these samples of `data`.
    ///
    /// # Errors
    /// [`Error::Data`] for an index that `data` does not have.
    pub fn new(data: Arc<dyn Dataset>, samples: Vec<usize>) -> Result<Self> {
        if let Some(index) = samples.iter().find(|index| **index >= data.len()) {
            let message = format!("there is no sample {index}, the data has {}", data.len());
            return Err(Error::Data { what: "subset".to_owned(), message });
        }
        Ok(Self { data, samples })
    }

    /// Creates a data set of `count` samples at equal distances, or of all samples if `data` has fewer.
    pub fn evenly(data: Arc<dyn Dataset>, count: usize) -> Self {
        let count = count.min(data.len());
        let samples = (0..count).map(|i| (i as u128 * data.len() as u128 / count as u128) as usize).collect();
        Self { data, samples }
    }

    /// Splits a data set into two without a sample in common: the first gets `share` of the samples, drawn by
    /// `seed`.
    pub fn split(data: Arc<dyn Dataset>, share: f64, seed: u64) -> (Self, Self) {
        let (first, second) = random::split(data.len(), share, seed);
        (Self { data: Arc::clone(&data), samples: first }, Self { data, samples: second })
    }

    fn resolve(&self, samples: &[usize]) -> Vec<usize> {
        samples.iter().map(|&i| self.samples[i]).collect()
    }
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        self.data.batch(&self.resolve(samples))
    }

    fn training_batch(&self, epoch: u64, samples: &[usize]) -> Result<Batch> {
        self.data.training_batch(epoch, &self.resolve(samples))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tokens;
    use super::*;

    #[test]
    fn subsets_read_the_samples_that_they_name() {
        let tokens = Tokens::new((0..21).collect::<Vec<_>>(), 21).unwrap();
        let windows: Arc<dyn Dataset> = Arc::new(tokens.windows(1).unwrap());
        let evenly = Subset::evenly(windows.clone(), 4);
        assert_eq!(evenly.batch(&[0, 1, 2, 3]).unwrap().u32("x"), [0, 5, 10, 15]);
        assert_eq!(Subset::evenly(windows.clone(), 99).len(), 20);
        let last = Subset::new(windows.clone(), vec![19, 3]).unwrap();
        assert_eq!(last.batch(&[0]).unwrap().u32("y"), [20]);
        assert!(Subset::new(windows.clone(), vec![20]).is_err());
        let (a, b) = Subset::split(windows, 0.75, 1);
        assert_eq!((a.len(), b.len()), (15, 5));
        let mut all = [a.samples, b.samples].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..20));
    }
}
