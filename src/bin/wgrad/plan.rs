//! `wgrad plan`

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use wgrad::limits::Limits;
use wgrad::memory::planner::write_problem;
use wgrad::optim::Optimizer;
use wgrad::plan::{Plan, PlanOptions, Savings};
use wgrad::{Bytes, Error, Result, report};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    /// sgd, momentum, adam, adamw, lion, adafactor or adam8bit.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    /// Limits to plan for: discrete, webgpu, lavapipe, swiftshader or nvidia.
    #[arg(long, default_value = "discrete")]
    limits: String,
    /// Draw the plan, address over time, into this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the step's lifetimes and sizes into this CSV file, for `wgrad pack` and other planners.
    #[arg(long, value_name = "FILE")]
    export_problem: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let model = options.network.model()?;
    let optimizer = Optimizer::named(&options.optimizer)?;
    let limits = Limits::named(&options.limits).ok_or_else(|| Error::Unknown {
        kind: "set of limits",
        name: options.limits.clone(),
        known: Limits::NAMES.map(str::to_owned).to_vec(),
    })?;
    let step = model.train_step(options.network.batch)?;
    let settings =
        PlanOptions { optimizer, precision: options.network.precision()?, ..PlanOptions::default() };
    let plan = step.plan(&settings, &limits)?;
    let savings = step.savings(&settings, &limits)?;
    if let Some(path) = &options.svg {
        let title = format!("{}, batch {}, {}", model.name, options.network.batch, options.optimizer);
        write(path, report::picture(&plan, &title).as_bytes())?;
    }
    if let Some(path) = &options.export_problem {
        let mut csv = Vec::new();
        write_problem(&plan.problem(), &mut csv).map_err(|e| unwritten(path, &e))?;
        write(path, &csv)?;
    }
    if options.json {
        println!("{}", to_json(options, &plan, &savings));
    } else {
        println!(
            "{} · batch {} · {} · {}\n",
            model.name, options.network.batch, options.optimizer, plan.limits
        );
        print!("{}", report::Estimate::of(&plan).with_savings(savings));
        println!("\nkept for the backward pass");
        for report::Kept { op, tensors, bytes } in report::kept(&plan) {
            println!("  {op:<14}{:>12}  of {tensors}", Bytes(bytes).to_string());
        }
    }
    Ok(())
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    std::fs::write(path, contents).map_err(|e| unwritten(path, &e))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Error {
    Error::Data { what: path.display().to_string(), message: error.to_string() }
}

fn to_json(options: &Options, plan: &Plan, savings: &Savings) -> Value {
    let classes: Map<String, Value> = plan
        .class_bytes()
        .into_iter()
        .map(|(class, bytes)| (class.name().to_owned(), json!(bytes)))
        .collect();
    let arenas: Vec<Value> = plan
        .layout
        .arenas()
        .map(|(arena, bytes)| json!({ "name": arena.to_string(), "bytes": bytes }))
        .collect();
    let tensors: Vec<Value> = report::tensors(plan)
        .into_iter()
        .map(|t| {
            json!({
                "name": t.name,
                "shape": t.shape.dims(),
                "dtype": t.dtype.name(),
                "class": t.class.name(),
                "bytes": t.bytes,
                "first": t.first,
                "last": t.last,
                "arena": t.region.arena.to_string(),
                "offset": t.region.offset,
            })
        })
        .collect();
    let footprint = plan.footprint();
    json!({
        "model": options.network.model,
        "batch": options.network.batch,
        "optimizer": options.optimizer,
        "precision": options.network.precision,
        "limits": options.limits,
        "naive_bytes": plan.naive_bytes(),
        "lower_bound_bytes": plan.lower_bound_bytes(),
        "peak_bytes": plan.peak_bytes(),
        "savings": {
            "naive_bytes": savings.naive,
            "by_lifetimes_bytes": savings.lifetimes,
            "in_place_bytes": savings.in_place,
            "best_order_bytes": savings.order,
            "rebuild_bytes": savings.rebuild,
        },
        "classes": classes,
        "arenas": arenas,
        "peak_at": { "op": plan.peak.op, "layer": plan.peak.layer, "position": plan.peak.position },
        "device_bytes": {
            "total": footprint.total(),
            "arenas": footprint.persistent + footprint.step,
            "uniforms": footprint.uniforms,
            "staging": footprint.staging,
            "readback": footprint.readback,
            "transfer": footprint.transfer,
        },
        "operations": plan.program.order.len(),
        "dispatches": plan.program.launches.len(),
        "kept_bytes": report::kept_bytes(plan),
        "kept": report::kept(plan).iter().map(|k| json!({ "op": k.op, "tensors": k.tensors, "bytes": k.bytes })).collect::<Vec<_>>(),
        "hash": format!("{:016x}", plan.hash()),
        "tensors": tensors,
    })
}
