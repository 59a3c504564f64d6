//! Low-rank adapters.

use std::sync::Arc;

use crate::graph::{Adapter, Init, LoraConfig, Param, Params, Reduction, Tensor};

/// A low-rank adapter of a layer (LoRA, Hu et al. 2021; DoRA, Liu et al. 2024), with PEFT's names: `lora_A.weight` starts as
/// PyTorch's linear layers do, `lora_B.weight` as zeros, so that the layer begins as it was.
///
/// [`Params::adapt`] gives one to every [`Linear`](super::Linear) that it names. For layers of your own, register one with
/// [`Lora::new`] and call [`Lora::adapt`] in the forward pass.
#[derive(Clone, Debug)]
pub struct Lora {
    /// `[rank, in]`
    pub a: Param,
    /// `[out, rank]`
    pub b: Param,
    /// `[out]`, `lora_magnitude_change`: what [`LoraConfig::dora`] adds to the lengths of the rows of `W`. Starts as zeros.
    pub magnitude: Option<Param>,
    scale: f32,
    dropout: f64,
    /// Whether `W` is `[in, out]`.
    input_first: bool,
}

impl Lora {
    /// Registers the parameters of an adapter of `weight [out, in]` at the path of `params`, the layer's. `targets` of the config
    /// are not read. Tracing reports a weight that is not a matrix as a mistake.
    #[track_caller]
    pub fn new(params: &Params, weight: &Param, config: &LoraConfig) -> Self {
        if weight.shape().rank() != 2 {
            params.complain(format!(
                "adapters of `{}` {}: they adapt matrices",
                weight.name(),
                weight.shape()
            ));
        }
        Self::with(params, weight, false, Arc::new(config.clone()))
    }

    /// Registers the adapter that [`Params::adapt`] asks for of `weight`, of the layer at the path of `params`, if it does.
    #[track_caller]
    pub(crate) fn of(params: &Params, weight: &Param, input_first: bool) -> Option<Self> {
        Some(Self::with(params, weight, input_first, params.adapter()?))
    }

    #[track_caller]
    fn with(params: &Params, weight: &Param, input_first: bool, config: Arc<LoraConfig>) -> Self {
        let shape = weight.shape();
        let (first, second) = (shape.dims().first().copied().unwrap_or(1), shape.last());
        let [inputs, outputs] = if input_first { [first, second] } else { [second, first] };
        let (rank, scale, dropout) = (config.rank, config.scale(), config.dropout);
        let adapter = || Adapter { config: Arc::clone(&config), base: weight.name().to_owned(), input_first };
        let matrix =
            |name, shape: [usize; 2], init| params.scope(name).add_adapter("weight", shape, init, adapter());
        let zeros = Init::Constant(0.0);
        Self {
            a: matrix("lora_A", [rank, inputs], Init::fan_in(inputs)),
            b: matrix("lora_B", [outputs, rank], zeros.clone()),
            magnitude: (config.dora)
                .then(|| params.add_adapter("lora_magnitude_change", [outputs], zeros, adapter())),
            scale,
            dropout,
            input_first,
        }
    }

    /// Returns `y + (alpha / rank) B A dropout(x)`, with [`LoraConfig::dora`] times the new lengths of rows, for the layer's
    /// product `y [.., out]` of `x [.., in]` and `weight`, before its bias is added.
    #[track_caller]
    #[must_use]
    pub fn adapt(&self, y: &Tensor, x: &Tensor, weight: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        let [a, b] = [&self.a, &self.b].map(|param| trace.param(param));
        let low = x.dropout(self.dropout).matmul_transposed(&a, false, true);
        let y = y.add(&low.scale(self.scale).matmul_transposed(&b, false, true));
        match &self.magnitude {
            Some(magnitude) => y.mul(&self.lengths(weight, &a, &b, &trace.param(magnitude))),
            None => y,
        }
    }

    /// The lengths of rows over those of `V = W + s B A`, which are constants in the backward pass, `[out]`. No matrix of the
    /// size of `W` is made: `‖V‖² = ‖W‖² + Σ over the rank of Bᵀ (2 s A Wᵀ + s² A Aᵀ Bᵀ)`.
    #[track_caller]
    fn lengths(&self, weight: &Tensor, a: &Tensor, b: &Tensor, magnitude: &Tensor) -> Tensor {
        let inputs = if self.input_first { 0 } else { 1 };
        let squares = weight.reduce_keep(Reduction::SumSquares, &[inputs]).reshape(magnitude.shape());
        let by_base = a.matmul_transposed(weight, false, !self.input_first);
        let by_itself = a.matmul_transposed(a, false, true).matmul_transposed(b, false, true);
        let terms = by_base.scale(2.0 * self.scale).add(&by_itself.scale(self.scale * self.scale));
        let of_sum = squares.add(&b.transpose(0, 1).mul(&terms).sum(&[0]));
        // A row of zeros has no direction: it stays 0.
        let of_sum = of_sum.clamp(f32::MIN_POSITIVE, f32::MAX).sqrt().detach();
        squares.sqrt().detach().add(magnitude).div(&of_sum)
    }
}
