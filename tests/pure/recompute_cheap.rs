//! Cheap recomputation: every operation that is declared cheap is recomputed, and its time is counted in
//! full.

use wgrad::compile::{PlanOptions, Recompute, TrainStep};
use wgrad::graph::{Graph, Init, Node, Params, Tensor, Trace, Window};
use wgrad::limits::Limits;
use wgrad::models::{Model, ModelOptions};
use wgrad::nn::{BatchNorm2d, Conv2d};

/// Returns the recomputed operations.
fn recomputed(graph: &Graph) -> Vec<&Node> {
    let is_again = |node: &&Node| node.outputs.iter().any(|id| graph.value(*id).again);
    graph.nodes.iter().filter(is_again).collect()
}

/// Returns a step whose backward pass reads the result of `f` on a parameter `[6, 8]`.
fn step_of(f: impl Fn(&Trace, &Tensor, &dyn Fn(&str) -> Tensor) -> Tensor) -> TrainStep {
    let params = Params::new(1);
    let weight = params.add("w", [6, 8], Init::Uniform(0.5));
    let others = ["gamma", "beta"].map(|name| (name, params.add(name, [8], Init::Uniform(0.5))));
    let step = TrainStep::trace(&params, |trace| {
        let other = |name: &str| {
            let found = others.iter().find(|(other, _)| *other == name).expect("there");
            trace.param(&found.1)
        };
        f(trace, &trace.param(&weight), &other).square().sum(&[])
    });
    step.expect("valid")
}

#[test]
fn every_cheap_operation_is_recomputed() {
    type Make = fn(&Trace, &Tensor, &dyn Fn(&str) -> Tensor) -> Tensor;
    let cheap: [(&str, Make); 14] = [
        ("batch_norm", |_, w, p| {
            w.reshape([1, 6, 8, 1]).permute(&[0, 2, 1, 3]).batch_norm_train(
                &p("gamma"),
                &p("beta"),
                1e-5,
                None,
            )
        }),
        ("layer_norm", |_, w, p| w.layer_norm(&p("gamma"), &p("beta"), 1e-5)),
        ("rms_norm", |_, w, p| w.rms_norm(&p("gamma"), 1e-5)),
        ("relu", |_, w, _| w.relu()),
        ("clamp", |_, w, _| w.clamp(-0.1, 0.2)),
        ("gelu", |_, w, _| w.gelu()),
        ("gelu_tanh", |_, w, _| w.gelu_tanh()),
        ("silu", |_, w, _| w.silu()),
        ("dropout", |_, w, _| w.dropout(0.3)),
        ("embedding", |trace, w, _| w.embedding(&trace.ids("x", [5, 7], 6))),
        ("add", |_, w, p| w.add(&p("beta"))),
        ("mul", |_, w, p| w.mul(&p("gamma"))),
        ("concat", |_, w, _| w.concat(&[&w.exp(), w], 0)),
        ("slice", |_, w, _| w.slice(0, 1..5)),
    ];
    for (name, make) in cheap {
        let step = step_of(make);
        let repeated = |rebuild: bool| {
            let options = PlanOptions { rebuild, fuse: false, ..PlanOptions::default() };
            let plan = step.plan(&options, &Limits::default()).expect("planned");
            recomputed(plan.graph()).iter().filter(|node| node.op.name() == name).count()
        };
        assert_eq!((repeated(true), repeated(false)), (1, 0), "{name}, with rebuild and without");
    }
}

/// Operations that cost more than a pass over memory are saved, although they could be recomputed.
#[test]
fn products_softmax_and_exp_are_not_recomputed() {
    type Make = (&'static str, fn(&Tensor) -> Tensor);
    let makes: [Make; 3] = [
        ("matmul", |w| w.matmul_transposed(w, false, true)),
        ("softmax", |w| w.softmax()),
        ("exp", Tensor::exp),
    ];
    for (name, make) in makes {
        let step = step_of(|_, w, _| make(w));
        let options = PlanOptions { fuse: false, ..PlanOptions::default() };
        let plan = step.plan(&options, &Limits::default()).expect("planned");
        assert!(recomputed(plan.graph()).is_empty(), "{name} runs again");
    }
}

/// Each layer of a dense block normalises a concatenation: its parts are saved, once each, and the
/// concatenation is recomputed from them.
#[test]
fn concats_of_a_dense_block_are_recomputed() {
    let params = Params::new(1);
    let layer = |i: usize| {
        let (scope, channels) = (params.scope(format!("layer{i}")), 8 + 8 * i);
        let conv = Conv2d::new(&scope.scope("conv"), channels, 8, Window::square(3).padding(1));
        (BatchNorm2d::new(&scope.scope("norm"), channels), conv)
    };
    let layers: Vec<_> = (0..4).map(layer).collect();
    let step = TrainStep::trace(&params, |trace| {
        let mut parts = vec![trace.input("x", [4, 8, 16, 16])];
        for (norm, conv) in &layers {
            let others: Vec<&Tensor> = parts[1..].iter().collect();
            let joined = parts[0].concat(&others, 1);
            parts.push(joined.apply(norm).relu().apply(conv));
        }
        parts[4].square().sum(&[])
    });
    let step = step.expect("valid");
    let peak = |rebuild: bool| {
        let options = PlanOptions { rebuild, fuse: false, ..PlanOptions::default() };
        let plan = step.plan(&options, &Limits::default()).expect("planned");
        (plan.peak_bytes(), recomputed(plan.graph()).iter().filter(|node| node.op.name() == "concat").count())
    };
    let ((less, joins), (more, none)) = (peak(true), peak(false));
    assert!(joins >= 3 && none == 0, "{joins} joins again, {none} without rebuild");
    assert!(less * 100 < more * 65, "{less} of {more} bytes");
}

#[test]
fn recomputation_time_is_counted_in_full() {
    for name in ["resnet18", "gpt-nano"] {
        let sized = match name {
            "gpt-nano" => ModelOptions { seq: Some(32), ..ModelOptions::default() },
            _ => ModelOptions { image: Some([64, 64]), ..ModelOptions::default() },
        };
        let step = Model::with_options(name, 0, &sized).expect("known").train_step(16).expect("valid");
        for recompute in [Recompute::Off, Recompute::Every(1), Recompute::Sqrt, Recompute::Policy] {
            let options = PlanOptions { recompute, fuse: false, ..PlanOptions::default() };
            let plan = step.plan(&options, &Limits::default()).expect("planned");
            let graph = plan.graph();
            let repeated = recomputed(graph);
            let launches = plan.launches(&options.card).expect("lowered before");
            let positions = plan.program.launches.iter().map(|(_, position)| plan.program.order[*position]);
            let (mut again_s, mut all_s) = (0.0, 0.0);
            for (launch, n) in launches.iter().zip(positions) {
                let again = repeated.iter().any(|node| std::ptr::eq(*node, &graph.nodes[n]));
                again_s += if again { launch.seconds } else { 0.0 };
                all_s += launch.seconds;
            }
            let what = format!("{name} {recompute:?}");
            let rule = recompute != Recompute::Off;
            assert!(
                !rule || again_s > 0.005 * plan.work.step_s,
                "{what}: hardly anything runs again: {again_s} s"
            );
            // A plan's views and results in place change what a few of its launches bind.
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-3 * all_s;
            assert!(near(plan.work.again_s, again_s), "{what}: {} of {again_s}", plan.work.again_s);
            assert!(near(plan.work.seconds(), all_s), "{what}: {} of {all_s}", plan.work.seconds());
            assert!(near(plan.work.time_fraction() * plan.work.step_s, again_s), "{what}");
            let flops: u64 = repeated.iter().map(|node| graph.cost(node).flops).sum();
            let bytes: u64 = repeated.iter().map(|node| graph.cost(node).bytes).sum();
            assert_eq!((plan.work.again.flops, plan.work.again.bytes), (flops, bytes), "{what}");
        }
    }
}
