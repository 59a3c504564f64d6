//! Results of a plan for a network's data, on a device and on the reference.

use super::network::{Feed, Network};
use super::reference::{Perturbation, Tensors, feed};
use crate::compile::Plan;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{CORRECTION, Class, Graph, Value};
use crate::random;
use crate::reference::{self, Twin};

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

/// Returns the parameters that optimizer state corrects, with its name.
pub(super) fn corrections(graph: &Graph) -> impl Iterator<Item = (&str, &str)> {
    let state = graph.values.iter().filter(|value| value.class == Class::Optimizer);
    state.filter_map(|value| Some((value.name.strip_suffix(CORRECTION)?.strip_suffix('.')?, &value.name[..])))
}

/// Returns corrections to start with, so that one step reads some that are not 0.
pub(super) fn first_corrections(words: usize) -> Vec<u32> {
    (0..words as u64).map(|i| random::bits(0, i) as u32).collect()
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

    /// Keeps a parameter with what corrects it as one tensor of state: a number between two of 16 bits may be rounded to either, and
    /// the correction then makes up for it.
    pub(super) fn keep_corrected(&mut self, parameter: &str, words: &[f64]) {
        let corrected = reference::corrected(&self.parameters[parameter], words);
        self.states.insert(format!("{parameter} in 24 bits"), corrected);
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
        for (_, name) in corrections(graph) {
            let words = first_corrections(twin.parameter(name)?.len());
            twin.set(name, &words.into_iter().map(f64::from).collect::<Vec<_>>())?;
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
        for (parameter, name) in corrections(graph) {
            outcome.keep_corrected(parameter, twin.parameter(name)?);
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
