//! Fused operations are bit-identical to separate ones, and the planner accounts for the memory that they
//! save.

use crate::support::close::assert_same_bits;
use crate::support::networks::{BATCH, network, optimizer, run};
use crate::support::{devices, each_case, on_each};
use wgrad::compile::{Forward, Plan, PlanOptions, Recompute};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::graph::{Graph, Op};
use wgrad::limits::Limits;
use wgrad::models::{Model, ModelOptions};

const NETWORKS: [&str; 5] = ["mlp", "cnn", "plain", "resnet", "gpt"];

fn count(graph: &Graph) -> usize {
    let joined = |op: &Op| matches!(op, Op::Fused(_)) || op.epilogue().is_some();
    graph.nodes.iter().filter(|node| joined(&node.op)).count()
}

#[test]
fn fused_and_unfused_steps_give_the_same_bits() {
    let options = PlanOptions { optimizer: optimizer(), ..PlanOptions::default() };
    let check = |device: &Device, limits: &Limits, name: &str, (what, options): &(&str, PlanOptions)| {
        let step = network(name, BATCH / options.accumulate as usize);
        let plan = |fuse| step.plan(&PlanOptions { fuse, ..*options }, limits).expect("planned");
        let (single, fused) = (plan(false), plan(true));
        assert_eq!(count(single.graph()), 0);
        assert!(count(fused.graph()) > 1, "{name}, {what}: nothing was joined");
        assert!(fused.program.launches.len() < single.program.launches.len(), "{name}, {what}");
        let (wanted, found) = (run(device, &single), run(device, &fused));
        assert_eq!(wanted.len(), found.len());
        for ((tensor, wanted), (_, found)) in wanted.iter().zip(&found) {
            assert_same_bits(&format!("{name}, {what}: {tensor}"), wanted, found);
        }
    };
    let variants = [
        ("plain", PlanOptions { rebuild: false, ..options }),
        ("in 16 bits", PlanOptions { precision: Precision::F16, ..options }),
        ("in bfloat16", PlanOptions { precision: Precision::Bf16, rebuild: false, ..options }),
    ];
    // When fused, a convolution reads the rounded operand of a norm; unfused, it reads the norm's rounded result.
    let same_bits = |name: &str, options: &PlanOptions| {
        options.precision == Precision::F32 || !matches!(name, "cnn" | "resnet")
    };
    let cases = NETWORKS.into_iter().flat_map(|name| variants.map(|variant| (name, variant)));
    let cases = cases.filter(|(name, (_, options))| same_bits(name, options));
    each_case(cases, false, |device, limits, (name, variant)| check(device, limits, name, variant));
    // What is recomputed and accumulated does not depend on the class of the kernels, and in 32 bits `plain` differs from
    // `rebuilt` by what is recomputed.
    let variants = [
        ("rebuilt", options),
        ("every layer again", PlanOptions { recompute: Recompute::Every(1), ..options }),
        ("in parts", PlanOptions { accumulate: 2, recompute: Recompute::Policy, ..options }),
    ];
    on_each(devices(), |device| {
        for name in NETWORKS {
            variants.iter().for_each(|variant| check(device, device.limits(), name, variant));
        }
    });
}

fn bytes(plan: &Plan) -> u64 {
    plan.footprint().total()
}

/// Intermediate results of fused operations are not in memory, which reduces traffic.
#[test]
fn fused_plans_need_no_more_memory_and_less_traffic() {
    let limits = Limits::named("discrete").expect("a preset");
    for (name, least) in
        [("resnet18", 0.03), ("mobilenet-v2", 0.0), ("gpt-nano", 0.01), ("unet", 0.0), ("llama-tiny", 0.01)]
    {
        let image = matches!(name, "resnet18" | "mobilenet-v2" | "unet").then_some([64, 64]);
        let model =
            Model::with_options(name, 0, &ModelOptions { image, ..ModelOptions::default() }).expect("known");
        let step = model.train_step(16).expect("valid");
        for rebuild in [false, true] {
            let options = PlanOptions { optimizer: optimizer(), rebuild, ..PlanOptions::default() };
            let plan = |fuse| step.plan(&PlanOptions { fuse, ..options }, &limits).expect("planned");
            let (single, fused) = (plan(false), plan(true));
            let more = bytes(&fused) as f64 / bytes(&single) as f64;
            assert!(more <= 1.002, "{name}, rebuild {rebuild}: {more:.4} of the bytes");
            let traffic = |plan: &Plan| plan.graph().total_cost().bytes as f64;
            let saved = 1.0 - traffic(&fused) / traffic(&single);
            println!("{name}, rebuild {rebuild}: {more:.4} of the bytes, {saved:.4} of the traffic saved");
            assert!(saved >= least, "{name}, rebuild {rebuild}: {saved:.4} of the traffic saved");
        }
    }
}

#[test]
fn forward_passes_are_fused() {
    let params = wgrad::graph::Params::new(0);
    let forward = Forward::trace(&params, "y", |trace| {
        let x = trace.input("x", [8, 8]);
        let kept = x.gelu();
        trace.output("kept", &kept);
        kept.scale(2.0).tanh().offset(1.0)
    });
    let forward = forward.expect("valid");
    let names = |plan: Plan| plan.graph().nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>();
    let limits = Limits::default();
    assert_eq!(names(forward.plan(&limits).expect("planned")), ["gelu", "scale+tanh+offset"]);
    assert_eq!(names(forward.plan_unfused(&limits).expect("planned")), ["gelu", "scale", "tanh", "offset"]);
}
