//! Activations in 8 and 4 bits: what the gradients read, against the twin, whose draws are the same.

use std::collections::BTreeMap;

use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::dtype::Precision;
use wgrad::graph::{Init, Params};
use wgrad::optim::Sgd;

use super::everywhere;
use crate::support::compare::{gradients_of, kernels, twin_gradients};
use crate::support::noise;

/// Elements of a group, which have a step of their own.
const GROUP: usize = 64;

/// The gradient of `b` is `c` times the activation `a`, which waits for it.
fn step(a: Vec<f32>) -> TrainStep {
    let n = a.len();
    let params = Params::new(4);
    let add = |name: &str, data: Vec<f32>| params.add(name, [n], Init::Data(data.into()));
    let (a, b, c) = (add("a", a), add("b", vec![1.0; n]), add("c", vec![1.0; n]));
    let step = TrainStep::trace(&params, |t| {
        let [a, b, c] = [&a, &b, &c].map(|param| t.param(param));
        a.scale(1.0).mul(&b).mul(&c).sum(&[])
    });
    step.expect("valid")
}

fn options(precision: Precision) -> PlanOptions {
    // The momentum is the gradient.
    let optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
    PlanOptions { precision, optimizer, rebuild: false, ..PlanOptions::default() }
}

/// The steps of the groups: their range, and what the least number is rounded down by, over the number of steps.
fn steps(a: &[f32], precision: Precision) -> Vec<f64> {
    let levels = if precision == Precision::Int8 { 255.0 } else { 15.0 };
    let step = |group: &[f32]| {
        let [low, high] =
            [f32::min, f32::max].map(|of| f64::from(group.iter().copied().reduce(of).expect("some")));
        ((high - low) * 1.02 + low.abs() / 120.0) / levels
    };
    a.chunks(GROUP).map(step).collect()
}

fn gradient_of_b<T>(gradients: impl IntoIterator<Item = (String, T)>) -> T {
    gradients.into_iter().find(|(name, _)| name.starts_with("b.")).expect("trained").1
}

fn has_codes(plan: &Plan) {
    let names = kernels(plan);
    let counted = |part: &str| names.iter().filter(|name| name.starts_with(part)).count();
    assert!(counted("encode_uint") >= 1 && counted("decode_uint") >= 1, "{names:?}");
}

/// Groups around other numbers, of one number alone, of zeros, positive ones; whole blocks and parts of them, and more than a
/// row of workgroups.
#[test]
fn activations_in_codes_match_the_twin() {
    for n in [1024, 1025, 1087, 1151, 4099, 70_001] {
        let shift = |i: usize| [0.0, 50.0, -2.0, 0.5, 1e-3][i / GROUP % 5];
        let scale = |i: usize| [1.0, 0.25, 0.0, 0.5, 1e4][i / GROUP % 5];
        let a: Vec<f32> =
            noise(n as u64, n, -1.0, 1.0).iter().enumerate().map(|(i, x)| x * scale(i) + shift(i)).collect();
        let step = step(a.clone());
        everywhere(|device, limits| {
            for precision in [Precision::Int8, Precision::Int4] {
                let plan = step.plan(&options(precision), limits).expect("planned");
                has_codes(&plan);
                let (found, wanted) =
                    (gradients_of(device, &plan, &BTreeMap::new()), twin_gradients(&plan, &BTreeMap::new()));
                let (found, wanted) = (gradient_of_b(found), gradient_of_b(wanted));
                let (mut others, mut bias) = (0, 0.0);
                for (i, step) in steps(&a, precision).iter().enumerate() {
                    for at in i * GROUP..a.len().min(i * GROUP + GROUP) {
                        let [x, y, exact] = [f64::from(found[at]), wanted[at], f64::from(a[at])];
                        let what = format!(
                            "{}, {} of {n} in {}: {x}, the twin's {y}, {exact}",
                            precision.name(),
                            at,
                            limits.name
                        );
                        let rounding = 1e-6 * exact.abs() + 1e-37;
                        assert!((x - exact).abs() <= step + rounding, "{what}: a step is {step}");
                        assert!((x - y).abs() <= step + rounding, "{what}: a step is {step}");
                        // Where a product is rounded the other way, the draw may decide for the next level.
                        others += usize::from((x - y).abs() > 1e-3 * step + rounding);
                        bias += if *step > rounding { (x - exact) / step } else { 0.0 };
                    }
                }
                assert!(others <= n / 500, "{} of {n} elements are other levels than the twin's", others);
                let allowed = 5.0 * 0.5 / (n as f64).sqrt();
                assert!((bias / n as f64).abs() <= allowed, "the mean error is {} steps", bias / n as f64);
            }
        });
    }
}

#[test]
fn nan_and_infinities_fill_their_groups() {
    for stray in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut a = noise(3, 2048, -1.0, 1.0);
        a[700] = stray;
        let step = step(a.clone());
        everywhere(|device, limits| {
            for precision in [Precision::Int8, Precision::Int4] {
                let plan = step.plan(&options(precision), limits).expect("planned");
                has_codes(&plan);
                let found = gradients_of(device, &plan, &BTreeMap::new());
                let found = gradient_of_b(found);
                for (i, x) in found.iter().enumerate() {
                    assert_eq!(x.is_nan(), i / GROUP == 700 / GROUP, "{stray} at 700: element {i} is {x}");
                }
            }
        });
    }
}
