//! Functions of single elements behind a matrix product are computed before its results are stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fuse::Draft;
use super::simplify::prune;
use super::uses::Uses;
use crate::dtype::DType;
use crate::graph::{Arg, Chain, Graph, Link, Node, Op, ValueId, is_link, only_reads, reads};

/// Operands that a chain may have beside the product: with its two operands and its result they are as many buffers as every
/// adapter binds.
const MOST_OPERANDS: usize = 5;

/// Joins products with the chain, or the single function, that alone reads their result.
pub(crate) fn into_products(mut graph: Graph) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut uses = Uses::new(&graph, &nodes);
    let mut written: Vec<Option<Node>> = Vec::with_capacity(nodes.len());
    for (n, node) in nodes.into_iter().enumerate() {
        match behind(&graph, &uses, &written, n, &node) {
            Some((at, joined)) => {
                joined.inputs.iter().for_each(|id| uses.read(*id, n));
                written[at] = None;
                written.push(Some(joined));
            }
            None => written.push(Some(node)),
        }
    }
    graph.nodes = written.into_iter().flatten().collect();
    // Views of products that are nowhere now.
    prune(graph)
}

/// The position of the product that `node` can be part of, and the two as one.
fn behind(
    graph: &Graph,
    uses: &Uses,
    written: &[Option<Node>],
    n: usize,
    node: &Node,
) -> Option<(usize, Node)> {
    let first = node.inputs.first().map(|id| graph.value(*id).dtype);
    let functions = match &node.op {
        Op::Chain(chain) => chain.links(),
        op if is_link(op, first) && !only_reads(op, first) => &[],
        _ => return None,
    };
    let image = |op: &Op| matches!(op, Op::BatchNorm(_));
    let draft = Draft::of(node);
    let shape = graph.value(*node.outputs.first()?).shape;
    if functions.iter().any(|link| image(&link.op)) || image(&node.op) || shape.numel() == 0 {
        return None;
    }
    (0..draft.operands.len()).find_map(|k| {
        let (at, product) = product(graph, uses, written, draft.operands[k])?;
        let Op::MatMul { ta, tb, .. } = product.op else { return None };
        let others: Vec<ValueId> =
            (0..draft.operands.len()).filter(|i| *i != k).map(|i| draft.operands[i]).collect();
        let all = [&product.inputs[..], &others].concat();
        let id = product.outputs[0];
        let whole = graph.value(draft.operands[k]).shape == shape;
        // The text of one format widens what is read beside the product.
        let narrow: BTreeSet<DType> =
            others.iter().map(|id| graph.value(*id).dtype).filter(|dtype| dtype.is_half()).collect();
        let fits = product.phase == node.phase
            && whole
            && others.len() <= MOST_OPERANDS
            && narrow.len() <= 1
            && uses.apart(&all)
            && uses.spares(graph, [at, n], &product.inputs, id, &draft.operands);
        if !fits {
            return None;
        }
        let links = with_first(&draft.links, k);
        let shapes: Vec<_> =
            std::iter::once(shape).chain(others.iter().map(|id| graph.value(*id).shape)).collect();
        reads(&links, &shapes, shape)?;
        let op = Op::MatMul { ta, tb, then: Some(Arc::new(Chain::behind_product(links, shape))) };
        Some((at, Node { op, inputs: all, outputs: node.outputs.clone(), ..product.clone() }))
    })
}

/// The product that makes `id`, or what it is a view of, for a single reader.
fn product<'a>(
    graph: &Graph,
    uses: &Uses,
    written: &'a [Option<Node>],
    id: ValueId,
) -> Option<(usize, &'a Node)> {
    let alone = |id: ValueId| uses.readers[id.index()] == 1;
    let mut at = id;
    while let Some(from) = uses.of[at.index()].filter(|_| alone(at)) {
        at = from;
    }
    let made = uses.made[at.index()].filter(|_| uses.root[at.index()] == at && alone(at))?;
    let node = written.get(made)?.as_ref()?;
    let plain = matches!(node.op, Op::MatMul { then: None, .. }) && graph.value(at).dtype == DType::F32;
    plain.then_some((made, node))
}

/// The links with operand `k` as operand 0.
fn with_first(links: &[Link], k: usize) -> Vec<Link> {
    let moved = |arg: &Arg| match *arg {
        Arg::Operand(i) if i == k => Arg::Operand(0),
        Arg::Operand(i) if i < k => Arg::Operand(i + 1),
        other => other,
    };
    links
        .iter()
        .map(|link| Link { op: link.op.clone(), args: link.args.iter().map(moved).collect() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Mode, Params, Tensor, Trace};

    fn names(build: impl FnOnce(&Trace) -> Tensor) -> Vec<&'static str> {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", build).expect("valid");
        into_products(super::super::fuse(graph)).nodes.iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn what_alone_reads_a_product_becomes_part_of_it() {
        let layer = |kept: bool| {
            names(|trace| {
                let x = trace.input("x", [2, 3, 4]);
                let h = x.matmul(&trace.input("w", [4, 6])).add(&trace.input("bias", [6]));
                let y = h.relu().add(&trace.input("skip", [2, 3, 6]));
                if kept { y.mul(&h) } else { y }
            })
        };
        assert_eq!(layer(false), ["reshape", "matmul+add+relu+add"]);
        assert_eq!(layer(true), ["reshape", "matmul+add", "relu+add+mul"]);
    }

    #[test]
    fn nothing_is_read_twice_and_no_view_is_lost() {
        let own = names(|trace| {
            let x = trace.input("x", [4, 4]);
            x.matmul(&trace.input("w", [4, 4])).add(&x)
        });
        assert_eq!(own, ["matmul", "add"], "an operand of the product");
        let seen = names(|trace| {
            let y = trace.input("x", [2, 4]).matmul(&trace.input("w", [4, 4]));
            trace.output("view", &y.reshape([8]));
            y.relu()
        });
        assert_eq!(seen, ["matmul", "reshape", "relu"], "read through a view");
    }
}
