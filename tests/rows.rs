//! Embedding, norms of rows and cross-entropy in chunks: what plans and sessions make of them.

mod support;

use wgrad::graph::Params;
use wgrad::graph::{Init, Tensor};
use wgrad::limits::Limits;
use wgrad::plan::{Plan, PlanOptions, TrainStep};

/// A language model's ends: tied embedding and output weights, and a layer in between.
fn tied(rows: usize, vocabulary: usize, width: usize, chunks: usize) -> TrainStep {
    let params = Params::new(1);
    TrainStep::trace(&params, |trace| {
        let table = trace.param(&params.add("table", [vocabulary, width], Init::Normal(0.02)));
        let hidden = trace.param(&params.add("hidden", [width, width], Init::fan_in(width)));
        let ids = trace.ids("ids", [rows], vocabulary as u32);
        let labels = trace.labels("labels", [rows], vocabulary as u32);
        let h: Tensor = table.embedding(&ids).matmul(&hidden).gelu();
        h.linear_cross_entropy(&table, &labels, chunks)
    })
    .expect("valid")
}

fn plan(step: &TrainStep) -> Plan {
    step.plan(&PlanOptions::default(), &Limits::named("lavapipe").expect("a preset")).expect("planned")
}

#[test]
fn one_chunk_of_logits_is_alive_at_once() {
    let (rows, vocabulary, width) = (2048, 4000, 32);
    let logits = (rows * vocabulary * 4) as u64;
    for chunks in [1, 2, 4, 8, 16] {
        let plan = plan(&tied(rows, vocabulary, width, chunks));
        let others = plan.certificate.lower_bound;
        eprintln!("{chunks}: {} logits {} at {}", others, logits / chunks as u64, plan.peak.at);
    }
}
