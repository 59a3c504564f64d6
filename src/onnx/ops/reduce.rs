//! Reductions, positions of extrema, sums of prefixes.

use super::super::import::axis;
use super::{Call, Constant, Handler, Import, Results, Value, known, one};
use crate::dtype::DType;
use crate::graph::Tensor;

pub(super) const OPS: &[(&str, Handler)] = &[
    ("ArgMax", |i, c| position(i, c, Tensor::argmax)),
    ("ArgMin", |i, c| position(i, c, Tensor::argmin)),
    ("CumSum", cumsum),
    ("ReduceL1", |i, c| reduce(i, c, |x, axes| x.norm(1.0, axes))),
    ("ReduceL2", |i, c| reduce(i, c, |x, axes| x.norm(2.0, axes))),
    ("ReduceLogSum", |i, c| reduce(i, c, |x, axes| x.sum(axes).log())),
    ("ReduceLogSumExp", |i, c| reduce(i, c, Tensor::logsumexp)),
    ("ReduceMax", |i, c| reduce(i, c, Tensor::max)),
    ("ReduceMean", |i, c| reduce(i, c, Tensor::mean)),
    ("ReduceMin", |i, c| reduce(i, c, Tensor::min)),
    ("ReduceProd", |i, c| reduce(i, c, Tensor::prod)),
    ("ReduceSum", |i, c| reduce(i, c, Tensor::sum)),
    ("ReduceSumSquare", |i, c| reduce(i, c, |x, axes| x.square().sum(axes))),
    ("TopK", topk),
];

/// Reduces a vector of known numbers.
fn on_host(op: &str, data: &[f64]) -> Option<f64> {
    match op {
        "ReduceProd" => Some(data.iter().product()),
        "ReduceSum" => Some(data.iter().sum()),
        "ReduceMax" => data.iter().copied().reduce(f64::max),
        "ReduceMin" => data.iter().copied().reduce(f64::min),
        _ => None,
    }
}

fn reduce<'a>(
    import: &mut Import<'a>,
    call: &Call<'a>,
    f: impl Fn(&Tensor, &[usize]) -> Tensor,
) -> Results<'a> {
    let axes = call.list(import, 1, "axes")?;
    let keep = call.int("keepdims", 1) != 0;
    let rank = import.dims(&call.input(0))?.len();
    let none = axes.as_ref().is_none_or(Vec::is_empty);
    if none && call.int("noop_with_empty_axes", 0) != 0 {
        return Ok(vec![call.input(0)]);
    }
    let axes: Vec<usize> = match axes.filter(|_| !none) {
        Some(axes) => axes.into_iter().map(|own| axis(own, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if let Value::Constant(x) = call.input(0)
        && axes.len() == rank
        && let Some(value) = on_host(&call.node.op_type, &x.data)
    {
        let dims = if keep { vec![1; rank] } else { Vec::new() };
        return known(Constant { dims, data: vec![value], integer: x.integer });
    }
    let x = import.x(call, 0)?;
    let y = if axes.is_empty() { x.clone() } else { f(&x, &axes) };
    if !keep {
        return one(y);
    }
    one(y.reshape(axes.iter().fold(x.shape(), |shape, axis| shape.with(*axis, 1))))
}

fn position<'a>(import: &mut Import<'a>, call: &Call<'a>, f: fn(&Tensor, usize) -> Tensor) -> Results<'a> {
    let x = import.x(call, 0)?;
    let along = axis(call.int("axis", 0), x.shape().rank())?;
    let found = match call.int("select_last_index", 0) {
        0 => f(&x, along),
        // The first from the end.
        _ => {
            let last = x.dim(along).max(1) - 1;
            f(&x.flip(along), along).cast(DType::F32).neg().offset(last as f32).cast(DType::U32)
        }
    };
    one(if call.int("keepdims", 1) != 0 { found.unsqueeze(along) } else { found })
}

fn cumsum<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let along = call.constant(import, 1)?.single().ok_or("one axis is needed")? as i64;
    let (exclusive, reverse) = (call.int("exclusive", 0) != 0, call.int("reverse", 0) != 0);
    if let Value::Constant(x) = call.input(0)
        && x.dims.len() == 1
        && !exclusive
        && !reverse
    {
        let mut sum = 0.0;
        let data = x.data.iter().map(|x| {
            sum += x;
            sum
        });
        return known(Constant { data: data.collect(), ..x.clone() });
    }
    let x = import.x(call, 0)?;
    let along = axis(along, x.shape().rank())?;
    let ordered = if reverse { x.flip(along) } else { x.clone() };
    let sums = ordered.cumsum(along);
    let sums = if exclusive { sums.sub(&ordered) } else { sums };
    one(if reverse { sums.flip(along) } else { sums })
}

fn topk<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let k = call.constant(import, 1)?.single().ok_or("one number is needed")?;
    let x = import.x(call, 0)?;
    let along = axis(call.int("axis", -1), x.shape().rank())?;
    if k < 0.0 || k > x.dim(along) as f64 {
        return Err(format!("the {k} first of {}", x.dim(along)));
    }
    let (values, ids) = x.topk(k as usize, along, call.int("largest", 1) != 0);
    Ok(vec![Value::Tensor(values), Value::Tensor(ids)])
}
