//! Measures the memory bandwidth of the adapter by copies.

use wgrad::Result;
use wgrad::device::Device;
use wgrad::limits::AdapterClass;

use super::timing::time;

/// Copies four vec4 a thread, each contiguous over the workgroup.
const KERNEL: &str = "
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * 1024u + thread;
    for (var i = first; i < first + 1024u; i += 256u) {
        b[i] = a[i];
    }
}";
/// Rounds of each way to copy.
const ROUNDS: u32 = 2;
/// Bytes that a workgroup of [`KERNEL`] copies.
const OF_GROUP: u64 = 16 * 1024;

/// Returns the bytes read and written per second when one buffer is copied to another, by a copy command or by a
/// kernel, whichever is faster: the engines that execute copy commands on an H100 reach a quarter of its bandwidth.
pub fn bandwidth(device: &Device) -> Result<f64> {
    let bytes: u64 = match device.limits().class {
        AdapterClass::Cpu => 32 << 20,
        AdapterClass::Integrated | AdapterClass::Discrete => 256 << 20,
    };
    let bytes = bytes.min(device.limits().max_binding) / OF_GROUP * OF_GROUP;
    let gpu = device.wgpu_device();
    let buffer = |usage| {
        let usage = usage | wgpu::BufferUsages::STORAGE;
        gpu.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage,
            mapped_at_creation: false,
        })
    };
    let (from, to) = (buffer(wgpu::BufferUsages::COPY_SRC), buffer(wgpu::BufferUsages::COPY_DST));
    let source = wgpu::ShaderSource::Wgsl(KERNEL.into());
    let module = gpu.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let pipeline = gpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let bindings = gpu.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[
            wgpu::BindGroupEntry { binding: 0, resource: from.as_entire_binding() },
            wgpu::BindGroupEntry { binding: 1, resource: to.as_entire_binding() },
        ],
    });
    let groups = (bytes / OF_GROUP) as u32;
    let submit = |record: &dyn Fn(&mut wgpu::CommandEncoder)| {
        let mut encoder = gpu.create_command_encoder(&Default::default());
        record(&mut encoder);
        device.wgpu_queue().submit([encoder.finish()]);
        Ok(())
    };
    let by_command = time(device, ROUNDS, |times| {
        submit(&|encoder| {
            (0..times).for_each(|_| encoder.copy_buffer_to_buffer(&from, 0, &to, 0, bytes));
        })
    })?;
    let by_kernel = time(device, ROUNDS, |times| {
        submit(&|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &bindings, &[]);
            (0..times).for_each(|_| pass.dispatch_workgroups(groups, 1, 1));
        })
    })?;
    Ok(2.0 * bytes as f64 / by_command.wall.min(by_kernel.wall))
}
