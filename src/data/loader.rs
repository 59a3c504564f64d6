//! Batches of a data set, epoch after epoch.

use std::ops::Range;
use std::sync::Arc;

#[cfg(feature = "gpu")]
use super::Values;
use super::{Batch, Dataset, Prefetch};
use crate::error::{Error, Result};
use crate::random::{self, Bijection};

/// What happens to samples that do not fill a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastBatch {
    /// They make a smaller batch.
    #[default]
    Keep,
    /// They are left out of this epoch.
    Drop,
}

/// Cuts a data set into batches, epoch after epoch.
#[derive(Clone)]
pub struct Loader {
    data: Arc<dyn Dataset>,
    batch: usize,
    shuffle: Option<u64>,
    last: LastBatch,
    most: usize,
    /// The parts of each batch that are read, and the number of all parts.
    parts: Option<(Vec<usize>, usize)>,
}

impl Loader {
    /// Creates a loader of batches of `batch` samples, in the order of the data set.
    ///
    /// # Errors
    /// [`Error::Data`] for an empty data set; [`Error::Setting`] for a batch of 0.
    pub fn new(data: Arc<dyn Dataset>, batch: usize) -> Result<Self> {
        if data.is_empty() {
            return Err(Error::Data { what: "data set".to_owned(), message: "it has no samples".to_owned() });
        }
        if batch == 0 {
            return Err(Error::setting("batch", "a batch of 0: it must be at least 1".to_owned()));
        }
        Ok(Self { data, batch, shuffle: None, last: LastBatch::Keep, most: usize::MAX, parts: None })
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

    /// Ends each epoch after `batches` batches: with [`Loader::shuffled`], each epoch has other samples.
    #[must_use]
    pub fn batches_per_epoch(self, batches: usize) -> Self {
        Self { most: batches, ..self }
    }

    /// Splits each batch into `count` equal parts and reads only `parts`: the samples of one of several ranks
    /// ([`Parallel::parts`](crate::compile::Parallel::parts)). All other methods still speak of whole batches.
    #[must_use]
    pub fn parts_of_batch(self, parts: &[u32], count: u32) -> Self {
        let parts = parts.iter().map(|&part| part as usize).collect();
        Self { parts: Some((parts, count.max(1) as usize)), ..self }
    }

    /// Returns how many samples of a batch of `samples` are read.
    #[cfg(feature = "gpu")]
    pub(crate) fn read_of(&self, samples: usize) -> usize {
        self.parts.as_ref().map_or(samples, |(parts, count)| samples / count * parts.len())
    }

    /// Returns the samples of a batch of which `read` are read.
    #[cfg(feature = "gpu")]
    pub(crate) fn whole_of(&self, read: usize) -> usize {
        self.parts.as_ref().map_or(read, |(parts, count)| read / parts.len().max(1) * count)
    }

    /// Returns what must be the same on all ranks of a run, by name: the samples, as far as their number and the first of them
    /// tell, and their batches.
    ///
    /// # Errors
    /// Those of the data set.
    #[cfg(feature = "gpu")]
    pub(crate) fn description(&self) -> Result<Vec<(&'static str, String)>> {
        let first = self.data.batch(&[0])?;
        let hash = first.inputs().fold(0, |hash, (name, values)| {
            let words: &[u32] = match values {
                Values::F32(values) => bytemuck::cast_slice(values),
                Values::U32(values) => values,
            };
            words.iter().fold(random::key(hash, name), |hash, word| random::mix(hash ^ u64::from(*word)))
        });
        let order = self.shuffle.map_or_else(|| "as they are".to_owned(), |seed| format!("of seed {seed}"));
        Ok(vec![
            ("samples", self.data.len().to_string()),
            ("samples of an epoch", self.samples().to_string()),
            ("samples of a batch", self.batch.to_string()),
            ("an order of samples", order),
            ("a first sample with the hash", format!("{hash:016x}")),
        ])
    }

    /// Returns the seed of the order of the samples; `None` if they are not shuffled.
    pub fn seed(&self) -> Option<u64> {
        self.shuffle
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
        let full = self.data.len() / self.batch;
        match self.last {
            LastBatch::Keep if full < self.most => self.data.len() % self.batch,
            _ => 0,
        }
    }

    /// Returns the number of batches in one epoch.
    pub fn batches(&self) -> usize {
        (self.data.len() / self.batch + usize::from(self.tail() > 0)).min(self.most)
    }

    /// Returns the number of samples in one epoch.
    pub fn samples(&self) -> usize {
        match self.tail() {
            0 => self.batches() * self.batch,
            tail => (self.batches() - 1) * self.batch + tail,
        }
    }

    /// Returns the batches of epoch number `epoch` from batch `first` on. A thread prepares the next ones; it
    /// ends when the iterator is dropped, and after the first error.
    pub fn epoch(&self, epoch: u64, first: usize) -> Prefetch<Batch> {
        let (data, batch, batches) = (Arc::clone(&self.data), self.batch, self.batches());
        let (shuffle, len, parts) = (self.shuffle, self.data.len(), self.parts.clone());
        // Made by the thread: the list of a large data set takes time, too.
        let mut order = None;
        Prefetch::new((first..batches).map(move |i| {
            let order = order.get_or_insert_with(|| Order::of(shuffle, epoch, len));
            let mut samples = order.range(i * batch..len.min((i + 1) * batch));
            if let Some((parts, count)) = &parts {
                let part = samples.len() / count;
                samples = parts.iter().flat_map(|i| samples[i * part..(i + 1) * part].to_vec()).collect();
            }
            let read = data.training_batch(epoch, &samples)?;
            if read.samples() == samples.len() {
                return Ok(read);
            }
            let message = format!("a batch of {}, asked for {} samples", read.samples(), samples.len());
            Err(Error::Data { what: "data set".to_owned(), message })
        }))
    }
}

/// Data sets with more samples are shuffled without a list of them, which would need 8 bytes for each.
const MOST_LISTED: usize = 1 << 24;

/// The order of the samples in an epoch.
enum Order {
    Given,
    Listed(Vec<usize>),
    Computed(Bijection),
}

impl Order {
    fn of(shuffle: Option<u64>, epoch: u64, len: usize) -> Self {
        let Some(seed) = shuffle else { return Self::Given };
        let key = random::key(seed ^ epoch, "epoch");
        if len <= MOST_LISTED {
            return Self::Listed(random::permutation(key, len));
        }
        Self::Computed(Bijection::new(key, len))
    }

    fn range(&self, range: Range<usize>) -> Vec<usize> {
        match self {
            Self::Given => range.collect(),
            Self::Listed(list) => list[range].to_vec(),
            Self::Computed(order) => range.map(|i| order.at(i)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Table, from_fn};
    use super::*;

    fn table(n: usize) -> Arc<dyn Dataset> {
        Arc::new(Table::new(2, 5, (0..2 * n).map(|i| i as f32).collect(), vec![1; n]).unwrap())
    }

    #[test]
    fn every_epoch_has_each_sample_once_in_another_order() {
        let loader = Loader::new(table(10), 4).unwrap().shuffled(1);
        let epoch = |n| loader.epoch(n, 0).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(epoch(0).iter().map(Batch::samples).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(epoch(0)[2], loader.epoch(0, 2).next().unwrap().unwrap());
        assert_eq!(epoch(0), epoch(0));
        assert_ne!(epoch(0), epoch(1));
        let mut firsts: Vec<f32> = epoch(1).iter().flat_map(|b| b.f32("x").chunks(2).map(|x| x[0])).collect();
        firsts.sort_by(f32::total_cmp);
        assert_eq!(firsts, (0..10).map(|i| 2.0 * i as f32).collect::<Vec<_>>());
    }

    #[test]
    fn last_batch_can_be_dropped_and_an_epoch_abandoned() {
        let loader = Loader::new(table(10), 4).unwrap().last_batch(LastBatch::Drop);
        assert_eq!((loader.batches(), loader.tail(), loader.epoch(0, 0).count()), (2, 0, 2));
        drop(loader.epoch(1, 0));
    }

    #[test]
    fn epochs_can_be_shorter_than_the_data() {
        let loader = |most| Loader::new(table(10), 4).unwrap().batches_per_epoch(most);
        let counts = |loader: Loader| (loader.batches(), loader.tail(), loader.samples());
        assert_eq!(counts(loader(1)), (1, 0, 4));
        assert_eq!(counts(loader(2)), (2, 0, 8));
        assert_eq!(counts(loader(3)), (3, 2, 10));
        assert_eq!(counts(loader(9)), (3, 2, 10));
    }

    #[test]
    fn huge_data_is_shuffled_without_a_list_of_it() {
        // A list of as many samples would not fit in any memory.
        let data = from_fn(1 << 50, |samples| {
            Ok(Batch::new(samples.len())
                .with("x", samples.iter().map(|&i| (i >> 30) as u32).collect::<Vec<_>>()))
        });
        let loader = Loader::new(Arc::new(data), 64).unwrap().shuffled(3).batches_per_epoch(3);
        let epoch = |n, first| loader.epoch(n, first).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(epoch(5, 1), epoch(5, 0)[1..]);
        assert_ne!(epoch(5, 0), epoch(6, 0));
        let (low, high) = epoch(0, 0)[0].u32("x").iter().partition::<Vec<u32>, _>(|x| **x < 1 << 19);
        assert!(low.len() > 16 && high.len() > 16, "{} and {}", low.len(), high.len());
    }

    /// Fails, or panics, at its sixth sample.
    struct Damaged(bool);

    impl Dataset for Damaged {
        fn len(&self) -> usize {
            10
        }

        fn batch(&self, samples: &[usize]) -> Result<Batch> {
            if samples.contains(&5) {
                assert!(self.0, "sample 5 is damaged");
                return Err(Error::Data { what: "sample 5".to_owned(), message: "damaged".to_owned() });
            }
            Ok(Batch::new(samples.len()))
        }
    }

    #[test]
    fn samples_that_cannot_be_read_end_the_epoch_with_an_error() {
        for returns in [true, false] {
            let loader = Loader::new(Arc::new(Damaged(returns)), 4).unwrap();
            let batches: Vec<Result<Batch>> = loader.epoch(0, 0).collect();
            assert!(matches!(&batches[..], [Ok(_), Err(Error::Data { .. })]), "{batches:?}");
            assert!(batches[1].as_ref().unwrap_err().to_string().contains("damaged"));
        }
    }

    #[test]
    fn empty_data_and_empty_batches_are_errors() {
        assert!(matches!(Loader::new(table(0), 4), Err(Error::Data { .. })));
        assert!(matches!(Loader::new(table(1), 0), Err(Error::Setting { .. })));
    }
}
