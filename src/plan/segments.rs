//! Segments: small parameters lie one behind the other, as does their optimizer state and, where that costs next to no memory,
//! their gradients. Then one dispatch updates them all.

use std::collections::{BTreeMap, BTreeSet};

use super::program::{Program, Span};
use super::views::Views;
use super::{Offload, PARAMS_SLOT};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Class, Graph, Node, Op, Param, Update, Value, ValueId};
use crate::limits::{ALIGNMENT, Limits};
use crate::shape::Shape;

/// Norms and biases: vectors of fewer elements than this, whose state never lies in the host's memory.
const LARGE: u64 = Offload::SMALLEST / 4;

/// What may be spent on gradients that wait for each other: one in so many of a plan's bytes, or so many bytes.
const SPENT: (u64, u64) = (500, 4 << 10);

/// Operands of an update: the parameter, its gradient, the step's scalars, and state from here on.
const GRADIENT: usize = 1;
const SCALARS: usize = 2;
const STATE: usize = 3;

/// Updates that run as one dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Their nodes, in the order in which their parameters lie.
    pub updates: Vec<usize>,
    /// All their gradients.
    pub gradients: ValueId,
    /// The position in the order of operations of the last: there all of them run.
    pub position: usize,
}

/// A program with segments beside the same without.
pub(super) struct Joined {
    pub program: Program,
    /// The least that it needs: arenas and uniforms.
    pub needs: u64,
    /// Whether that is more than without.
    pub more: bool,
}

/// Whether a parameter lies with the other small ones.
pub(super) fn is_small(param: &Param) -> bool {
    param.trained() && param.shape().rank() <= 1 && (1..LARGE).contains(&param.shape().numel())
}

/// The nodes that update small parameters in 32 bits, in the order in which those lie. What they do to an element depends on
/// nothing but that element.
fn updates(graph: &Graph) -> Vec<usize> {
    let small: BTreeMap<&str, usize> =
        graph.parameters.iter().filter(|p| is_small(p)).map(|p| (p.name(), p.index())).collect();
    let wide = |node: &Node| {
        let types = node.inputs.iter().map(|id| graph.value(*id).dtype).enumerate();
        types.filter(|(i, _)| *i != SCALARS).all(|(_, dtype)| dtype == DType::F32)
    };
    let place = |node: &Node| match node.op {
        Op::Update(Update::Adafactor { .. } | Update::Adam8bit { .. }, _) => None,
        Op::Update(..) if wide(node) => small.get(graph.value(node.inputs[0]).name.as_str()),
        _ => None,
    };
    let nodes = graph.nodes.iter().enumerate();
    let updates: BTreeMap<usize, usize> = nodes.filter_map(|(n, node)| Some((*place(node)?, n))).collect();
    updates.into_values().collect()
}

/// The optimizer state of small parameters, each kind in the order in which the parameters lie.
pub(super) fn states(graph: &Graph) -> Vec<Vec<ValueId>> {
    let mut kinds: Vec<Vec<ValueId>> = Vec::new();
    let mut seen = BTreeSet::new();
    for n in updates(graph) {
        for (kind, &id) in graph.nodes[n].inputs[STATE..].iter().enumerate() {
            let value = graph.value(id);
            if value.class == Class::Optimizer && !value.offloaded && seen.insert(id) {
                kinds.resize(kinds.len().max(kind + 1), Vec::new());
                kinds[kind].push(id);
            }
        }
    }
    kinds
}

/// The same program with the updates of small parameters in segments; `None` where there is nothing to join, or where the
/// gradients that wait would cost more than [`SPENT`].
pub(super) fn joined(program: &Program, limits: &Limits, in_place: bool) -> Result<Option<Joined>> {
    let runs = runs(program);
    if runs.is_empty() {
        return Ok(None);
    }
    let (mut graph, mut views) = (program.graph.clone(), program.views.clone());
    let mut position = vec![0; graph.nodes.len()];
    program.order.iter().enumerate().for_each(|(at, &n)| position[n] = at);
    let mut segments = Vec::new();
    for run in runs {
        let (updates, parts): (Vec<usize>, Vec<ValueId>) = run.into_iter().unzip();
        let gradients = gather(&mut graph, &mut views, updates[0], &parts);
        let position = updates.iter().map(|&n| position[n]).max().unwrap_or(0);
        segments.push(Segment { updates, gradients, position });
    }
    let joined = Program::build(graph, views, (program.order.clone(), segments), limits, in_place)?;
    let needs = |program: &Program| -> Result<u64> {
        Ok(program.lower_bound(limits)? + program.launches.len() as u64 * PARAMS_SLOT)
    };
    let (before, after) = (needs(program)?, needs(&joined)?);
    let (share, least) = SPENT;
    let joined = Joined { program: joined, needs: after, more: after > before };
    Ok((after <= before + least.max(before / share)).then_some(joined))
}

/// Updates that can be one, with the values whose memory their gradients are.
fn runs(program: &Program) -> Vec<Vec<(usize, ValueId)>> {
    let graph = &program.graph;
    let mut movable = Movable::of(program);
    let mut runs: Vec<Vec<(usize, ValueId)>> = Vec::new();
    for n in updates(graph) {
        let node = &graph.nodes[n];
        let Some(gradient) = movable.take(program, node.inputs[GRADIENT]) else { continue };
        let last = runs.last_mut().filter(|run| {
            run.last().is_some_and(|(before, _)| follows(program, &graph.nodes[*before], node))
        });
        match last {
            Some(run) => run.push((n, gradient)),
            None => runs.push(vec![(n, gradient)]),
        }
    }
    runs.retain(|run| run.len() > 1);
    runs
}

/// Whether an update does what another does, to what lies right behind.
fn follows(program: &Program, before: &Node, node: &Node) -> bool {
    let behind = |(&a, &b): (&ValueId, &ValueId)| {
        let [(row, start), other] = [a, b].map(|id| program.in_row(program.operand(id).1));
        (row, start + program.graph.value(a).bytes().next_multiple_of(ALIGNMENT)) == other
    };
    let lasting = |node: &Node| [&node.inputs[..GRADIENT], &node.inputs[STATE..]].concat();
    (&before.op, before.inputs[SCALARS], before.inputs.len())
        == (&node.op, node.inputs[SCALARS], node.inputs.len())
        && lasting(before).iter().zip(&lasting(node)).all(behind)
}

/// A new value around gradients, each from a multiple of [`ALIGNMENT`] on, named after the first update.
fn gather(graph: &mut Graph, views: &mut Views, first: usize, parts: &[ValueId]) -> ValueId {
    let mut places = Vec::with_capacity(parts.len());
    let mut bytes = 0;
    for &part in parts {
        places.push((part, bytes));
        bytes += graph.value(part).bytes().next_multiple_of(ALIGNMENT);
    }
    let parameter = &graph.value(graph.nodes[first].inputs[0]).name;
    let value = Value {
        name: format!("gradients of {parameter} and {} more", parts.len() - 1),
        shape: [(bytes / 4) as usize].into(),
        dtype: DType::F32,
        class: Class::Gradient,
        indices: None,
        again: false,
        offloaded: false,
    };
    let whole = ValueId(graph.values.len() as u32);
    graph.values.push(value);
    views.gather(whole, &places);
    whole
}

/// Which values may be made inside of another.
struct Movable(Vec<bool>);

impl Movable {
    fn of(Program { graph, views, .. }: &Program) -> Self {
        let mut movable = vec![false; graph.values.len()];
        let made = graph.nodes.iter().flat_map(|node| &node.outputs);
        made.for_each(|id| movable[id.index()] = !views.is_view(*id));
        graph.outputs.iter().for_each(|(_, id)| movable[views.root(*id).0.index()] = false);
        Self(movable)
    }

    /// The value whose memory a gradient is, if all of that is the gradient's, and no other update's.
    fn take(&mut self, Program { graph, views, .. }: &Program, gradient: ValueId) -> Option<ValueId> {
        let (root, _) = views.root(gradient);
        let whole = graph.value(root).bytes() == graph.value(gradient).bytes();
        (whole && std::mem::replace(&mut self.0[root.index()], false)).then_some(root)
    }
}

impl Program {
    /// The operands of all updates of a segment as those of one. The padding between them is updated as well.
    pub(super) fn rows(&self, segment: &Segment) -> Vec<((Shape, DType), Span)> {
        let (first, last) = (segment.updates[0], segment.updates[segment.updates.len() - 1]);
        let operands = self.graph.nodes[first].inputs.iter().zip(&self.graph.nodes[last].inputs).enumerate();
        let row = |(i, (&first, &last)): (usize, (&ValueId, &ValueId))| {
            let (types, span) = self.operand(first);
            if i == SCALARS {
                return (types, span);
            }
            let (_, start) = self.in_row(span);
            let (_, end) = self.in_row(self.operand(last).1);
            let bytes = end - start + self.graph.value(last).bytes();
            ((Shape::from([(bytes / 4) as usize]), DType::F32), Span::new(span.storage, span.offset, bytes))
        };
        operands.map(row).collect()
    }
}
