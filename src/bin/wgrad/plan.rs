//! `wgrad plan`

use serde_json::{Map, Value, json};
use wgrad::dtype::Precision;
use wgrad::limits::Limits;
use wgrad::models::Model;
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
    #[command(flatten)]
    files: crate::files::Options,
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
    let title = format!("{} · {}", options.network.title(&model), options.optimizer);
    if options.files.draws() {
        let naive = step.plan_naive(&settings, &limits)?;
        let full = match settings.precision {
            Precision::F32 => None,
            _ => Some(step.plan(&PlanOptions { precision: Precision::F32, ..settings }, &limits)?),
        };
        let mut panels = vec![report::Panel { name: "naive", plan: &naive }];
        panels.extend(full.iter().map(|plan| report::Panel { name: "planned in f32", plan }));
        let name =
            full.as_ref().map_or("planned".to_owned(), |_| format!("in {}", options.network.precision));
        panels.push(report::Panel { name: &name, plan: &plan });
        options.files.draw(&panels, &title.replace(" · ", ", "))?;
    }
    options.files.export(&plan)?;
    if options.files.summary(&plan, options.json) {
        return Ok(());
    }
    if options.json {
        println!("{}", to_json(options, &model, &plan, &savings));
    } else {
        println!("{title} · {}\n", plan.limits);
        print!("{}", plan.estimate().with_savings(savings).with_batch(options.network.batch));
        println!("\nkept for the backward pass");
        for report::Kept { op, tensors, bytes } in report::kept(&plan) {
            println!("  {op:<14}{:>12}  of {tensors}", Bytes(bytes).to_string());
        }
    }
    Ok(())
}

fn to_json(options: &Options, model: &Model, plan: &Plan, savings: &Savings) -> Value {
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
        "seq": model.seq(),
        "parameters": model.params().count(),
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
            "views_bytes": savings.views,
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
