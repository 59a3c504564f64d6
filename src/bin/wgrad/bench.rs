//! `wgrad bench`: measures a model trained on one synthetic batch, or one kernel.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::cpu_time::cpu_seconds;
use crate::model::Selected;
use crate::ranks::{self, Rank};
use crate::{data, kernel};
use wgrad::compile::{self, Plan, PlanOptions, Planned};
use wgrad::dtype::DType;
use wgrad::exec::{Debug, OnOom, Profile, ProgramId, Refit, Session, Transport};
use wgrad::graph::{Indices, STEP_SCALARS, Value};
use wgrad::limits::{Limits, ShapeClass};
use wgrad::optim::Optimizer;
use wgrad::{Bytes, Error, Result, files, progress, random};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    #[command(flatten)]
    fitting: crate::fitting::Options,
    #[command(flatten)]
    failures: crate::failures::Options,
    /// Number of steps to time, after the first step and two warm-up steps.
    #[arg(long, default_value_t = 20)]
    steps: u32,
    /// sgd, momentum, adam, adamw, lion, adafactor, adam8bit, adam4bit, amsgrad, nadam, radam, rmsprop, adagrad, adam-mini,
    /// muon, apollo or apollo-mini.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    #[command(flatten)]
    device: crate::device::Options,
    /// Size of a kernel's operands, such as 1024 for matmul or 1024x1024 for softmax; by default one that
    /// keeps the adapter busy.
    #[arg(long)]
    size: Option<String>,
    /// Storage format of a kernel's operands: f32, f16, bf16, or bf24 for updates. Casts precede kernels that cannot read 16
    /// bits, as in a plan.
    #[arg(long)]
    dtype: Option<String>,
    /// Kernel variant for matrix products or convolutions, such as tiled64; by default chosen for the adapter
    /// and the size.
    #[arg(long)]
    variant: Option<String>,
    /// What to do when the device runs out of memory: fail, or refit, which uses the next plan that fits.
    #[arg(long, default_value = "fail")]
    on_oom: String,
    /// Limit the session's device memory to this size, to test --on-oom.
    #[arg(long, value_name = "SIZE")]
    device_budget: Option<Bytes>,
    /// Time each kernel of one more step with device timestamps, and print a table.
    #[arg(long)]
    profile: bool,
    /// Write a trace of that step for <https://ui.perfetto.dev>, with bytes alive as counters.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Feed the batch from the host in every step. By default it is on the device, as in a loop that fetches the next
    /// batch while a step runs.
    #[arg(long)]
    feed: bool,
    /// Print the session's memory statistics in PyTorch's layout.
    #[arg(long)]
    memory: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Options, by their ids, that only networks have.
const OF_NETWORKS: [&str; 38] = [
    "dim",
    "loss",
    "batch",
    "image",
    "classes",
    "seq",
    "precision",
    "weights",
    "stochastic_rounding",
    "freeze",
    "lora",
    "frozen_weights",
    "no_fuse",
    "budget",
    "headroom",
    "recompute",
    "no_rebuild",
    "bit_masks",
    "accumulate",
    "ranks",
    "shares",
    "shard",
    "tensor",
    "bucket",
    "wire",
    "clip_norm",
    "loss_scale",
    "offload",
    "card",
    "failures",
    "steps",
    "optimizer",
    "on_oom",
    "device_budget",
    "profile",
    "trace",
    "feed",
    "memory",
];

/// Number of steps between the first step and the timed ones.
const WARM_UP: u32 = 2;

/// Measures; `given` has the ids of the options that the command line sets.
pub fn run(options: &Options, given: &[String], start: Instant) -> Result<()> {
    if let Some(kind) = kernel::Kind::named(&options.network.choice.model) {
        if let Some(id) = given.iter().find(|id| OF_NETWORKS.contains(&id.as_str())) {
            let (option, kernel) = (id.replace('_', "-"), &options.network.choice.model);
            let message = format!("--{option} belongs to a network, not to the kernel `{kernel}`");
            return Err(Error::setting("command line", message));
        }
        let (size, variant) = (options.size.as_deref(), options.variant.as_deref());
        let (device, json) = (&options.device, options.json);
        let dtype = kernel::storage(options.dtype.as_deref().unwrap_or("f32"))?;
        return kernel::run(&kernel::Options { kind, size, dtype, variant, device, json });
    }
    let of_a_kernel = |option: &str, instead: &str| {
        Err(Error::setting(
            "command line",
            format!(
                "{option} belongs to a kernel ({}), not to `{}`{instead}",
                kernel::Kind::names().join(", "),
                options.network.choice.model
            ),
        ))
    };
    if options.size.is_some() {
        return of_a_kernel("--size", "");
    }
    if options.variant.is_some() {
        return of_a_kernel("--variant", "");
    }
    if options.dtype.is_some() {
        return of_a_kernel("--dtype", ", which takes --precision and --weights");
    }
    if options.steps == 0 {
        return Err(Error::setting("command line", "--steps 0: it must be at least 1".to_owned()));
    }
    let model = options.network.network()?;
    ranks::on_each(options.fitting.ranks(), |rank| run_rank(options, &model, rank, start))
}

/// Trains on one rank, or on the only device; rank 0 prints.
fn run_rank(options: &Options, model: &Selected, rank: Option<Rank>, start: Instant) -> Result<()> {
    let Some(rank) = rank else {
        let (mut session, refit) = open(options, model, 0, None)?;
        let measured = measure(&mut session, options, start)?;
        return print(options, model, &session, refit.as_ref(), &measured);
    };
    let ((mut session, refit), transport) =
        rank.open(|local, others| open(options, model, local, Some(others)))?;
    let number = transport.rank();
    session.set_transport(transport)?;
    let measured = measure(&mut session, options, start)?;
    if number == 0 { print(options, model, &session, refit.as_ref(), &measured) } else { Ok(()) }
}

/// Opens a session for a rank; `local` is its number among those of its machine.
fn open(
    options: &Options,
    model: &Selected,
    local: u32,
    others: Option<&mut dyn Transport>,
) -> Result<(Session, Option<Refit>)> {
    let batch = options.network.batch(model);
    let step = options.fitting.step(model, batch)?;
    let optimizer = Optimizer::named(&options.optimizer)?;
    let device = options.device.open_number(local as usize)?;
    let on_oom = match options.on_oom.as_str() {
        "fail" => OnOom::Fail,
        "refit" => OnOom::Refit,
        other => {
            return Err(Error::setting("command line", format!("--on-oom {other}: expected fail or refit")));
        }
    };
    let precision = options.network.precision()?;
    let limits = &options.device.limits(&device, precision)?;
    let fuse = !options.network.no_fuse;
    let weights = options.network.weights()?;
    let run = others.map(|others| (&device, others));
    let settings = PlanOptions { precision, weights, fuse, ..options.fitting.plan_options(optimizer, run)? };
    device.set_budget(options.device_budget);
    let parts = options.fitting.parts().max(1) as usize;
    let mut planner = |within: Option<Bytes>| -> Result<Planned> {
        let trace = |samples: usize| model.train_step(samples);
        Ok(match within {
            None => step.plan(&settings, limits)?.into(),
            Some(bytes) => compile::fit(trace, batch / parts, &settings, bytes, limits)?.into(),
        })
    };
    let opened = Session::open(&device, &mut planner, on_oom, Debug::default());
    options.failures.note(opened, |failure| match step.plan_over_budget(&settings, limits) {
        Ok(plan) => failure.with_plan(&plan).with_device(&device),
        Err(_) => failure.with_device(&device),
    })
}

/// The times and losses of a run.
struct Measured {
    first_step_s: f64,
    ms_per_step: f64,
    cpu_ms_per_step: Option<f64>,
    loss_first: f32,
    loss_last: f32,
    /// Of all parameters after the timed steps.
    hash: u64,
    profile: Option<Profile>,
}

fn measure(session: &mut Session, options: &Options, start: Instant) -> Result<Measured> {
    let measured = timed(session, options, start);
    options.failures.note(measured, |failure| failure.with_session(session))
}

fn timed(session: &mut Session, options: &Options, start: Instant) -> Result<Measured> {
    let plan = session.plan(ProgramId(0))?;
    let rank = plan.parallel.rank;
    let inputs = synthetic(plan, options.fitting.parts());
    let inputs = if options.feed { inputs } else { reside(session, inputs)? };
    // Losses are read some steps later, so that the device never waits for the host; how many may be on the way bounds
    // the steps in flight.
    let train = |session: &mut Session| -> Result<()> {
        for (name, data) in &inputs {
            match data {
                Synthetic::Numbers(data) => session.feed(name, data)?,
                Synthetic::Indices(data) => session.feed(name, data)?,
            }
        }
        session.step()
    };
    train(session)?;
    let loss_first = session.loss()?;
    let first_step_s = start.elapsed().as_secs_f64();
    for _ in 0..WARM_UP {
        train(session)?;
    }
    session.wait()?;
    let (timed, cpu) = (Instant::now(), cpu_seconds());
    let task = (rank == 0).then(|| progress::task("bench", u64::from(options.steps)));
    for i in 0..options.steps {
        train(session)?;
        if let Some(task) = &task {
            task.done(u64::from(i) + 1);
        }
    }
    session.wait()?;
    drop(task);
    let per_step = 1e3 / f64::from(options.steps);
    let ms_per_step = timed.elapsed().as_secs_f64() * per_step;
    let cpu_ms_per_step = cpu_seconds().zip(cpu).map(|(after, before)| (after - before) * per_step);
    let loss_last = session.loss()?;
    let hash = session.parameters_hash()?;
    let profile =
        if options.profile || options.trace.is_some() { Some(session.profile(ProgramId(0))?) } else { None };
    if let (Some(path), Some(profile)) = (&options.trace, &profile) {
        files::write(path, profile.chrome_trace().to_string().as_bytes())
            .map_err(|e| crate::files::unusable(path, &e))?;
    }
    Ok(Measured { first_step_s, ms_per_step, cpu_ms_per_step, loss_first, loss_last, hash, profile })
}

/// Copies the inputs to buffers on the device, which the session then reads. Returns those to feed in each step: none.
fn reside(session: &mut Session, inputs: Vec<(String, Synthetic)>) -> Result<Vec<(String, Synthetic)>> {
    let device = session.device().clone();
    for (name, data) in inputs {
        // The session checks what it is fed.
        let bytes: &[u8] = match &data {
            Synthetic::Numbers(data) => {
                session.feed(&name, data)?;
                bytemuck::cast_slice(data)
            }
            Synthetic::Indices(data) => {
                session.feed(&name, data)?;
                bytemuck::cast_slice(data)
            }
        };
        // It is no part of the session, and not of its budget.
        let buffer = device.wgpu_device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(&name),
            size: bytes.len() as u64,
            usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        device.wgpu_queue().write_buffer(&buffer, 0, bytes);
        session.feed_from_device(ProgramId(0), &name, &buffer, 0)?;
    }
    Ok(Vec::new())
}

fn print(
    options: &Options,
    model: &Selected,
    session: &Session,
    refit: Option<&Refit>,
    measured: &Measured,
) -> Result<()> {
    let Measured { first_step_s, ms_per_step, cpu_ms_per_step, loss_first, loss_last, hash, profile } =
        measured;
    let hash = format!("{hash:016x}");
    let (plan, adapter) = (session.plan(ProgramId(0))?, session.device().adapter());
    let (device_bytes, planned_bytes) = (session.device_bytes(), plan.footprint().total());
    let memory = session.device().adapter_memory();
    let reserved_bytes = session.device().driver_memory().map(|driver| driver.reserved);
    if options.json {
        let mut result = json!({
            "model": model.name(),
            "batch": options.network.batch(model),
            "seq": model.seq(),
            "optimizer": options.optimizer,
            "precision": options.network.precision,
            "weights": options.network.weights,
            "stochastic_rounding": options.network.stochastic_rounding,
            "fused": !options.network.no_fuse,
            "dispatches": plan.program.launches.len(),
            "adapter": adapter.name,
            "driver": adapter.driver,
            "checked": options.device.checked(),
            "steps": options.steps,
            "first_step_s": first_step_s,
            "ms_per_step": ms_per_step,
            "cpu_ms_per_step": cpu_ms_per_step,
            "device_bytes": device_bytes,
            "planned_bytes": planned_bytes,
            "reserved_bytes": reserved_bytes,
            "memory_bytes": memory.and_then(|memory| memory.total),
            "memory_budget_bytes": memory.and_then(|memory| memory.budget),
            "memory_used_bytes": memory.and_then(|memory| memory.used),
            "recompute": options.fitting.recompute,
            "rebuild": !options.fitting.no_rebuild,
            "bit_masks": options.fitting.bit_masks,
            "loss_scale": options.fitting.loss_scale,
            "cooperative": plan.limits.kernels.cooperative.map(|matrices| matrices.side),
            "products": products(&plan.limits),
            "accumulate": options.fitting.parts(),
            "offload": options.fitting.offload,
            "host_bytes": session.footprint().host,
            "recompute_time_fraction": plan.work.time_fraction(),
            "refit": refit.map(|refit| json!({
                "cause": refit.cause,
                "before_bytes": refit.before,
                "within_bytes": refit.within,
                "after_bytes": refit.after,
                "changes": refit.changes,
                "time_fraction": refit.time_fraction,
                "exact": refit.exact,
            })),
            "loss_first": loss_first,
            "loss_last": loss_last,
            "fed": options.feed,
            "parameters_hash": hash,
        });
        result["ranks"] = plan.parallel.ranks.into();
        result["tensor"] = plan.parallel.tensor.into();
        result["shares"] = plan.parallel.shares.to_string().into();
        result["wire_bytes"] = plan.wire_bytes().into();
        if let (true, Some(profile)) = (options.profile, profile) {
            result["kernels"] = data(&profile.json())?;
        }
        if options.memory {
            result["memory"] = data(&session.memory_stats().json())?;
        }
        println!("{result}");
        return Ok(());
    }
    println!("{} · {} · {}", options.network.title(model), options.optimizer, adapter.name);
    if let Some(refit) = refit {
        println!("{refit}");
    }
    println!("first step   {first_step_s:.2} s from process start to the first loss");
    println!("step         {ms_per_step:.2} ms");
    if let Some(cpu) = cpu_ms_per_step {
        println!("             {cpu:.2} ms of CPU time");
    }
    println!("device       {} created, {} planned", Bytes(device_bytes), Bytes(planned_bytes));
    if let Some(reserved) = reserved_bytes {
        let factor = reserved as f64 / device_bytes.max(1) as f64;
        println!("             {} reserved by wgpu, {factor:.2} × created", Bytes(reserved));
    }
    if let Some(memory) = memory {
        println!("             of the adapter's {memory}");
    }
    println!(
        "loss         {loss_first:.4} first, {loss_last:.4} after {} steps",
        options.steps + WARM_UP + 1
    );
    println!("parameters   hash {hash}");
    if let (true, Some(profile)) = (options.profile, profile) {
        print!("\n{profile}");
    }
    if options.memory {
        print!("\n{}", session.memory_stats());
    }
    Ok(())
}

/// Synthetic data of an input: numbers in [0, 1), valid indices, or ones for other integers.
enum Synthetic {
    Numbers(Vec<f32>),
    Indices(Vec<u32>),
}

/// The samples of a rank's parts, of a batch that is the same for all.
fn synthetic(plan: &Plan, parts: u32) -> Vec<(String, Synthetic)> {
    let own = plan.parallel.parts(parts);
    let one = |value: &Value| {
        let key = random::key(0, &format!("bench {}", value.name));
        let part = value.shape.numel() / own.len() as u64;
        let elements = own.iter().flat_map(|&i| u64::from(i) * part..u64::from(i + 1) * part);
        let data = match value.indices {
            Some(Indices::Labels(below) | Indices::Ids(below)) => Synthetic::Indices(
                elements.map(|i| (random::bits(key, i) % u64::from(below.max(1))) as u32).collect(),
            ),
            None if value.dtype == DType::U32 => Synthetic::Indices(vec![1; value.shape.numel() as usize]),
            None => Synthetic::Numbers(elements.map(|i| random::uniform(key, i)).collect()),
        };
        (value.name.clone(), data)
    };
    let inputs = plan.graph().inputs();
    inputs.map(|(_, value)| value).filter(|value| value.name != STEP_SCALARS).map(one).collect()
}

/// The variants that products and convolutions of each class are computed with, where tuning chose another than the
/// tables do.
fn products(limits: &Limits) -> serde_json::Value {
    let named = ShapeClass::ALL
        .into_iter()
        .filter_map(|class| Some((class.name().to_owned(), limits.kernels.products.of(class)?.into())));
    serde_json::Value::Object(named.collect())
}
