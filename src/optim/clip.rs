//! Gradient clipping, by value or by global norm.

use crate::error::{Error, Result};
use crate::graph::{Reduction, Tensor, ValueId};

/// Gradient clipping before the update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Clip {
    /// No clipping.
    #[default]
    Off,
    /// Clamps each element to ±this (`clip_grad_value_`).
    Value(f32),
    /// Scales all gradients so that the norm of all elements together is at most this (`clip_grad_norm_`). It
    /// needs every gradient at once, so none can be freed by its own update before the last one exists.
    Norm(f32),
}

impl Clip {
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Value(limit) | Self::Norm(limit) if limit.is_nan() || limit <= 0.0 => Err(Error::setting(
                "clip",
                format!("gradients cannot be clipped to {limit}; it must be above 0"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the clipped gradients and, if it was computed, their norm before.
    pub(super) fn append(self, gradients: Gradients) -> (Gradients, Option<Tensor>) {
        match self {
            Self::Off => (gradients, None),
            Self::Value(limit) => {
                (gradients.into_iter().map(|(id, g)| (id, g.clamp(-limit, limit))).collect(), None)
            }
            Self::Norm(limit) => {
                let Some(norm) = norm(&gradients) else { return (gradients, None) };
                // PyTorch's: min(1, limit / (norm + 1e-6))
                let factor = norm.offset(1e-6).recip().scale(limit).clamp(0.0, 1.0);
                (gradients.into_iter().map(|(id, g)| (id, g.mul(&factor))).collect(), Some(norm))
            }
        }
    }
}

/// Parameters with their gradients.
type Gradients = Vec<(ValueId, Tensor)>;

/// Returns the norm of all elements together; `None` if there are no gradients.
pub(super) fn norm(gradients: &[(ValueId, Tensor)]) -> Option<Tensor> {
    let sum_of_squares = |g: &Tensor| g.reduce_keep(Reduction::SumSquares, &[]).reshape([]);
    let sum = |split: bool| {
        let own = gradients.iter().filter(|(id, g)| g.trace().is_split(*id) == split);
        own.map(|(_, g)| sum_of_squares(g)).reduce(|sum, part| sum.add(&part))
    };
    // Of parameters of which this rank has a part, the other ranks have the rest.
    let (whole, parts) = (sum(false), sum(true).map(|parts| parts.sum_ranks()));
    let all = match (whole, parts) {
        (Some(whole), Some(parts)) => whole.add(&parts),
        (whole, parts) => whole.or(parts)?,
    };
    Some(all.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{PlanOptions, TrainStep};
    use crate::graph::{Init, LossScale, Params};
    use crate::limits::Limits;
    use crate::optim::{Optimizer, Sgd};
    use crate::reference::Twin;

    /// Returns what a step of SGD with learning rate 1 subtracts from two parameters whose gradients are 3
    /// and -4. It must be the same with and without a loss scale.
    fn taken(clip: Clip) -> [f64; 2] {
        let plain = stepped(clip, None);
        assert_eq!(stepped(clip, Some(LossScale { start: 1024.0, ..LossScale::default() })), plain);
        plain
    }

    fn stepped(clip: Clip, loss_scale: Option<LossScale>) -> [f64; 2] {
        let params = Params::new(0);
        let [a, b] = [("a", 3.0), ("b", -4.0)]
            .map(|(name, slope)| (params.add(name, [1], Init::Constant(0.0)), slope));
        let step = TrainStep::trace(&params, |trace| {
            trace.param(&a.0).scale(a.1).add(&trace.param(&b.0).scale(b.1)).sum(&[])
        });
        let optimizer = Optimizer::from(Sgd { lr: 1.0, ..Sgd::default() });
        let options = PlanOptions { optimizer, clip, loss_scale, ..PlanOptions::default() };
        let plan = step.and_then(|step| step.plan(&options, &Limits::default())).expect("planned");
        let mut twin = Twin::new(plan.graph());
        twin.set_step(&optimizer.scalars(0, 1.0, 0));
        twin.run().expect("it runs");
        ["a", "b"].map(|name| -twin.parameter(name).expect("there")[0])
    }

    #[test]
    fn a_norm_above_the_limit_is_scaled_to_it_and_one_below_is_left_alone() {
        assert_eq!(taken(Clip::Off), [3.0, -4.0]);
        // The norm is 5, so these limits change nothing.
        for limit in [5.1, 6.0, 1e6] {
            assert_eq!(taken(Clip::Norm(limit)), [3.0, -4.0], "norm at most {limit}");
        }
        for limit in [4.9, 1.0, 1e-3] {
            let shrunk = taken(Clip::Norm(limit));
            let share = f64::from(limit) / (5.0 + 1e-6);
            for (shrunk, whole) in shrunk.iter().zip([3.0, -4.0]) {
                assert!(
                    (shrunk / (share * whole) - 1.0).abs() < 1e-6,
                    "norm at most {limit}: {shrunk} of {whole}"
                );
            }
        }
    }

    #[test]
    fn values_are_cut_on_both_sides() {
        assert_eq!(taken(Clip::Value(3.5)), [3.0, -3.5]);
        assert_eq!(taken(Clip::Value(0.5)), [0.5, -0.5]);
    }
}
