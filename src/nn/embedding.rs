//! Tables of vectors.

use super::Module;
use crate::graph::{Bag, Init, Param, Params, Tensor};

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
        let weight = params.add_table("weight", [rows, columns], Init::Normal(std));
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

/// `torch.nn.EmbeddingBag` with bags of equal length: a row for each bag, combined from rows of `weight [v, d]`.
#[derive(Clone, Debug)]
pub struct EmbeddingBag {
    path: String,
    /// `[v, d]`
    pub weight: Param,
    /// How rows combine.
    pub bag: Bag,
    /// The id that is ignored, which fills up shorter bags.
    pub padding: Option<u32>,
}

impl EmbeddingBag {
    /// Registers `weight` at the path of `params`, initialized as N(0, 1), as in PyTorch; without `padding`, to be set
    /// as a field.
    #[track_caller]
    pub fn new(params: &Params, rows: usize, columns: usize, bag: Bag) -> Self {
        let Embedding { path, weight } = Embedding::new(params, rows, columns);
        Self { path, weight, bag, padding: None }
    }
}

impl Module for EmbeddingBag {
    /// `ids` `u32 [n, k] → [n, d]`; see [`Tensor::embedding_bag`].
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Tensor {
        let trace = ids.trace().clone();
        trace.layer(&self.path, || trace.param(&self.weight).embedding_bag(ids, self.bag, self.padding))
    }
}
