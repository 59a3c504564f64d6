//! Items prepared on a separate thread while the device works.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};

use crate::error::{Error, Result};

/// Maximum number of prepared items that wait.
const WAITING: usize = 2;

/// An iterator whose next items are prepared ahead of time. It ends after the first error; a panic while an
/// item is prepared is an [`Error::Data`]. The thread that prepares the items ends when this is dropped.
pub struct Prefetch<T> {
    receiver: Receiver<Result<T>>,
}

impl<T: Send + 'static> Prefetch<T> {
    pub(super) fn new(mut items: impl Iterator<Item = Result<T>> + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::spawn(move || {
            loop {
                let next = catch_unwind(AssertUnwindSafe(|| items.next()));
                let Some(item) = next.unwrap_or_else(|panic| Some(Err(panicked(&*panic)))) else { return };
                let last = item.is_err();
                // The receiver was dropped: the remaining items are not needed.
                if sender.send(item).is_err() || last {
                    return;
                }
            }
        });
        Self { receiver }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Error::Data { what: "data set".to_owned(), message: format!("it panicked: {text}") }
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.receiver.recv().ok()
    }
}
