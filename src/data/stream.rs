//! A data set from an iterator.

use std::sync::{Mutex, PoisonError};

use super::{Batch, Dataset};
use crate::error::{Error, Result};

type Samples = Box<dyn Iterator<Item = Result<Batch>> + Send>;

/// A data set whose samples an iterator makes: see [`stream`].
pub struct Stream {
    epoch: usize,
    start: Box<dyn Fn(u64) -> Samples + Send + Sync>,
    /// The iterator in use, and the number of its next sample.
    current: Mutex<Option<(u64, Samples)>>,
}

/// Returns a data set of the samples of an iterator, which need not end: epoch number `e` has the samples
/// `e · epoch` to `(e + 1) · epoch`. Each item is a [`Batch`] of one sample.
///
/// `start(n)` returns the iterator from sample number `n` on; one that cannot begin there may skip the samples before.
/// It is called for the first batch, and for each that does not follow the one before it: where a run continues, after
/// an error, and at the start of an evaluation of the same data set, which reads the samples of epoch 0, and at its
/// end. In between the same iterator is used. An epoch in order is all that it can give: with
/// [`Loader::shuffled`](super::Loader) batches are errors.
///
/// ```
/// use std::sync::Arc;
/// use wgrad::data::{Batch, Loader, stream};
///
/// // Numbers that a recurrence makes, one after the other.
/// let noise = stream(1000, |first| {
///     let mut state = 1u32;
///     let numbers = std::iter::repeat_with(move || {
///         state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
///         state as f32 / u32::MAX as f32
///     });
///     numbers.skip(first as usize).map(|x| Ok(Batch::new(1).with("x", vec![x]).with("y", vec![x * x])))
/// });
/// let loader = Loader::new(Arc::new(noise), 32)?;
/// assert_eq!(loader.batches(), 32);
/// # Ok::<(), wgrad::Error>(())
/// ```
pub fn stream<I>(epoch: usize, start: impl Fn(u64) -> I + Send + Sync + 'static) -> Stream
where
    I: Iterator<Item = Result<Batch>> + Send + 'static,
{
    Stream { epoch, start: Box::new(move |first| Box::new(start(first))), current: Mutex::new(None) }
}

/// As many samples as in an epoch; [`Dataset::batch`] gives those of the first.
impl Dataset for Stream {
    fn len(&self) -> usize {
        self.epoch
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        self.training_batch(0, samples)
    }

    fn training_batch(&self, epoch: u64, samples: &[usize]) -> Result<Batch> {
        let wrong = |message: String| Error::Data { what: "stream".to_owned(), message };
        let Some(&first) = samples.first() else { return Ok(Batch::new(0)) };
        if samples.windows(2).any(|pair| pair[1] != pair[0] + 1) {
            let message = "samples of an iterator come in its order: do not shuffle the loader, or make a data set of a \
                           function of the index with `from_fn`";
            return Err(wrong(message.to_owned()));
        }
        // The numbers of the first sample and of the one after the last.
        let number = |sample: u64| epoch.checked_mul(self.epoch as u64)?.checked_add(sample);
        let bounds = number(first as u64).zip(number(first as u64 + samples.len() as u64));
        let (first, end) = bounds.ok_or_else(|| {
            wrong(format!("epoch {epoch} of {} samples has numbers of 2^64 and more", self.epoch))
        })?;
        // Put back when the batch is complete: after an error or a panic the iterator starts anew.
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut iterator = match current {
            Some((next, iterator)) if next == first => iterator,
            _ => (self.start)(first),
        };
        let mut batch = Batch::new(0);
        for number in first..end {
            let sample = iterator.next().ok_or_else(|| {
                wrong(format!("it ends before sample {number}; epoch {epoch} has {} samples", self.epoch))
            })??;
            if sample.samples() != 1 {
                return Err(wrong(format!("item {number} is a batch of {}, not of 1", sample.samples())));
            }
            batch.append(sample).map_err(|message| wrong(format!("sample {number}: {message}")))?;
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some((end, iterator));
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::Loader;
    use super::*;

    fn numbers(first: u64) -> impl Iterator<Item = Result<Batch>> + Send {
        (first as u32..).map(|i| Ok(Batch::new(1).with("x", vec![i, i]).with("y", vec![i as f32])))
    }

    #[test]
    fn epochs_follow_each_other_and_continue_exactly() {
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&starts);
        let data = stream(5, move |first| {
            counted.fetch_add(1, Ordering::Relaxed);
            numbers(first)
        });
        let loader = Loader::new(Arc::new(data), 2).unwrap();
        let epoch = |n, first| loader.epoch(n, first).collect::<Result<Vec<_>>>().unwrap();
        let both = [epoch(0, 0), epoch(1, 0)].concat();
        assert_eq!(starts.load(Ordering::Relaxed), 1);
        assert_eq!(both[2], Batch::new(1).with("x", vec![4u32, 4]).with("y", vec![4.0f32]));
        assert_eq!(both[3].u32("x"), [5, 5, 6, 6]);
        assert_eq!(epoch(1, 1), both[4..]);
        assert_eq!(starts.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_an_iterator_cannot_give_is_an_error() {
        let of = |data: Stream, samples: &[usize]| data.batch(samples).unwrap_err().to_string();
        assert!(of(stream(5, numbers), &[0, 2]).contains("do not shuffle the loader"));
        let ends = stream(5, |first| numbers(first).take(3));
        assert!(of(ends, &[1, 2, 3, 4]).contains("it ends before sample 4; epoch 0 has 5 samples"));
        let mixed = stream(5, |_| {
            let name = |i: usize| if i == 0 { "x" } else { "z" };
            (0..).map(move |i| Ok(Batch::new(1).with(name(i), vec![0u32])))
        });
        assert!(of(mixed, &[0, 1]).contains("sample 1: it has `z`"));
        let late = stream(5, numbers).training_batch(u64::MAX / 5, &[0]).unwrap_err().to_string();
        assert!(late.contains("samples has numbers of 2^64 and more"), "{late}");
        let pairs = stream(5, |_| std::iter::repeat_with(|| Ok(Batch::new(2))));
        assert!(of(pairs, &[0]).contains("item 0 is a batch of 2, not of 1"));
    }
}
