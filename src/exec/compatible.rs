//! Which plans may share a session, and which device may run them.

use std::collections::BTreeMap;

use super::state_layout::StateLayout;
use crate::compile::{Plan, Region, Storage, StorageId};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::{Class, PartOf, Value};

/// Checks that plans may share a session on a device. Returns the position of the plan with the most
/// optimizer state.
pub(super) fn state_plan(plans: &[&Plan], device: &Device) -> Result<usize> {
    let Some(first) = plans.first() else {
        return Err(Error::PlanMismatch("a session needs at least one plan".to_owned()));
    };
    for plan in plans {
        fits(plan, device)?;
        same_parameters(first, plan)?;
        same_shards(first, plan)?;
    }
    let count = |plan: &Plan| lasting(plan).count();
    let most = plans.iter().map(|plan| count(plan)).max().unwrap_or(0);
    let state_plan = plans.iter().position(|plan| count(plan) == most).unwrap_or(0);
    for plan in plans {
        same_tensors(plans[state_plan], plan)?;
    }
    Ok(state_plan)
}

/// Checks that a session that ran one plan may continue with another: both must have the same parameters and
/// optimizer state, wherever these are stored.
pub(super) fn same_state(before: &Plan, after: &Plan) -> Result<()> {
    same_parameters(before, after)?;
    let all = |plan: &Plan| -> BTreeMap<String, u64> {
        lasting(plan).map(|s| (s.name.clone(), s.used_bytes)).collect()
    };
    let other = difference(&all(before), &all(after));
    match other
        .or_else(|| difference(&parts(before, Class::is_persistent), &parts(after, Class::is_persistent)))
    {
        None => Ok(()),
        Some(name) => Err(Error::PlanMismatch(format!(
            "the session and the new plans do not both keep `{name}` from step to step; they need the same \
             optimizer, and to shard its state alike"
        ))),
    }
}

/// Returns a name that only one of two lists has, or that has different places in them.
fn difference<T: PartialEq>(a: &BTreeMap<String, T>, b: &BTreeMap<String, T>) -> Option<String> {
    let of = |a: &BTreeMap<String, T>, b: &BTreeMap<String, T>| {
        a.iter().find(|(name, bytes)| b.get(*name) != Some(bytes)).map(|(name, _)| name.clone())
    };
    of(a, b).or_else(|| of(b, a))
}

/// Returns the storages of parameters and optimizer state, in the order of the plan.
fn lasting(plan: &Plan) -> impl Iterator<Item = &Storage> {
    plan.program.storages.iter().filter(|s| s.is_state())
}

/// Refuses a plan that was made for larger limits than the device's, before any buffer is created.
fn fits(plan: &Plan, device: &Device) -> Result<()> {
    let (planned, has) = (&plan.limits, device.limits());
    let largest_arena = plan.layout.arenas().map(|(_, bytes)| bytes).max().unwrap_or(0);
    let spans = plan.program.launches.iter().flat_map(|(launch, _)| &launch.memory);
    let largest_binding = spans.map(|span| span.bytes).max().unwrap_or(0);
    let checks =
        [("a buffer", largest_arena, has.max_buffer), ("a binding", largest_binding, has.max_binding)];
    for (what, needs, most) in checks {
        if needs > most {
            return Err(Error::PlanMismatch(format!(
                "the plan for `{}` needs {what} of {needs} bytes, `{}` allows {most}; plan with `device.limits()`",
                planned.name, has.name
            )));
        }
    }
    let slots = plan.program.launches.iter().map(|(launch, _)| launch.memory.len()).max().unwrap_or(0);
    if slots > has.max_storage_buffers as usize || planned.max_workgroups > has.max_workgroups {
        return Err(Error::PlanMismatch(format!(
            "the plan for `{}` binds up to {slots} buffers and {} workgroups along a dimension, `{}` allows {} and {}; \
             plan with `device.limits()`",
            planned.name, planned.max_workgroups, has.name, has.max_storage_buffers, has.max_workgroups
        )));
    }
    if planned.min_subgroup > has.min_subgroup {
        return Err(Error::PlanMismatch(format!(
            "the plan for `{}` counts on subgroups of {}, `{}` has {}; plan with `device.limits()`",
            planned.name, planned.min_subgroup, has.name, has.min_subgroup
        )));
    }
    if planned.kernels.long_words && !has.kernels.long_words {
        return Err(Error::PlanMismatch(format!(
            "the plan for `{}` counts on words of 64 bits in shaders, `{}` has none; plan with `device.limits()`",
            planned.name, has.name
        )));
    }
    let offered = &device.adapter().cooperative;
    if let Some(cooperative) = planned.kernels.cooperative.filter(|planned| !offered.contains(planned)) {
        let offered = offered.first().map_or_else(|| "none".to_owned(), |offered| offered.to_string());
        return Err(Error::PlanMismatch(format!(
            "the plan for `{}` counts on cooperative matrices of {cooperative}, `{}` has {offered}; plan with \
             `Device::target`",
            planned.name, has.name
        )));
    }
    Ok(())
}

/// Returns the names, bytes, bytes in a buffer and regions of the parameters and optimizer state on the device.
pub(super) fn places(plan: &Plan) -> impl Iterator<Item = (&str, (u64, u64, Region))> {
    let storages = plan.program.storages.iter().zip(&plan.layout.regions);
    let lasting = storages.filter(|(s, _)| s.persistent);
    lasting.map(|(s, region)| (s.name.as_str(), (s.bytes, s.in_buffer, *region)))
}

/// Checks that the parameters and optimizer state that a plan keeps on the device have the same places in the
/// state_plan. Offloaded state is found by name, so it only needs the same names and sizes.
fn same_tensors(state_plan: &Plan, other: &Plan) -> Result<()> {
    let known: BTreeMap<_, _> = places(state_plan).collect();
    let elsewhere = places(other).find(|(name, place)| known.get(name) != Some(place));
    let away = |plan: &Plan| -> BTreeMap<String, u64> {
        lasting(plan).filter(|s| s.offloaded).map(|s| (s.name.clone(), s.bytes)).collect()
    };
    let (all, some) = (away(state_plan), away(other));
    // A plan without offloaded state is an evaluation.
    let missing = if some.is_empty() { None } else { difference(&all, &some) };
    match elsewhere.map(|(name, _)| name.to_owned()).or(missing) {
        None => Ok(()),
        Some(name) => Err(Error::PlanMismatch(format!(
            "the plans of a session must keep the same optimizer state in the same places, and `{name}` is not where another \
             plan has it; they must train the same parameters with the same optimizer, for the same limits, and with \
             `Recompute::Auto` a training step is planned beside the other by `TrainStep::plan_beside`"
        ))),
    }
}

/// Returns the parts of tensors of some classes that a plan's rank has, by name, and their numbers of elements.
fn parts(plan: &Plan, of: impl Fn(Class) -> bool) -> BTreeMap<String, (PartOf, u64)> {
    let values = plan.graph().values.iter().filter(|value| of(value.class));
    let part = |value: &Value| Some((value.name.clone(), (value.part_of?, value.shape.numel())));
    values.filter_map(part).collect()
}

/// Checks that two plans have the same parts of parameters.
fn same_shards(first: &Plan, other: &Plan) -> Result<()> {
    let parts = |plan| parts(plan, |class| class == Class::Parameter);
    match difference(&parts(first), &parts(other)) {
        None => Ok(()),
        Some(name) => Err(Error::PlanMismatch(format!(
            "one plan of the session has another part of `{name}` than another one: plan a forward pass \
             beside a training plan that shards parameters with `Forward::plan_beside`"
        ))),
    }
}

/// Checks that two plans have the same parameters in the same element types. Only then do they place them
/// alike.
fn same_parameters(first: &Plan, other: &Plan) -> Result<()> {
    let list = |plan: &Plan| -> Vec<_> {
        plan.graph().parameters.iter().map(|p| (p.name().to_owned(), p.shape())).collect()
    };
    if list(first) != list(other) {
        let message = "the plans of a session must be traced over the same parameters";
        return Err(Error::PlanMismatch(message.to_owned()));
    }
    let bits = |plan: &Plan, i| StateLayout::of(plan, StorageId(i as u32)).dtype;
    let held = |i: &usize| bits(first, *i) != bits(other, *i);
    match (0..first.graph().parameters.len()).find(held) {
        Some(i) => Err(Error::PlanMismatch(format!(
            "the plans of a session must hold weights alike; one holds `{}` as {}, another as {}: see \
             `PlanOptions::weights` and `Forward::plan_with`",
            first.graph().parameters[i].name(),
            bits(first, i),
            bits(other, i)
        ))),
        None => Ok(()),
    }
}
