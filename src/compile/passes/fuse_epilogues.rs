//! Fuses elementwise functions after a matrix product or convolution into its epilogue, before the result is
//! stored.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::eliminate_dead_code;
use super::fuse_elementwise::Draft;
use crate::compile::analysis::Uses;
use crate::dtype::DType;
use crate::graph::{
    Arg, FusedElementwise, FusedOp, Graph, Node, Op, Phase, Read, ValueId, can_fuse, only_reads, reads,
};

/// Maximum parameter words of a chain: with the 36 words of a convolution, they reach the limit of a launch.
const MOST_WORDS: usize = 27;

/// Fuses products and convolutions with the chain, or the single function, that is the only reader of their
/// result. No kernel binds more than `buffers` buffers.
pub(crate) fn fuse_epilogues(mut graph: Graph, buffers: usize) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut uses = Uses::new(&graph, &nodes);
    let mut written: Vec<Option<Node>> = Vec::with_capacity(nodes.len());
    for (n, node) in nodes.into_iter().enumerate() {
        match reader(&graph, &uses, &written, n, &node, buffers) {
            Some((at, joined)) => {
                joined.inputs.iter().for_each(|id| uses.read(*id, n));
                written[at] = None;
                written.push(Some(joined));
            }
            None => written.push(Some(node)),
        }
    }
    graph.nodes = written.into_iter().flatten().collect();
    // Removes views of results that no longer exist.
    eliminate_dead_code(graph)
}

/// Forward functions fused with the product or convolution before them, as if nothing else read its result:
/// the positions of the two nodes, and the fused node. The graph is not changed.
pub(crate) fn pairs(graph: &Graph, buffers: usize) -> Vec<([usize; 2], Node)> {
    let uses = Uses::new(graph, &graph.nodes);
    let forward = |node: &Node| node.phase == Phase::Forward;
    let mut pairs = Vec::new();
    let functions = graph.nodes.iter().enumerate().filter(|(_, node)| forward(node) && computes(graph, node));
    for (n, node) in functions {
        let draft = Draft::of(node);
        for (k, id) in draft.operands.iter().enumerate() {
            let own = uses.made[id.index()].filter(|_| uses.root[id.index()] == *id);
            let Some((at, first)) = own.map(|at| (at, &graph.nodes[at])).filter(|(_, first)| forward(first))
            else {
                continue;
            };
            let both = joined(graph, first, node, &draft, k, buffers);
            pairs.extend(both.filter(|both| uses.apart(&both.inputs)).map(|both| ([at, n], both)));
        }
    }
    pairs
}

/// The position of the producer that `node` can be fused into, and the fused node.
fn reader(
    graph: &Graph,
    uses: &Uses,
    written: &[Option<Node>],
    n: usize,
    node: &Node,
    buffers: usize,
) -> Option<(usize, Node)> {
    if !computes(graph, node) {
        return None;
    }
    let draft = Draft::of(node);
    let makers = draft.operands.iter().enumerate();
    let mut makers: Vec<_> = makers.filter_map(|(k, id)| Some((k, producer(uses, written, *id)?))).collect();
    // Prefers the later of two producers: the result of the other is available by then.
    makers.sort_by_key(|(_, (at, _))| Reverse(*at));
    makers.into_iter().find_map(|(k, (at, first))| {
        let (joined, id) = (joined(graph, first, node, &draft, k, buffers)?, first.outputs[0]);
        let fits = first.phase == node.phase
            && uses.apart(&joined.inputs)
            && uses.spares(graph, [at, n], &first.inputs, id, &draft.operands);
        fits.then_some((at, joined))
    })
}

/// Whether a node is an elementwise function that computes, not one that only reads.
fn computes(graph: &Graph, node: &Node) -> bool {
    let first = node.inputs.first().map(|id| graph.value(*id).dtype);
    let function =
        matches!(node.op, Op::Fused(_)) || (can_fuse(&node.op, first) && !only_reads(&node.op, first));
    function && node.outputs.iter().all(|id| graph.value(*id).shape.numel() > 0)
}

/// `first` with the functions of `draft`, those of `node`, as its epilogue. The result of `first` is operand
/// `k` of `draft`. `None` if no kernel supports this.
fn joined(graph: &Graph, first: &Node, node: &Node, draft: &Draft, k: usize, buffers: usize) -> Option<Node> {
    let shape = |id: ValueId| graph.value(id).shape;
    let (result, own) = (shape(node.outputs[0]), shape(first.outputs[0]));
    // The result of a product may be read in another shape; the channels of a convolution have a fixed
    // position.
    let product = matches!(first.op, Op::MatMul { .. });
    let image = |link: &FusedOp| matches!(link.op, Op::BatchNorm(_));
    let others: Vec<ValueId> =
        (0..draft.operands.len()).filter(|i| *i != k).map(|i| draft.operands[i]).collect();
    let inputs = [&first.inputs[..], &others].concat();
    // Kernel source widens only one 16-bit type: of epilogue operands for a product, of all operands for a
    // convolution.
    let narrow: BTreeSet<DType> = (if product { &others } else { &inputs })
        .iter()
        .map(|id| graph.value(*id).dtype)
        .filter(|dtype| dtype.is_half())
        .collect();
    let fits = first.op.epilogue().is_none()
        && graph.value(first.outputs[0]).dtype == DType::F32
        && shape(draft.operands[k]) == result
        && (own == result || product)
        && !(product && draft.links.iter().any(image))
        && narrow.len() <= 1
        && inputs.len() < buffers;
    if !fits {
        return None;
    }
    let links = with_first(&draft.links, k);
    let shapes: Vec<_> = std::iter::once(result).chain(others.iter().map(|id| shape(*id))).collect();
    if words(&links, &reads(&links, &shapes, result)?) > MOST_WORDS {
        return None;
    }
    let op = first.op.with_epilogue(Some(FusedElementwise::epilogue(first.op.name(), links, result)))?;
    Some(Node { op, inputs, outputs: node.outputs.clone(), ..first.clone() })
}

/// Maximum number of parameter words of links with such operands.
fn words(links: &[FusedOp], operands: &[Read]) -> usize {
    let of = |link: &FusedOp| match &link.op {
        Op::Dropout { .. } => 3,
        Op::Unary(f) | Op::UnaryGrad(f) => f.function().constants,
        _ => 0,
    };
    let strips: BTreeSet<_> = operands.iter().filter(|read| matches!(read, Read::Strip { .. })).collect();
    links.iter().map(of).sum::<usize>() + 2 * strips.len()
}

/// The operation that can take an epilogue and computes `id`, or the value that `id` views, for a single
/// reader.
fn producer<'a>(uses: &Uses, written: &'a [Option<Node>], id: ValueId) -> Option<(usize, &'a Node)> {
    let alone = |id: ValueId| uses.readers[id.index()] == 1;
    let mut at = id;
    while let Some(from) = uses.of[at.index()].filter(|_| alone(at)) {
        at = from;
    }
    let made = uses.made[at.index()].filter(|_| uses.root[at.index()] == at && alone(at))?;
    let node = written.get(made)?.as_ref()?;
    node.op.with_epilogue(None).map(|_| (made, node))
}

/// The links with operand `k` moved to operand 0.
fn with_first(links: &[FusedOp], k: usize) -> Vec<FusedOp> {
    let moved = |arg: &Arg| match *arg {
        Arg::Operand(i) if i == k => Arg::Operand(0),
        Arg::Operand(i) if i < k => Arg::Operand(i + 1),
        other => other,
    };
    links
        .iter()
        .map(|link| FusedOp { op: link.op.clone(), args: link.args.iter().map(moved).collect() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Tensor, Trace, Window};

    fn names(build: impl FnOnce(&Trace) -> Tensor) -> Vec<&'static str> {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", build).expect("valid");
        fuse_epilogues(super::super::fuse_elementwise(graph, 8), 8)
            .nodes
            .iter()
            .map(|node| node.op.name())
            .collect()
    }

    #[test]
    fn sole_reader_of_a_product_becomes_its_epilogue() {
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
    fn operands_of_the_product_and_viewed_results_are_not_fused() {
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

    fn convolved(build: impl FnOnce(&Trace, &Tensor) -> Tensor) -> Vec<&'static str> {
        names(|trace| {
            let [x, w] =
                [[2, 3, 5, 5], [4, 3, 3, 3]].map(|shape| trace.input(&format!("x{}", shape[0]), shape));
            build(trace, &x.conv2d(&w, None, Window::square(3), 1))
        })
    }

    #[test]
    fn convolutions_fuse_norms_but_not_reshapes_or_outputs() {
        let block = convolved(|trace, y| {
            let [mean, scale, gamma, beta] =
                ["mean", "scale", "gamma", "beta"].map(|name| trace.input(name, [4]));
            y.batch_norm_eval(&mean, &scale, &gamma, &beta, 1e-5).relu()
        });
        assert_eq!(block, ["offset+sqrt+recip", "conv2d+batch_norm+relu"]);
        assert_eq!(convolved(|_, y| y.reshape([2, 36]).tanh()), ["conv2d", "reshape", "tanh"]);
        let seen = convolved(|trace, y| {
            trace.output("seen", y);
            y.tanh()
        });
        assert_eq!(seen, ["conv2d", "tanh"]);
    }

    /// The sum is fused into the later of the two gradients and overwrites the earlier one.
    #[test]
    fn gradient_sum_of_branches_is_fused_into_the_later_gradient() {
        let params = Params::new(0);
        let [a, b, c] = ["a", "b", "c"].map(|name| params.add(name, [2, 2, 3, 3], Init::Constant(0.1)));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let same = |x: &Tensor, w| x.conv2d(&trace.param(w), None, Window::square(3).padding(1), 1);
            let x = same(&trace.input("x", [2, 2, 5, 5]), &a).relu();
            let (left, right) = (same(&x, &b), same(&x, &c));
            left.mul(&right).sum(&[]).add(&x.sum(&[]))
        });
        let joined =
            fuse_epilogues(super::super::fuse_elementwise(differentiated(graph.expect("valid")), 8), 8);
        let count = |name: &str| joined.nodes.iter().filter(|node| node.op.name() == name).count();
        assert_eq!((count("conv2d_input"), count("conv2d_input+add+add+relu_grad")), (1, 1));
        let waiting = pairs(&joined, 8);
        assert!(waiting.iter().all(|([first, then], both)| {
            let [first, then] = [first, then].map(|n| &joined.nodes[*n]);
            both.outputs == then.outputs && first.phase == Phase::Forward
        }));
        assert_eq!(waiting.len(), 2, "the gradients of what is multiplied read both");
    }
}
