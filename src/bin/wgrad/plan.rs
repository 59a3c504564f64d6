//! `wgrad plan`

use serde_json::{Map, Value, json};
use wgrad::limits::Limits;
use wgrad::optim::Optimizer;
use wgrad::plan::{Plan, PlanOptions};
use wgrad::{Error, Result, report};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    /// sgd, momentum, adam or adamw.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    /// Limits to plan for: discrete, webgpu, lavapipe, swiftshader or nvidia.
    #[arg(long, default_value = "discrete")]
    limits: String,
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
    let plan = step.plan(&PlanOptions { optimizer, ..PlanOptions::default() }, &limits)?;
    if options.json {
        println!("{}", to_json(options, &plan));
    } else {
        println!(
            "{} · batch {} · {} · {}\n",
            model.name, options.network.batch, options.optimizer, plan.limits
        );
        print!("{}", report::Estimate::of(&plan));
    }
    Ok(())
}

fn to_json(options: &Options, plan: &Plan) -> Value {
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
        "limits": options.limits,
        "naive_bytes": plan.naive_bytes(),
        "lower_bound_bytes": plan.lower_bound_bytes(),
        "peak_bytes": plan.peak_bytes(),
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
        "hash": format!("{:016x}", plan.hash()),
        "tensors": tensors,
    })
}
