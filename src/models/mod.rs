//! Networks that can be planned and trained by name.

mod mlp;

pub use mlp::Mlp;

use crate::error::{Error, Result};
use crate::graph::{Params, Tensor, Trace};
use crate::nn::Module;
use crate::plan::{Forward, TrainStep};

/// A network for images or vectors of a fixed length, with class indices as targets.
pub struct Model {
    /// Its name on the command line.
    pub name: &'static str,
    /// Length of one input.
    pub inputs: usize,
    /// Number of classes.
    pub classes: usize,
    params: Params,
    network: Box<dyn Module>,
}

impl Model {
    /// The names that [`Model::named`] knows.
    pub const NAMES: [&'static str; 2] = ["mlp", "digits"];

    /// A network by name, with parameters that start from `seed`.
    ///
    /// - `mlp`: 784-512-512-10 with ReLU.
    /// - `digits`: 64-128-64-10 with ReLU, the network of `examples/digits`.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names.
    pub fn named(name: &str, seed: u64) -> Result<Self> {
        let (name, sizes) = match name {
            "mlp" => ("mlp", vec![784, 512, 512, 10]),
            "digits" => ("digits", vec![64, 128, 64, 10]),
            _ => {
                let known = Self::NAMES.map(str::to_owned).to_vec();
                return Err(Error::Unknown { kind: "model", name: name.to_owned(), known });
            }
        };
        let params = Params::new(seed);
        let network = Box::new(Mlp::new(&params, &sizes));
        let classes = sizes.last().copied().unwrap_or_default();
        Ok(Self { name, inputs: sizes[0], classes, params, network })
    }

    /// The parameters, on the host.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Logits `[batch, classes]` of `x [batch, inputs]`.
    pub fn logits(&self, x: &Tensor) -> Tensor {
        self.network.forward(x)
    }

    /// The loss of a batch: inputs `x [batch, inputs]` and labels `y [batch]`, cross-entropy.
    pub fn loss(&self, trace: &Trace, batch: usize) -> Tensor {
        let x = trace.input("x", [batch, self.inputs]);
        let y = trace.labels("y", [batch], self.classes as u32);
        self.logits(&x).cross_entropy(&y)
    }

    /// A training step for `batch` samples.
    ///
    /// # Errors
    /// [`Error::Option`] for a batch of 0.
    pub fn train_step(&self, batch: usize) -> Result<TrainStep> {
        at_least_one(batch)?;
        TrainStep::trace(&self.params, |trace| self.loss(trace, batch))
    }

    /// A forward pass for `batch` samples: input `x`, output `logits`.
    ///
    /// # Errors
    /// [`Error::Option`] for a batch of 0.
    pub fn forward(&self, batch: usize) -> Result<Forward> {
        at_least_one(batch)?;
        Forward::trace(&self.params, "logits", |trace| self.logits(&trace.input("x", [batch, self.inputs])))
    }
}

fn at_least_one(batch: usize) -> Result<()> {
    if batch == 0 { Err(Error::Option("a batch of 0: it must be at least 1".to_owned())) } else { Ok(()) }
}
