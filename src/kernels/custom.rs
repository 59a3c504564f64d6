//! Kernels of a model's own: the bindings that are appended to their source, and their one dispatch.

use std::fmt::Write;

use super::grid::per_thread;
use super::{Kernel, Launch, Operand, Site};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::CustomKernel;
use crate::shape::Shape;

pub(super) fn custom(site: &Site, own: &CustomKernel) -> Result<Launch<Operand>> {
    let threads = own.threads.unwrap_or(site.output().numel());
    let (groups, max) = (threads.div_ceil(u64::from(own.workgroup)), u64::from(site.limits.max_workgroups));
    if groups > max * max {
        let adapter = &site.limits.name;
        return Err(Error::unsupported(
            adapter,
            format!(
                "kernel `{}`: {threads} threads are {groups} workgroups of {}, `{adapter}` runs at most {max} × {max} at \
                 once; use larger workgroups, or more than one element for each thread",
                own.name, own.workgroup
            ),
        ));
    }
    let results = site.inputs.len() as u32 + 1;
    let source = with_bindings(own, site.inputs);
    let kernel = Kernel::custom(&own.name, source, (1..=results).collect(), own.workgroup);
    let memory = (0..site.inputs.len()).map(Operand::Input).chain([Operand::Output(0)]).collect();
    Ok(per_thread(site, &kernel, threads, memory, &[]))
}

/// Returns the model's source with the declarations after it, so that its lines keep their numbers.
fn with_bindings(own: &CustomKernel, inputs: &[(Shape, DType)]) -> String {
    let mut source = own.source.to_string();
    source.push_str(CustomKernel::APPENDED);
    source.push_str("@group(0) @binding(0) var<uniform> grid_: Grid;\n");
    source.push_str("fn thread_of(id: vec3<u32>) -> u32 { return id.y * grid_.threads_x + id.x; }\n");
    let _ = writeln!(source, "const WORKGROUP = {}u;", own.workgroup);
    let result = (&CustomKernel::RESULT.to_owned(), &own.result);
    for (i, (name, (shape, dtype))) in own.names.iter().zip(inputs).chain([result]).enumerate() {
        let (slot, len) = (i + 1, shape.numel());
        let _ =
            writeln!(source, "@group(0) @binding({slot}) var<storage, read_write> {name}: array<{dtype}>;");
        let _ = writeln!(source, "const {name}_len = {len}u;");
        if shape.rank() > 0 {
            let dims: Vec<String> = shape.dims().iter().map(|dim| format!("{dim}u")).collect();
            let (rank, dims) = (shape.rank(), dims.join(", "));
            let _ = writeln!(source, "const {name}_shape = array<u32, {rank}>({dims});");
        }
    }
    source
}
