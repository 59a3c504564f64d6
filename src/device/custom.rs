//! The check of a model's own kernels, before the driver compiles them.

use wgpu::naga::ShaderStage;
use wgpu::naga::front::wgsl;
use wgpu::naga::valid::{Capabilities, GlobalUse, ValidationFlags, Validator};

use super::pipelines::CustomSource;
use crate::error::{Error, Result};

/// Checks the source of a kernel that a model wrote: that it is valid WGSL with an entry point `main` of `custom.workgroup`
/// threads, that it declares no bindings, and writes the last of those in `slots` alone.
///
/// # Errors
/// [`Error::Kernel`] with the first line that is wrong.
pub(super) fn check(name: &str, source: &str, slots: &[u32], custom: CustomSource) -> Result<()> {
    // What the model wrote; declarations come after it.
    let own = source.rfind(custom.appended).unwrap_or(source.len());
    let lines = source[..own].lines().count() as u32;
    let wrong = |line: Option<u32>, message: String| {
        let line = line.filter(|line| *line <= lines).unwrap_or(0);
        Err(Error::Kernel { name: name.to_owned(), line, message })
    };
    let module = match wgsl::parse_str(source) {
        Ok(module) => module,
        Err(e) => {
            let message = [e.message()].into_iter().chain(e.notes()).collect::<Vec<_>>().join("; ");
            return wrong(e.location(source).map(|at| at.line_number), message);
        }
    };
    let info = match Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module) {
        Ok(info) => info,
        Err(e) => {
            let line = e.location(source).map(|at| at.line_number);
            let mut messages = vec![e.as_inner().to_string()];
            let mut cause = std::error::Error::source(e.as_inner());
            while let Some(inner) = cause {
                messages.push(inner.to_string());
                cause = inner.source();
            }
            return wrong(line, messages.join(": "));
        }
    };
    let [entry] = &module.entry_points[..] else {
        return wrong(None, format!("it has {} entry points, not one", module.entry_points.len()));
    };
    let (size, workgroup) = (entry.workgroup_size, custom.workgroup);
    if entry.name != "main" || entry.stage != ShaderStage::Compute || size != [workgroup, 1, 1] {
        let message = format!(
            "its entry point is `{}` with workgroups of {size:?}; write `@compute @workgroup_size(WORKGROUP) fn main`, \
             WORKGROUP being {workgroup}",
            entry.name
        );
        return wrong(None, message);
    }
    let uses = info.get_entry_point(0);
    let result = slots.last().copied();
    for (handle, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let variable = variable.name.as_deref().unwrap_or_default();
        let span = module.global_variables.get_span(handle);
        if span.to_range().is_none_or(|range| range.start < own) {
            let message = format!("`{variable}` is a binding; declare it with `KernelCall::input`");
            return wrong(Some(span.location(source).line_number), message);
        }
        let is_written = uses[handle].contains(GlobalUse::WRITE);
        let is_result = Some(binding.binding) == result;
        if is_result && !is_written {
            return wrong(None, format!("it never writes its result `{variable}`"));
        }
        if is_written && !is_result {
            return wrong(None, format!("it writes `{variable}`, which is an input; results go to `y`"));
        }
    }
    Ok(())
}
