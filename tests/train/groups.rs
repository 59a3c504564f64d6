//! Parameter groups: other learning rates and weight decays for some parameters.

use std::collections::BTreeMap;

use crate::support::close::assert_same_bits;
use crate::support::folder::Folder;
use crate::support::{devices, noise, on_each};
use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::dtype::{Rounding, WeightStorage};
use wgrad::exec::{SaveOptions, Session};
use wgrad::graph::{LossScale, Op, ParamGroup, Params, Update};
use wgrad::limits::Limits;
use wgrad::nn::{Embedding, LayerNorm, Linear, Module};
use wgrad::optim::{AdamW, Apollo, Muon, Optimizer};
use wgrad::reference::Twin;

const BATCH: usize = 8;

/// A step of two large weights, and of biases and norms that one dispatch updates.
fn step(groups: &[(&str, ParamGroup)]) -> TrainStep {
    let params = Params::new(1);
    let fc1 = Linear::new(&params.scope("fc1"), 64, 80);
    let norm = LayerNorm::new(&params.scope("norm"), 80);
    let fc2 = Linear::new(&params.scope("fc2"), 80, 64);
    for (pattern, group) in groups {
        params.set_group(pattern, *group).expect("there are such parameters");
    }
    TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [BATCH, 64]);
        (fc2.forward(&x.apply(&fc1).gelu().apply(&norm)) - x).square().mean(&[])
    })
    .expect("valid")
}

/// Returns all parameters after two steps.
fn train(device: &wgrad::device::Device, plan: &Plan) -> BTreeMap<String, Vec<f32>> {
    let mut session = Session::new(device, plan).expect("it opens");
    for step in 0..2 {
        session.feed("x", &noise(step, BATCH * 64, -1.0, 1.0)).expect("valid");
        session.step().expect("it runs");
    }
    let names = plan.graph().parameters.iter().map(|param| param.name().to_owned());
    names.map(|name| (name.clone(), session.parameter(&name).expect("there"))).collect()
}

#[test]
fn a_group_trains_like_an_optimizer_with_its_settings() {
    let group = ParamGroup { rate: 0.5, weight_decay: Some(0.25), ..ParamGroup::default() };
    on_each(devices(), |device| {
        for name in Optimizer::NAMES {
            let optimizer = Optimizer::named(name).expect("known").with_learning_rate(0.01);
            let options = |optimizer| PlanOptions { optimizer, ..PlanOptions::default() };
            let plan = |groups: &[(&str, ParamGroup)], optimizer| {
                step(groups).plan(&options(optimizer), device.limits()).expect("planned")
            };
            let grouped = train(device, &plan(&[("fc2.*", group), ("norm.*", group)], optimizer));
            let whole = train(device, &plan(&[("*", group)], optimizer));
            let without = train(device, &plan(&[], optimizer));
            // The first layer's gradients depend on the others' weights, but not in the first step.
            let moved = |name: &str| without[name] != grouped[name];
            assert!(moved("fc2.weight") && moved("fc2.bias") && moved("norm.weight"), "{name}");
            // A rate of 0.5 is exact. Adafactor's rate is relative and limited by the step.
            if name != "adafactor" {
                let other =
                    train(device, &plan(&[], optimizer.with_learning_rate(0.005).with_weight_decay(0.25)));
                for (param, wanted) in &other {
                    assert_same_bits(&format!("{name}: {param}"), wanted, &whole[param]);
                }
            }
        }
    });
}

#[test]
fn updates_of_groups_match_the_twin_and_are_fused_within_their_group() {
    let none = ParamGroup { weight_decay: Some(0.0), ..ParamGroup::default() };
    let slow = ParamGroup { rate: 0.1, ..ParamGroup::default() };
    on_each(devices(), |device| {
        let half = WeightStorage::Bf16(Rounding::Nearest);
        for (weights, loss_scale) in
            [(WeightStorage::F32, None), (WeightStorage::F32, Some(LossScale::default())), (half, None)]
        {
            let optimizer: Optimizer = AdamW { lr: 0.01, weight_decay: 0.3, ..AdamW::default() }.into();
            let options = PlanOptions { optimizer, weights, loss_scale, ..PlanOptions::default() };
            let step = step(&[("*.bias", none), ("norm.*", none), ("fc1.weight", slow)]);
            let plan = step.plan(&options, device.limits()).expect("planned");
            let fused: usize = plan.graph().fused_updates.iter().map(|fused| fused.updates.len()).sum();
            assert!(weights != WeightStorage::F32 || fused == 4, "{fused} updates are fused");
            let found = train(device, &plan);
            let mut twin = Twin::new(plan.graph());
            for i in 0..2 {
                twin.set_f32("x", &noise(i, BATCH * 64, -1.0, 1.0)).expect("valid");
                twin.set_step(&optimizer.scalars(i, 0.01, plan.seed));
                twin.run().expect("it runs");
            }
            for (name, found) in &found {
                let wanted = twin.parameter(name).expect("there");
                // Adam's steps are quotients, whose sign may differ where the gradient is a rounding error.
                let far = |(a, b): &(&f32, &f64)| (f64::from(**a) - **b).abs() > 2e-4 + 0.008 * b.abs();
                let far = found.iter().zip(wanted).filter(far).count();
                assert!(far <= wanted.len() / 100, "{name}: {far} of {} differ", wanted.len());
            }
        }
    });
}

#[test]
fn frozen_parameters_stay_and_are_saved_and_loaded() {
    let frozen = ParamGroup { frozen: true, weight_decay: Some(0.5), ..ParamGroup::default() };
    let folder = Folder::new("frozen");
    on_each(devices(), |device| {
        for weights in [WeightStorage::F32, WeightStorage::Bf16(Rounding::Stochastic)] {
            let optimizer: Optimizer = AdamW { lr: 0.01, weight_decay: 0.3, ..AdamW::default() }.into();
            let options = PlanOptions { optimizer, weights, ..PlanOptions::default() };
            let step = step(&[("fc1.*", frozen), ("norm.bias", frozen)]);
            let plan = step.plan(&options, device.limits()).expect("planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            let names: Vec<_> = plan.graph().parameters.iter().map(|p| p.name().to_owned()).collect();
            let all = |session: &mut Session| -> Vec<Vec<f32>> {
                names.iter().map(|name| session.parameter(name).expect("there")).collect()
            };
            let start = all(&mut session);
            for step in 0..2 {
                session.feed("x", &noise(step, BATCH * 64, -1.0, 1.0)).expect("valid");
                session.step().expect("it runs");
            }
            let end = all(&mut session);
            for ((name, start), end) in names.iter().zip(&start).zip(&end) {
                let stays = name.starts_with("fc1.") || name == "norm.bias";
                assert_eq!(start == end, stays, "{name}");
            }
            assert!(session.parameter("fc1.weight.exp_avg").is_err());
            let path = folder.join("m.safetensors");
            session.save_with(&path, &SaveOptions::training_state()).expect("saved");
            let mut other = Session::new(device, &plan).expect("it opens");
            let moved = vec![7.0; start[0].len()];
            other.set_parameter(&names[0], &moved).expect("there");
            other.load(&path).expect("loaded");
            assert_eq!((all(&mut other), other.steps()), (end, 2));
        }
    });
}

/// A table that an embedding reads, and two layers.
fn step_with_a_table(groups: impl FnOnce(&Params)) -> TrainStep {
    let params = Params::new(2);
    let table = Embedding::new(&params.scope("table"), 30, 16);
    let fc = Linear::new(&params.scope("fc"), 16, 20);
    let head = Linear::new(&params.scope("head"), 20, 5);
    groups(&params);
    let step = TrainStep::trace(&params, |trace| {
        let y = table.forward(&trace.ids("x", [BATCH], 30)).apply(&fc).relu().apply(&head);
        y.cross_entropy(&trace.labels("y", [BATCH], 5))
    });
    step.expect("valid")
}

/// Of each parameter: whether it is updated by a step of its matrix, and the factor of its rate. Others have AdamW's state.
fn updates(step: &TrainStep, optimizer: Optimizer, of_matrices: &[&str]) -> BTreeMap<String, (bool, f32)> {
    let options = PlanOptions { optimizer, fuse: false, ..PlanOptions::default() };
    let plan = step.plan(&options, &Limits::default()).expect("planned");
    let graph = plan.graph();
    let shape_of = |name: &str| graph.values.iter().find(|value| value.name == name).map(|value| value.shape);
    let mut found = BTreeMap::new();
    for node in &graph.nodes {
        if let Op::Update { rule, rate, .. } = &node.op {
            let name = graph.value(node.inputs[0]).name.to_string();
            let of_matrix = matches!(rule, Update::Sgd { .. });
            for suffix in ["momentum_buffer", "exp_avg", "exp_avg_sq"] {
                let state = shape_of(&format!("{name}.{suffix}"));
                let own = if of_matrix { of_matrices.contains(&suffix) } else { suffix != "momentum_buffer" };
                assert_eq!(state.is_some(), own, "{name}.{suffix}");
                let whole = state.is_none_or(|shape| Some(shape) == shape_of(&name));
                assert!(of_matrix || whole, "{name}.{suffix}");
            }
            found.insert(name, (of_matrix, *rate));
        }
    }
    found
}

/// Muon updates matrices; AdamW updates vectors, tables that an embedding reads, and groups that are not orthogonal, at
/// its own rate.
#[test]
fn muon_leaves_vectors_tables_and_the_head_to_adamw() {
    let group = ParamGroup { orthogonal: false, rate: 0.5, ..ParamGroup::default() };
    let step = step_with_a_table(|params| {
        params.set_group("head.*", group).expect("there are such parameters");
    });
    let optimizer = Muon { adamw_rate: 0.25, ..Muon::default() };
    let wanted = [
        ("fc.bias", (false, 0.25)),
        ("fc.weight", (true, 1.0)),
        ("head.bias", (false, 0.125)),
        ("head.weight", (false, 0.125)),
        ("table.weight", (false, 0.25)),
    ];
    let found = updates(&step, optimizer.into(), &["momentum_buffer"]);
    assert_eq!(found, wanted.map(|(name, how)| (name.to_owned(), how)).into());
}

/// APOLLO projects matrices with more rows and columns than its rank, and AdamW updates all others at the same rate.
#[test]
fn apollo_leaves_vectors_tables_and_small_matrices_to_adamw() {
    let step = step_with_a_table(|_| {});
    for (rank, head) in [(5, false), (4, true)] {
        let optimizer = Apollo { rank, ..Apollo::default() };
        let wanted = [
            ("fc.bias", (false, 1.0)),
            ("fc.weight", (true, 1.0)),
            ("head.bias", (false, 1.0)),
            ("head.weight", (head, 1.0)),
            ("table.weight", (false, 1.0)),
        ];
        let found = updates(&step, optimizer.into(), &["exp_avg", "exp_avg_sq"]);
        assert_eq!(found, wanted.map(|(name, how)| (name.to_owned(), how)).into(), "rank {rank}");
    }
}
