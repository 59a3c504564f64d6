//! Compares row kernels with textbook kernels (`benches/rows/*.wgsl`: 256 threads for each row and a tree
//! reduction in workgroup memory), in bytes that must move per second of CPU time (software adapters) or of
//! wall time, on every adapter: `cargo bench --bench rows [ADAPTER] [OPERATION] [COLUMNS]`. The results of
//! both are compared.

#[path = "../src/bin/wgrad/cpu_time.rs"]
mod cpu_time;

use std::time::Instant;

use cpu_time::cpu_seconds;
use wgrad::device::{Device, PipelineSource};
use wgrad::dtype::DType;
use wgrad::graph::{Op, RowNorm};
use wgrad::kernels::Launch;
use wgrad::kernels::{Operand, Site, lower};
use wgrad::shape::Shape;
use wgrad::{Error, Result, random};

const SHAPES: [[usize; 2]; 4] = [[1024, 1024], [8192, 768], [512, 50_257], [512, 50_260]];
const EPS: f32 = 1e-5;

/// A textbook kernel: the operands of wgrad's node for its bindings, and whether a workgroup takes a column
/// instead of a row.
struct Textbook {
    name: &'static str,
    wgsl: &'static str,
    memory: Vec<Operand>,
    columns: bool,
}

/// One operation with its operands.
struct Job {
    op: Op,
    inputs: Vec<(Shape, DType)>,
    outputs: Vec<(Shape, DType)>,
    textbook: Vec<Textbook>,
}

macro_rules! textbook {
    ($name:literal, $memory:expr, $columns:expr) => {
        Textbook {
            name: concat!("textbook ", $name),
            wgsl: concat!(include_str!("rows/tree.wgsl"), include_str!(concat!("rows/", $name, ".wgsl"))),
            memory: $memory,
            columns: $columns,
        }
    };
}

fn jobs([rows, cols]: [usize; 2]) -> Vec<Job> {
    use Operand::{Input, Output};
    let float = |dims: &[usize]| (Shape::try_new(dims).expect("two dimensions"), DType::F32);
    let (x, of_rows, of_cols, lse) =
        (float(&[rows, cols]), float(&[rows]), float(&[cols]), float(&[rows, 2]));
    let (root, labels) = (float(&[rows, 1]), (of_rows.0, DType::U32));
    let all = |i: usize, o: usize| (0..i).map(Input).chain((0..o).map(Output)).collect::<Vec<_>>();
    let mut list = vec![
        Job {
            op: Op::Softmax { log: false },
            inputs: vec![x],
            outputs: vec![x],
            textbook: vec![textbook!("softmax", all(1, 1), false)],
        },
        Job {
            op: Op::SoftmaxGrad { log: false },
            inputs: vec![x, x],
            outputs: vec![x],
            textbook: vec![textbook!("softmax_grad", all(2, 1), false)],
        },
        Job {
            op: Op::CrossEntropy,
            inputs: vec![x, labels],
            outputs: vec![of_rows, lse],
            textbook: vec![textbook!("cross_entropy", all(2, 2), false)],
        },
        Job {
            op: Op::CrossEntropyGrad,
            inputs: vec![x, labels, lse, of_rows],
            outputs: vec![x],
            textbook: vec![textbook!(
                "cross_entropy_grad",
                vec![Input(0), Input(1), Input(3), Output(0)],
                false
            )],
        },
    ];
    if cols > 10_000 {
        return list;
    }
    list.push(Job {
        op: Op::RowNorm { kind: RowNorm::Layer, eps: EPS },
        inputs: vec![x, of_cols, of_cols],
        outputs: vec![x, lse],
        textbook: vec![textbook!("layer_norm", all(3, 2), false)],
    });
    list.push(Job {
        op: Op::RowNormGrad { kind: RowNorm::Layer },
        inputs: vec![x, lse, of_cols, x],
        outputs: vec![x, of_cols, of_cols],
        textbook: vec![
            textbook!("layer_norm_grad", all(4, 1), false),
            textbook!("layer_norm_columns", vec![Input(0), Input(1), Input(3), Output(1), Output(2)], true),
        ],
    });
    list.push(Job {
        op: Op::RowNorm { kind: RowNorm::Rms, eps: EPS },
        inputs: vec![x, of_cols],
        outputs: vec![x, root],
        textbook: vec![textbook!("rms_norm", all(2, 2), false)],
    });
    list.push(Job {
        op: Op::RowNormGrad { kind: RowNorm::Rms },
        inputs: vec![x, root, of_cols, x],
        outputs: vec![x, of_cols],
        textbook: vec![
            textbook!("rms_norm_grad", all(4, 1), false),
            textbook!("rms_norm_columns", vec![Input(0), Input(1), Input(3), Output(1)], true),
        ],
    });
    list
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let (adapter, operation, columns) = (words.next(), words.next(), words.next());
    let usable = Device::list().into_iter().filter(|adapter| adapter.unusable.is_none());
    for found in usable.filter(|a| adapter.as_ref().is_none_or(|name| a.name.contains(name.as_str()))) {
        let device = Device::by_name(&found.selector())?;
        println!("{}: GB/s of what must move, ours and the textbook's", found.name);
        for shape in SHAPES {
            if columns.as_ref().is_some_and(|columns| *columns != shape[1].to_string()) {
                continue;
            }
            for job in jobs(shape) {
                let name = job.op.name();
                if operation.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
                    continue;
                }
                let bytes: u64 = job.inputs.iter().chain(&job.outputs).map(|(s, d)| d.bytes(s.numel())).sum();
                let [ours, textbook] = compare(&device, &job)?;
                println!(
                    "  {:<14} {:>4} x {:<6} {:7.3} {:7.3}   {:5.1} times as fast, {:.3} ms",
                    name,
                    shape[0],
                    shape[1],
                    bytes as f64 / ours / 1e9,
                    bytes as f64 / textbook / 1e9,
                    textbook / ours,
                    ours * 1e3,
                );
            }
        }
    }
    Ok(())
}

/// One dispatch, ready to be encoded.
type Ready = (wgpu::ComputePipeline, wgpu::BindGroup, [u32; 3]);

/// Creates a buffer for a tensor's elements.
fn buffer(device: &Device, bytes: u64, contents: Option<&[u8]>) -> wgpu::Buffer {
    let size = bytes.next_multiple_of(256);
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    let buffer = device.wgpu_device().create_buffer(&descriptor);
    if let Some(contents) = contents {
        device.wgpu_queue().write_buffer(&buffer, 0, contents);
    }
    buffer
}

fn uniform(device: &Device, words: &[u32]) -> wgpu::Buffer {
    let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 256, usage, mapped_at_creation: false };
    let buffer = device.wgpu_device().create_buffer(&descriptor);
    device.wgpu_queue().write_buffer(&buffer, 0, bytemuck::cast_slice(words));
    buffer
}

fn group(device: &Device, slots: &[u32], params: &[u32], memory: &[&wgpu::Buffer]) -> wgpu::BindGroup {
    let params = uniform(device, params);
    let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: params.as_entire_binding() }];
    for (&binding, buffer) in slots.iter().zip(memory) {
        entries.push(wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() });
    }
    let layout = device.bind_group_layout(slots);
    device.wgpu_device().create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &layout,
        entries: &entries,
    })
}

/// Returns the seconds of wgrad's kernels and of the textbook's, after checking that both give the same
/// results.
fn compare(device: &Device, job: &Job) -> Result<[f64; 2]> {
    let limits = device.limits();
    let site = Site { op: &job.op, inputs: &job.inputs, outputs: &job.outputs, in_place: None, limits };
    let lowered = lower(&site)?;
    let cols = job.inputs[0].0.last();
    let inputs: Vec<wgpu::Buffer> = job
        .inputs
        .iter()
        .enumerate()
        .map(|(i, (shape, dtype))| {
            let numbers = 0..shape.numel();
            let words: Vec<u32> = match dtype {
                DType::U32 => numbers.map(|n| (random::bits(5, n) % cols as u64) as u32).collect(),
                _ => numbers.map(|n| (random::uniform(i as u64, n) * 4.0 - 2.0).to_bits()).collect(),
            };
            buffer(device, words.len() as u64 * 4, Some(bytemuck::cast_slice(&words)))
        })
        .collect();
    // The backward kernels read values of the forward pass, which must be consistent with their other
    // operands.
    if let Op::CrossEntropyGrad = job.op {
        let (x, labels) = (job.inputs[0], job.inputs[1]);
        let outputs = [(labels.0, DType::F32), job.inputs[2]];
        let loss = buffer(device, labels.0.numel() * 4, None);
        let site =
            Site { op: &Op::CrossEntropy, inputs: &[x, labels], outputs: &outputs, in_place: None, limits };
        let ready = ours(device, &lower(&site)?.launches, &|operand| match operand {
            Operand::Output(0) => &loss,
            Operand::Output(_) => &inputs[2],
            Operand::Input(i) | Operand::Workspace(i) => &inputs[i],
        })?;
        run(device, &ready, 1)?;
    }
    let outputs = |_: usize| -> Vec<wgpu::Buffer> {
        job.outputs.iter().map(|(shape, _)| buffer(device, shape.numel() * 4, None)).collect()
    };
    let (own, others) = (outputs(0), outputs(1));
    let scratch: Vec<wgpu::Buffer> =
        lowered.workspace.iter().map(|&bytes| buffer(device, bytes, None)).collect();
    let mine = ours(device, &lowered.launches, &|operand| match operand {
        Operand::Input(i) => &inputs[i],
        Operand::Output(i) => &own[i],
        Operand::Workspace(i) => &scratch[i],
    })?;
    let rows = job.inputs[0].0.numel() / cols as u64;
    let params = [rows as u32, cols as u32, EPS.to_bits()];
    let mut theirs = Vec::new();
    for kernel in &job.textbook {
        let slots: Vec<u32> = (1..=kernel.memory.len() as u32).collect();
        let memory: Vec<&wgpu::Buffer> = kernel
            .memory
            .iter()
            .map(|operand| match *operand {
                Operand::Input(i) | Operand::Workspace(i) => &inputs[i],
                Operand::Output(i) => &others[i],
            })
            .collect();
        let wgsl = || kernel.wgsl.to_owned();
        let key = kernel.wgsl.to_owned();
        let source = PipelineSource {
            name: kernel.name,
            key,
            wgsl: &wgsl,
            slots: &slots,
            constants: &[],
            custom: None,
        };
        let groups = if kernel.columns { cols as u32 } else { rows as u32 };
        theirs.push((device.pipeline(&source)?, group(device, &slots, &params, &memory), [groups, 1, 1]));
    }
    run(device, &mine, 1)?;
    run(device, &theirs, 1)?;
    for (i, (a, b)) in own.iter().zip(&others).enumerate() {
        let elements = job.outputs[i].0.numel() as usize;
        let (a, b) = (read(device, a, elements)?, read(device, b, elements)?);
        let largest = b.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        let apart = a.iter().zip(&b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        if apart > 1e-4 * largest || !a.iter().all(|v| v.is_finite()) {
            let message = format!("{}: result {i} differs by {apart:e} of {largest:e}", job.op.name());
            return Err(Error::Internal(message));
        }
    }
    let mut best = [f64::INFINITY; 2];
    for _ in 0..3 {
        for (best, ready) in best.iter_mut().zip([&mine, &theirs]) {
            *best = best.min(seconds(device, ready)?);
        }
    }
    Ok(best)
}

fn ours<'a>(
    device: &Device,
    launches: &[Launch<Operand>],
    place: &dyn Fn(Operand) -> &'a wgpu::Buffer,
) -> Result<Vec<Ready>> {
    let one = |launch: &Launch<Operand>| {
        let wgsl = || launch.kernel.source_for(device.limits().class);
        let source = PipelineSource {
            name: &launch.kernel.name,
            key: launch.kernel.source(),
            wgsl: &wgsl,
            slots: &launch.kernel.slots,
            constants: &launch.constants,
            custom: None,
        };
        let memory: Vec<&wgpu::Buffer> = launch.memory.iter().map(|operand| place(*operand)).collect();
        let group = group(device, &launch.kernel.slots, &launch.params, &memory);
        Ok((device.pipeline(&source)?, group, launch.grid))
    };
    launches.iter().map(one).collect()
}

fn run(device: &Device, ready: &[Ready], times: usize) -> Result<()> {
    let mut encoder = device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..times {
            for (pipeline, group, [x, y, z]) in ready {
                pass.set_pipeline(pipeline);
                pass.set_bind_group(0, group, &[]);
                pass.dispatch_workgroups(*x, *y, *z);
            }
        }
    }
    let submission = device.wgpu_queue().submit([encoder.finish()]);
    device.wait(Some(submission))
}

/// Returns the seconds of one run, in CPU time on software adapters. Repeats the run until the repetitions
/// take a tenth of a second.
fn seconds(device: &Device, ready: &[Ready]) -> Result<f64> {
    let software = device.adapter().kind == "software";
    let mut times = 1;
    loop {
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        run(device, ready, times)?;
        let elapsed = wall.elapsed().as_secs_f64();
        let spent = match (cpu, cpu_seconds()) {
            (Some(before), Some(after)) if software => after - before,
            _ => elapsed,
        };
        if elapsed > 0.1 {
            return Ok(spent / times as f64);
        }
        times = (times as f64 * (0.15 / elapsed).clamp(2.0, 100.0)) as usize;
    }
}

fn read(device: &Device, from: &wgpu::Buffer, elements: usize) -> Result<Vec<f32>> {
    let size = elements as u64 * 4;
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    let to = device.wgpu_device().create_buffer(&descriptor);
    let mut encoder = device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(from, 0, &to, 0, size);
    let submission = device.wgpu_queue().submit([encoder.finish()]);
    to.map_async(wgpu::MapMode::Read, .., |_| {});
    device.wait(Some(submission))?;
    let view = to
        .get_mapped_range(..)
        .map_err(|e| Error::Device { what: "to read a result".to_owned(), message: e.to_string() })?;
    Ok(bytemuck::cast_slice(&view).to_vec())
}
