//! Sums over the ranks that compute a layer together, as exchanges.

use super::exchange::{SHARE_WORDS, add_exchange, receive_as, receive_sum, send};
use crate::compile::Parallel;
use crate::graph::{ExchangeKind, Graph, Node, Op, Value};
use crate::shape::Shape;

/// Replaces each [`Op::SumRanks`]. Every rank adds up its share of a tensor, in the order of ranks, and sends the sum to the
/// others. Where the gradient was to be summed, the tensor stays as it is: [`remove_detached`](super::remove_detached) follows.
pub(crate) fn sum_ranks(graph: &mut Graph, parallel: &Parallel) {
    for mut node in std::mem::take(&mut graph.nodes) {
        match node.op {
            Op::SumRanks { of_gradient: false } => exchange_sum(graph, &node, parallel),
            Op::SumRanks { of_gradient: true } => {
                node.op = Op::Detach;
                graph.nodes.push(node);
            }
            _ => graph.nodes.push(node),
        }
    }
}

fn exchange_sum(graph: &mut Graph, sum: &Node, parallel: &Parallel) {
    let ranks = parallel.ranks;
    let (first, [x, result]) = (graph.nodes.len(), [sum.inputs[0], sum.outputs[0]]);
    let like = graph.value(x).clone();
    let share = like.shape.numel().div_ceil(u64::from(ranks)).next_multiple_of(SHARE_WORDS);
    let scatter = add_exchange(graph, ExchangeKind::Scatter, ranks, share);
    send(graph, (scatter, 0), x, None);
    let part = Value { shape: Shape::from([share as usize]), ..like };
    let own = receive_sum(graph, (scatter, 0..ranks), &part, parallel.together(), None);
    let gather = add_exchange(graph, ExchangeKind::Gather, ranks, share);
    own.into_iter().for_each(|own| send(graph, (gather, 0), own, None));
    receive_as(graph, (gather, 0), result);
    for node in &mut graph.nodes[first..] {
        (node.layer, node.phase) = (sum.layer.clone(), sum.phase);
    }
}
