//! What a trainer trains, and how it is measured.

use std::sync::Arc;

use crate::compile::TrainStep;
use crate::data::Batch;
use crate::error::Result;
use crate::graph::{Params, Tensor, Trace};
use crate::models::Model;

/// Records a network for a number of samples.
pub(super) type Network<'a> = Box<dyn Fn(&Trace, usize) -> Tensor + 'a>;
/// Sum of a metric over the samples of a batch, from the outputs of a forward pass.
pub(super) type Score = Arc<dyn Fn(&[f32], &Batch) -> f64 + Send + Sync>;

/// A loss to minimize, and forward passes that share its parameters.
///
/// ```
/// use wgrad::prelude::*;
/// use wgrad::train::Task;
///
/// let params = Params::new(0);
/// let net = Linear::new(&params.scope("fc"), 3, 1);
/// let task = Task::new(&params, |trace, samples| {
///     let (x, y) = (trace.input("x", [samples, 3]), trace.input("y", [samples, 1]));
///     (net.forward(&x) - y).square().mean(&[])
/// })
/// .program("prediction", |trace, samples| net.forward(&trace.input("x", [samples, 3])))
/// .metric("absolute error", "prediction", |prediction, batch| {
///     prediction.iter().zip(batch.f32("y")).map(|(a, b)| f64::from((a - b).abs())).sum()
/// });
/// ```
pub struct Task<'a> {
    pub(super) params: &'a Params,
    pub(super) loss: Network<'a>,
    pub(super) programs: Vec<(String, Network<'a>)>,
    pub(super) metric: Option<Metric>,
}

/// A metric of a task.
#[derive(Clone)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    /// The forward pass whose outputs it reads.
    pub(super) program: String,
    pub(super) score: Score,
}

impl<'a> Task<'a> {
    /// Creates a task: `loss` records the loss of a number of samples, a scalar, and declares the inputs that
    /// the data has. It is called for the batch, for a smaller last batch, and for the parts of a batch that
    /// may be needed when memory runs out.
    pub fn new(params: &'a Params, loss: impl Fn(&Trace, usize) -> Tensor + 'a) -> Self {
        Self { params, loss: Box::new(loss), programs: Vec::new(), metric: None }
    }

    /// Creates the task of a network that classifies samples of `len` values: `network` maps `[samples, len]`
    /// to logits `[samples, classes]`, the loss is their cross-entropy. Inputs `x` and `y`, program `logits`,
    /// metric `accuracy`: the fraction of samples, in [0, 1], whose class has the largest logit.
    pub fn classifier(
        params: &'a Params,
        len: usize,
        classes: usize,
        network: impl Fn(&Tensor) -> Tensor + Clone + 'a,
    ) -> Self {
        let forward = move |trace: &Trace, samples: usize| network(&trace.input("x", [samples, len]));
        let logits = forward.clone();
        let loss = move |trace: &Trace, samples: usize| {
            logits(trace, samples).cross_entropy(&trace.labels("y", [samples], classes as u32))
        };
        Self::new(params, loss).program("logits", forward).accuracy(classes)
    }

    /// Adds a forward pass, in evaluation mode, by name. Inputs of the same name as those of the loss are fed
    /// from the same data.
    #[must_use]
    pub fn program(mut self, name: &str, forward: impl Fn(&Trace, usize) -> Tensor + 'a) -> Self {
        self.programs.push((name.to_owned(), Box::new(forward)));
        self
    }

    /// Sets the metric that is computed on evaluation data: `score` gets the outputs of the forward pass
    /// `program` for a batch, and the batch, and returns the sum over its samples. The metric is the mean.
    #[must_use]
    pub fn metric(
        self,
        name: &'static str,
        program: &str,
        score: impl Fn(&[f32], &Batch) -> f64 + Send + Sync + 'static,
    ) -> Self {
        let metric = Metric { name, program: program.to_owned(), score: Arc::new(score) };
        Self { metric: Some(metric), ..self }
    }

    /// Traces a training step for a number of samples: what [`Trainer::new`](super::Trainer::new) plans, to
    /// plan before a device is opened.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) with every mistake in the model.
    pub fn train_step(&self, samples: usize) -> Result<TrainStep> {
        TrainStep::trace(self.params, |trace| (self.loss)(trace, samples))
    }

    fn accuracy(self, classes: usize) -> Self {
        self.metric("accuracy", "logits", move |logits, batch| {
            let labels = batch.u32("y");
            let rows = logits.chunks(classes).zip(labels);
            let right = rows.filter(|(row, label)| largest(row) == **label).count();
            right as f64 * batch.samples() as f64 / labels.len().max(1) as f64
        })
    }
}

/// The loss of [`Model::loss`]; for networks over numbers also program `logits` and metric `accuracy`.
impl<'a> From<&'a Model> for Task<'a> {
    fn from(model: &'a Model) -> Self {
        let task = Self::new(model.params(), |trace, samples| model.loss(trace, samples));
        if model.seq().is_some() {
            return task;
        }
        task.program("logits", |trace, samples| model.logits(&model.input(trace, samples)))
            .accuracy(model.classes)
    }
}

fn largest(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class as u32)
}
