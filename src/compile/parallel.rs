//! Parallelism over several devices: which parts of a batch a rank computes, and of what it has a part.

use super::shares::dealt;
use super::{Plan, Shares};
use crate::error::{Error, Result};
use crate::graph::Exchange;
use crate::limits::Card;
use crate::units::Bytes;

/// What each rank keeps a part of, instead of all of it: from less to more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shard {
    /// Nothing: each rank has all parameters and all optimizer state.
    #[default]
    None,
    /// The optimizer state of all parameters but norms and biases (ZeRO-1, Rajbhandari et al. 2020). Each rank updates its share
    /// of their elements, for which alone it has gradients and state, and sends it to the others. For optimizers that
    /// update each element by itself, which are all but Adafactor, Adam-mini, Muon and APOLLO. Clipping, and gradients that the
    /// host reads, need whole gradients.
    Optimizer,
    /// In addition, these parameters and frozen ones (ZeRO-3): they are gathered as they are stored before the operations that read
    /// them, in the forward and in the backward pass of each part, and dropped afterwards.
    Parameters,
}

impl Shard {
    /// All of them, the least sharded first.
    pub const ALL: [Self; 3] = [Self::None, Self::Optimizer, Self::Parameters];

    /// Returns a way to shard by its [name](Shard::name).
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names.
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|shard| shard.name() == name);
        found.ok_or_else(|| Error::unknown("way to shard", name, &Self::ALL.map(Self::name)))
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Optimizer => "optimizer",
            Self::Parameters => "parameters",
        }
    }
}

/// Data parallelism over several devices, or with [`Parallel::tensor`] tensor parallelism. Each rank has its own device and its
/// own plan, and computes every `ranks`th part of [`PlanOptions::accumulate`](super::PlanOptions::accumulate), from part
/// `rank` on, or its [share](Parallel::shares) of them. A rank's step takes the samples of its parts, one part after another.
/// Losses, parameters and optimizer state equal those of one device with the same `accumulate` bit for bit, if all devices are of the same kind:
/// gradients of the parts are added in the order of the parts.
///
/// ```
/// use wgrad::compile::{Parallel, PlanOptions};
///
/// // The plan of the second of two devices, which computes the parts 1 and 3 of 4.
/// let options = PlanOptions { accumulate: 4, parallel: Parallel::of(1, 2), ..PlanOptions::default() };
/// assert_eq!(options.parallel.parts(options.accumulate), [1, 3]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parallel {
    /// Number of devices. It divides `accumulate`, unless they have shares of their own.
    pub ranks: u32,
    /// Number of this device, from 0 on.
    pub rank: u32,
    /// How many parts each device computes. Those with different shares may be of different kinds, whose results then
    /// differ from those of one device by rounding.
    pub shares: Shares,
    /// What each device keeps a part of.
    pub shard: Shard,
    /// Number of devices that compute a layer together, each with a part of its parameters: 1, or all `ranks`, which then
    /// compute every part of the batch, on the same samples. Linear layers and attention heads are split, in pairs whose
    /// results are summed; a step then equals that of one device within rounding.
    pub tensor: u32,
    /// Gradients are exchanged as soon as this many bytes of them are there, or the last one.
    pub bucket: Bytes,
    /// Bytes per second from each rank to the others, and at the same time back; for modelled times.
    pub wire_bytes_per_s: f64,
}

impl Default for Parallel {
    /// One device, which exchanges nothing.
    fn default() -> Self {
        Self::of(0, 1)
    }
}

impl Parallel {
    /// Device `rank` of `ranks`, with buckets of 25 MiB, as PyTorch's, on a wire of 25 GB/s: 200 Gb/s InfiniBand.
    pub const fn of(rank: u32, ranks: u32) -> Self {
        let shares = Shares::EVEN;
        Self {
            ranks,
            rank,
            shares,
            tensor: 1,
            shard: Shard::None,
            bucket: Bytes(25 << 20),
            wire_bytes_per_s: 25e9,
        }
    }

    /// The parts that this rank computes, of `parts` in all.
    ///
    /// They are dealt in rounds: in each, the ranks that have parts left to compute have one, in their order.
    pub fn parts(&self, parts: u32) -> Vec<u32> {
        let Self { ranks, rank, .. } = self.of_data();
        if self.shares.is_even() {
            return (rank..parts).step_by(ranks.max(1) as usize).collect();
        }
        // Shares that do not divide the parts are of no plan.
        let counts = self.shares.counts(ranks, parts).unwrap_or_default();
        (0..).zip(dealt(&counts)).filter(|(_, (_, own))| *own == rank).map(|(part, _)| part).collect()
    }

    /// Whether each rank has a part of the parameters: all ranks then read and save them together, and run forward passes
    /// together.
    pub fn splits_parameters(&self) -> bool {
        self.ranks > 1 && (self.shard == Shard::Parameters || self.tensor > 1)
    }

    /// The most bytes that arrive as one value to be added or cut up, unless those of one rank are more.
    pub(super) fn together(&self) -> u64 {
        self.bucket.0 / 4
    }

    /// The number of ranks among which the parts of a batch are distributed: all, or 1 where all compute each part together.
    /// [`PlanOptions::accumulate`](super::PlanOptions::accumulate) is as many by default in commands.
    pub fn data_ranks(&self) -> u32 {
        self.of_data().ranks
    }

    /// The ranks among which the parts of a batch are distributed, and this one among them.
    pub(super) fn of_data(&self) -> Self {
        if self.tensor > 1 { Self { ranks: 1, rank: 0, ..*self } } else { *self }
    }

    /// Checks the number of the rank, and that what is split, sharded and shared out goes together.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn check(&self) -> Result<()> {
        let Self { ranks, rank, tensor, shard, shares, .. } = *self;
        if ranks == 0 || rank >= ranks {
            let message = format!("rank {rank} of {ranks}: ranks are numbered from 0 to their number less 1");
            return Err(Error::setting("parallel.rank", message));
        }
        if tensor == 1 && shard == Shard::Parameters && !shares.is_even() {
            let message = format!(
                "shares {shares} with sharded parameters: all ranks gather parameters for each of their parts; shard the \
                 optimizer's state alone, or compute as many parts on each"
            );
            return Err(Error::setting("parallel.shares", message));
        }
        if tensor == 1 {
            return Ok(());
        }
        let message = if tensor != ranks {
            format!("tensor {tensor} of {ranks} ranks: layers are split over all ranks, or with 1 over none")
        } else if shard != Shard::None || !shares.is_even() {
            let what = if shard == Shard::None { "shares" } else { "shard" };
            format!(
                "tensor {tensor} with `{what}`: all ranks compute each part of the batch, with state of their own parameters"
            )
        } else {
            return Ok(());
        };
        Err(Error::setting("parallel.tensor", message))
    }

    /// The number of parts of each rank of [`Parallel::of_data`].
    ///
    /// # Errors
    /// [`Error::Setting`] if `parts` is not a multiple of `ranks`, or not to be cut into the shares.
    pub(super) fn counts(&self, parts: u32) -> Result<Vec<u32>> {
        let Self { ranks, shares, .. } = self.of_data();
        if !shares.is_even() || parts.is_multiple_of(ranks) {
            return shares.counts(ranks, parts);
        }
        let message = format!(
            "{ranks} ranks, accumulate {parts}: each rank computes the same number of parts; set `accumulate` to a multiple \
             of the ranks, such as {}",
            parts.div_ceil(ranks) * ranks
        );
        Err(Error::setting("parallel.ranks", message))
    }
}

impl Plan {
    /// Returns the bytes that a step sends to other ranks, which are those that it receives if all have as many parts.
    pub fn wire_bytes(&self) -> u64 {
        let sent = |exchange: &Exchange| 4 * exchange.wired(self.parallel.rank)[0];
        self.graph().exchanges.iter().map(sent).sum()
    }

    /// Returns the modelled times of a step on a card. A step copies to and from host memory at the card's rate between
    /// its dispatches. Exchanges cross the wire one after another, beside them, at [`Parallel::wire_bytes_per_s`];
    /// a step waits for one that it needs.
    ///
    /// # Errors
    /// None for a plan that was made by this crate.
    pub fn wire_times(&self, card: &Card) -> Result<WireTimes> {
        let launches = self.launches(card)?;
        let program = &self.program;
        let Parallel { rank, wire_bytes_per_s, .. } = self.parallel;
        let words = |exchange: &Exchange| exchange.wired(rank).into_iter().fold(0, u64::max);
        let wire_s = |exchange: &Exchange| 4.0 * words(exchange) as f64 / wire_bytes_per_s;
        let mut arrives = vec![0.0; self.graph().exchanges.len()];
        let (mut times, mut now, mut wire_free, mut next) = (WireTimes::default(), 0.0f64, 0.0f64, 0);
        for (i, transfer) in program.transfers.iter().enumerate() {
            let end = transfer.position + usize::from(transfer.after);
            while program.launches.get(next).is_some_and(|(_, position)| *position < end) {
                now += launches[next].seconds;
                next += 1;
            }
            if let Some(exchange) = transfer.exchange.filter(|_| transfer.up) {
                times.exposed_s += (arrives[exchange as usize] - now).max(0.0);
                now = now.max(arrives[exchange as usize]);
            }
            now += transfer.bytes as f64 / card.host_bytes_per_s;
            if let Some(exchange) = transfer.exchange.filter(|_| program.sends_last(i)) {
                let seconds = wire_s(&self.graph().exchanges[exchange as usize]);
                wire_free = wire_free.max(now) + seconds;
                arrives[exchange as usize] = wire_free;
                times.wire_s += seconds;
            }
        }
        times.step_s = now + launches[next..].iter().map(|launch| launch.seconds).sum::<f64>();
        Ok(times)
    }
}

/// Modelled times of a step on several devices, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WireTimes {
    /// The whole step.
    pub step_s: f64,
    /// Exchanges, whether the device works or waits.
    pub wire_s: f64,
    /// The part of `wire_s` in which the device waits.
    pub exposed_s: f64,
}

impl WireTimes {
    /// The share of the exchanges for which the device waits.
    pub fn exposed_fraction(&self) -> f64 {
        if self.wire_s > 0.0 { (self.exposed_s / self.wire_s).min(1.0) } else { 0.0 }
    }
}
