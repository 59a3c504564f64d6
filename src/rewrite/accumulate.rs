//! Gradient accumulation: forward and backward pass once for each part of the batch, gradients summed in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::graph::{Binary, Class, Graph, Node, Op, Phase, STEP_SCALARS, Unary, Value, ValueId};

/// Rewrites a differentiated graph for `b` samples as one step over `times · b`: each input gets `times` as many rows, and
/// each part of them runs forward and backward on its own, one after the other, so that their activations share memory.
/// `gradients` are pairs of a parameter and its gradient; returned with the sums, `Σ gᵢ / times`, in the order of the
/// parts. The first output, the loss, is the mean of the parts' losses; other outputs are joined along their first
/// dimension, scalars averaged.
pub(crate) fn accumulate(
    mut graph: Graph,
    gradients: &[(ValueId, ValueId)],
    times: u32,
) -> (Graph, Vec<(ValueId, ValueId)>) {
    let nodes = std::mem::take(&mut graph.nodes);
    let outputs = std::mem::take(&mut graph.outputs);
    let mut copies = Copies { rows: BTreeMap::new(), graph, times: times as usize };
    copies.widen_inputs();
    let dropouts = nodes.iter().filter(|node| matches!(node.op, Op::Dropout { .. })).count() as u32;
    // The derivative of the loss begins the backward pass.
    let seed = nodes.iter().position(|node| node.phase == Phase::Backward);
    let mut sums: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut results: Vec<Vec<ValueId>> = vec![Vec::new(); outputs.len()];
    for part in 0..times {
        let mut now = copies.slices(part as usize, &nodes);
        for (n, node) in nodes.iter().enumerate() {
            let mut node = node.clone();
            match &mut node.op {
                Op::Dropout { key, .. } => *key += part * dropouts,
                // The loss counts one `times`-th: so begins its derivative.
                Op::Fill { value, .. } if Some(n) == seed => *value /= times as f32,
                _ => {}
            }
            node.inputs.iter_mut().for_each(|id| *id = now.get(id).copied().unwrap_or(*id));
            for id in &mut node.outputs {
                let copy = if part == 0 { *id } else { copies.copy_of(*id, part) };
                now.insert(*id, copy);
                *id = copy;
            }
            copies.graph.nodes.push(node);
        }
        let at = |id: &ValueId| now.get(id).copied().unwrap_or(*id);
        for (parameter, gradient) in gradients {
            let sum = match sums.get(parameter) {
                Some(earlier) => copies.emit(Op::Binary(Binary::Add), &[*earlier, at(gradient)], &nodes),
                None => at(gradient),
            };
            sums.insert(*parameter, sum);
        }
        outputs.iter().zip(&mut results).for_each(|((_, id), list)| list.push(at(id)));
    }
    for (i, ((name, _), parts)) in outputs.into_iter().zip(results).enumerate() {
        let scalar = copies.graph.value(parts[0]).shape.rank() == 0;
        let id = if i == 0 || scalar { copies.mean(&parts, &nodes) } else { copies.join(&parts, &nodes) };
        copies.graph.outputs.push((name, id));
    }
    let sums = gradients.iter().map(|(parameter, _)| (*parameter, sums[parameter])).collect();
    (copies.graph, sums)
}

struct Copies {
    graph: Graph,
    /// Inputs that are cut, with the rows of one part.
    rows: BTreeMap<ValueId, usize>,
    times: usize,
}

impl Copies {
    fn widen_inputs(&mut self) {
        for (i, value) in self.graph.values.iter_mut().enumerate() {
            let cut = value.class == Class::Input && value.name != STEP_SCALARS;
            if let (true, Some(&rows)) = (cut, value.shape.dims().first()) {
                value.shape = value.shape.with(0, rows * self.times);
                self.rows.insert(ValueId(i as u32), rows);
            }
        }
    }

    /// The part's own rows of each input.
    fn slices(&mut self, part: usize, nodes: &[Node]) -> BTreeMap<ValueId, ValueId> {
        let mut slices = BTreeMap::new();
        for (id, len) in self.rows.clone() {
            let mut value = self.graph.value(id).clone();
            value.shape = value.shape.with(0, len);
            let copy = self.add(value, &format!("part{}", part + 1));
            let op = Op::Slice { axis: 0, start: part * len, len };
            self.push(op, &[id], copy, Phase::Forward, nodes);
            slices.insert(id, copy);
        }
        slices
    }

    fn copy_of(&mut self, id: ValueId, part: u32) -> ValueId {
        self.add(self.graph.value(id).clone(), &format!("part{}", part + 1))
    }

    fn add(&mut self, mut value: Value, suffix: &str) -> ValueId {
        value.name = format!("{}.{suffix}", value.name);
        if value.class == Class::Input {
            value.class = Class::Activation;
            value.indices = None;
        }
        self.graph.values.push(value);
        ValueId(self.graph.values.len() as u32 - 1)
    }

    fn emit(&mut self, op: Op, inputs: &[ValueId], nodes: &[Node]) -> ValueId {
        let value = self.graph.value(inputs[0]).clone();
        let phase = if value.class == Class::Gradient { Phase::Backward } else { Phase::Forward };
        let output = self.add(value, &format!("sum{}", self.graph.values.len()));
        self.push(op, inputs, output, phase, nodes);
        output
    }

    fn push(&mut self, op: Op, inputs: &[ValueId], output: ValueId, phase: Phase, nodes: &[Node]) {
        let Some(like) = nodes.first() else { return };
        let layer = Arc::from("");
        self.graph.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: vec![output],
            layer,
            phase,
            at: like.at,
        });
    }

    fn mean(&mut self, parts: &[ValueId], nodes: &[Node]) -> ValueId {
        let add = Op::Binary(Binary::Add);
        let sum = parts[1..].iter().fold(parts[0], |sum, &part| self.emit(add.clone(), &[sum, part], nodes));
        self.emit(Op::Unary(Unary::Scale(1.0 / self.times as f32)), &[sum], nodes)
    }

    fn join(&mut self, parts: &[ValueId], nodes: &[Node]) -> ValueId {
        let mut value = self.graph.value(parts[0]).clone();
        value.shape = value.shape.with(0, value.shape.dims()[0] * parts.len());
        let output = self.add(value, "parts");
        self.push(Op::Concat { axis: 0 }, parts, output, Phase::Forward, nodes);
        output
    }
}
