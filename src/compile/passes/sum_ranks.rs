//! Sums over the ranks that compute a layer together, as exchanges.

use super::exchange::{SHARE_WORDS, add_exchange, node, receive, send};
use crate::graph::{Binary, ExchangeKind, Graph, Node, Op, Value, ValueId};
use crate::shape::Shape;

/// Replaces each [`Op::SumRanks`]. Every rank adds up its share of a tensor, in the order of ranks, and sends the sum to the
/// others. Where the gradient was to be summed, the result is the operand.
pub(crate) fn sum_ranks(graph: &mut Graph, ranks: u32) {
    let mut is = Vec::from_iter(graph.ids().map(|(id, _)| id));
    for mut node in std::mem::take(&mut graph.nodes) {
        node.inputs.iter_mut().for_each(|id| *id = is[id.index()]);
        match node.op {
            Op::SumRanks { of_gradient: true } => is[node.outputs[0].index()] = node.inputs[0],
            Op::SumRanks { of_gradient: false } => exchange_sum(graph, &node, ranks),
            _ => graph.nodes.push(node),
        }
    }
    graph.outputs.iter_mut().for_each(|(_, id)| *id = is[id.index()]);
}

fn exchange_sum(graph: &mut Graph, sum: &Node, ranks: u32) {
    let (first, [x, result]) = (graph.nodes.len(), [sum.inputs[0], sum.outputs[0]]);
    let like = graph.value(x).clone();
    let share = like.shape.numel().div_ceil(u64::from(ranks)).next_multiple_of(SHARE_WORDS);
    let scatter = add_exchange(graph, ExchangeKind::Scatter, ranks, share);
    send(graph, (scatter, 0), x, None);
    let part = Value { shape: Shape::from([share as usize]), ..like };
    let parts: Vec<ValueId> =
        (0..u64::from(ranks)).map(|rank| receive(graph, (scatter, rank * share), part.clone())).collect();
    let own = parts[1..].iter().fold(parts[0], |before, &next| {
        let name = format!("sum{}", graph.values.len());
        let added = graph.derive(next, &name, |_| ());
        graph.nodes.push(node(Op::Binary(Binary::Add), vec![before, next], vec![added]));
        added
    });
    let gather = add_exchange(graph, ExchangeKind::Gather, ranks, share);
    send(graph, (gather, 0), own, None);
    let whole = graph.value(result).clone();
    let received = receive(graph, (gather, 0), whole);
    for node in &mut graph.nodes[first..] {
        (node.layer, node.phase) = (sum.layer.clone(), sum.phase);
        node.outputs.iter_mut().filter(|id| **id == received).for_each(|id| *id = result);
    }
}
