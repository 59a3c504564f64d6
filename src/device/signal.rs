//! Callbacks of wgpu as something to wait for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::lock;

/// What a callback says, once it has run. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Signal(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    outcome: Option<bool>,
    waker: Option<Waker>,
}

impl Signal {
    /// Tells whoever waits whether what was asked for was done.
    pub(super) fn set(&self, done: bool) {
        let mut state = lock(&self.0);
        state.outcome = Some(done);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Returns whether it was done; `None` before the callback.
    pub(super) fn outcome(&self) -> Option<bool> {
        lock(&self.0).outcome
    }
}

impl Future for Signal {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = lock(&self.0);
        match state.outcome {
            Some(done) => Poll::Ready(done),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_on_when_the_callback_has_run() {
        let (signal, callback) = (Signal::default(), Signal::default());
        let shared = signal.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            shared.set(true);
        });
        assert!(pollster::block_on(signal.clone()));
        thread.join().expect("it does not panic");
        assert_eq!((signal.outcome(), callback.outcome()), (Some(true), None));
        callback.set(false);
        assert!(!pollster::block_on(callback));
    }
}
