//! Generated calls with hostile numbers: sizes around 0, powers of two and `usize::MAX`, tensors and parameters of
//! another trace, limits of no adapter. Each call gives a result or an error; none panics, in release or with
//! overflow checks, and none takes long.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::compile::{Offload, PlanOptions, Recompute, TrainStep};
use crate::dtype::{DType, Precision};
use crate::error::{Error, Result};
use crate::graph::{Attention, Init, LossScale, Mode, Params, Tensor, Trace, Window};
use crate::limits::Limits;
use crate::models::Model;
use crate::nn::{Conv2d, Embedding, GroupNorm, Linear, Module};
use crate::random;
use crate::shape::Shape;
use crate::units::Bytes;

const CALLS: usize = 4;

/// 20,000 calls in all; `WGRAD_HOSTILE` sets another number of programs.
fn programs() -> u64 {
    std::env::var("WGRAD_HOSTILE").ok().map_or(5000, |n| n.parse().expect("a number"))
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        self.0 += 1;
        (random::mix(self.0) % n as u64) as usize
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn odds(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A size: mostly small, so that calls are often valid.
    fn size(&mut self) -> usize {
        if self.odds(6) {
            let base = self.one(&[1usize << 16, 1 << 31, 1 << 32, 1 << 47, 1 << 62, usize::MAX]);
            return base.wrapping_add(self.below(3)).wrapping_sub(1);
        }
        self.one(&[0, 1, 1, 2, 2, 3, 4, 4, 5, 8, 16, 64])
    }

    fn small(&mut self) -> usize {
        self.one(&[1, 1, 2, 2, 3, 4, 8])
    }

    fn pair(&mut self) -> [usize; 2] {
        [self.size(), self.size()]
    }

    fn window(&mut self) -> Window {
        let mut of = |valid: usize| if self.odds(3) { self.pair() } else { [valid; 2] };
        Window { kernel: of(2), stride: of(1), padding: of(1), dilation: of(1) }
    }

    fn shape(&mut self) -> Shape {
        let rank = self.below(5);
        let dims: Vec<usize> =
            (0..rank).map(|_| if self.odds(24) { self.size() } else { self.small() }).collect();
        Shape::try_new(&dims).expect("few dimensions")
    }

    fn number(&mut self) -> f32 {
        self.one(&[0.0, 1.0, -1.0, 0.5, 1e38, -1e-40, f32::INFINITY, f32::NAN])
    }
}

fn call(draws: &mut Draws, trace: &Trace, scope: &Params, x: &Tensor, y: &Tensor) -> Tensor {
    let axis = draws.one(&[0, 1, 2, 3, 5, 6, 100, usize::MAX]);
    match draws.below(41) {
        0 => x.matmul(y),
        1 => x.matmul_transposed(y, draws.odds(2), draws.odds(2)),
        2 => x + y,
        3 => x.maximum(y) / y,
        4 => x.reshape(draws.shape()),
        5 => x.flatten(axis),
        6 => x.permute(&[draws.size(), 0, axis]),
        7 => x.transpose(axis, draws.below(4)),
        8 => x.expand(draws.shape()),
        9 => {
            let (start, end) = (draws.size(), draws.size());
            x.slice(draws.below(3), start..end)
        }
        10 => x.slice(axis, 0..1),
        11 => x.pad(draws.below(3), draws.size(), draws.size()),
        12 => x.pad(axis, 1, 1),
        13 => x.concat(&[y, x], draws.below(3)),
        14 => x.concat(&[], axis),
        15 => x.sum(&[axis]),
        16 => x.mean(&[draws.below(3), draws.below(3)]),
        17 => x.max(&[draws.size()]),
        18 => x.conv2d(y, None, draws.window(), draws.size()),
        19 => x.conv_transpose2d(y, None, draws.window(), draws.pair(), draws.size()),
        20 => x.max_pool2d(draws.window()),
        21 => x.avg_pool2d(draws.window(), draws.odds(2)),
        22 => x.adaptive_avg_pool2d(draws.pair()),
        23 => x.upsample_nearest(draws.pair()),
        24 => x.upsample_bilinear(draws.pair(), draws.odds(2)),
        25 => x.zero_pad2d(draws.pair(), draws.pair()),
        26 => x.group_norm(draws.size(), y, y, draws.number()),
        27 => x.layer_norm(y, y, draws.number()),
        28 => x.rotary(draws.size(), draws.number()),
        29 => {
            let options = Attention {
                causal: draws.odds(2),
                scale: draws.odds(3).then(|| draws.number()),
                dropout: f64::from(draws.number()),
                window: draws.odds(2).then(|| draws.size()),
                alibi: draws.odds(2),
                softcap: draws.odds(2).then(|| draws.number()),
                offset: if draws.odds(2) { draws.size() } else { 0 },
            };
            if draws.odds(2) { x.attention(y, y, &options) } else { x.attention_unfused(y, y, &options) }
        }
        30 => x.self_attention(draws.size(), draws.size(), &Attention::default()),
        31 => x.dropout(f64::from(draws.number())),
        32 => x.cast(draws.one(&[DType::F16, DType::BF16, DType::U32, DType::F32])),
        33 => x.softmax().log_softmax().clamp(draws.number(), draws.number()),
        34 => x.fill_like(draws.shape(), draws.number()),
        35 => {
            let shape = draws.shape();
            let labels = trace.labels(&format!("labels{}", draws.0), shape, draws.size() as u32);
            match draws.below(3) {
                0 => x.cross_entropy(&labels),
                1 => x.cross_entropy(y),
                _ => x.linear_cross_entropy(y, &labels, draws.size()),
            }
        }
        36 => {
            let (inputs, outputs) = (draws.size(), draws.size());
            Linear::new(&scope.scope(draws.0), inputs, outputs).forward(x)
        }
        37 => {
            let (inputs, outputs, groups) = (draws.size(), draws.size(), draws.size());
            Conv2d::grouped(&scope.scope(draws.0), inputs, outputs, draws.window(), groups).forward(x)
        }
        38 => x.clone().named("w"),
        39 => GroupNorm::new(&scope.scope(draws.0), draws.size(), draws.size()).forward(x),
        _ => {
            let table = Embedding::new(&scope.scope(draws.0), draws.size(), draws.size());
            let shape = draws.shape();
            let ids = trace.ids(&format!("ids{}", draws.0), shape, draws.size() as u32);
            if draws.odds(2) { table.forward(&ids) } else { x.embedding(y) }
        }
    }
}

/// Traces a program of random calls and plans it.
fn program(seed: u64) -> Result<()> {
    let mut draws = Draws(seed << 20);
    let draws = &mut draws;
    let (params, foreign) = (Params::new(0), Params::new(1));
    let init = |draws: &mut Draws| match draws.below(3) {
        0 => Init::Constant(draws.number()),
        1 => Init::Data(vec![0.0; draws.below(5)].into()),
        _ => Init::Normal(draws.number()),
    };
    let own = params.add("w", draws.shape(), init(draws));
    let theirs = foreign.add("w", draws.shape(), init(draws));
    drop(own.initial(draws.size() as u64..draws.below(9) as u64));
    let mut strangers = Vec::new();
    let other = Trace::record(&foreign, Mode::Eval, "y", |trace| {
        strangers.extend([trace.input("x", [2]), trace.ids("i", [2], 3), trace.labels("l", [2], 3)]);
        strangers[0].clone()
    });
    drop(other);
    let step = TrainStep::trace(&params, |trace| {
        let mut values =
            vec![trace.param(&own), trace.input("x", draws.shape()), trace.input("y", [2, 4, 4, 4])];
        if draws.odds(8) {
            values.push(trace.param(&theirs));
        }
        if draws.odds(8) {
            values.extend(strangers.clone());
        }
        for _ in 0..CALLS {
            let (x, y) = (draws.below(values.len()), draws.below(values.len()));
            // Most calls that follow a hostile one must be valid for the plan to be made.
            let result = match draws.below(8) {
                0..3 => call(draws, trace, &params, &values[x].clone(), &values[y].clone()),
                3 => values[x].square(),
                4 => &values[x] + &values[x],
                5 => values[x].softmax(),
                6 => values[x].matmul_transposed(&values[x].clone(), false, true),
                _ => values[x].mean(&[]),
            };
            values.push(result);
        }
        let last = values.pop().expect("a result");
        last.mul(&values[0].mean(&[])).mean(&[])
    });
    let step = step?;
    let name = draws.one(&Limits::NAMES);
    let mut limits = Limits::named(name).expect("a preset");
    if draws.odds(4) {
        let hostile = draws.one(&[0u32, 1, 3, u32::MAX]);
        match draws.below(6) {
            0 => limits.max_workgroups = hostile,
            1 => limits.max_invocations = hostile,
            2 => limits.max_workgroup_bytes = hostile,
            3 => limits.max_storage_buffers = hostile,
            4 => limits.max_binding = u64::from(hostile),
            _ => limits.max_buffer = u64::from(hostile),
        }
    }
    let options = PlanOptions {
        precision: draws.one(&[Precision::F32, Precision::F16, Precision::Bf16]),
        accumulate: draws.one(&[0, 1, 1, 1, 1, 1, 1, 1, 2, 3, u32::MAX]),
        budget: draws.odds(6).then(|| Bytes(draws.size() as u64)),
        recompute: draws.one(&[Recompute::Off, Recompute::Off, Recompute::Auto]),
        offload: draws.one(&[Offload::OFF, Offload::OPTIMIZER]),
        loss_scale: draws.odds(4).then(LossScale::default),
        ..PlanOptions::default()
    };
    let plan = step.plan(&options, &limits)?;
    assert!(plan.footprint().total() < 1 << 60);
    Ok(())
}

#[test]
fn generated_calls_with_hostile_numbers_never_panic() {
    let (mut valid, mut failed) = (0, Vec::new());
    for seed in 0..programs() {
        let start = std::time::Instant::now();
        match catch_unwind(AssertUnwindSafe(|| program(seed))) {
            Ok(Ok(())) => valid += 1,
            Ok(Err(Error::Internal(message))) => failed.push(format!("{seed}: internal: {message}")),
            Ok(Err(_)) => {}
            Err(_) => failed.push(format!("{seed}: a panic")),
        }
        if start.elapsed().as_secs() > 20 {
            failed.push(format!("{seed}: {:?}", start.elapsed()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    eprintln!("{} programs of {CALLS} calls: {valid} valid", programs());
    // The numbers are hostile, not hopeless.
    assert!(valid > programs() / 50, "{valid}");
}

#[test]
fn models_of_hostile_batches_are_errors_at_once() {
    for name in ["mlp", "gpt2", "resnet50"] {
        let model = Model::named(name, 0).expect("a model");
        for batch in [0, 1 << 31, 1 << 40, 1 << 62, usize::MAX] {
            let error = model.train_step(batch).map(drop).expect_err("no such batch");
            assert!(!matches!(error, Error::Internal(_)), "{error}");
        }
    }
}
