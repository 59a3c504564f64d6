//! Items prepared on a separate thread while the device works.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use crate::error::{Error, Result};

/// Maximum number of prepared items that wait.
const WAITING: usize = 2;

type Items<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// An iterator whose next items are prepared ahead of time. It ends after the first error; a panic while an
/// item is prepared is an [`Error::Data`]. The thread that prepares the items ends when this is dropped. If
/// the system gives no thread, items are prepared when they are asked for.
pub struct Prefetch<T> {
    source: Source<T>,
}

enum Source<T> {
    Thread(Receiver<Result<T>>),
    /// `None` after the last item.
    Here(Option<Items<T>>),
}

impl<T: Send + 'static> Prefetch<T> {
    pub(super) fn new(items: impl Iterator<Item = Result<T>> + Send + 'static) -> Self {
        Self::spawned_by(Builder::new(), items)
    }

    fn spawned_by(builder: Builder, items: impl Iterator<Item = Result<T>> + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(WAITING);
        // Shared, because a thread that cannot be spawned does not return what it was given.
        let items: Arc<Mutex<Option<Items<T>>>> = Arc::new(Mutex::new(Some(Box::new(items))));
        let taken = Arc::clone(&items);
        let take =
            |items: &Mutex<Option<Items<T>>>| items.lock().unwrap_or_else(PoisonError::into_inner).take();
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

/// Returns the next item; `None` after the last one and after an error.
fn next<T>(items: &mut Option<Items<T>>) -> Option<Result<T>> {
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
    }
}
