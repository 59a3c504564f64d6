//! One small training step for each use of each differentiable operation. The operation is always in the
//! middle of the graph, so that a rule that drops its incoming gradient, or does not pass one on, is
//! detected.

use std::collections::BTreeMap;

use wgrad::compile::TrainStep;
use wgrad::graph::{IGNORE, Init, Params, Reduction, Tensor, Trace};
use wgrad::shape::Shape;

use super::noise;

/// A loss over parameters that start from noise.
pub struct Case {
    pub name: String,
    pub params: Params,
    pub step: TrainStep,
    pub labels: BTreeMap<&'static str, Vec<u32>>,
}

/// The operands that a case's function can create.
pub struct Stage<'a> {
    params: &'a Params,
    pub trace: &'a Trace,
}

impl Stage<'_> {
    /// Returns a parameter with elements in [low, high), followed by an affine function before the operation
    /// under test.
    pub fn x(&self, shape: impl Into<Shape>, low: f32, high: f32) -> Tensor {
        self.raw(shape, low, high).scale(1.25).offset(-0.0625)
    }

    /// Returns the parameter itself.
    pub fn raw(&self, shape: impl Into<Shape>, low: f32, high: f32) -> Tensor {
        let (shape, index) = (shape.into(), self.params.list().len());
        let data = noise(100 + index as u64, shape.numel() as usize, low, high);
        let param = self.params.add(&format!("p{index}"), shape, Init::Data(data.into()));
        self.trace.param(&param)
    }
}

impl Stage<'_> {
    /// Returns a parameter with these elements.
    pub fn fixed(&self, shape: impl Into<Shape>, data: Vec<f32>) -> Tensor {
        let index = self.params.list().len();
        self.trace.param(&self.params.add(&format!("p{index}"), shape, Init::Data(data.into())))
    }
}

/// Returns a loss in which every element has a separate weight, itself a parameter, and a nonlinear term: no
/// two elements have the same gradient.
fn loss_of(stage: &Stage, y: &Tensor) -> Tensor {
    let weights = stage.raw(y.shape(), 0.25, 1.75);
    let bent = y.scale(0.25).tanh();
    y.mul(&weights).sum(&[]).add(&bent.mul(&weights).sum(&[]))
}

pub(super) fn case(name: impl Into<String>, build: impl Fn(&Stage) -> Tensor) -> Case {
    labelled(name, BTreeMap::new(), build)
}

pub(super) fn labelled(
    name: impl Into<String>,
    labels: BTreeMap<&'static str, Vec<u32>>,
    build: impl Fn(&Stage) -> Tensor,
) -> Case {
    let params = Params::new(5);
    let step = TrainStep::trace(&params, |trace| {
        let stage = Stage { params: &params, trace };
        let y = build(&stage);
        loss_of(&stage, &y)
    });
    let name = name.into();
    let step = step.unwrap_or_else(|e| panic!("case {name}: {e}"));
    Case { name, params, step, labels }
}

/// Returns all cases.
pub fn all() -> Vec<Case> {
    let mut list = elementwise();
    list.extend(broadcasts());
    list.extend(products());
    list.extend(reductions());
    list.extend(movements());
    list.extend(shared());
    list.extend(losses());
    list.extend(super::image_cases::all());
    list.extend(super::row_cases::all());
    list.extend(super::attention_cases::all());
    list
}

fn elementwise() -> Vec<Case> {
    type Function = fn(&Tensor) -> Tensor;
    let functions: [(&str, Function, f32, f32); 32] = [
        ("neg", |x| x.neg(), -2.0, 2.0),
        ("scale", |x| x.scale(-1.75), -2.0, 2.0),
        ("offset", |x| x.offset(3.5), -2.0, 2.0),
        ("exp", |x| x.exp(), -3.0, 2.0),
        ("log", |x| x.log(), 0.25, 4.0),
        ("sqrt", |x| x.sqrt(), 0.25, 4.0),
        ("abs", |x| x.abs(), -2.0, 2.0),
        ("square", |x| x.square(), -2.0, 2.0),
        ("recip", |x| x.recip(), 0.5, 2.0),
        ("recip of negatives", |x| x.recip(), -2.0, -0.5),
        ("clamp", |x| x.clamp(-0.5, 0.75), -2.0, 2.0),
        ("clamp all", |x| x.clamp(7.0, 8.0), -2.0, 2.0),
        ("relu", |x| x.relu(), -2.0, 2.0),
        ("leaky_relu", |x| x.leaky_relu(0.125), -2.0, 2.0),
        ("leaky_relu down", |x| x.leaky_relu(-0.5), -2.0, 2.0),
        ("leaky_relu 0", |x| x.leaky_relu(0.0), -2.0, 2.0),
        ("sigmoid", |x| x.sigmoid(), -6.0, 6.0),
        ("tanh", |x| x.tanh(), -3.0, 3.0),
        ("gelu", |x| x.gelu(), -4.0, 4.0),
        ("gelu_tanh", |x| x.gelu_tanh(), -4.0, 4.0),
        ("silu", |x| x.silu(), -5.0, 5.0),
        ("dropout", |x| x.dropout(0.4), -2.0, 2.0),
        ("sin", |x| x.sin(), -9.0, 9.0),
        ("cos", |x| x.cos(), -9.0, 9.0),
        ("mish", |x| x.mish(), -4.0, 4.0),
        ("round", |x| x.round().add(x).mul(&x.floor()).sub(&x.ceil().mul(&x.sign())), -2.0, 2.0),
        ("powf", |x| x.powf(-1.5), 0.5, 2.0),
        ("selu", |x| x.selu(), -2.0, 2.0),
        ("celu", |x| x.celu(0.5), -2.0, 2.0),
        ("relu6", |x| x.relu6(), -2.0, 8.0),
        ("glu", |x| x.slice(1, 0..6).glu(1), -2.0, 2.0),
        ("swiglu", |x| x.slice(1, 0..6).swiglu(1), -2.0, 2.0),
    ];
    let mut list = Vec::new();
    for (name, f, low, high) in functions {
        list.push(case(name, move |s| f(&s.x([5, 7], low, high))));
    }
    list.push(case("two dropouts", |s| {
        let x = s.x([3, 9], -2.0, 2.0);
        x.dropout(0.5).add(&x.dropout(0.25).square())
    }));
    // The gradient of relu reads its output, which the next operation may not overwrite.
    list.push(case("chain", |s| s.x([4, 5], -2.0, 2.0).relu().tanh().exp().sigmoid().silu().gelu()));
    list
}

fn broadcasts() -> Vec<Case> {
    type Function = fn(&Tensor, &Tensor) -> Tensor;
    let functions: [(&str, Function); 10] = [
        ("add", |a, b| a.add(b)),
        ("sub", |a, b| a.sub(b)),
        ("mul", |a, b| a.mul(b)),
        ("div", |a, b| a.div(b)),
        ("maximum", |a, b| a.maximum(b)),
        ("minimum", |a, b| a.minimum(b)),
        ("greater", |a, b| a.greater(b).mul(a)),
        ("pow", |a, b| a.abs().offset(0.5).pow(b)),
        ("where", |a, b| a.less_equal(b).where_cond(&a.square(), &b.tanh())),
        ("prelu", |a, b| a.prelu(b)),
    ];
    let shapes: [(&[usize], &[usize]); 11] = [
        (&[3, 5], &[3, 5]),
        (&[2, 3, 4], &[4]),
        (&[4], &[2, 3, 4]),
        (&[2, 3, 4], &[3, 1]),
        (&[3, 1], &[2, 3, 4]),
        (&[3, 1], &[4]),
        (&[], &[2, 3]),
        (&[2, 3], &[]),
        (&[2, 1, 4], &[1, 3, 1]),
        (&[1, 1], &[5]),
        (&[2, 3, 4], &[2, 1, 4]),
    ];
    let mut list = Vec::new();
    for (name, f) in functions {
        for (a, b) in shapes {
            let shape = |dims: &[usize]| Shape::try_new(dims).expect("at most six dimensions");
            list.push(case(format!("{name} {a:?} {b:?}"), move |s| {
                let (a, b) = (s.x(shape(a), -2.0, 2.0), s.x(shape(b), 0.5, 2.5));
                f(&a, &b)
            }));
        }
    }
    list
}

fn products() -> Vec<Case> {
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[3, 4], &[4, 5]),
        (&[2, 3, 4], &[2, 4, 5]),
        (&[2, 3, 4], &[4, 5]),
        (&[3, 4], &[2, 4, 5]),
        (&[2, 1, 3, 4], &[3, 4, 2]),
        (&[1, 3, 4], &[2, 4, 5]),
    ];
    let mut list = Vec::new();
    for (a, b) in shapes {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let shape = |dims: &[usize], swap: bool| {
                let mut dims = dims.to_vec();
                let rank = dims.len();
                if swap {
                    dims.swap(rank - 1, rank - 2);
                }
                Shape::try_new(&dims).expect("at most six dimensions")
            };
            let (a, b) = (shape(a, ta), shape(b, tb));
            list.push(case(format!("matmul {a} {ta} {b} {tb}"), move |s| {
                s.x(a, -1.0, 1.0).matmul_transposed(&s.x(b, -1.0, 1.0), ta, tb)
            }));
        }
    }
    list
}

fn reductions() -> Vec<Case> {
    let mut list = Vec::new();
    let axes: [&[usize]; 8] = [&[], &[0], &[1], &[2], &[0, 2], &[1, 2], &[0, 1], &[3]];
    for axes in axes {
        list.push(case(format!("sum {axes:?}"), move |s| s.x([2, 3, 4, 1], -2.0, 2.0).sum(axes)));
        list.push(case(format!("mean {axes:?}"), move |s| s.x([2, 3, 4, 1], -2.0, 2.0).mean(axes)));
        list.push(case(format!("max {axes:?}"), move |s| s.x([2, 3, 4, 1], -2.0, 2.0).max(axes)));
        list.push(case(format!("sum of squares {axes:?}"), move |s| {
            s.x([2, 3, 4, 1], -2.0, 2.0).reduce_keep(Reduction::SumSquares, axes)
        }));
    }
    list.push(case("norm", |s| sum_squares(&s.x([3, 4], -2.0, 2.0)).sqrt()));
    list.push(case("layer norm by hand", |s| {
        let x = s.x([3, 8], -2.0, 2.0);
        let centred = x.sub(&x.reduce_keep(Reduction::Mean, &[1]));
        let variance = centred.square().reduce_keep(Reduction::Mean, &[1]);
        centred.div(&variance.offset(1e-5).sqrt())
    }));
    list
}

fn movements() -> Vec<Case> {
    vec![
        case("reshape", |s| s.x([2, 6], -2.0, 2.0).reshape([3, 4]).square().reshape([12]).exp()),
        case("flatten", |s| s.x([2, 3, 2], -2.0, 2.0).flatten(1).matmul(&s.x([6, 2], -1.0, 1.0))),
        case("transpose", |s| s.x([3, 5], -2.0, 2.0).transpose(0, 1)),
        case("permute", |s| s.x([2, 3, 4], -2.0, 2.0).permute(&[2, 0, 1])),
        case("permute six", |s| s.x([2, 1, 3, 2, 1, 2], -2.0, 2.0).permute(&[5, 3, 0, 2, 4, 1])),
        case("expand", |s| s.x([2, 1, 3], -2.0, 2.0).expand([2, 4, 3])),
        case("expand more dimensions", |s| s.x([3], -2.0, 2.0).expand([2, 4, 3])),
        case("expand a scalar", |s| s.x([], -2.0, 2.0).expand([2, 3])),
        case("slice first", |s| s.x([4, 3, 5], -2.0, 2.0).slice(0, 1..3)),
        case("slice middle", |s| s.x([4, 3, 5], -2.0, 2.0).slice(1, 0..2)),
        case("slice last", |s| s.x([4, 3, 5], -2.0, 2.0).slice(2, 2..5)),
        case("overlapping slices", |s| {
            let x = s.x([6, 3], -2.0, 2.0);
            x.slice(0, 0..4).mul(&x.slice(0, 2..6)).add(&x.slice(0, 1..5))
        }),
        case("pad", |s| s.x([2, 3], -2.0, 2.0).pad(0, 1, 2).pad(1, 3, 0).exp()),
        case("concat first", |s| s.x([2, 3], -2.0, 2.0).concat(&[&s.x([1, 3], -1.0, 1.0)], 0)),
        case("concat last", |s| {
            let (b, c) = (s.x([2, 1, 2], -1.0, 1.0), s.x([2, 1, 4], -1.0, 1.0));
            s.x([2, 1, 3], -2.0, 2.0).concat(&[&b, &c], 2)
        }),
        case("concat with itself", |s| {
            let x = s.x([2, 3], -2.0, 2.0);
            x.concat(&[&x, &x.neg()], 1)
        }),
        case("flip", |s| s.x([2, 3, 4], -2.0, 2.0).flip(1).exp()),
        case("every third", |s| s.x([7, 3], -2.0, 2.0).slice_step(0, 1..7, 3)),
        case("iota", |s| {
            let x = s.x([2, 3, 2], -2.0, 2.0);
            x.mul(&x.indices_like([2, 3, 2], 1))
        }),
        case("tril", |s| s.x([2, 3, 4], -2.0, 2.0).tril(1)),
        case("cumsum", |s| s.x([2, 7], -2.0, 2.0).cumsum(1)),
        case("prod", |s| s.x([2, 5, 3], -2.0, 2.0).prod(&[1])),
        case("logsumexp", |s| s.x([2, 5], -2.0, 2.0).logsumexp(&[1])),
        case("sort", |s| s.x([2, 9, 3], -2.0, 2.0).sort(1, true).0),
        case("topk", |s| s.x([4, 70], -2.0, 2.0).topk(3, 1, false).0),
        labelled("gather", BTreeMap::from([("ids", vec![2, 0, 2, 2, 1, 0])]), |s| {
            s.x([4, 3], -2.0, 2.0).gather(0, &s.trace.ids("ids", [2, 3], 4))
        }),
        labelled("index_select", BTreeMap::from([("ids", vec![2, 0, 2, 2])]), |s| {
            s.x([2, 3, 4], -2.0, 2.0).index_select(1, &s.trace.ids("ids", [4], 3))
        }),
        labelled("scatter_add", BTreeMap::from([("ids", vec![2, 0, 2, 2, 1, 0])]), |s| {
            let (x, y) = (s.x([4, 3], -2.0, 2.0), s.x([2, 3], -2.0, 2.0));
            x.scatter_add(0, &s.trace.ids("ids", [2, 3], 4), &y)
        }),
        case("views of views", |s| {
            let x = s.x([4, 6], -2.0, 2.0);
            let wide = x.reshape([2, 12]);
            let tall = wide.reshape([12, 2]);
            tall.matmul(&wide).sum(&[0]).add(&x.reshape([24]).slice(0, 5..17))
        }),
    ]
}

fn shared() -> Vec<Case> {
    vec![
        case("x * x", |s| {
            let x = s.x([3, 4], -2.0, 2.0);
            x.mul(&x)
        }),
        case("x + x", |s| {
            let x = s.x([3, 4], -2.0, 2.0);
            x.add(&x)
        }),
        case("x - x", |s| {
            let x = s.x([3, 4], -2.0, 2.0);
            x.sub(&x).add(&x)
        }),
        case("x / x", |s| {
            let x = s.x([3, 4], 0.5, 2.0);
            x.div(&x).mul(&x)
        }),
        case("max(x, x)", |s| {
            let x = s.x([3, 4], -2.0, 2.0);
            x.maximum(&x)
        }),
        case("x times a view of x", |s| {
            let x = s.x([3, 3], -2.0, 2.0);
            x.mul(&x.reshape([9]).reshape([3, 3]))
        }),
        case("x xᵀ", |s| {
            let x = s.x([3, 4], -1.0, 1.0);
            x.matmul_transposed(&x, false, true)
        }),
        case("xᵀ x", |s| {
            let x = s.x([3, 4], -1.0, 1.0);
            x.matmul_transposed(&x, true, false)
        }),
        case("x x", |s| {
            let x = s.x([3, 3], -1.0, 1.0);
            x.matmul(&x)
        }),
        case("x in four places", |s| {
            let x = s.x([3, 4], -1.0, 1.0);
            x.exp().add(&x.sigmoid().mul(&x)).sub(&x.relu())
        }),
        case("a parameter twice and itself in the loss", |s| {
            let w = s.raw([3, 3], -1.0, 1.0);
            w.matmul(&w).add(&w)
        }),
    ]
}

fn losses() -> Vec<Case> {
    let labels = |y: Vec<u32>| BTreeMap::from([("y", y)]);
    vec![
        case("softmax", |s| s.x([4, 5], -3.0, 3.0).softmax()),
        case("log_softmax", |s| s.x([4, 5], -3.0, 3.0).log_softmax()),
        case("softmax of 3 dimensions", |s| s.x([2, 3, 4], -3.0, 3.0).softmax()),
        case("softmax of one class", |s| s.x([3, 1], -3.0, 3.0).softmax().mul(&s.x([3, 1], -1.0, 1.0))),
        case("attention by hand", |s| {
            let (q, k, v) = (s.x([2, 3, 4], -1.0, 1.0), s.x([2, 3, 4], -1.0, 1.0), s.x([2, 3, 4], -1.0, 1.0));
            q.matmul_transposed(&k, false, true).scale(0.5).softmax().matmul(&v)
        }),
        case("mse", |s| s.x([3, 4], -2.0, 2.0).mse(&s.x([3, 4], -2.0, 2.0))),
        case("squares of broadcast differences", |s| {
            s.x([3, 4], -2.0, 2.0).sub(&s.x([4], -2.0, 2.0)).square().mean(&[])
        }),
        case("bce_with_logits", |s| s.x([3, 4], -3.0, 3.0).bce_with_logits(&s.x([3, 4], 0.1, 0.7))),
        labelled("cross_entropy", labels(vec![0, 4, 2, 2]), |s| {
            s.x([4, 5], -3.0, 3.0).cross_entropy(&s.trace.labels("y", [4], 5)).square()
        }),
        labelled("cross_entropy with ignored rows", labels(vec![IGNORE, 4, IGNORE, 2]), |s| {
            s.x([4, 5], -3.0, 3.0).cross_entropy(&s.trace.labels("y", [4], 5)).exp()
        }),
        labelled("cross_entropy of logits that are used again", labels(vec![1, 0, 2]), |s| {
            let logits = s.x([3, 3], -3.0, 3.0);
            logits.cross_entropy(&s.trace.labels("y", [3], 3)).add(&logits.square().mean(&[]))
        }),
    ]
}

/// Returns the sum of the squares of all elements as a scalar.
pub fn sum_squares(x: &Tensor) -> Tensor {
    x.reduce_keep(Reduction::SumSquares, &[]).reshape([])
}
