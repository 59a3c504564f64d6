//! Fused updates. Small parameters are stored one after another, and so is their optimizer state. If their
//! gradients are too, one dispatch updates all of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::analysis::Views;
use crate::compile::{Offload, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Class, FusedUpdate, Graph, Node, Op, Param, Update, Value, ValueId};
use crate::limits::{ALIGNMENT, Limits};
use crate::shape::Shape;

/// Norms and biases are vectors with fewer elements than this. Their state is never offloaded.
const LARGE: u64 = Offload::SMALLEST / 4;

/// Whether a parameter is stored in the row of small parameters.
pub(crate) fn is_small(param: &Param) -> bool {
    !param.is_buffer() && param.shape().rank() <= 1 && is_small_vector(param.shape())
}

/// Whether a tensor is the gradient of a small parameter, by its shape; it may have dimensions of 1.
pub(crate) fn is_small_vector(shape: Shape) -> bool {
    shape.dims().iter().filter(|dim| **dim != 1).count() <= 1 && (1..LARGE).contains(&shape.numel())
}

/// The nodes that update small parameters in 32 bits, in the order in which the parameters are stored. Each
/// of these updates is elementwise.
fn updates(graph: &Graph) -> Vec<usize> {
    let small: BTreeMap<&str, usize> =
        graph.parameters.iter().filter(|p| is_small(p)).map(|p| (p.name(), p.index())).collect();
    let wide = |node: &Node| {
        let types = node.inputs.iter().map(|id| graph.value(*id).dtype).enumerate();
        types.filter(|(i, _)| *i != Update::SCALARS).all(|(_, dtype)| dtype == DType::F32)
    };
    let place = |node: &Node| match node.op {
        Op::Update {
            rule: Update::Adafactor { .. } | Update::AdamCodes { .. } | Update::AdamMini { .. },
            ..
        } => None,
        Op::Update { .. } if wide(node) => small.get(graph.value(node.inputs[0]).name.as_str()),
        _ => None,
    };
    let nodes = graph.nodes.iter().enumerate();
    let updates: BTreeMap<usize, usize> = nodes.filter_map(|(n, node)| Some((*place(node)?, n))).collect();
    updates.into_values().collect()
}

/// The optimizer state of small parameters, each kind in the order in which the parameters are stored.
pub(crate) fn small_states(graph: &Graph) -> Vec<Vec<ValueId>> {
    let mut kinds: Vec<Vec<ValueId>> = Vec::new();
    let mut seen = BTreeSet::new();
    for n in updates(graph) {
        for (kind, &id) in graph.nodes[n].inputs[Update::STATE..].iter().enumerate() {
            let value = graph.value(id);
            if value.class == Class::Optimizer && !value.offloaded && seen.insert(id) {
                kinds.resize(kinds.len().max(kind + 1), Vec::new());
                kinds[kind].push(id);
            }
        }
    }
    kinds
}

/// The graph with updates of small parameters fused; `None` if there is nothing to fuse. Fused gradients stay
/// alive until the last of them is computed, which may raise the peak.
///
/// # Errors
/// [`Error::TensorTooLarge`](crate::Error::TensorTooLarge) for a parameter larger than a binding.
pub(crate) fn fuse_updates(graph: &Graph, views: &Views, limits: &Limits) -> Result<Option<Graph>> {
    let placed = Program::with_persistent(graph.clone(), views.clone(), limits)?;
    let sequences = sequences(&placed);
    let mut graph = placed.graph;
    for updates in sequences {
        let gradients = add_gradients(&mut graph, views, &updates);
        graph.fused_updates.push(FusedUpdate { updates, gradients });
    }
    Ok((!graph.fused_updates.is_empty()).then_some(graph))
}

/// Sequences of updates that can run as one dispatch.
fn sequences(placed: &Program) -> Vec<Vec<usize>> {
    let graph = &placed.graph;
    let mut movable = Movable::of(placed);
    let mut sequences: Vec<Vec<usize>> = Vec::new();
    for n in updates(graph) {
        let node = &graph.nodes[n];
        if !movable.take(placed, node.inputs[Update::GRADIENT]) {
            continue;
        }
        let last = sequences.last_mut().filter(|sequence| {
            sequence.last().is_some_and(|&before| continues(placed, &graph.nodes[before], node))
        });
        match last {
            Some(sequence) => sequence.push(n),
            None => sequences.push(vec![n]),
        }
    }
    sequences.retain(|sequence| sequence.len() > 1);
    sequences
}

/// Whether `node` does the same update as `before`, on the tensors stored directly after those of `before`.
fn continues(program: &Program, before: &Node, node: &Node) -> bool {
    let follows = |(&a, &b): (&ValueId, &ValueId)| {
        let [(row, start), other] = [a, b].map(|id| program.in_row(program.operand(id).1));
        (row, start + program.graph.value(a).bytes().next_multiple_of(ALIGNMENT)) == other
    };
    let lasting = |node: &Node| [&node.inputs[..Update::GRADIENT], &node.inputs[Update::STATE..]].concat();
    (&before.op, before.inputs[Update::SCALARS], before.inputs.len())
        == (&node.op, node.inputs[Update::SCALARS], node.inputs.len())
        && lasting(before).iter().zip(&lasting(node)).all(follows)
}

/// Adds the value that holds the gradients of `updates`, named after the first.
fn add_gradients(graph: &mut Graph, views: &Views, updates: &[usize]) -> ValueId {
    let bytes = updates.iter().map(|&n| {
        let (gradient, _) = views.root(graph.nodes[n].inputs[Update::GRADIENT]);
        graph.value(gradient).bytes().next_multiple_of(ALIGNMENT)
    });
    let elements = (bytes.sum::<u64>() / 4) as usize;
    let parameter = &graph.value(graph.nodes[updates[0]].inputs[0]).name;
    let name = format!("gradients of {parameter} and {} more", updates.len() - 1);
    graph.add_value(Value::new(name, [elements].into(), DType::F32, Class::Gradient))
}

/// Whether each value may be computed inside another value.
struct Movable(Vec<bool>);

impl Movable {
    fn of(Program { graph, views, .. }: &Program) -> Self {
        let mut movable = vec![false; graph.values.len()];
        let made = graph.nodes.iter().flat_map(|node| &node.outputs);
        made.for_each(|id| movable[id.index()] = !views.is_view(*id));
        graph.outputs.iter().for_each(|(_, id)| movable[views.root(*id).0.index()] = false);
        Self(movable)
    }

    /// Claims the value that holds the memory of a gradient. Returns false if that value holds anything else,
    /// or if another update has claimed it.
    fn take(&mut self, Program { graph, views, .. }: &Program, gradient: ValueId) -> bool {
        let (root, _) = views.root(gradient);
        let whole = graph.value(root).bytes() == graph.value(gradient).bytes();
        whole && std::mem::replace(&mut self.0[root.index()], false)
    }
}
