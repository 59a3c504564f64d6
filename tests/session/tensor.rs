//! Layers that several ranks compute together: the results of one device, within rounding.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::networks::{BATCH, network, run_parts, train};
use crate::support::ranks::on_ranks;
use crate::support::{devices, on_each};
use wgrad::compile::{Forward, Parallel, Plan, PlanOptions, Recompute, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::{FrozenStorage, Precision, WeightStorage};
use wgrad::exec::{Debug, ProgramId, Session, SessionState};
use wgrad::graph::{Attention, Class, LoraConfig, LossScale, Params, Tensor};
use wgrad::models::{Llama, LlamaConfig, Model, ModelOptions, Sequence};
use wgrad::nn::Linear;
use wgrad::optim::{AdamW, Clip, Optimizer, Sgd};

type State = Vec<(String, Vec<f32>)>;

/// A step of this length moves parameters little enough that rounding errors stay rounding errors.
fn options() -> PlanOptions {
    let optimizer = Sgd { lr: 0.01, momentum: 0.9, ..Sgd::default() }.into();
    PlanOptions { optimizer, ..PlanOptions::default() }
}

fn plan(device: &Device, step: &TrainStep, options: &PlanOptions, rank: u32, ranks: u32) -> Plan {
    let parallel = Parallel { tensor: ranks, ..Parallel::of(rank, ranks) };
    step.plan(&PlanOptions { parallel, ..*options }, device.limits()).expect("planned")
}

/// A Llama with two queries for each key, norms of queries and keys, and tokens of its own; with adapters over a frozen base.
fn llama(batch: usize, base: Option<FrozenStorage>) -> TrainStep {
    let params = Params::new(3);
    if base.is_some() {
        let adapters = LoraConfig { rank: 4, base, ..LoraConfig::default() };
        params.adapt(&adapters).expect("valid");
    }
    let config = LlamaConfig {
        vocabulary: 31,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_size: 8,
        width: 24,
        hidden: 36,
        qk_norm: true,
        ..LlamaConfig::TINY
    };
    let llama = Llama::new(&params, &config).expect("valid");
    let step = TrainStep::trace(&params, |trace| {
        llama.loss(&trace.ids("x", [batch, 9], 31), &trace.labels("y", [batch, 9], 31))
    });
    step.expect("valid")
}

/// Returns the parameters of which each rank has a part.
fn split(plan: &Plan) -> Vec<&str> {
    let values = plan.graph().values.iter();
    let parts = values.filter(|value| value.class == Class::Parameter && value.part_of.is_some());
    parts.map(|value| &*value.name).collect()
}

/// Packed queries, keys and values of four heads whose scores fall by different slopes, and whose weights are dropped.
fn alibi(batch: usize) -> TrainStep {
    let params = Params::new(11);
    let layer = |name: &str, outputs: usize| Linear::new(&params.scope(name), 32, outputs);
    let [packed, last] = [("qkv", 96), ("out", 32)].map(|(name, outputs)| layer(name, outputs));
    let attention = Attention { alibi: true, dropout: 0.3, ..Attention::causal() };
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [batch, 7, 32]);
        let heads = x.apply(&packed).reshape([batch, 7, 12, 8]).self_attention(4, 4, &attention);
        let y = heads.reshape([batch, 7, 32]).apply(&last).add(&x);
        y.mul(&y).mean(&[])
    });
    step.expect("valid")
}

fn assert_equals_one_device(
    device: &Device,
    (name, step, ranks): (&str, &TrainStep, u32),
    options: &PlanOptions,
    near: f64,
) {
    let parts = options.accumulate;
    let wanted = run_parts(device, &step.plan(options, device.limits()).expect("planned"), parts, None);
    let all: Vec<State> = on_ranks(ranks, |rank, transport| {
        run_parts(device, &plan(device, step, options, rank, ranks), parts, Some(transport))
    });
    for ((name_of, wanted), found) in wanted.iter().zip(&all[0]) {
        let what = format!("{name}: {name_of}");
        assert_eq!(*name_of, found.0);
        let largest = wanted.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
        let wanted: Vec<f64> = wanted.iter().map(|x| f64::from(*x)).collect();
        assert_close(&what, &found.1, &wanted, Near { rel: near, abs: near * largest + 1e-6 });
    }
    for ((name_of, first), other) in all.iter().skip(1).flat_map(|other| all[0].iter().zip(other)) {
        assert_same_bits(&format!("{name}, of all ranks: {name_of}"), first, &other.1);
    }
}

#[test]
fn perceptrons_and_heads_are_computed_together() {
    on_each(devices(), |device| {
        let clipped =
            PlanOptions { clip: Clip::Norm(0.1), loss_scale: Some(LossScale::default()), ..options() };
        assert_equals_one_device(device, ("mlp", &network("mlp", BATCH), 4), &options(), 1e-4);
        // Dropout of the embeddings, of attention's weights and of results.
        assert_equals_one_device(device, ("gpt", &network("gpt", BATCH), 2), &clipped, 1e-3);
        assert_equals_one_device(device, ("alibi", &alibi(BATCH), 4), &options(), 1e-3);
        let parts = PlanOptions { accumulate: 2, recompute: Recompute::Every(1), ..options() };
        assert_equals_one_device(device, ("llama", &llama(BATCH, None), 2), &parts, 1e-3);
        let adapted = llama(BATCH, Some(FrozenStorage::Bf16));
        assert_equals_one_device(device, ("adapters", &adapted, 2), &options(), 1e-3);
    });
}

/// Adapters are split as the layers are that they belong to, and not by themselves: the ranks would exchange whole results.
#[test]
fn layers_are_split_and_not_their_adapters_alone() {
    let limits = devices()[0].limits();
    let options = PlanOptions { parallel: Parallel { tensor: 2, ..Parallel::of(0, 2) }, ..options() };
    let plan = llama(BATCH, Some(FrozenStorage::Bf16)).plan(&options, limits).expect("planned");
    let found = split(&plan);
    let count = |name: &str| found.iter().filter(|found| found.ends_with(name)).count();
    // Columns of the first product's adapter, rows of the second one's.
    assert_eq!(
        ["proj.weight", "lora_B.weight", "lora_A.weight"].map(count),
        [2 * 7, 2 * 5, 2 * 2],
        "{found:?}"
    );
    // Codes are not split, and adapters over them have nothing else.
    let params = Params::new(0);
    params.adapt(&LoraConfig { base: Some(FrozenStorage::Nf4), ..LoraConfig::default() }).expect("valid");
    let small = ModelOptions { seq: Some(32), ..ModelOptions::default() };
    let step = Model::over(params, "smollm2-135m", &small).expect("known").train_step(1).expect("valid");
    let error = step.plan(&options, limits).map(|_| ()).expect_err("there is nothing to split").to_string();
    assert!(error.contains("no layer can be split") && error.contains("weights in 16 or 32 bits"), "{error}");
}

#[test]
fn sixteen_bits_are_computed_together() {
    // The kernels are those of 32 bits: an adapter each is enough.
    for (device, precision) in devices().iter().zip([Precision::F16, Precision::Bf16]) {
        let options = PlanOptions { precision, ..options() };
        assert_equals_one_device(device, ("gpt", &network("gpt", BATCH), 2), &options, 2e-2);
    }
}

/// A layer's weights are cut into columns and then into rows; biases of columns are cut with them.
#[test]
fn each_rank_has_a_part_of_the_weights() {
    let device = &devices()[0];
    let gpt = plan(device, &network("gpt", BATCH), &options(), 1, 2);
    let block = |i: usize| {
        [
            "attn.c_attn.weight",
            "attn.c_attn.bias",
            "attn.c_proj.weight",
            "mlp.c_fc.weight",
            "mlp.c_fc.bias",
            "mlp.c_proj.weight",
        ]
        .map(|name| format!("transformer.h.{i}.{name}"))
    };
    let mut wanted = [block(0), block(1)].concat();
    let mut found: Vec<String> = split(&gpt).into_iter().map(str::to_owned).collect();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    let whole = network("gpt", BATCH).plan(&options(), device.limits()).expect("planned");
    assert!(gpt.peak_bytes() < whole.peak_bytes());
    let llama = plan(device, &llama(BATCH, None), &options(), 0, 2);
    assert_eq!(split(&llama).len(), 2 * 7, "{:?}", split(&llama));
}

/// What two ranks have trained goes on on one device, and the other way round.
#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let device = &devices()[0];
    let optimizer: Optimizer = AdamW { lr: 1e-3, ..AdamW::default() }.into();
    let (step, options) = (network("gpt", BATCH), PlanOptions { optimizer, ..options() });
    let goes_on = |state: Option<&SessionState>, ranks: u32, steps: std::ops::Range<u64>| {
        let mut all = on_ranks(ranks, |rank, transport| {
            let plan = plan(device, &step, &options, rank, ranks);
            let mut session = Session::new(device, &plan).expect("it opens");
            if let Some(state) = state {
                session.set_state(state).expect("the same model");
            }
            session.set_transport(Box::new(transport)).expect("the ranks agree");
            train(&mut session, &plan, 1, steps.clone());
            (session.state().expect("read"), session.parameters_hash().expect("read"))
        });
        assert!(all.iter().all(|state| *state == all[0]), "{ranks} ranks");
        all.remove(0).0
    };
    let [one, two] = [1, 2].map(|ranks| goes_on(None, ranks, 0..2));
    // Without a step, a state is what it was before, cut and put together again.
    assert_eq!(goes_on(Some(&two), 1, 2..2), two);
    assert_eq!(goes_on(Some(&one), 2, 2..2), one);
    assert_ne!(goes_on(Some(&two), 2, 2..4), two);
}

/// A forward pass beside a training plan is split in the same way, even where it could be split further.
#[test]
fn an_evaluation_has_the_parts_of_the_training_step() {
    let device = &devices()[0];
    let params = Params::new(7);
    let layers = ["a", "b", "c", "d"].map(|name| Linear::new(&params.scope(name), 24, 24));
    let model = |x: &Tensor| {
        // In training, a draw is in the way of splitting the first two.
        let x = x.apply(&layers[0]).relu().dropout(0.1).apply(&layers[1]).tanh().scale(2.0);
        x.add(&x.apply(&layers[2]).gelu().apply(&layers[3]))
    };
    let loss = |y: Tensor| y.mul(&y).mean(&[]);
    let step = TrainStep::trace(&params, |trace| loss(model(&trace.input("x", [4, 24])))).expect("valid");
    let forward = Forward::trace(&params, "y", |trace| model(&trace.input("x", [4, 24]))).expect("valid");
    let data: Vec<f32> = (0..96).map(|i| i as f32 / 96.0 - 0.5).collect();
    let read = |session: &mut Session, id: usize| {
        session.feed_to(ProgramId(id), "x", &data).expect("fed");
        session.run(ProgramId(id)).expect("it runs");
        session.output(ProgramId(id), "y").expect("read")
    };
    let alone = forward.plan(device.limits()).expect("planned");
    let wanted = read(&mut Session::new(device, &alone).expect("it opens"), 0);
    let wanted: Vec<f64> = wanted.into_iter().map(f64::from).collect();
    let all = on_ranks(2, |rank, transport| {
        let train = plan(device, &step, &options(), rank, 2);
        assert_eq!(split(&train), ["c.weight", "c.bias", "d.weight"]);
        let beside = forward.plan_beside(&train, WeightStorage::F32, device.limits()).expect("planned");
        let mut session = Session::with_plans(device, &[&train, &beside], Debug::default()).expect("alike");
        session.set_transport(Box::new(transport)).expect("the ranks agree");
        read(&mut session, 1)
    });
    for found in all {
        assert_close("y", &found, &wanted, Near { rel: 1e-5, abs: 1e-6 });
    }
}
