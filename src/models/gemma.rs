//! Gemma 2 and 3 (Gemma Team 2024, 2025), as Llamas: what they have besides.

use super::llama::LlamaConfig;
use crate::graph::{Rope, RopeScaling};

/// What Gemma 2 and 3 have that Llama has not: perceptrons with GELU in place of SiLU, norms after attention and perceptron as
/// well, norms whose γ is stored less 1, embeddings times the root of the width, and windows in some layers only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemma {
    /// Scores of attention are divided by the root of this: `query_pre_attn_scalar`.
    pub score_size: f32,
    /// Scores of attention, and logits, become `cap tanh(x / cap)`.
    pub caps: Option<[f32; 2]>,
    /// Every how many-th layer sees all positions before it; the others have [`LlamaConfig::window`].
    pub global_every: usize,
    /// Frequencies of the rotary position embedding of layers with a window, where they differ.
    pub local_rope: Option<Rope>,
}

const GEMMA_3: Gemma = Gemma {
    score_size: 256.0,
    caps: None,
    global_every: 6,
    local_rope: Some(Rope { base: 10_000.0, scaling: RopeScaling::None }),
};

impl LlamaConfig {
    /// Gemma 2 2B: 2,614,341,888 parameters.
    pub const GEMMA_2_2B: Self = Self {
        vocabulary: 256_000,
        layers: 26,
        heads: 8,
        kv_heads: 4,
        head_size: 256,
        width: 2304,
        hidden: 9216,
        eps: 1e-6,
        window: Some(4096),
        gemma: Some(Gemma { caps: Some([50.0, 30.0]), global_every: 2, local_rope: None, ..GEMMA_3 }),
        ..Self::TINY
    };
    /// Gemma 3 270M: 268,098,176 parameters.
    pub const GEMMA_3_270M: Self = Self {
        vocabulary: 262_144,
        layers: 18,
        heads: 4,
        kv_heads: 1,
        head_size: 256,
        width: 640,
        hidden: 2048,
        rope: Rope { base: 1_000_000.0, scaling: RopeScaling::None },
        eps: 1e-6,
        window: Some(512),
        qk_norm: true,
        gemma: Some(GEMMA_3),
        ..Self::TINY
    };
    /// Gemma 3 1B: 999,885,952 parameters.
    pub const GEMMA_3_1B: Self = Self { layers: 26, width: 1152, hidden: 6912, ..Self::GEMMA_3_270M };
}
