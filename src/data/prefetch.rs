//! Items prepared on a separate thread while the device works.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use crate::error::{Error, Result};

/// Maximum number of prepared items that wait.
const WAITING: usize = 2;

type Items<'a, T> = Box<dyn Iterator<Item = Result<T>> + Send + 'a>;

/// An iterator whose next items are prepared ahead of time. It ends after the first error; a panic while an
/// item is prepared is an [`Error::Data`]. The thread that prepares the items ends when this is dropped. If
/// the system gives no thread, items are prepared when they are asked for.
pub struct Prefetch<T> {
    source: Source<T>,
}

enum Source<T> {
    Thread(Receiver<Result<T>>),
    /// `None` after the last item.
    Here(Option<Items<'static, T>>),
}

impl<T: Send + 'static> Prefetch<T> {
    pub(super) fn new(items: impl Iterator<Item = Result<T>> + Send + 'static) -> Self {
        Self::spawned_by(Builder::new(), items)
    }

    fn spawned_by(builder: Builder, items: impl Iterator<Item = Result<T>> + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(WAITING);
        // Shared, because a thread that cannot be spawned does not return what it was given.
        let items: Arc<Mutex<Option<Items<'static, T>>>> = Arc::new(Mutex::new(Some(Box::new(items))));
        let taken = Arc::clone(&items);
        let take = |items: &Mutex<Option<Items<'static, T>>>| {
            items.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let worker = builder.spawn(move || {
            let mut items = take(&taken);
            // Ends if the receiver was dropped: the remaining items are not needed.
            while let Some(item) = next(&mut items) {
                if sender.send(item).is_err() {
                    return;
                }
            }
        });
        let source = match worker {
            Ok(_) => Source::Thread(receiver),
            Err(_) => Source::Here(take(&items)),
        };
        Self { source }
    }
}

/// Calls `each` with the items in order, while a thread that ends with this call prepares the next ones. Like
/// [`Prefetch`], for items that borrow.
///
/// # Errors
/// The first error of an item or of `each`.
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "evaluations need a device"))]
pub(crate) fn ahead<'a, T: Send>(
    items: impl Iterator<Item = Result<T>> + Send + 'a,
    mut each: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let (sender, receiver) = sync_channel(WAITING);
    let items: Mutex<Option<Items<'a, T>>> = Mutex::new(Some(Box::new(items)));
    let take = || items.lock().unwrap_or_else(PoisonError::into_inner).take();
    std::thread::scope(|scope| {
        let worker = Builder::new().spawn_scoped(scope, || {
            let mut items = take();
            while let Some(item) = next(&mut items) {
                if sender.send(item).is_err() {
                    return;
                }
            }
            // The receiver waits for as long as there is a sender.
            drop(sender);
        });
        if worker.is_ok() {
            // Dropped after an error, so that the thread does not wait for room.
            let receiver = receiver;
            return receiver.iter().try_for_each(|item| each(item?));
        }
        let mut here = take();
        std::iter::from_fn(|| next(&mut here)).try_for_each(|item| each(item?))
    })
}

/// Returns the next item; `None` after the last one and after an error.
fn next<T>(items: &mut Option<Items<'_, T>>) -> Option<Result<T>> {
    let next = catch_unwind(AssertUnwindSafe(|| items.as_mut()?.next()));
    let item = next.unwrap_or_else(|panic| Some(Err(panicked(&*panic))));
    if !matches!(item, Some(Ok(_))) {
        *items = None;
    }
    item
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Error::Data { what: "data set".to_owned(), message: format!("it panicked: {text}") }
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        match &mut self.source {
            Source::Thread(receiver) => receiver.recv().ok(),
            Source::Here(items) => next(items),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_the_same_without_a_thread() {
        // No system has a stack of this size.
        let nowhere = || Builder::new().stack_size(usize::MAX / 4);
        let items = || (0..5).map(|i| if i == 3 { Err(Error::setting("i", "three")) } else { Ok(i) });
        for mut prefetch in [Prefetch::spawned_by(nowhere(), items()), Prefetch::new(items())] {
            let found: Vec<Option<u32>> = prefetch.by_ref().map(Result::ok).collect();
            assert_eq!(found, [Some(0), Some(1), Some(2), None]);
            assert!(prefetch.next().is_none());
        }
        let here = Prefetch::spawned_by(nowhere(), items());
        assert!(matches!(here.source, Source::Here(_)));
        let mut found = Vec::new();
        let add = |item| {
            found.push(item);
            Ok(())
        };
        assert_eq!(ahead(items(), add).unwrap_err().to_string(), "three");
        assert_eq!(found, [0, 1, 2]);
        // An error on this side ends the thread, which waits for room.
        let stopped = ahead((0..100).map(Ok), |item| match item {
            0 => Ok(()),
            _ => Err(Error::setting("i", "stop")),
        });
        assert_eq!(stopped.unwrap_err().to_string(), "stop");
    }

    /// The next items are made while the caller does not ask for them, and no more than may wait. The limit of
    /// time is only there to fail instead of waiting for ever.
    #[test]
    fn items_are_made_before_they_are_asked_for() {
        let (made, seen) = std::sync::mpsc::channel();
        let items = (0..20).map(move |i| {
            let _ = made.send(i);
            Ok(i)
        });
        let mut prefetch = Prefetch::new(items);
        let limit = std::time::Duration::from_secs(60);
        let mut last = None;
        for taken in 0..20 {
            // Those that wait, and one that waits for room.
            let ahead = (taken + WAITING).min(19);
            while last.is_none_or(|last| last < ahead) {
                last = Some(seen.recv_timeout(limit).expect("an item made ahead"));
            }
            assert_eq!(prefetch.next().unwrap().unwrap(), taken);
            assert!(last.is_some_and(|last| last <= taken + WAITING));
        }
        assert!(prefetch.next().is_none());
    }
}
