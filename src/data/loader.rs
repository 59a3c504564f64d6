//! Batches of a data set, epoch after epoch.

use std::sync::Arc;

use super::{Dataset, Prefetch};
use crate::error::{Error, Result};
use crate::random;

/// What happens to samples that do not fill a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastBatch {
    /// They make a smaller batch.
    #[default]
    Keep,
    /// They are left out of this epoch.
    Drop,
}

/// A batch: `len` samples, row-major, and their classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// `[len, sample_len]`
    pub x: Vec<f32>,
    /// `[len]`
    pub y: Vec<u32>,
}

impl Batch {
    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.y.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.y.is_empty()
    }
}

/// Cuts a data set into batches, epoch after epoch.
#[derive(Clone)]
pub struct Loader {
    data: Arc<dyn Dataset>,
    batch: usize,
    shuffle: Option<u64>,
    last: LastBatch,
}

impl Loader {
    /// Creates a loader of batches of `batch` samples, in the order of the data set.
    ///
    /// # Errors
    /// [`Error::Data`] for an empty data set; [`Error::Option`] for a batch of 0.
    pub fn new(data: Arc<dyn Dataset>, batch: usize) -> Result<Self> {
        if data.is_empty() {
            return Err(Error::Data { what: "data set".to_owned(), message: "it has no samples".to_owned() });
        }
        if batch == 0 {
            return Err(Error::Option("a batch of 0: it must be at least 1".to_owned()));
        }
        Ok(Self { data, batch, shuffle: None, last: LastBatch::Keep })
    }

    /// Shuffles the samples into another order each epoch, the same for the same seed.
    #[must_use]
    pub fn shuffled(self, seed: u64) -> Self {
        Self { shuffle: Some(seed), ..self }
    }

    /// What happens to samples that do not fill a batch.
    #[must_use]
    pub fn last_batch(self, last: LastBatch) -> Self {
        Self { last, ..self }
    }

    /// Returns the data set.
    pub fn data(&self) -> &dyn Dataset {
        &*self.data
    }

    /// Returns the number of samples in a full batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the number of samples in the smaller last batch; 0 if there is none.
    pub fn tail(&self) -> usize {
        match self.last {
            LastBatch::Keep => self.data.len() % self.batch,
            LastBatch::Drop => 0,
        }
    }

    /// Returns the number of batches in one epoch.
    pub fn batches(&self) -> usize {
        self.data.len() / self.batch + usize::from(self.tail() > 0)
    }

    /// Returns the batches of epoch number `epoch`. A thread prepares the next ones; it ends when the
    /// iterator is dropped.
    pub fn epoch(&self, epoch: u64) -> Prefetch<Batch> {
        let order = match self.shuffle {
            Some(seed) => random::permutation(random::key(seed ^ epoch, "epoch"), self.data.len()),
            None => (0..self.data.len()).collect(),
        };
        let (data, batch, batches) = (Arc::clone(&self.data), self.batch, self.batches());
        Prefetch::new((0..batches).map(move |i| {
            let rows = &order[i * batch..order.len().min((i + 1) * batch)];
            read(&*data, rows)
        }))
    }
}

fn read(data: &dyn Dataset, rows: &[usize]) -> Batch {
    let len = data.sample_len();
    let mut x = vec![0.0; rows.len() * len];
    let y = rows.iter().enumerate().map(|(i, &row)| data.read(row, &mut x[i * len..(i + 1) * len])).collect();
    Batch { x, y }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    fn table(n: usize) -> Arc<dyn Dataset> {
        Arc::new(Table::new(2, 5, (0..2 * n).map(|i| i as f32).collect(), vec![1; n]).unwrap())
    }

    #[test]
    fn every_epoch_has_each_sample_once_in_another_order() {
        let loader = Loader::new(table(10), 4).unwrap().shuffled(1);
        let epoch = |n| loader.epoch(n).collect::<Vec<_>>();
        assert_eq!(epoch(0).iter().map(Batch::len).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(epoch(0), epoch(0));
        assert_ne!(epoch(0), epoch(1));
        let mut firsts: Vec<f32> = epoch(1).iter().flat_map(|b| b.x.chunks(2).map(|x| x[0])).collect();
        firsts.sort_by(f32::total_cmp);
        assert_eq!(firsts, (0..10).map(|i| 2.0 * i as f32).collect::<Vec<_>>());
    }

    #[test]
    fn last_batch_can_be_dropped_and_an_epoch_abandoned() {
        let loader = Loader::new(table(10), 4).unwrap().last_batch(LastBatch::Drop);
        assert_eq!((loader.batches(), loader.tail(), loader.epoch(0).count()), (2, 0, 2));
        drop(loader.epoch(1));
    }

    #[test]
    fn empty_data_and_empty_batches_are_errors() {
        assert!(matches!(Loader::new(table(0), 4), Err(Error::Data { .. })));
        assert!(matches!(Loader::new(table(1), 0), Err(Error::Option(_))));
    }
}
