//! A table of vectors.

use super::Module;
use crate::graph::{Init, Param, Params, Tensor};

/// `torch.nn.Embedding`: row `id` of `weight [v, d]` for each id.
#[derive(Clone, Debug)]
pub struct Embedding {
    path: String,
    /// `[v, d]`
    pub weight: Param,
}

impl Embedding {
    /// Registers `weight` at the path of `params`, initialized as N(0, 1), as in PyTorch.
    #[track_caller]
    pub fn new(params: &Params, rows: usize, columns: usize) -> Self {
        Self::with_std(params, rows, columns, 1.0)
    }

    /// Registers `weight`, initialized normal with mean 0 and this standard deviation; GPT-2 uses 0.02.
    #[track_caller]
    pub fn with_std(params: &Params, rows: usize, columns: usize, std: f32) -> Self {
        let weight = params.add("weight", [rows, columns], Init::Normal(std));
        Self { path: params.path().to_owned(), weight }
    }
}

impl Module for Embedding {
    /// `ids` `u32 [..] → [.., d]`; see [`Tensor::embedding`].
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Tensor {
        let trace = ids.trace().clone();
        trace.layer(&self.path, || trace.param(&self.weight).embedding(ids))
    }
}
