//! An app with a render loop and no window: each frame trains a little and draws what has been learnt. The device,
//! the queue and the picture are the app's; the parameters are drawn from where the session keeps them, without a copy
//! to the host.
//!
//! `cargo run --release --example in_app`

use wgrad::prelude::*;
use wgrad::wgpu;

type Failure = Box<dyn std::error::Error>;

const FRAMES: usize = 40;
const STEPS_PER_FRAME: usize = 3;
const POINTS: usize = 64;
const WIDTH: u32 = 64;
const HEIGHT: u32 = 24;

/// Draws the line `y = slope x + offset` over `-1..1`, as thick as a pixel.
const DRAW: &str = "
@group(0) @binding(0) var<storage, read> line: array<f32>;
@vertex
fn corner(@builtin(vertex_index) i: u32) -> @builtin(position) vec4<f32> {
    return vec4(f32(i / 2u) * 4.0 - 1.0, f32(i % 2u) * 4.0 - 1.0, 0.0, 1.0);
}
@fragment
fn color(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
    let x = at.x / 64.0 * 2.0 - 1.0;
    let y = 4.0 - at.y / 24.0 * 8.0;
    return vec4(vec3(f32(abs(y - (line[0] * x + line[1])) < 0.17)), 1.0);
}";

fn main() -> Result<(), Failure> {
    // The setup that an app with a window has already done.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    // wgrad's features, limits and memory hints; an app adds here what else it needs.
    let descriptor = wgrad::device::descriptor(&adapter);
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
    let picture = Picture::new(&device);

    // Handles are cheap to clone; the app keeps its own.
    let shared = Device::from_wgpu(device.clone(), queue.clone());
    println!("{shared}");

    // Fits y = 3x - 1 to points that the app has on the device.
    let params = Params::new(1);
    let line = Linear::new(&params.scope("line"), 1, 1);
    let step = TrainStep::trace(&params, |g| {
        line.forward(&g.input("x", [POINTS, 1])).mse(&g.input("y", [POINTS, 1]))
    })?;
    let options =
        PlanOptions { optimizer: Sgd { lr: 0.03, ..Sgd::default() }.into(), ..PlanOptions::default() };
    let mut session = Session::new(&shared, &step.plan(&options, shared.limits())?)?;
    let x: Vec<f32> = (0..POINTS).map(|i| i as f32 / 32.0 - 1.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 3.0 * x - 1.0).collect();
    let points = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("points"),
        size: 8 * POINTS as u64,
        usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    queue.write_buffer(&points, 0, &[bytes(&x), bytes(&y)].concat());
    session.feed_from_device(ProgramId(0), "x", &points, 0)?;
    session.feed_from_device(ProgramId(0), "y", &points, 4 * POINTS as u64)?;

    for _ in 0..FRAMES {
        for _ in 0..STEPS_PER_FRAME {
            session.step()?;
        }
        // Submitted after the steps: the frame shows their result.
        let mut frame = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for (i, name) in ["line.weight", "line.bias"].into_iter().enumerate() {
            let parameter = session.parameter_on_device(name)?;
            frame.copy_buffer_to_buffer(parameter.buffer, parameter.offset, &picture.line, 4 * i as u64, 4);
        }
        picture.draw(&mut frame);
        queue.submit([frame.finish()]);
    }
    print!("{}", picture.text(&shared)?);
    println!("loss {:.1e}; {} created on the app's device", session.loss()?, Bytes(session.device_bytes()));
    if let Some(driver) = shared.driver_memory() {
        println!("{} reserved by wgpu for all of the app", Bytes(driver.reserved));
    }
    Ok(())
}

/// What the app draws, and with what.
struct Picture {
    line: wgpu::Buffer,
    texture: wgpu::Texture,
    pipeline: wgpu::RenderPipeline,
    bindings: wgpu::BindGroup,
    /// To print the last frame.
    download: wgpu::Buffer,
}

impl Picture {
    fn new(device: &wgpu::Device) -> Self {
        let buffer = |label, size, usage| {
            let descriptor =
                wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
            device.create_buffer(&descriptor)
        };
        let line = buffer("line", 8, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST);
        let download = buffer(
            "last frame",
            u64::from(4 * WIDTH * HEIGHT),
            wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        );
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("frame"),
            size: wgpu::Extent3d { width: WIDTH, height: HEIGHT, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba8Unorm,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("draw"),
            source: wgpu::ShaderSource::Wgsl(DRAW.into()),
        });
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: Some("draw"),
            layout: None,
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some("corner"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                buffers: &[],
            },
            primitive: wgpu::PrimitiveState::default(),
            depth_stencil: None,
            multisample: wgpu::MultisampleState::default(),
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some("color"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                targets: &[Some(texture.format().into())],
            }),
            multiview_mask: None,
            cache: None,
        });
        let bindings = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("draw"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: line.as_entire_binding() }],
        });
        Self { line, texture, pipeline, bindings, download }
    }

    fn draw(&self, frame: &mut wgpu::CommandEncoder) {
        let view = self.texture.create_view(&wgpu::TextureViewDescriptor::default());
        let mut pass = frame.begin_render_pass(&wgpu::RenderPassDescriptor {
            label: Some("draw"),
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations {
                    load: wgpu::LoadOp::Clear(wgpu::Color::BLACK),
                    store: wgpu::StoreOp::Store,
                },
            })],
            ..wgpu::RenderPassDescriptor::default()
        });
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        pass.draw(0..3, 0..1);
    }

    /// The last frame as text; an app with a window presents it instead.
    fn text(&self, device: &Device) -> Result<String, Failure> {
        let mut copy =
            device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let layout = wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(4 * WIDTH),
            rows_per_image: Some(HEIGHT),
        };
        copy.copy_texture_to_buffer(
            self.texture.as_image_copy(),
            wgpu::TexelCopyBufferInfo { buffer: &self.download, layout },
            self.texture.size(),
        );
        let submission = device.submit(copy)?;
        device.map(&self.download, wgpu::MapMode::Read, .., Some(submission)).wait(device)?;
        let view = self.download.get_mapped_range(..)?;
        let row = |row: &[u8]| row.chunks(4).map(|pixel| if pixel[0] > 127 { '#' } else { '.' }).collect();
        Ok(view.chunks(4 * WIDTH as usize).map(row).map(|row: String| row + "\n").collect())
    }
}
