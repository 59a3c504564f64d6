//! Settings of the operations on images.

use super::super::window::Window;

/// Activation that a batch norm applies to its result, so that neither the result of the norm nor that of the
/// activation needs to be saved for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `y = x`
    None,
    /// `y = max(x, 0)`
    Relu,
    /// `y = min(max(x, 0), 6)`; the derivative at 0 and 6 is 0.
    Relu6,
}

/// What a convolution reads. Only graph passes set the variants after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Its first operand.
    Tensor,
    /// [`Op::BatchNorm`](super::Op::BatchNorm) of its first operand, applied while the operand is read;
    /// `mean, deviation⁻¹, γ, β` follow the weight.
    Normed(Activation),
    /// The first operand and the last, concatenated along channels.
    Joined,
}

/// How an image is read between its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resample {
    /// The pixel at `⌊i h / h'⌋`.
    Nearest,
    /// Bilinear with pixels as squares: `(i + ½) h / h' - ½`, not below 0.
    Bilinear,
    /// Bilinear with the corner pixels in place: `i (h - 1) / (h' - 1)`.
    BilinearCorners,
}

/// What an average is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Averaging {
    /// A sliding window; padding counts as zeros or, without `count_padding`, is left out.
    Window {
        /// The window; its dilation is 1.
        window: Window,
        /// Divide by the full window size at the edges too.
        count_padding: bool,
    },
    /// `h' × w'` bins, bin `i` from `⌊i h / h'⌋` to `⌈(i + 1) h / h'⌉`.
    Adaptive([usize; 2]),
}

/// How running statistics move with those of a batch: `r += momentum (s - r)`, with the variance of the batch scaled by
/// `unbias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Running {
    /// Weight of the batch's statistics.
    pub momentum: f32,
    /// `n / (n - 1)`
    pub unbias: f32,
}
