//! Lets operations read operands of fewer bits directly, instead of widened copies.

use std::collections::BTreeMap;

use super::eliminate_dead_code;
use crate::dtype::DType;
use crate::graph::{Graph, Op, ValueId};
use crate::kernels;

/// Lets products and sums of squares, and with `others` every operation that [widens](Op::widens) what it reads, read the
/// 16-bit source of widened copies, through views too. Copies without other readers are removed.
pub(crate) fn fold_upcasts(mut graph: Graph, others: bool) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    // Widened copies and their views, mapped to their 16-bit source.
    let mut of: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    // Views of 16-bit sources, by source and shape.
    let mut views: BTreeMap<(ValueId, Vec<usize>), ValueId> = BTreeMap::new();
    let mut rewritten = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        match (&node.op, &node.inputs[..]) {
            (Op::Cast(DType::F32), [from]) if graph.value(*from).dtype.is_packed() => {
                of.insert(node.outputs[0], *from);
            }
            (Op::Reshape(_), [from]) => {
                if let Some(packed) = of.get(from) {
                    of.insert(node.outputs[0], *packed);
                }
            }
            (op, _) if others || matches!(op, Op::MatMul { .. } | Op::Reduce { .. }) => {
                let own: Vec<usize> = (0..node.inputs.len()).filter(|i| op.widens(*i)).collect();
                for i in own {
                    let Some(&packed) = of.get(&node.inputs[i]) else { continue };
                    let dtype = graph.value(packed).dtype;
                    if dtype.is_quantised() && !node.op.reads_codes(i, dtype) {
                        continue;
                    }
                    let [first, held] = [node.inputs[0], packed].map(|id| graph.value(id).dtype);
                    if matches!(node.op, Op::Update { .. }) && !kernels::updates_by(first, held) {
                        continue;
                    }
                    let shape = graph.value(node.inputs[i]).shape;
                    node.inputs[i] = if graph.value(packed).shape == shape {
                        packed
                    } else {
                        let known = views.entry((packed, shape.dims().to_vec()));
                        *known.or_insert_with(|| {
                            let suffix = format!("view{}", graph.values.len());
                            let view = graph.derive(packed, &suffix, |value| value.shape = shape);
                            rewritten.push(node.sibling(Op::Reshape(shape), vec![packed], vec![view]));
                            view
                        })
                    };
                }
            }
            _ => {}
        }
        rewritten.push(node);
    }
    graph.nodes = rewritten;
    eliminate_dead_code(graph)
}

#[cfg(test)]
mod tests {
    use super::super::store_weights_half;
    use super::super::tests::differentiated;
    use super::*;
    use crate::dtype::{Precision, Rounding, WeightStorage};
    use crate::graph::{Class, Init, Mode, Node, Params, Tensor, Trace, Window};

    fn names(build: impl FnOnce(&Trace) -> Tensor) -> Vec<String> {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", build).expect("valid");
        let graph = fold_upcasts(graph, true);
        let operands = |node: &Node| {
            let types: Vec<_> = node.inputs.iter().map(|id| graph.value(*id).dtype.name()).collect();
            format!("{} {}", node.op.name(), types.join(" "))
        };
        graph.nodes.iter().map(operands).collect()
    }

    #[test]
    fn products_read_16_bit_operands_instead_of_their_upcasts() {
        let list = names(|trace| {
            let wide = trace.input("x", [2, 3, 4]).cast(DType::F16).cast(DType::F32);
            let y = wide.reshape([6, 4]).matmul(&trace.input("w", [4, 5]));
            let z = wide.reshape([6, 4]).matmul_transposed(&y, true, false);
            z.sum(&[]).add(&wide.exp().sum(&[]))
        });
        let products: Vec<_> = list.iter().filter(|name| name.starts_with("matmul")).collect();
        assert_eq!(products, ["matmul f16 f32", "matmul f16 f32"], "{list:?}");
        assert_eq!(
            list.iter().filter(|name| *name == "reshape f16").count(),
            1,
            "one view for both: {list:?}"
        );
        assert_eq!(
            list.iter().filter(|name| *name == "cast f16").count(),
            1,
            "for the exponential: {list:?}"
        );
        assert_eq!(
            list.iter().filter(|name| *name == "reshape f32").count(),
            2,
            "those of the sums alone: {list:?}"
        );
    }

    /// A view of a parameter has the parameter's bytes and is none itself: a session has no such name.
    #[test]
    fn views_of_16_bit_parameters_are_no_parameters() {
        let params = Params::new(0);
        let w = params.add("w", [32, 32], Init::Constant(0.0));
        let graph = Trace::record(&params, Mode::Train, "y", |trace| {
            trace.input("x", [1, 4, 32]).matmul(&trace.param(&w).reshape([1, 32, 32]))
        });
        let stored = store_weights_half(graph.expect("valid"), WeightStorage::Bf16(Rounding::Nearest));
        let graph = fold_upcasts(stored, true);
        let names: Vec<_> = graph.nodes.iter().map(|node| node.op.name()).collect();
        assert_eq!(names, ["reshape", "matmul"]);
        let parameters: Vec<_> = graph.values.iter().filter(|v| v.class == Class::Parameter).collect();
        assert_eq!(parameters.iter().map(|v| &v.name[..]).collect::<Vec<_>>(), ["w"]);
    }

    #[test]
    fn upcast_read_only_by_products_is_removed() {
        let list = names(|trace| {
            let x = trace.input("x", [4, 4]).cast(DType::BF16);
            x.cast(DType::F32).matmul(&x.cast(DType::F32))
        });
        assert_eq!(list, ["cast f32", "matmul bf16 bf16"]);
    }

    #[test]
    fn weight_gradient_reads_the_16_bit_image() {
        let params = Params::new(0);
        let weight = |name: &str| params.add(name, [4, 4, 3, 3], Init::Constant(0.1));
        let (a, b) = (weight("a"), weight("b"));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let window = Window::square(3).padding(1);
            let x = trace.input("x", [2, 4, 12, 12]).conv2d(&trace.param(&a), None, window, 1).tanh();
            x.conv2d(&trace.param(&b), None, window, 1).sum(&[])
        });
        let half = super::super::store_activations(
            differentiated(graph.expect("valid")),
            Precision::F16,
            0.0,
            false,
        );
        let casts = |graph: &Graph| graph.nodes.iter().filter(|n| n.op == Op::Cast(DType::F32)).count();
        let narrow = |graph: &Graph| {
            let weights = graph.nodes.iter().filter(|n| matches!(n.op, Op::Conv2dWeight { .. }));
            weights.filter(|n| graph.value(n.inputs[0]).dtype == DType::F16).count()
        };
        let [wide, read] = [false, true].map(|images| fold_upcasts(half.clone(), images));
        // The gradient of tanh reads a copy in any case.
        assert_eq!([casts(&wide), casts(&read)], [2, 1]);
        assert_eq!([narrow(&wide), narrow(&read)], [0, 1]);
    }
}
