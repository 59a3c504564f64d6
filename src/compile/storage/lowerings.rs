//! Lowers nodes to dispatches. A step repeats few operations with operands of equal types: each is lowered once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::rc::Rc;

use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Class, Graph, Node, Op};
use crate::kernels::{self, Lowered};
use crate::limits::{Job, Limits};
use crate::shape::Shape;

/// Shape and element type of an operand or result.
pub(super) type Type = (Shape, DType);

/// Lowers the nodes of a graph within limits that control how kernels round operands: of gradients and of everything else.
pub(super) struct Lowerings {
    gradients: Lowering,
    others: Lowering,
}

impl Lowerings {
    /// Without a loss scale, small gradients would underflow in `f16`. A recomputed value is an activation
    /// and is rounded as in the forward pass.
    pub(super) fn new(graph: &Graph, limits: &Limits) -> Self {
        let scaled = graph.nodes.iter().any(|node| matches!(node.op, Op::LossScaleSeed { .. }));
        let cooperative = limits.kernels.cooperative.filter(|_| scaled);
        let gradients = limits.choosing(|kernels| kernels.cooperative = cooperative);
        let [gradients, others] =
            [gradients, limits.clone()].map(|limits| Lowering { limits, known: HashMap::new() });
        Self { gradients, others }
    }

    pub(super) fn of_node(&mut self, graph: &Graph, node: &Node) -> &mut Lowering {
        let gradient = node.outputs.first().is_some_and(|id| graph.value(*id).class == Class::Gradient);
        if gradient { &mut self.gradients } else { &mut self.others }
    }
}

/// Lowers nodes within the same limits.
pub(super) struct Lowering {
    limits: Limits,
    /// By a hash of the kind of operation and of what it is lowered for.
    known: HashMap<u64, Vec<Known>>,
}

/// A lowered operation.
struct Known {
    op: Op,
    types: [Vec<Type>; 2],
    in_place: Option<usize>,
    lowered: Rc<Lowered>,
}

impl Lowering {
    /// Lowers a node with operands and results of these types.
    ///
    /// # Errors
    /// As [`kernels::lower`].
    pub(super) fn lower(
        &mut self,
        node: &Node,
        types: &[Vec<Type>; 2],
        in_place: Option<usize>,
    ) -> Result<Rc<Lowered>> {
        let mut hasher = DefaultHasher::new();
        (discriminant(&node.op), types, in_place).hash(&mut hasher);
        let alike = self.known.entry(hasher.finish()).or_default();
        let same =
            |known: &&Known| known.op == node.op && known.types == *types && known.in_place == in_place;
        if let Some(known) = alike.iter().find(same) {
            return Ok(Rc::clone(&known.lowered));
        }
        let lowered = Rc::new(kernels::lower(&site(node, types, in_place, &self.limits))?);
        let (op, types, known) = (node.op.clone(), types.clone(), Rc::clone(&lowered));
        alike.push(Known { op, types, in_place, lowered: known });
        Ok(lowered)
    }

    /// The work of each dispatch of a node.
    ///
    /// # Errors
    /// As [`kernels::lower`].
    pub(super) fn jobs(
        &mut self,
        node: &Node,
        types: &[Vec<Type>; 2],
        in_place: Option<usize>,
    ) -> Result<Vec<Job>> {
        let lowered = self.lower(node, types, in_place)?;
        Ok(kernels::jobs(&site(node, types, in_place, &self.limits), &lowered))
    }
}

fn site<'a>(
    node: &'a Node,
    [inputs, outputs]: &'a [Vec<Type>; 2],
    in_place: Option<usize>,
    limits: &'a Limits,
) -> kernels::Site<'a> {
    kernels::Site { op: &node.op, inputs, outputs, in_place, limits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Mode, Params, Trace};

    #[test]
    fn equal_operations_are_lowered_once() {
        let params = Params::new(0);
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let x = trace.input("x", [8, 32]);
            let [first, second] = [x.tanh(), x.tanh()];
            first.add(&second).add(&x.exp()).sum(&[1]).sum(&[])
        });
        let (graph, limits) = (graph.expect("valid"), Limits::default());
        let mut lowerings = Lowerings::new(&graph, &limits);
        let mut lower = |n: usize, in_place| {
            let node = &graph.nodes[n];
            lowerings.of_node(&graph, node).lower(node, &graph.types(node), in_place).expect("lowered")
        };
        let of = |name: &str| {
            let named = |(n, node): (usize, &Node)| (node.op.name() == name).then_some(n);
            graph.nodes.iter().enumerate().filter_map(named).collect::<Vec<_>>()
        };
        let (tanh, exp, sum) = (of("tanh"), of("exp")[0], of("sum"));
        let first = lower(tanh[0], None);
        assert!(Rc::ptr_eq(&first, &lower(tanh[1], None)));
        for other in [lower(exp, None), lower(tanh[0], Some(0))] {
            assert!(!Rc::ptr_eq(&first, &other));
            assert_ne!(first, other);
        }
        assert!(!Rc::ptr_eq(&lower(sum[0], None), &lower(sum[1], None)), "of other shapes");
    }
}
