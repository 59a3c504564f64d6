//! Lets the dispatch that computes the statistics of a batch update the running ones.

use std::collections::BTreeMap;

use crate::graph::{Graph, Op, ValueId};

/// Joins updates of running statistics with the operations that compute the statistics of their batch, unless something in
/// between reads or changes the running ones. Statistics that come from other ranks stay apart.
pub(crate) fn fuse_running_stats(mut graph: Graph) -> Graph {
    let mut made: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut joined = vec![false; graph.nodes.len()];
    for i in 0..graph.nodes.len() {
        let node = &graph.nodes[i];
        let Op::RunningStats(running) = node.op else {
            if matches!(node.op, Op::BatchStats { .. }) {
                made.insert(node.outputs[0], i);
            }
            continue;
        };
        let own = [node.inputs[0], node.inputs[1]];
        let Some(at) = made.remove(&node.inputs[2]) else { continue };
        let used = |n: usize| graph.nodes[n].inputs.iter().any(|id| own.contains(id)) && !joined[n];
        if graph.nodes[at].outputs[2] != node.inputs[3] || (at + 1..i).any(used) {
            continue;
        }
        let stats = &mut graph.nodes[at];
        if let Op::BatchStats { running: none @ None, .. } = &mut stats.op {
            *none = Some(running);
            stats.inputs.extend(own);
            joined[i] = true;
        }
    }
    let mut joined = joined.into_iter();
    graph.nodes.retain(|_| !joined.next().unwrap_or(false));
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Init, Mode, Params, RunningStats, Trace};

    #[test]
    fn running_statistics_are_updated_with_those_of_the_batch() {
        let params = Params::new(0);
        let [mean, var] = ["mean", "var"].map(|name| params.add_buffer(name, [3], Init::Constant(1.0)));
        let graph = |late: bool| {
            let traced = Trace::record(&params, Mode::Train, "y", |trace| {
                let x = trace.input("x", [2, 3, 4, 4]);
                let [mean, var] = [&mean, &var].map(|param| trace.param(param));
                let running = RunningStats { mean: &mean, var: &var, momentum: 0.1 };
                let (gamma, beta) = (mean.fill_like([3], 1.0), mean.fill_like([3], 0.0));
                let y = x.batch_norm_train(&gamma, &beta, 1e-5, Some(&running));
                y.add(&mean.exp().reshape([1, 3, 1, 1])).batch_norm_train(&gamma, &beta, 1e-5, Some(&running))
            });
            let mut graph = traced.expect("valid");
            if late {
                let first =
                    graph.nodes.iter().position(|n| matches!(n.op, Op::RunningStats(_))).expect("one");
                let update = graph.nodes.remove(first);
                graph.nodes.push(update);
            }
            fuse_running_stats(graph)
        };
        let count = |graph: &Graph, name: &str| graph.nodes.iter().filter(|n| n.op.name() == name).count();
        let both = graph(false);
        assert_eq!([count(&both, "batch_stats"), count(&both, "running_stats")], [2, 0]);
        assert!(both.nodes.iter().filter(|n| n.op.name() == "batch_stats").all(|n| n.op.mutates() == [1, 2]));
        // The running mean is read, and moved by the second, before the first update.
        assert_eq!(count(&graph(true), "running_stats"), 1);
    }
}
