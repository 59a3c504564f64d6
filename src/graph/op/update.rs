//! Optimizer updates of one parameter.

/// Some elements of a parameter, row-major: those that one of several ranks updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first.
    pub start: u64,
    /// Their number.
    pub len: u64,
}

impl Share {
    /// A share begins at a multiple of this: at a block of `Adam8bit`, and at a region of memory also in 16 bits.
    pub(crate) const BLOCK: u64 = 256;

    /// Returns the elements of a parameter's state that belong to these, if `all` of the state belong to `elements` of the
    /// parameter: the same number to each [`Share::BLOCK`].
    pub(crate) fn of_state(self, all: u64, elements: u64) -> Self {
        // The last block of the parameter may have fewer elements, so this is at most the next number above.
        let of_a_block = Self::BLOCK * all / elements.max(1);
        let at = |element: u64| if element >= elements { all } else { element / Self::BLOCK * of_a_block };
        let (start, end) = (at(self.start), at(self.start + self.len));
        Self { start, len: end - start }
    }
}

/// An optimizer's update of one parameter, in place. `g` is the gradient, `w` the parameter, `η` the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// `g += λw`; `w -= η g`. Inputs: `w, g, scalars`.
    Sgd {
        /// λ, the L2 penalty.
        weight_decay: f32,
        /// Multiply `g` by `sqrt_bias2 / bias1` of the step's scalars: `g` was made of Adam's moments.
        corrected: bool,
    },
    /// `g += λw`; `v = μv + g`; `w -= η v` (Nesterov: `w -= η (g + μv)`), as in `torch.optim.SGD`. Inputs:
    /// `w, g, scalars, v`.
    Momentum {
        /// μ
        momentum: f32,
        /// λ, the L2 penalty.
        weight_decay: f32,
        /// Look ahead by one momentum step.
        nesterov: bool,
    },
    /// Adam (Kingma & Ba 2015) as in `torch.optim.Adam`; with `decoupled` decay AdamW (Loshchilov & Hutter
    /// 2019). `m = β₁m + (1-β₁)g`; `v = β₂v + (1-β₂)g²`; `w -= η (m / bias1 + share g) / (√v / sqrt_bias2 + ε)`
    /// with [`StepScalars`](crate::graph::StepScalars), which make it NAdam or RAdam. With `amsgrad`
    /// `v̂ = max(v̂, v)` takes the place of `v` in the last formula. Inputs: `w, g, scalars, m, v`, and `v̂` with
    /// `amsgrad`.
    Adam {
        /// β₁
        beta1: f32,
        /// β₂
        beta2: f32,
        /// ε
        eps: f32,
        /// λ
        weight_decay: f32,
        /// `w *= 1 - ηλ` first, instead of `g += λw`.
        decoupled: bool,
        /// Use the largest second moment so far.
        amsgrad: bool,
    },
    /// `g += λw`; `s = keep s + take g²`; `u = g / (√s + ε)`; if μ is not 0 `b = μb + u`, `u = b`;
    /// `w -= η / bias1 u`. RMSprop keeps α and takes `1 - α`, as in `torch.optim.RMSprop`; Adagrad keeps and
    /// takes 1, as in `torch.optim.Adagrad`. Inputs: `w, g, scalars, s`, and `b` with momentum.
    RmsProp {
        /// Factor of the state.
        keep: f32,
        /// Factor of the newest square.
        take: f32,
        /// ε
        eps: f32,
        /// μ
        momentum: f32,
        /// λ, the L2 penalty.
        weight_decay: f32,
    },
    /// Lion (Chen et al. 2023): `w = (1 - ηλ)w - η sign(β₁m + (1-β₁)g)`; `m = β₂m + (1-β₂)g`. Inputs:
    /// `w, g, scalars, m`.
    Lion {
        /// β₁
        beta1: f32,
        /// β₂
        beta2: f32,
        /// λ
        weight_decay: f32,
    },
    /// The last step of Adafactor (Shazeer & Stern 2018) as in `torch.optim.Adafactor`:
    /// `w = (1 - ηλ)w - max(ε₂, rms w) ρₜ / max(1, rms(u)/d) u`. Inputs: `w, u, scalars, Σu² [], Σw² []`.
    Adafactor {
        /// ε₂
        eps: f32,
        /// d
        clip: f32,
        /// λ
        weight_decay: f32,
    },
    /// Adam-mini (Zhang et al. 2024): AdamW with one second moment for each row, of all elements of the first dimension's
    /// index: `m = β₁m + (1-β₁)g`; `w = (1 - ηλ)w - η m / bias1 / (√v / sqrt_bias2 + ε)`. Inputs:
    /// `w, g, scalars, m, v [rows]`, `v` being this step's.
    AdamMini {
        /// β₁
        beta1: f32,
        /// ε
        eps: f32,
        /// λ
        weight_decay: f32,
    },
    /// AdamW with both moments in codes: blocks of elements are divided by their largest magnitude and stored as the
    /// nearest of the numbers that codes stand for. Inputs: `w, g, scalars, m [words], v [words]` (`u32`, the first code in
    /// the lowest bits), `largest magnitudes of m and v [blocks, 2]`.
    AdamCodes {
        /// Their bits.
        codes: MomentCodes,
        /// β₁
        beta1: f32,
        /// β₂
        beta2: f32,
        /// ε
        eps: f32,
        /// λ
        weight_decay: f32,
    },
}

/// How codes of a few bits store Adam's moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MomentCodes {
    /// Eight bits (Dettmers et al. 2022): 256 numbers that are denser near zero, by blocks of 256.
    Eight,
    /// Four bits (Li et al. 2023), by blocks of 128: for the first moment 16 numbers that are denser near zero, for the second
    /// the multiples of 1/16 from there to 1.
    Four,
}

impl MomentCodes {
    /// Bits of a code.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Eight => 8,
            Self::Four => 4,
        }
    }

    /// Elements that share a scale.
    pub(crate) const fn block(self) -> u64 {
        match self {
            Self::Eight => 256,
            Self::Four => 128,
        }
    }

    /// Number of words with the codes of `n` elements.
    pub(crate) const fn words(self, n: u64) -> u64 {
        n.div_ceil(32 / self.bits() as u64)
    }
}

impl Update {
    /// Number of operands that are optimizer state, changed in place.
    pub(crate) const fn states(&self) -> usize {
        match self {
            Self::Sgd { .. } | Self::Adafactor { .. } => 0,
            Self::Momentum { .. } | Self::Lion { .. } | Self::AdamMini { .. } => 1,
            Self::RmsProp { momentum, .. } => 1 + (*momentum != 0.0) as usize,
            Self::Adam { amsgrad, .. } => 2 + *amsgrad as usize,
            Self::AdamCodes { .. } => 3,
        }
    }

    /// Number of operands after the state, which are only read.
    pub(crate) const fn others(&self) -> usize {
        match self {
            Self::Adafactor { .. } => 2,
            Self::AdamMini { .. } => 1,
            _ => 0,
        }
    }

    /// Positions of the operands that are changed in place; the last one is the correction of a parameter that has one.
    pub(crate) const fn mutates(&self, corrected: bool) -> &'static [usize] {
        match (self.states(), self.others(), corrected) {
            (0, _, false) => &[0],
            (1, _, false) => &[0, 3],
            (2, _, false) => &[0, 3, 4],
            (_, _, false) => &[0, 3, 4, 5],
            (0, 0, true) => &[0, 3],
            (0, _, true) => &[0, 5],
            (1, 0, true) => &[0, 3, 4],
            (1, _, true) => &[0, 3, 5],
            (2, _, true) => &[0, 3, 4, 5],
            (_, _, true) => &[0, 3, 4, 5, 6],
        }
    }

    /// Position of the gradient operand.
    pub(crate) const GRADIENT: usize = 1;
    /// Position of the step scalars.
    pub(crate) const SCALARS: usize = 2;
    /// Position of the first operand that is optimizer state.
    pub(crate) const STATE: usize = 3;
}

/// Rounding of a parameter stored in 16 bits; no effect on one in 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stored {
    /// Round to nearest, ties to even.
    #[default]
    Nearest,
    /// Stochastic rounding: the expected value is the unrounded number. The bits are drawn per element from
    /// (seed, step, this key). The key is below 2³¹.
    Stochastic(u32),
    /// To nearest, for a parameter in `bf16`. What that takes off is in the last operand, a word for four elements, and added
    /// before the next update.
    Corrected,
}

impl Stored {
    /// Number of operands after those of the [`Update`].
    pub(crate) const fn operands(self) -> usize {
        matches!(self, Self::Corrected) as usize
    }
}

/// Suffix of the names of optimizer state that corrects parameters in 16 bits.
pub(crate) const CORRECTION: &str = "correction";

/// Number of words that correct `n` elements. Four elements share a word, the first in its lowest byte: a whole number from -128 to
/// 127 in units of 1/256 of the distance to the next `bf16`, away from zero.
pub(crate) const fn corrections(n: u64) -> u64 {
    n.div_ceil(4)
}
