//! Products, norms, softmax and lookups of rows.

use super::super::import::{axis, shape};
use super::{Call, Constant, Handler, Import, Results, Value, one};
use crate::graph::{Attention, Reduction, Tensor};

pub(super) const OPS: &[(&str, Handler)] = &[
    ("Attention", attention),
    ("Einsum", einsum),
    ("Gemm", gemm),
    ("LayerNormalization", layer_norm),
    ("LogSoftmax", |i, c| softmax(i, c, Tensor::log_softmax_over)),
    ("MatMul", matmul),
    ("RMSNormalization", rms_norm),
    ("SimplifiedLayerNormalization", rms_norm),
    ("Softmax", |i, c| softmax(i, c, Tensor::softmax_over)),
];

fn matmul<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (a, b) = (import.x(call, 0)?, import.x(call, 1)?);
    one(a.matmul(&b))
}

fn gemm<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (a, b) = (import.x(call, 0)?, import.x(call, 1)?);
    let (alpha, beta) = (call.float("alpha", 1.0), call.float("beta", 1.0));
    let product = a.matmul_transposed(&b, call.int("transA", 0) != 0, call.int("transB", 0) != 0);
    let product = if alpha == 1.0 { product } else { product.scale(alpha) };
    if !call.has(2) {
        return one(product);
    }
    let c = import.x(call, 2)?;
    one(product.add(&if beta == 1.0 { c } else { c.scale(beta) }))
}

/// Attention of opset 23: heads `[b, h, s, d]`, or next to each other, `[b, s, h d]`.
fn attention<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    for (i, name) in [(4, "past_key"), (5, "past_value"), (6, "nonpad_kv_seqlen")] {
        if call.has(i) {
            return Err(format!("operand {name}: only keys and values of this step are read"));
        }
    }
    for name in ["left_window_size", "right_window_size"] {
        if call.int(name, -1) >= 0 {
            return Err(format!("{name} {}: only attention without a window is read", call.int(name, -1)));
        }
    }
    if let Some(name) = call.node.output.iter().skip(1).find(|name| !name.is_empty()) {
        return Err(format!("result `{name}`: only the first result is computed"));
    }
    let counts = [("q_num_heads", 0), ("kv_num_heads", 1), ("kv_num_heads", 2)];
    let apart = counts.map(|(name, i)| {
        let (x, heads) = (import.x(call, i)?, call.int(name, 0).max(0) as usize);
        match *x.shape().dims() {
            [_, _, _, _] => Ok(x.permute(&[0, 2, 1, 3])),
            [b, s, width] if heads > 0 && width % heads == 0 => Ok(x.reshape([b, s, heads, width / heads])),
            _ => Err(format!("operand {} with {name} {heads}", x.shape())),
        }
    });
    let [q, k, v] = apart;
    let (q, k, v) = (q?, k?, v?);
    let number = |name| Some(call.float(name, 0.0)).filter(|number| *number != 0.0);
    // Scores are capped before masks, as ONNX has it since 1.22: a mask of -∞ would not hide a key otherwise.
    let (scale, softcap) = (number("scale"), number("softcap"));
    let options = Attention { causal: call.int("is_causal", 0) != 0, scale, softcap, ..Attention::default() };
    let y = match call.input(3) {
        Value::Absent => q.attention(&k, &v, &options),
        mask => {
            let mask = added(import, mask)?;
            // From opset 24 on, a mask that is shorter than the keys hides those after its end.
            if import.opset >= 24 && mask.shape().last() != k.dim(1) {
                return Err(format!(
                    "attn_mask {}: its last dimension has to be that of {} keys",
                    mask.shape(),
                    k.dim(1)
                ));
            }
            q.attention_masked(&k, &v, &mask, &options)
        }
    };
    match import.dims(&call.input(0))?[..] {
        [b, s, _] => one(y.reshape([b, s, y.dim(2) * y.dim(3)])),
        _ => one(y.permute(&[0, 2, 1, 3])),
    }
}

/// What a mask adds to scores: a mask of booleans hides keys where it is false.
fn added<'a>(import: &mut Import<'a>, mask: Value<'a>) -> Result<Tensor, String> {
    match mask {
        Value::Constant(Constant { dims, data, integer: true }) => {
            if let Some(number) = data.iter().find(|seen| ![0.0, 1.0].contains(*seen)) {
                return Err(format!("attn_mask with the integer {number}: booleans and floats are read"));
            }
            let data = data.iter().map(|seen| if *seen == 0.0 { -1e9 } else { 0.0 }).collect();
            import.float(&Value::Constant(Constant { dims, data, integer: false }))
        }
        // Where booleans are computed, they are numbers 0 and 1.
        Value::Tensor(_) => Err("attn_mask: only masks that the file holds are read".to_owned()),
        other => import.untrained(&other),
    }
}

fn einsum<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let operands: Vec<Tensor> =
        (0..call.inputs.len()).map(|i| import.x(call, i)).collect::<Result<_, _>>()?;
    let (first, rest) = operands.split_first().ok_or("no operands")?;
    one(first.einsum(&call.text("equation", ""), &rest.iter().collect::<Vec<_>>()))
}

fn softmax<'a>(import: &mut Import<'a>, call: &Call<'a>, over: fn(&Tensor, usize) -> Tensor) -> Results<'a> {
    let x = import.x(call, 0)?;
    if import.opset >= 13 {
        return one(over(&x, axis(call.int("axis", -1), x.shape().rank())?));
    }
    // All dimensions from the axis on are one.
    let from = axis(call.int("axis", 1), x.shape().rank())?;
    one(over(&x.flatten(from), from).reshape(x.shape()))
}

/// The operand with the dimensions from `axis` on as one, and the length of that.
fn rows<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Result<(Tensor, Tensor), String> {
    let x = import.x(call, 0)?;
    let from = axis(call.int("axis", -1), x.shape().rank())?;
    Ok((x.clone(), x.flatten(from)))
}

fn layer_norm<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, flat) = rows(import, call)?;
    let width = flat.shape().last();
    let gamma = import.x(call, 1)?.reshape([width]);
    let beta = if call.has(2) { import.x(call, 2)?.reshape([width]) } else { x.fill_like([width], 0.0) };
    one(flat.layer_norm(&gamma, &beta, call.float("epsilon", 1e-5)).reshape(x.shape()))
}

fn rms_norm<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, flat) = rows(import, call)?;
    let gamma = import.x(call, 1)?.reshape([flat.shape().last()]);
    one(flat.rms_norm(&gamma, call.float("epsilon", 1e-5)).reshape(x.shape()))
}

/// `γ (x - mean) / √(var + ε) + β` over groups of channels.
pub(super) fn group_norm<'a>(import: &mut Import<'a>, call: &Call<'a>, groups: usize) -> Results<'a> {
    let (x, gamma, beta) = (import.x(call, 0)?, import.x(call, 1)?, import.x(call, 2)?);
    one(x.group_norm(groups, &gamma, &beta, call.float("epsilon", 1e-5)))
}

/// `x / norm` along an axis.
pub(super) fn lp_normalization<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let along = axis(call.int("axis", -1), x.shape().rank())?;
    let p = call.int("p", 2) as f32;
    let norm = x.norm(p, &[along]).reshape(shape(x.shape().with(along, 1).dims())?);
    one(x.div(&norm))
}

/// `x - mean` over `√var` of the axes.
pub(super) fn mean_variance<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let rank = x.shape().rank();
    let axes = call.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let axes: Vec<usize> = axes.into_iter().map(|own| axis(own, rank)).collect::<Result<_, _>>()?;
    let centred = x.sub(&x.reduce_keep(Reduction::Mean, &axes));
    let var = centred.square().reduce_keep(Reduction::Mean, &axes);
    Ok(vec![Value::Tensor(centred.div(&var.sqrt().offset(1e-9)))])
}
