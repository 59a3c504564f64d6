//! Sums over the ranks that compute a layer together, as exchanges.

use super::exchange::{SHARE_WORDS, add_exchange, added, receive, receive_as, send};
use crate::graph::{ExchangeKind, Graph, Node, Op, Value, ValueId};
use crate::shape::Shape;

/// Replaces each [`Op::SumRanks`]. Every rank adds up its share of a tensor, in the order of ranks, and sends the sum to the
/// others. Where the gradient was to be summed, the tensor stays as it is: [`remove_detached`](super::remove_detached) follows.
pub(crate) fn sum_ranks(graph: &mut Graph, ranks: u32) {
    for mut node in std::mem::take(&mut graph.nodes) {
        match node.op {
            Op::SumRanks { of_gradient: false } => exchange_sum(graph, &node, ranks),
            Op::SumRanks { of_gradient: true } => {
                node.op = Op::Detach;
                graph.nodes.push(node);
            }
            _ => graph.nodes.push(node),
        }
    }
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
    let own = parts[1..].iter().fold(parts[0], |before, &next| added(graph, before, next));
    let gather = add_exchange(graph, ExchangeKind::Gather, ranks, share);
    send(graph, (gather, 0), own, None);
    receive_as(graph, (gather, 0), result);
    for node in &mut graph.nodes[first..] {
        (node.layer, node.phase) = (sum.layer.clone(), sum.phase);
    }
}
