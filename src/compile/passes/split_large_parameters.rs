//! Splits products with a parameter larger than a binding, and lookups in one, by its rows: each operation reads a piece of
//! it, which has a gradient and an update of its own. The parameter itself stays one tensor, and so does its optimizer state.

use std::panic::Location;

use super::Choices;
use crate::dtype::DType;
use crate::graph::{Class, Graph, Mode, Node, Op, Param, Piece, Share, Tensor, Trace, ValueId};

const MOST_ROWS: usize = 1 << 24;

/// Rewrites what reads matrices larger than a binding, or trained ones whose gradients are, as operations on their rows. A
/// parameter whose readers cannot all be rewritten is unchanged, and planning reports it.
pub(crate) fn split_large_parameters(graph: Graph, choices: &Choices<'_>) -> Graph {
    let max = choices.limits.max_binding;
    let observed: Vec<ValueId> = graph.observed().collect();
    let rows: Vec<Option<usize>> = (graph.ids())
        .map(|(id, value)| {
            let whole = value.class == Class::Parameter && value.part_of.is_none();
            let large = whole && value.bytes() > max && !observed.contains(&id);
            let param = graph.parameters.iter().find(|param| large && param.name() == value.name)?;
            let widest = widest(param, param.stored_as(choices.weights));
            let large = widest.bytes(value.shape.numel()) > max && (choices.pieces || !param.trained());
            let readers = graph.nodes.iter().filter(|node| node.inputs.contains(&id));
            (large && readers.clone().all(|node| can_split(&graph, node, id))).then_some(())?;
            rows_of_piece(value.shape.dims(), widest, max)
        })
        .collect();
    if rows.iter().all(Option::is_none) {
        return graph;
    }
    let before = graph.clone();
    Split { rows, pieces: Vec::new() }.run(graph).unwrap_or(before)
}

fn can_split(graph: &Graph, node: &Node, id: ValueId) -> bool {
    let matrix = |i: usize| graph.value(node.inputs[i]).shape.rank() == 2;
    let once = node.inputs.iter().filter(|input| **input == id).count() == 1;
    match node.op {
        Op::MatMul { ta, tb, then: None } => once && node.inputs[1] == id && (tb || !ta) && matrix(0),
        Op::Embedding => node.inputs[0] == id,
        _ => false,
    }
}

/// The widest type of what has the elements of a parameter: gradients and optimizer state are in `f32`.
fn widest(param: &Param, stored: DType) -> DType {
    if param.trained() { DType::F32 } else { stored }
}

/// The elements of each piece but the last of a parameter, if it is in pieces that a binding of `max` bytes covers.
pub(in crate::compile) fn elements_of_piece(param: &Param, stored: DType, max: u64) -> Option<u64> {
    let shape = param.shape();
    let columns = *shape.dims().last()?;
    Some((rows_of_piece(shape.dims(), widest(param, stored), max)? * columns) as u64)
}

/// The rows of each piece but the last; `None` if no piece of whole rows is small enough.
fn rows_of_piece(dims: &[usize], widest: DType, max: u64) -> Option<usize> {
    // Numbers of rows are exact in `f32`.
    let &[rows @ ..MOST_ROWS, columns @ 1..=usize::MAX] = dims else { return None };
    let unit = (1..=Piece::ELEMENTS).find(|unit| (unit * columns).is_multiple_of(Piece::ELEMENTS))?;
    let of_unit = widest.bytes((unit * columns) as u64);
    let most = usize::try_from(max / of_unit).ok()? * unit;
    let count = rows.div_ceil(most.max(1));
    (most > 0).then(|| rows.div_ceil(count).next_multiple_of(unit))
}

struct Split {
    /// By value: the rows of each piece of a parameter that is split.
    rows: Vec<Option<usize>>,
    pieces: Vec<Piece>,
}

impl Split {
    fn run(mut self, mut graph: Graph) -> Option<Graph> {
        let nodes = std::mem::take(&mut graph.nodes);
        let trace = Trace::over(graph, Mode::Train);
        for node in nodes {
            let rows = |id: &ValueId| self.rows.get(id.index()).copied().flatten();
            match node.inputs.iter().find_map(|id| Some((*id, rows(id)?))) {
                Some((id, rows)) => trace.layer(&node.layer, || {
                    let pieces = self.pieces_of(&trace, id, rows);
                    let result = match node.op {
                        Op::Embedding => looked_up(&trace, &node, &pieces),
                        _ => product(&trace, &node, &pieces),
                    };
                    trace.append_view(&node, &result, node.outputs[0]);
                }),
                None => trace.append(node),
            }
        }
        let mut graph = trace.finish().ok()?;
        graph.pieces = self.pieces;
        Some(graph)
    }

    /// The pieces of a parameter, each with its first row.
    fn pieces_of(&mut self, trace: &Trace, of: ValueId, rows: usize) -> Vec<(usize, Tensor)> {
        let whole = trace.tensor(of);
        let columns = whole.dim(1) as u64;
        if !self.pieces.iter().any(|piece| piece.of == of) {
            for (i, start) in (0..whole.dim(0)).step_by(rows).enumerate() {
                let len = rows.min(whole.dim(0) - start);
                let slice = whole.one(Op::Slice { axis: 0, start, len }, &[&whole], Location::caller());
                let slice = slice.named(&format!("{}.rows{}", trace.name_of(of), i + 1));
                let share = Share { start: start as u64 * columns, len: len as u64 * columns };
                self.pieces.extend(slice.id().map(|rows| Piece { of, rows, share }));
            }
        }
        let own = self.pieces.iter().filter(|piece| piece.of == of);
        own.map(|piece| ((piece.share.start / columns) as usize, trace.tensor(piece.rows))).collect()
    }
}

/// `x · Wᵀ` is a concatenation of products with the rows of `W`, and `x · W` a sum of such products.
fn product(trace: &Trace, node: &Node, pieces: &[(usize, Tensor)]) -> Tensor {
    let x = trace.tensor(node.inputs[0]);
    let axis = x.shape().rank() - 1;
    let Op::MatMul { tb: true, .. } = node.op else {
        let part = |(start, rows): &(usize, Tensor)| {
            let columns = x.slice(axis, *start..*start + rows.dim(0));
            x.one(node.op.clone(), &[&columns, rows], node.at)
        };
        return pieces.iter().map(part).reduce(|sum, part| sum.add(&part)).unwrap_or(x);
    };
    let parts: Vec<Tensor> =
        pieces.iter().map(|(_, rows)| x.one(node.op.clone(), &[&x, rows], node.at)).collect();
    parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), axis)
}

/// Each piece is read at the ids that are in it; elsewhere its part of the sum is 0. Ids past the end read the last row.
fn looked_up(trace: &Trace, node: &Node, pieces: &[(usize, Tensor)]) -> Tensor {
    let ids = trace.tensor(node.inputs[1]);
    let numbers = ids.cast(DType::F32);
    let at = |number: usize| numbers.fill_like([], number as f32);
    let one_of = |(i, (start, rows)): (usize, &(usize, Tensor))| {
        let (first, last) = (i == 0, i + 1 == pieces.len());
        let own = numbers.sub(&at(*start)).clamp(0.0, (rows.dim(0) - 1) as f32).cast(DType::U32);
        let found = rows.one(Op::Embedding, &[rows, &own], node.at);
        let after = (!first).then(|| numbers.greater_equal(&at(*start)));
        let before = (!last).then(|| numbers.less(&at(start + rows.dim(0))));
        let inside = after.into_iter().chain(before).reduce(|a, b| a.mul(&b));
        match inside {
            Some(inside) => found.masked(&inside.unsqueeze(ids.shape().rank())),
            None => found,
        }
    };
    let parts = pieces.iter().enumerate().map(one_of);
    parts.reduce(|sum, part| sum.add(&part)).unwrap_or(numbers)
}

#[cfg(test)]
mod tests {
    use crate::compile::{PlanOptions, TrainStep};
    use crate::dtype::{Rounding, WeightStorage};
    use crate::error::Error;
    use crate::graph::{Init, Params};
    use crate::limits::Limits;
    use crate::optim::{Adam4bit, Adam8bit, AdamW, Muon, Optimizer};
    use crate::reference::Twin;

    const ROWS: usize = 1500;

    fn step(params: &Params) -> TrainStep {
        let table = params.add("table", [ROWS, 24], Init::Uniform(0.5));
        let inner = params.add("inner", [ROWS, 24], Init::Uniform(0.5));
        let traced = TrainStep::trace(params, |trace| {
            let [table, inner] = [&table, &inner].map(|param| trace.param(param));
            let x = table.embedding(&trace.ids("ids", [40], ROWS as u32));
            let hidden = x.matmul_transposed(&inner, false, true).relu().matmul(&inner).add(&x);
            let logits = hidden.matmul_transposed(&table, false, true);
            logits.cross_entropy(&trace.labels("labels", [40], ROWS as u32))
        });
        traced.expect("valid")
    }

    fn limits(max_binding: u64) -> Limits {
        Limits { max_binding, ..Limits::default() }
    }

    #[test]
    fn parameters_in_pieces_are_trained_as_whole_ones() {
        let params = Params::new(1);
        let step = step(&params);
        let bits = WeightStorage::Bf16(Rounding::Nearest);
        let cases: [(Optimizer, WeightStorage); 6] = [
            (AdamW::default().into(), WeightStorage::F32),
            (Adam8bit::default().into(), WeightStorage::F32),
            (Adam4bit::default().into(), WeightStorage::F32),
            (AdamW::default().into(), bits),
            (AdamW::default().into(), WeightStorage::F16(Rounding::Stochastic)),
            (Adam8bit::default().into(), WeightStorage::Bf24),
        ];
        for (optimizer, weights) in cases {
            let options = PlanOptions { optimizer, weights, ..PlanOptions::default() };
            let results = [1 << 30, 100_000].map(|binding| {
                let plan = step.plan(&options, &limits(binding)).expect("it fits");
                let graph = plan.graph();
                let largest = plan.program.launches.iter().flat_map(|(launch, _)| &launch.memory);
                assert!(largest.map(|span| span.bytes).max() <= Some(binding));
                let mut twin = Twin::new(graph);
                let ids: Vec<u32> = (0..40).map(|i| (i * 397) % ROWS as u32).collect();
                twin.set_u32("ids", &ids).and(twin.set_u32("labels", &ids)).expect("inputs");
                let mut read = Vec::new();
                for steps in 0..2 {
                    twin.set_step(&optimizer.scalars(steps, 1e-2, 0));
                    twin.run().expect("it runs");
                    read.push(twin.output("loss").expect("a loss").to_vec());
                }
                let lasting = graph.values.iter().filter(|value| value.class.is_persistent());
                read.extend(lasting.map(|value| twin.parameter(&value.name).expect("it is there").to_vec()));
                let pieces = graph.pieces.len();
                (pieces, read)
            });
            let [(none, whole), (pieces, parts)] = results;
            assert_eq!((none, pieces, whole.len()), (0, 4, parts.len()), "{weights:?}");
            for (a, b) in whole.iter().flatten().zip(parts.iter().flatten()) {
                assert!(
                    (a - b).abs() <= 1e-9 * a.abs().max(1e-6),
                    "{weights:?}: {a} as a whole, {b} in pieces"
                );
            }
        }
    }

    #[test]
    fn optimizers_that_need_whole_matrices_refuse_large_ones() {
        let params = Params::new(1);
        let options = PlanOptions { optimizer: Muon::default().into(), ..PlanOptions::default() };
        let refused = step(&params).plan(&options, &limits(100_000)).expect_err("too large");
        assert!(matches!(refused, Error::TensorTooLarge { bytes: 144_000, .. }), "{refused}");
    }
}
