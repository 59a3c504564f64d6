//! Stores one bit per element where the backward pass reads a forward result to know where a ReLU passed gradients: in place of a
//! result that nothing else reads, or beside the codes of one. Gradients are bitwise identical to those by the stored result.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::graph::{Class, Graph, Node, Op, Phase, Unary, Value, ValueId};
use crate::shape::Shape;

/// Smaller tensors are unchanged: the extra dispatch would cost more than the saved bytes.
const SMALLEST: u64 = 1024;

/// Stores bit masks in place of values that only the gradients of ReLUs, leaky ReLUs and clamps read; with `codes`, beside those
/// that others read as well.
pub(crate) fn store_masks(mut graph: Graph, codes: bool) -> Graph {
    let wanted = Wanted::of(&graph, codes);
    let nodes = std::mem::take(&mut graph.nodes);
    let mut bits: Vec<(ValueId, Unary, ValueId)> = Vec::new();
    let mut rewritten = Vec::with_capacity(nodes.len());
    for (i, mut node) in nodes.into_iter().enumerate() {
        for root in wanted.before.get(&i).into_iter().flatten() {
            for f in &wanted.functions[root] {
                let mask = mask_of(&mut graph, *root, bits.len());
                bits.push((*root, *f, mask));
                let layer = Graph::layer_of(rewritten.iter(), *root);
                rewritten.push(Node::inserted(Op::Mask(*f), *root, mask, layer, Phase::Forward));
            }
        }
        if let (Op::UnaryGrad(f), Phase::Backward) = (&node.op, node.phase) {
            let root = wanted.root[node.inputs[0].index()];
            if let Some((.., mask)) = bits.iter().find(|(of, g, _)| *of == root && g == f) {
                node.inputs[0] = *mask;
                node.op = Op::MaskGrad(*f);
            }
        }
        rewritten.push(node);
    }
    graph.nodes = rewritten;
    graph
}

fn mask_of(graph: &mut Graph, root: ValueId, count: usize) -> ValueId {
    let of = graph.value(root);
    let shape = Shape::from([of.shape.numel().div_ceil(32) as usize]);
    let name = format!("{}.mask{}", of.name, if count == 0 { String::new() } else { count.to_string() });
    graph.add_value(Value::new(name, shape, DType::U32, Class::Activation))
}

struct Wanted {
    /// For each value, the value that owns its memory.
    root: Vec<ValueId>,
    /// Values to mask, each with its functions: the gradients of these functions read the mask.
    functions: BTreeMap<ValueId, Vec<Unary>>,
    /// Values to mask right before a node. The node is the last one of the forward half that reads them, and
    /// may overwrite them.
    before: BTreeMap<usize, Vec<ValueId>>,
}

impl Wanted {
    fn of(graph: &Graph, codes: bool) -> Self {
        let count = graph.values.len();
        let mut root: Vec<ValueId> = ValueId::all(count).collect();
        let mut place: Vec<Option<usize>> = vec![None; count];
        let mut functions: BTreeMap<ValueId, Vec<Unary>> = BTreeMap::new();
        // Read in the forward pass, or by the host, when a mask would come too late; read by other operations.
        let mut kept = vec![false; count];
        let mut otherwise = vec![false; count];
        // Read by the backward half of an earlier part of the batch.
        let mut late = vec![false; count];
        for (i, node) in graph.nodes.iter().enumerate() {
            if matches!(node.op, Op::Reshape(_)) {
                root[node.outputs[0].index()] = root[node.inputs[0].index()];
                continue;
            }
            let inputs = || node.inputs.iter().map(|id| root[id.index()]);
            if node.phase == Phase::Forward {
                for id in inputs() {
                    place[id.index()] = place[id.index()].map(|_| i);
                    // Read again when the parts of a batch are concatenated for the host.
                    kept[id.index()] |= late[id.index()];
                }
                node.outputs.iter().for_each(|id| place[id.index()] = Some(i + 1));
                continue;
            }
            for (position, id) in inputs().enumerate() {
                late[id.index()] = true;
                match node.op {
                    Op::UnaryGrad(f)
                        if position == 0 && f.has_two_slopes() && node.phase == Phase::Backward =>
                    {
                        let list = functions.entry(id).or_default();
                        if !list.contains(&f) {
                            list.push(f);
                        }
                    }
                    _ => otherwise[id.index()] = true,
                }
            }
        }
        graph.outputs.iter().for_each(|(_, id)| kept[root[id.index()].index()] = true);
        functions.retain(|id, _| {
            let (value, i) = (graph.value(*id), id.index());
            let masked = !kept[i] && (codes || !otherwise[i]);
            value.class == Class::Activation && value.shape.numel() >= SMALLEST && masked
        });
        let mut before: BTreeMap<usize, Vec<ValueId>> = BTreeMap::new();
        for id in functions.keys() {
            // Values computed by the backward half itself get no mask.
            if let Some(place) = place[id.index()] {
                before.entry(place).or_default().push(*id);
            }
        }
        Self { root, functions, before }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Tensor, Trace};

    fn ops(model: impl Fn(&Tensor) -> Tensor) -> Vec<&'static str> {
        let params = Params::new(0);
        let w = params.add("w", [64, 64], Init::Constant(0.5));
        let graph =
            Trace::record(&params, Mode::Train, "loss", |trace| model(&trace.param(&w).square()).sum(&[]));
        store_masks(differentiated(graph.expect("valid")), false)
            .nodes
            .iter()
            .map(|node| node.op.name())
            .collect()
    }

    #[test]
    fn activations_read_only_as_masks_are_stored_as_bits() {
        let count = |ops: &[&str], name| ops.iter().filter(|op| **op == name).count();
        let plain = ops(|x| x.add(&x.relu().reshape([4096]).scale(2.0).reshape([64, 64])));
        assert_eq!((count(&plain, "mask"), count(&plain, "mask_grad")), (1, 1), "{plain:?}");
        // The shared input gets one mask per function.
        let clamps = ops(|x| x.neg().clamp(-1.0, 0.0).add(&x.neg().clamp(-2.0, 0.0)));
        assert_eq!((count(&clamps, "mask"), count(&clamps, "mask_grad")), (2, 2), "{clamps:?}");
        let read = ops(|x| x.relu().square());
        assert_eq!((count(&read, "mask"), count(&read, "unary_grad")), (0, 3), "{read:?}");
    }
}
