//! Functions of elements. Known operands are computed on the host.

use super::{Call, Constant, Handler, Import, Results, Value, known, one};
use crate::dtype::DType;
use crate::graph::Tensor;

pub(super) const OPS: &[(&str, Handler)] = &[
    ("Abs", |i, c| unary(i, c, f64::abs, |x| x.abs())),
    ("Add", |i, c| binary(i, c, |a, b| a + b, |a, b| a.add(b), Some(|a, n| a.offset(n)))),
    ("And", |i, c| binary(i, c, |a, b| flag(a != 0.0 && b != 0.0), |a, b| a.mul(b), None)),
    ("Cast", cast),
    ("CastLike", cast_like),
    ("Ceil", |i, c| unary(i, c, f64::ceil, |x| x.ceil())),
    ("Celu", |i, c| {
        let a = c.float("alpha", 1.0);
        float(i, c, |x| x.celu(a))
    }),
    ("Clip", clip),
    ("Cos", |i, c| unary(i, c, f64::cos, |x| x.cos())),
    ("Div", |i, c| binary(i, c, |a, b| a / b, |a, b| a.div(b), Some(|a, n| a.scale(1.0 / n)))),
    ("Dropout", dropout),
    ("Elu", |i, c| {
        let a = c.float("alpha", 1.0);
        float(i, c, |x| x.elu(a))
    }),
    ("Equal", |i, c| compare(i, c, |a, b| a == b, |a, b| a.equal(b))),
    ("Erf", |i, c| float(i, c, |x| x.erf())),
    ("Exp", |i, c| unary(i, c, f64::exp, |x| x.exp())),
    ("Floor", |i, c| unary(i, c, f64::floor, |x| x.floor())),
    ("Gelu", |i, c| {
        let tanh = c.text("approximate", "none") == "tanh";
        float(i, c, |x| if tanh { x.gelu_tanh() } else { x.gelu() })
    }),
    ("Greater", |i, c| compare(i, c, |a, b| a > b, |a, b| a.greater(b))),
    ("GreaterOrEqual", |i, c| compare(i, c, |a, b| a >= b, |a, b| a.greater_equal(b))),
    ("HardSigmoid", |i, c| {
        let (a, b) = (c.float("alpha", 0.2), c.float("beta", 0.5));
        float(i, c, |x| x.scale(a).offset(b).clamp(0.0, 1.0))
    }),
    ("HardSwish", |i, c| float(i, c, |x| x.hardswish())),
    ("Identity", |_, c| Ok(vec![c.input(0)])),
    ("IsNaN", |i, c| float(i, c, |x| x.not_equal(x))),
    ("LeakyRelu", |i, c| {
        let slope = c.float("alpha", 0.01);
        float(i, c, |x| x.leaky_relu(slope))
    }),
    ("Less", |i, c| compare(i, c, |a, b| a < b, |a, b| a.less(b))),
    ("LessOrEqual", |i, c| compare(i, c, |a, b| a <= b, |a, b| a.less_equal(b))),
    ("Log", |i, c| unary(i, c, f64::ln, |x| x.log())),
    ("Max", |i, c| many(i, c, f64::max, |a, b| a.maximum(b))),
    ("Mean", |i, c| {
        let count = c.inputs.len().max(1) as f32;
        let sum = many(i, c, |a, b| a + b, |a, b| a.add(b))?.swap_remove(0);
        one(i.float(&sum)?.scale(1.0 / count))
    }),
    ("Min", |i, c| many(i, c, f64::min, |a, b| a.minimum(b))),
    ("Mish", |i, c| float(i, c, |x| x.mish())),
    ("Mod", modulo),
    ("Mul", |i, c| binary(i, c, |a, b| a * b, |a, b| a.mul(b), Some(|a, n| a.scale(n)))),
    ("Neg", |i, c| unary(i, c, |x| -x, |x| x.neg())),
    ("Not", |i, c| unary(i, c, |x| flag(x == 0.0), |x| x.neg().offset(1.0))),
    ("Or", |i, c| binary(i, c, |a, b| flag(a != 0.0 || b != 0.0), |a, b| a.maximum(b), None)),
    ("PRelu", prelu),
    ("Pow", |i, c| binary(i, c, f64::powf, |a, b| a.pow(b), Some(power))),
    ("Reciprocal", |i, c| unary(i, c, |x| 1.0 / x, |x| x.recip())),
    ("Relu", |i, c| float(i, c, |x| x.relu())),
    ("Round", |i, c| unary(i, c, f64::round_ties_even, |x| x.round())),
    ("Selu", |i, c| {
        let (a, gamma) = (c.float("alpha", 1.673_263_2), c.float("gamma", 1.050_701));
        float(i, c, |x| x.elu(a).scale(gamma))
    }),
    ("Sigmoid", |i, c| float(i, c, |x| x.sigmoid())),
    ("Sign", |i, c| unary(i, c, |x| if x == 0.0 { 0.0 } else { x.signum() }, |x| x.sign())),
    ("Sin", |i, c| unary(i, c, f64::sin, |x| x.sin())),
    ("Softplus", |i, c| float(i, c, |x| x.softplus())),
    ("Softsign", |i, c| float(i, c, |x| x.div(&x.abs().offset(1.0)))),
    ("Sqrt", |i, c| unary(i, c, f64::sqrt, |x| x.sqrt())),
    ("Sub", |i, c| binary(i, c, |a, b| a - b, |a, b| a.sub(b), Some(|a, n| a.offset(-n)))),
    ("Sum", |i, c| many(i, c, |a, b| a + b, |a, b| a.add(b))),
    ("Swish", |i, c| float(i, c, |x| x.silu())),
    ("Tanh", |i, c| unary(i, c, f64::tanh, |x| x.tanh())),
    ("Where", select),
    ("Xor", |i, c| binary(i, c, |a, b| flag((a != 0.0) != (b != 0.0)), |a, b| a.not_equal(b), None)),
];

fn flag(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

fn power(x: &Tensor, exponent: f32) -> Tensor {
    match exponent {
        1.0 => x.clone(),
        2.0 => x.square(),
        0.5 => x.sqrt(),
        -1.0 => x.recip(),
        3.0 => x.square().mul(x),
        _ => x.powf(exponent),
    }
}

fn float<'a>(import: &mut Import<'a>, call: &Call<'a>, f: impl Fn(&Tensor) -> Tensor) -> Results<'a> {
    one(f(&import.x(call, 0)?))
}

fn unary<'a>(
    import: &mut Import<'a>,
    call: &Call<'a>,
    host: fn(f64) -> f64,
    f: impl Fn(&Tensor) -> Tensor,
) -> Results<'a> {
    match call.input(0) {
        Value::Constant(x) => known(x.map(x.integer, host)),
        _ => float(import, call, f),
    }
}

/// `by_number` computes the function of a tensor and one number.
fn binary<'a>(
    import: &mut Import<'a>,
    call: &Call<'a>,
    host: fn(f64, f64) -> f64,
    f: impl Fn(&Tensor, &Tensor) -> Tensor,
    by_number: Option<fn(&Tensor, f32) -> Tensor>,
) -> Results<'a> {
    let (a, b) = (call.input(0), call.input(1));
    if let (Value::Constant(a), Value::Constant(b)) = (&a, &b) {
        let integer = a.integer && b.integer;
        return known(a.zip(b, integer, |x, y| if integer { host(x, y).trunc() } else { host(x, y) })?);
    }
    if call.node.op_type == "Div"
        && [&a, &b].into_iter().any(|x| matches!(x, Value::Tensor(x) if x.dtype() == DType::U32))
    {
        return Err("integers are divided only where they are known".to_owned());
    }
    let rank = import.dims(&a)?.len();
    if let (Some(by_number), Value::Constant(b)) = (by_number, &b)
        && let Some(number) = b.single().filter(|_| b.dims.len() <= rank)
    {
        return one(by_number(&import.float(&a)?, number as f32));
    }
    let (a, b) = (import.float(&a)?, import.float(&b)?);
    one(f(&a, &b))
}

fn compare<'a>(
    import: &mut Import<'a>,
    call: &Call<'a>,
    host: fn(f64, f64) -> bool,
    f: impl Fn(&Tensor, &Tensor) -> Tensor,
) -> Results<'a> {
    if let (Value::Constant(a), Value::Constant(b)) = (call.input(0), call.input(1)) {
        return known(a.zip(&b, true, |x, y| flag(host(x, y)))?);
    }
    let (a, b) = (import.x(call, 0)?, import.x(call, 1)?);
    one(f(&a, &b))
}

/// A function of any number of operands.
fn many<'a>(
    import: &mut Import<'a>,
    call: &Call<'a>,
    host: fn(f64, f64) -> f64,
    f: impl Fn(&Tensor, &Tensor) -> Tensor,
) -> Results<'a> {
    let constants: Option<Vec<Constant>> = call
        .inputs
        .iter()
        .map(|input| if let Value::Constant(constant) = input { Some(constant.clone()) } else { None })
        .collect();
    if let Some((first, rest)) = constants.as_deref().and_then(<[Constant]>::split_first) {
        let fold = |a: Constant, b: &Constant| a.zip(b, a.integer && b.integer, host);
        return known(rest.iter().try_fold(first.clone(), fold)?);
    }
    let mut all = import.x(call, 0)?;
    for i in 1..call.inputs.len() {
        all = f(&all, &import.x(call, i)?);
    }
    one(all)
}

/// Converts to ONNX's element type: integers are truncated numbers.
fn converted<'a>(import: &mut Import<'a>, value: &Value<'a>, to: i64) -> Results<'a> {
    let (boolean, integer) = (to == 9, matches!(to, 2..=7 | 12 | 13));
    if let Value::Constant(x) = value {
        let convert = |x: f64| match (boolean, integer) {
            (true, _) => flag(x != 0.0),
            (_, true) => x.trunc(),
            _ => x,
        };
        return known(x.map(boolean || integer, convert));
    }
    if let Value::Tensor(x) = value
        && x.dtype() == DType::U32
        && integer
    {
        return Ok(vec![value.clone()]);
    }
    let x = import.float(value)?;
    one(match (boolean, integer) {
        (true, _) => x.not_equal(&x.fill_like([], 0.0)),
        // Towards 0.
        (_, true) => x.abs().floor().mul(&x.sign()),
        _ => x,
    })
}

fn cast<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    converted(import, &call.input(0), call.int("to", 1))
}

fn cast_like<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let integer = match call.input(1) {
        Value::Constant(like) => like.integer,
        Value::Tensor(like) => like.dtype() == DType::U32,
        _ => false,
    };
    converted(import, &call.input(0), if integer { 7 } else { 1 })
}

fn clip<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let bound = |i: usize, name: &str, otherwise: f32| match call.has(i) {
        true => call
            .constant(import, i)?
            .single()
            .map(|x| x as f32)
            .ok_or_else(|| "a bound of many numbers".to_owned()),
        false => Ok(call.float(name, otherwise)),
    };
    let (low, high) = (bound(1, "min", f32::NEG_INFINITY)?, bound(2, "max", f32::INFINITY)?);
    match call.input(0) {
        Value::Constant(x) => known(x.map(x.integer, |x| x.max(low.into()).min(high.into()))),
        _ if low == 0.0 && high == f32::INFINITY => float(import, call, |x| x.relu()),
        _ => float(import, call, |x| x.clamp(low, high)),
    }
}

fn dropout<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let ratio = match call.has(1) {
        true => call.constant(import, 1)?.single().unwrap_or(0.5),
        false => f64::from(call.float("ratio", 0.5)),
    };
    let x = import.x(call, 0)?;
    let y = if import.training() { x.dropout(ratio) } else { x.clone() };
    // The mask, which exporters declare and nothing reads.
    Ok(vec![Value::Tensor(y), Value::Tensor(x.fill_like(x.shape(), 1.0))])
}

fn modulo<'a>(_: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let truncated = call.int("fmod", 0) == 1;
    match (call.input(0), call.input(1)) {
        (Value::Constant(a), Value::Constant(b)) => {
            known(a.zip(&b, a.integer, |x, y| if truncated { x % y } else { x - y * (x / y).floor() })?)
        }
        _ => Err("remainders are computed only of constants".to_owned()),
    }
}

fn prelu<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, slope) = (import.x(call, 0)?, import.x(call, 1)?);
    one(x.prelu(&slope))
}

fn select<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    if let (Value::Constant(c), Value::Constant(a), Value::Constant(b)) =
        (call.input(0), call.input(1), call.input(2))
    {
        let integer = a.integer && b.integer;
        let chosen = c.zip(&a, integer, |c, a| if c != 0.0 { a } else { 0.0 })?;
        let other = c.zip(&b, integer, |c, b| if c != 0.0 { 0.0 } else { b })?;
        return known(chosen.zip(&other, integer, |a, b| if a != 0.0 { a } else { b })?);
    }
    let (condition, a, b) = (import.x(call, 0)?, import.x(call, 1)?, import.x(call, 2)?);
    one(condition.where_cond(&a, &b))
}
