//! Nodes of the domain `ai.onnx.ml` that scikit-learn's exporter writes around products.

use super::{Call, Handler, Import, Results, Value, one};
use crate::graph::{Reduction, Tensor};

pub(super) const OPS: &[(&str, Handler)] = &[
    ("ArrayFeatureExtractor", extract),
    ("LinearClassifier", linear_classifier),
    ("LinearRegressor", linear_regressor),
    ("Normalizer", normalizer),
    ("Scaler", scaler),
    // A map from the names of classes to their numbers: the numbers, in the order of the names.
    ("ZipMap", |i, c| one(i.x(c, 0)?)),
];

/// Elements along the last dimension, by index.
fn extract<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, ids) = (import.x(call, 0)?, import.indices(&call.input(1))?);
    let x = if x.shape().rank() == 1 { x.unsqueeze(0) } else { x };
    let count = usize::try_from(ids.shape().numel()).map_err(|_| "too many indices")?;
    one(x.index_select(x.shape().rank().saturating_sub(1), &ids.reshape([count])))
}

/// `x [n, in] Wᵀ + b` of the attributes `coefficients` and `intercepts`, which are parameters.
fn product<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Result<Tensor, String> {
    let x = import.x(call, 0)?;
    let weights = call.floats("coefficients").ok_or("no coefficients")?;
    let &[_, inputs] = x.shape().dims() else { return Err(format!("rows are needed, not {}", x.shape())) };
    if inputs == 0 || weights.is_empty() || !weights.len().is_multiple_of(inputs) {
        return Err(format!("{} coefficients for rows of {inputs}", weights.len()));
    }
    let rows = weights.len() / inputs;
    let weight = import.attribute_parameter(call, "coefficients", &[rows, inputs], weights)?;
    let y = x.matmul_transposed(&weight, false, true);
    match call.floats("intercepts") {
        Some(bias) if bias.len() == rows => {
            Ok(y.add(&import.attribute_parameter(call, "intercepts", &[rows], bias)?))
        }
        Some(bias) if !bias.is_empty() => Err(format!("{} intercepts for {rows} results", bias.len())),
        _ => Ok(y),
    }
}

fn transformed(y: Tensor, call: &Call) -> Result<Tensor, String> {
    match &call.text("post_transform", "NONE")[..] {
        "NONE" => Ok(y),
        "SOFTMAX" => Ok(y.softmax()),
        "LOGISTIC" => Ok(y.sigmoid()),
        other => Err(format!("post_transform `{other}`: NONE, SOFTMAX and LOGISTIC are computed")),
    }
}

fn linear_regressor<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    one(transformed(product(import, call)?, call)?)
}

/// Labels, which are integers, and scores.
fn linear_classifier<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let scores = product(import, call)?;
    let labels = call.ints("classlabels_ints").unwrap_or_default();
    if labels.len() != scores.dim(1) {
        // Text has no element type here.
        return Err(format!("{} integers as labels of {} scores", labels.len(), scores.dim(1)));
    }
    if let Some(label) = labels.iter().find(|label| (**label as f32) as i64 != **label) {
        return Err(format!("label {label}: results are of 32 bits, which do not hold it"));
    }
    let names: Vec<f32> = labels.iter().map(|label| *label as f32).collect();
    let names = import.floats_of(&[1, names.len()], &names)?;
    let label = names.index_select(1, &scores.argmax(1)).squeeze(0);
    let scores = transformed(scores, call)?;
    Ok(vec![Value::Tensor(label), Value::Tensor(scores)])
}

/// `(x - offset) scale`
fn scaler<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let fits = |list: &Vec<f32>| list.len() == 1 || list.len() == x.shape().last();
    let given = |name: &str| call.floats(name).filter(|list| !list.is_empty());
    let (offset, scale) = (given("offset"), given("scale"));
    if let Some(list) = offset.iter().chain(&scale).find(|list| !fits(list)) {
        return Err(format!("{} numbers for rows of {}", list.len(), x.shape().last()));
    }
    let moved = match offset {
        Some(offset) => x.sub(&import.floats_of(&[offset.len()], &offset)?),
        None => x,
    };
    one(match scale {
        Some(scale) => moved.mul(&import.floats_of(&[scale.len()], &scale)?),
        None => moved,
    })
}

/// Rows divided by their norm; those of zeros stay.
fn normalizer<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let last = x.shape().rank().checked_sub(1).ok_or("rows are needed")?;
    let norm = match &call.text("norm", "MAX")[..] {
        "MAX" => x.reduce_keep(Reduction::Max, &[last]),
        "L1" => x.norm(1.0, &[last]).unsqueeze(last),
        "L2" => x.norm(2.0, &[last]).unsqueeze(last),
        other => return Err(format!("norm `{other}`")),
    };
    let none = norm.equal(&norm.fill_like([], 0.0));
    one(x.div(&norm.add(&none)))
}
