//! Operands in 16 bits that are widened where they are read: no tensor holds them in 32.

use crate::dtype::DType;
use crate::graph::{Graph, Op, ValueId};

/// A widening is part of every operation that reads its result and can widen it itself. Chains of functions take theirs in
/// by `fuse`.
pub(crate) fn widenings(mut graph: Graph) -> Graph {
    let mut packed: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    for node in &graph.nodes {
        let from = node.inputs.first().filter(|id| graph.value(**id).dtype.is_half());
        if let (Op::Cast(DType::F32), Some(from)) = (&node.op, from) {
            packed[node.outputs[0].index()] = Some(*from);
        }
    }
    for node in &mut graph.nodes {
        for i in (0..node.inputs.len()).filter(|i| node.op.widens(*i)) {
            let narrow = packed[node.inputs[i].index()];
            node.inputs[i] = narrow.unwrap_or(node.inputs[i]);
        }
    }
    super::prune(graph)
}

#[cfg(test)]
mod tests {
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace, Window};

    #[test]
    fn the_gradient_of_a_weight_reads_what_waited_in_16_bits() {
        let params = Params::new(0);
        let weight = |name: &str| params.add(name, [4, 4, 3, 3], Init::Constant(0.1));
        let (a, b) = (weight("a"), weight("b"));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let window = Window::square(3).padding(1);
            let x = trace.input("x", [2, 4, 12, 12]).conv2d(&trace.param(&a), None, window, 1).tanh();
            x.conv2d(&trace.param(&b), None, window, 1).sum(&[])
        });
        let half = super::super::half(differentiated(graph.expect("valid")), DType::F16, false);
        let casts = |graph: &Graph| graph.nodes.iter().filter(|n| n.op == Op::Cast(DType::F32)).count();
        let read = widenings(half.clone());
        assert_eq!([casts(&half), casts(&read)], [2, 1], "tanh's own gradient reads it as well");
        let narrow = |graph: &Graph| {
            let weights = graph.nodes.iter().filter(|n| matches!(n.op, Op::Conv2dWeight { .. }));
            weights.filter(|n| graph.value(n.inputs[0]).dtype == DType::F16).count()
        };
        assert_eq!([narrow(&half), narrow(&read)], [0, 1]);
    }
}
