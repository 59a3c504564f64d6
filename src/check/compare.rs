//! One network through one set of options.

use super::dice::Dice;
use super::network::{Feed, Network};
use super::outcome::{Injection, Outcome, starts};
use super::reference::{Perturbation, Reference, SLOPE, Tensors};
use super::settings::Settings;
use super::{Failure, Report};
use crate::device::Device;
use crate::dtype::{DType, Precision, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{Class, Node, Op};
use crate::optim::{Clip, Optimizer, Sgd};
use crate::plan::{Plan, PlanOptions};
use crate::reference::Twin;

/// A network's place in a check.
pub(super) struct Case<'a> {
    pub device: &'a Device,
    pub seed: u64,
    pub draw: Option<&'static str>,
    pub fuse_one_in: usize,
}

/// What differs, and by how many times what is allowed.
pub(super) struct Difference {
    pub what: String,
    pub error: f64,
}

impl Difference {
    fn none() -> Self {
        Self { what: String::new(), error: 0.0 }
    }

    fn or(self, other: Self) -> Self {
        if other.error > self.error || other.error.is_nan() { other } else { self }
    }
}

impl Case<'_> {
    pub(super) fn run(&self, network: Result<Network>, report: &mut Report) -> Result<()> {
        let mut dice = Dice::new(self.seed ^ 0x5eed_0f0f);
        let settings = Settings::random(&mut dice, self.device.limits(), self.fuse_one_in);
        let found = network.and_then(|network| self.differences(&network, &settings, &mut dice));
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

    fn differences(
        &self,
        network: &Network,
        settings: &Settings,
        dice: &mut Dice,
    ) -> Result<Vec<Difference>> {
        let mut found = self.gradients(network, settings)?;
        let Settings { options, limits } = settings;
        let plan = network.step.plan(options, limits)?;
        let steps = if is_smooth(options) { 2 } else { 1 };
        found.push(self.on_device(network, options, &plan, steps)?);
        if dice.one_in(4) {
            found.push(self.injected(network, options, &plan, dice)?);
        }
        Ok(found)
    }

    /// The traced graph's gradients against slopes, and the plan's against those.
    fn gradients(&self, network: &Network, settings: &Settings) -> Result<Vec<Difference>> {
        let Settings { options, limits } = settings;
        // With this optimizer the state after a step is the gradient.
        let optimizer: Optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
        let plan = network.step.plan(&PlanOptions { optimizer, ..*options }, limits)?;
        let scalars = optimizer.scalars(0, 0.0, plan.seed);
        let starts = starts(plan.graph(), &Twin::new(plan.graph()))?;
        let slope = Reference::slope_error(network, &starts, &scalars)? / SLOPE;
        let mut found = vec![Difference {
            what: "gradient as traced: not the slope of the loss".to_owned(),
            error: slope,
        }];

        let parts = options.accumulate as usize;
        let whole = |perturbation| Reference::of(network, parts, &starts, &scalars, perturbation);
        let unclipped = whole(None)?;
        // What is cut off has rounding errors of its former size.
        let largest_of_all = largest(&unclipped.gradients);
        let expected = unclipped.clipped(options.clip);
        let actual = Outcome::of_twin(&plan, network, 1, None, None)?;
        if actual.states.get("loss_scale").is_some_and(|state| state[2] > 0.0) {
            let start = options.loss_scale.map_or(1.0, |scale| f64::from(scale.start));
            let most = f64::from(options.precision.storage().unwrap_or(DType::F32).largest());
            // Nine tenths: the plan's gradients are rounded.
            if largest_of_all * start < 0.9 * most {
                let what =
                    format!("the step is skipped for a scaled gradient of {:e}", largest_of_all * start);
                found.push(Difference { what, error: f64::INFINITY });
            }
            return Ok(found);
        }
        let gradients: Tensors = expected
            .gradients
            .keys()
            .filter_map(|name| {
                Some((name.clone(), actual.states.get(&format!("{name}.momentum_buffer"))?.clone()))
            })
            .collect();
        if gradients.len() != expected.gradients.len()
            || actual.states.keys().filter(|n| n.ends_with("momentum_buffer")).count() != gradients.len()
        {
            let what =
                format!("{} gradients for {} trained parameters", gradients.len(), expected.gradients.len());
            found.push(Difference { what, error: f64::INFINITY });
        }
        let size = rounding(options);
        // A gradient that is 0 because others cancel is as wrong as those are rounded.
        let floor = if options.precision == Precision::F32 { 2e-6 } else { size };
        let jump = match options.clip {
            Clip::Value(_) => floor * 0.1 * largest_of_all,
            _ => 0.0,
        };
        let losses = |loss: f64| Tensors::from([("loss".to_owned(), vec![loss])]);
        let mut moved = Moved::new(size, |perturbation| {
            let reference = whole(Some(perturbation))?.clipped(options.clip);
            Ok([reference.gradients, losses(reference.loss)])
        });
        let allowed = Allowed { floor, jump };
        found.push(moved.measured("gradient of the plan:", 0, &gradients, &expected.gradients, &allowed)?);
        let [loss, should] = [losses(actual.outputs["loss"][0]), losses(expected.loss)];
        let allowed = Allowed { floor: 2e-6, jump: 0.0 };
        found.push(moved.measured("loss of the plan:", 1, &loss, &should, &allowed)?);
        Ok(found)
    }

    /// Everything that a run on the device leaves, against the twin of the same plan.
    fn on_device(
        &self,
        network: &Network,
        options: &PlanOptions,
        plan: &Plan,
        steps: u64,
    ) -> Result<Difference> {
        let actual = Outcome::of_device(self.device, plan, network, steps, None)?;
        let expected = Outcome::of_twin(plan, network, steps, None, None)?;
        let mut moved = Moved::new(rounding(options), |perturbation| {
            let Outcome { outputs, halves, parameters, states } =
                Outcome::of_twin(plan, network, steps, Some(perturbation), None)?;
            Ok([outputs, halves, parameters, states])
        });
        let mut worst = Difference::none();
        for (i, (kind, tensors)) in actual.kinds().into_iter().enumerate() {
            let floor = match (kind, options.weights) {
                // A number that lies between two of 16 bits may become either.
                ("parameter", WeightStorage::Bf16(_)) => 1.0 / 100.0,
                ("parameter", WeightStorage::F16(_)) => 1.0 / 800.0,
                ("output of 16 bits", _) => 1.0 / 100.0,
                // What is cut off has rounding errors of its former size.
                ("state", _) if matches!(options.clip, Clip::Value(_)) => 4e-4,
                _ => 4e-6,
            };
            // Updates by sign, by code and by norm jump where a gradient is next to nothing.
            let jump = match (kind, &options.optimizer) {
                ("parameter", Optimizer::Lion(_) | Optimizer::Adam8bit(_) | Optimizer::Adafactor(_)) => {
                    2.5 * f64::from(options.optimizer.learning_rate())
                }
                _ => 0.0,
            };
            let what = format!("on the device: {kind}");
            let found = moved.measured(&what, i, tensors, expected.kinds()[i].1, &Allowed { floor, jump })?;
            worst = worst.or(found);
        }
        Ok(worst)
    }

    /// Where NaN and infinities go.
    fn injected(
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
        // 0 · ∞ is NaN, and a rounding error times ∞ is infinite: what saturates makes that finite, but not NaN.
        let casts = |node: &Node| matches!(node.op, Op::Cast(to) if to.is_half());
        let saturates = options.precision != Precision::F32
            || matches!(options.clip, Clip::Value(_))
            || plan.graph().nodes.iter().any(casts);
        let infinite = if saturates { f32::NAN } else { f32::INFINITY };
        let number = dice.of(&[f32::NAN, f32::NAN, infinite, -infinite]);
        let injection = Injection { name, at: dice.below(count as usize), number };
        // Kernels multiply by the zeros that a convolution is padded with, and values by the weights 0 of a causal mask, as
        // PyTorch does; the twin leaves them out.
        let padded = plan.graph().nodes.iter().any(|node| match &node.op {
            Op::Attention(attend) => attend.causal,
            op => op.kind().starts_with("conv2d"),
        });
        let actual = Outcome::of_device(self.device, plan, network, 1, Some(&injection))?;
        let twin = |perturbation| Outcome::of_twin(plan, network, 1, perturbation, Some(&injection));
        let mut expected = vec![twin(None)?];
        let mut perturbations = perturbations();
        loop {
            let Some((kind, name, at)) = misplaced(&actual, &expected, padded) else {
                return Ok(Difference::none());
            };
            // A number next to a kink, or at the limit of its format, lies on either side of it by chance.
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

/// Whether a rounding error of the first step stays one in the second.
fn is_smooth(options: &PlanOptions) -> bool {
    options.weights == WeightStorage::F32
        && matches!(options.optimizer, Optimizer::Sgd(_) | Optimizer::Adam(_) | Optimizer::AdamW(_))
}

/// The first number, by its kind, tensor and place, that is finite and should be NaN, or the other way round.
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

/// Where two tensors are farthest apart, and both numbers there.
fn farthest(actual: &[f64], expected: &[f64]) -> (usize, f64, f64) {
    let pairs = actual.iter().zip(expected).enumerate();
    let largest = pairs.max_by(|(_, (a, b)), (_, (c, d))| distance(**a, **b).total_cmp(&distance(**c, **d)));
    largest.map_or((0, 0.0, 0.0), |(at, (own, should))| (at, *own, *should))
}

/// A relative change as large as the rounding errors of what a plan stores, those of arithmetic in `f32` at least.
fn rounding(options: &PlanOptions) -> f64 {
    match options.precision {
        Precision::F32 => 2f64.powi(-22),
        Precision::F16 => 2f64.powi(-11),
        Precision::Bf16 => 2f64.powi(-8),
    }
}

/// How many times the change that perturbations cause a result may differ by.
const FACTOR: f64 = 4.0;

/// Seeds of perturbations and their sizes in rounding errors: a kink that lies as near as one is met by chance, or by a larger
/// step.
fn perturbations() -> impl Iterator<Item = (u64, f64)> {
    (1..).zip([1.0; 2].into_iter().chain([8.0; 6]).chain([64.0; 6]))
}

/// The largest magnitude of any tensor.
fn largest(tensors: &Tensors) -> f64 {
    tensors.values().flatten().fold(0f64, |all, x| all.max(x.abs()))
}

/// What may differ beside what [`Perturbation`]s tell.
pub(super) struct Allowed {
    /// A share of the largest number of the tensor, or of a tenth of the largest of all.
    pub floor: f64,
    /// Whatever the size.
    pub jump: f64,
}

/// What perturbed runs of a twin leave, `N` kinds of tensors each; a run is done when it is first asked for.
pub(super) struct Moved<const N: usize, F> {
    rounding: f64,
    run: F,
    runs: Vec<[Tensors; N]>,
}

impl<const N: usize, F: Fn(Perturbation) -> Result<[Tensors; N]>> Moved<N, F> {
    /// Sizes of perturbations are multiples of `rounding`.
    pub(super) fn new(rounding: f64, run: F) -> Self {
        Self { rounding, run, runs: Vec::new() }
    }

    /// The largest difference of any tensor, in units of what is allowed. That is measured by two perturbations at first, and by
    /// the others where those find too much.
    pub(super) fn measured(
        &mut self,
        what: &str,
        kind: usize,
        actual: &Tensors,
        expected: &Tensors,
        allowed: &Allowed,
    ) -> Result<Difference> {
        let mut worst = Difference::none();
        let all = largest(expected);
        for (i, (seed, size)) in perturbations().enumerate() {
            if i == self.runs.len() {
                self.runs.push((self.run)(Perturbation { seed, size: size * self.rounding })?);
            }
            if i == 0 {
                continue;
            }
            worst = Difference::none();
            for (name, numbers) in expected {
                let own = self.runs[..=i].iter().map(|run| apart(numbers, &run[kind][name]));
                let allowed = allowed.of(numbers, all, own.fold(0f64, f64::max));
                worst = worst.or(difference(what, name, actual.get(name), numbers, allowed));
            }
            if worst.error <= 1.0 || worst.error.is_infinite() {
                break;
            }
        }
        Ok(worst)
    }
}

impl Allowed {
    /// For a tensor, the largest number of all tensors, and how far perturbations move it.
    fn of(&self, numbers: &[f64], all: f64, moved: f64) -> f64 {
        let most = numbers.iter().fold(0f64, |all, x| all.max(x.abs()));
        FACTOR * moved + self.floor * most.max(all * 0.1) + self.jump + 1e-12
    }
}

/// The largest difference between two tensors, infinite where one number is NaN.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| distance(*a, *b)).fold(0.0, f64::max)
}

fn distance(a: f64, b: f64) -> f64 {
    if (a - b).is_nan() { f64::INFINITY } else { (a - b).abs() }
}

fn difference(
    what: &str,
    name: &str,
    actual: Option<&Vec<f64>>,
    expected: &[f64],
    allowed: f64,
) -> Difference {
    let Some(actual) = actual else {
        return Difference { what: format!("{what} `{name}` is missing"), error: f64::INFINITY };
    };
    let (at, own, should) = farthest(actual, expected);
    let what =
        format!("{what} `{name}` at {at} is {own:.6e}, should be {should:.6e} with {allowed:.1e} allowed");
    Difference { what, error: distance(own, should) / allowed }
}
