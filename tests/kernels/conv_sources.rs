//! What is fused into convolutions: a batch norm or a concatenation that is computed while operands are read,
//! and a gradient that is added where another is written. Both give the bits of separate operations, forward
//! and backward, and the values of the f64 twin, with every row of the table of convolutions.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::compare::kernels;
use crate::support::image_cases::{Convolution, larger_convolutions, shapes_of_convolutions as convolutions};
use crate::support::{devices, noise, on_each, rows_of_convolutions};
use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::exec::{Debug, ProgramId, Session};
use wgrad::graph::{Init, Op, Params, Source, Tensor};
use wgrad::kernels::conv::{Pass, Variant};
use wgrad::limits::Limits;
use wgrad::optim::{Optimizer, Sgd};
use wgrad::reference::Twin;

/// Returns the number of convolutions and gradients that are fused with what stands `before` the convolution.
fn fused_operations(plan: &Plan, before: Before) -> usize {
    let through = |op: &Op| match op {
        Op::Conv2d { source, .. } => *source != Source::Tensor,
        Op::Conv2dWeight { normed, .. } => normed.is_some(),
        Op::Conv2dInput { then, .. } => then.is_some() && matches!(before, Before::Branch),
        _ => false,
    };
    plan.graph().nodes.iter().filter(|node| through(&node.op)).count()
}

/// The operation before the convolution.
#[derive(Clone, Copy, Debug)]
enum Before {
    Norm(fn(&Tensor) -> Tensor),
    /// A concatenation: this number of channels of one tensor, the rest of another.
    Concat(usize),
    /// A tensor that another operation reads as well, so that its gradients are added.
    Branch,
}

const NORMS: [Before; 3] =
    [Before::Norm(Tensor::clone), Before::Norm(Tensor::relu), Before::Norm(|x| x.clamp(0.0, 6.0))];

/// A step with a convolution whose operands are parameters: the momentum of each is its gradient.
fn step(params: &Params, case: Convolution, bias: bool, before: Before) -> TrainStep {
    let (_, image, weight, groups, window) = case;
    let add = |name: &str, shape: &[usize], from: f32, to: f32| {
        let n = shape.iter().product();
        let init = Init::Data(noise(params.list().len() as u64 + 1, n, from, to).into());
        params.add(name, wgrad::shape::Shape::try_new(shape).expect("four dimensions"), init)
    };
    // The values lie in [20, 30), far from 0 compared with their spread: differences lose digits, and ReLU6
    // reaches both of its bounds.
    let x = add("x", &image, 20.0, 30.0);
    let w = add("w", &weight, -1.0, 1.0);
    let [gamma, beta] = [("gamma", 3.0), ("beta", 2.0)].map(|(name, top)| add(name, &image[1..2], 0.5, top));
    let b = bias.then(|| add("b", &weight[..1], -1.0, 1.0));
    TrainStep::trace(params, |trace| {
        let [x, w, gamma, beta] = [&x, &w, &gamma, &beta].map(|p| trace.param(p));
        let x = match before {
            Before::Norm(activation) => activation(&x.batch_norm_train(&gamma, &beta, 1e-5, None)),
            Before::Concat(first) => {
                let (one, other) = (x.slice(1, 0..first), x.slice(1, first..image[1]));
                one.square().concat(&[&other.relu()], 1)
            }
            Before::Branch => x.square(),
        };
        let y = x.conv2d(&w, b.map(|b| trace.param(&b)).as_ref(), window, groups);
        trace.output("y", &y);
        let loss = y.mul(&trace.input("dy", y.shape())).mean(&[]);
        if matches!(before, Before::Branch) { loss.add(&x.tanh().mean(&[])) } else { loss }
    })
    .expect("valid")
}

/// Returns the convolution's result and the momentum of every parameter.
fn run(device: &Device, plan: &Plan, dy: &[f32]) -> Vec<(String, Vec<f32>)> {
    let mut session = Session::with_plans(device, &[plan], Debug { poison: true }).expect("it opens");
    session.set_accept_non_finite(true);
    session.feed("dy", dy).expect("dy");
    session.step().expect("a step");
    let mut results = vec![("y".to_owned(), session.output(ProgramId(0), "y").expect("y"))];
    for storage in plan.program.storages.iter().filter(|s| s.persistent) {
        results.push((storage.name.clone(), session.parameter(&storage.name).expect("there")));
    }
    results
}

/// A case: whether it has a bias, the operation before the convolution, and how many convolutions and
/// gradients are fused with it.
struct Wanted {
    case: Convolution,
    bias: bool,
    before: Before,
    reads: usize,
}

/// Runs a case unfused and fused, and compares the results with each other and with the twin.
fn compare(device: &Device, (row, limits): &(&Variant, Limits), wanted: Wanted) {
    let Wanted { case, bias, before, reads } = wanted;
    let (name, ..) = case;
    let what = format!("{name}, {before:?}, on {}", limits.name);
    let params = Params::new(1);
    let step = step(&params, case, bias, before);
    let optimizer: Optimizer = Sgd { lr: 1e-3, momentum: 0.9, ..Sgd::default() }.into();
    let plan = |fuse: bool| {
        step.plan(&PlanOptions { optimizer, fuse, ..PlanOptions::default() }, limits).expect("it fits")
    };
    let (apart, fused) = (plan(false), plan(true));
    assert_eq!((fused_operations(&apart, before), fused_operations(&fused, before)), (0, reads), "{what}");
    for pass in [Pass::Image, Pass::Weight] {
        let ran = |name: String| row.kernels(pass).iter().any(|kernel| name.starts_with(&*kernel.name));
        assert!(kernels(&fused).into_iter().any(ran), "{what}: {:?}", kernels(&fused));
    }
    let graph = fused.graph();
    let y = graph.outputs.iter().find(|(name, _)| name == "y").expect("an output").1;
    let dy = noise(9, graph.value(y).shape.numel() as usize, -1.0, 1.0);
    let results = run(device, &fused, &dy);
    for ((result, wanted), (_, got)) in run(device, &apart, &dy).iter().zip(&results) {
        assert_same_bits(&format!("{what}: {result}"), wanted, got);
    }
    let mut twin = Twin::new(graph);
    twin.set_f32("dy", &dy).expect("dy");
    twin.set_step(&fused.optimizer.expect("it trains").scalars(0, 1e-3, 0));
    twin.run().expect("the twin runs");
    for (name, got) in &results[1..] {
        let exact = twin.parameter(name).expect("there");
        let largest = exact.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let near = Near { rel: 1e-5, abs: 1e-5 * largest };
        assert_close(&format!("{what}: {name}"), got, exact, near);
    }
}

/// Calls `body` for every row that each device can run, with the numbered cases that the row computes.
fn each_row(cases: &[Convolution], body: impl Fn(&Device, &(&Variant, Limits), (usize, Convolution))) {
    on_each(devices(), |device| {
        for row in rows_of_convolutions(device) {
            for (i, case) in cases.iter().enumerate() {
                let (_, _, weight, groups, _) = *case;
                // Tiles would be mostly empty.
                let few = groups > 1 && weight[1].min(weight[0] / groups) < 8;
                if !few || row.0.name == "direct" {
                    body(device, &row, (i, *case));
                }
            }
        }
    });
}

#[test]
fn batch_norm_fused_into_convolutions_is_bit_identical() {
    each_row(&convolutions(), |device, row, (i, case)| {
        // On GPUs, where arithmetic is cheap, the forward convolution is fused as well.
        let reads = if row.1.class.is_cpu() { 1 } else { 2 };
        compare(device, row, Wanted { case, bias: i % 2 == 0, before: NORMS[i % 3], reads });
    });
}

#[test]
fn gradient_sum_fused_into_convolutions_is_bit_identical() {
    each_row(&convolutions(), |device, row, (i, case)| {
        compare(device, row, Wanted { case, bias: i % 2 == 0, before: Before::Branch, reads: 1 });
    });
}

#[test]
fn concat_fused_into_convolutions_is_bit_identical() {
    each_row(&convolutions(), |device, row, (i, case)| {
        let (_, image, _, groups, _) = case;
        let first = if i % 2 == 0 { 1 } else { image[1] / 2 };
        // A concatenation is not fused into grouped convolutions: groups of channels may span both parts.
        let reads = usize::from(groups == 1);
        compare(device, row, Wanted { case, bias: i % 4 < 2, before: Before::Concat(first), reads });
    });
}

#[test]
fn gradient_sum_fused_into_tiles_of_128_is_bit_identical() {
    each_row(&larger_convolutions(), |device, row, (_, case)| {
        compare(device, row, Wanted { case, bias: true, before: Before::Branch, reads: 1 });
    });
}

/// An image saved in 16 bits for the backward pass is widened where the gradient of a weight reads it.
#[test]
fn weight_gradients_of_16_bit_images_are_bit_identical() {
    let case = larger_convolutions()[2];
    each_row(&[case], |device, (row, limits), _| {
        // On software adapters a separate operation widens the image once.
        if limits.class.is_cpu() {
            return;
        }
        let params = Params::new(1);
        let step = step(&params, case, false, Before::Branch);
        // The rows alternate between the formats.
        let precision = if row.name == "tiled64" { Precision::F16 } else { Precision::Bf16 };
        let optimizer: Optimizer = Sgd { lr: 1e-3, momentum: 0.9, ..Sgd::default() }.into();
        let plan = |fuse: bool| {
            let options = PlanOptions { optimizer, fuse, precision, ..PlanOptions::default() };
            step.plan(&options, limits).expect("it fits")
        };
        let (apart, fused) = (plan(false), plan(true));
        let narrow = |plan: &Plan| {
            let own = row.kernels(Pass::Weight);
            let ran = |name: &&String| own.iter().any(|kernel| name.starts_with(&*kernel.name));
            kernels(plan).iter().filter(ran).filter(|name| name.contains("f16")).count()
        };
        assert_eq!((narrow(&apart), narrow(&fused)), (0, 1), "{:?}", kernels(&fused));
        let dy = noise(9, 3 * 129 * 49, -1.0, 1.0);
        for ((name, wanted), (_, got)) in run(device, &apart, &dy).iter().zip(run(device, &fused, &dy)) {
            assert_same_bits(&format!("{precision:?} on {}: {name}", limits.name), wanted, &got);
        }
    });
}
