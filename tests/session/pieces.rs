//! Tensors larger than a binding: activations are computed in parts of the batch, parameters read and updated in pieces.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::{devices, noise, on_each, some_labels};
use wgrad::Error;
use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::{FrozenStorage, Rounding, WeightStorage};
use wgrad::exec::{Debug, Eager, ProgramId, Session};
use wgrad::graph::{Init, LoraConfig, Param, Params, RunningStats, Tensor, Trace, Window};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::nn::{Embedding, Linear, Module};
use wgrad::optim::{Adam8bit, AdamW, Clip, Optimizer};

const BATCH: usize = 6;
const ROWS: u32 = 1500;
/// Below the table, and below a batch of images with 16 channels; above one sample.
const BINDING: u64 = 100_000;
/// Holds one piece of the table, and not a second one.
const BUFFER: u64 = 131_072;

/// A network with a table, matrices and images larger than [`BINDING`].
struct Network {
    params: Params,
    table: Param,
    kernels: [Param; 2],
    norm: [Param; 4],
}

impl Network {
    fn new() -> Self {
        let params = Params::new(5);
        let table = params.add("table", [ROWS as usize, 24], Init::Uniform(0.5));
        let kernels = [("grow", [16, 1, 3, 3], 9), ("shrink", [2, 16, 1, 1], 16)]
            .map(|(name, shape, fan_in)| params.add(name, shape, Init::fan_in(fan_in)));
        let norm = [
            params.add("norm.weight", [16], Init::Constant(1.0)),
            params.add("norm.bias", [16], Init::Constant(0.1)),
            params.add_buffer("norm.mean", [16], Init::Constant(0.0)),
            params.add_buffer("norm.var", [16], Init::Constant(1.0)),
        ];
        Self { params, table, kernels, norm }
    }

    fn logits(&self, trace: &Trace, training: bool) -> Tensor {
        let table = trace.param(&self.table);
        let [grow, shrink] = [0, 1].map(|i| trace.param(&self.kernels[i]));
        let [gamma, beta, mean, var] = [0, 1, 2, 3].map(|i| trace.param(&self.norm[i]));
        let x = trace.input("x", [BATCH, 1, 24, 24]);
        let wide = x.conv2d(&grow, None, Window::square(3).padding(1), 1);
        let running = RunningStats { mean: &mean, var: &var, momentum: 0.1 };
        let normed = match training {
            true => wide.batch_norm_train(&gamma, &beta, 1e-5, Some(&running)),
            false => wide.batch_norm_eval(&gamma, &beta, &mean, &var, 1e-5),
        };
        let narrow = normed.relu().add(&wide).conv2d(&shrink, None, Window::square(1), 1).mean(&[1, 2]);
        let ids = trace.ids("ids", [BATCH, 3], ROWS);
        let hidden = table.embedding(&ids).sum(&[1]).add(&narrow);
        hidden.matmul_transposed(&table, false, true)
    }

    fn step(&self) -> TrainStep {
        let loss = |trace: &Trace| self.logits(trace, true).cross_entropy(&trace.labels("y", [BATCH], ROWS));
        TrainStep::trace(&self.params, loss).expect("valid")
    }

    fn forward(&self) -> Forward {
        Forward::trace(&self.params, "logits", |trace| self.logits(trace, false)).expect("valid")
    }
}

fn images(step: u64) -> Vec<f32> {
    noise(step, BATCH * 24 * 24, -1.0, 1.0)
}

/// The losses of three steps.
fn train(session: &mut Session) -> Vec<f32> {
    let step = |step: u64| {
        session.feed("x", &images(step)).expect("images");
        session.feed("ids", &some_labels(step, BATCH * 3, ROWS)).expect("ids");
        session.feed("y", &some_labels(step + 7, BATCH, ROWS)).expect("labels");
        session.step().expect("it runs");
        session.loss().expect("finite")
    };
    (0..3).map(step).collect()
}

/// Weights of 24 bits: `bf16` and signed bytes with 1/256 of the distance to the next number.
fn corrected([weights, words]: &[Vec<f32>; 2]) -> Vec<f32> {
    let byte = |i: usize| (words[i / 4].to_bits() >> (i % 4 * 8)) as u8 as i8;
    let one = |(i, weight): (usize, &f32)| {
        f32::from_bits(weight.to_bits().wrapping_add_signed(i32::from(byte(i)) * 256))
    };
    weights.iter().enumerate().map(one).collect()
}

fn open(device: &Device, plans: &[&Plan]) -> Session {
    let session = Session::with_plans(device, plans, Debug { poison: true }).expect("it opens");
    let planned = plans[0].footprint().total();
    assert!(plans.len() > 1 || session.device_bytes() == planned, "bytes created and planned");
    session
}

#[test]
fn tensors_in_pieces_train_as_whole_ones() {
    let network = Network::new();
    on_each(devices(), |device| {
        let whole = device.limits().clone();
        let (adamw, adam8bit): (Optimizer, Optimizer) = (AdamW::default().into(), Adam8bit::default().into());
        let rounded = WeightStorage::Bf16(Rounding::Nearest);
        let cases = [
            (adamw, WeightStorage::F32, Clip::Norm(0.5), whole.max_buffer),
            (adam8bit, WeightStorage::F32, Clip::Off, whole.max_buffer),
            (adamw, WeightStorage::F32, Clip::Norm(0.5), BUFFER),
            (adamw, rounded, Clip::Off, whole.max_buffer),
            (adam8bit, WeightStorage::Bf24, Clip::Off, BUFFER),
        ];
        for (optimizer, weights, clip, max_buffer) in cases {
            let small = Limits { max_binding: BINDING, max_buffer, ..whole.clone() };
            let options = PlanOptions { optimizer, weights, clip, ..PlanOptions::default() };
            let plan = |limits: &Limits| network.step().plan(&options, limits).expect("it fits");
            let (whole, parts) = (plan(&whole), plan(&small));
            assert!(parts.program.launches.len() > whole.program.launches.len(), "nothing was split");
            let [mut one, mut other] = [&whole, &parts].map(|plan| open(device, &[plan]));
            let near = Near { rel: 1e-4, abs: 1e-5 };
            let losses: Vec<f64> = train(&mut one).into_iter().map(f64::from).collect();
            assert_close("losses", &train(&mut other), &losses, near);
            let names = whole.program.storages.iter().filter(|storage| storage.persistent);
            let words = |name: &str| name.contains("8bit") || name.ends_with(".correction");
            for name in names.map(|storage| storage.name.as_str()).filter(|name| !words(name)) {
                let wanted =
                    one.parameter(name).expect("there").into_iter().map(f64::from).collect::<Vec<_>>();
                assert_close(
                    name,
                    &other.parameter(name).expect("there"),
                    &wanted,
                    Near { rel: 1e-2, ..near },
                );
            }
            if weights == WeightStorage::Bf24 {
                let [one, other] = [&mut one, &mut other].map(|session| {
                    let read =
                        ["table", "table.correction"].map(|name| session.parameter(name).expect("there"));
                    corrected(&read)
                });
                let one: Vec<f64> = one.into_iter().map(f64::from).collect();
                assert_close("the table in 24 bits", &other, &one, Near { rel: 1e-3, abs: 1e-4 });
            }
            // The state of one continues in the other.
            let state = other.state().expect("it is read");
            one.set_state(&state).expect("the same names and sizes");
            assert_eq!(one.parameters_hash().expect("read"), other.parameters_hash().expect("read"));
            let there = other.parameter_on_device("table").map(|table| table.bytes);
            let bytes = u64::from(ROWS) * 24 * if weights == WeightStorage::F32 { 4 } else { 2 };
            if bytes > max_buffer {
                assert!(matches!(there, Err(Error::Unsupported { .. })), "the table is in two buffers");
            } else {
                assert_eq!(there.expect("in one buffer"), bytes);
            }
            // An open session continues with the other plan.
            one.replan(&[&parts]).expect("it fits");
            assert_same_bits("a step after replanning", &train(&mut one), &train(&mut other));
            assert_eq!(one.parameters_hash().expect("read"), other.parameters_hash().expect("read"));
        }
    });
}

#[test]
fn planned_and_eager_runs_in_pieces_give_the_same_bits() {
    let network = Network::new();
    on_each(devices(), |device| {
        for (accumulate, max_buffer) in
            [(1, device.limits().max_buffer), (2, device.limits().max_buffer), (1, BUFFER)]
        {
            let small = Limits { max_binding: BINDING, max_buffer, ..device.limits().clone() };
            let options = PlanOptions { accumulate, ..PlanOptions::default() };
            let plan = network.step().plan(&options, &small).expect("it fits");
            let forward = network.forward().plan(&small).expect("it fits");
            let mut session = open(device, &[&plan, &forward]);
            let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
            let times = accumulate as usize;
            let x = images(1).repeat(times);
            let ids = some_labels(2, BATCH * 3 * times, ROWS);
            let y = some_labels(3, BATCH * times, ROWS);
            for _ in 0..2 {
                session.feed("x", &x).and(session.feed("ids", &ids)).and(session.feed("y", &y)).expect("fed");
                eager.feed("x", &x).and(eager.feed("ids", &ids)).and(eager.feed("y", &y)).expect("fed");
                session.step().expect("it runs");
                eager.step().expect("it runs");
            }
            for name in ["table", "table.exp_avg", "grow", "norm.var"] {
                let [a, b] =
                    [session.parameter(name), eager.parameter(name)].map(|read| read.expect("there"));
                assert_same_bits(name, &a, &b);
            }
            session.feed_to(ProgramId(1), "x", &images(4)).expect("images");
            session.feed_to(ProgramId(1), "ids", &ids[..BATCH * 3]).expect("ids");
            session.run(ProgramId(1)).expect("it runs");
            let logits: Vec<f32> = session.output(ProgramId(1), "logits").expect("an output");
            assert!(logits.iter().all(|logit| logit.is_finite()) && logits.len() == BATCH * ROWS as usize);
        }
    });
}

/// Weights that are not trained are read in pieces as they are stored: a table in 16 bits, and a matrix in each storage.
#[test]
fn frozen_weights_in_pieces_are_read_as_whole_ones() {
    on_each(devices(), |device| {
        let whole = device.limits().clone();
        let bindings =
            [(FrozenStorage::Nf4, 40_000), (FrozenStorage::Int8, 50_000), (FrozenStorage::F16, 60_000)];
        for (storage, max_binding) in bindings {
            let params = Params::new(3);
            let adapters = LoraConfig { rank: 4, base: Some(storage), ..LoraConfig::default() };
            params.adapt(&adapters).expect("valid");
            let table = Embedding::new(&params.scope("table"), ROWS as usize, 64);
            let head = Linear::new(&params.scope("head"), 64, ROWS as usize);
            let step = TrainStep::trace(&params, |trace| {
                let hidden = table.forward(&trace.ids("ids", [BATCH], ROWS)).tanh();
                head.forward(&hidden).cross_entropy(&trace.labels("y", [BATCH], ROWS))
            });
            let step = step.expect("valid");
            // Each piece lies in a buffer of its own.
            let small = Limits { max_binding, max_buffer: max_binding, ..whole.clone() };
            let plans =
                [&whole, &small].map(|limits| step.plan(&PlanOptions::default(), limits).expect("it fits"));
            let parts = plans[1].graph().values.iter().filter(|value| value.name.contains(".rows"));
            let parts: Vec<_> = parts.map(|value| value.name.as_str()).collect();
            assert!(
                ["table", "head"].iter().all(|of| parts.iter().any(|name| name.starts_with(of))),
                "{parts:?}"
            );
            let [one, other] = plans.each_ref().map(|plan| {
                let mut session = open(device, &[plan]);
                let losses: Vec<f32> = (0..3)
                    .map(|step| {
                        session.feed("ids", &some_labels(step, BATCH, ROWS)).expect("ids");
                        session.feed("y", &some_labels(step + 7, BATCH, ROWS)).expect("labels");
                        session.step().expect("it runs");
                        session.loss().expect("finite")
                    })
                    .collect();
                let held =
                    ["table.weight", "head.weight"].map(|name| session.parameter(name).expect("there"));
                (losses, held, session.parameter("head.lora_B.weight").expect("there"))
            });
            for (a, b) in one.1.iter().zip(&other.1) {
                assert_same_bits("a frozen weight", a, b);
            }
            let wide = |numbers: &[f32]| numbers.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let near = Near { rel: 1e-4, abs: 1e-5 };
            assert_close("losses", &other.0, &wide(&one.0), near);
            assert_close("an adapter", &other.2, &wide(&one.2), Near { rel: 1e-2, ..near });
        }
    });
}
