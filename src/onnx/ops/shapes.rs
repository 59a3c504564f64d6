//! Shapes, views, selections and rearrangements.

use super::super::constant::{broadcast, folded};
use super::super::import::{axis, shape};
use super::{Call, Constant, Handler, Import, Results, Value, known, one, parts, whole};
use crate::dtype::DType;
use crate::graph::{Padding, Tensor};

pub(super) const OPS: &[(&str, Handler)] = &[
    ("Concat", concat),
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("DepthToSpace", depth_to_space),
    ("Expand", expand),
    ("EyeLike", eye_like),
    ("Flatten", flatten),
    ("If", branch),
    ("Pad", pad),
    ("Range", range),
    ("Reshape", reshape),
    ("Shape", shape_of),
    ("Size", size),
    ("Slice", slice),
    ("SpaceToDepth", space_to_depth),
    ("Split", split),
    ("Squeeze", squeeze),
    ("Tile", tile),
    ("Transpose", transpose),
    ("Trilu", trilu),
    ("Unsqueeze", unsqueeze),
];

fn sizes(list: &[i64]) -> Result<Vec<usize>, String> {
    list.iter().map(|&len| usize::try_from(len).map_err(|_| format!("a length of {len}"))).collect()
}

fn concat<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let along = axis(call.int("axis", 0), import.dims(&call.input(0))?.len())?;
    let constants: Option<Vec<Constant>> = call
        .inputs
        .iter()
        .map(|input| if let Value::Constant(constant) = input { Some(constant.clone()) } else { None })
        .collect();
    if let Some(constants) = constants {
        return known(Constant::concat(&constants, along)?);
    }
    let mut parts: Vec<Tensor> =
        (0..call.inputs.len()).map(|i| whole(import, call, i)).collect::<Result<_, _>>()?;
    if parts.iter().any(|x| x.dtype() != parts[0].dtype()) {
        parts = parts.iter().map(|x| x.cast(DType::F32)).collect();
    }
    one(parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), along))
}

fn constant<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    if let Some(tensor) = call.tensor_attribute("value") {
        return import.constant_node(&call.node.output[0], tensor).map(|value| vec![value]);
    }
    if let Some(list) = call.ints("value_ints") {
        return known(Constant::ints(list));
    }
    if let Some(list) = call.floats("value_floats") {
        let data: Vec<f64> = list.into_iter().map(f64::from).collect();
        return known(Constant { dims: vec![data.len()], data, integer: false });
    }
    let has = |name: &str| call.node.attribute.iter().any(|attribute| attribute.name == name);
    match (has("value_int"), has("value_float")) {
        (true, _) => known(Constant::scalar(call.int("value_int", 0) as f64, true)),
        (_, true) => known(Constant::scalar(f64::from(call.float("value_float", 0.0)), false)),
        _ => Err("a constant without numbers".to_owned()),
    }
}

fn constant_of_shape<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = sizes(&call.constant(import, 0)?.as_ints())?;
    let value = match call.tensor_attribute("value") {
        Some(tensor) => import.constant_of(tensor)?,
        None => Constant::scalar(0.0, false),
    };
    let single = value.single().ok_or("one number is needed")?;
    match folded(&dims) {
        Ok(count) => known(Constant { dims, data: vec![single; count], integer: value.integer }),
        Err(_) => one(import.trace.filled(shape(&dims)?, single as f32)),
    }
}

fn expand<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let to = sizes(&call.constant(import, 1)?.as_ints())?;
    let to = broadcast(&import.dims(&call.input(0))?, &to)?;
    if let Value::Constant(x) = call.input(0)
        && folded(&to).is_ok()
    {
        return known(x.expand(&to)?);
    }
    one(whole(import, call, 0)?.expand(shape(&to)?))
}

fn eye_like<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let [rows, columns] = dims[..] else { return Err(format!("a matrix is needed, not {dims:?}")) };
    folded(&dims)?;
    let k = call.int("k", 0);
    let data =
        (0..rows * columns).map(|i| f64::from(u8::from((i % columns) as i64 - (i / columns) as i64 == k)));
    known(Constant { data: data.collect(), dims, integer: false })
}

fn flatten<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = whole(import, call, 0)?;
    let rank = x.shape().rank();
    let cut = call.int("axis", 1);
    let cut = if cut == rank as i64 { rank } else { axis(cut, rank)? };
    let dims = x.shape().dims().to_vec();
    let outer: usize = dims[..cut].iter().product();
    let inner: usize = dims[cut..].iter().product();
    one(x.reshape([outer, inner]))
}

fn branch<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let condition = call.constant(import, 0)?.single().ok_or("one condition is needed")?;
    let name = if condition != 0.0 { "then_branch" } else { "else_branch" };
    import.branch(call.graph(name).ok_or("a branch is missing")?)
}

fn pad<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let amounts = call.list(import, 1, "pads")?.ok_or("pads are needed")?;
    let value = match call.has(2) {
        true => call.constant(import, 2)?.single().unwrap_or(0.0) as f32,
        false => call.float("value", 0.0),
    };
    let mode = match &call.text("mode", "constant")[..] {
        "constant" => Padding::Constant(value),
        "reflect" => Padding::Reflect,
        "edge" => Padding::Replicate,
        "wrap" => Padding::Circular,
        other => return Err(format!("mode `{other}`")),
    };
    let mut x = import.x(call, 0)?;
    let rank = x.shape().rank();
    let axes = match call.has(3) {
        true => call.constant(import, 3)?.as_ints(),
        false => (0..rank as i64).collect(),
    };
    if amounts.len() != 2 * axes.len() {
        return Err(format!("{} pads for {} axes", amounts.len(), axes.len()));
    }
    for (i, own) in axes.iter().enumerate() {
        let along = axis(*own, rank)?;
        let (before, after) = (amounts[i], amounts[i + axes.len()]);
        // Negative padding cuts.
        let cut = |n: i64| n.min(0).unsigned_abs() as usize;
        if before < 0 || after < 0 {
            let len = x.dim(along);
            let end = len
                .checked_sub(cut(after))
                .filter(|end| cut(before) <= *end)
                .ok_or("more is cut than there is")?;
            x = x.slice(along, cut(before)..end);
        }
        x = x.pad_with(along, before.max(0) as usize, after.max(0) as usize, mode);
    }
    one(x)
}

fn range<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let numbers: Vec<Constant> = (0..3).map(|i| call.constant(import, i)).collect::<Result<_, _>>()?;
    let single = |i: usize| numbers[i].single().ok_or("one number each is needed");
    let (start, limit, delta) = (single(0)?, single(1)?, single(2)?);
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() {
        return Err(format!("a range from {start} to {limit} by {delta}"));
    }
    let dims = vec![count as usize];
    folded(&dims)?;
    let data = (0..dims[0]).map(|i| start + i as f64 * delta).collect();
    known(Constant { dims, data, integer: numbers[0].integer })
}

fn reshape<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let to = call.list(import, 1, "shape")?.ok_or("a shape is needed")?;
    let dims = import.dims(&call.input(0))?;
    let keep_zero = call.int("allowzero", 0) != 0;
    if to.iter().filter(|len| **len == -1).count() > 1 {
        return Err(format!("a shape {to:?}: at most one length is left to be found"));
    }
    let mut result = Vec::new();
    for (i, &len) in to.iter().enumerate() {
        result.push(match len {
            0 if !keep_zero => {
                *dims.get(i).ok_or_else(|| format!("{to:?} copies a dimension that {dims:?} has not"))?
            }
            -1 => 1,
            _ => usize::try_from(len).map_err(|_| format!("a length of {len}"))?,
        });
    }
    let count: usize = dims.iter().product();
    if let Some(open) = to.iter().position(|len| *len == -1) {
        let others = result.iter().try_fold(1usize, |n, len| n.checked_mul(*len)).unwrap_or(0);
        if others == 0 || !count.is_multiple_of(others) {
            return Err(format!("{dims:?} does not fit {to:?}"));
        }
        result[open] = count / others;
    }
    if result.iter().try_fold(1usize, |n, len| n.checked_mul(*len)) != Some(count) {
        return Err(format!("{dims:?} does not fit {result:?}"));
    }
    match call.input(0) {
        Value::Constant(x) => known(Constant { dims: result, ..x }),
        _ => one(whole(import, call, 0)?.reshape(shape(&result)?)),
    }
}

fn shape_of<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let rank = dims.len() as i64;
    let bound = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
    let (start, end) = (bound(call.int("start", 0)), bound(call.int("end", rank)));
    known(Constant::ints(dims[start.min(end)..end].iter().map(|dim| *dim as i64)))
}

fn size<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let count: usize = import.dims(&call.input(0))?.iter().product();
    known(Constant::scalar(count as f64, true))
}

fn slice<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let starts = call.list(import, 1, "starts")?.ok_or("starts are needed")?;
    let ends = call.list(import, 2, "ends")?.ok_or("ends are needed")?;
    let dims = import.dims(&call.input(0))?;
    let axes = call.list(import, 3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if call.has(4) { call.constant(import, 4)?.as_ints() } else { vec![1; starts.len()] };
    if [ends.len(), axes.len(), steps.len()].iter().any(|len| *len != starts.len()) {
        return Err("starts, ends, axes and steps of different lengths".to_owned());
    }
    let mut value = call.input(0);
    for i in 0..starts.len() {
        let along = axis(axes[i], dims.len())?;
        let (len, step) = (dims[along] as i64, steps[i]);
        if step == 0 {
            return Err("a step of 0".to_owned());
        }
        let bound = |at: i64, low: i64, high: i64| {
            (if at < 0 { at.saturating_add(len) } else { at }).clamp(low, high)
        };
        let (start, end) = match step > 0 {
            true => (bound(starts[i], 0, len), bound(ends[i], 0, len)),
            // Backwards the end may lie before the first element.
            false => (bound(starts[i], 0, len - 1), bound(ends[i], -1, len - 1)),
        };
        let count = if step > 0 { (end - start).max(0) } else { (start - end).max(0) };
        let count = count.unsigned_abs().div_ceil(step.unsigned_abs()) as usize;
        value = match &value {
            Value::Constant(x) => {
                let places: Vec<usize> = (0..count as i64).map(|i| (start + i * step) as usize).collect();
                Value::Constant(x.take(along, &places)?)
            }
            other => {
                let x = match other {
                    Value::Tensor(x) => x.clone(),
                    other => import.float(other)?,
                };
                let (first, last) = (start as usize, (start + step * (count as i64 - 1).max(0)) as usize);
                Value::Tensor(match step > 0 {
                    true => {
                        x.slice_step(along, first..if count == 0 { first } else { last + 1 }, step as usize)
                    }
                    false if count == 0 => x.slice(along, 0..0),
                    false => x.slice(along, last..first + 1).flip(along).slice_step(
                        along,
                        0..first - last + 1,
                        step.unsigned_abs() as usize,
                    ),
                })
            }
        };
    }
    Ok(vec![value])
}

/// `[n, c, h, w]` and the block size.
fn blocks<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Result<(Tensor, usize), String> {
    let x = import.x(call, 0)?;
    let block = call.int("blocksize", 0);
    let dims = x.shape();
    match usize::try_from(block) {
        Ok(block) if block > 0 && dims.rank() == 4 => Ok((x, block)),
        _ => Err(format!("blocks of {block} of {dims}")),
    }
}

fn depth_to_space<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, block) = blocks(import, call)?;
    if call.text("mode", "DCR") == "CRD" {
        return one(x.pixel_shuffle(block));
    }
    let [n, c, h, w] = [0, 1, 2, 3].map(|axis| x.dim(axis));
    if !c.is_multiple_of(block * block) {
        return Err(format!("{c} channels are not blocks of {block}"));
    }
    let depth = c / (block * block);
    let parts = x.reshape([n, block, block, depth, h, w]).permute(&[0, 3, 4, 1, 5, 2]);
    one(parts.reshape([n, depth, h * block, w * block]))
}

fn space_to_depth<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, block) = blocks(import, call)?;
    let [n, c, h, w] = [0, 1, 2, 3].map(|axis| x.dim(axis));
    if !h.is_multiple_of(block) || !w.is_multiple_of(block) {
        return Err(format!("{h} × {w} pixels are not blocks of {block}"));
    }
    let parts = x.reshape([n, c, h / block, block, w / block, block]).permute(&[0, 3, 5, 1, 2, 4]);
    one(parts.reshape([n, c * block * block, h / block, w / block]))
}

fn split<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let along = axis(call.int("axis", 0), dims.len())?;
    let lengths = match call.list(import, 1, "split")? {
        Some(lengths) => {
            parts(lengths.len(), along, dims[along])?;
            sizes(&lengths)?
        }
        None => {
            let count = call.int("num_outputs", call.node.output.len() as i64).max(1) as usize;
            parts(count, along, dims[along])?;
            let len = dims[along].div_ceil(count);
            (0..count).map(|i| len.min(dims[along].saturating_sub(i * len))).collect()
        }
    };
    if lengths.iter().try_fold(0usize, |n, len| n.checked_add(*len)) != Some(dims[along]) {
        return Err(format!("{lengths:?} are not the {} along axis {along}", dims[along]));
    }
    if let Value::Constant(x) = call.input(0) {
        let mut start = 0;
        let part = |len: &usize| {
            let places: Vec<usize> = (start..start + len).collect();
            start += len;
            x.take(along, &places).map(Value::Constant)
        };
        return lengths.iter().map(part).collect();
    }
    Ok(whole(import, call, 0)?.split(along, &lengths).into_iter().map(Value::Tensor).collect())
}

fn squeeze<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let gone: Vec<usize> = match call.list(import, 1, "axes")? {
        Some(axes) => axes.into_iter().map(|own| axis(own, dims.len())).collect::<Result<_, _>>()?,
        None => (0..dims.len()).filter(|&i| dims[i] == 1).collect(),
    };
    if let Some(long) = gone.iter().find(|&&axis| dims[axis] != 1) {
        return Err(format!("axis {long} of {dims:?} is not 1"));
    }
    let result = (0..dims.len()).filter(|axis| !gone.contains(axis)).map(|axis| dims[axis]).collect();
    viewed(import, call, result)
}

fn unsqueeze<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let dims = import.dims(&call.input(0))?;
    let axes = call.list(import, 1, "axes")?.ok_or("axes are needed")?;
    let rank = dims.len() + axes.len();
    let mut new: Vec<usize> = axes.into_iter().map(|own| axis(own, rank)).collect::<Result<_, _>>()?;
    new.sort_unstable();
    let mut result = dims;
    for axis in new {
        if axis > result.len() {
            return Err("an axis is given twice".to_owned());
        }
        result.insert(axis, 1);
    }
    viewed(import, call, result)
}

/// The operand in another shape of as many elements.
fn viewed<'a>(import: &mut Import<'a>, call: &Call<'a>, dims: Vec<usize>) -> Results<'a> {
    match call.input(0) {
        Value::Constant(x) => known(Constant { dims, ..x }),
        _ => one(whole(import, call, 0)?.reshape(shape(&dims)?)),
    }
}

fn tile<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let times = sizes(&call.constant(import, 1)?.as_ints())?;
    if let Value::Constant(x) = call.input(0) {
        if times.len() != x.dims.len() {
            return Err(format!("{times:?} for {:?}", x.dims));
        }
        let mut all = x;
        for (along, &count) in times.iter().enumerate() {
            let total: Vec<usize> =
                (0..all.dims[along].saturating_mul(count)).map(|i| i % all.dims[along].max(1)).collect();
            all = all.take(along, &total)?;
        }
        return known(all);
    }
    one(whole(import, call, 0)?.repeat(&times))
}

fn transpose<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let rank = import.dims(&call.input(0))?.len();
    let perm = call.ints("perm").unwrap_or_else(|| (0..rank as i64).rev().collect());
    let perm: Vec<usize> = perm.into_iter().map(|own| axis(own, rank)).collect::<Result<_, _>>()?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank) {
        return Err(format!("{perm:?} is not an order of {rank} axes"));
    }
    match call.input(0) {
        Value::Constant(x) => known(x.permute(&perm)?),
        _ => one(whole(import, call, 0)?.permute(&perm)),
    }
}

fn trilu<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let offset = if call.has(1) { call.constant(import, 1)?.single().unwrap_or(0.0) } else { 0.0 };
    let upper = call.int("upper", 1) != 0;
    if let Value::Constant(x) = call.input(0) {
        let [.., rows, columns] = x.dims[..] else { return Err("a matrix is needed".to_owned()) };
        let kept = |i: usize| {
            let right = (i % columns.max(1)) as f64 - (i / columns.max(1) % rows.max(1)) as f64;
            if upper { right >= offset } else { right <= offset }
        };
        let data = x.data.iter().enumerate().map(|(i, value)| if kept(i) { *value } else { 0.0 }).collect();
        return known(Constant { data, ..x });
    }
    let x = import.x(call, 0)?;
    one(if upper { x.triu(offset as isize) } else { x.tril(offset as isize) })
}
