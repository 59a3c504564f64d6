//! Selects the optimizer state that is stored in host memory between its updates.

use std::collections::BTreeSet;

use crate::compile::Offload;
use crate::graph::{Class, Graph, Op, Param};

/// Names of trained parameters that have at least `share` of the elements of all large ones, and hardly more. They are the smallest:
/// what is on the device to update one of them is as large.
pub(crate) fn parameters_away(params: &[Param], share: f64) -> BTreeSet<&str> {
    let large = |param: &&Param| !param.group().frozen && 4 * param.shape().numel() >= Offload::SMALLEST;
    let mut large: Vec<&Param> = params.iter().filter(large).collect();
    large.sort_by_key(|param| param.shape().numel());
    let sizes: Vec<u64> = large.iter().map(|param| param.shape().numel()).collect();
    let wanted = (share * sizes.iter().sum::<u64>() as f64).ceil() as u64;
    least_of(&sizes, wanted).into_iter().map(|i| large[i].name()).collect()
}

/// Positions of some of `sizes`, in ascending order, with a sum of at least `wanted`: the first ones without those that the last makes
/// superfluous.
fn least_of(sizes: &[u64], wanted: u64) -> Vec<usize> {
    let (mut sum, mut chosen) = (0, Vec::new());
    for (i, &size) in sizes.iter().enumerate() {
        if sum >= wanted {
            break;
        }
        sum += size;
        chosen.push(i);
    }
    let mut needed = |i: &usize| {
        let least = sum - sizes[*i];
        sum = if least >= wanted { least } else { sum };
        least < wanted
    };
    let mut left: Vec<usize> = chosen.into_iter().rev().filter(&mut needed).collect();
    left.reverse();
    left
}

/// Marks optimizer state of [`Offload::SMALLEST`] bytes or more that only updates of `share` of the trained parameters read, each of its
/// own elements.
pub(crate) fn offload_optimizer_state(mut graph: Graph, share: f64) -> Graph {
    let away = parameters_away(&graph.parameters, share);
    let mut uses = vec![0; graph.values.len()];
    let mut updates = vec![0; graph.values.len()];
    for node in &graph.nodes {
        let update =
            matches!(node.op, Op::Update { .. }) && away.contains(&*graph.value(node.inputs[0]).name);
        for id in &node.inputs {
            uses[id.index()] += 1;
            updates[id.index()] += u32::from(update);
        }
    }
    for (_, id) in &graph.outputs {
        uses[id.index()] += 1;
    }
    for (i, value) in graph.values.iter_mut().enumerate() {
        let large = value.class == Class::Optimizer && value.bytes() >= Offload::SMALLEST;
        value.offloaded = large && uses[i] > 0 && uses[i] == updates[i];
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_sizes_that_are_enough_are_chosen() {
        let sizes = [5, 5, 19, 21, 90];
        for (wanted, chosen) in [
            (0, &[][..]),
            (1, &[0]),
            (6, &[0, 1]),
            (12, &[2]),
            (22, &[0, 2]),
            (46, &[0, 1, 2, 3]),
            (51, &[4]),
            (96, &[0, 1, 4]),
            (140, &[0, 1, 2, 3, 4]),
        ] {
            assert_eq!(least_of(&sizes, wanted), chosen, "{wanted}");
        }
        assert_eq!(least_of(&[], 0), [0; 0]);
    }
}
