//! Shape inference for operations on rows: embedding, row norms, rotary embedding.

use super::infer::Type;
use super::op::{Gates, Op, RowNorm, Share};
use crate::dtype::DType::{F32, U32};
use crate::shape::Shape;

/// Does what `infer::infer` does, for operations on rows.
pub(super) fn infer(op: &Op, inputs: &[Type]) -> Result<Vec<Type>, String> {
    let name = op.name();
    let ids = match op {
        Op::Embedding | Op::Rotary { .. } => Some(1),
        Op::EmbeddingGrad { .. } => Some(0),
        _ => None,
    };
    for (i, (shape, dtype)) in inputs.iter().enumerate() {
        let wanted = if ids == Some(i) { U32 } else { F32 };
        if *dtype != wanted && !(op.widens(i) && dtype.is_half()) {
            return Err(format!("{name} takes {wanted} as operand {i}, got {dtype} {shape}"));
        }
    }
    let shape = |i: usize| inputs[i].0;
    match op {
        Op::Embedding => {
            let (table, ids) = (shape(0), shape(1));
            let [rows, columns] = *table.dims() else {
                return Err(format!("{name} takes a table [rows, columns], got {table}"));
            };
            if rows == 0 || columns == 0 || ids.numel() == 0 {
                return Err(format!("{name} of ids {ids} in a table {table}: neither may be empty"));
            }
            let dims = [ids.dims(), &[columns]].concat();
            let result = Shape::try_new(&dims).ok_or_else(|| {
                format!("{name} of ids {ids}: the result would have {} dimensions", dims.len())
            })?;
            Ok(vec![(result, F32)])
        }
        Op::EmbeddingGrad { rows, share } => {
            let (ids, dy) = (shape(0), shape(1));
            let whole = Shape::from([*rows, dy.last()]);
            let table = share.map_or(whole, |share| Shape::from([share.len as usize]));
            if share.is_some_and(|Share { start, len }| start + len > whole.numel()) {
                return Err(format!("{name}: {share:?} is not within {whole}"));
            }
            if dy.rank() != ids.rank() + 1 || dy.dims()[..ids.rank()] != *ids.dims() {
                return Err(format!("{name}: ids {ids} and gradient {dy} do not match"));
            }
            match inputs.get(2) {
                Some((earlier, _)) if *earlier != table => {
                    Err(format!("{name}: {earlier} and {table} differ"))
                }
                _ => Ok(vec![(table, F32)]),
            }
        }
        Op::RowNorm { kind, eps } => {
            let x = shape(0);
            let rows = rows_of(name, x)?;
            of_columns(name, x, &inputs[1..])?;
            if eps.is_nan() || *eps < 0.0 {
                return Err(format!("{name} of {x} with eps = {eps}: it must be 0 or more"));
            }
            Ok(vec![(x, F32), (Shape::from([rows, kind.statistics()]), F32)])
        }
        Op::RowNormGrad { kind } => {
            let x = shape(0);
            let statistics = Shape::from([rows_of(name, x)?, kind.statistics()]);
            of_columns(name, x, &inputs[2..3])?;
            if shape(1) != statistics || shape(3) != x {
                return Err(format!("{name}: {x}, {} and {} do not match", shape(1), shape(3)));
            }
            let parameters = if *kind == RowNorm::Layer { 2 } else { 1 };
            Ok([vec![(x, F32)], vec![inputs[2]; parameters]].concat())
        }
        Op::Gates(gates) => {
            let state = gated(name, *gates, inputs)?;
            Ok(vec![(state, F32); op.results()])
        }
        Op::GatesGrad(Gates::Lstm) => {
            let state = gated(name, Gates::Lstm, inputs)?;
            Ok(vec![inputs[0], (state, F32)])
        }
        Op::GatesGrad(Gates::Gru) => {
            let state = gated(name, Gates::Gru, inputs)?;
            Ok(vec![inputs[0], inputs[1], (state, F32)])
        }
        Op::Rotary { heads, rope, .. } => match *shape(0).dims() {
            [_, _, h, d] if *heads > h || d % 2 != 0 => Err(format!(
                "{name} of {heads} heads of {}: {}",
                shape(0),
                if d % 2 != 0 { format!("{d} elements are not pairs") } else { format!("there are {h}") }
            )),
            [b, s, _, _] if inputs.get(1).is_some_and(|of| *of != (Shape::from([b, s]), U32)) => {
                let (shape, dtype) = inputs[1];
                Err(format!("{name} takes positions u32 [{b}, {s}], got {dtype} {shape}"))
            }
            [_, _, _, _] => match rope.check() {
                Ok(()) => Ok(vec![inputs[0]]),
                Err(why) => Err(format!("{name} with {why}")),
            },
            _ => Err(format!("{name} takes [batch, positions, heads, elements], got {}", shape(0))),
        },
        _ => Err(format!("{name} is not known")),
    }
}

/// Returns the shape of the states: of all operands but those of the gates.
fn gated(name: &str, gates: Gates, inputs: &[Type]) -> Result<Shape, String> {
    let x = inputs[0].0;
    let [rows, columns] = *x.dims() else {
        return Err(format!("{name} takes gates [rows, columns], got {x}"));
    };
    let state = Shape::from([rows, columns / gates.count()]);
    let wide = if gates == Gates::Gru { 2 } else { 1 };
    let fits = |(i, (shape, _)): (usize, &Type)| *shape == if i < wide { x } else { state };
    match columns.is_multiple_of(gates.count()) && inputs.iter().enumerate().all(fits) {
        true => Ok(state),
        false => {
            let shapes: Vec<String> = inputs.iter().map(|(shape, _)| shape.to_string()).collect();
            Err(format!("{name}: {} do not match", shapes.join(", ")))
        }
    }
}

fn rows_of(name: &str, x: Shape) -> Result<usize, String> {
    match x.dims().split_last() {
        Some((_, rows)) if x.numel() > 0 => Ok(rows.iter().product()),
        _ => Err(format!("{name} needs rows that are not empty, got {x}")),
    }
}

fn of_columns(name: &str, x: Shape, parameters: &[Type]) -> Result<(), String> {
    let columns = x.last();
    match parameters.iter().find(|(shape, _)| *shape != Shape::from([columns])) {
        Some((other, _)) => Err(format!("{name} of {x} takes [{columns}] for its columns, got {other}")),
        None => Ok(()),
    }
}
