//! Frozen parameters: nothing of their gradients, optimizer state and updates is in a plan.

use wgrad::compile::{Parallel, Plan, PlanOptions, Recompute, Shard, TrainStep, levers};
use wgrad::dtype::{DType, FrozenStorage, Precision, Rounding, WeightStorage};
use wgrad::graph::{Class, LoraConfig, LossScale, Op, Param, ParamGroup, Params, Phase, Value};
use wgrad::limits::Limits;
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::{AdamW, Clip, Optimizer};
use wgrad::reference::Twin;
use wgrad::units::Bytes;

fn model(name: &str, frozen: &[&str]) -> Model {
    let model = Model::named(name, 1).expect("a model");
    for pattern in frozen {
        model.params().freeze(pattern).expect("there are such parameters");
    }
    model
}

fn planned(step: &TrainStep, options: &PlanOptions) -> Plan {
    step.plan(options, &Limits::named("discrete").expect("a preset")).expect("planned")
}

/// Returns the layers that have an operation of the backward pass, and the names of updated parameters.
fn trained_parts(plan: &Plan) -> (Vec<&str>, Vec<&str>) {
    let graph = plan.graph();
    let backward = graph.nodes.iter().filter(|node| node.phase == Phase::Backward);
    let layers = backward.map(|node| &*node.layer).filter(|layer| !layer.is_empty()).collect();
    let updates = graph.nodes.iter().filter(|node| matches!(node.op, Op::Update { .. }));
    (layers, updates.map(|node| graph.value(node.inputs[0]).name.as_str()).collect())
}

#[test]
fn frozen_first_layers_have_no_backward_pass_and_no_state() {
    for (name, frozen, first) in [
        ("resnet18", ["conv1.*", "bn1.*", "layer1.*", "layer2.*"], &["conv1", "bn1", "layer1", "layer2"][..]),
        ("mlp", ["fc1.*", "fc1.weight", "fc2.weight", "fc2.bias"], &["fc1", "fc2"]),
    ] {
        let batch = 8;
        let options = PlanOptions::default();
        let all = planned(&model(name, &[]).train_step(batch).expect("valid"), &options);
        let some = planned(&model(name, &frozen).train_step(batch).expect("valid"), &options);
        let of = |layer: &str| {
            first.iter().any(|first| layer == *first || layer.starts_with(&format!("{first}.")))
        };
        let ((layers, updates), (all_layers, _)) = (trained_parts(&some), trained_parts(&all));
        assert!(all_layers.iter().any(|layer| of(layer)), "{name}: {all_layers:?}");
        assert!(!layers.iter().any(|layer| of(layer)), "{name}: {layers:?}");
        assert!(!updates.is_empty() && !updates.iter().any(|param| of(param)), "{name}: {updates:?}");
        let graph = some.graph();
        let states: Vec<_> = graph.values.iter().filter(|value| value.class == Class::Optimizer).collect();
        assert_eq!(states.len(), 2 * updates.len(), "{name}");
        // The parameters themselves stay.
        assert_eq!(graph.parameters.len(), all.graph().parameters.len());
        assert!(some.footprint().total() < all.footprint().total(), "{name}");
        assert!(some.program.launches.len() < all.program.launches.len(), "{name}");
    }
}

#[test]
fn frozen_values_do_not_move_and_others_move_as_before() {
    let decayed: Optimizer = AdamW { lr: 0.01, weight_decay: 0.5, ..AdamW::default() }.into();
    let half = WeightStorage::Bf16(Rounding::Nearest);
    let plain = PlanOptions { optimizer: decayed, ..PlanOptions::default() };
    for options in [
        plain,
        PlanOptions { clip: Clip::Norm(1e6), loss_scale: Some(LossScale::default()), ..plain },
        PlanOptions { accumulate: 2, recompute: Recompute::Every(1), ..plain },
        PlanOptions { precision: Precision::Bf16, weights: half, ..plain },
    ] {
        let moved = |frozen: &[&str]| -> Vec<(String, bool)> {
            let plan = planned(&model("digits", frozen).train_step(4).expect("valid"), &options);
            let mut twin = Twin::new(plan.graph());
            let parts = options.accumulate as usize;
            twin.set("x", &(0..4 * parts * 64).map(|i| f64::from(i as u32 % 7)).collect::<Vec<_>>())
                .expect("valid");
            twin.set("y", &vec![3.0; 4 * parts]).expect("valid");
            let start: Vec<(String, Vec<f64>)> = (plan.graph().parameters.iter())
                .filter_map(|param| {
                    Some((param.name().to_owned(), twin.parameter(param.name()).ok()?.to_vec()))
                })
                .collect();
            for step in 0..3 {
                twin.set_step(&decayed.scalars(step, 0.01, plan.seed));
                twin.run().expect("it runs");
            }
            let same = |name: &str, start: &[f64]| twin.parameter(name).expect("there") == start;
            start.into_iter().map(|(name, start)| (name.clone(), !same(&name, &start))).collect()
        };
        assert!(moved(&[]).iter().all(|(_, moved)| *moved));
        let frozen = moved(&["fc1.*", "*.bias"]);
        assert_eq!(frozen.len(), 6);
        for (name, moved) in frozen {
            assert_eq!(moved, name == "fc2.weight" || name == "fc3.weight", "{name}");
        }
    }
}

#[test]
fn a_step_in_which_everything_is_frozen_is_a_forward_pass() {
    let options = PlanOptions {
        clip: Clip::Norm(1.0),
        loss_scale: Some(LossScale::default()),
        ..PlanOptions::default()
    };
    let model = model("mlp", &["*"]);
    let plan = planned(&model.train_step(8).expect("valid"), &options);
    assert_eq!(trained_parts(&plan), (vec![], vec![]));
    model.params().set_group("fc3.*", ParamGroup::default()).expect("there is such a layer");
    let plan = planned(&model.train_step(8).expect("valid"), &options);
    assert_eq!(trained_parts(&plan).1.len(), 2);
}

/// A forward pass that was traced before can share a session with the step.
#[test]
fn frozen_parameters_are_stored_where_others_are() {
    for weights in [WeightStorage::F32, WeightStorage::Bf16(Rounding::Nearest)] {
        let options = PlanOptions { weights, ..PlanOptions::default() };
        let places = |frozen: &[&str]| -> Vec<_> {
            let plan = planned(&model("gpt-nano", frozen).train_step(2).expect("valid"), &options);
            let count = plan.graph().parameters.len();
            let bytes = plan.program.storages.iter().map(|storage| (storage.name.clone(), storage.bytes));
            bytes.zip(plan.layout.regions.clone()).take(count).collect()
        };
        assert_eq!(places(&["*.bias", "transformer.h.0.*"]), places(&[]));
    }
}

/// A table of which only a copy in 32 bits would be larger than a binding: no plan has that copy, so what plans save is
/// counted with it.
#[test]
fn savings_count_copies_that_no_plan_has() {
    let params = Params::new(0);
    params.adapt(&LoraConfig { base: Some(FrozenStorage::Bf16), ..LoraConfig::default() }).expect("valid");
    let options = ModelOptions { seq: Some(16), ..ModelOptions::default() };
    let model = Model::over(params, "llama-tiny", &options).expect("known");
    let step = model.train_step(1).expect("valid");
    let limits = Limits { max_binding: 30 << 20, ..Limits::named("discrete").expect("a preset") };
    let plan = step.plan(&PlanOptions::default(), &limits).expect("it fits its bindings");
    let savings = step.savings(&PlanOptions::default(), &limits).expect("counted");
    let table = plan.graph().values.iter().find(|value| value.name == "model.embed_tokens.weight");
    assert_eq!(table.expect("a table").bytes(), 32_000 * 288 * 2);
    assert!(savings.naive > plan.footprint().total() + 32_000 * 288 * 4, "{savings:?}");
}

/// A model under adapters takes less with its matrices in 8 or 4 bits: levers and errors say so, with the bytes of that plan.
#[test]
fn storing_frozen_matrices_in_fewer_bits_is_offered() {
    let limits = Limits::named("nvidia").expect("a preset");
    let options = PlanOptions { optimizer: AdamW::default().into(), ..PlanOptions::default() };
    let step = |lora: bool, base: Option<FrozenStorage>| {
        let params = Params::new(0);
        if lora {
            params.adapt(&LoraConfig { base, ..LoraConfig::default() }).expect("valid");
        }
        let small = ModelOptions { seq: Some(16), ..ModelOptions::default() };
        Model::over(params, "llama-tiny", &small).expect("known").train_step(1).expect("valid")
    };
    let offered = |lora, base| {
        let all = levers(|_| Ok(step(lora, base)), 1, &options, Bytes(1), &limits).expect("planned");
        all.into_iter().filter(|lever| lever.name.starts_with("frozen-weights")).collect::<Vec<_>>()
    };
    let found = offered(true, None);
    assert_eq!(found.len(), 2, "{found:?}");
    for storage in [FrozenStorage::Int8, FrozenStorage::Nf4] {
        let lever = found.iter().find(|lever| lever.name == format!("frozen-weights {}", storage.name()));
        let plan = step(true, Some(storage)).plan(&options, &limits).expect("planned");
        assert_eq!(lever.expect("offered").total_bytes, plan.footprint().total());
        assert!(!lever.expect("offered").exact);
    }
    assert_eq!(offered(true, Some(FrozenStorage::Nf4)).len(), 0);
    assert_eq!(offered(true, Some(FrozenStorage::Int8)).len(), 1);
    assert_eq!(offered(false, None).len(), 0);

    let smallest = step(true, Some(FrozenStorage::Nf4)).plan(&options, &limits).expect("planned");
    let tight = PlanOptions { budget: Some(Bytes(smallest.footprint().total())), ..options };
    let error = step(true, None).plan(&tight, &limits).expect_err("over budget").to_string();
    assert!(error.contains("`ParamGroup::storage`: `FrozenStorage::Nf4`"), "{error}");
    let error =
        step(true, Some(FrozenStorage::Int8)).plan(&tight, &limits).expect_err("over budget").to_string();
    assert!(error.contains("FrozenStorage::Nf4"), "{error}");
}

/// Adapters of all linear layers of a model whose feed-forward layers compute their rows in pieces.
fn adapted(base: FrozenStorage) -> TrainStep {
    let params = Params::new(0);
    params.adapt(&LoraConfig { rank: 16, base: Some(base), ..LoraConfig::default() }).expect("valid");
    let options = ModelOptions { seq: Some(2048), ..ModelOptions::default() };
    Model::over(params, "llama-3.2-1b", &options).expect("known").train_step(2).expect("valid")
}

/// A layer is a block, not its attention or its perceptron, whose input would be kept, nor a product of a piece or of an adapter.
#[test]
fn layers_with_adapters_and_pieces_are_recomputed() {
    let limits = Limits::named("nvidia").expect("a preset");
    let step = adapted(FrozenStorage::Nf4);
    let total = |recompute| {
        let options = PlanOptions { recompute, precision: Precision::Bf16, ..PlanOptions::default() };
        step.plan(&options, &limits).expect("planned").footprint().total()
    };
    let [off, one, two] = [Recompute::Off, Recompute::Every(1), Recompute::Every(2)].map(total);
    assert!(one < two && two < off * 6 / 10, "{} {} {}", Bytes(off), Bytes(one), Bytes(two));
}

/// Tables in 16 bits and output layers in 4 are read in pieces, as they are stored, and tables that are trained updated.
#[test]
fn weights_larger_than_the_bindings_of_browsers_are_in_pieces() {
    let limits = Limits::named("webgpu").expect("a preset");
    let step = |name: &str, base: Option<FrozenStorage>| {
        let params = Params::new(0);
        if base.is_some() {
            params.adapt(&LoraConfig { rank: 16, base, ..LoraConfig::default() }).expect("valid");
        }
        let options = ModelOptions { seq: Some(256), ..ModelOptions::default() };
        Model::over(params, name, &options).expect("known").train_step(1).expect("valid")
    };
    let (nf4, bf16) = (Some(FrozenStorage::Nf4), WeightStorage::Bf16(Rounding::Nearest));
    let cases = [
        ("llama-3.1-8b", nf4, WeightStorage::F32, Recompute::Every(2), Precision::Bf16),
        ("gpt2", None, bf16, Recompute::Off, Precision::Int8),
        ("gpt2", None, bf16, Recompute::Every(2), Precision::Bf16),
        ("gpt2", None, WeightStorage::Bf24, Recompute::Off, Precision::Bf16),
        ("gpt2", None, WeightStorage::F32, Recompute::Every(2), Precision::Bf16),
    ];
    for (name, base, weights, recompute, precision) in cases {
        let step = step(name, base);
        let options = PlanOptions { recompute, precision, weights, ..PlanOptions::default() };
        let plan = step.plan(&options, &limits).unwrap_or_else(|error| panic!("{name}: {error}"));
        let graph = plan.graph();
        let read = graph.nodes.iter().flat_map(|node| &node.inputs).map(|id| graph.value(*id));
        let rows = read.filter(|value| value.name.contains(".rows") && value.class != Class::Gradient);
        let held: Vec<DType> = rows.map(|value| value.dtype).collect();
        // Activations are rounded until the backward pass; rows of a weight are none.
        let wide = base.is_none() && weights == WeightStorage::F32;
        assert!(
            held.len() > 2 && held.iter().all(|dtype| (*dtype == DType::F32) == wide),
            "{name}: {held:?}"
        );
        let spans = plan.program.launches.iter().flat_map(|(launch, _)| &launch.memory);
        assert!(spans.map(|span| span.bytes).max() <= Some(limits.max_binding), "{name}");
    }
}

/// The search measures few plans of a network with many operations; it also starts from the plans of `every:N`.
#[test]
fn searches_find_what_rules_find() {
    let limits = Limits::named("nvidia").expect("a preset");
    let step = adapted(FrozenStorage::Nf4);
    let planned = |recompute, budget| {
        let options = PlanOptions { recompute, budget, precision: Precision::Bf16, ..PlanOptions::default() };
        let plan = step.plan(&options, &limits).expect("it fits");
        (plan.footprint().total(), plan.work.time_fraction())
    };
    for rule in [Recompute::Every(2), Recompute::Every(8)] {
        let (bytes, time) = planned(rule, None);
        let (found, least) = planned(Recompute::Auto, Some(Bytes(bytes)));
        assert!(
            found <= bytes && least <= time,
            "{rule:?}: {} at {least}, of {} at {time}",
            Bytes(found),
            Bytes(bytes)
        );
    }
}

/// Each rank has its share of what is not trained, as it is stored, and gathers it for the forward pass, for what is recomputed
/// and for the backward pass, but not for each piece of rows.
#[test]
fn ranks_have_shares_of_frozen_parameters() {
    let limits = Limits::named("nvidia").expect("a preset");
    for (base, ranks) in [(FrozenStorage::Bf16, 2), (FrozenStorage::Nf4, 4)] {
        let step = adapted(base);
        let [copies, shares] = [Shard::Optimizer, Shard::Parameters].map(|shard| {
            let options = PlanOptions {
                precision: Precision::Bf16,
                recompute: Recompute::Every(2),
                accumulate: ranks,
                parallel: Parallel { shard, ..Parallel::of(0, ranks) },
                ..PlanOptions::default()
            };
            step.plan(&options, &limits).expect("planned")
        });
        let large = |param: &&Param| param.shape().rank() >= 2;
        let stored = |param: &Param| {
            let mut values = copies.graph().values.iter();
            values.find(|value| value.name == param.name()).map_or(0, Value::bytes)
        };
        let all: u64 = copies.graph().parameters.iter().filter(large).map(stored).sum();
        let elsewhere = all - all / u64::from(ranks);
        let saved = copies.program.persistent_bytes() - shares.program.persistent_bytes();
        assert!(saved.abs_diff(elsewhere) <= elsewhere / 100, "{} of {}", Bytes(saved), Bytes(elsewhere));
        let gathered = shares.wire_bytes() - copies.wire_bytes();
        let (least, most) = (elsewhere * 3 / 2, elsewhere * 3);
        assert!((least..=most).contains(&gathered), "{} of {}", Bytes(gathered), Bytes(elsewhere));
        let total = |plan: &Plan| plan.footprint().total();
        assert!(total(&shares) < total(&copies) - saved / 2, "{base:?}");
    }
}

/// Layers compute rows of several documents in parts of the tokens, as they do others.
#[test]
fn long_rows_of_documents_take_hardly_more_than_one_document() {
    for (batch, seq) in [(4, 8192), (1, 32_768)] {
        let options = ModelOptions { seq: Some(seq), ..ModelOptions::default() };
        let model = || Model::with_options("smollm2-135m", 0, &options).expect("a model");
        let plan = |model: Model| {
            let precision = Precision::Bf16;
            let options = PlanOptions { precision, recompute: Recompute::Every(1), ..PlanOptions::default() };
            planned(&model.train_step(batch).expect("valid"), &options).footprint().total()
        };
        let (one, several) = (plan(model()), plan(model().of_documents().expect("it predicts tokens")));
        println!("{batch} of {seq} tokens: {one} bytes, and {several}");
        assert!(several as f64 <= 1.02 * one as f64, "{batch} of {seq} tokens: {one} bytes, and {several}");
    }
}
