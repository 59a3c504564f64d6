//! Ranks in threads of one process, with a device each, or with one software adapter opened several times.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Transport;
use crate::error::{Error, Result};

/// Connects the ranks of a run within this process: the first is for rank 0. A rank that is not heard of for `patience`
/// ends the run, so that none waits forever.
pub fn local(ranks: u32, patience: Duration) -> Vec<LocalTransport> {
    let hub = Arc::new(Hub::new(ranks));
    (0..ranks).map(|rank| LocalTransport { hub: Arc::clone(&hub), rank, ranks, patience }).collect()
}

/// One rank's end of a connection that [`local`] made.
pub struct LocalTransport {
    pub(super) hub: Arc<Hub>,
    rank: u32,
    ranks: u32,
    patience: Duration,
}

/// Messages that are to be received, and who has ended.
pub(super) struct Hub {
    state: Mutex<State>,
    news: Condvar,
}

struct State {
    ranks: u32,
    /// Messages on their way: those from rank `a` to rank `b` are at `a * ranks + b`.
    queues: Vec<VecDeque<Vec<u8>>>,
    /// Ranks that have closed their end.
    ended: Vec<bool>,
    /// Why the run ended: the first rank that failed, and its message.
    failure: Option<(u32, String)>,
}

impl State {
    fn failed(&self) -> Result<()> {
        match &self.failure {
            Some((rank, message)) => Err(Error::Rank { rank: *rank, message: message.clone() }),
            None => Ok(()),
        }
    }
}

impl Hub {
    fn new(ranks: u32) -> Self {
        let queues = vec![VecDeque::new(); (ranks * ranks) as usize];
        let state = State { ranks, queues, ended: vec![false; ranks as usize], failure: None };
        Self { state: Mutex::new(state), news: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run has not failed.
    pub(super) fn running(&self) -> Result<()> {
        self.state().failed()
    }

    /// Delivers a message from one rank to another.
    pub(super) fn deliver(&self, from: u32, to: u32, message: Vec<u8>) {
        let mut state = self.state();
        let queue = from * state.ranks + to;
        state.queues[queue as usize].push_back(message);
        self.news.notify_all();
    }

    /// Notes that a rank sends nothing more.
    pub(super) fn end(&self, rank: u32) {
        self.state().ended[rank as usize] = true;
        self.news.notify_all();
    }

    /// Notes that a rank failed. Returns the first failure, and whether it is this one.
    pub(super) fn fail(&self, rank: u32, message: &str) -> (Error, bool) {
        let mut state = self.state();
        let first = state.failure.is_none();
        let (rank, message) = state.failure.get_or_insert_with(|| (rank, message.to_owned())).clone();
        self.news.notify_all();
        (Error::Rank { rank, message }, first)
    }

    /// Waits for the next message from one rank to another.
    ///
    /// # Errors
    /// The run's failure; else the rank to blame and why.
    fn take(&self, from: u32, to: u32, message: &mut [u8], patience: Duration) -> Result<(), Lost> {
        let until = Instant::now() + patience;
        let mut state = self.state();
        let queue = (from * state.ranks + to) as usize;
        loop {
            state.failed().map_err(Lost::Run)?;
            if let Some(next) = state.queues[queue].pop_front() {
                if next.len() == message.len() {
                    message.copy_from_slice(&next);
                    return Ok(());
                }
                let (got, wanted) = (next.len(), message.len());
                return Err(Lost::Rank(format!(
                    "sent a message of {got} bytes where rank {to} expects {wanted}"
                )));
            }
            if state.ended[from as usize] {
                return Err(Lost::Rank("ended before the others".to_owned()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Lost::Rank(format!("was not heard of for {} s", patience.as_secs_f32())));
            }
            state = self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Why no message came.
pub(super) enum Lost {
    /// The run failed before.
    Run(Error),
    /// The sender is to blame, for this.
    Rank(String),
}

impl LocalTransport {
    /// Waits for the next message of a rank.
    pub(super) fn wait(&self, from: u32, message: &mut [u8]) -> Result<(), Lost> {
        self.hub.take(from, self.rank, message, self.patience)
    }

    /// The end of one rank, to whose hub messages of the others are delivered.
    #[cfg(feature = "mpi")]
    pub(super) fn alone(rank: u32, ranks: u32, patience: Duration) -> Self {
        Self { hub: Arc::new(Hub::new(ranks)), rank, ranks, patience }
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn send(&mut self, to: u32, message: &[u8]) -> Result<()> {
        self.hub.running()?;
        self.hub.deliver(self.rank, to, message.to_vec());
        Ok(())
    }

    fn receive(&mut self, from: u32, message: &mut [u8]) -> Result<()> {
        self.wait(from, message).map_err(|lost| match lost {
            Lost::Run(error) => error,
            Lost::Rank(why) => self.fail(from, &why),
        })
    }

    fn fail(&mut self, rank: u32, message: &str) -> Error {
        self.hub.fail(rank, message).0
    }
}

impl Drop for LocalTransport {
    fn drop(&mut self) {
        self.hub.end(self.rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn message(outcome: Result<()>) -> String {
        outcome.expect_err("an error").to_string()
    }

    #[test]
    fn messages_arrive_in_order_from_each_rank() {
        let mut ranks = local(3, LONG);
        ranks[1].send(0, b"one").expect("sent");
        ranks[2].send(0, b"two").expect("sent");
        ranks[1].send(0, b"three").expect("sent");
        let mut read = |from: u32, length: usize| {
            let mut bytes = vec![0; length];
            ranks[0].receive(from, &mut bytes).expect("received");
            String::from_utf8(bytes).expect("text")
        };
        assert_eq!([read(2, 3), read(1, 3), read(1, 5)], ["two", "one", "three"]);
    }

    /// What a rank sent before it ended still arrives.
    #[test]
    fn a_rank_that_ends_ends_all_with_one_error() {
        let mut ranks = local(3, LONG);
        let mut gone = ranks.pop().expect("three");
        gone.send(0, b"last").expect("sent");
        drop(gone);
        let mut bytes = [0; 4];
        ranks[0].receive(2, &mut bytes).expect("received");
        let first = message(ranks[0].receive(2, &mut bytes));
        assert!(first.starts_with("rank 2: ended before the others"), "{first}");
        assert_eq!(message(ranks[1].receive(0, &mut bytes)), first, "though it waits for another rank");
        assert_eq!(message(ranks[1].send(0, &bytes)), first);
    }

    #[test]
    fn a_rank_that_hangs_is_named() {
        let mut ranks = local(2, Duration::from_millis(20));
        let error = message(ranks[0].receive(1, &mut [0; 4]));
        assert!(error.starts_with("rank 1: was not heard of for 0.02 s"), "{error}");
    }

    #[test]
    fn a_message_of_another_length_is_refused() {
        let mut ranks = local(2, LONG);
        ranks[1].send(0, b"12345").expect("sent");
        let error = message(ranks[0].receive(1, &mut [0; 4]));
        assert!(error.starts_with("rank 1: sent a message of 5 bytes where rank 0 expects 4"), "{error}");
    }

    #[test]
    fn the_first_failure_is_everybodys() {
        let mut ranks = local(2, LONG);
        let first = ranks[0].fail(0, "out of memory").to_string();
        assert_eq!(ranks[1].fail(1, "something later").to_string(), first);
        assert!(first.starts_with("rank 0: out of memory"), "{first}");
    }
}
