//! Kernels of a model's own: planned, recomputed and eager runs, their gradients, and what is refused.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::{devices, noise, on_each};
use wgrad::Error;
use wgrad::compile::{Forward, PlanOptions, Recompute, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::{DType, Precision, Rounding, WeightStorage};
use wgrad::exec::{Eager, ProgramId, Session};
use wgrad::graph::{Init, Op, Param, Params, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::optim::{Optimizer, Sgd};
use wgrad::reference::Twin;

const ROWS: usize = 96;
const WIDTH: usize = 13;

/// `y = x / (1 + |s x|)` with one `s` for each column.
const FORWARD: &str = "@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_of(id);
    if (i >= y_len) { return; }
    y[i] = x[i] / (1.0 + abs(s[i % x_shape[1]] * x[i]));
}";

/// `dy / (1 + |s x|)²`
const BACKWARD: &str = "fn squared(a: f32) -> f32 { return a * a; }
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_of(id);
    if (i < y_len) { y[i] = dy[i] / squared(1.0 + abs(s[i % x_shape[1]] * x[i])); }
}";

/// One workgroup for each row, which adds it up in workgroup memory: a sum by 16 threads.
const SUMS: &str = "var<workgroup> parts: array<f32, WORKGROUP>;
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let columns = x_shape[1];
    var sum = 0.0;
    for (var c = lane; c < columns; c += WORKGROUP) { sum += x[row.x * columns + c]; }
    parts[lane] = sum;
    workgroupBarrier();
    if (lane == 0u) {
        var all = 0.0;
        for (var k = 0u; k < WORKGROUP; k++) { all += parts[k]; }
        y[row.x] = all;
    }
}";

fn bent(x: f64, s: f64) -> f64 {
    x / (1.0 + (s * x).abs())
}

/// With a gradient for `x` by a second kernel; none reaches `s`.
fn bend(x: &Tensor, s: &Tensor) -> Tensor {
    let columns = x.dim(1);
    let each = move |x: &[&[f64]], of: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        x[0].iter().enumerate().map(|(i, &a)| of(a, x[1][i % columns])).collect()
    };
    let forward = x.trace().kernel("bend", FORWARD).input("x", x).input("s", s);
    let y = forward.reference(move |x| each(x, &bent)).result(x.shape());
    y.with_gradient([x], |dy| {
        let backward = x.trace().kernel("bend_grad", BACKWARD).input("x", x).input("s", s).input("dy", dy);
        let slope = |a: f64, s: f64| (1.0 + (s * a).abs()).powi(-2);
        let backward = backward
            .reference(move |x| each(x, &slope).iter().zip(x[2]).map(|(slope, dy)| slope * dy).collect());
        [backward.result(x.shape())]
    })
}

fn step() -> TrainStep {
    let params = Params::new(3);
    let weights: Vec<_> =
        (0..3).map(|i| params.add(&format!("w{i}"), [WIDTH, WIDTH], Init::Normal(0.4))).collect();
    TrainStep::trace(&params, |trace| {
        let (x, s) = (trace.input("x", [ROWS, WIDTH]), trace.input("s", [WIDTH]));
        let body = |x: Tensor, (i, w): (usize, &Param)| {
            trace.layer(&format!("fc{i}"), || bend(&x, &s).matmul(&trace.param(w)))
        };
        let y = weights.iter().enumerate().fold(x, body);
        trace.output("y", &y);
        y.square().mean(&[])
    })
    .expect("valid")
}

fn data() -> [Vec<f32>; 2] {
    [noise(1, ROWS * WIDTH, -2.0, 2.0), noise(2, WIDTH, 0.5, 2.0)]
}

fn parameters(session: &mut Session) -> Vec<f32> {
    (0..3).flat_map(|i| session.parameter(&format!("w{i}")).expect("there")).collect()
}

#[test]
fn planned_recomputed_and_eager_runs_of_own_kernels_agree_with_the_twin() {
    let optimizer: Optimizer = Sgd { lr: 0.5, ..Sgd::default() }.into();
    let plain = PlanOptions { optimizer, ..PlanOptions::default() };
    let bare = PlanOptions { rebuild: false, fuse: false, reuse: false, ..plain };
    on_each(devices(), |device| {
        let (mut wanted, mut kept): (Option<Vec<f32>>, _) = (None, 0);
        for options in [plain, bare, PlanOptions { recompute: Recompute::Every(1), ..plain }] {
            let plan = step().plan(&options, device.limits()).expect("planned");
            let runs = plan.graph().nodes.iter().filter(|node| matches!(node.op, Op::Custom(_))).count();
            if options.recompute == Recompute::Off {
                kept = runs;
            } else {
                assert!(runs > kept, "{runs} kernels: none is recomputed");
            }
            let [x, s] = data();
            let (mut session, mut twin) =
                (Session::new(device, &plan).expect("it opens"), Twin::new(plan.graph()));
            let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
            for (name, data) in [("x", &x), ("s", &s)] {
                session.feed(name, data).expect("valid");
                eager.feed(name, data).expect("valid");
                twin.set_f32(name, data).expect("valid");
            }
            twin.set_step(&optimizer.scalars(0, 0.5, plan.seed));
            twin.run().expect("it has definitions");
            session.step().expect("it runs");
            eager.step().expect("it runs");
            assert_eq!(session.device_bytes(), plan.footprint().total(), "bytes created and planned");
            let found = parameters(&mut session);
            let of_eager: Vec<f32> =
                (0..3).flat_map(|i| eager.parameter(&format!("w{i}")).expect("there")).collect();
            assert_same_bits("eager", &of_eager, &found);
            let of_twin: Vec<f64> =
                (0..3).flat_map(|i| twin.parameter(&format!("w{i}")).expect("there").to_vec()).collect();
            assert_close("parameters", &found, &of_twin, Near { rel: 1e-5, abs: 1e-6 });
            assert_same_bits("every plan", &found, wanted.get_or_insert_with(|| found.clone()));
        }
    });
}

/// The slope of the loss along a direction, by differences of `f64`, is the product with the gradient.
#[test]
fn gradient_of_an_own_kernel_is_the_slope_of_the_loss() {
    let optimizer: Optimizer = Sgd { lr: 1.0, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    let plan = step().plan(&options, &Limits::default()).expect("planned");
    let [x, s] = data();
    let loss = |shift: f64| {
        let mut twin = Twin::new(plan.graph());
        twin.set_f32("x", &x).and_then(|()| twin.set_f32("s", &s)).expect("valid");
        twin.set_step(&optimizer.scalars(0, 1.0, plan.seed));
        let before = twin.parameter("w0").expect("there").to_vec();
        let moved: Vec<f64> = before.iter().enumerate().map(|(i, w)| w + shift * (i as f64).sin()).collect();
        twin.set("w0", &moved).and_then(|()| twin.run()).expect("valid");
        let after = twin.parameter("w0").expect("there").to_vec();
        let along: f64 =
            moved.iter().zip(after).enumerate().map(|(i, (a, b))| (a - b) * (i as f64).sin()).sum();
        (twin.output("loss").expect("there")[0], along)
    };
    let h = 1e-5;
    let (slope, gradient) = ((loss(h).0 - loss(-h).0) / (2.0 * h), loss(0.0).1);
    assert!((slope - gradient).abs() < 1e-6 * slope.abs().max(1e-3), "{slope} is not {gradient}");
}

#[test]
fn workgroups_and_integers_are_as_declared() {
    const COUNT: &str = "@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_of(id);
    if (i < y_len) { y[i] = ids[i] * 2u + ids_len; }
}";
    let forward = Forward::trace(&Params::new(0), "sums", |trace| {
        let x = trace.input("x", [70, 50]);
        let doubled = trace.kernel("count", COUNT).input("ids", &trace.ids("ids", [5], 10)).result_u32([5]);
        trace.output("doubled", &doubled);
        trace.kernel("sums", SUMS).input("x", &x).workgroup(16).threads(70 * 16).result([70])
    });
    let (forward, x) = (forward.expect("valid"), noise(4, 70 * 50, -1.0, 1.0));
    let sums: Vec<f64> = x.chunks(50).map(|row| row.iter().map(|&x| f64::from(x)).sum()).collect();
    on_each(devices(), |device| {
        let mut session =
            Session::new(device, &forward.plan(device.limits()).expect("planned")).expect("it opens");
        session.feed("x", &x).and_then(|()| session.feed("ids", &[0u32, 1, 2, 3, 9])).expect("valid");
        session.step().expect("it runs");
        let found: Vec<f32> = session.output(ProgramId(0), "sums").expect("there");
        assert_close("sums", &found, &sums, Near { rel: 1e-5, abs: 1e-5 });
        let doubled: Vec<u32> = session.output(ProgramId(0), "doubled").expect("there");
        assert_eq!(doubled, [5, 7, 9, 11, 23]);
    });
}

/// Activations are kept in 16 bits around the kernel, which computes in 32.
#[test]
fn own_kernels_run_between_activations_of_16_bits() {
    let optimizer: Optimizer = Sgd { lr: 0.5, ..Sgd::default() }.into();
    let of = |device: &Device, precision| {
        let options = PlanOptions { optimizer, precision, ..PlanOptions::default() };
        let plan = step().plan(&options, device.limits()).expect("planned");
        let halves = plan.graph().values.iter().filter(|value| value.dtype.is_half()).count();
        let mut session = Session::new(device, &plan).expect("it opens");
        let [x, s] = data();
        session.feed("x", &x).and_then(|()| session.feed("s", &s)).expect("valid");
        session.step().expect("it runs");
        (halves, parameters(&mut session))
    };
    on_each(devices(), |device| {
        let ((none, wanted), (some, found)) = (of(device, Precision::F32), of(device, Precision::F16));
        assert!(none == 0 && some > 0, "{none} and {some} tensors in 16 bits");
        assert_close(
            "parameters",
            &found,
            &wanted.iter().map(|&x| x.into()).collect::<Vec<_>>(),
            Near { rel: 0.02, abs: 0.005 },
        );
    });
}

/// A large weight is stored in 16 bits, and the kernel reads it in 32.
#[test]
fn own_kernels_read_weights_of_16_bits() {
    const SIDE: usize = 128;
    let params = Params::new(9);
    let w = params.add("w", [SIDE, SIDE], Init::Normal(1.0));
    let step = TrainStep::trace(&params, |trace| {
        let s = trace.input("s", [SIDE]);
        bend(&trace.param(&w), &s).square().mean(&[])
    });
    let step = step.expect("valid");
    on_each(devices(), |device| {
        let loss = |weights| {
            let options = PlanOptions { weights, ..PlanOptions::default() };
            let plan = step.plan(&options, device.limits()).expect("planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            assert_eq!(session.device_bytes(), plan.footprint().total());
            session.feed("s", &noise(2, SIDE, 0.5, 2.0)).expect("valid");
            session.step().expect("it runs");
            (plan.footprint().persistent, session.loss().expect("finite"))
        };
        let (whole, wanted) = loss(WeightStorage::F32);
        let (less, found) = loss(WeightStorage::Bf16(Rounding::Nearest));
        assert!(less < whole, "{less} and {whole} bytes");
        assert!((found - wanted).abs() < 0.01 * wanted, "{found} and {wanted}");
    });
}

/// WGSL clears workgroup memory, whatever another kernel left there.
#[test]
fn workgroup_memory_of_own_kernels_is_cleared() {
    const FILL: &str = "var<workgroup> parts: array<u32, 1024>;
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var k = lane; k < 1024u; k += WORKGROUP) { parts[k] = x[0] + k; }
    workgroupBarrier();
    if (thread_of(id) < y_len) { y[thread_of(id)] = parts[1023u - lane]; }
}";
    const COUNT: &str = "var<workgroup> counts: array<atomic<u32>, 1024>;
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var k = lane; k < 1024u; k += WORKGROUP) { atomicAdd(&counts[k], min(x[0], 1u)); }
    workgroupBarrier();
    if (thread_of(id) < y_len) { y[thread_of(id)] = f32(atomicLoad(&counts[thread_of(id)])); }
}";
    let forward = Forward::trace(&Params::new(0), "counts", |trace| {
        let filled = trace.kernel("fill", FILL).input("x", &trace.ids("x", [1], 100)).result_u32([64]);
        trace.output("filled", &filled);
        trace.kernel("count", COUNT).input("x", &filled).result([64])
    });
    let forward = forward.expect("valid");
    on_each(devices(), |device| {
        let plan = forward.plan(device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        session.feed("x", &[7u32]).expect("valid");
        session.step().expect("it runs");
        let found: Vec<f32> = session.output(ProgramId(0), "counts").expect("there");
        assert_eq!(found, [1.0; 64]);
    });
}

fn forward_of(source: &str) -> Forward {
    let model = |trace: &Trace| trace.kernel("own", source).input("x", &trace.input("x", [4])).result([4]);
    Forward::trace(&Params::new(0), "y", model).expect("the source is not read yet")
}

#[test]
fn wrong_sources_are_refused_with_line_and_message_before_anything_runs() {
    let main = |body: &str| {
        format!(
            "@compute @workgroup_size(WORKGROUP)\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n{body}\n}}"
        )
    };
    let cases = [
        (main("y[id.x] = x[id.x] +;"), 3, "expected"),
        (main("let a = 1;\ny[id.x] = missing(x[id.x]);"), 4, "missing"),
        (main("y[id.x] = 1u;"), 3, "u32"),
        (main("x[id.x] = 1.0; y[id.x] = 1.0;"), 0, "it writes `x`, which is an input"),
        (main("let a = x[id.x];"), 0, "it never writes its result `y`"),
        (
            format!(
                "@group(0) @binding(7) var<storage, read_write> z: array<f32>;\n{}",
                main("y[id.x] = z[0];")
            ),
            1,
            "`z` is a binding; declare it with `KernelCall::input`",
        ),
        (
            format!(
                "@group(0) @binding(1) var<storage, read_write> z: array<f32>;\n{}",
                main("y[id.x] = z[0];")
            ),
            1,
            "`z` is a binding; declare it with `KernelCall::input`",
        ),
        ("fn f() {}".to_owned(), 0, "it has 0 entry points, not one"),
        (
            "@compute @workgroup_size(32) fn main() { y[0] = 1.0; }".to_owned(),
            0,
            "write `@compute @workgroup_size(WORKGROUP) fn main`, WORKGROUP being 64",
        ),
    ];
    on_each(devices(), |device| {
        for (source, at, text) in &cases {
            let plan = forward_of(source).plan(device.limits()).expect("planned");
            let opened =
                [Session::new(device, &plan).err(), Eager::new(device, &plan, PoolOptions::default()).err()];
            for error in opened {
                let error = error.unwrap_or_else(|| panic!("accepted:\n{source}"));
                let Error::Kernel { name, line, message } = &error else { panic!("{error}") };
                assert!(name.starts_with("own."), "{error}");
                assert_eq!(line, at, "{error}\n{source}");
                assert!(message.contains(text), "{error}");
            }
        }
    });
}

fn mistake(model: impl FnOnce(&Trace) -> Tensor) -> String {
    Forward::trace(&Params::new(0), "y", model).expect_err("a mistake").to_string()
}

#[test]
fn wrong_declarations_are_mistakes_of_the_model() {
    let call = |trace: &Trace| trace.kernel("own", FORWARD);
    let some = |trace: &Trace, name: &str| trace.input(name, [4]);
    let cases = [
        (mistake(|t| call(t).input("y", &some(t, "a")).result([4])), "two variables are called `y`"),
        (
            mistake(|t| call(t).input("a b", &some(t, "a")).result([4])),
            "`a b`, which is no name of a WGSL variable",
        ),
        (
            mistake(|t| call(t).input("x", &some(t, "a")).input("x_len", &some(t, "b")).result([4])),
            "`x_len` and `x`: one is a constant of the other",
        ),
        (mistake(|t| call(t).input("main", &some(t, "a")).result([4])), "`main`, which is declared already"),
        (mistake(|t| call(t).workgroup(512).result([4])), "workgroups of 512 threads; from 1 to 256"),
        (mistake(|t| call(t).result([0])), "has no elements"),
        (
            mistake(|t| call(t).input("a", &t.input_of(DType::F16, "a", [4])).result([4])),
            "a is f16; kernels read and write f32 and u32: cast it to f32",
        ),
        (
            mistake(|t| {
                (0..8).fold(call(t), |c, i| c.input(&format!("a{i}"), &some(t, &format!("a{i}")))).result([4])
            }),
            "8 inputs; a kernel takes at most 7",
        ),
    ];
    for (message, text) in cases {
        assert!(message.contains("kernel `own`") && message.contains(text), "{message}");
        assert!(message.contains("custom_kernels.rs"), "{message}");
    }
}

#[test]
fn kernels_without_a_gradient_or_a_definition_are_refused_where_they_need_it() {
    let params = Params::new(0);
    let w = params.add("w", [4], Init::Constant(1.0));
    let of = |detach: bool| {
        let step = TrainStep::trace(&params, |trace| {
            let w = trace.param(&w);
            let y = trace.kernel("own", FORWARD).input("x", &w).input("s", &w).result([4]);
            (if detach { y.detach() } else { y } + w).sum(&[])
        });
        step.expect("valid").plan(&PlanOptions::default(), &Limits::default())
    };
    let error = of(false).expect_err("no gradient").to_string();
    assert!(error.contains("kernel `own` has no gradient") && error.contains("custom_kernels.rs"), "{error}");
    let plan = of(true).expect("nothing needs its gradient");
    let mut twin = Twin::new(plan.graph());
    twin.set_step(&Optimizer::default().scalars(0, 0.1, 0));
    let error = twin.run().expect_err("no definition").to_string();
    assert!(error.contains("kernel `own` has no definition in f64"), "{error}");
}
