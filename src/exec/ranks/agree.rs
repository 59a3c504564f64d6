//! What ranks tell each other between steps: before the first one that all run the same, later whether one stops.

use std::borrow::Cow;

use super::{Transport, all_gather};
use crate::compile::Plan;
use crate::error::{Error, Result};
use crate::exec::Session;
use crate::graph::{Node, Phase, ValueId};
use crate::maybe_async;
use crate::random;
use crate::time::Instant;

impl Session {
    /// Connects a session whose plans are one rank's ([`Parallel`](crate::compile::Parallel)) with the other ranks. They
    /// tell each other what they are about to run: all must have the same version of wgrad, adapter, plans, seed, number
    /// of steps, parameters and optimizer state; with [shares](crate::compile::Parallel::shares) of their own they may have
    /// different adapters, and plans that compute the same in another way. [`Session::agree`] asks again, after [`Session::set_state`] or after loading
    /// weights.
    ///
    /// Then each rank feeds its own samples and steps. A step waits for the other ranks, and has the
    /// loss over all parts.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), wgrad::Error> {
    /// use std::time::Duration;
    /// use wgrad::compile::{Parallel, PlanOptions};
    /// use wgrad::device::{Device, DeviceOptions};
    /// use wgrad::exec::{Session, local};
    /// use wgrad::models::Model;
    ///
    /// let ranks = local(2, Duration::from_secs(60));
    /// std::thread::scope(|threads| {
    ///     for (rank, transport) in (0..).zip(ranks) {
    ///         threads.spawn(move || -> Result<(), wgrad::Error> {
    ///             let device = Device::open(&DeviceOptions { number: rank as usize, ..DeviceOptions::default() })?;
    ///             let step = Model::named("mlp", 0)?.train_step(32)?;
    ///             let parallel = Parallel::of(rank, 2);
    ///             let options = PlanOptions { accumulate: 4, parallel, ..PlanOptions::default() };
    ///             let mut session = Session::new(&device, &step.plan(&options, device.limits())?)?;
    ///             session.set_transport(Box::new(transport))?;
    ///             // Feed the parts 0 and 2 on rank 0, 1 and 3 on rank 1.
    ///             session.step()
    ///         });
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Rank`] with what differs, the same on all ranks; [`Error::PlanMismatch`] if the plans are not for this
    /// rank of that many; [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn set_transport(&mut self, mut transport: Box<dyn Transport>) -> Result<()> {
        let (rank, ranks) = (transport.rank(), transport.ranks());
        for plan in self.programs.iter().map(|program| &program.plan).filter(|plan| plan.optimizer.is_some())
        {
            let planned = plan.parallel;
            if (planned.rank, planned.ranks) != (rank, ranks) {
                let message = format!(
                    "the plan is for rank {} of {}, the transport is rank {rank} of {ranks}",
                    planned.rank, planned.ranks
                );
                transport.fail(rank, &message);
                return Err(Error::PlanMismatch(message));
            }
        }
        self.host.exchanges.connect(transport);
        self.agree().await
    }

    /// Checks again that all ranks have what [`Session::set_transport`] compares. All ranks must call it. Does nothing on a
    /// session without a transport.
    ///
    /// # Errors
    /// [`Error::Rank`] with what differs, the same on all ranks; [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn agree(&mut self) -> Result<()> {
        self.agree_on(|| Ok(Vec::new())).await
    }

    /// [`Session::agree`] on what else must be equal on all ranks, by name.
    #[maybe_async]
    pub(crate) async fn agree_on(
        &mut self,
        also: impl FnOnce() -> Result<Vec<(&'static str, String)>>,
    ) -> Result<()> {
        if self.host.exchanges.transport().is_err() {
            return Ok(());
        }
        let (own, bytes) = (self.describe().await, self.device_bytes());
        let own = own.and_then(|own| Ok([own, also()?].concat()));
        let exchanges = &mut self.host.exchanges;
        let outcome = own.and_then(|own| compare(exchanges.transport()?, &own, bytes));
        exchanges.fullest = outcome.map_err(|error| exchanges.failed(error))?;
        Ok(())
    }

    /// Whether any rank says so. All ranks must call it between steps; without a transport the answer is this one's own.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub(crate) fn any_rank(&mut self, own: bool) -> Result<bool> {
        let (exchanges, start) = (&mut self.host.exchanges, Instant::now());
        let Ok(transport) = exchanges.transport() else { return Ok(own) };
        let outcome = all_gather(transport, u64::from(own), &[]);
        exchanges.waited += start.elapsed();
        let all = outcome.map_err(|error| exchanges.failed(error))?;
        Ok(all.iter().any(|(said, _)| *said > 0))
    }

    /// What must be equal on all ranks, by name.
    #[maybe_async]
    async fn describe(&mut self) -> Result<Vec<(&'static str, String)>> {
        let plans = self.programs.iter().map(|program| fingerprint(&program.plan));
        let plans = plans.fold(0, |hash, plan| random::mix(hash ^ plan));
        let seed = self.state_plan.seed;
        let parameters = self.state_hash().await?;
        let even = self.programs.iter().all(|program| program.plan.parallel.shares.is_even());
        let adapter = self.device().adapter();
        let adapter = if even { format!("{} ({})", adapter.name, adapter.driver) } else { "any".to_owned() };
        Ok(vec![
            ("wgrad", env!("CARGO_PKG_VERSION").to_owned()),
            ("adapter", adapter),
            ("plan", format!("{plans:016x}")),
            ("seed", seed.to_string()),
            ("steps", self.steps().to_string()),
            ("parameters", format!("{parameters:016x}")),
        ])
    }
}

/// Each rank compares all with rank 0, so that all find the same difference. Returns the most bytes that any rank has
/// created, of which this one has `bytes`.
fn compare(transport: &mut dyn Transport, own: &[(&'static str, String)], bytes: u64) -> Result<u64> {
    let text = own.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("\n");
    let all = all_gather(transport, bytes, text.as_bytes())?;
    let fullest = all.iter().map(|(bytes, _)| *bytes).fold(0, u64::max);
    let all: Vec<_> = all.iter().map(|(_, text)| String::from_utf8_lossy(text)).collect();
    let difference = |(rank, other): (u32, &Cow<'_, str>)| {
        let mut lines = own.iter().zip(all[0].lines().zip(other.lines()));
        let ((what, _), (a, b)) = lines.find(|(_, (a, b))| a != b)?;
        let way_out =
            if *what == "adapter" { ": different ones take `Parallel::shares` of their own" } else { "" };
        Some((rank, format!("has {what} {b}, rank 0 has {a}{way_out}")))
    };
    match (0..).zip(&all).find_map(difference) {
        Some((rank, message)) => Err(transport.fail(rank, &message)),
        None => Ok(fullest),
    }
}

/// A hash of what a plan computes, the same for all its ranks: its limits, its forward pass, exchanges and tensors. With
/// sharded updates, ranks update different elements, and may order and recompute operations differently. With shares
/// of their own they may be of different kinds, and repeat the forward pass different numbers of times.
fn fingerprint(plan: &Plan) -> u64 {
    let graph = plan.graph();
    let text = |text: String| text.bytes().fold(0, |hash, byte| random::mix(hash ^ u64::from(byte)));
    let limits = plan.parallel.shares.is_even().then_some(&plan.limits);
    let mut hash = text(format!("{limits:?} {:?} {:?}", plan.optimizer, plan.parallel.shares));
    let mut add = |word: u64| hash = random::mix(hash ^ word).wrapping_add(word);
    let again = |id: &ValueId| graph.value(*id).again;
    let first = |node: &&Node| node.phase == Phase::Forward && !node.outputs.iter().any(again);
    let forward = graph.nodes.iter().filter(first).map(|node| {
        let [inputs, outputs] = graph.types(node);
        text(format!("{} {inputs:?} {outputs:?}", node.op.name()))
    });
    add(if limits.is_some() { forward.fold(0, u64::wrapping_add) } else { 0 });
    for exchange in &graph.exchanges {
        add(exchange.share);
        add(exchange.sent());
        add(exchange.silent);
    }
    let mut lasting: Vec<_> = graph.values.iter().filter(|value| value.class.is_persistent()).collect();
    lasting.sort_by_key(|value| &value.name);
    for value in lasting {
        add(text(value.name.clone()));
        add(value.part_of.map_or(value.bytes(), |part| part.whole.numel()));
    }
    hash
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use std::time::Duration;

    use super::compare;
    use crate::exec::local;

    #[test]
    fn another_version_is_named_on_all_ranks() {
        let ranks = (0u32..).zip(local(3, Duration::from_secs(60)));
        let threads: Vec<_> = ranks
            .map(|(rank, mut transport)| {
                std::thread::spawn(move || {
                    let version = if rank == 2 { "0.1.0" } else { "0.2.0" };
                    compare(&mut transport, &[("wgrad", version.to_owned()), ("seed", "1".to_owned())], 1)
                })
            })
            .collect();
        for thread in threads {
            let error = thread.join().expect("no panic").expect_err("they differ");
            let said = error.to_string();
            assert!(said.starts_with("rank 2: has wgrad 0.1.0, rank 0 has 0.2.0\n"), "{said}");
        }
    }
}
