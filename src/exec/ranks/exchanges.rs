//! The exchanges of a run, in the host's memory.

use std::collections::VecDeque;
use std::time::Duration;

use super::Transport;
use crate::error::{Error, Result};
use crate::graph::{Exchange, ExchangeKind};
use crate::time::Instant;

/// Sends and receives what the ranks exchange.
#[derive(Default)]
pub(in crate::exec) struct Exchanges {
    transport: Option<Box<dyn Transport>>,
    /// Exchanges whose words are on their way from the device, in order.
    leaving: VecDeque<u32>,
    /// Number of exchanges received.
    received: u32,
    /// For how long this rank has waited for the others.
    pub(in crate::exec) waited: Duration,
    /// The most bytes that a rank has created on its device.
    pub(in crate::exec) fullest: u64,
    /// The first rank on whose samples the loss was NaN or infinite, where it was finite on those of another.
    pub(in crate::exec) not_finite: Option<u32>,
}

impl Exchanges {
    pub(in crate::exec) fn connect(&mut self, transport: Box<dyn Transport>) {
        self.transport = Some(transport);
    }

    pub(in crate::exec) fn transport(&mut self) -> Result<&mut dyn Transport> {
        match &mut self.transport {
            Some(transport) => Ok(&mut **transport),
            None => Err(Error::NotReady(
                "the plan is one rank's of several: connect it with `Session::set_transport`".to_owned(),
            )),
        }
    }

    /// Forgets the exchanges of a run.
    pub(in crate::exec) fn begin(&mut self) {
        self.leaving.clear();
        self.received = 0;
    }

    /// Notes that the copies of all words of an exchange to the host are submitted.
    pub(in crate::exec) fn leaves(&mut self, index: u32) {
        self.leaving.push_back(index);
    }

    /// Returns the next exchange to send, up to `last`.
    pub(in crate::exec) fn next_to_send(&mut self, last: u32) -> Option<u32> {
        let next = self.leaving.front().copied().filter(|next| *next <= last)?;
        self.leaving.pop_front();
        Some(next)
    }

    /// Sends every other rank its words.
    pub(in crate::exec) fn send(&mut self, exchange: &Exchange, words: &[u32]) -> Result<()> {
        let transport = self.transport()?;
        let (rank, ranks) = (transport.rank(), transport.ranks());
        for to in (0..ranks).filter(|to| *to != rank && exchange.sends(rank)) {
            transport.send(to, bytemuck::cast_slice(share(exchange, words, to)))?;
        }
        Ok(())
    }

    /// Returns the next exchange to receive, up to `last`. Messages arrive in the order in which they were sent, whichever
    /// the device needs first.
    pub(in crate::exec) fn next_to_receive(&mut self, last: u32) -> Option<u32> {
        let next = (self.received <= last).then_some(self.received)?;
        self.received += 1;
        Some(next)
    }

    /// Receives the words of every rank that has some; `own` are those that this rank sent.
    pub(in crate::exec) fn receive(
        &mut self,
        exchange: &Exchange,
        own: &[u32],
        words: &mut [u32],
    ) -> Result<()> {
        let start = Instant::now();
        let transport = self.transport()?;
        let shares = (0..).zip(words.chunks_exact_mut(exchange.share as usize));
        for (from, words) in shares.filter(|(from, _)| exchange.sends(*from)) {
            if from == transport.rank() {
                words.copy_from_slice(share(exchange, own, from));
            } else {
                transport.receive(from, bytemuck::cast_slice_mut(words))?;
            }
        }
        self.waited += start.elapsed();
        if exchange.losses > 0 {
            self.not_finite = self.not_finite.or_else(|| not_finite(exchange, words));
        }
        Ok(())
    }

    /// Ends the run of all ranks after an error of this one, and returns the error that all have. An input that is
    /// missing ends nothing: no rank has received anything of the step.
    pub(in crate::exec) fn failed(&mut self, error: Error) -> Error {
        match (&mut self.transport, error) {
            (None, error) | (_, error @ (Error::Rank { .. } | Error::Input { .. })) => error,
            // All ranks find it.
            (Some(transport), error @ Error::LossNotFinite { rank, .. }) => {
                transport.fail(rank.unwrap_or(0), &error.to_string())
            }
            (Some(transport), error) => transport.fail(transport.rank(), &error.to_string()),
        }
    }
}

/// Returns the first rank with a loss that is not finite, if another rank has only finite ones.
fn not_finite(exchange: &Exchange, words: &[u32]) -> Option<u32> {
    let finite = |words: &[u32]| {
        words[..exchange.losses as usize].iter().all(|loss| f32::from_bits(*loss).is_finite())
    };
    let all: Vec<bool> = words.chunks_exact(exchange.share as usize).map(finite).collect();
    let first = all.iter().position(|finite| !finite)?;
    all.contains(&true).then_some(first as u32)
}

/// Returns the words for a rank among those that are sent.
fn share<'a>(exchange: &Exchange, words: &'a [u32], rank: u32) -> &'a [u32] {
    let share = exchange.share as usize;
    match exchange.kind {
        ExchangeKind::Scatter => &words[rank as usize * share..][..share],
        ExchangeKind::Gather => &words[..share],
    }
}
