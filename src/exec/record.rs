//! Translation of launches to what a compute pass needs: pipelines, bind groups, uniforms.

use super::ledger::{Ledger, Purpose};
use crate::compile::{PARAMS_SLOT, Plan};
use crate::device::{Buffer, CustomSource, Device, PipelineSource};
use crate::error::Result;
use crate::graph::CustomKernel;
use crate::kernels::Launch;

/// A dispatch that is ready to be encoded.
pub(super) struct Ready {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) group: wgpu::BindGroup,
    pub(super) grid: [u32; 3],
}

/// Encodes dispatches; a pipeline is set only where it changes.
pub(super) fn encode<'a>(pass: &mut wgpu::ComputePass<'_>, launches: impl IntoIterator<Item = &'a Ready>) {
    let mut current: Option<&wgpu::ComputePipeline> = None;
    for launch in launches {
        if current != Some(&launch.pipeline) {
            pass.set_pipeline(&launch.pipeline);
            current = Some(&launch.pipeline);
        }
        pass.set_bind_group(0, &launch.group, &[]);
        let [x, y, z] = launch.grid;
        pass.dispatch_workgroups(x, y, z);
    }
}

/// Compiles the pipelines of all launches.
pub(super) fn prepare<M>(device: &Device, launches: &[(Launch<M>, usize)]) -> Result<()> {
    let class = device.limits().class;
    let kernels = launches.iter().map(|(launch, _)| &launch.kernel);
    let texts: Vec<_> = kernels.map(|kernel| move || kernel.source_for(class)).collect();
    let mut sources = Vec::new();
    for ((launch, _), wgsl) in launches.iter().zip(&texts) {
        sources.push(source(launch, wgsl));
    }
    device.prepare(&sources)
}

/// Returns the pipeline for a launch.
pub(super) fn pipeline<M>(device: &Device, launch: &Launch<M>) -> Result<wgpu::ComputePipeline> {
    let class = device.limits().class;
    let kernel = &launch.kernel;
    device.pipeline(&source(launch, &|| kernel.source_for(class)))
}

fn source<'a, M>(launch: &'a Launch<M>, wgsl: &'a (dyn Fn() -> String + Sync)) -> PipelineSource<'a> {
    let Launch { kernel, constants, .. } = launch;
    let own = CustomSource { workgroup: kernel.workgroup, appended: CustomKernel::APPENDED };
    let custom = kernel.is_custom().then_some(own);
    PipelineSource { name: &kernel.name, key: kernel.key(), wgsl, slots: &kernel.slots, constants, custom }
}

/// Creates the bind group of launch number `index`; `place` returns buffer, offset and bytes of each memory
/// operand.
pub(super) fn group<'a, M>(
    device: &Device,
    launch: &Launch<M>,
    uniforms: &wgpu::Buffer,
    index: usize,
    place: impl Fn(&M) -> (&'a wgpu::Buffer, u64, u64),
) -> wgpu::BindGroup {
    let binding = |buffer, offset, bytes| {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: wgpu::BufferSize::new(bytes),
        })
    };
    let params = binding(uniforms, index as u64 * PARAMS_SLOT, PARAMS_SLOT);
    let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: params }];
    for (&slot, memory) in launch.kernel.slots.iter().zip(&launch.memory) {
        let (buffer, offset, bytes) = place(memory);
        entries.push(wgpu::BindGroupEntry { binding: slot, resource: binding(buffer, offset, bytes) });
    }
    device.wgpu_device().create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(&launch.kernel.name),
        layout: &device.bind_group_layout(&launch.kernel.slots),
        entries: &entries,
    })
}

/// Creates the buffer with the `Params` of every launch of a plan; `None` for a plan without launches.
pub(super) fn uniforms(plan: &Plan, ledger: &mut Ledger) -> Result<Option<Buffer>> {
    let params: Vec<&Vec<u32>> = plan.program.launches.iter().map(|(launch, _)| &launch.params).collect();
    if params.is_empty() { Ok(None) } else { uniform_buffer(&params, ledger).map(Some) }
}

/// Creates a buffer with each `Params` in a slot of 256 bytes.
pub(super) fn uniform_buffer(params: &[&Vec<u32>], ledger: &mut Ledger) -> Result<Buffer> {
    let bytes = params.len() as u64 * PARAMS_SLOT;
    let buffer = ledger.create("uniforms", bytes, Purpose::Uniforms)?;
    let mut words = vec![0u32; bytes as usize / 4];
    for (words, slot) in params.iter().zip(words.chunks_mut(PARAMS_SLOT as usize / 4)) {
        slot[..words.len()].copy_from_slice(words);
    }
    let mut view =
        buffer.get_mapped_range_mut(..).map_err(|e| ledger.device.refused("to write uniforms", &e))?;
    view.copy_from_slice(bytemuck::cast_slice(&words));
    drop(view);
    buffer.unmap();
    Ok(buffer)
}
