//! Dropout as a layer.

use super::Module;
use crate::graph::Tensor;

/// Zeroes elements with chance `p` while training (Srivastava et al. 2014): `torch.nn.Dropout`. Keeps no mask.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Chance that an element becomes 0; at least 0 and below 1.
    pub p: f64,
}

impl Module for Dropout {
    /// Any shape.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.dropout(self.p)
    }
}
