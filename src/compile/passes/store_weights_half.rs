//! Stores large weights in 16 bits, and frozen ones in 4 or 8. Each operation reads its own widened copy, created right before it, so
//! that only the weight itself is alive between readers. Updates, and embeddings of 16 bits, read the weight directly. The
//! `fold_upcasts` pass removes the copies for matrix products.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use crate::dtype::{DType, Rounding, WeightStorage};
use crate::graph::{Class, Graph, Node, Op, Phase, Stored, Value, ValueId};

/// Stores large weights as `storage` and their groups say. Every large parameter of the registry gets a value, read or not,
/// so that all programs over the same parameters place them alike.
pub(crate) fn store_weights_half(mut graph: Graph, storage: WeightStorage) -> Graph {
    let mut keys = BTreeMap::new();
    for param in graph.parameters.clone() {
        let dtype = param.stored_as(storage);
        if dtype == DType::F32 {
            continue;
        }
        let named =
            |(_, value): &(ValueId, &Value)| value.class == Class::Parameter && value.name == param.name();
        let known = graph.ids().find(named).map(|(id, _)| id);
        let id = known.unwrap_or_else(|| {
            graph.add_value(Value::new(param.name(), param.shape(), dtype, Class::Parameter))
        });
        graph.values[id.index()].dtype = dtype;
        keys.insert(id, param.index() as u32);
    }
    let nodes = std::mem::take(&mut graph.nodes);
    let mut rewrite =
        Rewrite { root: keys.keys().map(|id| (*id, *id)).collect(), graph, copies: BTreeMap::new() };
    let mut rewritten = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        // Readers of a view get a view of a widened copy.
        if matches!(node.op, Op::Reshape(_)) && rewrite.is_view(&node) {
            continue;
        }
        if rewrite.is_piece(&node) {
            rewritten.push(node);
            continue;
        }
        match &mut node.op {
            Op::Update { stored, .. } => {
                if let (Some(key), Rounding::Stochastic) = (keys.get(&node.inputs[0]), storage.rounding()) {
                    *stored = Stored::Stochastic(*key);
                }
            }
            Op::Embedding
                if rewrite.root.get(&node.inputs[0]) == Some(&node.inputs[0])
                    && rewrite.graph.value(node.inputs[0]).dtype.is_half() => {}
            Op::Send { share: Some(_), .. } | Op::Replace { .. } | Op::CachedAttention(_) => {}
            _ => rewrite.widen(&mut node, &mut rewritten),
        }
        rewritten.push(node);
    }
    rewrite.widen_outputs(&mut rewritten);
    rewrite.graph.nodes = rewritten;
    rewrite.graph
}

struct Rewrite {
    graph: Graph,
    /// Weights in fewer bits, pieces of these, and views of both, mapped to the weight or piece.
    root: BTreeMap<ValueId, ValueId>,
    copies: BTreeMap<ValueId, usize>,
}

impl Rewrite {
    fn is_view(&mut self, node: &Node) -> bool {
        let Some(&root) = self.root.get(&node.inputs[0]) else { return false };
        self.root.insert(node.outputs[0], root);
        true
    }

    /// Whether a node reads a piece of a weight in fewer bits. It is stored as the weight.
    fn is_piece(&mut self, node: &Node) -> bool {
        let piece = self.graph.reads_piece(node) && self.root.contains_key(&node.inputs[0]);
        if piece {
            let [whole, rows] = [node.inputs[0], node.outputs[0]];
            self.graph.values[rows.index()].dtype = self.graph.value(whole).dtype;
            self.root.insert(rows, rows);
        }
        piece
    }

    /// Replaces 16-bit operands of a node with copies in 32 bits.
    fn widen(&mut self, node: &mut Node, rewritten: &mut Vec<Node>) {
        let mut wide: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        for i in 0..node.inputs.len() {
            let input = node.inputs[i];
            let Some(&root) = self.root.get(&input) else { continue };
            let copy = match wide.get(&root) {
                Some(copy) => *copy,
                None => {
                    let copy = self.copy_of(root, node, rewritten);
                    wide.insert(root, copy);
                    copy
                }
            };
            let shape = self.graph.value(input).shape;
            node.inputs[i] = if shape == self.graph.value(root).shape {
                copy
            } else {
                let view = self.graph.derive(copy, "view", |value| value.shape = shape);
                rewritten.push(node.sibling(Op::Reshape(shape), vec![copy], vec![view]));
                view
            };
        }
    }

    /// Widens graph outputs: the host reads 32 bits.
    fn widen_outputs(&mut self, rewritten: &mut Vec<Node>) {
        for i in 0..self.graph.outputs.len() {
            let id = self.graph.outputs[i].1;
            let (layer, phase, at) = (Arc::from(""), Phase::Forward, Location::caller());
            let mut host = Node { op: Op::Copy, inputs: vec![id], outputs: Vec::new(), layer, phase, at };
            self.widen(&mut host, rewritten);
            self.graph.outputs[i].1 = host.inputs[0];
        }
    }

    fn copy_of(&mut self, root: ValueId, reader: &Node, rewritten: &mut Vec<Node>) -> ValueId {
        let copies = self.copies.entry(root).or_insert(0);
        *copies += 1;
        let suffix = if *copies == 1 { "f32".to_owned() } else { format!("f32.{copies}") };
        let copy = self.graph.derive(root, &suffix, |value| {
            value.dtype = DType::F32;
            value.class = Class::Workspace;
        });
        rewritten.push(reader.sibling(Op::Cast(DType::F32), vec![root], vec![copy]));
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace};

    #[test]
    fn large_weights_are_stored_in_16_bits_with_a_copy_for_each_reader() {
        let params = Params::new(0);
        let add = |name: &str, dims: &[usize]| {
            params.add(name, crate::shape::Shape::try_new(dims).expect("short"), Init::Constant(0.0))
        };
        let (table, w, small, bias) =
            (add("t", &[64, 16]), add("w", &[16, 64]), add("s", &[4, 4]), add("b", &[2048]));
        add("unread", &[32, 32]);
        let graph = Trace::record(&params, Mode::Train, "y", |trace| {
            let rows = trace.param(&table).embedding(&trace.ids("ids", [3], 64));
            let w = trace.param(&w);
            let y = rows.matmul(&w).matmul(&w.reshape([64, 16]));
            y.sum(&[]).add(&trace.param(&small).sum(&[])).add(&trace.param(&bias).sum(&[]))
        });
        let graph = store_weights_half(graph.expect("valid"), WeightStorage::Bf16(Rounding::Nearest));
        let of = |name: &str| graph.values.iter().find(|value| value.name == name).expect("there").dtype;
        assert_eq!(["t", "w", "unread"].map(of), [DType::BF16; 3]);
        assert_eq!(["s", "b", "w.f32", "w.f32.2"].map(of), [DType::F32; 4]);
        let names: Vec<&str> = graph.nodes.iter().map(|node| node.op.name()).collect();
        assert_eq!(names[..6], ["embedding", "cast", "matmul", "cast", "reshape", "matmul"]);
    }
}
