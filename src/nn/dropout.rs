//! Dropout as a layer.

use super::Module;
use crate::graph::Tensor;

/// Zeroes elements with probability `p` during training (Srivastava et al. 2014): `torch.nn.Dropout`. Saves
/// no mask.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Probability that an element becomes 0; at least 0 and below 1.
    pub p: f64,
}

impl Module for Dropout {
    /// Any shape.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.dropout(self.p)
    }
}
