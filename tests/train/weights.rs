//! 16-bit weights: how they are rounded, that every optimizer updates them, that all execution modes give the
//! same bits, and that training with them learns.

use std::collections::BTreeMap;

use crate::support::close::assert_same_bits;
use crate::support::{both_classes, devices, noise, on_each, some_labels};
use half::{bf16, f16};
use wgrad::compile::{Forward, Plan, PlanOptions, Recompute, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::{DType, Rounding, WeightStorage};
use wgrad::exec::SaveOptions;
use wgrad::exec::{Debug, Eager, Session};
use wgrad::graph::{Class, Init, LossScale, Param, Params, Window};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::nn::{Conv2d, Embedding, Linear, Module};
use wgrad::optim::{Clip, Optimizer, Sgd};
use wgrad::reference::Twin;
use wgrad::{Bytes, Error};

const NEAREST: [WeightStorage; 2] =
    [WeightStorage::F16(Rounding::Nearest), WeightStorage::Bf16(Rounding::Nearest)];
const STOCHASTIC: [WeightStorage; 2] =
    [WeightStorage::F16(Rounding::Stochastic), WeightStorage::Bf16(Rounding::Stochastic)];
const ALL: [WeightStorage; 5] = [NEAREST[0], NEAREST[1], STOCHASTIC[0], STOCHASTIC[1], WeightStorage::Bf24];

fn sgd(lr: f32) -> Optimizer {
    Sgd { lr, ..Sgd::default() }.into()
}

fn plan(step: &TrainStep, options: &PlanOptions, limits: &Limits) -> Plan {
    step.plan(options, limits).expect("it can be planned")
}

/// `loss = Σ x w` with a weight that starts at zero: with SGD at rate 1 the first step makes it `-x`,
/// rounded.
fn minus_x(n: usize, weights: WeightStorage, limits: &Limits) -> Plan {
    let params = Params::new(7);
    let w = params.add("w", [n / 8, 8], Init::Constant(0.0));
    let step = TrainStep::trace(&params, |trace| trace.input("x", [n / 8, 8]).mul(&trace.param(&w)).sum(&[]));
    let options = PlanOptions { optimizer: sgd(1.0), weights, ..PlanOptions::default() };
    plan(&step.expect("valid"), &options, limits)
}

/// Returns the weight after step number `at`, starting from zeros. The loss is not read because it may be
/// NaN.
fn stored(session: &mut Session, x: &[f32], at: u64) -> Vec<f32> {
    session.set_loss_interval(u64::MAX);
    session.set_parameter("w", &vec![0.0; x.len()]).expect("the right length");
    session.set_steps(at);
    session.set_accept_non_finite(true);
    session.feed("x", x).expect("valid");
    session.step().expect("it runs");
    session.parameter("w").expect("there")
}

/// Returns numbers at which rounding is decided: every number of either format, the midpoint to the next, and
/// one bit more or less than that; the ends of the range, infinities, NaN.
fn nasty() -> Vec<f32> {
    let mut bits: Vec<u32> = Vec::new();
    let mut near = |at: u32| bits.extend([at - 1, at, at + 1]);
    for pattern in 1..0x7c00u16 {
        let this = f16::from_bits(pattern).to_f32();
        let next = if pattern == 0x7bff { 65_536.0 } else { f16::from_bits(pattern + 1).to_f32() };
        near(this.to_bits());
        near((0.5 * (this + next)).to_bits());
    }
    for pattern in (0x80..0x7f80u32).step_by(5).chain(0x7f60..0x7f90) {
        near(pattern << 16);
        near(pattern << 16 | 0x8000);
    }
    near(f32::MAX.to_bits());
    let negative: Vec<u32> = bits.iter().map(|b| b ^ 0x8000_0000).collect();
    bits.extend(negative);
    bits.resize(bits.len().next_multiple_of(8), 0);
    bits.into_iter().map(f32::from_bits).collect()
}

fn rounded(weights: WeightStorage, x: f32) -> f32 {
    match weights.storage() {
        Some(DType::F16) => f16::from_f32(x).to_f32(),
        Some(DType::BF16) => bf16::from_f32(x).to_f32(),
        _ => x,
    }
}

#[test]
fn nearest_rounding_matches_the_crate_half() {
    let x = nasty();
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for weights in NEAREST {
                let plan = minus_x(x.len(), weights, &limits);
                let mut session = Session::new(device, &plan).expect("it opens");
                for (x, found) in x.iter().zip(stored(&mut session, &x, 1)) {
                    let wanted = rounded(weights, 0.0 - x);
                    let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
                    // Adapters may flush 32-bit subnormal numbers to 0.
                    let tiny = x.abs() < 2.0 * f32::MIN_POSITIVE && found.abs() <= 2.0 * f32::MIN_POSITIVE;
                    assert!(same || tiny, "{weights}: {:e} became {found:e}, should be {wanted:e}", 0.0 - x);
                }
            }
        }
    });
}

/// A number keeps 16 bits, the first of them implied: the network's `bf16` is the nearest, of two the one away from zero, and a
/// signed byte is what is missing. Another step that changes nothing keeps both.
#[test]
fn weights_in_24_bits_keep_the_nearest_number_of_16_digits() {
    let x = nasty();
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let plan = minus_x(x.len(), WeightStorage::Bf24, &limits);
            let mut session = Session::new(device, &plan).expect("it opens");
            let found = stored(&mut session, &x, 1);
            let bytes = |session: &mut Session| -> Vec<u8> {
                let words = session.parameter("w.correction").expect("there");
                words.into_iter().flat_map(|word| word.to_bits().to_le_bytes()).collect()
            };
            let corrections = bytes(&mut session);
            for ((x, found), byte) in x.iter().zip(&found).zip(&corrections) {
                let number = 0.0 - x;
                let magnitude = number.abs().to_bits();
                let kept = (magnitude + 0x7f + (magnitude >> 8 & 1)) >> 8 << 8;
                let upper = (kept + 0x8000) >> 16;
                let wanted = f32::from_bits(upper << 16).copysign(number);
                let missing = kept.wrapping_sub(upper << 16) as i32 / 256;
                let same = found.to_bits() == wanted.to_bits() && missing == i32::from(*byte as i8);
                let nan = found.is_nan() && number.is_nan() && *byte == 0;
                let tiny = x.abs() < 2.0 * f32::MIN_POSITIVE && found.abs() <= 2.0 * f32::MIN_POSITIVE;
                assert!(
                    same || nan || tiny,
                    "{number:e} became {found:e} and {}, should be {wanted:e} and {missing}",
                    *byte as i8
                );
            }
            session.feed("x", &vec![0.0; x.len()]).expect("valid");
            session.step().expect("it runs");
            let again = session.parameter("w").expect("there");
            let kept = bytes(&mut session);
            for i in 0..x.len() {
                let same = found[i].to_bits() == again[i].to_bits() && corrections[i] == kept[i];
                let tiny = found[i].abs() <= 2.0 * f32::MIN_POSITIVE;
                assert!(same || !found[i].is_finite() || tiny, "{:e} became {:e}", found[i], again[i]);
            }
            session.set_parameter("w", &found).expect("the right length");
            assert!(bytes(&mut session).iter().all(|byte| *byte == 0), "a new weight has an old correction");
        }
    });
}

/// Values that the host writes are rounded as well, and read back as they are stored.
#[test]
fn host_reads_and_writes_16_bit_weights_as_f32() {
    let x = nasty();
    on_each(devices(), |device| {
        for weights in NEAREST {
            let plan = minus_x(x.len(), weights, device.limits());
            let mut session = Session::new(device, &plan).expect("it opens");
            session.set_parameter("w", &x).expect("the right length");
            for (x, found) in x.iter().zip(session.parameter("w").expect("there")) {
                assert_eq!(found.to_bits(), rounded(weights, *x).to_bits(), "{weights} of {x:e}");
            }
            assert!(session.set_parameter("w", &x[1..]).is_err(), "one too few");
        }
    });
}

/// `E[round(x)] = x`: the mean of many draws is within five standard errors, each draw is one of the two
/// neighbours, and the twin draws the same.
#[test]
fn stochastic_rounding_is_unbiased() {
    const DRAWS: usize = 1 << 15;
    // For either format: a third of the way between neighbours, near the ends, halfway, subnormal numbers of
    // f16 and numbers far below them.
    let numbers =
        [1.0 + 1.0 / 3072.0, 1.0003, 0.7072, -3.25, 2.0e-5, 3.3e-7, 1e-8, -2e-9, 1e-30, 65_510.0, 0.5];
    on_each(devices(), |device| {
        for (limits, weights) in both_classes(device).iter().flat_map(|l| STOCHASTIC.map(|w| (l, w))) {
            let plan = minus_x(DRAWS, weights, limits);
            let mut session = Session::new(device, &plan).expect("it opens");
            let mut all = Vec::new();
            for (at, number) in numbers.into_iter().enumerate() {
                let x = vec![-number; DRAWS];
                let found = stored(&mut session, &x, at as u64 + 1);
                let mut twin = Twin::new(plan.graph());
                twin.set_f32("x", &x).expect("valid");
                twin.set_step(&sgd(1.0).scalars(at as u64 + 1, 1.0, plan.seed));
                twin.run().expect("it runs");
                let drawn = twin.parameter("w").expect("there");
                let what = format!("{weights} of {number:e} on {}", limits.name);
                assert!(
                    found.iter().zip(drawn).all(|(a, b)| f64::from(*a) == *b),
                    "{what}: the twin draws another"
                );
                let low = found.iter().copied().fold(f32::INFINITY, f32::min);
                let high = found.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert!(found.iter().all(|&x| x == low || x == high), "{what}: more than two numbers");
                assert!(low <= number && number <= high || low == high, "{what}: {low:e} to {high:e}");
                if high.is_infinite() {
                    continue;
                }
                let step =
                    if low < high { f64::from(high) - f64::from(low) } else { f64::from(number.abs()) };
                let mean = found.iter().map(|x| f64::from(*x)).sum::<f64>() / DRAWS as f64;
                // The standard deviation of one draw is at most half a step; that of a very unlikely outcome
                // is less.
                let chance = ((f64::from(number) - f64::from(low)) / step).clamp(0.0, 1.0);
                let deviation = step * (chance * (1.0 - chance) / DRAWS as f64).sqrt();
                let allowed = 5.0 * deviation + step * 2.0 / DRAWS as f64;
                let error = mean - f64::from(number);
                assert!(
                    error.abs() <= allowed || number.abs() < 1e-20,
                    "{what}: off by {error:e}, {allowed:e} allowed"
                );
                all.push(found);
            }
            let last = all.last().expect("some");
            assert!(last.iter().all(|x| *x == 0.5), "what is a number of 16 bits stays");
            let x = vec![-numbers[1]; DRAWS];
            let again = [7, 7, 8].map(|at| stored(&mut session, &x, at));
            assert_same_bits("the same step", &again[0], &again[1]);
            assert_ne!(again[0], again[2], "another step draws others");
        }
    });
}

/// Two parameters, and two elements, have independent draws.
#[test]
fn parameters_and_elements_draw_independently() {
    let params = Params::new(7);
    let start = |name: &str| params.add(name, [64, 64], Init::Constant(0.0));
    let (v, w) = (start("v"), start("w"));
    let step =
        TrainStep::trace(&params, |trace| trace.param(&v).add(&trace.param(&w)).scale(-1.001).sum(&[]));
    let weights = STOCHASTIC[1];
    let options = PlanOptions { optimizer: sgd(1.0), weights, ..PlanOptions::default() };
    on_each(devices(), |device| {
        let plan = plan(step.as_ref().expect("valid"), &options, device.limits());
        let mut session = Session::new(device, &plan).expect("it opens");
        session.step().expect("it runs");
        let [v, w] = ["v", "w"].map(|name| session.parameter(name).expect("there"));
        // 1.001 lies an eighth of the way from 1 to the next number of bf16.
        let up = |x: &f32| *x > 1.0;
        let both = v.iter().zip(&w).filter(|(a, b)| up(a) && up(b)).count();
        let [a, b] = [&v, &w].map(|x| x.iter().filter(|x| up(x)).count());
        assert!(
            (400..650).contains(&a) && (400..650).contains(&b) && (30..110).contains(&both),
            "{a} {b} {both}"
        );
    });
}

const BATCH: usize = 6;

/// Large weights of every kind as well as small ones: a convolution kernel, a table whose rows are not a
/// multiple of four, and matrices.
fn network() -> TrainStep {
    let params = Params::new(5);
    let conv = Conv2d::new(&params.scope("conv"), 2, 64, Window::square(3).padding(1));
    let table = Embedding::new(&params.scope("table"), 211, 7);
    let (fc1, fc2) =
        (Linear::new(&params.scope("fc1"), 64 + 21, 67), Linear::new(&params.scope("fc2"), 67, 9));
    let tied = params.add("tied", [67, 67], Init::Uniform(0.1));
    let step = TrainStep::trace(&params, |trace| {
        let image = trace.input("x", [BATCH, 2, 5, 5]).apply(&conv).relu().mean(&[2, 3]).reshape([BATCH, 64]);
        let words = table.forward(&trace.ids("ids", [BATCH, 3], 211)).reshape([BATCH, 21]);
        let h = image.concat(&[&words], 1).apply(&fc1).silu();
        let tied = trace.param(&tied);
        let h = h.matmul(&tied).tanh().matmul_transposed(&tied.reshape([67, 67]), false, true).dropout(0.1);
        h.apply(&fc2).cross_entropy(&trace.labels("y", [BATCH], 9))
    });
    step.expect("valid")
}

fn inputs(plan: &Plan, at: u64) -> (Vec<f32>, Vec<u32>, Vec<u32>) {
    let samples =
        plan.graph().inputs().find(|(_, v)| v.name == "y").expect("labels").1.shape.numel() as usize;
    (
        noise(at, samples * 50, -1.0, 1.0),
        some_labels(at + 100, samples * 3, 211),
        some_labels(at + 200, samples, 9),
    )
}

fn persistent_names(plan: &Plan) -> Vec<String> {
    plan.program.storages.iter().filter(|s| s.persistent).map(|s| s.name.clone()).collect()
}

/// Returns the persistent tensors after `steps` steps.
fn run(device: &Device, plan: &Plan, steps: u64, debug: Debug) -> BTreeMap<String, Vec<f32>> {
    let mut session = Session::with_plans(device, &[plan], debug).expect("it opens");
    assert_eq!(session.device_bytes(), plan.footprint().total());
    for at in 0..steps {
        let (x, ids, y) = inputs(plan, at);
        session.feed("x", &x).expect("valid");
        session.feed("ids", &ids).expect("valid");
        session.feed("y", &y).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    persistent_names(plan).into_iter().map(|n| (n.clone(), session.parameter(&n).expect("there"))).collect()
}

fn assert_same(what: &str, a: &BTreeMap<String, Vec<f32>>, b: &BTreeMap<String, Vec<f32>>) {
    assert_eq!(a.len(), b.len(), "{what}");
    a.iter().for_each(|(name, a)| assert_same_bits(&format!("{what}: {name}"), a, &b[name]));
}

/// With every optimizer, clipped or not, a step matches the twin, except where the twin rounds the other way.
#[test]
fn every_optimizer_matches_the_twin() {
    let step = network();
    on_each(devices(), |device| {
        for (which, name) in Optimizer::NAMES.into_iter().enumerate() {
            for weights in ALL {
                let limits = both_classes(device)[which % both_classes(device).len()].clone();
                let optimizer = Optimizer::named(name).expect("known").with_learning_rate(0.01);
                let clip = if which % 2 == 0 { Clip::Norm(0.3) } else { Clip::Off };
                let options = PlanOptions { optimizer, clip, weights, ..PlanOptions::default() };
                let plan = plan(&step, &options, &limits);
                let found = run(device, &plan, 1, Debug { poison: true });
                let mut twin = Twin::new(plan.graph());
                let start: BTreeMap<String, Vec<f64>> = persistent_names(&plan)
                    .into_iter()
                    .map(|n| (n.clone(), twin.parameter(&n).expect("there").to_vec()))
                    .collect();
                let (x, ids, y) = inputs(&plan, 0);
                twin.set_f32("x", &x).expect("valid");
                twin.set_u32("ids", &ids).expect("valid");
                twin.set_u32("y", &y).expect("valid");
                twin.set_step(&optimizer.scalars(0, 0.01, plan.seed));
                twin.run().expect("it runs");
                for param in &plan.graph().parameters {
                    let wanted = twin.parameter(param.name()).expect("there");
                    let what = format!("{name}, {weights}, {}: {}", limits.name, param.name());
                    let value = plan.graph().values.iter().find(|v| v.name == param.name()).expect("there");
                    // Updates of this size rarely change a `bf16` weight.
                    let moves = wanted != start[param.name()] || value.dtype == DType::BF16;
                    assert!(moves, "{what}: the step does not move it");
                    let digits = match value.dtype {
                        DType::F16 => 10,
                        DType::BF16 => 7,
                        _ => 17,
                    };
                    let (mut others, mut far) = (0, 0);
                    for (a, b) in found[param.name()].iter().zip(wanted) {
                        let apart = (f64::from(*a) - b).abs();
                        // The distance to a neighbouring number, or in 32 bits a few rounding errors.
                        let step = 2f64.powi(-digits) * b.abs().max(2f64.powi(-14)) + 2e-5;
                        others += usize::from(apart > 1e-4 * b.abs() + 1e-6);
                        // The sign of a gradient that is only a rounding error may differ.
                        far += usize::from(apart > step);
                    }
                    assert!(far <= 1 + wanted.len() / 200, "{what}: {far} of {} are wrong", wanted.len());
                    assert!(others <= 3 + wanted.len() / 20, "{what}: {others} of {} differ", wanted.len());
                }
            }
        }
    });
}

/// Planned, poisoned and eager runs, and runs with recomputation, give the same bits.
#[test]
fn planned_poisoned_eager_and_recomputed_runs_are_bit_identical() {
    let step = network();
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for (weights, name, accumulate) in [
                (STOCHASTIC[0], "adamw", 2),
                (STOCHASTIC[1], "adam8bit", 1),
                (NEAREST[0], "lion", 1),
                (ALL[4], "adamw", 2),
            ] {
                let optimizer = Optimizer::named(name).expect("known").with_learning_rate(0.01);
                let options = PlanOptions { optimizer, weights, accumulate, ..PlanOptions::default() };
                let plain = plan(&step, &options, &limits);
                let wanted = run(device, &plain, 3, Debug::default());
                assert_same("poisoned", &wanted, &run(device, &plain, 3, Debug { poison: true }));
                let mut eager = Eager::new(device, &plain, PoolOptions::default()).expect("it opens");
                for at in 0..3 {
                    let (x, ids, y) = inputs(&plain, at);
                    eager.feed("x", &x).expect("valid");
                    eager.feed("ids", &ids).expect("valid");
                    eager.feed("y", &y).expect("valid");
                    eager.step().expect("it runs");
                }
                let eager: BTreeMap<_, _> = persistent_names(&plain)
                    .into_iter()
                    .map(|n| (n.clone(), eager.parameter(&n).expect("there")))
                    .collect();
                assert_same("eager", &wanted, &eager);
                for recompute in [Recompute::Policy, Recompute::Auto] {
                    let budget = Some(Bytes(1));
                    let options = PlanOptions { recompute, budget, ..options };
                    let again = step.plan_over_budget(&options, &limits).expect("it can be planned");
                    assert_same(
                        &format!("{recompute:?}"),
                        &wanted,
                        &run(device, &again, 3, Debug::default()),
                    );
                }
            }
        }
    });
}

/// A step that overflows leaves every weight unchanged, bit for bit, with every optimizer.
#[test]
fn skipped_step_changes_no_weight() {
    let params = Params::new(1);
    let w = params.add("w", [100, 50], Init::Data(noise(1, 5000, -0.5, 0.5).into()));
    let step =
        TrainStep::trace(&params, |trace| trace.param(&w).tanh().mul(&trace.input("x", [100, 50])).mean(&[]));
    let step = step.expect("valid");
    on_each(devices(), |device| {
        for name in Optimizer::NAMES {
            for weights in [STOCHASTIC[0], STOCHASTIC[1], WeightStorage::Bf24] {
                let optimizer = Optimizer::named(name).expect("known");
                let loss_scale = Some(LossScale::default());
                let options = PlanOptions { optimizer, weights, loss_scale, ..PlanOptions::default() };
                let plan = plan(&step, &options, device.limits());
                let mut session = Session::new(device, &plan).expect("it opens");
                for at in 0..4 {
                    let mut x = noise(at + 10, 5000, -1.0, 1.0);
                    if at == 2 {
                        x[4999] = 3e38;
                    }
                    let state = |session: &mut Session| -> Vec<u32> {
                        let all = persistent_names(&plan).into_iter().filter(|name| name != "loss_scale");
                        all.flat_map(|n| session.parameter(&n).expect("there")).map(f32::to_bits).collect()
                    };
                    let before = state(&mut session);
                    session.feed("x", &x).expect("valid");
                    session.step().expect("it runs");
                    session.loss().expect("a finite loss");
                    assert_eq!(before == state(&mut session), at == 2, "{name}, {weights}, step {at}");
                }
            }
        }
    });
}

/// Large weights take two bytes an element, and no copy of them is held for later: at any time at most one
/// copy is in 32 bits, or two with recomputation.
#[test]
fn large_weights_take_two_bytes_and_few_f32_copies() {
    let limits = Limits::named("discrete").expect("a preset");
    for (name, batch) in [("mlp", 64), ("cnn", 32), ("gpt-nano", 4), ("resnet18", 8), ("mobilenet-v2", 4)] {
        let step = Model::named(name, 0).expect("a model").train_step(batch).expect("valid");
        for recompute in [Recompute::Off, Recompute::Every(1), Recompute::Auto] {
            if recompute == Recompute::Auto && !["mlp", "gpt-nano"].contains(&name) {
                continue;
            }
            let options = PlanOptions { recompute, budget: Some(Bytes(1)), ..PlanOptions::default() };
            let wide = step.plan_over_budget(&options, &limits).expect("planned");
            let weights = STOCHASTIC[1];
            let half = step.plan_over_budget(&PlanOptions { weights, ..options }, &limits).expect("planned");
            let large = |param: &Param| {
                param.trained()
                    && param.shape().rank() > 1
                    && param.shape().numel() >= WeightStorage::SMALLEST
            };
            let bytes = |plan: &Plan, param: &Param| plan.program.storages[param.index()].used_bytes;
            for param in &half.graph().parameters {
                let n = param.shape().numel();
                let wanted = if large(param) { n.div_ceil(2) * 4 } else { n * 4 };
                assert_eq!(bytes(&half, param), wanted, "{name}: {}", param.name());
                assert_eq!(bytes(&wide, param), n * 4, "{name}: {}", param.name());
            }
            let mut copies: Vec<(usize, usize)> = (half.program.storages.iter())
                .filter(|s| s.tenants[0].1 == Class::Workspace && s.name.contains(".f32"))
                .map(|s| (s.first, s.last))
                .collect();
            copies.sort_unstable();
            // Products and embeddings read 16 bits; convolutions, and the sum with a position table, read
            // copies.
            assert_eq!(copies.is_empty(), name == "mlp", "{name}: {copies:?}");
            let alive =
                |at: usize| copies.iter().filter(|(first, last)| (*first..=*last).contains(&at)).count();
            let most = copies.iter().map(|(first, _)| alive(*first)).max().unwrap_or(0);
            // An operation that is recomputed between a copy and its reader may need a copy of another
            // weight.
            let allowed = if recompute == Recompute::Off { 1 } else { 2 };
            assert!(most <= allowed, "{name}, {recompute:?}: {most} copies are alive at once: {copies:?}");
        }
    }
}

/// Files store `f32`; a session with 16-bit weights resumes from it bit for bit, one with 32-bit weights
/// loads it unchanged.
#[cfg(feature = "safetensors")]
#[test]
fn training_resumes_from_a_checkpoint() {
    let step = network();
    on_each(devices(), |device| {
        let path = std::env::temp_dir().join(format!("wgrad-weights-{}.safetensors", std::process::id()));
        for weights in [STOCHASTIC[1], WeightStorage::Bf24] {
            let options = PlanOptions { weights, ..PlanOptions::default() };
            let half = plan(&step, &options, device.limits());
            let wide = plan(&step, &PlanOptions::default(), device.limits());
            let open = |plan: &Plan| Session::new(device, plan).expect("it opens");
            let of = |session: &mut Session, names: &[String]| -> Vec<f32> {
                names.iter().flat_map(|n| session.parameter(n).expect("there")).collect()
            };
            let train = |session: &mut Session, steps: std::ops::Range<u64>| {
                for at in steps {
                    let (x, ids, y) = inputs(&half, at);
                    session.feed("x", &x).expect("valid");
                    session.feed("ids", &ids).expect("valid");
                    session.feed("y", &y).expect("valid");
                    session.step().expect("it runs");
                }
                of(session, &persistent_names(&half))
            };
            let (mut through, mut first, mut second, mut in_32) =
                (open(&half), open(&half), open(&half), open(&wide));
            let wanted = train(&mut through, 0..4);
            train(&mut first, 0..2);
            first.save_with(&path, &SaveOptions::training_state()).expect("it is written");
            second.load(&path).expect("it fits");
            assert_same_bits("from the checkpoint", &wanted, &train(&mut second, 2..4));
            in_32.load(&path).expect("it fits");
            let corrections = |name: &String| name.ends_with(".correction");
            assert_eq!(weights == WeightStorage::Bf24, persistent_names(&half).iter().any(corrections));
            let others = persistent_names(&wide);
            let all = others.iter().flat_map(|n| in_32.parameter(n).expect("there"));
            assert_same_bits("in 32 bits", &of(&mut first, &others), &all.collect::<Vec<f32>>());
            // The other way around corrections start as zeros.
            in_32.save_with(&path, &SaveOptions::training_state()).expect("it is written");
            second.load(&path).expect("it fits");
            assert_same_bits("back in 16 bits", &of(&mut first, &others), &of(&mut second, &others));
            let mut words = persistent_names(&half).into_iter().filter(corrections);
            assert!(
                words.all(|name| second.parameter(&name).expect("there").iter().all(|x| x.to_bits() == 0))
            );
            std::fs::remove_file(&path).expect("it is there");
        }
    });
}

#[test]
fn plans_of_a_session_must_agree_on_weight_storage() {
    let model = Model::named("digits", 0).expect("a model");
    on_each(devices(), |device| {
        let options = PlanOptions { weights: NEAREST[1], ..PlanOptions::default() };
        let train = plan(&model.train_step(4).expect("valid"), &options, device.limits());
        let forward: Forward = model.forward(4).expect("valid");
        let wide = forward.plan(device.limits()).expect("planned");
        let error =
            Session::with_plans(device, &[&train, &wide], Debug::default()).err().expect("they differ");
        assert!(
            matches!(error, Error::PlanMismatch(_)) && error.to_string().contains("Forward::plan_with"),
            "{error}"
        );
        let half = forward.plan_with(NEAREST[1], device.limits()).expect("planned");
        Session::with_plans(device, &[&train, &half], Debug::default()).expect("they agree");
    });
}

/// Updates of a tenth of the distance between two numbers: with rounding to nearest all are lost, with
/// stochastic rounding or 8 bits more they add up.
#[test]
fn small_updates_add_up_unless_weights_are_rounded_to_nearest() {
    const STEPS: usize = 64;
    let params = Params::new(3);
    let w = params.add("w", [64, 64], Init::Constant(1.0));
    let step = TrainStep::trace(&params, |trace| trace.param(&w).sum(&[])).expect("valid");
    // Below 1 numbers of bf16 are 2⁻⁸ apart; after `STEPS` steps the weight should be 1 - 6.4 · 2⁻⁸.
    let rate = 0.1 / 256.0;
    let wanted = 1.0 - STEPS as f64 * f64::from(rate);
    on_each(devices(), |device| {
        let end = |weights: WeightStorage| {
            let options = PlanOptions { optimizer: sgd(rate), weights, ..PlanOptions::default() };
            let plan = plan(&step, &options, device.limits());
            let mut session = Session::new(device, &plan).expect("it opens");
            (0..STEPS).for_each(|_| session.step().expect("it runs"));
            let w = session.parameter("w").expect("there");
            w.iter().map(|x| f64::from(*x)).sum::<f64>() / w.len() as f64
        };
        assert_eq!(end(WeightStorage::Bf16(Rounding::Nearest)), 1.0);
        // Read as the nearest bf16 of a number that each step rounds by at most 2⁻¹⁷.
        let corrected = end(WeightStorage::Bf24);
        let allowed = 1.0 / 512.0 + STEPS as f64 / 131_072.0;
        assert!((corrected - wanted).abs() < allowed, "{corrected}, should be {wanted} within {allowed}");
        let mean = end(WeightStorage::Bf16(Rounding::Stochastic));
        // A random walk of 64 draws, each with a standard deviation of 0.3 steps; averaged over 4,096
        // weights.
        let allowed = 5.0 * 0.3 / 256.0 * 8.0 / 64.0;
        assert!((mean - wanted).abs() < allowed, "{mean}, should be {wanted} within {allowed}");
    });
}
