//! Dynamic loss scaling, decided on the device.

/// Scales the loss's gradient so that small gradients survive formats with few exponents, with PyTorch's `GradScaler`'s
/// rules: a step in which any gradient is infinite or no number is left out and halves the scale; `interval` clean steps in a
/// row double it. The update sees gradients without the scale: a power of two changes no digit.
///
/// No gradient may be freed by its own update before the last of them was looked at, so all are alive at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// The first scale, a power of two.
    pub start: f32,
    /// Clean steps in a row before the scale is doubled.
    pub interval: u32,
}

impl Default for LossScale {
    /// 2¹⁶, doubled after 2,000 clean steps.
    fn default() -> Self {
        Self { start: 65_536.0, interval: 2000 }
    }
}

/// What of a step's scalars counts steps, and so leaves out those that were skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counting {
    /// Nothing.
    Nothing,
    /// Adam's corrections, with β₁ and β₂.
    Adam(f32, f32),
    /// Adafactor's share and step size, with the exponent of the first.
    Adafactor(f32),
}
