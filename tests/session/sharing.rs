//! What a session shares: its memory among plans, its tensors with the app, its device with other threads.

use crate::support::{devices, noise, on_each, some_labels};
use wgrad::Error;
use wgrad::compile::{Forward, PlanOptions, TrainStep};
use wgrad::exec::{Debug, ProgramId, Session};
use wgrad::graph::{Init, Params};
use wgrad::models::Model;
use wgrad::optim::Sgd;

/// Checks that a message has all of these parts.
#[track_caller]
fn says<T>(result: Result<T, Error>, parts: &[&str]) {
    let text = result.err().expect("an error").to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in: {text}"));
}

/// Outputs are in memory that all plans share: they can be read after the run of their plan, and not after another's.
#[test]
fn outputs_are_of_the_plan_that_ran_last() {
    let params = Params::new(0);
    let w = params.add("w", [2], Init::Constant(3.0));
    let forward = |name: &str, factor: f32| {
        let w = w.clone();
        Forward::trace(&params, name, move |trace| trace.param(&w).mul(&trace.input("x", [2])).scale(factor))
            .expect("valid")
    };
    let (one, two) = (forward("one", 1.0), forward("two", 2.0));
    on_each(devices(), |device| {
        let plans = [&one, &two].map(|forward| forward.plan(device.limits()).expect("planned"));
        let plans = [&plans[0], &plans[1]];
        let mut session = Session::with_plans(device, &plans, Debug::default()).expect("it opens");
        let (first, second) = (ProgramId(0), ProgramId(1));
        for id in [first, second] {
            session.feed_to(id, "x", &[1.0f32, 2.0]).expect("valid");
        }
        says(session.output::<f32>(first, "one"), &["output `one`", "has not run"]);
        assert!(matches!(session.output_on_device(first, "one"), Err(Error::NotReady(_))));
        session.run(first).expect("it runs");
        assert_eq!(session.output::<f32>(first, "one").expect("it ran"), [3.0, 6.0]);
        session.run(second).expect("it runs");
        says(session.output::<f32>(first, "one"), &["plan 1 ran last"]);
        assert_eq!(session.output::<f32>(second, "two").expect("it ran"), [6.0, 12.0]);
        session.replan(&plans).expect("planned again");
        assert!(matches!(session.output::<f32>(second, "two"), Err(Error::NotReady(_))));
    });
}

/// Inputs from a buffer of the app's, outputs and parameters to its commands, in the order of the queue.
#[test]
fn tensors_are_fed_and_read_on_the_device() {
    let params = Params::new(0);
    let w = params.add("w", [4], Init::Constant(1.0));
    let step = TrainStep::trace(&params, |trace| {
        let y = trace.param(&w).mul(&trace.input("x", [4]));
        trace.output("y", &y);
        y.sum(&[])
    });
    let step = step.expect("valid");
    on_each(devices(), |device| {
        let optimizer = Sgd { lr: 0.5, ..Sgd::default() }.into();
        let options = PlanOptions { optimizer, ..PlanOptions::default() };
        let plan = step.plan(&options, device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        let id = ProgramId(0);
        let gpu = device.wgpu_device();
        let create = |size, usage| {
            gpu.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let (source, target) = (wgpu::BufferUsages::COPY_SRC, wgpu::BufferUsages::COPY_DST);
        let own = create(32, source | target);
        says(session.feed_from_device(id, "x", &create(32, target), 0), &["`x`", "COPY_SRC"]);
        says(session.feed_from_device(id, "x", &own, 20), &["takes 16 bytes from offset 20", "has 32"]);
        says(session.feed_from_device(id, "x", &own, 6), &["multiple of 4"]);
        session.feed("x", &[0.0f32; 4]).expect("it fits");
        session.step().expect("it runs");
        let output = session.output_on_device(id, "y").expect("it ran").buffer.clone();
        says(session.feed_from_device(id, "x", &output, 0), &["`x`", "holds this session's outputs"]);
        assert!(matches!(session.feed_from_device(id, "z", &own, 0), Err(Error::Unknown { .. })));
        session.feed_from_device(id, "x", &own, 16).expect("it fits");
        // What is written before a run is seen by it, each time.
        let results = create(64, wgpu::BufferUsages::MAP_READ | target);
        for (i, x) in [[1.0f32, 2.0, 3.0, 4.0], [2.0, 0.0, 0.0, 2.0]].into_iter().enumerate() {
            device.wgpu_queue().write_buffer(&own, 16, bytemuck::cast_slice(&x));
            session.step().expect("it runs");
            let mut commands = gpu.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let read = [session.output_on_device(id, "y"), session.parameter_on_device("w")];
            for (at, tensor) in (32 * i as u64..).step_by(16).zip(read) {
                let tensor = tensor.expect("on the device");
                assert_eq!(tensor.bytes, 16);
                commands.copy_buffer_to_buffer(tensor.buffer, tensor.offset, &results, at, 16);
            }
            device.submit(commands).expect("submitted");
        }
        device.map(&results, wgpu::MapMode::Read, .., None).wait(device).expect("mapped");
        let view = results.get_mapped_range(..).expect("mapped");
        let found: Vec<f32> = bytemuck::pod_collect_to_vec(&view);
        let (first, second) = ([1.0, 2.0, 3.0, 4.0], [0.5, 0.0, -0.5, -1.0]);
        assert_eq!(found[..8], [first, second].concat());
        assert_eq!(found[8..], [1.0, 0.0, -0.0, -2.0, -0.5, 0.0, -0.5, -2.0]);
        // The host's data takes its place again.
        session.feed("x", &[0.0f32; 4]).expect("valid");
        session.step().expect("it runs");
        assert_eq!(session.loss().expect("finite"), 0.0);
    });
}

/// Sessions on several threads share a device, its pipelines and its queue, and each has the bits of one alone.
#[test]
fn sessions_on_several_threads_do_not_disturb_each_other() {
    on_each(devices(), |device| {
        let train = |seed: u64| {
            let model = Model::named("digits", seed).expect("a model");
            let plan = model.train_step(8).expect("valid").plan(&PlanOptions::default(), device.limits());
            let mut session = Session::new(device, &plan.expect("planned")).expect("it opens");
            for step in 0..5 {
                session.feed("x", &noise(seed + step, 8 * 64, 0.0, 1.0)).expect("valid");
                session.feed("y", &some_labels(seed, 8, 10)).expect("valid");
                session.step().expect("it runs");
            }
            session.loss().expect("finite");
            session.parameter("fc2.weight").expect("there")
        };
        let alone: Vec<Vec<f32>> = (0..4).map(train).collect();
        let together: Vec<Vec<f32>> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|seed| scope.spawn(move || train(seed))).collect();
            all.into_iter().map(|one| one.join().expect("no thread panics")).collect()
        });
        assert!(alone == together);
    });
}
