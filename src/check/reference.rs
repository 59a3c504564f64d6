//! Loss and gradients of a network computed without the compiler's passes: forward and backward for each
//! micro-batch as traced, in `f64`.

use std::collections::BTreeMap;

use super::dice::Dice;
use super::network::{Feed, Network};
use crate::autodiff::differentiate;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Class, Graph, IGNORE, Op, StepScalars, ValueId};
use crate::optim::Clip;
use crate::reference::Twin;
use crate::shape::Shape;

/// Numbers by name of the parameter, input or output.
pub(super) type Tensors = BTreeMap<String, Vec<f64>>;

/// A random relative change of every input and every computed number. The change in a result measures how
/// well the result is conditioned.
#[derive(Clone, Copy)]
pub(super) struct Perturbation {
    pub seed: u64,
    pub size: f64,
}

/// Loss and gradients of a step over several micro-batches.
pub(super) struct Reference {
    pub loss: f64,
    pub gradients: Tensors,
}

impl Reference {
    /// Computes loss and gradients with these parameters and step scalars.
    ///
    /// # Errors
    /// Those of differentiation.
    pub(super) fn of(
        network: &Network,
        parts: usize,
        parameters: &Tensors,
        scalars: &StepScalars,
        perturbation: Option<Perturbation>,
    ) -> Result<Self> {
        let graph = |part| part_of(network, part, parts);
        Self::of_parts(network, parts, graph, parameters, scalars, perturbation)
    }

    fn of_parts(
        network: &Network,
        parts: usize,
        graph: impl Fn(usize) -> Graph,
        parameters: &Tensors,
        scalars: &StepScalars,
        perturbation: Option<Perturbation>,
    ) -> Result<Self> {
        let mut sum = Self { loss: 0.0, gradients: Tensors::new() };
        for part in 0..parts {
            let graph = graph(part);
            let loss = graph.outputs[0].1;
            let (trace, gradients) = differentiate(graph, loss)?;
            let graph = trace.finish()?;
            let mut twin = Twin::new(&graph);
            feed(&mut twin, &graph, network, part * network.batch, network.batch, parameters, perturbation)?;
            twin.set_step(scalars);
            twin.run()?;
            let value = |id: ValueId| {
                twin.value(id).ok_or_else(|| Error::Internal(format!("`{}` is empty", graph.value(id).name)))
            };
            sum.loss += value(loss)?[0] / parts as f64;
            for (parameter, gradient) in &gradients.pairs {
                let Some(id) = gradient.id() else { continue };
                let name = &graph.value(*parameter).name;
                let own = value(id)?;
                let all = sum.gradients.entry(name.clone()).or_insert_with(|| vec![0.0; own.len()]);
                all.iter_mut().zip(own).for_each(|(all, own)| *all += own / parts as f64);
            }
        }
        Ok(sum)
    }

    /// Clips the gradients as a plan does before the update.
    pub(super) fn clipped(mut self, clip: Clip) -> Self {
        let squares = self.gradients.values().flatten().map(|g| g * g).sum::<f64>();
        let factor = |limit: f32| (f64::from(limit) / (squares.sqrt() + 1e-6)).min(1.0);
        for g in self.gradients.values_mut().flatten() {
            *g = match clip {
                Clip::Off => *g,
                Clip::Value(limit) => g.clamp(-f64::from(limit), f64::from(limit)),
                Clip::Norm(limit) => *g * factor(limit),
            };
        }
        self
    }

    /// Returns the difference between a network's gradients and the slope of its loss along a random
    /// direction, in units of the gradient's norm. Returns 0 if the loss jumps close to the evaluation point,
    /// such as with the sign of the rounding error of a sum that is 0: it has no slope there.
    ///
    /// # Errors
    /// Those of [`Reference::of`].
    pub(super) fn slope_error(network: &Network, parameters: &Tensors, scalars: &StepScalars) -> Result<f64> {
        let graph = &smooth(network.step.graph().clone());
        let own = Self::of_parts(network, 1, |_| graph.clone(), parameters, scalars, None)?;
        let length = own.gradients.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
        let length = length.max(1e-6);
        let still = forward(graph, network, parameters, scalars, None)?;
        let (mut best, mut jumps) = (f64::INFINITY, false);
        // Tries another direction and a shorter step if a kink lies between.
        for (seed, step) in (1..).zip([1e-6, 1e-7, 1e-7, 3e-8, 1e-8, 1e-8, 3e-9, 3e-9]) {
            let mut dice = Dice::new(seed);
            let direction: Tensors = own
                .gradients
                .iter()
                .map(|(name, g)| (name.clone(), g.iter().map(|_| f64::from(dice.number())).collect()))
                .collect();
            let mut losses = [0.0; 2];
            for (loss, sign) in losses.iter_mut().zip([1.0, -1.0]) {
                let mut moved = parameters.clone();
                for (name, along) in &direction {
                    let to =
                        moved.get_mut(name).ok_or_else(|| Error::Internal(format!("`{name}` is missing")))?;
                    to.iter_mut().zip(along).for_each(|(w, d)| *w += sign * step * d);
                }
                *loss = forward(graph, network, &moved, scalars, Some(&still))?.output("loss")?[0];
            }
            let along = own.gradients.iter().flat_map(|(name, g)| g.iter().zip(&direction[name]));
            let told: f64 = along.map(|(g, d)| g * d).sum();
            let noise = 1e-15 * losses[0].abs() / step;
            let error = (((losses[0] - losses[1]) / (2.0 * step) - told).abs() - noise).max(0.0);
            best = best.min(error / length);
            if best < SLOPE {
                return Ok(best);
            }
            // A kink bends the loss by no more than a few times the gradient's norm.
            let bend = (losses[0] + losses[1] - 2.0 * own.loss).abs() / (2.0 * step) - noise;
            jumps |= step <= 1e-8 && bend > 100.0 * length;
        }
        Ok(if jumps { 0.0 } else { best })
    }
}

/// Runs the forward pass; with `still`, detached values are those of that run.
fn forward<'a>(
    graph: &'a Graph,
    network: &Network,
    parameters: &Tensors,
    scalars: &StepScalars,
    still: Option<&Twin>,
) -> Result<Twin<'a>> {
    let mut twin = Twin::new(graph);
    feed(&mut twin, graph, network, 0, network.batch, parameters, None)?;
    twin.set_step(scalars);
    still.iter().for_each(|still| twin.hold_detached(still));
    twin.run()?;
    Ok(twin)
}

/// Maximum allowed slope error, in units of the gradient's norm.
pub(super) const SLOPE: f64 = 1e-3;

/// Replaces casts between floats by copies. A cast is a step function, but its gradient is that of the
/// identity.
fn smooth(mut graph: Graph) -> Graph {
    for node in &mut graph.nodes {
        let from = graph.values[node.inputs.first().map_or(0, |id| id.index())].dtype;
        if matches!(node.op, Op::Cast(to) if to != DType::U32 && from != DType::U32) {
            node.op = Op::Copy;
        }
    }
    graph
}

/// Returns the forward graph of one micro-batch, with its own random draws, and with means over the labels of
/// all micro-batches.
fn part_of(network: &Network, part: usize, parts: usize) -> Graph {
    let mut graph = network.step.graph().clone();
    let keys = graph.draw_keys();
    let named = graph.clone();
    for node in &mut graph.nodes {
        if let Some(key) = node.op.draw_key() {
            *key += part as u32 * keys;
        }
        if node.op == Op::LabelShare && parts > 1 {
            let count = counted(network, &named, node.inputs[0], parts);
            let value = parts as f32 / count.max(1) as f32;
            node.op = Op::Fill { shape: Shape::from([]), value };
            node.inputs.clear();
        }
    }
    graph
}

/// Returns the number of labels that are not [`IGNORE`], over all micro-batches, in the input that `id` is a
/// view of.
fn counted(network: &Network, graph: &Graph, mut id: ValueId, parts: usize) -> usize {
    for node in graph.nodes.iter().rev() {
        if node.outputs.contains(&id) {
            id = node.inputs[0];
        }
    }
    let value = graph.value(id);
    let all = parts * value.shape.numel() as usize;
    match &network.feeds[&value.name] {
        Feed::Indices(labels) => labels[..all].iter().filter(|label| **label != IGNORE).count(),
        Feed::Floats { .. } => 0,
    }
}

/// Sets the parameters, and the inputs to `rows` rows of the whole batch from row `first` on.
pub(super) fn feed(
    twin: &mut Twin,
    graph: &Graph,
    network: &Network,
    first: usize,
    rows: usize,
    parameters: &Tensors,
    perturbation: Option<Perturbation>,
) -> Result<()> {
    if let Some(Perturbation { seed, size }) = perturbation {
        twin.perturb(seed, size);
    }
    for (name, data) in &network.feeds {
        let Some((_, value)) = graph.inputs().find(|(_, value)| value.name == *name) else { continue };
        let count = value.shape.numel() as usize;
        // All inputs have the batch, or a multiple of it, as their first dimension.
        let start = count / rows * first;
        match data {
            Feed::Floats { numbers, .. } => {
                let own: Vec<f64> = numbers[start..start + count].iter().map(|x| f64::from(*x)).collect();
                twin.set(name, &own)?;
            }
            Feed::Indices(indices) => twin.set_u32(name, &indices[start..start + count])?,
        }
    }
    for (name, data) in parameters {
        if graph.values.iter().any(|value| value.class == Class::Parameter && value.name == *name) {
            twin.set(name, data)?;
        }
    }
    Ok(())
}
