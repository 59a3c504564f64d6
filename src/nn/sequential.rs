//! Layers one after the other.

use std::fmt;

use super::Module;
use crate::graph::Tensor;

/// Layers that run one after the other; functions of a tensor are layers, too.
///
/// ```
/// use wgrad::graph::{Mode, Params, Trace};
/// use wgrad::nn::{Linear, Module, Sequential};
/// let params = Params::new(0);
/// let net = Sequential::new()
///     .add(Linear::new(&params.scope("0"), 4, 8))
///     .add(wgrad::graph::Tensor::relu)
///     .add(Linear::new(&params.scope("2"), 8, 2));
/// let graph = Trace::record(&params, Mode::Eval, "y", |g| net.forward(&g.input("x", [3, 4])));
/// assert_eq!(graph?.parameters.len(), 4);
/// # Ok::<(), wgrad::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Module + Send + Sync>>,
}

impl Sequential {
    /// Creates an empty sequence: it returns its input.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a layer.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "it appends, as in other libraries")]
    pub fn add(mut self, layer: impl Module + Send + Sync + 'static) -> Self {
        self.layers.push(Box::new(layer));
        self
    }

    /// Returns the number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there is no layer.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sequential of {} layers", self.layers.len())
    }
}

impl Module for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let run = || self.layers.iter().fold(x.clone(), |x, layer| layer.forward(&x));
        x.trace().called_at(std::panic::Location::caller(), run)
    }
}
