//! `wgrad bench`: a model trained on one synthetic batch.

use std::time::Instant;

use serde_json::json;
use wgrad::device::Device;
use wgrad::exec::Session;
use wgrad::models::Model;
use wgrad::optim::Optimizer;
use wgrad::plan::PlanOptions;
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
    /// sgd, momentum, adam or adamw.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    /// Part of an adapter's name; the best one by default.
    #[arg(long)]
    adapter: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Steps between the first and the timed ones.
const WARM_UP: u32 = 2;

pub fn run(options: &Options, start: Instant) -> Result<()> {
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
    let budget = options.fitting.budget()?;
    let settings = PlanOptions { budget, ..options.fitting.plan_options(optimizer)? };
    let plan = step.plan(&settings, device.limits())?;
    let mut session = Session::new(&device, &plan)?;
    let (x, y) = synthetic(&model, options.network.batch);
    let train = |session: &mut Session| -> Result<f32> {
        session.feed("x", &x)?;
        session.feed("y", &y)?;
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
    for _ in 0..options.steps {
        loss_last = train(&mut session)?;
    }
    let per_step = 1e3 / f64::from(options.steps);
    let ms_per_step = timed.elapsed().as_secs_f64() * per_step;
    let cpu_ms_per_step = cpu_seconds().zip(cpu).map(|(after, before)| (after - before) * per_step);
    let (device_bytes, planned_bytes) = (session.device_bytes(), plan.footprint().total());
    if options.json {
        let result = json!({
            "model": model.name,
            "batch": options.network.batch,
            "optimizer": options.optimizer,
            "adapter": device.adapter().name,
            "driver": device.adapter().driver,
            "steps": options.steps,
            "first_step_s": first_step_s,
            "ms_per_step": ms_per_step,
            "cpu_ms_per_step": cpu_ms_per_step,
            "device_bytes": device_bytes,
            "planned_bytes": planned_bytes,
            "recompute": options.fitting.recompute,
            "accumulate": options.fitting.accumulate,
            "recompute_time_fraction": plan.work.time_fraction(),
            "loss_first": loss_first,
            "loss_last": loss_last,
        });
        println!("{result}");
        return Ok(());
    }
    println!(
        "{} · batch {} · {} · {}",
        model.name,
        options.network.batch,
        options.optimizer,
        device.adapter().name
    );
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
    Ok(())
}

fn synthetic(model: &Model, batch: usize) -> (Vec<f32>, Vec<u32>) {
    let key = random::key(0, "bench");
    let x = (0..(batch * model.inputs) as u64).map(|i| random::uniform(key, i)).collect();
    let y = (0..batch * model.labels).map(|i| (i % model.classes) as u32).collect();
    (x, y)
}

/// User and system time of this process; `None` where the system does not tell.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 14 and 15 of proc(5), counted behind the parenthesised name; in ticks of 1/100 s.
    let ticks = |i: usize| stat.rsplit_once(')')?.1.split_whitespace().nth(i)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}
