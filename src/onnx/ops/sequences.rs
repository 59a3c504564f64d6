//! Sequences of tensors, whose lengths and places are known when the network is traced.

use super::super::import::axis;
use super::{Call, Constant, Handler, Import, Results, Value, known, one, parts, whole};
use crate::dtype::DType;
use crate::graph::Tensor;

pub(super) const OPS: &[(&str, Handler)] = &[
    ("ConcatFromSequence", concat),
    ("SequenceAt", at),
    ("SequenceConstruct", |_, c| Ok(vec![Value::List(c.inputs.clone())])),
    ("SequenceEmpty", |_, _| Ok(vec![Value::List(Vec::new())])),
    ("SequenceErase", erase),
    ("SequenceInsert", insert),
    ("SequenceLength", |_, c| known(Constant::scalar(list(c)?.len() as f64, true))),
    ("SplitToSequence", split),
];

fn list<'a>(call: &Call<'a>) -> Result<Vec<Value<'a>>, String> {
    if let Value::List(list) = call.input(0) { Ok(list) } else { Err("a sequence is needed".to_owned()) }
}

/// A place that may count from the end, of `len`.
fn place<'a>(import: &Import<'a>, call: &Call<'a>, i: usize, len: usize) -> Result<usize, String> {
    let place = call.constant(import, i)?.single().ok_or("one place is needed")? as i64;
    axis(place, len).map_err(|_| format!("place {place} of a sequence of {len}"))
}

fn at<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let list = list(call)?;
    let place = place(import, call, 1, list.len())?;
    Ok(vec![list[place].clone()])
}

fn erase<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let mut list = list(call)?;
    let place = if call.has(1) { place(import, call, 1, list.len())? } else { list.len().max(1) - 1 };
    if list.is_empty() {
        return Err("a sequence of 0 has nothing to erase".to_owned());
    }
    list.remove(place);
    Ok(vec![Value::List(list)])
}

fn insert<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let mut list = list(call)?;
    let end = list.len();
    // At the end is a place, too; from the end, -1 is before the last.
    let place = match call.has(2) {
        true => match call.constant(import, 2)?.single().ok_or("one place is needed")? as i64 {
            last if last == end as i64 => end,
            other => axis(other, end).map_err(|_| format!("place {other} of a sequence of {end}"))?,
        },
        false => end,
    };
    list.insert(place, call.input(1));
    Ok(vec![Value::List(list)])
}

/// Joins along an axis, or along a new one.
fn concat<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let new = call.int("new_axis", 0) != 0;
    let list = list(call)?;
    let rank = import.dims(list.first().ok_or("a sequence of 0 has no shape")?)?.len();
    let along = axis(call.int("axis", 0), rank + usize::from(new))?;
    let mut parts: Vec<Tensor> = list.iter().map(|value| import.float(value)).collect::<Result<_, _>>()?;
    if new {
        parts = parts.iter().map(|part| part.unsqueeze(along)).collect();
    }
    one(parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), along))
}

fn split<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let along = axis(call.int("axis", 0), dims.len())?;
    let len = dims[along];
    let few = |count: usize| parts(count, along, len);
    let wrong = |list: &[f64]| format!("lengths {list:?} of {len} along axis {along}");
    let (each, keep) = match call.has(1) {
        true => (Some(call.constant(import, 1)?), true),
        false => (None, call.int("keepdims", 1) != 0),
    };
    let lengths: Vec<usize> = match each {
        None => {
            few(len)?;
            vec![1; len]
        }
        // One number: parts of this length, and the rest.
        Some(each) if each.dims.is_empty() => {
            let part = each.data[0] as usize;
            if part == 0 {
                return Err(wrong(&each.data));
            }
            few(len.div_ceil(part))?;
            (0..len.div_ceil(part)).map(|i| part.min(len - i * part)).collect()
        }
        Some(each) => {
            few(each.data.len())?;
            let lengths: Vec<usize> = each.data.iter().map(|x| *x as usize).collect();
            if lengths.iter().try_fold(0usize, |n, part| n.checked_add(*part)) != Some(len) {
                return Err(wrong(&each.data));
            }
            lengths
        }
    };
    let x = whole(import, call, 0)?;
    let x = if x.dtype() == DType::U32 { x.cast(DType::F32) } else { x };
    let parts = x.split(along, &lengths).into_iter();
    let parts = parts.map(|part| Value::Tensor(if keep { part } else { part.squeeze(along) }));
    Ok(vec![Value::List(parts.collect())])
}
