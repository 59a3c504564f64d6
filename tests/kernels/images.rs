//! Operations on images: values and gradients against PyTorch's and the `f64` twin's, on every adapter and
//! with both families of kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support;
use safetensors::SafeTensors;
use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::exec::{Debug, Eager, ProgramId, Session};
use wgrad::graph::{Init, Params, RunningStats, Tensor, Window};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::models::ResNet;
use wgrad::nn::{BatchNorm2d, Conv2d};
use wgrad::optim::Sgd;
use wgrad::reference::Twin;
use wgrad::shape::Shape;

type Golden = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn golden() -> Golden {
    let path = crate::support::golden::path("images.safetensors");
    let bytes = std::fs::read(path).expect("golden values are committed");
    let file = SafeTensors::deserialize(&bytes).expect("they are a safetensors file");
    let one = |(name, view): (String, safetensors::tensor::TensorView)| {
        (name, (view.shape().to_vec(), bytemuck::pod_collect_to_vec::<u8, f32>(view.data())))
    };
    file.tensors().into_iter().map(one).collect()
}

struct Inputs<'a>(&'a dyn Fn(&str) -> Tensor);

impl Inputs<'_> {
    fn get(&self, name: &str) -> Tensor {
        (self.0)(name)
    }

    fn conv(&self, x: &Tensor, w: &str, window: Window, groups: usize) -> Tensor {
        x.conv2d(&self.get(w), None, window, groups)
    }

    fn norm(&self, x: &Tensor, i: &str) -> Tensor {
        x.batch_norm_train(&self.get(&format!("g{i}")), &self.get(&format!("b{i}")), 1e-5, None)
    }
}

/// Applies the function of each case of `tests/golden/images.py`.
fn forward(case: &str, t: &Inputs) -> Tensor {
    let sq = Window::square;
    let conv = |window: Window, groups: usize, bias: bool| {
        let b = bias.then(|| t.get("b"));
        t.get("x").conv2d(&t.get("w"), b.as_ref(), window, groups)
    };
    let transposed = |window: Window, extra: usize, groups: usize| {
        t.get("x").conv_transpose2d(&t.get("w"), Some(&t.get("b")), window, [extra; 2], groups)
    };
    let uneven = Window { kernel: [2, 5], stride: [3, 2], padding: [1, 2], dilation: [2, 1] };
    let train = || t.get("x").batch_norm_train(&t.get("gamma"), &t.get("beta"), 1e-5, None);
    let x = || t.get("x");
    match case {
        "conv_3x3" | "conv_many_channels" => conv(sq(3).padding(1), 1, true),
        "conv_stride" => conv(sq(3).stride(2).padding(1), 1, true),
        "conv_1x1" => conv(sq(1), 1, false),
        "conv_1x1_stride" => conv(sq(1).stride(2), 1, false),
        "conv_7x7" => conv(sq(7).stride(2).padding(3), 1, false),
        "conv_dilated" => conv(sq(3).padding(2).dilation(2), 1, true),
        "conv_uneven" => conv(uneven, 1, true),
        "conv_gaps" => conv(sq(2).stride(3), 1, true),
        "conv_groups" => conv(sq(3).padding(1), 3, true),
        "conv_wide_groups" => conv(sq(3).padding(1), 2, true),
        "conv_depthwise" => conv(sq(3).stride(2).padding(1), 6, true),
        "conv_no_padding" => conv(sq(3), 1, true),
        "transposed_2x2" => transposed(sq(2).stride(2), 0, 1),
        "transposed_3x3" => transposed(sq(3).stride(2).padding(1), 1, 1),
        "transposed_groups" => transposed(sq(3).padding(1), 0, 2),
        "max_pool_2" => x().max_pool2d(sq(2).stride(2)),
        "max_pool_3" => x().max_pool2d(sq(3).stride(2).padding(1)),
        "max_pool_dilated" => x().max_pool2d(sq(2).dilation(3)),
        "avg_pool_2" => x().avg_pool2d(sq(2).stride(2), true),
        "avg_pool_padded" => x().avg_pool2d(sq(3).stride(2).padding(1), true),
        "avg_pool_inside" => x().avg_pool2d(sq(3).stride(2).padding(1), false),
        "adaptive_3x5" => x().adaptive_avg_pool2d([3, 5]),
        "adaptive_up" => x().adaptive_avg_pool2d([7, 6]),
        "adaptive_1" => x().adaptive_avg_pool2d([1, 1]),
        "nearest_2" => x().upsample_nearest([8, 10]),
        "nearest_any" => x().upsample_nearest([7, 3]),
        "bilinear_2" => x().upsample_bilinear([8, 10], false),
        "bilinear_any" => x().upsample_bilinear([7, 3], false),
        "bilinear_one" => x().upsample_bilinear([1, 12], false),
        "bilinear_2_corners" => x().upsample_bilinear([8, 10], true),
        "bilinear_any_corners" => x().upsample_bilinear([7, 3], true),
        "bilinear_one_corners" => x().upsample_bilinear([1, 12], true),
        "zero_pad" => x().zero_pad2d([0, 3], [1, 2]),
        "batch_norm" | "batch_norm_vec4" => train(),
        "batch_norm_relu" => train().relu(),
        "batch_norm_relu6" => train().scale(2.0).clamp(0.0, 6.0),
        "batch_norm_eval" => {
            x().batch_norm_eval(&t.get("gamma"), &t.get("beta"), &t.get("mean"), &t.get("var"), 1e-5)
        }
        "group_norm" => x().group_norm(3, &t.get("gamma"), &t.get("beta"), 1e-5),
        "resnet_block" => {
            let y = t.norm(&t.conv(&x(), "w1", sq(3).stride(2).padding(1), 1), "1").relu();
            let y = t.norm(&t.conv(&y, "w2", sq(3).padding(1), 1), "2");
            y.add(&t.norm(&t.conv(&x(), "w3", sq(1).stride(2), 1), "3")).relu()
        }
        "depthwise_block" => {
            let y = t.norm(&t.conv(&x(), "w1", sq(1), 1), "1").clamp(0.0, 6.0);
            let y = t.norm(&t.conv(&y, "w2", sq(3).padding(1), 12), "2").clamp(0.0, 6.0);
            x().add(&t.norm(&t.conv(&y, "w3", sq(1), 1), "3"))
        }
        "unet_block" => {
            let skip = t.norm(&t.conv(&x(), "w1", sq(3).padding(1), 1), "1").relu();
            let pooled = skip.max_pool2d(sq(2).stride(2));
            let deep = t.norm(&t.conv(&pooled, "w2", sq(3).padding(1), 1), "2").relu();
            let up = deep.conv_transpose2d(&t.get("w3"), Some(&t.get("b3")), sq(2).stride(2), [0; 2], 1);
            t.norm(&t.conv(&skip.concat(&[&up], 1), "w4", sq(3).padding(1), 1), "4").relu()
        }
        _ => panic!("no function for `{case}`"),
    }
}

/// Checks that no difference exceeds this `part` of the largest expected value.
#[track_caller]
fn near(what: &str, actual: &[f32], expected: &[f32], part: f64) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3f64, |most, x| most.max(f64::from(x.abs())));
    for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(a) - f64::from(e)).abs() / largest;
        assert!(
            error <= part,
            "{what}: element {i} is {a}, should be {e}: {error:.1e} of the largest, {largest}"
        );
    }
}

/// Checks a case. Leaves are parameters; after one step with momentum the buffer is the gradient.
fn check(device: &Device, limits: &Limits, golden: &Golden, case: &str) {
    let prefix = format!("{case}/");
    let names: Vec<&str> = golden.keys().filter_map(|key| key.strip_prefix(&prefix)).collect();
    let leaves: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| !n.starts_with('d') && *n != "y" && !n.contains("running"))
        .collect();
    let value = |name: &str| &golden[&format!("{prefix}{name}")];
    let params = Params::new(0);
    let shape = |dims: &[usize]| Shape::try_new(dims).expect("at most four dimensions");
    let registered: BTreeMap<&str, _> = leaves
        .iter()
        .map(|&name| {
            let (dims, data) = value(name);
            (name, params.add(name, shape(dims), Init::Data(Arc::from(&data[..]))))
        })
        .collect();
    let step = TrainStep::trace(&params, |trace| {
        let y = forward(case, &Inputs(&|name| trace.param(&registered[name])));
        trace.output("y", &y);
        let dy = trace.input("dy", y.shape());
        y.mul(&dy).sum(&[])
    })
    .unwrap_or_else(|e| panic!("{case}: {e}"));
    let optimizer = Sgd { lr: 1e-3, momentum: 0.9, ..Sgd::default() }.into();
    let plan = step.plan(&PlanOptions { optimizer, ..PlanOptions::default() }, limits).expect("it fits");
    let mut session = Session::with_plans(device, &[&plan], Debug { poison: true }).expect("a session");
    session.feed("dy", &value("dy").1).expect("dy");
    session.step().expect("a step");
    let what = |name: &str| format!("{case}/{name} on {}", limits.name);
    near(&what("y"), &session.output::<f32>(ProgramId(0), "y").expect("y"), &value("y").1, 2e-6);
    let mut twin = Twin::new(plan.graph());
    twin.set_f32("dy", &value("dy").1).expect("dy");
    twin.set_step(&plan.optimizer.expect("it trains").scalars(0, 1e-3, 0));
    twin.run().expect("the twin runs");
    for name in leaves.iter().filter(|name| names.contains(&&*format!("d{name}"))) {
        let buffer = format!("{name}.momentum_buffer");
        let expected = &value(&format!("d{name}")).1;
        let exact: Vec<f32> = twin.parameter(&buffer).expect("twin").iter().map(|&x| x as f32).collect();
        near(&what(&format!("d{name} of the twin")), &exact, expected, 1e-6);
        let gradient = session.parameter(&buffer).unwrap_or_else(|e| panic!("{case}: {e}"));
        near(&what(&format!("d{name}")), &gradient, expected, 1e-5);
    }
}

#[test]
fn values_and_gradients_match_pytorch() {
    let golden = golden();
    let cases: std::collections::BTreeSet<&str> =
        golden.keys().filter_map(|key| key.split_once('/')).map(|(case, _)| case).collect();
    assert_eq!(cases.len(), 43);
    support::on_each(support::devices(), |device| {
        for limits in support::both_classes(device) {
            for case in &cases {
                check(device, &limits, &golden, case);
            }
        }
    });
}

#[test]
fn running_statistics_are_updated_once_a_step() {
    let golden = golden();
    let (dims, x) = &golden["batch_norm/x"];
    support::on_each(support::devices(), |device| {
        let params = Params::new(0);
        let [gamma, beta] = ["gamma", "beta"].map(|name| {
            let data = &golden[&format!("batch_norm/{name}")].1;
            params.add(name, [5], Init::Data(Arc::from(&data[..])))
        });
        let mean = params.add("running_mean", [5], Init::Constant(0.0));
        let var = params.add("running_var", [5], Init::Constant(1.0));
        let step = TrainStep::trace(&params, |trace| {
            let x = trace.input("x", Shape::try_new(dims).expect("four dimensions"));
            let (mean, var) = (trace.param(&mean), trace.param(&var));
            let running = RunningStats { mean: &mean, var: &var, momentum: 0.1 };
            x.batch_norm_train(&trace.param(&gamma), &trace.param(&beta), 1e-5, Some(&running))
                .square()
                .mean(&[])
        })
        .expect("a step");
        let plan = step.plan(&PlanOptions::default(), device.limits()).expect("it fits");
        let mut session = Session::new(device, &plan).expect("a session");
        session.feed("x", x).expect("x");
        session.step().expect("a step");
        for name in ["running_mean", "running_var"] {
            let expected = &golden[&format!("batch_norm/{name}")].1;
            near(name, &session.parameter(name).expect(name), expected, 1e-6);
        }
    });
}

/// Returns a network of everything that shares memory or is recomputed: a residual sum, concatenations, pools
/// after ReLU, running statistics.
fn network(params: &Params, batch: usize) -> TrainStep {
    let resnet = ResNet::small(&params.scope("resnet"), 4, &[(8, 2), (12, 2)], 5);
    let first = Conv2d::new(&params.scope("first"), 3, 6, Window::square(3).padding(1));
    let norm = BatchNorm2d::new(&params.scope("norm"), 6);
    let second = Conv2d::new(&params.scope("second"), 12, 4, Window::square(1));
    TrainStep::trace(params, |trace| {
        let x = trace.input("x", [batch, 3, 12, 12]);
        let a = x.apply(&first).apply(&norm).relu();
        let b = a.apply(&norm).relu().max_pool2d(Window::square(2).stride(2));
        let joined = a.concat(&[&b.upsample_bilinear([12, 12], false)], 1);
        let logits = joined.apply(&second).relu().max_pool2d(Window::square(2)).apply(&resnet);
        logits.cross_entropy(&trace.labels("y", [batch], 5))
    })
    .expect("valid")
}

#[test]
fn planned_eager_and_recomputed_steps_are_bit_identical() {
    let params = Params::new(3);
    let step = network(&params, 6);
    let x = support::noise(1, 6 * 3 * 144, -1.0, 1.0);
    let y = support::some_labels(2, 6, 5);
    support::on_each(support::devices(), |device| {
        for limits in support::both_classes(device) {
            let plan = |rebuild: bool| {
                let options = PlanOptions { rebuild, fuse: rebuild, ..PlanOptions::default() };
                step.plan(&options, &limits).expect("it fits")
            };
            let (plain, again) = (plan(false), plan(true));
            assert!(again.peak_bytes() < plain.peak_bytes());
            let mut sessions = [&plain, &again]
                .map(|p| Session::with_plans(device, &[p], Debug { poison: true }).expect("opens"));
            let mut eager = Eager::new(device, &again, PoolOptions::default()).expect("opens");
            for _ in 0..3 {
                for session in &mut sessions {
                    session.feed("x", &x).expect("x");
                    session.feed("y", &y).expect("y");
                    session.step().expect("a step");
                }
                eager.feed("x", &x).expect("x");
                eager.feed("y", &y).expect("y");
                eager.step().expect("a step");
            }
            let [one, other] = &mut sessions;
            for param in params.list() {
                let name = param.name();
                let bits = |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let expected = bits(one.parameter(name).expect(name));
                assert_eq!(expected, bits(other.parameter(name).expect(name)), "{name}, computed again");
                assert_eq!(expected, bits(eager.parameter(name).expect(name)), "{name}, eager");
            }
        }
    });
}

#[test]
fn splitting_along_the_batch_gives_the_same_gradients() {
    let params = Params::new(3);
    let conv = Conv2d::new(&params.scope("conv"), 2, 8, Window::square(3).padding(1));
    let other = Conv2d::new(&params.scope("other"), 8, 3, Window::square(3).padding(1));
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [7, 2, 9, 9]).apply(&conv).relu().apply(&other).relu();
        x.max_pool2d(Window::square(2).stride(2)).square().mean(&[])
    })
    .expect("valid");
    let x = support::noise(1, 7 * 2 * 81, -1.0, 1.0);
    support::on_each(support::devices(), |device| {
        let mut gradients = Vec::new();
        for max_binding in [device.limits().max_binding, 3 * 8 * 81 * 4] {
            let limits = Limits { max_binding, ..device.limits().clone() };
            let optimizer = Sgd { lr: 1e-3, momentum: 0.9, ..Sgd::default() }.into();
            let plan =
                step.plan(&PlanOptions { optimizer, ..PlanOptions::default() }, &limits).expect("it fits");
            let mut session = Session::with_plans(device, &[&plan], Debug { poison: true }).expect("opens");
            session.feed("x", &x).expect("x");
            session.step().expect("a step");
            let buffers = params.list().into_iter().map(|p| format!("{}.momentum_buffer", p.name()));
            let read = |name: String| session.parameter(&name).unwrap_or_else(|e| panic!("{name}: {e}"));
            gradients.push((plan.program.order.len(), buffers.map(read).collect::<Vec<_>>()));
        }
        assert!(gradients[0].0 < gradients[1].0, "the second plan is made in parts");
        for (whole, parts) in gradients[0].1.iter().zip(&gradients[1].1) {
            near("a gradient in parts", parts, whole, 1e-5);
        }
    });
}
