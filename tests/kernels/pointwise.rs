//! Functions of one and two elements: the accuracy that WGSL requires, odd lengths, broadcasting, extreme
//! values.

use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::dtype::DType;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Class, Init, Params, Tensor};
use wgrad::optim::Sgd;
use wgrad::reference::Twin;
use wgrad::shape::Shape;

use super::{SIZES, everywhere, placed_both_ways, unchecked};
use crate::support::close::{EXACT, Near, ULP, assert_close, ulps};
use crate::support::compare::compare;
use crate::support::{both_classes, devices, noise, on_each};

type Function = fn(&Tensor) -> Tensor;
/// Largest error for the element `x` and the true result `y`.
type Error = fn(f64, f64) -> f64;

/// WGSL's accuracy table, with one unit of slack where a formula has a further step.
const UNARY: [(&str, Function, Error); 27] = [
    ("neg", |x| x.neg(), |_, _| 0.0),
    ("scale", |x| x.scale(-1.75), |_, y| ULP * y.abs()),
    ("scale by 0", |x| x.scale(0.0), |_, _| 0.0),
    ("offset", |x| x.offset(3.5), |_, y| ULP * y.abs()),
    ("exp", |x| x.exp(), exp_error),
    ("abs", |x| x.abs(), |_, _| 0.0),
    ("square", |x| x.square(), |_, y| ULP * y.abs()),
    ("clamp", |x| x.clamp(-0.5, 0.75), |_, _| 0.0),
    ("relu", |x| x.relu(), |_, _| 0.0),
    ("leaky_relu", |x| x.leaky_relu(0.01), |_, y| ULP * y.abs()),
    ("leaky_relu down", |x| x.leaky_relu(-0.5), |_, y| ULP * y.abs()),
    ("sigmoid", |x| x.sigmoid(), |x, y| 4.0 * ULP * y.abs() + exp_error(x, y)),
    // WGSL allows an error of 1e-5 for tanh; these kernels may not be worse than (e^2x - 1) / (e^2x + 1) in
    // f32.
    ("tanh", |x| x.tanh(), |_, y| 8.0 * ULP * y.abs() + 5e-7),
    ("gelu", |x| x.gelu(), |x, y| 4.0 * ULP * y.abs() + 3.0 * ULP * x.abs().min(8.0)),
    ("gelu_tanh", |x| x.gelu_tanh(), |x, y| 8.0 * ULP * y.abs() + 6.0 * ULP * x.abs().min(8.0)),
    ("silu", |x| x.silu(), |x, y| 6.0 * ULP * y.abs() + exp_error(x, y)),
    ("sin", |x| x.sin(), wave_error),
    ("cos", |x| x.cos(), wave_error),
    ("floor", |x| x.floor(), |_, _| 0.0),
    ("ceil", |x| x.ceil(), |_, _| 0.0),
    ("round", |x| x.round(), |_, _| 0.0),
    ("sign", |x| x.sign(), |_, _| 0.0),
    ("mish", |x| x.mish(), |x, y| 8.0 * ULP * y.abs() + x.abs() * (exp_error(x, (-x.abs()).exp()) + 5e-7)),
    (
        "log of exp",
        |x| x.clamp(-20.0, 20.0).exp().log(),
        |x, _| ULP * (8.0 + 4.0 * x.abs().min(20.0)) + 4.8e-7,
    ),
    ("cast there and back", |x| x.clamp(0.0, 1e6).cast(DType::U32).cast(DType::F32), |_, _| 0.0),
    ("greater than 0", |x| x.greater(&x.fill_zero()), |_, _| 0.0),
    ("bce", |x| x.clamp(-40.0, 40.0).bce_elements(), |x, y| 4.0 * ULP * (y.abs() + x.abs().min(40.0)) + 3e-7),
];

fn wave_error(x: f64, _: f64) -> f64 {
    // Beyond 50,000 the result is only bounded.
    if x.abs() <= 5e4 { 2e-6 } else { 2.0 }
}

fn exp_error(x: f64, y: f64) -> f64 {
    (3.0 + 2.0 * x.abs().min(110.0)) * ULP * y.abs()
}

/// Operations for which `Tensor` has no method.
trait More {
    fn fill_zero(&self) -> Tensor;
    fn bce_elements(&self) -> Tensor;
}

impl More for Tensor {
    fn fill_zero(&self) -> Tensor {
        self.fill_like(self.shape(), 0.0)
    }

    /// Returns the losses against the target ¼, element by element.
    fn bce_elements(&self) -> Tensor {
        let quarter = self.fill_like([1], 0.25);
        // -log σ(x) ¼ - log(1 - σ(x)) ¾ as separate operations, without the mean.
        self.relu().sub(&self.mul(&quarter)).add(&self.abs().neg().exp().offset(1.0).log())
    }
}

/// Returns extreme finite values. Numbers below 1e-38 are left out: adapters may flush them to 0.
fn awkward() -> Vec<f32> {
    let mut values = vec![
        0.0, -0.0, 1e-37, -1e-37, 1e-30, -1e-20, 1e-10, 0.5, 1.0, -1.0, 1.5, 6.5, -6.5, 12.0, -12.0, 15.5,
        -15.5, 30.0, -30.0, 80.0, -80.0, 87.0, -87.0, 100.0, -100.0, 1e4, -1e4, 65504.0, 1e10, -1e10, 1e18,
        -1e18,
    ];
    values.extend(noise(1, 91, -8.0, 8.0));
    values
}

#[test]
fn unary_functions_meet_wgsl_accuracy() {
    placed_both_ways(|trace, batch, keep| {
        for (name, f, error) in UNARY {
            for n in SIZES {
                let x = batch.input(trace, [n], noise(n as u64, n, -6.0, 6.0));
                batch.expect_of(&format!("{name} [{n}]"), &f(&x), &x, error);
                if keep {
                    batch.keep(&x);
                }
            }
        }
    });
}

#[test]
fn unary_functions_of_extreme_values_meet_wgsl_accuracy() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let n = awkward().len();
            for (name, f, error) in UNARY {
                let x = batch.input(trace, [n], awkward());
                batch.expect_of(name, &f(&x), &x, error);
            }
        });
    });
}

#[test]
fn log_sqrt_and_recip_meet_wgsl_accuracy() {
    let values = || {
        let mut values = vec![1e-30, 1e-10, 1e-3, 0.5, 0.999_999, 1.0, 1.000_001, 2.0, 1e3, 1e10, 1e30];
        values.extend(noise(3, 90, 0.01, 9.0));
        values
    };
    let functions: [(&str, Function, Error); 3] = [
        // In [0.5, 2] the error is absolute: 2⁻²¹.
        ("log", |x| x.log(), |x, y| if (0.5..=2.0).contains(&x) { 4.8e-7 } else { 3.0 * ULP * y.abs() }),
        ("sqrt", |x| x.sqrt(), |_, y| 5.0 * ULP * y.abs()),
        ("recip", |x| x.recip(), |_, y| 2.5 * ULP * y.abs()),
    ];
    placed_both_ways(|trace, batch, keep| {
        for (name, f, error) in functions {
            let x = batch.input(trace, [values().len()], values());
            batch.expect_of(name, &f(&x), &x, error);
            if keep {
                batch.keep(&x);
            }
        }
    });
}

#[test]
fn functions_of_infinities_match_the_twin() {
    let inf = f32::INFINITY;
    let functions: [(&str, Function); 9] = [
        ("neg", |x| x.neg()),
        ("abs", |x| x.abs()),
        ("relu", |x| x.relu()),
        ("clamp", |x| x.clamp(-1.0, 1.0)),
        ("offset", |x| x.offset(1.0)),
        ("square", |x| x.square()),
        ("sigmoid", |x| x.sigmoid()),
        ("tanh", |x| x.tanh()),
        ("exp", |x| x.exp()),
    ];
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (name, f) in functions {
                let x = batch.input(trace, [5], vec![inf, -inf, 0.0, 2.0, -inf]);
                batch.expect(name, &f(&x), Near { rel: 16.0 * ULP, abs: 5e-7 });
            }
            let x = batch.input(trace, [2, 3], vec![-inf, 1.0, 2.0, 3.0, -inf, -inf]);
            batch.expect("softmax of masked rows", &x.softmax(), Near { rel: 16.0 * ULP, abs: 0.0 });
            let x = batch.input(trace, [2, 3], vec![-inf, 1.0, 2.0, inf, -inf, -inf]);
            batch.expect("max", &x.max(&[1]), EXACT);
            let x = batch.input(trace, [2, 2], vec![-inf, -inf, inf, 0.0]);
            batch.expect("max of nothing but -inf", &x.max(&[1]), EXACT);
        });
    });
}

/// Compilers may assume that there is no NaN, and some drivers' functions replace it by clamping.
#[test]
fn nan_stays_nan() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (name, f, _) in UNARY
                .into_iter()
                .filter(|(name, ..)| !matches!(*name, "cast there and back" | "greater than 0"))
            {
                let x = batch.input(trace, [6], vec![f32::NAN, 0.5, -f32::NAN, 0.0, -2.0, 3.0]);
                batch.expect(name, &f(&x), Near { rel: 1e-5, abs: 1e-5 });
            }
            let positive: [(&str, Function); 3] =
                [("log", |x| x.log()), ("sqrt", |x| x.sqrt()), ("recip", |x| x.recip())];
            for (name, f) in positive {
                let x = batch.input(trace, [5], vec![0.25, f32::NAN, 1.0, 3.0, f32::NAN]);
                batch.expect(name, &f(&x), Near { rel: 1e-5, abs: 1e-5 });
            }
        });
    });
}

#[test]
fn gradients_at_nan_are_those_of_the_twin() {
    let numbers = vec![f32::NAN, 0.5, -f32::NAN, 0.0, -2.0, 3.0];
    let params = Params::new(0);
    let step = TrainStep::trace(&params, |trace| {
        let all = UNARY
            .into_iter()
            .map(|(name, f, _)| f(&trace.param(&params.add(name, [6], Init::Constant(0.5)))));
        all.map(|y| y.cast(DType::F32).sum(&[])).reduce(|sum, term| sum.add(&term)).expect("some functions")
    });
    let step = step.expect("a scalar loss");
    // A momentum buffer after one step is the gradient.
    let optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let plan = step.plan(&options, &limits).expect("planned");
            let mut session = Session::new(device, &plan).expect("a session opens");
            let mut twin = Twin::new(plan.graph());
            twin.set_step(&plan.optimizer.expect("a training plan").scalars(0, 0.0, 0));
            session.set_accept_non_finite(true);
            for (name, ..) in UNARY {
                session.set_parameter(name, &numbers).expect("a parameter");
                twin.set_f32(name, &numbers).expect("a parameter");
            }
            session.run(ProgramId(0)).expect("the plan runs");
            twin.run().expect("the twin runs");
            for value in plan.graph().values.iter().filter(|value| value.class == Class::Optimizer) {
                let found = session.parameter(&value.name).expect("the optimizer's state");
                let expected = twin.parameter(&value.name).expect("the optimizer's state");
                assert_close(&value.name, &found, expected, Near { rel: 1e-5, abs: 1e-5 });
            }
        }
    });
}

#[test]
fn casts_truncate_and_saturate() {
    let values = [-5.0, -0.5, 0.0, 0.99, 1.0, 2.5, 16_777_216.0, 4_294_967_040.0, 4.3e9, 1e20, f32::INFINITY];
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [values.len()], values.to_vec());
            // 2³² - 1 becomes 2³² as a float on the device and in the twin.
            batch.expect("to u32 and back", &x.cast(DType::U32).cast(DType::F32), ulps(1.0));
        });
    });
}

const PAIRS: [(&[usize], &[usize]); 24] = [
    (&[7], &[7]),
    (&[1], &[1]),
    (&[3, 5], &[]),
    (&[], &[3, 5]),
    (&[3, 8], &[8]),
    (&[8], &[3, 8]),
    (&[3, 6], &[6]),
    (&[3, 129], &[129]),
    (&[65, 4], &[4]),
    (&[5, 4], &[5, 1]),
    (&[5, 1], &[5, 4]),
    (&[2, 3, 4], &[3, 1]),
    (&[3, 1], &[4]),
    (&[4], &[3, 1]),
    (&[2, 1, 4], &[1, 3, 1]),
    (&[2, 3, 8], &[3, 8]),
    (&[2, 3, 8], &[1, 3, 8]),
    (&[2, 3, 8], &[2, 1, 8]),
    (&[1, 1, 8], &[3, 1, 8]),
    (&[31, 33], &[31, 1]),
    (&[2, 3, 1, 2, 1, 4], &[3, 5, 1, 2, 1]),
    (&[6, 1, 5, 1, 4, 1], &[1, 3, 1, 2, 1, 2]),
    (&[1, 4], &[4, 1]),
    (&[1000], &[1]),
];

type Function2 = fn(&Tensor, &Tensor) -> Tensor;

const BINARY: [(&str, Function2, f64); 15] = [
    ("add", |a, b| a.add(b), 1.0),
    ("sub", |a, b| a.sub(b), 1.0),
    ("mul", |a, b| a.mul(b), 1.0),
    ("div", |a, b| a.div(b), 2.5),
    ("maximum", |a, b| a.maximum(b), 0.0),
    ("minimum", |a, b| a.minimum(b), 0.0),
    ("equal", |a, b| a.equal(b), 0.0),
    ("greater", |a, b| a.greater(b), 0.0),
    ("not_equal", |a, b| a.not_equal(b), 0.0),
    ("greater_equal", |a, b| a.greater_equal(b), 0.0),
    ("less", |a, b| a.less(b), 0.0),
    ("less_equal", |a, b| a.less_equal(b), 0.0),
    ("masked", |a, b| a.masked(b), 0.0),
    ("unmasked", |a, b| a.unmasked(b), 0.0),
    ("pow", |a, b| a.pow(b), 64.0),
];

/// The special cases of C's `pow`, and exponents up to 2¹²⁰.
#[test]
fn powers_have_the_special_cases_of_c() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let bases = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1e-10, 3e7, -8.0, inf, -inf, nan];
    let exponents = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, 1.0 / 3.0, -2.5, 4.0, 5.0, inf, -inf, nan];
    let n = bases.len();
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            let a = batch.input(trace, [n, 1], bases.to_vec());
            let b = batch.input(trace, [n], exponents.to_vec());
            batch.expect("pow", &a.pow(&b), Near { rel: 4e-5, abs: 1e-37 });
        });
    });
}

/// What a condition does not choose has no effect, NaN and infinities included.
#[test]
fn conditions_choose_elements() {
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            let a = batch.input(trace, [4], vec![1.0, f32::NAN, 3.0, f32::INFINITY]);
            let b = batch.input(trace, [2, 1], vec![f32::NEG_INFINITY, 5.0]);
            let flags = batch.input(trace, [2, 4], vec![1.0, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0, 1.0]);
            batch.expect("where", &flags.where_cond(&a, &b), EXACT);
            batch.expect("masked_fill", &a.masked_fill(&flags, f32::NEG_INFINITY), EXACT);
            batch.expect("prelu", &b.prelu(&a), EXACT);
        });
    });
}

#[test]
fn binary_functions_broadcast() {
    placed_both_ways(|trace, batch, keep| {
        for (name, f, error) in BINARY {
            for (a, b) in PAIRS {
                let shape = |dims: &[usize]| Shape::try_new(dims).expect("at most six dimensions");
                let (a, b) = (shape(a), shape(b));
                // Coarse values, so that some pairs are equal.
                let data = |seed, shape: Shape| -> Vec<f32> {
                    let values = noise(seed, shape.numel() as usize, 1.0, 17.0);
                    values.into_iter().map(|v| v.floor() * 0.25 - 2.125).collect()
                };
                let (x, y) = (batch.input(trace, a, data(1, a)), batch.input(trace, b, data(2, b)));
                batch.expect(&format!("{name} {a} {b}"), &f(&x, &y), ulps(error));
                if keep {
                    batch.keep(&x);
                    batch.keep(&y);
                }
            }
        }
    });
}

#[test]
fn binary_functions_of_extreme_pairs_match_the_twin() {
    let values = awkward();
    let n = values.len();
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (name, f, error) in BINARY.iter().filter(|(name, ..)| !matches!(*name, "div" | "pow")) {
                let x = batch.input(trace, [n, 1], values.clone());
                let y = batch.input(trace, [n], values.clone());
                batch.expect(name, &f(&x, &y), ulps(*error));
            }
        });
    });
}

#[test]
fn binary_functions_accept_one_tensor_as_both_operands() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (name, f, error) in BINARY {
                for n in [1, 5, 64] {
                    let x = batch.input(trace, [n], noise(9, n, 0.5, 2.0));
                    batch.expect(name, &f(&x, &x), ulps(error));
                    let x = batch.input(trace, [n, 1], noise(9, n, 0.5, 2.0));
                    batch.expect(&format!("{name} of a view"), &f(&x, &x.reshape([n])), ulps(error));
                }
            }
        });
    });
}

/// An operation may not overwrite an operand that is read later.
#[test]
fn operands_that_are_read_later_are_not_overwritten() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [33], noise(4, 33, -2.0, 2.0));
            let a = x.scale(2.0);
            let b = a.offset(1.0);
            let c = b.relu();
            let near = ulps(4.0);
            batch.expect("end", &c.mul(&a).add(&b.square()).sub(&x), Near { rel: 0.0, abs: 1e-5 });
            batch.expect("a", &a, near);
            batch.expect("a view of b", &b.reshape([3, 11]), near);
        });
    });
}
