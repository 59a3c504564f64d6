//! Checks that need no device: gradients of a traced network, and those of its plan, computed by the
//! reference.

use super::measure::{Allowed, Difference, Moved, largest, rounding};
use super::network::Network;
use super::outcome::{Outcome, starts};
use super::reference::{Reference, SLOPE, Tensors};
use super::settings::Settings;
use crate::compile::PlanOptions;
use crate::dtype::{DType, Precision};
use crate::error::Result;
use crate::optim::{Clip, Optimizer, Sgd};
use crate::reference::Twin;

/// Compares the traced graph's gradients with finite differences, and the plan's gradients with those of the
/// traced graph.
pub(super) fn gradients(network: &Network, settings: &Settings) -> Result<Vec<Difference>> {
    let Settings { options, limits, .. } = settings;
    // With this optimizer the state after a step is the gradient.
    let optimizer: Optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
    let plan = network.step.plan(&PlanOptions { optimizer, ..*options }, limits)?;
    let scalars = optimizer.scalars(0, 0.0, plan.seed);
    let starts = starts(plan.graph(), &Twin::new(plan.graph()))?;
    let slope = Reference::slope_error(network, &starts, &scalars)? / SLOPE;
    let mut found =
        vec![Difference { what: "gradient as traced: not the slope of the loss".to_owned(), error: slope }];

    let parts = options.accumulate as usize;
    let whole = |perturbation| Reference::of(network, parts, &starts, &scalars, perturbation);
    let unclipped = whole(None)?;
    // A clipped value has rounding errors relative to its unclipped size.
    let largest_of_all = largest(&unclipped.gradients);
    let expected = unclipped.clipped(options.clip);
    let actual = Outcome::of_twin(&plan, network, 1, None, None)?;
    if actual.states.get("loss_scale").is_some_and(|state| state[2] > 0.0) {
        let start = options.loss_scale.map_or(1.0, |scale| f64::from(scale.start));
        let most = f64::from(options.precision.storage().unwrap_or(DType::F32).largest());
        // The factor 0.9 allows for the rounding of the plan's gradients.
        if largest_of_all * start < 0.9 * most {
            let what = format!("the step is skipped for a scaled gradient of {:e}", largest_of_all * start);
            found.push(Difference { what, error: f64::INFINITY });
        }
        return Ok(found);
    }
    let gradients: Tensors = expected
        .gradients
        .keys()
        .filter_map(|name| {
            Some((name.clone(), actual.states.get(&format!("{name}.momentum_buffer"))?.clone()))
        })
        .collect();
    if gradients.len() != expected.gradients.len()
        || actual.states.keys().filter(|n| n.ends_with("momentum_buffer")).count() != gradients.len()
    {
        let what =
            format!("{} gradients for {} trained parameters", gradients.len(), expected.gradients.len());
        found.push(Difference { what, error: f64::INFINITY });
    }
    let size = rounding(options);
    // A gradient that is 0 by cancellation has the rounding errors of its terms.
    let floor = if options.precision == Precision::F32 { 2e-6 } else { size };
    let jump = match options.clip {
        Clip::Value(_) => floor * 0.1 * largest_of_all,
        _ => 0.0,
    };
    let losses = |loss: f64| Tensors::from([("loss".to_owned(), vec![loss])]);
    let mut moved = Moved::new(size, |perturbation| {
        let reference = whole(Some(perturbation))?.clipped(options.clip);
        Ok([reference.gradients, losses(reference.loss)])
    });
    let allowed = Allowed { floor, jump };
    found.push(moved.measured("gradient of the plan:", 0, &gradients, &expected.gradients, &allowed)?);
    let [loss, should] = [losses(actual.outputs["loss"][0]), losses(expected.loss)];
    let allowed = Allowed { floor: 2e-6, jump: 0.0 };
    found.push(moved.measured("loss of the plan:", 1, &loss, &should, &allowed)?);
    Ok(found)
}
