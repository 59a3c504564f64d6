//! Errors in a model's code: each is reported, without a panic, for the operation that causes it. Also checks
//! that the passes between a model and its plan preserve parameters and gradients.

use wgrad::Error;
use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::dtype::DType;
use wgrad::graph::{CrossEntropy, IGNORE, Init, Op, Params, Tensor, Trace, Window};
use wgrad::limits::Limits;
use wgrad::nn::Module;
use wgrad::optim::{Optimizer, Sgd};
use wgrad::reference::Twin;

/// Returns the error message of a model with mistakes.
#[track_caller]
fn mistakes(model: impl FnOnce(&Trace) -> Tensor) -> String {
    match TrainStep::trace(&Params::new(0), model) {
        Err(error @ Error::Trace(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn says(model: impl FnOnce(&Trace) -> Tensor, parts: &[&str]) {
    let text = mistakes(model);
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in: {text}"));
    assert!(text.contains("(1 mistake)"), "{text}");
}

fn plan(step: &TrainStep, options: PlanOptions) -> Plan {
    step.plan(&options, &Limits::default()).expect("it can be planned")
}

/// Returns options with which the momentum after one step at rate 0 is the gradient.
fn gradient_state() -> PlanOptions {
    let optimizer: Optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
    PlanOptions { optimizer, ..PlanOptions::default() }
}

/// Returns the twin before the first step.
fn stepped(plan: &Plan) -> Twin<'_> {
    let mut twin = Twin::new(plan.graph());
    let optimizer = plan.optimizer.expect("a training plan");
    twin.set_step(&optimizer.scalars(0, optimizer.learning_rate(), plan.seed));
    twin
}

#[test]
#[allow(clippy::reversed_empty_ranges, reason = "what a user may write")]
fn mismatched_shapes_are_errors() {
    let image = |trace: &Trace| trace.input("x", [2, 6, 8, 8]);
    says(|trace| trace.input("x", [4, 3]).slice(1, 2..1).sum(&[]), &["slice 2..1", "[4, 3]", "ends before"]);
    says(|trace| trace.input("x", [4, 3]).pad(1, usize::MAX, 2).sum(&[]), &["pad", "too large"]);
    says(|trace| trace.input("x", [4, 1]).mse(&trace.input("y", [4])), &["mse", "[4, 1]", "[4]", "reshape"]);
    says(
        |trace| image(trace).avg_pool2d(Window::square(2).dilation(2), true).sum(&[]),
        &["avg_pool2d", "dilation [2, 2]"],
    );
    says(
        |trace| {
            let w = trace.input("w", [3, 3, 3, 3]);
            image(trace).conv2d(&w, None, Window::square(3), 2).sum(&[])
        },
        &["conv2d", "3 output channels", "2 groups"],
    );
    says(
        |trace| {
            let w = trace.input("w", [6, 2, 3, 3]);
            let window = Window::square(3).stride(2).dilation(3);
            image(trace).conv_transpose2d(&w, None, window, [3, 0], 1).sum(&[])
        },
        &["conv_transpose2d", "output padding [3, 0]", "stride [2, 2]", "dilation [3, 3]"],
    );
}

#[test]
fn parameter_of_other_params_is_an_error() {
    let (own, others) = (Params::new(0), Params::new(0));
    let a = own.add("a", [2], Init::Constant(1.0));
    let w = others.add("w", [2], Init::Constant(50.0));
    let step = TrainStep::trace(&own, |trace| trace.param(&a).sum(&[]).add(&trace.param(&w).sum(&[])));
    let text = step.expect_err("`w` is a stranger").to_string();
    assert!(text.contains("`w`") && text.contains("other `Params`"), "{text}");
}

#[test]
fn buffers_are_read_and_not_trained() {
    let params = Params::new(0);
    let w = params.add("w", [3], Init::Constant(2.0));
    let fixed = params.add_buffer("fixed", [3], Init::Constant(5.0));
    let step = TrainStep::trace(&params, |trace| trace.param(&w).mul(&trace.param(&fixed)).sum(&[]));
    let optimizer: Optimizer = Sgd { lr: 0.1, weight_decay: 0.5, ..Sgd::default() }.into();
    let plan = plan(&step.expect("valid"), PlanOptions { optimizer, ..PlanOptions::default() });
    let mut twin = stepped(&plan);
    twin.run().expect("it runs");
    assert_eq!(twin.parameter("fixed").expect("there"), [5.0; 3]);
    assert!(twin.parameter("w").expect("there").iter().all(|w| (w - (2.0 - 0.1 * (5.0 + 1.0))).abs() < 1e-6));
}

#[test]
fn casts_between_floats_pass_the_gradient() {
    for dtype in [DType::F16, DType::BF16] {
        let params = Params::new(0);
        let w = params.add("w", [4], Init::Constant(3.0));
        let step =
            TrainStep::trace(&params, |trace| trace.param(&w).cast(dtype).cast(DType::F32).square().sum(&[]));
        let plan = plan(&step.expect("valid"), gradient_state());
        let mut twin = stepped(&plan);
        twin.run().expect("it runs");
        assert_eq!(twin.parameter("w.momentum_buffer").expect("there"), [6.0; 4], "{dtype}");
    }
}

/// Sizes match PyTorch's for output padding up to the dilation, also where only the bias contributes.
#[test]
fn output_padding_may_be_larger_than_the_stride() {
    for (padding, extra, expected) in [(0, 2, 11.0), (2, 2, 7.0)] {
        let params = Params::new(0);
        let w = params.add("w", [1, 1, 3, 3], Init::Constant(1.0));
        let b = params.add("b", [1], Init::Constant(0.25));
        let traced = TrainStep::trace(&params, |trace| {
            let x = trace.input("x", [1, 1, 3, 3]);
            let window = Window::square(3).padding(padding).dilation(3);
            let y = x.conv_transpose2d(&trace.param(&w), Some(&trace.param(&b)), window, [extra; 2], 1);
            trace.output("size", &trace.input("like", [1]).scale(y.dim(2) as f32));
            y.sum(&[])
        });
        let plan = plan(&traced.expect("valid"), gradient_state());
        let mut twin = stepped(&plan);
        twin.set("x", &[1.0; 9]).expect("there");
        twin.set("like", &[1.0]).expect("there");
        twin.run().expect("it runs");
        assert_eq!(twin.output("size").expect("there"), [expected]);
        // Only taps that land inside the image count.
        let positions: Vec<i64> =
            (0..3).flat_map(|i| (0..3).map(move |k| i + 3 * k - padding as i64)).collect();
        let inside = positions.iter().filter(|p| (0..expected as i64).contains(*p)).count() as f64;
        let sum = inside * inside + 0.25 * expected * expected;
        assert!((twin.output("loss").expect("there")[0] - sum).abs() < 1e-9);
    }
}

/// An output holds the value that the step computed with, not the updated parameter.
#[test]
fn outputs_in_a_parameters_memory_are_copies() {
    let params = Params::new(0);
    let w = params.add("w", [2, 3], Init::Constant(1.0));
    let step = TrainStep::trace(&params, |trace| {
        let w = trace.param(&w);
        trace.output("view", &w.reshape([6]));
        trace.output("row", &w.slice(0, 1..2));
        w.square().sum(&[])
    });
    let graph = plan(&step.expect("valid"), PlanOptions::default());
    let copied = |name: &str| {
        let id = graph.graph().outputs.iter().find(|(other, _)| other == name).expect("an output").1;
        graph.graph().nodes.iter().any(|node| node.op == Op::Copy && node.outputs.contains(&id))
    };
    assert!(copied("view") && copied("row"));
}

/// A mistake within a layer names the layer and the line of the user's code that called it.
#[test]
fn mistakes_in_layers_have_the_line_of_the_caller() {
    let params = Params::new(0);
    let net = wgrad::nn::Sequential::new()
        .add(wgrad::nn::Linear::new(&params.scope("0"), 3, 4))
        .add(wgrad::nn::Linear::new(&params.scope("1"), 5, 6));
    let fc = wgrad::nn::Linear::new(&params.scope("block.fc"), 7, 8);
    let line = line!() + 2;
    let step =
        TrainStep::trace(&params, |trace| fc.forward(&net.forward(&trace.input("x", [2, 3]))).sum(&[]));
    let Err(Error::Trace(mistakes)) = step.map(drop) else { panic!("4 outputs into 5 inputs") };
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let mistake = &mistakes[0];
    assert!(mistake.file.ends_with("model_errors.rs") && mistake.line == line, "{mistake}");
    assert!(mistake.message.starts_with("`1`: matmul [2, 4]"), "{mistake}");
    let step = TrainStep::trace(&params, |trace| fc.forward(&trace.input("x", [2, 3])).sum(&[]));
    let text = step.map(drop).expect_err("3 columns into 7 inputs").to_string();
    assert!(text.contains("`block.fc`: matmul [2, 3]") && text.contains("model_errors.rs"), "{text}");
}

#[test]
fn lstm_of_wrong_operands_still_returns_a_memory() {
    use wgrad::nn::{Recurrent, RecurrentConfig};
    let params = Params::new(0);
    let lstm = Recurrent::new(&params, 16, 8, RecurrentConfig::default());
    says(
        |trace| lstm.run(&trace.input("x", [20, 16]), None).1.memory.expect("an LSTM has a memory").sum(&[]),
        &["[20, 16]"],
    );
}

#[test]
fn adaptive_pools_keep_axes_of_any_length() {
    let pooled = |trace: &Trace| {
        let y = trace.input("x", [1, 1, 4, 300, 300]).adaptive_max_pool3d([2, 300, 300]);
        assert_eq!(y.shape().dims(), [1, 1, 2, 300, 300]);
        y.sum(&[])
    };
    TrainStep::trace(&Params::new(0), pooled).expect("valid");
}

#[test]
fn labels_of_more_classes_than_logits_are_a_mistake() {
    let classes = |trace: &Trace, n: u32| trace.input("x", [2, 3]).cross_entropy(&trace.labels("y", [2], n));
    says(|trace| classes(trace, 99), &["labels of 99 classes", "scores of 3"]);
    assert!(TrainStep::trace(&Params::new(0), |trace| classes(trace, 3)).is_ok());
}

#[test]
fn losses_with_weights_take_declared_labels() {
    let params = Params::new(0);
    let [logits, weight] = [("x", [2, 3].into()), ("w", wgrad::shape::Shape::from([3]))]
        .map(|(name, shape)| params.add(name, shape, Init::Constant(0.5)));
    let step = TrainStep::trace(&params, |trace| {
        let (x, labels) = (trace.param(&logits), trace.labels("y", [2], 3));
        let weight = trace.param(&weight).detach();
        let options = CrossEntropy { weight: Some(&weight), ..CrossEntropy::default() };
        x.cross_entropy_with(&labels, &options).add(&x.log_softmax().nll(&labels))
    });
    let step = step.expect("labels may be ignored");
    let mut twin = Twin::new(step.graph());
    twin.set_u32("y", &[1, IGNORE]).expect("labels");
    twin.run().expect("it runs");
    // Both are the mean over the row that counts: ln 3.
    let loss = twin.value(step.graph().outputs[0].1).expect("computed")[0];
    assert!((loss - 2.0 * 3f64.ln()).abs() < 1e-12, "{loss}");
}
