//! Frequencies of the rotary position embedding.

/// Frequencies of a rotary position embedding (Su et al. 2021): pair `i` of a head of `d` elements turns by `base^(-2i/d)`
/// radians a position, times the factor of the scaling. A plain base is a `Rope` without scaling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies: 10,000 in the paper, `rope_theta` in Hugging Face's configs.
    pub base: f32,
    /// Lower frequencies, for contexts longer than the model was trained on first.
    pub scaling: RopeScaling,
}

/// Factors of the frequencies of a [`Rope`], by the names of `rope_scaling` in Hugging Face's configs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Every factor is 1.
    #[default]
    None,
    /// Every factor is `1 / factor` (Chen et al. 2023).
    Linear {
        /// At least 1.
        factor: f32,
    },
    /// Llama 3.1's: frequencies that turn more than `high` times within `context` positions stay, those that turn fewer than
    /// `low` times are divided by `factor`; between them the factor grows linearly with the frequency.
    Llama3 {
        /// At least 1.
        factor: f32,
        /// Turns within the context: `low_freq_factor`.
        low: f32,
        /// Turns within the context, more than `low`: `high_freq_factor`.
        high: f32,
        /// Positions that the model was trained on first: `original_max_position_embeddings`.
        context: f32,
    },
}

impl From<f32> for Rope {
    fn from(base: f32) -> Self {
        Self { base, scaling: RopeScaling::None }
    }
}

impl Rope {
    /// Returns what is wrong with the numbers.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.base.is_nan() || self.base < 1.0 {
            return Err(format!("base {}: it must be 1 or more", self.base));
        }
        let at_least_one = |factor: f32| match factor >= 1.0 && factor.is_finite() {
            true => Ok(()),
            false => Err(format!("a scaling by {factor}: it must be finite and 1 or more")),
        };
        match self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => at_least_one(factor),
            RopeScaling::Llama3 { factor, low, high, context } => {
                at_least_one(factor)?;
                let finite = [low, high, context].iter().all(|n| n.is_finite());
                match finite && low >= 0.0 && high > low && context > 0.0 {
                    true => Ok(()),
                    false => Err(format!(
                        "a scaling from {low} to {high} turns within {context} positions: the second must be more than the \
                         first, the positions more than 0"
                    )),
                }
            }
        }
    }

    /// Returns `far`, `slope` and `offset` of the factor of a frequency of `f` turns a position: `far + (1 - far) t` with `t`
    /// the number `f slope + offset`, at least 0 and at most 1.
    pub(crate) fn ramp(&self) -> [f64; 3] {
        match self.scaling {
            RopeScaling::None => [1.0, 0.0, 1.0],
            RopeScaling::Linear { factor } => [1.0 / f64::from(factor), 0.0, 0.0],
            RopeScaling::Llama3 { factor, low, high, context } => {
                let [low, high] = [low, high].map(f64::from);
                [1.0 / f64::from(factor), f64::from(context) / (high - low), -low / (high - low)]
            }
        }
    }

    /// Returns the radians by which pair `i` of a head of `d` elements turns a position.
    pub(crate) fn frequency(&self, i: usize, d: usize) -> f64 {
        let [far, slope, offset] = self.ramp();
        let frequency = f64::from(self.base).powf(-2.0 * i as f64 / d as f64);
        let t = (frequency / std::f64::consts::TAU * slope + offset).clamp(0.0, 1.0);
        frequency * (far + (1.0 - far) * t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"]` for Llama 3.2 1B's config.
    #[test]
    fn llama3_scaling_is_that_of_transformers() {
        let scaling = RopeScaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, context: 8192.0 };
        let rope = Rope { base: 500_000.0, scaling };
        let plain = Rope::from(500_000.0);
        // Wavelengths of 2048 and 8192 positions bound the ramp.
        for i in 0..32 {
            let (scaled, frequency) = (rope.frequency(i, 64), plain.frequency(i, 64));
            let wavelength = std::f64::consts::TAU / frequency;
            let wanted = if wavelength < 2048.0 {
                frequency
            } else if wavelength > 8192.0 {
                frequency / 32.0
            } else {
                let smooth = (8192.0 / wavelength - 1.0) / 3.0;
                (1.0 - smooth) * frequency / 32.0 + smooth * frequency
            };
            assert!((scaled / wanted - 1.0).abs() < 1e-12, "pair {i}: {scaled} and {wanted}");
        }
    }

    #[test]
    fn wrong_numbers_are_named() {
        let check = |scaling| Rope { base: 1e4, scaling }.check();
        assert_eq!(check(RopeScaling::Linear { factor: 4.0 }), Ok(()));
        assert!(check(RopeScaling::Linear { factor: 0.5 }).unwrap_err().contains("by 0.5"));
        let llama = |low, high, context| check(RopeScaling::Llama3 { factor: 8.0, low, high, context });
        assert_eq!(llama(1.0, 4.0, 8192.0), Ok(()));
        for wrong in [llama(4.0, 4.0, 8192.0), llama(1.0, f32::NAN, 8192.0), llama(1.0, 4.0, 0.0)] {
            assert!(wrong.unwrap_err().contains("turns within"));
        }
        assert!(Rope::from(f32::NAN).check().unwrap_err().contains("base NaN"));
    }
}
