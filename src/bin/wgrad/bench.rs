//! `wgrad bench`: a model trained on one synthetic batch, or one kernel.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::cpu_time::cpu_seconds;
use crate::kernel;
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Graph, Indices, STEP_SCALARS, Value};
use wgrad::optim::Optimizer;
use wgrad::plan::PlanOptions;
use wgrad::train::Meter;
use wgrad::{Bytes, Error, Result, random};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    #[command(flatten)]
    fitting: crate::fitting::Options,
    /// Steps to time, after the first and two more.
    #[arg(long, default_value_t = 20)]
    steps: u32,
    /// sgd, momentum, adam, adamw, lion, adafactor or adam8bit.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    /// Part of an adapter's name; the best one by default.
    #[arg(long)]
    adapter: Option<String>,
    /// Size of a kernel's operands, such as 1024 for matmul or 1024x1024 for softmax; by default one that fills the adapter.
    #[arg(long)]
    size: Option<String>,
    /// Time each kernel of one more step by the device's clock, and print a table.
    #[arg(long)]
    profile: bool,
    /// Write that step as a trace for <https://ui.perfetto.dev>, with bytes alive as counters.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the session's memory statistics in PyTorch's layout.
    #[arg(long)]
    memory: bool,
    /// No progress line.
    #[arg(long)]
    quiet: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Steps between the first and the timed ones.
const WARM_UP: u32 = 2;

pub fn run(options: &Options, start: Instant) -> Result<()> {
    if let Some(kind) = kernel::Kind::named(&options.network.model) {
        let (size, adapter) = (options.size.as_deref(), options.adapter.as_deref());
        return kernel::run(&kernel::Options { kind, size, adapter, json: options.json });
    }
    if options.size.is_some() {
        return Err(Error::Option(format!(
            "--size belongs to a kernel ({}), not to `{}`",
            kernel::Kind::names().join(", "),
            options.network.model
        )));
    }
    if options.steps == 0 {
        return Err(Error::Option("--steps 0: it must be at least 1".to_owned()));
    }
    let model = options.network.model()?;
    let step = options.fitting.step(&model, options.network.batch)?;
    let optimizer = Optimizer::named(&options.optimizer)?;
    let device = match &options.adapter {
        Some(name) => Device::by_name(name)?,
        None => Device::new()?,
    };
    let precision = options.network.precision()?;
    let budget = options.fitting.budget()?;
    let weights = options.network.weights()?;
    let settings = PlanOptions { budget, precision, weights, ..options.fitting.plan_options(optimizer)? };
    let plan = step.plan(&settings, device.limits())?;
    let mut session = Session::new(&device, &plan)?;
    let inputs = synthetic(step.graph());
    let train = |session: &mut Session| -> Result<f32> {
        for (name, data) in &inputs {
            match data {
                Synthetic::Numbers(data) => session.feed(name, data)?,
                Synthetic::Indices(data) => session.feed(name, data)?,
            }
        }
        session.step()?;
        session.loss()
    };
    let loss_first = train(&mut session)?;
    let first_step_s = start.elapsed().as_secs_f64();
    for _ in 0..WARM_UP {
        train(&mut session)?;
    }
    let (timed, cpu) = (Instant::now(), cpu_seconds());
    let mut loss_last = loss_first;
    let mut meter = Meter::new("bench", options.steps.into(), options.quiet);
    for i in 0..options.steps {
        loss_last = train(&mut session)?;
        meter.done(u64::from(i) + 1);
    }
    drop(meter);
    let per_step = 1e3 / f64::from(options.steps);
    let ms_per_step = timed.elapsed().as_secs_f64() * per_step;
    let cpu_ms_per_step = cpu_seconds().zip(cpu).map(|(after, before)| (after - before) * per_step);
    let profile =
        if options.profile || options.trace.is_some() { Some(session.profile(ProgramId(0))?) } else { None };
    if let (Some(path), Some(profile)) = (&options.trace, &profile) {
        std::fs::write(path, profile.chrome_trace().to_string())
            .map_err(|e| Error::Data { what: path.display().to_string(), message: e.to_string() })?;
    }
    let (device_bytes, planned_bytes) = (session.device_bytes(), plan.footprint().total());
    if options.json {
        let mut result = json!({
            "model": model.name,
            "batch": options.network.batch,
            "seq": model.seq(),
            "optimizer": options.optimizer,
            "precision": options.network.precision,
            "weights": options.network.weights,
            "stochastic_rounding": options.network.stochastic_rounding,
            "adapter": device.adapter().name,
            "driver": device.adapter().driver,
            "steps": options.steps,
            "first_step_s": first_step_s,
            "ms_per_step": ms_per_step,
            "cpu_ms_per_step": cpu_ms_per_step,
            "device_bytes": device_bytes,
            "planned_bytes": planned_bytes,
            "recompute": options.fitting.recompute,
            "bit_masks": options.fitting.bit_masks,
            "accumulate": options.fitting.accumulate,
            "recompute_time_fraction": plan.work.time_fraction(),
            "loss_first": loss_first,
            "loss_last": loss_last,
        });
        if let (true, Some(profile)) = (options.profile, &profile) {
            result["kernels"] = data(&profile.json())?;
        }
        if options.memory {
            result["memory"] = data(&session.memory_stats().json())?;
        }
        println!("{result}");
        return Ok(());
    }
    println!("{} · {} · {}", options.network.title(&model), options.optimizer, device.adapter().name);
    println!("first step   {first_step_s:.2} s from process start to the first loss");
    println!("step         {ms_per_step:.2} ms");
    if let Some(cpu) = cpu_ms_per_step {
        println!("             {cpu:.2} ms of CPU time");
    }
    println!("device       {} created, {} planned", Bytes(device_bytes), Bytes(planned_bytes));
    println!(
        "loss         {loss_first:.4} first, {loss_last:.4} after {} steps",
        options.steps + WARM_UP + 1
    );
    if let (true, Some(profile)) = (options.profile, &profile) {
        print!("\n{profile}");
    }
    if options.memory {
        print!("\n{}", session.memory_stats());
    }
    Ok(())
}

/// The library's JSON as a part of the program's.
fn data(json: &wgrad::json::Json) -> Result<serde_json::Value> {
    serde_json::from_str(&json.to_string()).map_err(|e| Error::Internal(e.to_string()))
}

/// Something to feed for an input: numbers in [0, 1), or indices that it allows.
enum Synthetic {
    Numbers(Vec<f32>),
    Indices(Vec<u32>),
}

fn synthetic(graph: &Graph) -> Vec<(String, Synthetic)> {
    let one = |value: &Value| {
        let key = random::key(0, &format!("bench {}", value.name));
        let elements = 0..value.shape.numel();
        let data = match value.indices {
            Some(Indices::Labels(below) | Indices::Ids(below)) => Synthetic::Indices(
                elements.map(|i| (random::bits(key, i) % u64::from(below.max(1))) as u32).collect(),
            ),
            None => Synthetic::Numbers(elements.map(|i| random::uniform(key, i)).collect()),
        };
        (value.name.clone(), data)
    };
    graph.inputs().map(|(_, value)| value).filter(|value| value.name != STEP_SCALARS).map(one).collect()
}
