//! Attention layers and transformer blocks, with PyTorch's names.

use super::{LayerNorm, Linear, Module};
use crate::graph::{Attention, Init, Param, Params, Tensor};

/// `torch.nn.MultiheadAttention` with `batch_first=True` (Vaswani et al. 2017): `in_proj_weight [3 d, d]`,
/// `in_proj_bias [3 d]`, `out_proj`. The projection starts as Xavier's uniform, biases as 0.
#[derive(Clone, Debug)]
pub struct MultiheadAttention {
    path: String,
    heads: usize,
    /// `[3 d, d]`: queries, keys, values.
    pub weight: Param,
    /// `[3 d]`
    pub bias: Param,
    /// `[d, d]`
    pub output: Linear,
    /// Mask, window, ALiBi, scale of the scores and dropout of the weights.
    pub options: Attention,
}

impl MultiheadAttention {
    /// Registers the parameters at the path of `params`. `width` is a multiple of `heads`.
    #[track_caller]
    pub fn new(params: &Params, width: usize, heads: usize) -> Self {
        let weight = params.add(
            "in_proj_weight",
            [width.saturating_mul(3), width],
            Init::xavier_uniform(width, width.saturating_mul(3)),
        );
        let bias = params.add("in_proj_bias", [width.saturating_mul(3)], Init::Constant(0.0));
        let output = Linear::new(&params.scope("out_proj"), width, width);
        Self { path: params.path().to_owned(), heads, weight, bias, output, options: Attention::default() }
    }

    /// Attends from `x [b, s, d]` to `to [b, t, d]`, with `mask` added to the scores, as
    /// [`Tensor::attention_masked`] takes it. Without a mask the fused kernels compute it.
    #[track_caller]
    #[must_use]
    pub fn attend(&self, x: &Tensor, to: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let trace = x.trace().clone();
        let [b, s, d] = [x.dim(0), x.dim(1), x.dim(2)];
        if x.id().is_none() || to.id().is_none() {
            return x.clone();
        }
        if x.shape().rank() != 3 || to.shape().rank() != 3 || self.heads == 0 || !d.is_multiple_of(self.heads)
        {
            let message = format!("attention of {} to {} with {} heads", x.shape(), to.shape(), self.heads);
            return x.mistake(message, x.shape());
        }
        trace.layer(&self.path, || {
            let (weight, bias) = (trace.param(&self.weight), trace.param(&self.bias));
            let size = d / self.heads;
            let project = |x: &Tensor, from: usize, to: usize| {
                let (weight, bias) = (weight.slice(0, from * d..to * d), bias.slice(0, from * d..to * d));
                let y = x.matmul_transposed(&weight, false, true).add(&bias);
                y.reshape([b, x.dim(1), (to - from) * self.heads, size])
            };
            let whole = x.id() == to.id() && mask.is_none();
            let y = if whole {
                project(x, 0, 3).self_attention(self.heads, self.heads, &self.options)
            } else {
                let [q, k, v] = [project(x, 0, 1), project(to, 1, 2), project(to, 2, 3)];
                match mask {
                    Some(mask) => q.attention_masked(&k, &v, mask, &self.options),
                    None => q.attention(&k, &v, &self.options),
                }
            };
            self.output.forward(&y.reshape([b, s, d]))
        })
    }
}

impl Module for MultiheadAttention {
    /// Self-attention: `x [b, s, d]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.attend(x, x, None)
    }
}

/// Shape of a transformer block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockConfig {
    /// Heads of the attention.
    pub heads: usize,
    /// Width of the hidden layer of the two products.
    pub hidden: usize,
    /// Probability of dropout, after the attention and in the feed-forward part.
    pub dropout: f64,
    /// GELU in place of ReLU.
    pub gelu: bool,
    /// Norms come before the attention and the products (`norm_first`), not after their sums.
    pub norm_first: bool,
    /// Positions see themselves and earlier ones only.
    pub causal: bool,
    /// Sliding window of the self-attention: [`Attention::window`].
    pub window: Option<usize>,
    /// ALiBi in the self-attention: [`Attention::alibi`].
    pub alibi: bool,
}

impl Default for BlockConfig {
    /// PyTorch's: 8 heads, 2048 hidden, dropout 0.1, ReLU, norms after, every position sees all.
    fn default() -> Self {
        Self {
            heads: 8,
            hidden: 2048,
            dropout: 0.1,
            gelu: false,
            norm_first: false,
            causal: false,
            window: None,
            alibi: false,
        }
    }
}

impl BlockConfig {
    /// Which positions the self-attention sees.
    fn own(&self) -> Attention {
        let Self { causal, window, alibi, .. } = *self;
        Attention { causal, window, alibi, ..Attention::default() }
    }
}

/// `torch.nn.TransformerEncoderLayer` with `batch_first=True`: `self_attn`, `linear1`, `linear2`, `norm1`, `norm2`.
#[derive(Clone, Debug)]
pub struct TransformerEncoderLayer {
    config: BlockConfig,
    attention: MultiheadAttention,
    products: [Linear; 2],
    norms: [LayerNorm; 2],
}

impl TransformerEncoderLayer {
    /// Registers the parameters at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, width: usize, config: BlockConfig) -> Self {
        Self {
            config,
            attention: attention(params, "self_attn", width, &config, config.own()),
            products: products(params, width, config.hidden),
            norms: ["norm1", "norm2"].map(|name| LayerNorm::new(&params.scope(name), width)),
        }
    }

    /// `x [b, s, d]`, shape unchanged; `mask` as [`Tensor::attention_masked`] takes it.
    #[track_caller]
    #[must_use]
    pub fn masked(&self, x: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let own = |x: &Tensor| self.attention.attend(x, x, mask).dropout(self.config.dropout);
        let x = residual(x, &self.norms[0], &self.config, own);
        residual(&x, &self.norms[1], &self.config, |x| feed_forward(x, &self.products, &self.config))
    }
}

impl Module for TransformerEncoderLayer {
    /// `x [b, s, d]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.masked(x, None)
    }
}

/// `torch.nn.TransformerDecoderLayer` with `batch_first=True`: `self_attn`, `multihead_attn`, `linear1`, `linear2`, `norm1`,
/// `norm2`, `norm3`.
#[derive(Clone, Debug)]
pub struct TransformerDecoderLayer {
    config: BlockConfig,
    attention: MultiheadAttention,
    cross: MultiheadAttention,
    products: [Linear; 2],
    norms: [LayerNorm; 3],
}

impl TransformerDecoderLayer {
    /// Registers the parameters at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, width: usize, config: BlockConfig) -> Self {
        Self {
            config,
            attention: attention(params, "self_attn", width, &config, config.own()),
            cross: attention(params, "multihead_attn", width, &config, Attention::default()),
            products: products(params, width, config.hidden),
            norms: ["norm1", "norm2", "norm3"].map(|name| LayerNorm::new(&params.scope(name), width)),
        }
    }

    /// `x [b, s, d]`, shape unchanged, attends to `memory [b, t, d]`; `mask` is that of the memory's keys.
    #[track_caller]
    #[must_use]
    pub fn decode(&self, x: &Tensor, memory: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let own = |x: &Tensor| self.attention.attend(x, x, None).dropout(self.config.dropout);
        let x = residual(x, &self.norms[0], &self.config, own);
        let cross = |x: &Tensor| self.cross.attend(x, memory, mask).dropout(self.config.dropout);
        let x = residual(&x, &self.norms[1], &self.config, cross);
        residual(&x, &self.norms[2], &self.config, |x| feed_forward(x, &self.products, &self.config))
    }
}

#[track_caller]
fn attention(
    params: &Params,
    name: &str,
    width: usize,
    config: &BlockConfig,
    options: Attention,
) -> MultiheadAttention {
    let options = Attention { dropout: config.dropout, ..options };
    MultiheadAttention { options, ..MultiheadAttention::new(&params.scope(name), width, config.heads) }
}

#[track_caller]
fn products(params: &Params, width: usize, hidden: usize) -> [Linear; 2] {
    [
        Linear::new(&params.scope("linear1"), width, hidden),
        Linear::new(&params.scope("linear2"), hidden, width),
    ]
}

/// `x + f(norm x)`, or `norm(x + f x)`.
#[track_caller]
fn residual(x: &Tensor, norm: &LayerNorm, config: &BlockConfig, f: impl Fn(&Tensor) -> Tensor) -> Tensor {
    match config.norm_first {
        true => x.add(&f(&x.apply(norm))),
        false => x.add(&f(x)).apply(norm),
    }
}

#[track_caller]
fn feed_forward(x: &Tensor, products: &[Linear; 2], config: &BlockConfig) -> Tensor {
    let hidden = x.apply(&products[0]);
    let hidden = if config.gelu { hidden.gelu() } else { hidden.relu() };
    hidden.dropout(config.dropout).apply(&products[1]).dropout(config.dropout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Attend, Band, Mode, Op, Trace};

    #[test]
    fn blocks_pass_their_window_and_alibi_on() {
        let params = Params::new(1);
        let config = BlockConfig {
            heads: 2,
            hidden: 8,
            causal: true,
            window: Some(3),
            alibi: true,
            ..Default::default()
        };
        let (encoder, decoder) = (params.scope("encoder"), params.scope("decoder"));
        let encoder = TransformerEncoderLayer::new(&encoder, 8, config);
        let decoder = TransformerDecoderLayer::new(&decoder, 8, config);
        let graph = Trace::record(&params, Mode::Train, "y", |trace| {
            let x = trace.input("x", [1, 5, 8]);
            decoder.decode(&x.apply(&encoder), &x, None).sum(&[])
        })
        .expect("valid");
        let seen = graph.nodes.iter().filter_map(|node| match node.op {
            Op::Attention(Attend { band, alibi, .. }) => Some((band, alibi)),
            _ => None,
        });
        let own = (Band::new(true, Some(3)), true);
        assert_eq!(seen.collect::<Vec<_>>(), [own, own, (Band::ALL, false)]);
    }
}
