//! Items prepared on a separate thread while the device works.

use std::sync::mpsc::{Receiver, sync_channel};

/// Maximum number of prepared items that wait.
const WAITING: usize = 2;

/// An iterator whose next items are prepared ahead of time. The thread that prepares them ends when this is
/// dropped.
pub struct Prefetch<T> {
    receiver: Receiver<T>,
}

impl<T: Send + 'static> Prefetch<T> {
    pub(super) fn new(items: impl Iterator<Item = T> + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::spawn(move || {
            for item in items {
                // The receiver was dropped: the remaining items are not needed.
                if sender.send(item).is_err() {
                    return;
                }
            }
        });
        Self { receiver }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}
