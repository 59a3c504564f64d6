//! Dynamic loss scaling, controlled on the device.

/// Scales the gradient of the loss so that small gradients do not underflow in formats with a small exponent
/// range. The rules are those of PyTorch's `GradScaler`: a step in which any gradient is infinite or NaN is
/// skipped and halves the scale; `interval` consecutive steps without overflow double it. The update sees
/// unscaled gradients; the scale is a power of two, so unscaling is exact.
///
/// All gradients are alive at once: no update may run before the last gradient is checked for overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// The first scale, a power of two.
    pub start: f32,
    /// Consecutive steps without overflow before the scale is doubled.
    pub interval: u32,
}

impl Default for LossScale {
    /// Starts at 2¹⁶, doubled after 2,000 steps without overflow.
    fn default() -> Self {
        Self { start: 65_536.0, interval: 2000 }
    }
}

/// Which of the step scalars depend on the step count, and so have to leave out skipped steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counting {
    /// None.
    Nothing,
    /// Adam's bias corrections, with β₁ and β₂.
    Adam(f32, f32),
    /// Adafactor's share of the newest gradient and its step size, with the exponent of the share.
    Adafactor(f32),
}
