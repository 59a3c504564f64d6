//! What the search believes against what programs need.

use super::*;
use crate::graph::Node;
use crate::models::{Model, ModelOptions};
use crate::plan::{PlanOptions, TrainStep};
use frontier::Heights;

fn small(name: &str) -> TrainStep {
    let image = (!matches!(name, "cnn" | "lenet" | "mlp")).then_some([64, 64]);
    let model =
        Model::with_options(name, 0, &ModelOptions { image, classes: Some(10), ..ModelOptions::default() });
    model.expect("known").train_step(64).expect("valid")
}

fn bench(step: &TrainStep, limits: &Limits, fuse: bool) -> Bench {
    let options = PlanOptions { rebuild: false, fuse, ..PlanOptions::default() };
    let graph = step.training_graph(&options, limits).expect("valid");
    Bench::new(graph, limits, &Roofline::default(), fuse).expect("valid")
}

#[test]
fn what_is_measured_is_what_the_program_needs() {
    let (mut lower, mut joined) = (0, 0);
    for name in ["mlp", "cnn", "lenet", "resnet18", "mobilenet-v2", "unet", "vgg16"] {
        for limits in ["nvidia", "swiftshader"].map(|name| Limits::named(name).expect("a preset")) {
            // Convolutions with their norm as one where neither waits.
            let bench = bench(&small(name), &limits, limits.name == "nvidia");
            let points = bench.frontier(Heights::Few);
            lower += usize::from(points.len() > 1);
            for point in points.iter().step_by(points.len().div_ceil(12)) {
                let program = bench.program(&point.fates, &limits).expect("it can be built");
                let bound = program.lower_bound(&limits).expect("a bound") - program.persistent_bytes();
                assert_eq!(bound, point.peak, "{name} for {}", limits.name);
                let both = |node: &&Node| node.op.name().starts_with("conv2d+batch_norm");
                joined += program.graph.nodes.iter().filter(both).count();
            }
        }
    }
    // In small networks nothing is lower than the gradient of the largest weight.
    assert!(lower >= 6, "only {lower} plans could be lowered");
    assert!(joined >= 3, "only {joined} convolutions run again with their norm");
}

#[test]
fn rules_drop_what_they_say() {
    let limits = Limits::default();
    let bench = bench(&small("resnet18"), &limits, false);
    let peak = |how: Recompute| {
        let program = bench.program(&bench.by_rule(how).expect("valid"), &limits).expect("it can be built");
        program.lower_bound(&limits).expect("a bound")
    };
    let off = peak(Recompute::Off);
    let rules = [
        Recompute::Every(1),
        Recompute::Every(3),
        Recompute::Sqrt,
        Recompute::Policy,
        Recompute::Named(&["layer1.0"]),
    ];
    for rule in rules {
        assert!(peak(rule) < off, "{rule:?} saves nothing");
    }
    let error = bench.by_rule(Recompute::Named(&["layer9"])).map(|_| ()).expect_err("there is no such layer");
    assert!(error.to_string().contains("no layer `layer9`"), "{error}");
}

/// A residual block is one layer.
#[test]
fn blocks_are_layers() {
    let limits = Limits::default();
    let bench = bench(&small("resnet18"), &limits, false);
    let kept = |how: Recompute| {
        let fates = bench.by_rule(how).expect("valid");
        let slots = select::candidates(&bench.tape);
        slots.iter().filter(|&&slot| fates[slot] == Fate::Keep).count()
    };
    let all = select::candidates(&bench.tape).len();
    let (one, two) = (kept(Recompute::Every(1)), kept(Recompute::Every(2)));
    // What blocks hand on, and the last segment: one block of the eight, or two of them.
    assert!(one.max(two) < all / 2 && one != two, "{one} and {two} of {all}");
    let layers = Layers::of(&bench.tape, &bench.graph).expect("a chain");
    // The stem, eight blocks and the last product.
    assert_eq!(layers.stages.len(), 10);
}
