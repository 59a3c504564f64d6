//! Small networks of each kind, and the results of a few steps of training, for plans that must give the same
//! bits.

use wgrad::compile::{Plan, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::FrozenStorage;
use wgrad::exec::{LocalTransport, Session};
use wgrad::graph::{Indices, LoraConfig, Params, STEP_SCALARS, Tensor, Window};
use wgrad::models::{Gpt, GptConfig, Mlp, ResNet, Sequence};
use wgrad::nn::{BatchNorm2d, Conv2d, ConvTranspose2d, Embedding, Linear, Module};
use wgrad::optim::{Optimizer, Sgd};

use super::{noise, some_labels};

pub const BATCH: usize = 4;
pub const STEPS: usize = 4;
pub const CLASSES: usize = 5;

const GPT: GptConfig =
    GptConfig { vocabulary: 29, context: 11, layers: 2, heads: 2, width: 24, dropout: 0.2 };

/// Returns a training step of `mlp`, `wide`, `one weight`, `cnn`, `plain`, `resnet`, `tables`, `gpt`, or with a format such as `lora nf4` of
/// adapters of `gpt`, whose own weights are stored so; `dora nf4` trains lengths of rows, too.
pub fn network(name: &str, batch: usize) -> TrainStep {
    let params = Params::new(7);
    let dora = name.starts_with("dora ");
    let base = name.strip_prefix(if dora { "dora " } else { "lora " });
    if let Some(base) = base {
        let base = Some(FrozenStorage::named(base).expect("a format"));
        let lora = LoraConfig { rank: 4, dropout: 0.1, dora, base, ..LoraConfig::default() };
        params.adapt(&lora).expect("valid");
    }
    if name == "gpt" || base.is_some() {
        let gpt = Gpt::new(&params, &GPT).expect("valid");
        let shape = [batch, GPT.context];
        let step = TrainStep::trace(&params, |trace| {
            let words = GPT.vocabulary as u32;
            gpt.loss(&trace.ids("x", shape, words), &trace.labels("y", shape, words))
        });
        return step.expect("valid");
    }
    if name == "tables" {
        return tables(&params, batch);
    }
    let (sample, net): (Vec<usize>, Box<dyn Module>) = match name {
        "mlp" => (vec![24], Box::new(Dropping(Mlp::new(&params, &[24, 40, 33, 40, 24, 5])))),
        "one weight" => (vec![24], Box::new(Linear::without_bias(&params, 24, CLASSES))),
        "wide" => (vec![24], Box::new(Mlp::new(&params, &[24, 100, 90, 5]))),
        "cnn" => (vec![2, 9, 9], Box::new(Cnn::new(&params))),
        "plain" => (vec![2, 9, 11], Box::new(Plain::new(&params))),
        _ => (vec![3, 10, 10], Box::new(Dropping(ResNet::small(&params, 3, &[(8, 2), (12, 2)], CLASSES)))),
    };
    let shape = [&[batch], &sample[..]].concat();
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", wgrad::shape::Shape::try_new(&shape).expect("small"));
        net.forward(&x).cross_entropy(&trace.labels("y", [batch], CLASSES as u32))
    });
    step.expect("valid")
}

/// A table that is looked up twice and is the output layer as well, one that is looked up once, and one with fewer rows than a
/// batch of 8 parts looks up.
fn tables(params: &Params, batch: usize) -> TrainStep {
    let table = |name: &str, rows, columns| Embedding::new(&params.scope(name), rows, columns);
    let (tied, once, few) = (table("tied", 270, 20), table("once", 300, 2), table("few", 13, 6));
    let fc = Linear::new(&params.scope("fc"), 8, 20);
    let step = TrainStep::trace(params, |trace| {
        let ids = |name: &str, table: &Embedding| {
            trace.ids(name, [batch, 3], table.weight.shape().dims()[0] as u32)
        };
        let words = ids("x", &tied);
        let last = words.slice(1, 2..3).apply(&tied).mean(&[1]);
        let tags = ids("tags", &once).apply(&once).concat(&[&ids("kinds", &few).apply(&few)], 2).mean(&[1]);
        let hidden = words.apply(&tied).mean(&[1]).add(&last).add(&tags.apply(&fc)).tanh();
        let logits = hidden.matmul_transposed(&trace.param(&tied.weight), false, true);
        logits.cross_entropy(&trace.labels("y", [batch], 270))
    });
    step.expect("valid")
}

/// Applies dropout to the input of a module.
struct Dropping<M>(M);

impl<M: Module> Module for Dropping<M> {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.0.forward(&x.scale(1.5).dropout(0.2))
    }
}

/// Convolutions with normalisation, dropout between them, and functions whose operands are saved.
struct Cnn {
    convs: Vec<(Conv2d, BatchNorm2d)>,
    fc: Linear,
}

impl Cnn {
    fn new(params: &Params) -> Self {
        let conv = |i: usize| {
            let scope = params.scope(format!("block{i}"));
            let inputs = if i == 0 { 2 } else { 8 };
            let conv = Conv2d::new(&scope.scope("conv"), inputs, 8, Window::square(3).padding(1));
            (conv, BatchNorm2d::new(&scope.scope("norm"), 8))
        };
        Self { convs: (0..4).map(conv).collect(), fc: Linear::new(&params.scope("fc"), 8 * 16, CLASSES) }
    }
}

impl Module for Cnn {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for (i, (conv, norm)) in self.convs.iter().enumerate() {
            let y = x.apply(conv).apply(norm);
            x = if i % 2 == 0 { y.gelu().dropout(0.1) } else { y.relu() };
        }
        x.max_pool2d(Window::square(3).stride(2)).flatten(1).apply(&self.fc)
    }
}

/// Convolutions without norms: wide, depthwise and transposed, concatenated and added, followed by
/// elementwise functions.
struct Plain {
    inner: Conv2d,
    down: Conv2d,
    deep: Conv2d,
    up: ConvTranspose2d,
    outer: Conv2d,
    fc: Linear,
}

impl Plain {
    fn new(params: &Params) -> Self {
        let conv = |name: &str, from: usize, to: usize, window: Window| {
            Conv2d::new(&params.scope(name), from, to, window)
        };
        let same = Window::square(3).padding(1);
        Self {
            inner: conv("inner", 2, 6, same),
            down: conv("down", 6, 9, same.stride(2)),
            deep: Conv2d::grouped(&params.scope("deep"), 9, 9, same, 9),
            up: ConvTranspose2d::new(&params.scope("up"), 9, 5, same.stride(2)),
            outer: conv("outer", 11, 6, same),
            fc: Linear::new(&params.scope("fc"), 6 * 9 * 11, CLASSES),
        }
    }
}

impl Module for Plain {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = x.apply(&self.inner).relu();
        let y = x.apply(&self.down).gelu();
        let y = y.apply(&self.deep).relu().dropout(0.1).add(&y);
        let up = y.apply(&self.up).silu();
        let z = x.concat(&[&up], 1).apply(&self.outer).clamp(-1.0, 1.0);
        z.add(&x).tanh().flatten(1).apply(&self.fc)
    }
}

/// Returns the elements of some parts, each of `len`.
fn rows<T: Copy>(all: &[T], parts: &[u32], len: usize) -> Vec<T> {
    parts.iter().flat_map(|&part| &all[part as usize * len..][..len]).copied().collect()
}

/// Returns SGD with momentum, whose state depends on every gradient.
pub fn optimizer() -> Optimizer {
    Sgd { lr: 0.05, momentum: 0.9, ..Sgd::default() }.into()
}

/// Returns losses, parameters, running statistics and optimizer state of a few steps; the inputs are always
/// the same.
pub fn run(device: &Device, plan: &Plan) -> Vec<(String, Vec<f32>)> {
    run_parts(device, plan, 1, None)
}

/// Like [`run`], for a batch of `parts` parts. A rank feeds the samples of its own parts.
pub fn run_parts(
    device: &Device,
    plan: &Plan,
    parts: u32,
    transport: Option<LocalTransport>,
) -> Vec<(String, Vec<f32>)> {
    let mut session = Session::new(device, plan).expect("it opens");
    if let Some(transport) = transport {
        session.set_transport(Box::new(transport)).expect("the ranks agree");
    }
    let results = train(&mut session, plan, parts, 0..STEPS as u64);
    assert_eq!(session.device_bytes(), plan.footprint().total(), "no step creates a buffer");
    results
}

/// Trains with the samples of these steps.
pub fn train(
    session: &mut Session,
    plan: &Plan,
    parts: u32,
    steps: std::ops::Range<u64>,
) -> Vec<(String, Vec<f32>)> {
    assert_eq!(session.device_bytes(), plan.footprint().total(), "bytes created and planned");
    let inputs = || plan.graph().inputs().filter(|(_, value)| value.name != STEP_SCALARS);
    let mut losses = Vec::new();
    let own = plan.parallel.parts(parts);
    for step in steps {
        for (_, input) in inputs() {
            let (name, part) = (&input.name, input.shape.numel() as usize / own.len());
            let count = part * parts as usize;
            match input.indices {
                Some(Indices::Labels(n) | Indices::Ids(n)) => {
                    session.feed(name, &rows(&some_labels(step, count, n), &own, part)).expect("valid");
                }
                None => {
                    session.feed(name, &rows(&noise(step, count, -1.0, 1.0), &own, part)).expect("valid");
                }
            }
        }
        session.step().expect("it runs");
        losses.push(session.loss().expect("a finite loss"));
    }
    let mut results = vec![("losses".to_owned(), losses)];
    for storage in plan.program.storages.iter().filter(|s| s.persistent) {
        results.push((storage.name.clone(), session.parameter(&storage.name).expect("there")));
    }
    results
}
