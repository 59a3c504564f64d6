//! Reductions and scans composed of sums, maxima and products.

use std::panic::Location;

use super::{Reduction, Tensor};

impl Tensor {
    /// Minimum over `axes`, which are removed; equal minima share the gradient. With no axes: over all, to a scalar.
    #[track_caller]
    #[must_use]
    pub fn min(&self, axes: &[usize]) -> Tensor {
        self.neg().max(axes).neg()
    }

    /// Product over `axes`, which are removed; with no axes: over all, to a scalar. Halves are multiplied until one
    /// element is left, so the gradient is right where elements are 0.
    #[track_caller]
    #[must_use]
    pub fn prod(&self, axes: &[usize]) -> Tensor {
        let all: Vec<usize> = (0..self.shape.rank()).collect();
        let axes = if axes.is_empty() { &all } else { axes };
        let halves = |mut x: Tensor, &axis: &usize| {
            if x.dim(axis) == 0 {
                return x.fill_like(x.shape.with(axis, 1), 1.0);
            }
            while x.dim(axis) > 1 {
                let (len, half) = (x.dim(axis), x.dim(axis) / 2);
                let product = x.slice(axis, 0..half).mul(&x.slice(axis, half..2 * half));
                x = if len > 2 * half {
                    product.concat(&[&x.slice(axis, 2 * half..len)], axis)
                } else {
                    product
                };
            }
            x
        };
        // Axes of length 1 are left, whose sum is the element.
        if let Some(axis) = axes.iter().find(|axis| **axis >= self.shape.rank()) {
            return self.mistake(format!("prod over axis {axis} of {}", self.shape), self.shape);
        }
        axes.iter().fold(self.clone(), halves).sum(axes)
    }

    /// Variance over `axes`, which are removed: `Σ (x - mean)² / (n - correction)` (`torch.var`). With no axes: over
    /// all, to a scalar.
    #[track_caller]
    #[must_use]
    pub fn var(&self, axes: &[usize], correction: usize) -> Tensor {
        let centred = self.sub(&self.reduce_keep(Reduction::Mean, axes));
        let all = axes.is_empty();
        let kept: u64 = (0..self.shape.rank())
            .filter(|axis| !all && !axes.contains(axis))
            .map(|axis| self.dim(axis) as u64)
            .product();
        let count = self.shape.numel() / kept.max(1);
        centred.square().sum(axes).scale(1.0 / (count as f32 - correction as f32).max(0.0))
    }

    /// Standard deviation over `axes`: the root of [`Tensor::var`]. Where it is 0 the gradient is 0.
    #[track_caller]
    #[must_use]
    pub fn std(&self, axes: &[usize], correction: usize) -> Tensor {
        self.var(axes, correction).sqrt_at_zero()
    }

    /// `(Σ |x|ᵖ)^(1/p)` over `axes`, which are removed (`torch.linalg.vector_norm`); with `p` infinite the largest
    /// `|x|`. With no axes: over all, to a scalar. The gradient of the norm of zeros is 0.
    #[track_caller]
    #[must_use]
    pub fn norm(&self, p: f32, axes: &[usize]) -> Tensor {
        match p {
            1.0 => self.abs().sum(axes),
            2.0 => self.square().sum(axes).sqrt_at_zero(),
            f32::INFINITY => self.abs().max(axes),
            f32::NEG_INFINITY => self.abs().min(axes),
            _ if p.is_finite() && p > 0.0 => {
                let sums = self.abs().powf(p).sum(axes);
                let none = sums.equal(&sums.fill_like([], 0.0));
                sums.add(&none).powf(1.0 / p).unmasked(&none)
            }
            _ => self.mistake(format!("norm of {} with p = {p}: it must be above 0", self.shape), []),
        }
    }

    /// `ln Σ eˣ` over `axes`, which are removed; with no axes: over all, to a scalar. The largest element is taken off
    /// before, so that nothing overflows.
    #[track_caller]
    #[must_use]
    pub fn logsumexp(&self, axes: &[usize]) -> Tensor {
        let most = self.detach().reduce_keep(Reduction::Max, axes);
        // Infinite maxima stay out of the difference: inf - inf is NaN.
        let finite = most
            .less(&most.fill_like([], f32::INFINITY))
            .mul(&most.greater(&most.fill_like([], f32::NEG_INFINITY)));
        let most = most.masked(&finite.maximum(&most.not_equal(&most)));
        let sums = self.sub(&most).exp().sum(axes);
        sums.log().add(&most.reshape(sums.shape()))
    }

    /// Softmax over any axis; see [`Tensor::softmax`].
    #[track_caller]
    #[must_use]
    pub fn softmax_over(&self, axis: usize) -> Tensor {
        self.along_last(axis, Location::caller(), Tensor::softmax)
    }

    /// Log-softmax over any axis; see [`Tensor::log_softmax`].
    #[track_caller]
    #[must_use]
    pub fn log_softmax_over(&self, axis: usize) -> Tensor {
        self.along_last(axis, Location::caller(), Tensor::log_softmax)
    }

    /// `y[i] = Σ x[j]` over `j ≤ i` along `axis`. Each of `log₂ n` steps adds the sums so far at twice the distance, so
    /// rounding errors grow with `log n`.
    #[track_caller]
    #[must_use]
    pub fn cumsum(&self, axis: usize) -> Tensor {
        let len = self.dim(axis);
        if axis >= self.shape.rank() {
            return self.mistake(format!("cumsum along axis {axis} of {}", self.shape), self.shape);
        }
        let steps =
            std::iter::successors(Some(1usize), |step| step.checked_mul(2)).take_while(|step| *step < len);
        steps.fold(self.clone(), |x, step| x.add(&x.slice(axis, 0..len - step).pad(axis, step, 0)))
    }

    /// `√x` with a gradient of 0 at 0, for norms and deviations.
    #[track_caller]
    fn sqrt_at_zero(&self) -> Tensor {
        let none = self.equal(&self.fill_like([], 0.0));
        self.add(&none).sqrt().unmasked(&none)
    }
}
