//! Runs one network with one set of options on a device and compares it with the reference.

#[cfg(not(target_family = "wasm"))]
use std::time::Duration;

use super::dice::Dice;
use super::measure::{Allowed, Difference, Moved, perturbations, rounding};
use super::network::{Feed, Network};
use super::outcome::{Injection, Outcome, corrections, first_corrections, parts, states};
use super::reference::{Perturbation, Tensors};
use super::settings::Settings;
use super::{Failure, Report, plans};
#[cfg(not(target_family = "wasm"))]
use crate::compile::Parallel;
use crate::compile::{Plan, PlanOptions};
use crate::device::Device;
use crate::dtype::{DType, Precision, WeightStorage};
use crate::error::{Error, Result};
use crate::exec::{Debug, ProgramId, Session, Transport};
#[cfg(not(target_family = "wasm"))]
use crate::exec::{LocalTransport, local};
use crate::graph::{Band, Class, Node, Op};
use crate::maybe_async;
use crate::optim::{Clip, Optimizer};
use crate::shape::Shape;

/// Settings of the check of one network.
pub(super) struct Case<'a> {
    pub device: &'a Device,
    pub seed: u64,
    pub draw: Option<&'static str>,
    pub fuse_one_in: usize,
}

impl Case<'_> {
    #[maybe_async]
    pub(super) async fn run(&self, network: Result<Network>, report: &mut Report) -> Result<()> {
        let mut dice = Dice::new(self.seed ^ 0x5eed_0f0f);
        let mut settings = Settings::random(&mut dice, self.device.limits(), self.fuse_one_in);
        if let Ok(network) = &network {
            settings.split(network, &mut Dice::new(self.seed));
        }
        let found = match network {
            Ok(network) => self.differences(&network, &settings, &mut dice).await,
            Err(error) => Err(error),
        };
        let failure = |what: String, error: f64| Failure {
            seed: self.seed,
            draw: self.draw,
            option: settings.name(),
            what,
            error,
        };
        match found {
            Ok(differences) => {
                for Difference { what, error } in differences {
                    if error > 1.0 || error.is_nan() {
                        report.failures.push(failure(what, error));
                    } else {
                        report.worst_error = report.worst_error.max(error);
                    }
                }
                Ok(())
            }
            Err(lost @ Error::DeviceLost { .. }) => Err(lost),
            Err(error) => {
                report.failures.push(failure(error.to_string(), f64::INFINITY));
                Ok(())
            }
        }
    }

    #[maybe_async]
    async fn differences(
        &self,
        network: &Network,
        settings: &Settings,
        dice: &mut Dice,
    ) -> Result<Vec<Difference>> {
        let mut found = plans::gradients(network, settings)?;
        let Settings { options, limits, .. } = settings;
        let plan = network.step.plan(options, limits)?;
        let steps = if is_smooth(options) { 2 } else { 1 };
        let actual = of_device(self.device, &plan, network, steps, None, None).await?;
        #[cfg(not(target_family = "wasm"))]
        if options.accumulate > 1 {
            found.push(self.on_ranks(network, settings, steps, &actual)?);
        }
        found.push(on_device("on the device", network, options, &plan, steps, &actual)?);
        #[cfg(not(target_family = "wasm"))]
        if options.accumulate == 1
            && let Some(together) = self.together(network, settings, steps)?
        {
            found.push(on_device("on two ranks together", network, options, &plan, steps, &together)?);
        }
        if dice.one_in(4) {
            found.push(self.injected(network, options, &plan, dice).await?);
        }
        Ok(found)
    }

    /// Compares a run on several ranks with the same run on one device: there must be no difference.
    #[cfg(not(target_family = "wasm"))]
    fn on_ranks(
        &self,
        network: &Network,
        settings: &Settings,
        steps: u64,
        one: &Outcome,
    ) -> Result<Difference> {
        let all = self.of_ranks(network, (settings.parallel.ranks, steps), |rank| {
            let options = settings.of_rank(rank);
            let own = options.parallel.parts(options.accumulate);
            Ok((network.step.plan(&options, &settings.limits)?, own))
        });
        for (rank, outcome) in all?.into_iter().enumerate() {
            // Other outputs have the samples of their rank.
            let scalars =
                |outputs: &Tensors| outputs.iter().filter(|(_, data)| data.len() == 1).map(owned).collect();
            let (a, b): (Tensors, Tensors) = (scalars(&one.outputs), scalars(&outcome.outputs));
            let kinds = [(&a, &b), (&one.parameters, &outcome.parameters), (&one.states, &outcome.states)];
            for (wanted, found) in kinds {
                let same = |a: &f64, b: &f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                let other = wanted.iter().find(|(name, data)| {
                    found.get(*name).is_none_or(|found| !data.iter().zip(found).all(|(a, b)| same(a, b)))
                });
                if let Some((name, _)) = other {
                    let what = format!("rank {rank}: `{name}` has other bits than on one device");
                    return Ok(Difference { what, error: f64::INFINITY });
                }
            }
        }
        Ok(Difference::none())
    }

    /// The results of two ranks that compute layers together; `None` if there are none to split, or if the optimizer cannot. Both
    /// have the same.
    #[cfg(not(target_family = "wasm"))]
    fn together(&self, network: &Network, settings: &Settings, steps: u64) -> Result<Option<Outcome>> {
        if settings.options.precision.codes().is_some() {
            // Rounded by draws for the elements that a rank has.
            return Ok(None);
        }
        let plan = |rank: u32| {
            let parallel = Parallel { tensor: 2, ..Parallel::of(rank, 2) };
            network.step.plan(&PlanOptions { parallel, ..settings.options }, &settings.limits)
        };
        match plan(0) {
            Err(Error::Setting { name, .. }) if name == "parallel.tensor" => return Ok(None),
            // Parameters that are split have no pieces.
            Err(Error::TensorTooLarge { .. }) => return Ok(None),
            planned => planned?,
        };
        let mut all = self.of_ranks(network, (2, steps), |rank| Ok((plan(rank)?, vec![0])))?;
        let [first, other] = [0, 1].map(|rank: usize| &all[rank].parameters);
        let bits = |all: &Tensors| all.values().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
        if bits(first) != bits(other) {
            return Err(Error::Internal("two ranks have different parameters".to_owned()));
        }
        Ok(Some(all.swap_remove(0)))
    }

    /// The results of each of some ranks, in threads; `plan` returns a rank's plan and the parts of the batch that it computes.
    #[cfg(not(target_family = "wasm"))]
    fn of_ranks(
        &self,
        network: &Network,
        (ranks, steps): (u32, u64),
        plan: impl Fn(u32) -> Result<(Plan, Vec<u32>)> + Sync,
    ) -> Result<Vec<Outcome>> {
        let run = |(rank, transport): (u32, LocalTransport)| {
            let (plan, own) = plan(rank)?;
            of_device(self.device, &plan, network, steps, None, Some((Box::new(transport), own)))
        };
        let run = &run;
        std::thread::scope(|scope| {
            let ranks = (0..).zip(local(ranks, PATIENCE));
            let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || run(rank))).collect();
            let ended = |_| Err(Error::Internal("a rank panicked".to_owned()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
        })
    }

    /// Checks where an injected NaN or infinity propagates.
    #[maybe_async]
    async fn injected(
        &self,
        network: &Network,
        options: &PlanOptions,
        plan: &Plan,
        dice: &mut Dice,
    ) -> Result<Difference> {
        let floats = network.feeds.iter().filter_map(|(name, feed)| match feed {
            Feed::Floats { .. } => plan
                .graph()
                .inputs()
                .find(|(_, v)| v.name == *name)
                .map(|(_, v)| (name.clone(), v.shape.numel())),
            Feed::Indices(_) => None,
        });
        let parameters = plan.graph().values.iter().filter(|v| v.class == Class::Parameter);
        let mut places: Vec<(String, u64)> = floats.collect();
        places.extend(parameters.map(|value| (value.name.clone(), value.shape.numel())));
        let (name, count) = places[dice.below(places.len())].clone();
        // 0 · ∞ is NaN, but a rounding error times ∞ is infinite, and saturation makes that finite. So with
        // saturating options only NaN is injected.
        let casts = |node: &Node| matches!(node.op, Op::Cast(to) if to.is_half());
        let saturates = options.precision != Precision::F32
            || matches!(options.clip, Clip::Value(_))
            || plan.graph().nodes.iter().any(casts);
        let infinite = if saturates { f32::NAN } else { f32::INFINITY };
        let number = dice.of(&[f32::NAN, f32::NAN, infinite, -infinite]);
        let injection = Injection { name, at: dice.below(count as usize), number };
        // Like PyTorch, kernels multiply by the zeros of a convolution's padding, and values by the zero
        // weights of hidden keys; the reference skips both.
        let padded = plan.graph().nodes.iter().any(|node| match &node.op {
            Op::Attention(attend) => attend.band != Band::ALL || attend.documents,
            op => op.kind().starts_with("conv2d"),
        });
        let actual = of_device(self.device, plan, network, 1, Some(&injection), None).await?;
        let twin = |perturbation| Outcome::of_twin(plan, network, 1, perturbation, Some(&injection));
        let mut expected = vec![twin(None)?];
        let mut perturbations = perturbations();
        loop {
            let Some((kind, name, at)) = misplaced(&actual, &expected, padded) else {
                return Ok(Difference::none());
            };
            // A number close to a kink, or to the largest number of its format, may fall on either side.
            // Further perturbed runs of the reference show both.
            if let Some((seed, size)) = perturbations.next() {
                expected.push(twin(Some(Perturbation { seed, size: size * rounding(options) }))?);
                continue;
            }
            let of = |outcome: &Outcome| outcome.kinds()[kind].1[&name][at];
            let Injection { name: from, at: place, number } = &injection;
            let what = format!(
                "{number} in `{from}` at {place}: {} `{name}` at {at} is {} on the device, should be {}",
                actual.kinds()[kind].0,
                of(&actual),
                of(&expected[0])
            );
            return Ok(Difference { what, error: f64::INFINITY });
        }
    }
}

/// Compares all results of a run on the device with the reference of the same plan.
fn on_device(
    place: &str,
    network: &Network,
    options: &PlanOptions,
    plan: &Plan,
    steps: u64,
    actual: &Outcome,
) -> Result<Difference> {
    let expected = Outcome::of_twin(plan, network, steps, None, None)?;
    let mut moved = Moved::new(rounding(options), |perturbation| {
        let Outcome { outputs, halves, parameters, states } =
            Outcome::of_twin(plan, network, steps, Some(perturbation), None)?;
        Ok([outputs, halves, parameters, states])
    });
    let mut worst = Difference::none();
    for (i, (kind, tensors)) in actual.kinds().into_iter().enumerate() {
        let floor = match (kind, options.weights) {
            // A value between two 16-bit numbers may be rounded to either.
            ("parameter", WeightStorage::Bf16(_) | WeightStorage::Bf24) => 1.0 / 100.0,
            ("state", WeightStorage::Bf24) => 4e-5,
            ("parameter", WeightStorage::F16(_)) => 1.0 / 800.0,
            ("output of 16 bits", _) => 1.0 / 100.0,
            // A clipped value has rounding errors relative to its unclipped size.
            ("state", _) if matches!(options.clip, Clip::Value(_)) => 4e-4,
            _ => 4e-6,
        };
        let jump = match (kind, &options.optimizer) {
            // A gradient that is only rounding errors is a step as long as any other.
            ("parameter", Optimizer::Muon(muon)) => 6.0 * f64::from(muon.lr),
            ("parameter", optimizer) if jumps(optimizer) => 2.5 * f64::from(optimizer.learning_rate()),
            _ => 0.0,
        };
        let what = format!("{place}: {kind}");
        let found = moved.measured(&what, i, tensors, expected.kinds()[i].1, &Allowed { floor, jump })?;
        worst = worst.or(found);
    }
    Ok(worst)
}

/// Whether updates are discontinuous where a gradient is close to 0: by sign (Lion), code (Adam in 8 or 4 bits) and norm (Adafactor).
fn jumps(optimizer: &Optimizer) -> bool {
    use Optimizer::{Adafactor, Adam4bit, Adam8bit, Lion};
    matches!(optimizer, Lion(_) | Adam8bit(_) | Adam4bit(_) | Adafactor(_))
}

/// Whether a rounding error in the first step is still only a rounding error after the second.
fn is_smooth(options: &PlanOptions) -> bool {
    let muon = matches!(options.optimizer, Optimizer::Muon(_));
    options.weights == WeightStorage::F32 && !jumps(&options.optimizer) && !muon
}

/// Returns kind, tensor and index of the first number that is finite but should be NaN, or the other way
/// round.
fn misplaced(actual: &Outcome, expected: &[Outcome], padded: bool) -> Option<(usize, String, usize)> {
    for (kind, (_, tensors)) in actual.kinds().into_iter().enumerate() {
        for (name, numbers) in tensors {
            let all = |at: usize| expected.iter().map(move |twin| twin.kinds()[kind].1[name][at]);
            let wrong = numbers.iter().enumerate().position(|(at, own)| {
                (own.is_finite() && all(at).all(f64::is_nan))
                    || (!padded && !own.is_finite() && all(at).all(|twin| twin.abs() < 1e30))
            });
            if let Some(at) = wrong {
                return Some((kind, name.clone(), at));
            }
        }
    }
    None
}

fn owned((name, data): (&String, &Vec<f64>)) -> (String, Vec<f64>) {
    (name.clone(), data.clone())
}

/// How long a rank waits for another, which may compile kernels.
#[cfg(not(target_family = "wasm"))]
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the results of `steps` steps of a plan on the device, as one rank of several if there is a transport, with
/// the parts of the batch that this rank computes.
#[maybe_async]
async fn of_device(
    device: &Device,
    plan: &Plan,
    network: &Network,
    steps: u64,
    injection: Option<&Injection>,
    rank: Option<(Box<dyn Transport>, Vec<u32>)>,
) -> Result<Outcome> {
    let graph = plan.graph();
    let mut session = Session::with_plans(device, &[plan], Debug { poison: true }).await?;
    session.set_accept_non_finite(true);
    let own = match rank {
        Some((transport, own)) => {
            session.set_transport(transport).await?;
            own
        }
        None => (0..parts(plan, network) as u32).collect(),
    };
    for (name, data) in &network.feeds {
        let Some((_, value)) = graph.inputs().find(|(_, value)| value.name == *name) else { continue };
        match data {
            Feed::Floats { numbers, dtype } => {
                let mut data = rows(numbers, value.shape, &own);
                if let Some(injection) = injection.filter(|injection| injection.name == *name) {
                    data[injection.at] = injection.number;
                }
                match dtype {
                    DType::F16 => {
                        let data: Vec<_> = data.iter().map(|x| half::f16::from_f32(*x)).collect();
                        session.feed(name, &data).await?;
                    }
                    DType::BF16 => {
                        let data: Vec<_> = data.iter().map(|x| half::bf16::from_f32(*x)).collect();
                        session.feed(name, &data).await?;
                    }
                    _ => session.feed(name, &data).await?,
                }
            }
            Feed::Indices(indices) => session.feed(name, &rows(indices, value.shape, &own)).await?,
        }
    }
    if let Some(Injection { name, at, number }) = injection
        && !network.feeds.contains_key(name)
    {
        let mut data = session.parameter(name).await?;
        data[*at] = *number;
        session.set_parameter(name, &data).await?;
    }
    for (_, name) in corrections(graph) {
        let words = first_corrections(session.parameter(name).await?.len());
        session.set_parameter(name, bytemuck::cast_slice(&words)).await?;
    }
    let mut loss = Ok(0.0);
    for _ in 0..steps {
        loss = match session.run(ProgramId(0)).await {
            Ok(()) => session.loss().await,
            Err(error) => Err(error),
        };
    }
    let loss = match loss {
        Err(Error::LossNotFinite { loss, .. }) if injection.is_some() => loss,
        loss => loss?,
    };
    let wide = |data: Vec<f32>| data.into_iter().map(f64::from).collect::<Vec<f64>>();
    let mut outcome = Outcome::empty();
    for (i, (name, id)) in graph.outputs.iter().enumerate() {
        let data = match (i, graph.value(*id).dtype) {
            (0, _) => vec![loss],
            (_, DType::F16) => {
                let data: Vec<half::f16> = session.output(ProgramId(0), name).await?;
                data.into_iter().map(half::f16::to_f32).collect()
            }
            (_, DType::BF16) => {
                let data: Vec<half::bf16> = session.output(ProgramId(0), name).await?;
                data.into_iter().map(half::bf16::to_f32).collect()
            }
            _ => session.output(ProgramId(0), name).await?,
        };
        outcome.read(name, graph.value(*id).dtype, wide(data));
    }
    for value in states(graph) {
        let data = session.parameter(&value.name).await?;
        outcome.keep(value, wide(data));
    }
    for (parameter, name) in corrections(graph) {
        let words = session.parameter(name).await?;
        let words: Vec<f64> = words.into_iter().map(|word| f64::from(word.to_bits())).collect();
        outcome.keep_corrected(parameter, &words);
    }
    if plan.layout.guard_bytes > 0 {
        session.check_guards(ProgramId(0)).await?;
    }
    Ok(outcome)
}

/// Returns the elements of an input of this shape: those of these parts, if it has rows.
fn rows<T: Clone>(all: &[T], shape: Shape, parts: &[u32]) -> Vec<T> {
    let count = shape.numel() as usize;
    if shape.rank() == 0 {
        return all[..count].to_vec();
    }
    let part = count / parts.len();
    parts.iter().flat_map(|&i| all[i as usize * part..][..part].iter().cloned()).collect()
}
