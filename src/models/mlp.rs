//! Linear layers with ReLU between them.

use crate::graph::{Params, Tensor};
use crate::nn::{Linear, Module};

/// A multi-layer perceptron.
#[derive(Clone, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    /// Registers layers `fc1`, `fc2`, … from each size to the next.
    pub fn new(params: &Params, sizes: &[usize]) -> Self {
        let layer = |(i, pair): (usize, &[usize])| {
            Linear::new(&params.scope(format!("fc{}", i + 1)), pair[0], pair[1])
        };
        Self { layers: sizes.windows(2).enumerate().map(layer).collect() }
    }
}

impl Module for Mlp {
    /// `x [batch, first size] → [batch, last size]`
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                x = x.relu();
            }
            x = layer.forward(&x);
        }
        x
    }
}
