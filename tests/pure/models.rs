//! Networks by name: torchvision's sizes, commonly quoted figures, the memory they need compared with
//! PyTorch's, and invalid options.

use std::time::Instant;

use crate::support::pytorch;
use wgrad::Error;
use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::graph::{Averaging, Init, Node, Op, Params, Window};
use wgrad::limits::Limits;
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::Optimizer;
use wgrad::report;
use wgrad::shape::Shape;

fn plan(model: &str, batch: usize, limits: &str) -> wgrad::Result<Plan> {
    let optimizer = Optimizer::named("momentum")?;
    let step = Model::named(model, 0)?.train_step(batch)?;
    step.plan(&PlanOptions { optimizer, ..PlanOptions::default() }, &Limits::named(limits).expect("a preset"))
}

#[test]
fn parameter_counts_match_torchvision() {
    let counts = [
        ("cnn", 67_530),
        ("lenet", 61_706),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("vgg16", 138_357_544),
        ("mobilenet-v2", 3_504_872),
        ("densenet121", 7_978_856),
        ("unet", 31_043_586),
    ];
    for (name, count) in counts {
        assert_eq!(Model::named(name, 0).expect("known").params().count(), count, "{name}");
    }
}

/// Returns the layers and parameters of a network, as `tests/golden/torchvision_shapes.py` writes them.
fn layers_and_parameters(name: &str) -> Vec<String> {
    let model = Model::named(name, 0).expect("known");
    let forward = model.forward(2).expect("valid");
    let text = |shape: &Shape| shape.dims().iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    let layer = |node: &Node| {
        let kind = match node.op {
            Op::Conv2d { .. } => "conv2d",
            Op::MaxPool2d(_) => "max_pool2d",
            Op::AvgPool2d(Averaging::Window { .. }) => "avg_pool2d",
            Op::MatMul { .. } => "linear",
            _ => return None,
        };
        Some(format!("{kind} {}", text(&forward.graph().value(node.outputs[0]).shape)))
    };
    let parameters = model.params().list().into_iter();
    let trained = parameters.filter(|param| !param.name().contains("running_"));
    let parameters: Vec<String> = trained.map(|p| format!("parameter {}", text(&p.shape()))).collect();
    forward.graph().nodes.iter().filter_map(layer).chain(parameters).collect()
}

#[test]
fn layer_and_parameter_shapes_match_torchvision() {
    let networks = include_str!("../golden/torchvision.txt").split("network ").skip(1);
    let mut seen = 0;
    for network in networks {
        let mut lines = network.lines();
        let name = lines.next().expect("a name");
        let theirs: Vec<&str> = lines.collect();
        let ours = layers_and_parameters(name);
        for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours, theirs, "{name}, line {i}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 5);
}

#[test]
fn resnet18_has_the_commonly_quoted_tensor_sizes() {
    let plan = plan("resnet18", 128, "discrete").expect("it fits");
    let tensors = report::tensors(&plan);
    let bytes = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.bytes >> 20);
    assert_eq!(bytes("conv1.conv2d"), Some(392));
    assert_eq!(bytes("max_pool2d"), Some(98));
}

#[test]
fn only_operands_of_backward_rules_are_saved() {
    let plan = plan("resnet18", 8, "discrete").expect("it fits");
    let kept = report::kept(&plan);
    let ops: Vec<&str> = kept.iter().map(|k| k.op).collect();
    assert!(
        ops.contains(&"conv2d") && ops.contains(&"max_pool2d") && ops.contains(&"batch_stats"),
        "{ops:?}"
    );
    assert!(!ops.iter().any(|op| ["batch_norm", "relu"].contains(op)), "{ops:?}");
}

/// The allowed fraction of PyTorch's peak: bytes created, staging included, divided by bytes held, inputs
/// included. Each limit is 2 % above the measured fraction.
const MAX_SHARE_OF_PYTORCH: [(&str, f64); 6] = [
    ("resnet18", 0.613),
    ("resnet50", 0.608),
    ("vgg16", 0.569),
    ("mobilenet-v2", 0.374),
    ("densenet121", 0.239),
    ("unet", 0.520),
];

#[test]
fn steps_need_less_memory_than_in_pytorch() {
    for (name, part) in MAX_SHARE_OF_PYTORCH {
        let start = Instant::now();
        let held = pytorch::held(name, None);
        assert_eq!((held.optimizer.as_str(), held.seq), ("momentum", None), "{name}");
        let plans = ["nvidia", "discrete"].map(|limits| plan(name, held.batch, limits).expect("it fits"));
        let most = |of: fn(&Plan) -> f64| plans.iter().map(of).fold(0.0, f64::max);
        let share = most(|plan| plan.footprint().total() as f64) / held.peak_bytes as f64;
        let height = most(|plan| plan.peak_bytes() as f64 / plan.lower_bound_bytes() as f64);
        eprintln!("{name}: {share:.4} of PyTorch's, {height:.4} of the bound, {:.2?}", start.elapsed());
        assert!(share <= part, "{name}: {share:.4} of PyTorch's peak, {part} is allowed");
        assert!(height <= 1.001, "{name}: height {height:.4} times the lower bound");
    }
}

#[test]
fn tensor_over_the_binding_limit_is_named_with_the_batch_that_fits() {
    let error = plan("resnet18", 4000, "discrete").expect_err("2.2 GiB do not fit");
    let Error::TensorTooLarge { name, batch_that_fits, .. } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), *batch_that_fits), ("x", Some(3566)));
    plan("resnet18", 3566, "discrete").expect("it fits, as was said");
}

/// Every network at its usual batch, with the bindings of lavapipe, and with the buffers of browsers: vgg16 has a matrix of 392 MiB.
#[test]
fn tensors_larger_than_a_binding_are_split() {
    let usual = [
        ("resnet18", 128),
        ("resnet50", 64),
        ("unet", 8),
        ("mobilenet-v2", 64),
        ("densenet121", 64),
        ("bert-base", 32),
        ("gpt2", 8),
        ("gpt2-medium", 8),
        ("vgg16", 64),
    ];
    for (name, batch) in usual {
        for limits in ["lavapipe", "webgpu"] {
            let planned = plan(name, batch, limits).expect("it fits");
            let bound = planned.program.launches.iter().flat_map(|(launch, _)| &launch.memory);
            let bound = bound.map(|span| span.bytes).max().expect("there are launches");
            assert!(bound <= planned.limits.max_binding, "{name} for {limits}: a binding of {bound} bytes");
            let buffer = planned.layout.arenas().map(|(_, bytes)| bytes).max().expect("there are buffers");
            assert!(buffer <= planned.limits.max_buffer, "{name} for {limits}: a buffer of {buffer} bytes");
            let whole = plan(name, batch, "nvidia").expect("it fits");
            let more = planned.footprint().total() as f64 / whole.footprint().total() as f64;
            assert!(more < 1.25, "{name} for {limits}: {more} of the bytes of whole tensors");
        }
    }
}

#[test]
fn cnn_of_the_benchmark_stays_within_its_documented_bytes() {
    let step = Model::named("cnn", 0).expect("known").train_step(128).expect("valid");
    let optimizer = Optimizer::named("adam").expect("known");
    let limits = Limits::named("lavapipe").expect("a preset");
    let plan = step.plan(&PlanOptions { optimizer, ..PlanOptions::default() }, &limits).expect("it fits");
    let bytes = plan.footprint().total();
    assert!(bytes <= 12_400_000, "{bytes} bytes, staging and all, where 12,178,768 were reached");
}

fn traced(window: Window, groups: usize, image: [usize; 4], weight: [usize; 4]) -> String {
    let params = Params::new(0);
    let w = params.add("w", weight, Init::Constant(0.0));
    let step = TrainStep::trace(&params, |t| {
        t.input("x", image).conv2d(&t.param(&w), None, window, groups).sum(&[])
    });
    step.expect_err("a mistake").to_string()
}

#[test]
fn invalid_convolutions_and_options_are_errors() {
    let larger = traced(Window::square(7), 1, [1, 3, 4, 4], [8, 3, 7, 7]);
    assert!(
        larger.contains("a kernel of [7, 7]") && larger.contains("larger than the image of [4, 4]"),
        "{larger}"
    );
    let groups = traced(Window::square(1), 4, [1, 6, 4, 4], [8, 1, 1, 1]);
    assert!(groups.contains("6 input channels are not divisible by 4 groups"), "{groups}");
    let channels = traced(Window::square(1), 1, [1, 6, 4, 4], [8, 5, 1, 1]);
    assert!(channels.contains("has 6 channels") && channels.contains("takes 5"), "{channels}");
    let small = ModelOptions { image: Some([0, 3]), ..ModelOptions::default() };
    assert!(matches!(Model::with_options("resnet18", 0, &small), Err(Error::Setting { .. })));
    let image = ModelOptions { image: Some([8, 8]), ..ModelOptions::default() };
    assert!(matches!(Model::with_options("mlp", 0, &image), Err(Error::Setting { .. })));
}

#[test]
fn cheap_recomputation_lowers_the_peak() {
    let step = Model::named("resnet18", 0).expect("known").train_step(8).expect("valid");
    let limits = Limits::default();
    let peak = |rebuild: bool| {
        let options = PlanOptions { rebuild, ..PlanOptions::default() };
        step.plan(&options, &limits).expect("it fits").peak_bytes()
    };
    // Norms that are fused into convolutions are not saved in either plan.
    assert!(peak(true) * 100 < peak(false) * 95, "{} and {}", peak(true), peak(false));
}
