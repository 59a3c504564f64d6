//! Every mistake a user can make is a typed error that names the thing, gives the numbers and says what to
//! do.

use crate::support::{devices, noise, on_each, some_labels};
use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::device::{Device, DeviceOptions, Select};
use wgrad::exec::SaveOptions;
use wgrad::exec::{Debug, Eager, ProgramId, Session};
use wgrad::graph::{IGNORE, Init, Params, Tensor, Trace, Window};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::optim::{Adam, Clip, Optimizer, Sgd};
use wgrad::{Bytes, Error};

/// Asserts that the message of an error contains all of these parts.
#[track_caller]
pub(super) fn says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[track_caller]
fn failed<T>(result: wgrad::Result<T>) -> Error {
    match result {
        Ok(_) => panic!("it went well"),
        Err(error) => error,
    }
}

pub(super) fn trace_errors(model: impl FnOnce(&Params, &Trace) -> Tensor) -> Error {
    let params = Params::new(0);
    failed(TrainStep::trace(&params, |trace| model(&params, trace)))
}

#[test]
fn mistakes_in_a_model_are_reported_together_with_their_places() {
    let first = line!() + 3;
    let error = trace_errors(|_, trace| {
        let (x, y) = (trace.input("x", [4, 3]), trace.input("y", [5, 7]));
        let a = x.matmul(&y);
        let b = x.add(&y);
        let c = x.reshape([5, 5]);
        // Consequences of a mistake are not reported again.
        a.add(&b).relu().mul(&c.exp()).sum(&[])
    });
    let Error::Trace(list) = &error else { panic!("{error:?}") };
    assert_eq!(list.len(), 3, "{error}");
    for (i, mistake) in list.iter().enumerate() {
        assert!(mistake.file.ends_with("errors.rs"), "{mistake}");
        assert_eq!(mistake.line, first + i as u32, "{mistake}");
    }
    says(
        &error,
        &["3 mistakes", "matmul [4, 3]", "[5, 7]", "inner dimensions are 3 and 5", "do not broadcast"],
    );
    says(&error, &["reshape of [4, 3] (12 elements) to [5, 5] (25)", "errors.rs:"]);
}

#[test]
fn each_operation_names_its_mismatched_operand() {
    type Mistake = fn(&Tensor, &Tensor) -> Tensor;
    // x is [4, 3], labels are u32 [4].
    let mistakes: [(Mistake, &[&str]); 24] = [
        (|x, _| x.sum(&[2]), &["axis 2", "[4, 3]"]),
        (|x, _| x.max(&[5]), &["axis 5", "[4, 3]"]),
        (|x, _| x.slice(0, 2..6), &["slice", "axis 0", "[4, 3]"]),
        (|x, _| x.slice(2, 0..1), &["axis 2", "[4, 3]"]),
        (|x, _| x.slice(0, usize::MAX - 1..usize::MAX), &["slice", "too large"]),
        (|x, _| x.slice(0, 5..9), &["slice", "[4, 3]"]),
        (|x, _| x.pad(2, 1, 1), &["pad", "axis 2", "[4, 3]"]),
        (|x, _| x.permute(&[0, 0]), &["permute", "[0, 0]", "[4, 3]"]),
        (|x, _| x.permute(&[0]), &["permute", "[0]", "[4, 3]"]),
        (|x, _| x.transpose(0, 2), &["transpose", "0 and 2", "[4, 3]"]),
        (|x, _| x.expand([5, 3]), &["[4, 3]", "[5, 3]"]),
        (|x, _| x.flatten(3), &["flatten", "3", "[4, 3]"]),
        (|x, _| x.concat(&[&x.transpose(0, 1)], 0), &["concat", "[4, 3]", "[3, 4]"]),
        (|x, _| x.concat(&[x], 2), &["concat", "axis 2", "[4, 3]"]),
        (|x, y| x.concat(&[y], 0), &["concat", "u32 [4]"]),
        (|x, y| x.add(y), &["add takes f32", "u32 [4]"]),
        (|_, y| y.relu(), &["relu takes f32", "u32 [4]"]),
        (|x, y| x.matmul(y), &["matmul takes f32, f16 or bf16", "u32 [4]"]),
        (|x, _| x.cross_entropy(&x.sum(&[1])), &["cross_entropy", "u32 labels", "f32 [4]"]),
        (|x, y| x.slice(0, 0..3).cross_entropy(y), &["cross_entropy", "[3, 3]", "[4]"]),
        (|x, _| x.sum(&[0]).matmul(x), &["matmul", "two dimensions"]),
        (|x, _| x.dropout(1.0), &["dropout", "p = 1"]),
        (|x, _| x.clamp(2.0, 1.0), &["clamp", "2..1"]),
        (|x, _| x.sum(&[]).softmax(), &["softmax", "at least one dimension"]),
    ];
    for (mistake, parts) in mistakes {
        let error = trace_errors(|_, trace| mistake(&trace.input("x", [4, 3]), &trace.labels("y", [4], 3)));
        let Error::Trace(list) = &error else { panic!("{error:?}") };
        assert_eq!(list.len(), 1, "{error}");
        assert!(list[0].file.ends_with("errors.rs"), "not the place of the call: {error}");
        says(&error, &["1 mistake", "errors.rs:"]);
        says(&error, parts);
    }
}

#[test]
fn duplicate_names_and_empty_inputs_are_errors() {
    let error = trace_errors(|params, trace| {
        params.add("w", [3], Init::Constant(0.0));
        params.add("w", [2, 2], Init::Constant(0.0));
        params.add("data", [3], Init::Data([1.0f32, 2.0].into()));
        let x = trace.input("x", [3]);
        let again = trace.input("x", [3]);
        trace.output("loss", &x);
        trace.output("loss", &x);
        trace.input("empty", [0, 4]);
        x.add(&again).sum(&[])
    });
    says(&error, &["parameter `w` is registered twice, as [3] and [2, 2]", "`data` [3] got 2 elements"]);
    says(&error, &["input `x` is declared twice", "output `loss` is declared twice"]);
    says(&error, &["input `empty` [0, 4] has no elements", "at least 1"]);
}

#[test]
fn tensor_of_another_trace_is_an_error() {
    let mut stranger = None;
    let params = Params::new(0);
    TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [2]);
        stranger = Some(x.clone());
        x.sum(&[])
    })
    .expect("valid");
    let error = trace_errors(|_, trace| trace.input("x", [2]).add(&stranger.expect("set above")).sum(&[]));
    says(&error, &["add", "another trace"]);
}

#[test]
fn errors_of_unknown_names_list_the_known_ones() {
    let error = failed(Model::named("resnet", 0));
    assert!(matches!(error, Error::Unknown { kind: "model", .. }));
    says(&error, &["model", "`resnet`", "mlp", "digits"]);
    let error = failed(Optimizer::named("adamax"));
    says(&error, &["optimizer", "`adamax`", "sgd, momentum, adam, adamw, lion, adafactor, adam8bit"]);
    let error = failed(Device::open(&DeviceOptions {
        select: Select::Named("voodoo".to_owned()),
        ..DeviceOptions::default()
    }));
    match Device::list().first() {
        Some(adapter) => says(&error, &["adapter", "`voodoo`", &adapter.name]),
        None => says(&error, &["no GPU adapter", "apt-get install mesa-vulkan-drivers"]),
    }
}

#[test]
fn options_out_of_range_are_errors() {
    let model = Model::named("digits", 0).expect("known");
    says(&failed(model.train_step(0)), &["batch of 0", "at least 1"]);
    says(&failed(model.forward(0)), &["batch of 0", "at least 1"]);
    let step = model.train_step(2).expect("valid");
    let plan = |options: PlanOptions| step.plan(&options, &Limits::default());
    let with = |optimizer: Optimizer| PlanOptions { optimizer, ..PlanOptions::default() };
    says(&failed(plan(with(Sgd { lr: -1.0, ..Sgd::default() }.into()))), &["lr = -1", "at least 0"]);
    says(&failed(plan(with(Sgd { lr: f32::NAN, ..Sgd::default() }.into()))), &["lr = NaN"]);
    says(&failed(plan(with(Sgd { momentum: 1.0, ..Sgd::default() }.into()))), &["momentum = 1", "below 1"]);
    says(&failed(plan(with(Adam { betas: (0.9, 1.5), ..Adam::default() }.into()))), &["beta2 = 1.5"]);
    for clip in [Clip::Norm(0.0), Clip::Value(-1.0), Clip::Norm(f32::NAN)] {
        says(&failed(plan(PlanOptions { clip, ..PlanOptions::default() })), &["clipped", "above 0"]);
    }
    let params = Params::new(0);
    let step = TrainStep::trace(&params, |trace| trace.input("x", [4, 3]).relu()).expect("valid");
    let error = failed(step.plan(&PlanOptions::default(), &Limits::default()));
    says(&error, &["[4, 3]", "a loss is one number, take a mean"]);
}

#[test]
fn errors_of_tensors_larger_than_a_binding_name_the_batch_that_fits() {
    let limits = Limits::named("webgpu").expect("a preset");
    let params = Params::new(0);
    let forward = |batch: usize| {
        let run = |trace: &Trace| trace.input("images", [batch, 1 << 20]).relu();
        Forward::trace(&params, "y", run).expect("valid").plan(&limits)
    };
    let error = failed(forward(33));
    let Error::TensorTooLarge { batch_that_fits, bytes, max, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*bytes, *max, *batch_that_fits), (33 << 22, 128 << 20, Some(32)));
    says(&error, &["`images`", "[33, 1048576]", "132.0 MiB", "`webgpu`", "128.0 MiB", "at most 32"]);
    forward(32).expect("the batch that fits fits");
    let weight = params.add("big", [40, 1 << 20], Init::Constant(0.0));
    let step = TrainStep::trace(&params, |trace| trace.param(&weight).sum(&[])).expect("valid");
    let error = failed(step.plan(&PlanOptions::default(), &limits));
    says(&error, &["`big`", "160.0 MiB", "help: plan for limits with larger bindings"]);
}

type Function<'a> = &'a dyn Fn(&Tensor) -> Tensor;

/// Kernels multiply pixel indices of two axes in 32 bits, which would wrap.
#[test]
fn resized_axes_whose_product_exceeds_32_bits_are_rejected() {
    let functions: [(&str, Function); 3] = [
        ("adaptive", &|x| x.adaptive_avg_pool2d([1, 65_536])),
        ("nearest", &|x| x.upsample_nearest([1, 65_536])),
        ("bilinear", &|x| x.upsample_bilinear([1, 65_536], true)),
    ];
    for (name, function) in functions {
        for preset in ["lavapipe", "nvidia"] {
            let limits = Limits::named(preset).expect("a preset");
            let planned = |width: usize| {
                let traced = Forward::trace(&Params::new(0), "y", |trace| {
                    function(&trace.input("x", [1, 1, 1, width]))
                });
                traced.expect("valid").plan(&limits)
            };
            planned(16_000).unwrap_or_else(|e| panic!("{name}: {e}"));
            let error = failed(planned(20_000));
            says(&error, &["20000 pixels", "65536", "1310720000", "1073741824", "cut the image into slices"]);
        }
    }
}

/// On a software adapter a workgroup shares a long row; still longer rows are rejected.
#[test]
fn rows_too_long_for_a_software_adapter_are_rejected() {
    let functions: [(&str, Function); 4] = [
        ("softmax", &|x| x.softmax()),
        ("log_softmax", &|x| x.log_softmax()),
        ("layer_norm", &|x| {
            let d = x.shape().last();
            x.layer_norm(&x.trace().input("gamma", [d]), &x.trace().input("beta", [d]), 1e-5)
        }),
        ("rms_norm", &|x| x.rms_norm(&x.trace().input("gamma", [x.shape().last()]), 1e-5)),
    ];
    for (name, function) in functions {
        let planned = |preset: &str, d: usize| {
            let traced = Forward::trace(&Params::new(0), "y", |trace| function(&trace.input("x", [1, d])));
            traced.expect("valid").plan(&Limits::named(preset).expect("a preset"))
        };
        planned("lavapipe", 2_500_000).unwrap_or_else(|e| panic!("{name}: {e}"));
        let error = failed(planned("lavapipe", 4_500_000));
        says(&error, &["rows of 4500000 elements", "`lavapipe`, which takes ", "65535", "cut into parts"]);
        planned("nvidia", 4_500_000).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// lavapipe silently ends a thread's loops after 65,535 iterations: operations that would need more are
/// rejected.
#[test]
fn sums_too_long_for_a_software_adapter_are_rejected() {
    let limits = Limits::named("lavapipe").expect("a preset");
    let planned = |limits: &Limits, y: &dyn Fn(&Trace) -> Tensor| {
        Forward::trace(&Params::new(0), "y", |trace| y(trace)).expect("valid").plan(limits)
    };
    let convolution = |channels: usize| {
        move |trace: &Trace| {
            let weight = trace.input("w", [1, channels, 3, 3]);
            trace.input("x", [1, channels, 4, 4]).conv2d(&weight, None, Window::square(3), 1)
        }
    };
    planned(&limits, &convolution(14_438)).expect("just short enough");
    let error = failed(planned(&limits, &convolution(14_439)));
    says(
        &error,
        &[
            "conv2d of [1, 14439, 4, 4] by [1, 14439, 3, 3]",
            "14439 channels of a group and 3×3 taps",
            "`lavapipe`",
        ],
    );
    says(&error, &["convolve slices of the channels and add the results"]);
    planned(&Limits::named("nvidia").expect("a preset"), &convolution(14_439)).expect("no such limit there");
    // Of 64 × 64 taps only four meet a pixel.
    let spread = planned(&limits, &|trace| {
        let weight = trace.input("w", [21, 21, 64, 64]);
        let window = Window::square(64).stride(32).padding(16);
        trace.input("x", [1, 21, 4, 4]).conv_transpose2d(&weight, None, window, [0, 0], 1)
    });
    spread.expect("few iterations for each phase");
    // A prime number of iterations, which cannot be split into equal pieces.
    let error = failed(planned(&limits, &|trace| {
        trace.input("x", [2, 130_003]).matmul(&trace.input("w", [130_003, 2]))
    }));
    says(&error, &["inner dimension 130003", "`lavapipe`", "130000", "pad it with zeros"]);
}

#[test]
fn over_budget_error_gives_the_excess() {
    let step = Model::named("mlp", 0).expect("known").train_step(128).expect("valid");
    let limits = Limits::named("lavapipe").expect("a preset");
    let plan = |budget| step.plan(&PlanOptions { budget, ..PlanOptions::default() }, &limits);
    let needed = plan(None).expect("no budget").footprint().total();
    plan(Some(Bytes(needed))).expect("exactly enough");
    let error = failed(plan(Some(Bytes(needed - 1))));
    let Error::OverBudget { needed: says_needed, budget, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*says_needed, *budget), (needed, needed - 1));
    says(
        &error,
        &["1 B too much", "the peak is at", "fc1.weight", "help: it fits with ", "the optimizer `momentum`"],
    );
    says(&error, &[&Bytes(needed).to_string()]);
}

fn digits() -> (Model, Plan) {
    let model = Model::named("digits", 3).expect("known");
    let step = model.train_step(4).expect("valid");
    let plan = step.plan(&PlanOptions::default(), &Limits::named("webgpu").expect("a preset"));
    (model, plan.expect("planned"))
}

#[test]
fn feeds_of_wrong_name_type_length_or_range_are_errors() {
    on_each(devices(), |device| {
        let (_, plan) = digits();
        let mut session = Session::new(device, &plan).expect("it opens");
        says(&failed(session.step()), &["input `x`", "nothing was fed", "`feed`"]);
        says(&failed(session.feed("z", &[0.0f32])), &["no input `z`", "known: x, y"]);
        says(&failed(session.feed("x", &[0u32; 256])), &["input `x`", "is f32, got u32"]);
        says(&failed(session.feed("x", &[0f32; 255])), &["[4, 64]", "256 elements", "got 255"]);
        says(&failed(session.feed("y", &[1u32, 2, 10, 3])), &["element 2 is 10", "10 classes (0 to 9"]);
        says(&failed(session.feed_to(ProgramId(1), "x", &[0f32])), &["has 1 plans", "no number 1"]);
        says(&failed(session.run(ProgramId(7))), &["no number 7"]);
        says(&failed(session.output::<f32>(ProgramId(0), "logits")), &["no output `logits`", "known: loss"]);
        says(&failed(session.parameter("fc9.weight")), &["`fc9.weight`", "fc1.weight"]);
        says(&failed(session.set_parameter("fc1.bias", &[0.0])), &["fc1.bias", "128 elements", "got 1"]);
        says(&failed(session.loss()), &["no training step"]);
        says(&failed(session.check_guards(ProgramId(0))), &["`guard: true`", "`poison: true`"]);
        // The session still trains after these errors, with a label to ignore.
        session.feed("x", &noise(1, 256, 0.0, 1.0)).expect("valid");
        session.feed("y", &[1u32, 2, IGNORE, 3]).expect("valid");
        session.step().expect("it runs");
        assert!(session.loss().expect("a loss").is_finite());
        says(&failed(session.output::<u32>(ProgramId(0), "loss")), &["`loss`", "is f32, asked for u32"]);
    });
}

#[test]
fn sessions_reject_plans_for_larger_limits_or_other_parameters() {
    on_each(devices(), |device| {
        assert!(matches!(Session::with_plans(device, &[], Debug::default()), Err(Error::PlanMismatch(_))));
        let own = device.limits();
        let large = Limits { max_buffer: 1 << 50, max_binding: 1 << 50, ..Limits::default() };
        let params = Params::new(0);
        let elements = (own.max_binding / 4 + 1024) as usize;
        let forward =
            Forward::trace(&params, "y", |trace| trace.input("x", [elements]).relu()).expect("valid");
        let error = failed(Session::new(device, &forward.plan(&large).expect("planned")));
        says(&error, &["`discrete`", &format!("`{}` allows", own.name), "`device.limits()`"]);
        says(&failed(forward.plan(own)), &["`x`", &format!("`{}`", own.name)]);
        let wide = Limits { min_subgroup: 64, ..own.clone() };
        let (model, plan) = digits();
        let subgroups =
            model.train_step(4).expect("valid").plan(&PlanOptions::default(), &wide).expect("planned");
        says(&failed(Session::new(device, &subgroups)), &["subgroups of 64", "`device.limits()`"]);
        if !own.kernels.long_words {
            let long = own.choosing(|kernels| kernels.long_words = true);
            let step = model.train_step(4).expect("valid");
            let long = step.plan(&PlanOptions::default(), &long).expect("planned");
            says(&failed(Session::new(device, &long)), &["words of 64 bits", "`device.limits()`"]);
        }
        let other = Model::named("mlp", 0).expect("known").train_step(4).expect("valid");
        let other = other.plan(&PlanOptions::default(), own).expect("planned");
        let error = failed(Session::with_plans(device, &[&plan, &other], Debug::default()));
        says(&error, &["same parameters"]);
    });
}

/// Two plans with different optimizers would read each other's state as their own.
#[test]
fn sessions_reject_plans_whose_optimizer_state_differs() {
    on_each(devices(), |device| {
        let model = Model::named("digits", 3).expect("known");
        let plan = |optimizer: Optimizer| {
            let options = PlanOptions { optimizer, ..PlanOptions::default() };
            model.train_step(4).expect("valid").plan(&options, device.limits()).expect("planned")
        };
        let adam = plan(Optimizer::named("adam").expect("known"));
        let momentum = plan(Optimizer::named("momentum").expect("known"));
        let error = failed(Session::with_plans(device, &[&adam, &momentum], Debug::default()));
        says(&error, &["momentum_buffer"]);
        Session::with_plans(device, &[&adam, &adam], Debug::default()).expect("the same state");
    });
}

#[test]
fn error_of_a_pool_that_is_too_small_names_the_tensor() {
    on_each(devices(), |device| {
        let (_, plan) = digits();
        let options = PoolOptions { cap: Some(1 << 14), ..PoolOptions::default() };
        let error = failed(Eager::new(device, &plan, options));
        assert!(matches!(error, Error::Pool(_)), "{error:?}");
        says(&error, &["fc1.weight"]);
    });
}

#[test]
fn non_finite_loss_stops_the_run() {
    on_each(devices(), |device| {
        let params = Params::new(0);
        let w = params.add("w", [4], Init::Constant(1.0));
        let step = TrainStep::trace(&params, |trace| {
            let x = trace.input("x", [4]);
            trace.param(&w).mul(&x).log().sum(&[])
        });
        let plan = step.expect("valid").plan(&PlanOptions::default(), device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        session.feed("x", &[1.0f32, 2.0, 3.0, 4.0]).expect("valid");
        session.step().expect("it runs");
        assert!(session.loss().is_ok());
        let file = Scratch::new("finite");
        #[cfg(feature = "safetensors")]
        session.save_with(&file.0, &SaveOptions::training_state()).expect("it can be saved");
        let saved = std::fs::read(&file.0).unwrap_or_default();
        session.set_accept_non_finite(true);
        session.feed("x", &[1.0f32, f32::INFINITY, 3.0, 4.0]).expect("valid");
        let error = failed(session.step().and_then(|()| session.loss()));
        let Error::LossNotFinite { step, loss, rank: None } = &error else { panic!("{error:?}") };
        assert!(*step == 1 && !loss.is_finite());
        says(&error, &["at step 1", "lower the learning rate", "parameters saved before are safe"]);
        assert_eq!(std::fs::read(&file.0).unwrap_or_default(), saved);
    });
}

/// A temporary file that is deleted when dropped.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let file = format!("wgrad-{name}-{}-{}.safetensors", std::process::id(), unique.as_nanos());
        Self(std::env::temp_dir().join(file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(feature = "safetensors")]
mod weights {
    use super::*;
    use safetensors::tensor::{Dtype, TensorView};

    fn session(device: &Device) -> Session {
        Session::new(device, &digits().1).expect("it opens")
    }

    fn train(session: &mut Session, steps: std::ops::Range<u64>) -> Vec<f32> {
        let one = |step: u64| {
            session.feed("x", &noise(step, 256, 0.0, 1.0)).expect("valid");
            session.feed("y", &some_labels(step, 4, 10)).expect("valid");
            session.step().expect("it runs");
            session.loss().expect("finite")
        };
        steps.map(one).collect()
    }

    fn everything(session: &mut Session) -> Vec<Vec<f32>> {
        let plan = session.plan(ProgramId(0)).expect("the first");
        let names: Vec<String> =
            plan.program.storages.iter().filter(|s| s.persistent).map(|s| s.name.clone()).collect();
        names.iter().map(|name| session.parameter(name).expect("there")).collect()
    }

    #[test]
    fn training_resumes_from_a_file_bit_for_bit() {
        on_each(devices(), |device| {
            let file = Scratch::new("resume");
            let mut whole = session(device);
            train(&mut whole, 0..3);
            whole.save_with(&file.0, &SaveOptions::training_state()).expect("it can be saved");
            let wanted = train(&mut whole, 3..6);
            let mut resumed = session(device);
            resumed.load(&file.0).expect("it fits");
            assert_eq!(resumed.steps(), 3);
            assert_eq!(train(&mut resumed, 3..6), wanted);
            assert_eq!(everything(&mut resumed), everything(&mut whole));
            // Without the state Adam restarts: the comparison above would detect state that is not loaded.
            whole.save(&file.0).expect("it can be saved");
            let mut fresh = session(device);
            fresh.load(&file.0).expect("it fits");
            assert_eq!(fresh.steps(), 0);
            assert_ne!(train(&mut fresh, 6..9), train(&mut whole, 6..9));
        });
    }

    #[test]
    fn mismatched_files_are_rejected_as_a_whole() {
        on_each(devices(), |device| {
            let mut session = session(device);
            let before = everything(&mut session);
            let floats = vec![1u8; 4 * 128 * 64];
            let weight = |shape: &[usize], dtype: Dtype| {
                let bytes = shape.iter().product::<usize>() * 4;
                TensorView::new(dtype, shape.to_vec(), &floats[..bytes]).expect("enough bytes")
            };
            let file = Scratch::new("wrong");
            let tensors = vec![
                ("fc1.weight", weight(&[64, 128], Dtype::F32)),
                ("fc1.bias", weight(&[128], Dtype::I32)),
                ("fc2.weight", weight(&[64, 128], Dtype::F32)),
                ("stranger", weight(&[2], Dtype::F32)),
            ];
            std::fs::write(&file.0, safetensors::serialize(tensors, None).expect("valid")).expect("written");
            let error = failed(session.load(&file.0));
            assert!(matches!(error, Error::Weights { .. }), "{error:?}");
            says(
                &error,
                &[&file.0.display().to_string(), "`fc1.weight` is [64, 128] in the file, [128, 64]"],
            );
            says(&error, &["`fc1.bias` is I32", "`fc2.bias` [64] is missing", "`stranger` is in the file"]);
            std::fs::write(&file.0, [7u8; 100]).expect("written");
            says(&failed(session.load(&file.0)), &["damaged"]);
            std::fs::write(&file.0, []).expect("written");
            says(&failed(session.load(&file.0)), &["damaged"]);
            session.save(&file.0).expect("it can be saved");
            let bytes = std::fs::read(&file.0).expect("there");
            std::fs::write(&file.0, &bytes[..bytes.len() - 5]).expect("written");
            says(&failed(session.load(&file.0)), &["damaged"]);
            let missing = Scratch::new("missing");
            says(&failed(session.load(&missing.0)), &[&missing.0.display().to_string(), "No such file"]);
            assert_eq!(everything(&mut session), before, "a refused file changed something");
        });
    }

    #[test]
    fn file_that_cannot_be_written_is_an_error() {
        on_each(devices(), |device| {
            let mut session = session(device);
            let nowhere = std::env::temp_dir().join("wgrad-no-such-folder").join("weights.safetensors");
            let error = failed(session.save_with(&nowhere, &SaveOptions::training_state()));
            says(&error, &["wgrad-no-such-folder"]);
            assert!(matches!(error, Error::Weights { .. }));
        });
    }

    /// A training checkpoint is enough for evaluation: a forward pass needs no optimizer state.
    #[test]
    fn forward_pass_loads_a_training_checkpoint() {
        on_each(devices(), |device| {
            let file = Scratch::new("forward");
            let mut trained = session(device);
            train(&mut trained, 0..2);
            trained.save_with(&file.0, &SaveOptions::training_state()).expect("it can be saved");
            let (model, _) = digits();
            let plan = model.forward(4).expect("valid").plan(device.limits()).expect("planned");
            let mut forward = Session::new(device, &plan).expect("it opens");
            forward.load(&file.0).expect("parameters are all it needs");
            let weights = forward.parameter("fc1.weight").expect("there");
            assert_eq!(weights, trained.parameter("fc1.weight").expect("there"));
        });
    }

    /// Optimizer state can be read and saved whatever the order of a session's plans.
    #[test]
    fn state_is_saved_whichever_plan_comes_first() {
        on_each(devices(), |device| {
            let (model, train) = digits();
            let forward = model.forward(4).expect("valid").plan(device.limits()).expect("planned");
            let mut session =
                Session::with_plans(device, &[&forward, &train], Debug::default()).expect("it opens");
            session.parameter("fc1.weight.exp_avg").expect("optimizer state");
            let file = Scratch::new("order");
            session.save_with(&file.0, &SaveOptions::training_state()).expect("it can be saved");
            let mut alone = Session::new(device, &train).expect("it opens");
            alone.load(&file.0).expect("all of the state is there");
        });
    }
}
