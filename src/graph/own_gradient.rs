//! Gradients of a model's own, in place of those that the rules derive.

use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;

use super::{Class, Mode, Node, Op, Phase, Tensor, Trace, Value, ValueId};
use crate::dtype::DType;

/// A backward pass that a model recorded for one of its values ([`Tensor::with_gradient`]).
///
/// It is recorded once, while the model is traced, and kept beside the graph as plain nodes, not as a closure:
/// graphs stay values that can be cloned, sent and compared, its mistakes are reported with the model's others,
/// and each plan (micro-batches, recomputation, the baseline) differentiates the same operations. Its values
/// belong to the graph, but nothing computes them until differentiation records the nodes again, with the
/// gradient in place of `dy`.
#[derive(Clone, Debug)]
pub(crate) struct OwnGradient {
    /// The result of the [`Op::Detach`] whose gradient this is.
    pub(crate) of: ValueId,
    pub(crate) operands: Vec<ValueId>,
    /// Stands for the gradient of `of`.
    dy: ValueId,
    nodes: Vec<Node>,
    /// The gradients of the operands.
    results: Vec<ValueId>,
}

impl OwnGradient {
    /// Returns the values of the forward pass that it reads, and its operands.
    pub(crate) fn reads(&self) -> impl Iterator<Item = ValueId> {
        self.nodes.iter().flat_map(|node| &node.inputs).chain(&self.operands).copied()
    }

    /// Records the backward pass for the gradient `dy`; returns the gradients of the operands.
    pub(crate) fn record(&self, trace: &Trace, dy: &Tensor) -> Vec<Tensor> {
        let mut now = BTreeMap::from([(self.dy, dy.clone())]);
        let at = |now: &BTreeMap<ValueId, Tensor>, id: &ValueId| {
            now.get(id).cloned().unwrap_or_else(|| trace.tensor(*id))
        };
        for node in &self.nodes {
            let inputs: Vec<Tensor> = node.inputs.iter().map(|id| at(&now, id)).collect();
            let results = trace.emit(node.op.clone(), &inputs.iter().collect::<Vec<_>>(), node.at);
            now.extend(node.outputs.iter().copied().zip(results));
        }
        self.results.iter().map(|id| at(&now, id)).collect()
    }
}

impl Tensor {
    /// The same values, whose gradient is what `backward` makes of it: `torch.autograd.Function`. `self` is the
    /// result of the forward pass, from any operations; `backward` gets the gradient `dy`, of the shape of
    /// `self`, and returns the gradients of `operands`, each of its operand's shape. It may read any tensor of
    /// the trace: those are saved for the backward pass, or recomputed, as others are. Nothing else that
    /// `self` was computed from gets a gradient through it.
    ///
    /// `backward` runs once, when the step is traced; a forward pass does not run it.
    ///
    /// ```
    /// use wgrad::compile::TrainStep;
    /// use wgrad::graph::{Init, Params};
    ///
    /// let params = Params::new(0);
    /// let w = params.add("w", [8], Init::Normal(1.0));
    /// let step = TrainStep::trace(&params, |trace| {
    ///     let w = trace.param(&w);
    ///     // Rounded forward, as if it were not backward: a straight-through estimator.
    ///     let rounded = w.round().with_gradient([&w], |dy| [dy.clone()]);
    ///     // x · sigmoid(1.7 x), with its gradient from the sigmoid alone, which is all that is saved beside x.
    ///     let s = rounded.scale(1.7).sigmoid();
    ///     let y = (&rounded * &s).with_gradient([&rounded], |dy| {
    ///         [dy * (&s + 1.7 * &rounded * &s * (1.0 - &s))]
    ///     });
    ///     y.square().mean(&[])
    /// })?;
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Mistakes
    /// A gradient of another shape than its operand's; an output declared in `backward`; a tensor of `backward`
    /// used outside of it.
    #[track_caller]
    #[must_use]
    pub fn with_gradient<const N: usize>(
        &self,
        operands: [&Tensor; N],
        backward: impl FnOnce(&Tensor) -> [Tensor; N],
    ) -> Tensor {
        let (trace, at) = (&self.trace, Location::caller());
        if trace.mode() == Mode::Eval {
            return self.clone();
        }
        let result = self.one(Op::Detach, &[self], at);
        let (Some(of), Some(ids)) = (result.id, operands.iter().map(|x| x.id).collect::<Option<Vec<_>>>())
        else {
            return result;
        };
        if let Some(x) = operands.iter().find(|x| !Rc::ptr_eq(&x.trace.state, &trace.state)) {
            trace.complain(format!("with_gradient: an operand {} belongs to another trace", x.shape), at);
            return result;
        }
        let (start, first, outputs, name) = {
            let state = trace.state.borrow();
            let graph = &state.graph;
            let outputs = (graph.outputs.len(), graph.gradient_outputs.len());
            (graph.nodes.len(), graph.values.len(), outputs, graph.value(of).name.clone())
        };
        let dy = Value::new(format!("{name}.grad"), self.shape, DType::F32, Class::Gradient);
        let dy = trace.state.borrow_mut().graph.add_value(dy);
        let gradients = trace.phase(Phase::Backward, || {
            let gradients = trace.called_at(at, || backward(&trace.tensor(dy)));
            // The update of a parameter would change a gradient in the same memory.
            let lasting = |id: ValueId| trace.state.borrow().is_parameter(id);
            gradients.map(|g| if g.id.is_some_and(lasting) { g.one(Op::Copy, &[&g], at) } else { g })
        });
        for (i, (gradient, operand)) in gradients.iter().zip(operands).enumerate() {
            let ours = Rc::ptr_eq(&gradient.trace.state, &trace.state);
            if !ours || gradient.shape != operand.shape || gradient.dtype != DType::F32 {
                let (is, wanted) = (gradient.shape, operand.shape);
                let is =
                    if ours { format!("{} {is}", gradient.dtype) } else { "of another trace".to_owned() };
                trace.complain(format!("with_gradient: operand {i} is {wanted}, its gradient is {is}"), at);
                return result;
            }
        }
        let mut state = trace.state.borrow_mut();
        let nodes = state.graph.nodes.split_off(start);
        let inner = nodes.iter().flat_map(|node| &node.outputs).copied().chain([dy]);
        // Inputs that the closure declared are inputs of the step.
        let inner: Vec<ValueId> = inner.filter(|id| id.index() >= first).collect();
        state.inner.extend(inner);
        let graph = &mut state.graph;
        let declared = graph.outputs.len() > outputs.0 || graph.gradient_outputs.len() > outputs.1;
        graph.outputs.truncate(outputs.0);
        graph.gradient_outputs.truncate(outputs.1);
        let results: Option<Vec<ValueId>> = gradients.iter().map(|g| g.id).collect();
        if let Some(results) = results {
            graph.own_gradients.push(OwnGradient { of, operands: ids, dy, nodes, results });
        }
        drop(state);
        if declared {
            let message = "with_gradient: outputs cannot be declared in a backward pass; `Trace::output_gradient` makes outputs of \
                           gradients";
            trace.complain(message.to_owned(), at);
        }
        result
    }
}
