//! An app with its own wgpu device takes its buffers from a pool: few large buffers in place of many small
//! ones, and statistics that show where the memory is.
//!
//! `cargo run --release --example pool_in_app && wgrad replay target/pool_in_app.csv`

use wgrad::Bytes;
use wgrad::memory::trace::write_events;
use wgrad::memory::{Backing, Block, Pool, PoolOptions, Request};

/// All bindings of a bind group are `read_write`: wgpu tracks whole buffers, and blocks may share one.
const MOVE: &str = "
@group(0) @binding(0) var<storage, read_write> position: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> velocity: array<vec4f>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&position) { position[id.x] += 0.5 * velocity[id.x]; }
}";
const SPECIES: [(&str, u32); 3] = [("sparks", 40_000), ("smoke", 250_000), ("rain", 1_000_000)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    let descriptor = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
    let buffer = |device: &wgpu::Device, label, size, usage| {
        let mapped_at_creation = false;
        device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation })
    };

    // This closure creates the pages that the pool requests. If the device refuses, the pool first releases
    // its idle pages and then reports which block did not fit.
    let pages = |bytes| -> Result<wgpu::Buffer, wgpu::Error> {
        let scope = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::STORAGE;
        let page = buffer(&device, "pool page", bytes, usage);
        pollster::block_on(scope.pop()).map_or(Ok(page), Err)
    };
    let max_page = adapter.limits().max_buffer_size;
    let mut pool = Pool::new(PoolOptions { max_page, events: 10_000, ..PoolOptions::default() }, pages)?;

    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("move"),
        source: wgpu::ShaderSource::Wgsl(MOVE.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("move"),
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut particles: Vec<[Block; 2]> = Vec::new();
    for (species, count) in SPECIES {
        let mut new = |property: &str, value: f32| {
            let bytes = u64::from(count) * 16;
            let block = pool.alloc(Request::new(bytes, &format!("{species}.{property}"), "particles"))?;
            let page = pool.page(block.page).expect("a live block has a page");
            queue.write_buffer(page, block.offset, bytemuck::cast_slice(&vec![value; count as usize * 4]));
            Ok::<Block, wgrad::memory::AllocError>(block)
        };
        let blocks = [new("position", 1.0)?, new("velocity", 4.0)?];
        let binding = |binding, block: Block| {
            let page = pool.page(block.page).expect("a live block has a page");
            let size = wgpu::BufferSize::new(u64::from(count) * 16);
            let range = wgpu::BufferBinding { buffer: page, offset: block.offset, size };
            wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(range) }
        };
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(species),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[binding(0, blocks[0]), binding(1, blocks[1])],
        });
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(count.div_ceil(64), 1, 1);
        particles.push(blocks);
    }
    let first = particles[0][0];
    let readback =
        buffer(&device, "readback", 16, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let page = pool.page(first.page).expect("a live block has a page");
    encoder.copy_buffer_to_buffer(page, first.offset, &readback, 0, 16);
    queue.submit([encoder.finish()]);
    readback.map_async(wgpu::MapMode::Read, .., |result| result.expect("a buffer of this app"));
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let position: Vec<f32> = bytemuck::pod_collect_to_vec(&readback.get_mapped_range(..)?);
    println!("the first spark moved from 1 to {}\n", position[0]);
    print_statistics("three kinds of particles", &pool);

    // The rain stops. Work that is submitted later runs later, so its memory can be reused at once.
    for block in particles.pop().into_iter().flatten() {
        pool.free(block)?;
    }
    println!("trim gave {} back to the device\n", Bytes(pool.trim()));
    print_statistics("no rain", &pool);
    let path = std::env::args().nth(1).unwrap_or_else(|| "target/pool_in_app.csv".to_owned());
    std::fs::write(&path, write_events(pool.log().events()))?;
    println!("event log, for `wgrad replay`: {path}");
    Ok(())
}

/// Prints statistics under PyTorch's names, for comparison with `torch.cuda.memory_stats()`.
fn print_statistics<B: Backing>(when: &str, pool: &Pool<B>) {
    let stats = pool.stats();
    println!("{when:<30} {:>12} {:>12}", "current", "peak");
    let bytes = [("requested", stats.requested), ("allocated", stats.allocated), ("active", stats.active)];
    let more = [("reserved", stats.reserved), ("inactive_split", stats.inactive_split)];
    for (name, stat) in bytes.into_iter().chain(more) {
        println!("  {name:<28} {:>12} {:>12}", Bytes(stat.current).to_string(), Bytes(stat.peak).to_string());
    }
    println!("  {:<28} {:>12} {:>12}", "segment", stats.segments.current, stats.segments.peak);
    println!("  {:<28} {:>11.1}%\n", "fragmentation", stats.fragmentation() * 100.0);
}
