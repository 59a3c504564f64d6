//! Options for the budget, recomputation, accumulation and offload; shared by `plan` and `bench`.

use wgrad::compile::{Offload, Parallel, PlanOptions, Recompute, Shard, Shares, TrainStep};
use wgrad::device::Device;
use wgrad::exec::{self, Transport};
use wgrad::graph::LossScale;
use wgrad::limits::{Card, Limits};
use wgrad::optim::{Clip, Optimizer};
use wgrad::{Bytes, Error, Result};

use crate::model::Selected;

#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Maximum bytes that the session may allocate on the device, such as 5GB or 600MiB.
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,
    /// Percentage of the budget to keep free.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, requires = "budget")]
    pub headroom: f64,
    /// What the backward pass recomputes: off, auto (with --budget), every:N (layers, blocks of transformers), sqrt, policy or
    /// named:PATH,PATH.
    #[arg(long, default_value = "off")]
    pub recompute: String,
    /// Save results of norms, activation functions, sums and concatenations for the backward pass instead of
    /// recomputing them there, unless --recompute selects them.
    #[arg(long)]
    pub no_rebuild: bool,
    /// Save one bit per element where the backward pass only needs to know where a ReLU passes gradients.
    #[arg(long)]
    pub bit_masks: bool,
    /// Number of micro-batches that the batch is split into; their gradients are summed. The default is --ranks,
    /// with --tensor 1.
    #[arg(long, alias = "parts")]
    accumulate: Option<u32>,
    /// Number of devices that share the micro-batches of a batch; the plan is that of one of them. The default is what
    /// mpirun started, else 1.
    #[arg(long)]
    ranks: Option<u32>,
    /// How many micro-batches each device computes: even; a number for each, such as 3,1; by the memory of each, such as
    /// 24GB,8GB; or in a run auto, by the --budget of each process or the memory of its adapter.
    #[arg(long, default_value = "even")]
    pub shares: String,
    /// What each device keeps a part of: none; optimizer, the state of the optimizer (ZeRO-1); or parameters, these as well
    /// (ZeRO-3).
    #[arg(long, default_value = Shard::None.name())]
    pub shard: String,
    /// Number of devices that compute a layer together, each with a part of its weights: 1, or as many as --ranks, which then
    /// all have the same samples.
    #[arg(long, default_value_t = 1)]
    pub tensor: u32,
    /// Gradients are exchanged as soon as this many bytes of them are there.
    #[arg(long, value_name = "SIZE", default_value_t = Parallel::default().bucket)]
    bucket: Bytes,
    /// Bytes per second from each rank to the others, for modelled times.
    #[arg(long, value_name = "BYTES_PER_S", default_value_t = Parallel::default().wire_bytes_per_s)]
    wire: f64,
    /// Scale all gradients so that their norm is at most this.
    #[arg(long, value_name = "NORM")]
    pub clip_norm: Option<f32>,
    /// Scale the loss's gradient and skip steps that overflow, as PyTorch's GradScaler does.
    #[arg(long)]
    pub loss_scale: bool,
    /// What is offloaded to host memory while the device does not need it: off, or a comma-separated list of
    /// optimizer and one of activations, activations:SIZE and activations:PATH+PATH; with --recompute auto, what may be.
    #[arg(long, default_value = "off")]
    pub offload: String,
    /// The card that times are modelled on, rtx3060 by default: a name of the list in docs/fit.md, and changes to its
    /// numbers: units, flops, matrix-flops, bytes and host-bytes (each per second), launch (seconds).
    #[arg(long, value_name = "NAME[,NUMBER=VALUE]")]
    pub card: Option<String>,
}

impl Options {
    /// Returns the budget less the headroom.
    pub fn budget(&self) -> Result<Option<Bytes>> {
        if !(0.0..100.0).contains(&self.headroom) {
            return Err(Error::setting(
                "command line",
                format!("--headroom {}: expected 0 to 99", self.headroom),
            ));
        }
        let share = 1.0 - self.headroom / 100.0;
        Ok(self.budget.map(|Bytes(budget)| Bytes((budget as f64 * share) as u64)))
    }

    /// Returns the number of micro-batches on all ranks together.
    pub fn parts(&self) -> u32 {
        let parallel = Parallel { tensor: self.tensor, ..Parallel::of(0, self.ranks()) };
        self.accumulate.unwrap_or(parallel.data_ranks())
    }

    /// The shares of all devices; those of a run ask each other.
    fn shares(&self, run: Option<(&Device, &mut dyn Transport)>) -> Result<Shares> {
        match (&*self.shares, run) {
            ("auto", None) if self.ranks() > 1 => {
                let message = "--shares auto: a plan alone has no devices to ask; list the memory of each, such as 24GB,8GB";
                Err(Error::setting("command line", message))
            }
            ("auto", None) => Ok(Shares::EVEN),
            ("auto", Some((device, transport))) => {
                exec::shares_by_memory(transport, (device, self.budget()?), self.parts())
            }
            (listed, _) => Shares::named(listed, self.parts()),
        }
    }

    /// Returns the number of devices.
    pub fn ranks(&self) -> u32 {
        self.ranks.or_else(exec::mpi_processes).unwrap_or(1)
    }

    /// Returns the options of a rank of a run, or of rank 0 of a plan alone.
    pub fn plan_options(
        &self,
        optimizer: Optimizer,
        run: Option<(&Device, &mut dyn Transport)>,
    ) -> Result<PlanOptions> {
        if !(self.wire > 0.0 && self.wire.is_finite()) {
            let message = format!("--wire {}: expected bytes per second, such as 25e9", self.wire);
            return Err(Error::setting("command line", message));
        }
        let (bucket, wire_bytes_per_s, shard) = (self.bucket, self.wire, Shard::named(&self.shard)?);
        let rank = run.as_ref().map_or(0, |(_, transport)| transport.rank());
        let (shares, tensor) = (self.shares(run)?, self.tensor);
        let parallel = Parallel::of(rank, self.ranks());
        let parallel = Parallel { shares, bucket, wire_bytes_per_s, shard, tensor, ..parallel };
        let recompute = Recompute::named(&self.recompute)?;
        let budget = self.budget()?;
        let card = self.card.as_deref().map_or(Ok(Card::default()), str::parse);
        let card =
            card.map_err(|message: String| Error::setting("command line", format!("--card {message}")))?;
        let offload = Offload::named(&self.offload)?;
        let (accumulate, bit_masks, rebuild) = (self.parts(), self.bit_masks, !self.no_rebuild);
        let clip = self.clip_norm.map_or(Clip::Off, Clip::Norm);
        let loss_scale = self.loss_scale.then(LossScale::default);
        let options =
            PlanOptions { optimizer, budget, recompute, accumulate, parallel, ..PlanOptions::default() };
        Ok(PlanOptions { clip, offload, card, rebuild, bit_masks, loss_scale, ..options })
    }

    /// Traces the step of one micro-batch of a batch.
    pub fn step(&self, network: &Selected, batch: usize) -> Result<TrainStep> {
        let parts = self.parts() as usize;
        if parts == 0 || !batch.is_multiple_of(parts) {
            return Err(Error::setting(
                "command line",
                format!("--accumulate {parts}: it must divide the batch of {batch}"),
            ));
        }
        network.train_step(batch / parts)
    }
}

/// Returns limits by name.
pub fn limits(name: &str) -> Result<Limits> {
    Limits::named(name).ok_or_else(|| Error::Unknown {
        kind: "set of limits",
        name: name.to_owned(),
        known: Limits::NAMES.map(str::to_owned).to_vec(),
    })
}
