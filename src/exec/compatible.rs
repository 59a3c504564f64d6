//! Which plans may share a session, and which device may run them.

use super::held::Held;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::plan::{Plan, StorageId};

/// Checks that plans may share a session on a device; the position of the one with the most optimizer state.
pub(super) fn keeper(plans: &[&Plan], device: &Device) -> Result<usize> {
    let Some(first) = plans.first() else {
        return Err(Error::Option("a session needs at least one plan".to_owned()));
    };
    for plan in plans {
        fits(plan, device)?;
        same_parameters(first, plan)?;
    }
    let count = |plan: &Plan| lasting(plan).count();
    let most = plans.iter().map(|plan| count(plan)).max().unwrap_or(0);
    let keeper = plans.iter().position(|plan| count(plan) == most).unwrap_or(0);
    for plan in plans {
        same_state(plans[keeper], plan)?;
    }
    Ok(keeper)
}

/// Whether a session that ran one plan may go on with another: everything that lives from step to step is the same.
pub(super) fn same_lasting(before: &Plan, after: &Plan) -> Result<()> {
    same_parameters(before, after)?;
    same_state(before, after)?;
    let (before, after) = (lasting(before).count(), lasting(after).count());
    if before == after {
        return Ok(());
    }
    Err(Error::Option(format!(
        "the session keeps {before} tensors from step to step, the new plans keep {after}; they need the same optimizer"
    )))
}

/// Name and bytes of everything that lives from step to step.
fn lasting(plan: &Plan) -> impl Iterator<Item = (&str, u64)> {
    plan.program.storages.iter().filter(|s| s.persistent).map(|s| (s.name.as_str(), s.bytes))
}

/// A plan for larger limits than the device's is refused before any buffer is created.
fn fits(plan: &Plan, device: &Device) -> Result<()> {
    let (planned, has) = (&plan.limits, device.limits());
    let largest_arena = plan.layout.arenas().map(|(_, bytes)| bytes).max().unwrap_or(0);
    let spans = plan.program.launches.iter().flat_map(|(launch, _)| &launch.memory);
    let largest_binding = spans.map(|span| span.bytes).max().unwrap_or(0);
    let checks =
        [("a buffer", largest_arena, has.max_buffer), ("a binding", largest_binding, has.max_binding)];
    for (what, needs, most) in checks {
        if needs > most {
            return Err(Error::Option(format!(
                "the plan for `{}` needs {what} of {needs} bytes, `{}` allows {most}; plan with `device.limits()`",
                planned.name, has.name
            )));
        }
    }
    let slots = plan.program.launches.iter().map(|(launch, _)| launch.memory.len()).max().unwrap_or(0);
    if slots > has.max_storage_buffers as usize || planned.max_workgroups > has.max_workgroups {
        return Err(Error::Option(format!(
            "the plan for `{}` binds up to {slots} buffers and {} workgroups along a dimension, `{}` allows {} and {}; \
             plan with `device.limits()`",
            planned.name, planned.max_workgroups, has.name, has.max_storage_buffers, has.max_workgroups
        )));
    }
    if planned.min_subgroup > has.min_subgroup {
        return Err(Error::Option(format!(
            "the plan for `{}` counts on subgroups of {}, `{}` has {}; plan with `device.limits()`",
            planned.name, planned.min_subgroup, has.name, has.min_subgroup
        )));
    }
    Ok(())
}

/// State lies behind the parameters, in the order of its first use: one list must begin with the other.
fn same_state(keeper: &Plan, other: &Plan) -> Result<()> {
    match lasting(other).zip(lasting(keeper)).find(|(a, b)| a != b) {
        Some(((a, _), (b, _))) => Err(Error::Option(format!(
            "the plans of a session must keep the same optimizer state; one keeps `{a}` where another keeps `{b}`"
        ))),
        None => Ok(()),
    }
}

/// Programs place parameters alike only if they have the same.
fn same_parameters(first: &Plan, other: &Plan) -> Result<()> {
    let list = |plan: &Plan| -> Vec<_> {
        plan.graph().parameters.iter().map(|p| (p.name().to_owned(), p.shape())).collect()
    };
    if list(first) != list(other) {
        let message = "the plans of a session must be traced over the same parameters";
        return Err(Error::Option(message.to_owned()));
    }
    let bits = |plan: &Plan, i| Held::of(plan, StorageId(i as u32)).dtype;
    let held = |i: &usize| bits(first, *i) != bits(other, *i);
    match (0..first.graph().parameters.len()).find(held) {
        Some(i) => Err(Error::Option(format!(
            "the plans of a session must hold weights alike; one holds `{}` as {}, another as {}: see \
             `PlanOptions::weights` and `Forward::plan_with`",
            first.graph().parameters[i].name(),
            bits(first, i),
            bits(other, i)
        ))),
        None => Ok(()),
    }
}
