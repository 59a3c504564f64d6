//! Folds gradients that start as one scalar for all rows.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Binary, Graph, Op, ValueId};

/// - A product with a fill of ones is replaced by its other factor: the gradient of a loss starts as 1.
/// - The gradient of cross-entropy reads one scalar for all rows, instead of an expanded copy.
///
/// A persistent factor is not folded: its update would change the product with it. Nodes without readers are
/// left for [`eliminate_dead_code`](super::eliminate_dead_code).
pub(crate) fn fold_scalar_grads(mut graph: Graph) -> Graph {
    let persistent = graph.ids().filter(|(_, value)| value.class.is_persistent());
    // Includes views of persistent values.
    let mut lasting: BTreeSet<ValueId> = persistent.map(|(id, _)| id).collect();
    let mut ones = BTreeSet::new();
    let mut expanded: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut factors: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let Graph { values, nodes, outputs, .. } = &mut graph;
    for node in nodes {
        for id in &mut node.inputs {
            *id = factors.get(id).copied().unwrap_or(*id);
        }
        let Some(&result) = node.outputs.first() else { continue };
        match (&node.op, &mut node.inputs[..]) {
            (Op::Fill { value: 1.0, .. }, []) => {
                ones.insert(result);
            }
            (Op::Binary(Binary::Mul), &mut [a, b]) if ones.contains(&a) || ones.contains(&b) => {
                let factor = if ones.contains(&a) { b } else { a };
                let same = values[factor.index()].shape == values[result.index()].shape;
                if same && !lasting.contains(&factor) {
                    factors.insert(result, factor);
                }
            }
            (Op::Reshape(_) | Op::Slice { .. }, [whole]) if lasting.contains(whole) => {
                lasting.insert(result);
            }
            (Op::Expand(_), &mut [one]) => {
                expanded.insert(result, one);
            }
            (Op::CrossEntropyGrad, [_, _, _, dloss]) => {
                *dloss = expanded.get(dloss).copied().unwrap_or(*dloss);
            }
            _ => {}
        }
    }
    for (_, id) in outputs {
        *id = factors.get(id).copied().unwrap_or(*id);
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::super::eliminate_dead_code;
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace};

    #[test]
    fn gradient_of_a_mean_of_losses_needs_no_fill_or_expand() {
        let params = Params::new(0);
        let x = params.add("x", [6, 5], Init::Constant(0.5));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let labels = trace.labels("y", [6], 5);
            trace.param(&x).cross_entropy(&labels)
        });
        let graph = differentiated(graph.expect("valid"));
        let names =
            |graph: &Graph| -> Vec<_> { graph.nodes.iter().map(|n| n.op.name().to_owned()).collect() };
        let backward = ["fill", "mul", "reshape", "expand", "cross_entropy_grad"];
        assert!(names(&graph).ends_with(&backward.map(str::to_owned)));
        let graph = eliminate_dead_code(fold_scalar_grads(graph));
        assert!(names(&graph).ends_with(&["mul", "reshape", "cross_entropy_grad"].map(str::to_owned)));
        let [.., reshape, gradient] = &graph.nodes[..] else { panic!("two nodes at least") };
        let share = graph.nodes.iter().find(|node| node.op == Op::LabelShare).expect("of a mean");
        assert_eq!((&reshape.inputs, gradient.inputs[3]), (&share.outputs, reshape.outputs[0]));
    }

    /// If folded, each parameter would be updated by a view of the other.
    #[test]
    fn parameters_and_their_views_are_not_folded_as_factors() {
        for viewed in [false, true] {
            let params = Params::new(0);
            let [v, w] = ["v", "w"].map(|name| params.add(name, [1], Init::Constant(0.5)));
            let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
                let [v, w] = [&v, &w].map(|param| trace.param(param));
                if viewed { v.reshape([]).mul(&w.reshape([])) } else { v.mul(&w).reshape([]) }
            });
            let products =
                |graph: &Graph| graph.nodes.iter().filter(|node| node.op == Op::Binary(Binary::Mul)).count();
            let graph = eliminate_dead_code(fold_scalar_grads(differentiated(graph.expect("valid"))));
            assert_eq!(products(&graph), 3, "viewed {viewed}");
        }
    }
}
