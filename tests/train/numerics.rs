//! Results that must not be silently wrong: rounding between the passes, micro-batches, and NaN that must
//! propagate.

use crate::support::close::{Near, assert_close};
use crate::support::{both_classes, devices, noise, on_each};
use wgrad::compile::{Forward, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Attention, IGNORE, Init, LossScale, Param, Params, Tensor, Trace, Window};
use wgrad::limits::Limits;
use wgrad::optim::{Clip, Optimizer, Sgd};

const HALVES: [Precision; 2] = [Precision::F16, Precision::Bf16];

/// Returns options with which the momentum after one step is the gradient.
fn options() -> PlanOptions {
    let optimizer: Optimizer = Sgd { lr: 0.1, momentum: 0.5, ..Sgd::default() }.into();
    PlanOptions { optimizer, ..PlanOptions::default() }
}

/// Returns the loss of one step and the gradients of the model's parameters, concatenated.
fn gradients(
    device: &Device,
    limits: &Limits,
    options: &PlanOptions,
    model: impl Fn(&Params, &Trace) -> Tensor,
    feed: impl Fn(&mut Session),
) -> (f32, Vec<f32>) {
    let params = Params::new(3);
    let step = TrainStep::trace(&params, |trace| model(&params, trace)).expect("valid");
    let plan = step.plan(options, limits).expect("it can be planned");
    let mut session = Session::new(device, &plan).expect("it opens");
    session.set_accept_non_finite(true);
    feed(&mut session);
    session.step().expect("it runs");
    let loss = session.loss().expect("a finite loss");
    let names: Vec<String> =
        params.list().iter().filter(|p| p.trained()).map(|p| p.name().to_owned()).collect();
    let state = |name: &String| session.parameter(&format!("{name}.momentum_buffer")).expect("state");
    (loss, names.iter().flat_map(state).collect())
}

fn weight(params: &Params, trace: &Trace, name: &str, shape: &[usize], bound: f32) -> Tensor {
    let shape = wgrad::shape::Shape::try_new(shape).expect("few dimensions");
    let param: Param = params.add(name, shape, Init::Uniform(bound));
    trace.param(&param)
}

/// Returns the distance of two gradients, relative to the norm of the first.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let of = |f: &dyn Fn(usize) -> f64| (0..a.len()).map(|i| square(f(i))).sum::<f64>().sqrt();
    of(&|i| f64::from(a[i]) - f64::from(b[i])) / of(&|i| f64::from(a[i]))
}

/// Compares a model in 16 bits with the same model in 32 bits.
#[track_caller]
fn near_in_half(what: &str, bounds: [f64; 2], model: fn(&Params, &Trace) -> Tensor) {
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let run = |options: &PlanOptions| gradients(device, &limits, options, model, |_| {}).1;
            let exact = run(&options());
            for (precision, bound) in HALVES.into_iter().zip(bounds) {
                for rebuild in [false, true] {
                    let rounded = run(&PlanOptions { precision, rebuild, ..options() });
                    let error = apart(&exact, &rounded);
                    assert!(error < bound, "{what} in {precision:?}, rebuild {rebuild}: {error}");
                }
            }
        }
    });
}

#[test]
fn gradient_of_a_maximum_finds_the_maximum_in_16_bits() {
    near_in_half("maximum", [2e-2, 0.2], |params, trace| {
        weight(params, trace, "w", &[64, 32], 0.5).tanh().max(&[1]).square().mean(&[])
    });
    near_in_half("maximum of a convolution", [0.5, 0.8], |params, trace| {
        let x = weight(params, trace, "x", &[2, 4, 16, 16], 1.0);
        let w = weight(params, trace, "w", &[8, 4, 3, 3], 0.3);
        x.conv2d(&w, None, Window::square(3).padding(1), 1).relu().max(&[2, 3]).square().mean(&[])
    });
}

#[test]
fn small_denominators_are_not_rounded_to_16_bits() {
    near_in_half("entropy", [5e-3, 5e-2], |params, trace| {
        let p = weight(params, trace, "w", &[64, 32], 1.0).scale(30.0).softmax();
        p.mul(&p.offset(1e-9).log()).mean(&[])
    });
    near_in_half("quotient", [5e-3, 5e-2], |params, trace| {
        let (x, y) = (weight(params, trace, "x", &[64, 32], 1.0), weight(params, trace, "y", &[64, 32], 1.0));
        // Denominators of 1e-7 to 1e-6, which `f16` would represent as a few units of its smallest numbers,
        // or as 0.
        x.scale(1e-6).div(&y.square().scale(1e-6).offset(1e-7)).square().mean(&[])
    });
}

/// Scores reach 144: consistently rounded operands give errors within the bounds, others about twenty times
/// as much.
#[test]
fn attention_reads_equally_rounded_operands_in_both_passes() {
    near_in_half("attention", [0.05, 0.4], |params, trace| {
        let draw = |name: &str| weight(params, trace, name, &[1, 16, 2, 64], 6.0).scale(1.0);
        let (q, k, v) = (draw("q"), draw("k"), draw("v"));
        q.attention(&k, &v, &Attention { scale: Some(0.35), ..Attention::default() }).square().mean(&[])
    });
}

/// The only key of a row has weight 1 whatever its score is.
#[test]
fn rows_of_one_key_have_zero_gradients() {
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for (rows, causal) in [(1, false), (5, true)] {
                let model = |params: &Params, trace: &Trace| {
                    let draw = |name: &str| weight(params, trace, name, &[2, rows, 2, 8], 3.0);
                    let options = Attention { causal, ..Attention::default() };
                    draw("q").attention(&draw("k"), &draw("v"), &options).slice(1, 0..1).square().sum(&[])
                };
                let (_, all) = gradients(device, &limits, &options(), model, |_| {});
                let (q, k) = all[..all.len() / 3 * 2].split_at(all.len() / 3);
                assert!(q.iter().chain(k).all(|g| *g == 0.0), "{rows} rows: {q:?} {k:?}");
            }
        }
    });
}

const PART: usize = 6;
const CLASSES: usize = 5;

fn labels() -> Vec<u32> {
    // The parts have 6, 1 and 3 labels that count.
    let ignored = |i: usize| matches!(i, 7..=11 | 13 | 15 | 17);
    (0..3 * PART).map(|i| if ignored(i) { IGNORE } else { (i % CLASSES) as u32 }).collect()
}

fn classifier(batch: usize) -> impl Fn(&Params, &Trace) -> Tensor {
    move |params: &Params, trace: &Trace| {
        let x = trace.input("x", [batch, 4]);
        let w = weight(params, trace, "w", &[4, CLASSES], 0.5);
        x.matmul(&w).tanh().scale(3.0).cross_entropy(&trace.labels("y", [batch], CLASSES as u32))
    }
}

fn feed(session: &mut Session) {
    session.feed("x", &noise(5, 3 * PART * 4, -1.0, 1.0)).expect("valid");
    session.feed("y", &labels()).expect("valid");
}

/// Accumulation gives the batch's gradients however the labels that count are distributed over the parts,
/// also with a loss scale and clipping.
#[test]
fn accumulated_gradients_match_the_batch() {
    on_each(devices(), |device| {
        for clip in [Clip::Off, Clip::Norm(0.05)] {
            for loss_scale in [None, Some(LossScale { start: 1024.0, interval: 100 })] {
                let own = PlanOptions { clip, loss_scale, ..options() };
                let parts = PlanOptions { accumulate: 3, ..own };
                let whole = gradients(device, device.limits(), &own, classifier(3 * PART), feed);
                let sum = gradients(device, device.limits(), &parts, classifier(PART), feed);
                let near = Near { rel: 2e-6, abs: 1e-7 };
                let what = format!("{clip:?} {loss_scale:?}");
                assert_close(&what, &sum.1, &whole.1.iter().map(|g| f64::from(*g)).collect::<Vec<_>>(), near);
                assert!((sum.0 - whole.0).abs() < 1e-6, "{what}: loss {} and {}", sum.0, whole.0);
            }
        }
    });
}

/// Two parts with the same samples: with one mask for both, their results would be equal.
#[test]
fn parts_of_a_batch_draw_different_masks() {
    on_each(devices(), |device| {
        let params = Params::new(1);
        let step = TrainStep::trace(&params, |trace| {
            let x = trace.input("x", [1, 16, 2, 8]);
            let w = trace.param(&params.add("w", [8], Init::Constant(1.0)));
            let y = x.mul(&w).attention(&x, &x, &Attention { dropout: 0.5, ..Attention::default() });
            trace.output("y", &y);
            y.dropout(0.5).square().mean(&[])
        });
        let plan = step.expect("valid").plan(&PlanOptions { accumulate: 2, ..options() }, device.limits());
        let mut session = Session::new(device, &plan.expect("planned")).expect("it opens");
        session.set_accept_non_finite(true);
        let x = noise(1, 16 * 16, -1.0, 1.0);
        session.feed("x", &[x.clone(), x].concat()).expect("valid");
        session.step().expect("it runs");
        let y: Vec<f32> = session.output(ProgramId(0), "y").expect("an output");
        assert_ne!(y[..256], y[256..]);
    });
}

/// One NaN in an operand is one NaN in the result, at its place.
#[test]
fn nan_propagates_through_every_function() {
    type Function = (&'static str, fn(&Tensor) -> Tensor);
    let functions: [Function; 17] = [
        ("relu", |x| x.relu()),
        ("leaky relu", |x| x.leaky_relu(0.1)),
        ("clamp", |x| x.clamp(-1.0, 1.0)),
        ("relu6", |x| x.clamp(0.0, 6.0)),
        ("tanh", |x| x.tanh()),
        ("sigmoid", |x| x.sigmoid()),
        ("gelu", |x| x.gelu()),
        ("gelu tanh", |x| x.gelu_tanh()),
        ("silu", |x| x.silu()),
        ("abs", |x| x.abs()),
        ("maximum", |x| x.maximum(&x.fill_like([], 0.5))),
        ("minimum", |x| x.fill_like([], 0.5).minimum(x)),
        ("max", |x| x.max(&[1, 2, 3])),
        ("max pool", |x| x.max_pool2d(Window::square(2).stride(2))),
        ("relu before a pool", |x| x.relu().max_pool2d(Window::square(2).stride(2))),
        ("average pool", |x| x.avg_pool2d(Window::square(2).stride(2), true)),
        ("two functions", |x| x.relu().add(&x.tanh()).clamp(-0.5, 0.5)),
    ];
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for (name, function) in functions {
                let params = Params::new(0);
                let forward = Forward::trace(&params, "y", |trace| function(&trace.input("x", [2, 3, 4, 4])));
                let plan = forward.expect("valid").plan(&limits).expect("it can be planned");
                let mut session = Session::new(device, &plan).expect("it opens");
                session.set_accept_non_finite(true);
                for place in [0, 53] {
                    for nan in [f32::NAN, -f32::NAN] {
                        let mut x = noise(7, 96, -2.0, 2.0);
                        x[place] = nan;
                        session.feed("x", &x).expect("valid");
                        session.run(ProgramId(0)).expect("it runs");
                        let y: Vec<f32> = session.output(ProgramId(0), "y").expect("an output");
                        let (numbers, each) = (y.iter().filter(|y| y.is_nan()).count(), 96 / y.len());
                        assert_eq!(numbers, 1, "{name}: NaN at {place}, {y:?}");
                        if each <= 1 {
                            assert!(y[place].is_nan(), "{name}");
                        }
                    }
                }
            }
        }
    });
}
