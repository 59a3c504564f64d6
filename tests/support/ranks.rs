//! Ranks in threads of one test.
#![allow(dead_code, reason = "each test program uses a part")]

use std::time::Duration;

use wgrad::exec::{LocalTransport, local};

/// How long a rank waits for another, which may compile kernels.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `one` for each rank in a thread of its own; returns what each returns, in the order of ranks.
pub fn on_ranks<T: Send>(ranks: u32, one: impl Fn(u32, LocalTransport) -> T + Sync) -> Vec<T> {
    let one = &one;
    std::thread::scope(|scope| {
        let ranks = (0..).zip(local(ranks, PATIENCE));
        let ranks: Vec<_> =
            ranks.map(|(rank, transport)| scope.spawn(move || one(rank, transport))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("it runs")).collect()
    })
}
