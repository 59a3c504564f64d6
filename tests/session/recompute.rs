//! Recomputation, accumulation and budgets: the same bits in less memory, whatever is dropped; more budget
//! never costs more time; and errors that name the options that would fit.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::networks::{BATCH, CLASSES, STEPS, network, optimizer, run};
use crate::support::{devices, on_each};
use wgrad::compile::{self, PlanOptions, Recompute, TrainStep};
use wgrad::graph::Params;
use wgrad::limits::Limits;
use wgrad::models::{Mlp, Model, ModelOptions, ResNet};
use wgrad::nn::Module;
use wgrad::optim::{AdamW, Clip, Sgd};
use wgrad::{Bytes, Error};

#[test]
fn every_recompute_rule_is_bit_identical() {
    on_each(devices(), |device| {
        let limits = device.limits();
        for (name, layer) in [("mlp", "fc1"), ("cnn", "block1"), ("resnet", "layer1.0")] {
            let step = network(name, BATCH);
            let options = PlanOptions {
                optimizer: optimizer(),
                rebuild: false,
                clip: Clip::Norm(1.0),
                ..PlanOptions::default()
            };
            let off = step.plan(&options, limits).expect("planned");
            let wanted = run(device, &off);
            assert!(wanted[0].1[0] != wanted[0].1[STEPS - 1], "{name}: nothing was learnt");
            let layers: &'static [&'static str] = Vec::leak(vec![layer]);
            let rules = [
                Recompute::Off,
                Recompute::Every(1),
                Recompute::Every(2),
                Recompute::Sqrt,
                Recompute::Named(layers),
                Recompute::Policy,
                Recompute::Auto,
            ];
            for recompute in rules {
                let mut options = PlanOptions { recompute, rebuild: true, ..options };
                if recompute == Recompute::Auto {
                    let open = PlanOptions { budget: Some(Bytes(1)), ..options };
                    let least = step.plan_over_budget(&open, limits).expect("planned").footprint().total();
                    options.budget = Some(Bytes(least));
                }
                let plan = step.plan(&options, limits).expect("planned");
                let again = plan.work.again_s > 0.0;
                // In an mlp nothing is cheap enough for `rebuild`, no saved tensor lies inside one of its
                // layers, and the gradient of its largest weight determines its peak.
                let idle = matches!(recompute, Recompute::Off | Recompute::Named(_) | Recompute::Auto);
                let idle = idle && name == "mlp";
                assert!(
                    again || recompute == Recompute::Off || idle,
                    "{name} {recompute:?}: nothing is computed again"
                );
                let results = run(device, &plan);
                assert_eq!(wanted.len(), results.len());
                for ((what, wanted), (_, result)) in wanted.iter().zip(&results) {
                    assert_same_bits(&format!("{name} {recompute:?}: {what}"), wanted, result);
                }
            }
        }
    });
}

/// Returns a network by name, for small images or short sequences.
fn small(name: &str) -> Model {
    let own = ModelOptions::default();
    let options = match name {
        "mlp" | "digits" | "cnn" | "lenet" => own,
        _ if name.starts_with("gpt") || name.starts_with("llama") || name.starts_with("bert") => {
            ModelOptions { seq: Some(32), ..own }
        }
        _ => ModelOptions { image: Some([64, 64]), classes: Some(10), ..own },
    };
    Model::with_options(name, 0, &options).expect("known")
}

/// A residual network of two blocks: searches over its plans take a tenth of those over resnet18's.
fn residual(batch: usize) -> wgrad::Result<TrainStep> {
    let params = Params::new(0);
    let net = ResNet::small(&params, 3, &[(64, 1), (128, 1)], 10);
    TrainStep::trace(&params, |trace| {
        net.forward(&trace.input("x", [batch, 3, 32, 32])).cross_entropy(&trace.labels("y", [batch], 10))
    })
}

#[test]
fn more_budget_never_takes_more_time_and_less_never_more_bytes() {
    let limits = Limits::default();
    let mut lowered = 0;
    // Searches over a long step take seconds: of the networks of a kind, one is enough.
    let twins = ["resnet50", "vgg16", "gpt2", "smollm2", "llama-3", "mistral", "qwen", "gemma"];
    let is_twin = |name: &str| twins.iter().any(|twin| name.starts_with(twin));
    for name in Model::NAMES.into_iter().filter(|name| !is_twin(name)) {
        let step = small(name).train_step(64).expect("valid");
        let parts = if step.graph().nodes.len() < 200 { 3 } else { 1 };
        let options =
            PlanOptions { optimizer: optimizer(), recompute: Recompute::Auto, ..PlanOptions::default() };
        let plan = |budget: u64| {
            step.plan_over_budget(&PlanOptions { budget: Some(Bytes(budget)), ..options }, &limits)
                .expect("planned")
        };
        let (least, most) = (plan(1), plan(u64::MAX));
        let all = PlanOptions { rebuild: false, recompute: Recompute::Off, ..options };
        // The time in which gradients of weights recompute a norm while they read.
        let reading = step.plan(&all, &limits).expect("planned").work.again_s;
        // Times are differences of sums: their last digits are rounding errors.
        let same = (most.work.again_s - reading).abs() <= 1e-9 * most.work.step_s;
        assert!(same, "{name}: with all the memory there is nothing runs twice");
        let all = PlanOptions { budget: Some(Bytes(u64::MAX)), ..options };
        let bound = step.least_recomputation(&most, &all, &limits).expect("a search").expect("all fits");
        let same = (bound - reading).abs() <= 1e-9 * most.work.step_s;
        assert!(same, "{name}: the bound is {bound} s, and {reading} s are recomputed");
        let (low, high) = (least.footprint().total(), most.footprint().total());
        lowered += usize::from(low < high);
        let mut last = (low, least.work.again_s);
        for part in 1..=parts {
            let budget = low + (high - low) * part / (parts + 1);
            let plan = plan(budget);
            let (total, again) = (plan.footprint().total(), plan.work.again_s);
            assert!(total <= budget, "{name}: {total} is over {budget}");
            let slack = 1e-9 * plan.work.step_s;
            assert!(
                total >= last.0 && again <= last.1 + slack,
                "{name} at {budget}: {total} {again} after {last:?}"
            );
            last = (total, again);
        }
    }
    // In small networks the gradient of the largest weight determines the peak.
    assert!(lowered >= 6, "only {lowered} networks could be lowered");
}

#[test]
fn error_of_an_impossible_budget_gives_the_minimum() {
    let step = residual(64).expect("valid");
    let limits = Limits::default();
    let options = PlanOptions { recompute: Recompute::Auto, ..PlanOptions::default() };
    let error = step.plan(&options, &limits).expect_err("no budget");
    assert!(error.to_string().contains("`PlanOptions::budget` is not set"), "{error}");
    let with = |budget| PlanOptions { budget: Some(budget), ..options };
    let error = step.plan(&with(Bytes::kib(1)), &limits).expect_err("nothing fits");
    let Error::OverBudget { needed, budget, .. } = error else { panic!("{error:?}") };
    assert_eq!(budget, 1024);
    assert!(step.plan(&with(Bytes(needed)), &limits).is_ok(), "what the error says is needed is enough");
    assert!(step.plan(&with(Bytes(needed - 1)), &limits).is_err());
    // Without recomputation the error suggests it.
    let off = PlanOptions { recompute: Recompute::Off, budget: Some(Bytes(needed + needed / 8)), ..options };
    let error = step.plan(&off, &limits).expect_err("more than the least").to_string();
    assert!(error.contains("it fits with `recompute: Recompute::Auto`"), "{error}");
}

#[test]
fn accumulated_gradients_match_the_whole_batch() {
    on_each(devices(), |device| {
        let limits = device.limits();
        let trace = |batch: usize| {
            let params = Params::new(3);
            let mlp = Mlp::new(&params, &[24, 32, CLASSES]);
            let step = TrainStep::trace(&params, |trace| {
                let logits = mlp.forward(&trace.input("x", [batch, 24]));
                trace.output("logits", &logits);
                logits.cross_entropy(&trace.labels("y", [batch], CLASSES as u32))
            });
            step.expect("valid")
        };
        let options = PlanOptions { optimizer: optimizer(), ..PlanOptions::default() };
        let whole = run(device, &trace(12).plan(&options, limits).expect("planned"));
        for parts in [2u32, 3, 4] {
            for recompute in [Recompute::Off, Recompute::Every(1)] {
                let options = PlanOptions { accumulate: parts, recompute, ..options };
                let plan = trace(12 / parts as usize).plan(&options, limits).expect("planned");
                let shape = plan.graph().value(plan.graph().outputs[1].1).shape;
                assert_eq!(shape.dims(), [12, CLASSES], "outputs of the parts are joined");
                let summed = run(device, &plan);
                for ((what, whole), (_, summed)) in whole.iter().zip(&summed) {
                    let whole: Vec<f64> = whole.iter().map(|&x| f64::from(x)).collect();
                    assert_close(
                        &format!("{parts} parts: {what}"),
                        summed,
                        &whole,
                        Near { rel: 1e-4, abs: 1e-5 },
                    );
                }
            }
        }
    });
}

#[test]
fn parts_of_a_batch_share_activation_memory() {
    let limits = Limits::default();
    let model = small("resnet18");
    let total = |parts: u32| {
        let step = model.train_step(32 / parts as usize).expect("valid");
        let options = PlanOptions { optimizer: optimizer(), accumulate: parts, ..PlanOptions::default() };
        let plan = step.plan(&options, &limits).expect("planned");
        plan.class_bytes().iter().find(|(class, _)| class.name() == "activations").expect("a class").1
    };
    assert!(total(4) * 3 < total(1), "{} of {}", total(4), total(1));
    let step = model.train_step(8).expect("valid");
    let error = step.plan(&PlanOptions { accumulate: 0, ..PlanOptions::default() }, &limits);
    assert!(error.expect_err("no part").to_string().contains("accumulate 0"));
}

#[test]
fn max_batch_fits_and_the_next_does_not() {
    let limits = Limits::default();
    let whole = residual(48).expect("valid").plan(&PlanOptions::default(), &limits);
    let budget = Bytes(whole.expect("planned").footprint().total());
    let mut last = 0;
    for recompute in [Recompute::Off, Recompute::Auto] {
        let options = PlanOptions { recompute, ..PlanOptions::default() };
        let most = compile::max_batch(residual, &options, budget, &limits).expect("found");
        let total = |batch: usize| {
            let options = PlanOptions { budget: Some(budget), ..options };
            let step = residual(batch).expect("valid");
            step.plan_over_budget(&options, &limits).expect("planned").footprint().total()
        };
        assert!(total(most) <= budget.0, "{recompute:?}: {most} samples need {}", total(most));
        assert!(total(most + 1) > budget.0, "{recompute:?}: {} would fit", most + 1);
        assert!(most > last, "{recompute:?}: {most} samples, without {last}");
        last = most;
    }
    let none = compile::max_batch(residual, &PlanOptions::default(), Bytes(1), &limits);
    assert_eq!(none.expect("found"), 0);
}

#[test]
fn fit_prefers_exact_changes_and_then_splits_the_batch() {
    let limits = Limits::default();
    let options = PlanOptions { optimizer: AdamW::default().into(), ..PlanOptions::default() };
    let trace = residual;
    let fit = |budget: u64| compile::fit(trace, 128, &options, Bytes(budget), &limits);
    let asked = trace(128).expect("valid").plan(&options, &limits).expect("planned").footprint().total();
    let open = fit(asked).expect("it fits as it is");
    assert!(open.changes.is_empty() && open.plan.footprint().total() == asked);
    let least = |offload| {
        let options = PlanOptions { recompute: Recompute::Auto, budget: Some(Bytes(1)), offload, ..options };
        let step = trace(128).expect("valid");
        step.plan_over_budget(&options, &limits).expect("planned").footprint().total()
    };
    let (least, away) = (least(compile::Offload::OFF), least(compile::Offload::OPTIMIZER));
    let tight = fit((asked + least) / 2).expect("recomputation is enough");
    assert!(tight.exact && tight.changes.contains(&"recompute auto".to_owned()), "{:?}", tight.changes);
    let moved = fit(least - 1).expect("state can lie elsewhere");
    assert!(moved.exact && moved.changes == ["offload optimizer", "recompute auto"], "{:?}", moved.changes);
    let parts = fit(away - 1).expect("parts are enough");
    assert!(parts.changes[0].starts_with("accumulate ") && !parts.exact, "{:?}", parts.changes);
    assert!(parts.plan.footprint().total() < away);
    // An odd batch cannot be split, plain SGD has no state, and in this network recomputation does not reach
    // every activation.
    let lenet = small("lenet");
    let trace_lenet = |batch: usize| lenet.train_step(batch);
    let bare = PlanOptions { optimizer: Sgd::default().into(), ..options };
    let lowest = PlanOptions { recompute: Recompute::Auto, budget: Some(Bytes(1)), ..bare };
    let lowest = trace_lenet(33).expect("valid").plan_over_budget(&lowest, &limits).expect("planned");
    let half = compile::fit(trace_lenet, 33, &bare, Bytes(lowest.footprint().total() - 1), &limits);
    let half = half.expect("16 bits are enough");
    assert!(!half.exact && half.changes[0] == "precision f16", "{:?}", half.changes);
    assert!(matches!(fit(1), Err(Error::OverBudget { .. })));
    let levers = compile::levers(trace, 128, &options, Bytes(asked / 2), &limits).expect("planned");
    let names: Vec<&str> = levers.iter().map(|lever| lever.name.as_str()).collect();
    for name in [
        "recompute auto",
        "offload optimizer",
        "precision f16",
        "accumulate 2",
        "optimizer sgd",
        "optimizer momentum",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(levers.iter().all(|lever| lever.saved_bytes == asked - lever.total_bytes));
}

#[test]
fn levers_split_the_batch_until_it_fits_or_parts_hardly_help() {
    let limits = Limits::default();
    let options = PlanOptions { optimizer: optimizer(), ..PlanOptions::default() };
    let total = |parts: u32| {
        let step = residual(128 / parts as usize).expect("valid");
        let plan = step.plan(&PlanOptions { accumulate: parts, ..options }, &limits);
        plan.expect("planned").footprint().total()
    };
    let most_parts = |trace: &dyn Fn(usize) -> wgrad::Result<TrainStep>, budget: u64| {
        let levers = compile::levers(trace, 128, &options, Bytes(budget), &limits).expect("planned");
        let parts = levers.iter().filter_map(|lever| lever.name.strip_prefix("accumulate ")?.parse().ok());
        let mut parts: Vec<u32> = parts.collect();
        parts.sort_unstable();
        assert!(parts.iter().zip(1..).all(|(&parts, power)| parts == 1 << power), "{parts:?}");
        parts.pop().expect("some")
    };
    for parts in [2, 8] {
        assert_eq!(most_parts(&residual, total(parts)), parts, "more parts than are enough");
    }
    // Most of its bytes are weights and their state.
    let mlp = small("mlp");
    assert_eq!(most_parts(&|batch| mlp.train_step(batch), 1), 2, "no number of parts fits");
}
