//! Results of a plan for a network's data, on a device and on the reference.

use super::network::{Feed, Network};
use super::reference::{Perturbation, Tensors, feed};
use crate::compile::Plan;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Class, Graph, Value};
use crate::reference::Twin;

/// Everything that can be read after some steps: outputs including the loss, parameters and optimizer state.
pub(super) struct Outcome {
    pub outputs: Tensors,
    /// 16-bit outputs.
    pub halves: Tensors,
    pub parameters: Tensors,
    pub states: Tensors,
}

/// A number injected into an input or a parameter.
#[derive(Clone, Debug)]
pub(super) struct Injection {
    pub name: String,
    pub at: usize,
    pub number: f32,
}

/// Returns the persistent values that hold numbers, without eight-bit codes.
pub(super) fn states(graph: &Graph) -> impl Iterator<Item = &Value> {
    graph.values.iter().filter(|value| value.class.is_persistent() && value.dtype != DType::U32)
}

impl Outcome {
    pub(super) fn empty() -> Self {
        Self {
            outputs: Tensors::new(),
            halves: Tensors::new(),
            parameters: Tensors::new(),
            states: Tensors::new(),
        }
    }

    pub(super) fn keep(&mut self, value: &Value, data: Vec<f64>) {
        let list = match value.class {
            Class::Parameter => &mut self.parameters,
            _ => &mut self.states,
        };
        list.insert(value.name.clone(), data);
    }

    pub(super) fn read(&mut self, name: &str, dtype: DType, data: Vec<f64>) {
        let list = if dtype.is_half() { &mut self.halves } else { &mut self.outputs };
        list.insert(name.to_owned(), data);
    }

    /// Returns the kinds of tensors, by name.
    pub(super) fn kinds(&self) -> [(&'static str, &Tensors); 4] {
        let outputs = [("output", &self.outputs), ("output of 16 bits", &self.halves)];
        [outputs[0], outputs[1], ("parameter", &self.parameters), ("state", &self.states)]
    }

    /// Returns the results of `steps` steps of a plan on the reference.
    ///
    /// # Errors
    /// Only on bugs of the library.
    pub(super) fn of_twin(
        plan: &Plan,
        network: &Network,
        steps: u64,
        perturbation: Option<Perturbation>,
        injection: Option<&Injection>,
    ) -> Result<Self> {
        let graph = plan.graph();
        let mut twin = Twin::new(graph);
        let starts = starts(graph, &twin)?;
        let rows = parts(plan, network) * network.batch;
        feed(&mut twin, graph, network, 0, rows, &starts, perturbation)?;
        if let Some(Injection { name, at, number }) = injection {
            let mut data = start_of(network, &starts, graph, name);
            data[*at] = f64::from(*number);
            twin.set(name, &data)?;
        }
        for step in 0..steps {
            if let Some(optimizer) = &plan.optimizer {
                twin.set_step(&optimizer.scalars(step, optimizer.learning_rate(), plan.seed));
            }
            twin.run()?;
        }
        let mut outcome = Self::empty();
        for (name, id) in &graph.outputs {
            outcome.read(name, graph.value(*id).dtype, twin.output(name)?.to_vec());
        }
        for value in states(graph) {
            outcome.keep(value, twin.parameter(&value.name)?.to_vec());
        }
        Ok(outcome)
    }
}

/// Returns the number of micro-batches of a plan.
#[cfg_attr(not(feature = "gpu"), allow(dead_code))]
pub(super) fn parts(plan: &Plan, network: &Network) -> usize {
    let widened = plan.graph().inputs().find_map(|(_, value)| {
        let own = network.step.graph().inputs().find(|(_, own)| own.name == value.name)?.1;
        (network.feeds.contains_key(&value.name) && own.shape.rank() > 0)
            .then(|| value.shape.dims()[0] / own.shape.dims()[0].max(1))
    });
    widened.unwrap_or(1)
}

/// Returns the initial parameters, rounded to their storage type.
pub(super) fn starts(graph: &Graph, twin: &Twin) -> Result<Tensors> {
    let parameters = graph.values.iter().filter(|value| value.class == Class::Parameter);
    parameters.map(|value| Ok((value.name.clone(), twin.parameter(&value.name)?.to_vec()))).collect()
}

fn start_of(network: &Network, starts: &Tensors, graph: &Graph, name: &str) -> Vec<f64> {
    match network.feeds.get(name) {
        Some(Feed::Floats { numbers, .. }) => {
            let count =
                graph.inputs().find(|(_, value)| value.name == name).map_or(0, |(_, v)| v.shape.numel());
            numbers[..count as usize].iter().map(|x| f64::from(*x)).collect()
        }
        _ => starts.get(name).cloned().unwrap_or_default(),
    }
}
