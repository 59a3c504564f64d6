//! Reverse-mode differentiation as a graph rewrite: the backward pass is appended to the forward graph.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use crate::dtype::WeightStorage;
use crate::error::{Error, Result};
use crate::graph::{
    Class, GradientOf, Graph, LOSS_SCALE, LossScale, Mode, Node, Op, OwnGradient, Param, Phase, Share,
    Tensor, Trace, Value, ValueId,
};
use crate::shape::Shape;

/// The gradient of a scalar with respect to each parameter that it depends on.
#[derive(Default)]
pub struct Gradients {
    /// Pairs of a parameter's value, or of one of its pieces, and its gradient, of the same shape, in the order of registration.
    pub pairs: Vec<(ValueId, Tensor)>,
    /// Of parameters that the ranks of a run update together, the elements that this rank updates. Their gradients are of
    /// these elements or of all.
    pub shares: BTreeMap<ValueId, Share>,
    /// If the gradients are scaled: the settings, and the state that holds the scale.
    pub scaled: Option<(LossScale, Tensor)>,
    /// How large parameters are stored, of which updates correct those in [`WeightStorage::Bf24`].
    pub weights: WeightStorage,
    /// The most elements of a parameter that are updated at once, a multiple of 8,192, by its name: of those with offloaded state.
    pub update_at_once: BTreeMap<String, u64>,
    /// Gradients that become outputs once they are neither scaled nor parts of a sum, by name.
    pub read: Vec<(String, Read)>,
}

/// A gradient that the host reads.
#[derive(Clone, Debug)]
pub enum Read {
    /// A value and its gradient.
    Value(ValueId, Tensor),
    /// The norm of all of [`Gradients::pairs`].
    Norm,
}

/// Appends the derivative of the scalar `loss` to `graph`. Returns the recorder, to continue with, and the
/// gradients.
///
/// # Errors
/// [`Error::Setting`] if the loss is not a scalar. A kernel of the model's own without a gradient is a mistake that
/// [`Trace::finish`] reports.
pub fn differentiate(graph: Graph, loss: ValueId) -> Result<(Trace, Gradients)> {
    differentiate_scaled(graph, loss, None, 1)
}

/// [`differentiate`], with gradients multiplied by a loss scale that the device maintains, and divided by
/// `parts`: the loss of a batch is the mean over its `parts` micro-batches.
///
/// # Errors
/// Those of [`differentiate`].
pub(crate) fn differentiate_scaled(
    mut graph: Graph,
    loss: ValueId,
    scale: Option<LossScale>,
    parts: u32,
) -> Result<(Trace, Gradients)> {
    let shape = graph.value(loss).shape;
    if shape.numel() != 1 {
        let name = &graph.value(loss).name;
        return Err(Error::setting(
            "loss",
            format!("the loss `{name}` has shape {shape}; a loss is one number, take a mean"),
        ));
    }
    let nodes = graph.nodes.clone();
    let requests = std::mem::take(&mut graph.gradient_outputs);
    let own = std::mem::take(&mut graph.own_gradients);
    let own: BTreeMap<ValueId, OwnGradient> = own.into_iter().map(|own| (own.of, own)).collect();
    let pieces = graph.pieces.clone();
    let trained = trained(&graph);
    let mut parameters: Vec<ValueId> =
        graph.ids().filter(|(id, _)| trained[id.index()]).map(|(id, _)| id).collect();
    let mut wanted = trained;
    for (_, of) in &requests {
        if let GradientOf::Value(id) = of {
            wanted[id.index()] = true;
        }
    }
    let wanted = with_dependents(&graph, wanted, &own);
    parameters.sort_by_key(|id| {
        let of = pieces.iter().find(|piece| piece.rows == *id).map_or(*id, |piece| piece.of);
        let name = &graph.value(of).name;
        graph.parameters.iter().position(|p| p.name() == name)
    });

    let trace = Trace::over(graph, Mode::Train);
    let mut gradients: BTreeMap<ValueId, Tensor> = BTreeMap::new();
    let scaled = scale.map(|scale| (scale, trace.state(LOSS_SCALE, Shape::from([4]))));
    let add = |gradients: &mut BTreeMap<ValueId, Tensor>, node: &Node, id: ValueId, dx: Tensor| {
        let sum = match gradients.remove(&id) {
            Some(earlier) => trace.layer(&node.layer, || earlier.add(&dx)),
            None => dx,
        };
        gradients.insert(id, sum);
    };
    trace.phase(Phase::Backward, || {
        let seed = match &scaled {
            Some((LossScale { start, .. }, state)) => {
                let seed = state.one(Op::LossScaleSeed { start: *start }, &[state], Location::caller());
                let seed = if parts > 1 { seed.scale(1.0 / parts as f32) } else { seed };
                seed.reshape(shape)
            }
            None => trace.tensor(loss).fill_like(shape, 1.0 / parts as f32),
        };
        gradients.insert(loss, seed);
        for node in nodes.iter().rev() {
            let dys: Vec<Option<Tensor>> = node.outputs.iter().map(|id| gradients.get(id).cloned()).collect();
            if let ([id], [Some(dy)]) = (&node.outputs[..], &dys[..])
                && let Some(own) = own.get(id)
            {
                let dxs = trace.layer(&node.layer, || own.record(&trace, dy));
                for (id, dx) in own.operands.iter().zip(dxs).filter(|(id, _)| wanted[id.index()]) {
                    add(&mut gradients, node, *id, dx);
                }
                continue;
            }
            if dys.iter().all(Option::is_none) || !node.inputs.iter().any(|id| wanted[id.index()]) {
                continue;
            }
            let wants: Vec<bool> = node.inputs.iter().map(|id| wanted[id.index()]).collect();
            let inputs: Vec<Tensor> = node.inputs.iter().map(|id| trace.tensor(*id)).collect();
            let outputs: Vec<Tensor> = node.outputs.iter().map(|id| trace.tensor(*id)).collect();
            let training = has_batch_stats(&nodes, node);
            let earlier = rules::adds_onto(&node.op).and_then(|i| gradients.remove(&node.inputs[i]));
            let site = rules::Site {
                inputs: &inputs,
                outputs: &outputs,
                dys: &dys,
                wants: &wants,
                training,
                earlier,
            };
            let dxs = trace.layer(&node.layer, || trace.called_at(node.at, || rules::vjp(&node.op, &site)));
            for (id, dx) in node.inputs.iter().zip(dxs) {
                if let Some(dx) = dx {
                    add(&mut gradients, node, *id, dx);
                }
            }
        }
    });
    let read = requests.into_iter().map(|(name, of)| match of {
        GradientOf::Norm => (name, Read::Norm),
        GradientOf::Value(id) => {
            let zeros = || {
                let value = trace.tensor(id);
                trace.phase(Phase::Backward, || value.fill_like(value.shape(), 0.0))
            };
            (name, Read::Value(id, gradients.get(&id).cloned().unwrap_or_else(zeros)))
        }
    });
    let read = read.collect();
    let pairs = parameters
        .into_iter()
        .filter_map(|id| {
            let gradient = gradients.remove(&id)?;
            let name = format!("{}.grad", trace.name_of(id));
            Some((id, gradient.named(&name)))
        })
        .collect();
    Ok((trace, Gradients { pairs, scaled, read, ..Gradients::default() }))
}

/// Whether a batch norm's statistics come from its own batch. The rule then includes the gradient through the
/// statistics, so that none is propagated to the statistics themselves.
fn has_batch_stats(nodes: &[Node], norm: &Node) -> bool {
    let own = |n: &Node| n.inputs[0] == norm.inputs[0] && n.outputs[..2] == norm.inputs[1..3];
    matches!(norm.op, Op::BatchNorm(_))
        && nodes.iter().any(|n| matches!(n.op, Op::BatchStats { .. }) && own(n))
}

/// Returns for each value whether it is a trained parameter, or rows of one that is in pieces.
fn trained(graph: &Graph) -> Vec<bool> {
    let fixed: BTreeSet<&str> =
        graph.parameters.iter().filter(|param| !param.trained()).map(Param::name).collect();
    let trained = |value: &Value| value.class == Class::Parameter && !fixed.contains(value.name.as_str());
    let mut trained: Vec<bool> = graph.values.iter().map(trained).collect();
    for piece in &graph.pieces {
        trained[piece.rows.index()] = trained[piece.of.index()];
    }
    graph.pieces.iter().for_each(|piece| trained[piece.of.index()] = false);
    trained
}

/// Returns for each value whether it is one of `depends` or computed from one by operations with a gradient.
fn with_dependents(graph: &Graph, mut depends: Vec<bool>, own: &BTreeMap<ValueId, OwnGradient>) -> Vec<bool> {
    for node in &graph.nodes {
        let own = node.outputs.first().and_then(|id| own.get(id));
        if own.map_or(&node.inputs, |own| &own.operands).iter().any(|id| depends[id.index()]) {
            for id in &node.outputs {
                depends[id.index()] = true;
            }
        }
    }
    depends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Init, Params, Unary};

    #[test]
    fn gradients_are_scaled_only_by_the_number_of_parts() {
        let params = Params::new(0);
        let w = params.add("w", [3], Init::Constant(0.5));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| trace.param(&w).sum(&[]));
        let graph = graph.expect("valid");
        let factors = |scale: Option<LossScale>, parts: u32| -> Vec<f32> {
            let loss = graph.outputs[0].1;
            let (trace, _) = differentiate_scaled(graph.clone(), loss, scale, parts).expect("a scalar");
            let graph = trace.finish().expect("valid");
            let factor = |node: &Node| match node.op {
                Op::Unary(Unary::Scale(factor)) | Op::Fill { value: factor, .. } => Some(factor),
                _ => None,
            };
            graph.nodes.iter().filter_map(factor).collect()
        };
        // Without a loss scale the first gradient is a `Fill`.
        assert_eq!([factors(None, 1), factors(None, 4)], [[1.0], [0.25]]);
        let scale = Some(LossScale::default());
        assert_eq!((factors(scale, 1), factors(scale, 4)), (vec![], vec![0.25]));
    }
}
