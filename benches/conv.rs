//! Compares convolutions with a matrix product of the same amount of work, in floating-point operations per
//! second of CPU time (software adapters) or wall time: `cargo bench --bench conv [ADAPTER]`.

#[path = "../src/bin/wgrad/cpu_time.rs"]
mod cpu_time;

use std::time::Instant;

use cpu_time::cpu_seconds;
use wgrad::compile::{Forward, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, Params, Tensor, Trace, Window};
use wgrad::{Result, random};

/// Samples, input channels, output channels, image side, kernel size, stride.
const LAYERS: [[usize; 6]; 6] = [
    [8, 64, 64, 28, 3, 1],
    [8, 128, 128, 14, 3, 1],
    [8, 128, 64, 28, 1, 1],
    [8, 64, 128, 28, 3, 2],
    [128, 16, 32, 28, 3, 2],
    [128, 1, 16, 28, 3, 1],
];

fn main() -> Result<()> {
    let name = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let device = name.map_or_else(Device::new, |name| Device::by_name(&name))?;
    println!("{}: GF/s of matmul; forward, gradient of the image, of the weight", device.adapter().name);
    for layer in LAYERS {
        let [n, c, o, side, k, stride] = layer;
        let window = Window::square(k).stride(stride).padding(k / 2);
        let [out, _] = window.output([side; 2]).map_err(|e| wgrad::Error::setting("window", e))?;
        let flops = (2 * n * c * o * k * k * out * out) as f64;
        let matmul = forward(&device, |t| {
            let a = t.input("a", [o, c * k * k]);
            a.matmul(&t.input("b", [c * k * k, n * out * out]))
        })?;
        let image = [n, c, side, side];
        let result = [n, o, out, out];
        let there =
            forward(&device, |t| t.input("a", image).conv2d(&t.input("w", [o, c, k, k]), None, window, 1))?;
        let extra = side + 2 * (k / 2) - k - (out - 1) * stride;
        let back = forward(&device, |t| {
            let (y, w) = (t.input("y", result), t.input("w", [o, c, k, k]));
            y.conv_transpose2d(&w, None, window, [extra; 2], 1)
        })?;
        let (with, without) = (step(&device, layer, window, true)?, step(&device, layer, window, false)?);
        let rates = [matmul, there, back, with - without].map(|seconds| flops / seconds / 1e9);
        println!(
            "{layer:?}: {:.1}; {:.1}, {:.1}, {:.1}   both gradients and forward at {:.0} % of matmul",
            rates[0],
            rates[1],
            rates[2],
            rates[3],
            100.0 * 3.0 * matmul / (there + back + with - without),
        );
    }
    Ok(())
}

fn fill(session: &mut Session, id: ProgramId) -> Result<()> {
    let inputs: Vec<(String, u64)> =
        session.plan(id)?.graph().inputs().map(|(_, v)| (v.name.clone(), v.shape.numel())).collect();
    for (name, count) in inputs.iter().filter(|(name, _)| name != wgrad::graph::STEP_SCALARS) {
        let data: Vec<f32> = (0..*count).map(|i| random::uniform(7, i) - 0.5).collect();
        session.feed_to(id, name, &data)?;
    }
    Ok(())
}

/// Returns the seconds of one forward pass.
fn forward(device: &Device, model: impl FnOnce(&Trace) -> Tensor) -> Result<f64> {
    let plan = Forward::trace(&Params::new(0), "y", model)?.plan(device.limits())?;
    time(Session::new(device, &plan)?)
}

/// Returns the seconds of a training step, with or without the gradient of the weight.
fn step(device: &Device, layer: [usize; 6], window: Window, weight: bool) -> Result<f64> {
    let [n, c, o, side, k, _] = layer;
    let params = Params::new(0);
    let w = params.add("w", [o, c, k, k], Init::fan_in(c * k * k));
    let b = params.add("b", [1], Init::Constant(0.0));
    let step = TrainStep::trace(&params, |t| {
        let w = if weight { t.param(&w) } else { t.input("w", [o, c, k, k]) };
        let y = t.input("x", [n, c, side, side]).conv2d(&w, None, window, 1);
        let [_, _, h, v] = [0, 1, 2, 3].map(|axis| y.dim(axis));
        y.add(&t.param(&b)).mul(&t.input("dy", [n, o, h, v])).sum(&[])
    })?;
    let plan = step.plan(&PlanOptions::default(), device.limits())?;
    time(Session::new(device, &plan)?)
}

fn time(mut session: Session) -> Result<f64> {
    fill(&mut session, ProgramId(0))?;
    for _ in 0..2 {
        session.step()?;
    }
    session.wait()?;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        for _ in 0..4 {
            session.step()?;
        }
        session.wait()?;
        let spent = match (cpu, cpu_seconds()) {
            (Some(before), Some(after)) if session.device().adapter().kind == "software" => after - before,
            _ => wall.elapsed().as_secs_f64(),
        };
        best = best.min(spent / 4.0);
    }
    Ok(best)
}
