//! Shape inference for operations that select elements by position.

use super::infer::Type;
use super::op::Op;
use crate::dtype::DType::{F32, U32};
use crate::shape::Shape;

/// Does what `infer::infer` does, for operations that select elements by position.
pub(super) fn infer(op: &Op, inputs: &[Type]) -> Result<Vec<Type>, String> {
    let name = op.name();
    match *op {
        Op::Stride { axis, start, step, len } => {
            let (x, dtype) = inputs[0];
            let whole = length(name, x, axis)?;
            if dtype.is_half() {
                return Err(format!("{name} of {dtype} {x}: cast it to f32"));
            }
            if !inside(start, step, len, whole) {
                return Err(format!("{len} indices from {start} by {step} along axis {axis} of {x}"));
            }
            Ok(vec![(x.with(axis, len), dtype)])
        }
        Op::Place { axis, start, step, len } => {
            let (x, dtype) = inputs[0];
            let part = length(name, x, axis)?;
            if dtype != F32 {
                return Err(format!("{name} takes f32, got {dtype} {x}"));
            }
            if !inside(start, step, part, len) {
                return Err(format!("{name} of {x} along axis {axis}: not inside of {len} elements"));
            }
            Ok(vec![(x.with(axis, len), F32)])
        }
        Op::Iota { shape, axis } => {
            length(name, shape, axis)?;
            Ok(vec![(shape, F32)])
        }
        Op::Gather { axis } => {
            let [(x, dtype), (ids, index)] = [inputs[0], inputs[1]];
            typed(name, (dtype, x), (index, ids))?;
            if length(name, x, axis)? == 0 {
                return Err(format!("{name} along axis {axis} of {x}, which is empty"));
            }
            let count = ids.dims().get(axis).copied().unwrap_or(0);
            let y = x.with(axis, count);
            match repeats(ids, y) {
                true => Ok(vec![(y, F32)]),
                false => Err(format!("{name} along axis {axis} of {x}: ids {ids} do not fit")),
            }
        }
        Op::ScatterAdd { axis, len } => {
            let [(ids, index), (dy, dtype)] = [inputs[0], inputs[1]];
            typed(name, (dtype, dy), (index, ids))?;
            if length(name, dy, axis)? != ids.dims().get(axis).copied().unwrap_or(0) || !repeats(ids, dy) {
                return Err(format!("{name} of {dy} along axis {axis}: ids {ids} do not fit"));
            }
            Ok(vec![(dy.with(axis, len), F32)])
        }
        Op::ArgSort { .. } => {
            let (x, dtype) = inputs[0];
            if dtype != F32 || x.rank() == 0 {
                return Err(format!("{name} takes rows of f32, got {dtype} {x}"));
            }
            Ok(vec![(x, U32)])
        }
        _ => Err(format!("{name} is not known")),
    }
}

/// Returns the length of a dimension.
fn length(name: &str, x: Shape, axis: usize) -> Result<usize, String> {
    x.dims().get(axis).copied().ok_or_else(|| format!("{name} along axis {axis} of {x}"))
}

/// Whether all of `count` indices are below `whole`.
fn inside(start: usize, step: isize, count: usize, whole: usize) -> bool {
    let last =
        || step.checked_mul(isize::try_from(count - 1).ok()?)?.checked_add(isize::try_from(start).ok()?);
    step != 0
        && (count == 0 || (start < whole && last().is_some_and(|last| last >= 0 && (last as usize) < whole)))
}

/// Whether `ids` have the dimensions of `y`, or 1.
fn repeats(ids: Shape, y: Shape) -> bool {
    ids.rank() == y.rank() && ids.dims().iter().zip(y.dims()).all(|(&id, &dim)| id == dim || id == 1)
}

type Typed = (crate::dtype::DType, Shape);

fn typed(name: &str, (float, x): Typed, (index, ids): Typed) -> Result<(), String> {
    match (float, index) {
        (F32, U32) => Ok(()),
        _ => Err(format!("{name} takes f32 elements and u32 ids, got {float} {x} and {index} {ids}")),
    }
}
