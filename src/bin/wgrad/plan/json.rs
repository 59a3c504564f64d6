//! Formats a plan as JSON.

use serde_json::{Map, Value, json};
use wgrad::compile::Lever;
use wgrad::{Result, report};

use super::{Answer, Options};
use crate::data;

pub(super) fn to_json(options: &Options, answer: &Answer) -> Result<Value> {
    let Answer { model, plan, savings, changes, fitting, .. } = answer;
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
    let mut value = json!({
        "model": options.network.model,
        "batch": options.network.batch,
        "seq": model.seq(),
        "parameters": model.params().count(),
        "optimizer": options.optimizer,
        "precision": options.network.precision,
        "weights": options.network.weights,
        "stochastic_rounding": options.network.stochastic_rounding,
        "freeze": options.network.freeze,
        "limits": options.limits,
        "recompute": options.fitting.recompute,
        "rebuild": !options.fitting.no_rebuild,
        "fused": !options.network.no_fuse,
        "bit_masks": options.fitting.bit_masks,
        "accumulate": options.fitting.accumulate,
        "changes": changes,
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
            "fuse_bytes": savings.fuse,
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
            "offload": footprint.offload,
        },
        "host_bytes": footprint.host,
        "offload": options.fitting.offload,
        "moved_bytes": plan.work.moved,
        "moved_time_fraction": plan.work.moved_fraction(),
        "operations": plan.program.order.len(),
        "dispatches": plan.program.launches.len(),
        "kept_bytes": report::kept_bytes(plan),
        "kept": report::kept(plan).iter().map(|k| json!({ "op": k.op, "tensors": k.tensors, "bytes": k.bytes })).collect::<Vec<_>>(),
        "recompute_flops_fraction": plan.work.flops_fraction(),
        "recompute_time_fraction": plan.work.time_fraction(),
        "step_seconds": plan.work.step_s,
        "hash": format!("{:016x}", plan.hash()),
        "estimate": data(&answer.estimate(options.network.batch).json())?,
        "tensors": tensors,
    });
    if let (Some(fitting), Value::Object(map)) = (fitting, &mut value) {
        map.insert("budget_bytes".to_owned(), json!(fitting.budget.0));
        map.insert("fits".to_owned(), json!(fitting.fits));
        map.insert("max_batch".to_owned(), json!(fitting.largest.all));
        map.insert("levers".to_owned(), fitting.levers.iter().map(lever).collect());
        let cheapest = fitting.cheapest.as_ref().map(|(changes, total, time)| {
            json!({ "changes": changes, "total_bytes": total, "time_fraction": time })
        });
        map.insert("cheapest".to_owned(), json!(cheapest));
    }
    Ok(value)
}

fn lever(lever: &Lever) -> Value {
    json!({
        "name": lever.name,
        "peak_bytes": lever.peak_bytes,
        "total_bytes": lever.total_bytes,
        "saved_bytes": lever.saved_bytes,
        "time_fraction": lever.time_fraction,
        "exact": lever.exact,
    })
}
