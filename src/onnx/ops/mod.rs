//! What each kind of node computes.

mod elementwise;
mod images;
mod learn;
mod products;
mod recurrent;
mod reduce;
mod select;
mod sequences;
mod shapes;

use super::constant::Constant;
use super::import::{Call, Handler, Import, Value};
use crate::graph::Tensor;
use crate::nn::MAX_PARTS;

/// The kinds of nodes, by family.
const FAMILIES: [&[(&str, Handler)]; 8] = [
    elementwise::OPS,
    images::OPS,
    products::OPS,
    recurrent::OPS,
    reduce::OPS,
    select::OPS,
    sequences::OPS,
    shapes::OPS,
];

/// Returns how a node is recorded.
pub(super) fn lookup(domain: &str, op: &str) -> Option<Handler> {
    let families = match domain {
        "" | "ai.onnx" => &FAMILIES[..],
        "ai.onnx.ml" => &[learn::OPS],
        _ => return None,
    };
    families
        .iter()
        .flat_map(|family| family.iter())
        .find(|(name, _)| *name == op)
        .map(|(_, handler)| *handler)
}

/// Returns the names of all kinds of nodes, sorted.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FAMILIES
        .iter()
        .chain(&[learn::OPS])
        .flat_map(|family| family.iter())
        .map(|(name, _)| *name)
        .collect();
    names.sort_unstable();
    names
}

type Results<'a> = Result<Vec<Value<'a>>, String>;

fn one<'a>(tensor: Tensor) -> Results<'a> {
    Ok(vec![Value::Tensor(tensor)])
}

fn known<'a>(constant: Constant) -> Results<'a> {
    Ok(vec![Value::Constant(constant)])
}

/// Refuses to cut an axis of `len` into more parts than are traced.
fn parts(count: usize, along: usize, len: usize) -> Result<(), String> {
    if count <= MAX_PARTS {
        return Ok(());
    }
    Err(format!(
        "{count} parts of {len} along axis {along}: at most {MAX_PARTS} are cut; give it a shorter input"
    ))
}

/// A tensor without loss of its element type.
fn whole<'a>(import: &mut Import<'a>, call: &Call<'a>, i: usize) -> Result<Tensor, String> {
    match call.input(i) {
        Value::Tensor(x) => Ok(x),
        other => import.float(&other),
    }
}
