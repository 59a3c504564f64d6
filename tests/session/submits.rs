//! Long runs are cut into several submits, which changes no bit.

use std::time::Duration;

use crate::support::{both_classes, noise, on_each, own_devices, some_labels};
use wgrad::Error;
use wgrad::compile::{Offload, PlanOptions};
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session};
use wgrad::limits::Limits;
use wgrad::models::Model;

const BATCH: usize = 4;

/// Runs three steps; returns the bits of all parameters and the submits of the last step.
fn run(device: &Device, limits: &Limits, offload: Offload, time: Option<Duration>) -> (Vec<u32>, u64) {
    let step = Model::named("mlp", 3).expect("known").train_step(BATCH).expect("valid");
    let options = PlanOptions { offload, ..PlanOptions::default() };
    let plan = step.plan(&options, limits).expect("it fits");
    let mut session = Session::new(device, &plan).expect("it opens");
    let bytes = session.device_bytes();
    assert_eq!(bytes, plan.footprint().total());
    if let Some(time) = time {
        session.set_submit_time(time);
    }
    let mut submits = 0;
    for seed in 0..3 {
        session.feed("x", &noise(seed, BATCH * 784, 0.0, 1.0)).expect("fed");
        session.feed("y", &some_labels(seed, BATCH, 10)).expect("fed");
        let before = device.submits();
        session.run(ProgramId(0)).expect("it runs");
        submits = device.submits() - before;
    }
    assert_eq!(session.device_bytes(), bytes);
    assert!(session.loss().expect("a loss").is_finite());
    let names: Vec<String> = plan.graph().parameters.iter().map(|param| param.name().to_string()).collect();
    let all = names.iter().map(|name| session.parameter(name).expect("there"));
    (all.flatten().map(f32::to_bits).collect(), submits)
}

#[test]
fn cut_steps_have_the_bits_of_whole_ones() {
    on_each(&own_devices(), |device| {
        for limits in both_classes(device) {
            let name = &limits.name;
            let (whole, one) = run(device, &limits, Offload::OFF, None);
            assert_eq!(one, 1, "{name}: a short step is one submit");
            let run = |offload, time| run(device, &limits, offload, time);
            let (cut, many) = run(Offload::OFF, Some(Duration::from_nanos(1)));
            let (some, few) = run(Offload::OFF, Some(Duration::from_micros(20)));
            match limits.class.is_cpu() {
                true => assert_eq!((many, few), (1, 1), "{name}: software adapters have no watchdog"),
                false => assert!(many > few && few > 1, "{name}: {many} and {few}"),
            }
            let (offloaded, parts) = run(Offload::OPTIMIZER, None);
            let (both, more) = run(Offload::OPTIMIZER, Some(Duration::from_nanos(1)));
            assert!(parts > 1 && (limits.class.is_cpu() || more > parts), "{name}: {more} and {parts}");
            assert!([cut, some, offloaded, both].iter().all(|bits| *bits == whole), "{name}: other bits");
        }
    });
}

/// A submit that finds no memory before the first update can be repeated; one after it is a step cut short.
#[test]
fn a_cut_step_that_fails_before_its_updates_is_repeated() {
    on_each(&own_devices(), |device| {
        let limits = both_classes(device).pop().expect("the last one is a GPU's");
        let step = Model::named("mlp", 3).expect("known").train_step(BATCH).expect("valid");
        let plan = step.plan(&PlanOptions::default(), &limits).expect("it fits");
        let open = || {
            let mut session = Session::new(device, &plan).expect("it opens");
            session.set_submit_time(Duration::from_nanos(1));
            session.feed("x", &noise(5, BATCH * 784, 0.0, 1.0)).expect("fed");
            session.feed("y", &some_labels(5, BATCH, 10)).expect("fed");
            session
        };
        let name = plan.graph().parameters[0].name().to_string();
        let mut whole = open();
        let before = device.submits();
        whole.step().expect("it runs");
        let submits = (device.submits() - before) as u32;
        let expected = whole.parameter(&name).expect("there");
        let mut repeated = open();
        for n in [1, 2, 3] {
            device.fail_submit(n);
            let error = repeated.step().expect_err("it has no memory");
            assert!(matches!(error, Error::SubmitOutOfMemory { .. }), "submit {n}: {error}");
        }
        repeated.step().expect("the fourth time");
        assert!(repeated.parameter(&name).expect("there") == expected, "other bits");
        assert_eq!(repeated.steps(), 1);
        device.fail_submit(submits);
        let error = repeated.step().expect_err("it has no memory");
        assert!(matches!(error, Error::Device { .. }), "{error}");
        assert!(error.to_string().contains("load what was saved before"), "{error}");
    });
}
