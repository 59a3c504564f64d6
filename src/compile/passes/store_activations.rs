//! Stores activations in fewer bits until the backward pass, and gradients until a check of all gradients.
//! Arithmetic stays in 32 bits: a value is packed after its last reader before the wait, and widened again
//! for each reader after it. [`Op::kept`] says which values stay in 32 bits, and which are rounded for the
//! forward pass, too; [`Op::takes_codes`], which may be stored in 8 or 4 bits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::is_small_vector;
use crate::dtype::{DType, Precision, SMALLEST_HALF};
use crate::graph::{Class, Graph, Kept, Node, Op, Phase, ValueId};

/// Gradients with fewer elements stay in 32 bits. Each is stored by a dispatch, and read by an update of its own; at most
/// 128 KiB are saved by that.
const SMALLEST_HALF_GRADIENT: u64 = 1 << 16;

/// Keys of stochastic rounding have this bit, which those of dropout and of updates do not have.
const QUANTISED: u32 = 1 << 30;

/// Results with few elements that affect many: means, deviations, logarithms of sums.
fn is_statistic(op: &Op) -> bool {
    matches!(op, Op::BatchStats { .. } | Op::LabelShare | Op::Reduce { .. })
}

/// Whether a node of the update phase reads a gradient before the updates, to compute the norm of all
/// gradients or to check that they are finite.
fn looks_at_gradients(node: &Node) -> bool {
    node.phase == Phase::Update && matches!(node.op, Op::NotFinite | Op::Reduce { .. })
}

/// Stores the forward results that the backward half reads as `precision` says and, with `gradients`, in its 16 bits the
/// gradients that wait for the norm of all gradients or for a loss scale. Each reader gets its own widened copy,
/// so that only the packed copy is alive between readers. Values that the host may read after the step,
/// statistics, integers and small tensors are unchanged. Of what may be in 8 or 4 bits, the share `coded` is.
pub(crate) fn store_activations(
    mut graph: Graph,
    precision: Precision,
    coded: f64,
    gradients: bool,
) -> Graph {
    let (Some(dtype), codes) = (precision.storage(), precision.codes()) else { return graph };
    let nodes = std::mem::take(&mut graph.nodes);
    let coded = if codes.is_some() { coded } else { 0.0 };
    let packs = Packs::of(&graph, &nodes, coded, gradients);
    let mut rewrite = Rewrite {
        graph,
        packs,
        dtype,
        codes,
        draws: BTreeMap::new(),
        packed: BTreeMap::new(),
        copies: BTreeMap::new(),
    };
    let mut rewritten = Vec::with_capacity(nodes.len());
    for (i, mut node) in nodes.into_iter().enumerate() {
        for root in rewrite.packs.before.remove(&i).unwrap_or_default() {
            rewrite.pack(root, &mut rewritten);
        }
        if node.op == Op::NotFinite {
            // It knows what was beyond the range of 16 bits, so that no gradient waits for it in 32 bits.
            for id in &mut node.inputs {
                *id = rewrite.packed.get(&rewrite.packs.root[id.index()]).copied().unwrap_or(*id);
            }
        }
        if !matches!(node.op, Op::Reshape(_)) {
            rewrite.widen(&mut node, &mut rewritten);
        } else if rewrite.packs.comes_late(&node, node.inputs[0]) {
            // Readers of the view get a view of a widened copy.
            continue;
        }
        rewritten.push(node);
    }
    rewrite.graph.nodes = rewritten;
    rewrite.graph
}

/// Which values are packed, and where.
struct Packs {
    /// For each value, the value that owns its memory.
    root: Vec<ValueId>,
    /// Whether the value is packed; only for values that are not views.
    packed: Vec<bool>,
    /// Whether all readers read the packed value, those in the forward pass included.
    consistent: Vec<bool>,
    /// Whether the value is packed in 8 or 4 bits.
    coded: Vec<bool>,
    /// The phase that computes the value.
    made: Vec<Phase>,
    /// Values that are packed right before a node. The node is the last one that reads them before the wait,
    /// and may overwrite them.
    before: BTreeMap<usize, Vec<ValueId>>,
}

impl Packs {
    fn of(graph: &Graph, nodes: &[Node], coded: f64, gradients: bool) -> Self {
        let count = graph.values.len();
        let mut made = vec![Phase::Forward; count];
        // Gradients that are read before the updates. Others are consumed as soon as they are computed.
        let mut looked_at = vec![false; count];
        let mut root: Vec<ValueId> = ValueId::all(count).collect();
        let mut fits = vec![false; count];
        let mut needed = vec![false; count];
        let mut place = vec![0; count];
        for (i, node) in nodes.iter().enumerate() {
            if graph.is_view(node) {
                root[node.outputs[0].index()] = root[node.inputs[0].index()];
                continue;
            }
            for id in &node.inputs {
                let root = root[id.index()].index();
                if late(node, made[root]) {
                    needed[root] = true;
                } else if needed[root] {
                    // Read again when the parts of a batch are concatenated for the host: stays in 32 bits.
                    fits[root] = false;
                } else {
                    // The check for infinities reads the packed value.
                    if node.op != Op::NotFinite {
                        place[root] = i;
                    }
                    looked_at[root] |= looks_at_gradients(node);
                }
            }
            if node.phase == Phase::Backward {
                for (position, id) in node.outputs.iter().enumerate() {
                    let value = graph.value(*id);
                    // A rank's share is rounded where the whole would be.
                    let whole = value.part_of.map_or(value.shape, |part| part.whole);
                    made[id.index()] = Phase::Backward;
                    fits[id.index()] = gradients
                        && value.dtype == DType::F32
                        && value.class == Class::Gradient
                        // Those of small parameters stay in 32 bits, in which their updates are fused.
                        && !is_small_vector(whole)
                        && whole.numel() >= SMALLEST_HALF_GRADIENT
                        && position == 0;
                    place[id.index()] = i + 1;
                }
            }
            if node.phase == Phase::Forward {
                for (position, id) in node.outputs.iter().enumerate() {
                    let value = graph.value(*id);
                    fits[id.index()] = value.dtype == DType::F32
                        && value.class == Class::Activation
                        && value.shape.numel() >= SMALLEST_HALF
                        && !is_statistic(&node.op)
                        // A loss per row, and the logarithm of its sum of exponentials.
                        && !matches!(node.op, Op::CrossEntropy)
                        && position == 0;
                    // Applies if no node of the forward half reads it.
                    place[id.index()] = i + 1;
                }
            }
        }
        graph.outputs.iter().for_each(|(_, id)| fits[root[id.index()].index()] = false);
        let kept = strictest(graph, nodes, &root, Op::kept);
        (0..count).filter(|&i| kept[i] == Kept::Exact).for_each(|i| fits[i] = false);
        let waits = |i: usize| needed[i] && (made[i] == Phase::Forward || looked_at[i]);
        let packed: Vec<bool> = (0..count).map(|i| fits[i] && waits(i)).collect();
        let refused = strictest(graph, nodes, &root, |op, i| !op.takes_codes(i));
        let may = |i: &usize| packed[*i] && !refused[*i] && made[*i] == Phase::Forward;
        let coded = share_of(graph, nodes, (0..count).filter(may).collect(), coded);
        let consistent: Vec<bool> = (0..count)
            .map(|i| packed[i] && !coded[i] && kept[i] == Kept::Consistent && made[i] == Phase::Forward)
            .collect();
        for (i, node) in nodes.iter().enumerate() {
            node.outputs.iter().filter(|id| consistent[id.index()]).for_each(|id| place[id.index()] = i + 1);
        }
        let mut before: BTreeMap<usize, Vec<ValueId>> = BTreeMap::new();
        for id in ValueId::all(count).filter(|id| packed[id.index()]) {
            before.entry(place[id.index()]).or_default().push(id);
        }
        Self { root, packed, consistent, coded, made, before }
    }

    /// Whether a node reads the packed form of a value.
    fn comes_late(&self, node: &Node, id: ValueId) -> bool {
        let root = self.root.get(id.index()).map(|root| root.index());
        root.is_some_and(|root| self.packed[root] && (self.consistent[root] || late(node, self.made[root])))
    }
}

/// Flops that take as long as a byte of memory traffic, about as on GPUs.
const FLOPS_OF_BYTE: f64 = 60.0;

/// Selects the share `coded` of values, in bytes: those that are computed in the least time for a byte first. What is in 16 bits for
/// the forward pass as well can be recomputed from, so the results that take long to compute are in codes last.
fn share_of(graph: &Graph, nodes: &[Node], mut values: Vec<usize>, coded: f64) -> Vec<bool> {
    let mut time = vec![0.0; graph.values.len()];
    for node in nodes.iter().filter(|node| !graph.is_view(node)) {
        let cost = graph.cost(node);
        let traffic = cost.bytes as f64 + cost.flops as f64 / FLOPS_OF_BYTE;
        node.outputs.iter().for_each(|id| time[id.index()] = traffic / graph.value(*id).bytes() as f64);
    }
    // Of equals, those of the first operations, which wait longest.
    values.sort_by(|&a, &b| time[a].total_cmp(&time[b]));
    let bytes = |i: usize| graph.values[i].bytes() as f64;
    let mut room = coded * values.iter().map(|&i| bytes(i)).sum::<f64>();
    let mut chosen = vec![false; graph.values.len()];
    for i in values {
        room -= bytes(i);
        if room < 0.0 {
            break;
        }
        chosen[i] = true;
    }
    chosen
}

/// The most that any operation after the forward pass asks of each value: what `of` returns for an operand. Of what a recomputed
/// value is computed from, as much is asked as of that value.
fn strictest<T: Copy + Default + Ord>(
    graph: &Graph,
    nodes: &[Node],
    root: &[ValueId],
    of: impl Fn(&Op, usize) -> T,
) -> Vec<T> {
    let mut asked = vec![T::default(); graph.values.len()];
    for node in nodes.iter().rev().filter(|node| node.phase != Phase::Forward) {
        let again = node.outputs.iter().filter(|id| graph.value(**id).again);
        let result = again.map(|id| asked[root[id.index()].index()]).max().unwrap_or_default();
        for (i, id) in node.inputs.iter().enumerate() {
            let one = &mut asked[root[id.index()].index()];
            *one = (*one).max(of(&node.op, i)).max(result);
        }
    }
    asked
}

/// Whether a node reads a value, computed in phase `made`, after the wait.
fn late(node: &Node, made: Phase) -> bool {
    match made {
        Phase::Forward => node.phase != Phase::Forward,
        _ => node.phase == Phase::Update && !looks_at_gradients(node),
    }
}

struct Rewrite {
    graph: Graph,
    packs: Packs,
    dtype: DType,
    codes: Option<DType>,
    /// Number of values in codes of each part of the batch.
    draws: BTreeMap<u32, u32>,
    packed: BTreeMap<ValueId, ValueId>,
    /// Number of widened copies of each value.
    copies: BTreeMap<ValueId, usize>,
}

impl Rewrite {
    fn pack(&mut self, root: ValueId, rewritten: &mut Vec<Node>) {
        let codes = self.codes.filter(|_| self.packs.coded[root.index()]);
        let dtype = codes.unwrap_or(self.dtype);
        let rows_of = self.graph.value(root).rows_of;
        let packed = self.graph.derive(root, dtype.name(), |value| {
            (value.dtype, value.rows_of) = (dtype, rows_of);
        });
        self.packed.insert(root, packed);
        let layer = Graph::layer_of(rewritten.iter(), root);
        let phase = self.packs.made[root.index()];
        let op = codes.map_or(Op::Cast(dtype), |dtype| Op::Quantise { dtype, key: self.draw(root) });
        let mut node = Node::inserted(op, root, packed, layer, phase);
        if codes.is_some() {
            node.inputs.push(self.graph.step_scalars());
        }
        rewritten.push(node);
    }

    /// The key of a value's random numbers: the same for each part of a batch, whichever rank computes it.
    fn draw(&mut self, root: ValueId) -> u32 {
        let part = self.graph.value(root).part;
        let number = self.draws.entry(part).or_insert(0);
        *number += 1;
        QUANTISED | part << 16 | *number
    }

    /// Replaces operands that are packed by then with widened copies, created right before the node.
    fn widen(&mut self, node: &mut Node, rewritten: &mut Vec<Node>) {
        let mut wide: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let late: Vec<bool> = node.inputs.iter().map(|id| self.packs.comes_late(node, *id)).collect();
        let (layer, phase) = (Arc::clone(&node.layer), node.phase);
        for (input, _) in node.inputs.iter_mut().zip(late).filter(|(_, late)| *late) {
            let root = self.packs.root[input.index()];
            let copy = match wide.get(&root) {
                Some(copy) => *copy,
                None => {
                    let copy = self.copy_of(root, (&layer, phase), rewritten);
                    wide.insert(root, copy);
                    copy
                }
            };
            let shape = self.graph.value(*input).shape;
            *input = if shape == self.graph.value(root).shape {
                copy
            } else {
                let view = self.graph.derive(copy, "view", |value| value.shape = shape);
                rewritten.push(Node::inserted(Op::Reshape(shape), copy, view, Arc::clone(&layer), phase));
                view
            };
        }
    }

    fn copy_of(
        &mut self,
        root: ValueId,
        (layer, phase): (&Arc<str>, Phase),
        rewritten: &mut Vec<Node>,
    ) -> ValueId {
        let copies = self.copies.entry(root).or_insert(0);
        *copies += 1;
        let suffix = if *copies == 1 { "f32".to_owned() } else { format!("f32.{copies}") };
        let copy = self.graph.derive(root, &suffix, |_| {});
        let op = Op::Cast(DType::F32);
        rewritten.push(Node::inserted(op, self.packed[&root], copy, Arc::clone(layer), phase));
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::differentiated;
    use super::*;
    use crate::autodiff::differentiate;
    use crate::graph::{Init, Mode, Params, Trace};
    use crate::optim::{Clip, Optimizer};

    /// `tanh` is read by its own gradient and, through a view, by the gradient of the product after it.
    fn graph(n: usize) -> Graph {
        let params = Params::new(0);
        let w = params.add("w", [n, 64], Init::Constant(0.5));
        let v = params.add("v", [n * 4, 16], Init::Constant(0.5));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let x = trace.param(&w).tanh();
            x.reshape([n * 4, 16]).mul(&trace.param(&v)).sum(&[])
        });
        differentiated(graph.expect("valid"))
    }

    #[test]
    fn saved_activations_are_packed_once_and_widened_for_each_reader() {
        let graph = store_activations(graph(16), Precision::F16, 0.0, false);
        let casts: Vec<_> = graph.nodes.iter().filter(|n| matches!(n.op, Op::Cast(_))).collect();
        assert_eq!(casts.len(), 3, "one there, one back for each of its readers");
        assert_eq!(graph.value(casts[0].outputs[0]).bytes(), 16 * 64 * 2);
        assert_eq!((casts[0].phase, casts[1].phase), (Phase::Forward, Phase::Backward));
        let tanh = graph.nodes.iter().position(|n| n.op.name() == "tanh").expect("it is there");
        let x = graph.nodes[tanh].outputs[0];
        let late = |n: &&Node| n.phase != Phase::Forward && n.inputs.contains(&x);
        assert!(!graph.nodes.iter().any(|n| late(&n)), "the backward half reads the widened copy");
    }

    #[test]
    fn gradients_are_packed_to_16_bits_only_for_clipping_by_norm() {
        let (params, mut trained) = (Params::new(0), Vec::new());
        for clip in [Clip::Off, Clip::Norm(1.0)] {
            let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
                let w =
                    trace.param(&params.add(&format!("w{}", trained.len()), [256, 256], Init::Constant(0.5)));
                w.tanh().square().mean(&[])
            });
            let graph = graph.expect("valid");
            let loss = graph.outputs[0].1;
            let (trace, gradients) = differentiate(graph, loss).expect("a scalar");
            Optimizer::default().append(&trace, gradients, clip).expect("valid");
            let graph = store_activations(trace.finish().expect("valid"), Precision::Bf16, 0.0, true);
            let packed =
                |node: &&Node| matches!(node.op, Op::Cast(DType::BF16)) && node.phase == Phase::Backward;
            trained.push(graph.nodes.iter().filter(packed).count());
            let norm = graph.nodes.iter().find(|n| looks_at_gradients(n));
            assert!(norm.is_none_or(|norm| graph.value(norm.inputs[0]).dtype == DType::F32), "it is exact");
        }
        assert_eq!(trained, [0, 1]);
    }

    #[test]
    fn small_tensors_are_not_packed() {
        let before = graph(15);
        assert_eq!(
            store_activations(before.clone(), Precision::Bf16, 0.0, false).nodes.len(),
            before.nodes.len()
        );
    }
    #[test]
    fn a_share_in_codes_has_the_results_that_are_quick_to_compute() {
        let params = Params::new(0);
        let [w, v] = ["w", "v"].map(|name| params.add(name, [64, 64], Init::Constant(0.5)));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let hidden = trace.param(&w).matmul(&trace.param(&v)).gelu();
            hidden.matmul(&trace.param(&v)).tanh().sum(&[])
        });
        let graph = differentiated(graph.expect("valid"));
        let coded = |share: f64| {
            let stored = store_activations(graph.clone(), Precision::Int4, share, false);
            let codes = stored.nodes.iter().filter(|node| matches!(node.op, Op::Quantise { .. }));
            let makers = codes.map(|node| {
                let of = stored.nodes.iter().find(|maker| maker.outputs.contains(&node.inputs[0]));
                of.expect("a result").op.name()
            });
            makers.collect::<Vec<_>>()
        };
        assert_eq!(coded(1.0), ["matmul", "gelu", "tanh"]);
        assert_eq!(coded(0.9), ["gelu", "tanh"]);
        assert_eq!(coded(0.4), ["gelu"]);
        assert_eq!(coded(0.0), [""; 0]);
        let half = store_activations(graph.clone(), Precision::Int4, 0.0, false);
        let wanted = store_activations(graph, Precision::Bf16, 1.0, false);
        assert_eq!(format!("{:?}", half.nodes), format!("{:?}", wanted.nodes), "without codes it is bf16");
    }
}
