//! Gradients that a model defines itself, in every kind of plan, compared with those that are derived.

use std::cell::RefCell;

use crate::support::{devices, noise, on_each};
use wgrad::compile::{Forward, PlanOptions, Recompute, TrainStep};
use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, LossScale, Op, Params, Phase, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::optim::{Clip, Optimizer, Sgd};
use wgrad::reference::Twin;

const ROWS: usize = 8;
const WIDTH: usize = 40;

/// `x sigmoid(x)`, with the derivative written down, or derived by the rules.
fn swish(x: &Tensor, own: bool) -> Tensor {
    let s = x.sigmoid();
    let y = x * &s;
    if own { y.with_gradient([x], |dy| [dy * (&s + &y * (1.0 - &s))]) } else { y }
}

/// `a · b` with both gradients as products.
fn product(a: &Tensor, b: &Tensor, own: bool) -> Tensor {
    let c = a.matmul(b);
    if !own {
        return c;
    }
    c.with_gradient([a, b], |dc| [dc.matmul(&b.permute(&[1, 0])), a.permute(&[1, 0]).matmul(dc)])
}

fn step(rows: usize, own: bool) -> TrainStep {
    let params = Params::new(5);
    let weights: Vec<_> = (0..3)
        .map(|i| params.scope(format!("fc{i}")).add("weight", [WIDTH, WIDTH], Init::Normal(0.2)))
        .collect();
    TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [rows, WIDTH]);
        let body = |h: Tensor, (i, w): (usize, &wgrad::graph::Param)| {
            trace.layer(&format!("fc{i}"), || swish(&product(&h, &trace.param(w), own).dropout(0.25), own))
        };
        let y = weights.iter().enumerate().fold(x.clone(), body);
        trace.output_gradient("x.grad", &x);
        for w in &weights {
            trace.output_gradient(&format!("{}.grad", w.name()), &trace.param(w));
        }
        (y - x).square().mean(&[])
    })
    .expect("valid")
}

/// Runs two steps and returns all outputs and parameters.
fn trained(device: &wgrad::device::Device, own: bool, options: &PlanOptions) -> Vec<(String, Vec<f32>)> {
    let plan = step(ROWS / options.accumulate as usize, own).plan(options, device.limits()).expect("planned");
    let graph = plan.graph();
    assert!(!graph.nodes.iter().any(|node| node.op == Op::Detach), "all are resolved");
    let mut session = Session::new(device, &plan).expect("it opens");
    for step in 0..2 {
        session.feed("x", &noise(step, ROWS * WIDTH, -1.0, 1.0)).expect("valid");
        session.step().expect("it runs");
    }
    let outputs = graph.outputs.iter().map(|(name, _)| name.clone());
    let mut all: Vec<_> =
        outputs.map(|name| (name.clone(), session.output(ProgramId(0), &name).expect("there"))).collect();
    for param in &graph.parameters {
        all.push((param.name().to_owned(), session.parameter(param.name()).expect("there")));
    }
    all
}

#[test]
fn written_gradients_train_like_derived_ones_in_every_plan() {
    let optimizer: Optimizer = Sgd { lr: 0.5, momentum: 0.9, ..Sgd::default() }.into();
    let plain = PlanOptions { optimizer, ..PlanOptions::default() };
    let scaled = Some(LossScale { start: 1024.0, ..LossScale::default() });
    let variants = [
        ("plain", plain, 1e-5),
        ("unoptimized", PlanOptions { rebuild: false, fuse: false, reuse: false, ..plain }, 1e-5),
        ("recomputed", PlanOptions { recompute: Recompute::Every(1), ..plain }, 1e-5),
        ("in parts", PlanOptions { accumulate: 4, loss_scale: scaled, clip: Clip::Norm(0.1), ..plain }, 1e-5),
        ("in 16 bits", PlanOptions { precision: Precision::F16, accumulate: 2, ..plain }, 0.01),
        ("weights", PlanOptions { weights: WeightStorage::Bf16(Rounding::Nearest), ..plain }, 0.02),
    ];
    on_each(devices(), |device| {
        for (variant, options, within) in &variants {
            let (own, derived) = (trained(device, true, options), trained(device, false, options));
            for ((name, found), (_, wanted)) in own.iter().zip(&derived) {
                let length = wanted.iter().map(|x| x * x).sum::<f32>().sqrt();
                let apart = found.iter().zip(wanted).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt();
                assert!(apart <= within * length, "{variant}: {name} is {apart} of {length} apart");
            }
        }
    });
}

/// Returns the gradients of `v` and `w`, parameters of 4 elements, in a loss of them.
fn gradients(loss: impl FnOnce(&Tensor, &Tensor) -> Tensor) -> [Vec<f64>; 2] {
    let params = Params::new(0);
    let [v, w] = [2.0, 3.0].map(|x| params.add(&format!("p{x}"), [4], Init::Constant(x)));
    let step = TrainStep::trace(&params, |trace| {
        let [v, w] = [&v, &w].map(|param| trace.param(param));
        trace.output_gradient("v", &v);
        trace.output_gradient("w", &w);
        loss(&v, &w)
    });
    let optimizer: Optimizer = Sgd { lr: 1.0, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    let plan = step.expect("valid").plan(&options, &Limits::default()).expect("planned");
    let mut twin = Twin::new(plan.graph());
    twin.set_step(&optimizer.scalars(0, 1.0, 0));
    twin.run().expect("it runs");
    let read = ["v", "w"].map(|name| twin.output(name).expect("there").to_vec());
    for (i, start) in [2.0, 3.0].into_iter().enumerate() {
        let moved = twin.parameter(&format!("p{start}")).expect("there");
        assert!(moved.iter().zip(&read[i]).all(|(now, slope)| (now - (start - slope)).abs() < 1e-6));
    }
    read
}

#[test]
fn only_operands_get_a_gradient_and_it_may_be_anything() {
    // Reversed; straight through; not an operand.
    let reversed = gradients(|v, w| v.mul(w).with_gradient([v], |dy| [-(dy * w)]).sum(&[]));
    assert_eq!(reversed, [vec![-3.0; 4], vec![0.0; 4]]);
    let straight =
        gradients(|v, w| v.scale(0.3).round().with_gradient([v], |dy| [dy.clone()]).mul(w).sum(&[]));
    assert_eq!(straight, [vec![3.0; 4], vec![1.0; 4]]);
    // A parameter itself, which its own update must not change first.
    let other = gradients(|v, w| {
        v.add(w).with_gradient([v, w], |_| [w.clone(), v.reshape([2, 2]).reshape([4])]).sum(&[])
    });
    assert_eq!(other, [vec![3.0; 4], vec![2.0; 4]]);
    // One in another, twice, and beside a derived one.
    let twice = |x: &Tensor| {
        x.scale(1.0).with_gradient([x], |dy| [dy.scale(2.0).with_gradient([dy], |dy| [dy.clone()])])
    };
    assert_eq!(gradients(|v, _| twice(&twice(v)).add(v).sum(&[])), [vec![5.0; 4], vec![0.0; 4]]);
}

#[test]
fn mistakes_in_a_backward_pass_are_errors() {
    let leaked = RefCell::new(None);
    let step = TrainStep::trace(&Params::new(0), |trace| {
        let x = trace.input("x", [4, 3]);
        let wrong = x.square().with_gradient([&x], |dy| [dy.sum(&[])]);
        let y = x.square().with_gradient([&x], |dy| {
            trace.output("inside", dy);
            leaked.replace(Some(dy.scale(2.0)));
            [dy.clone()]
        });
        let leaked = leaked.take().expect("it ran");
        trace.output("leaked", &leaked);
        y.add(&leaked).add(&wrong).sum(&[])
    });
    let text = step.expect_err("mistakes").to_string();
    for part in [
        "with_gradient: operand 0 is [4, 3], its gradient is f32 []",
        "outputs cannot be declared in a backward pass",
        "output `leaked` is of a backward pass",
        "add: an operand is of a backward pass",
        "own_gradients.rs",
    ] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
}

#[test]
fn forward_passes_do_not_run_it() {
    let forward = Forward::trace(&Params::new(0), "y", |trace: &Trace| {
        let x = trace.input("x", [4]);
        x.exp().with_gradient([&x], |_| panic!("it is not needed"))
    });
    let plan = forward.expect("valid").plan(&Limits::default()).expect("planned");
    assert!(plan.graph().nodes.iter().all(|node| node.phase == Phase::Forward && node.op.name() == "exp"));
}
