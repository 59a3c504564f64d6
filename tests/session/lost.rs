//! A lost device stays lost: every later call says so. The run goes on with a device that is opened anew.

use crate::support::folder::Folder;
use crate::support::{devices, noise, on_each, own_devices, some_labels};
use wgrad::compile::{Plan, PlanOptions};
use wgrad::device::Device;
use wgrad::exec::{Eager, ProgramId, Session};
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::{Error, Result};

const BATCH: usize = 4;

fn plan(device: &Device) -> Plan {
    let step = Model::named("digits", 3).expect("known").train_step(BATCH).expect("valid");
    step.plan(&PlanOptions::default(), device.limits()).expect("it fits")
}

fn feed(session: &mut Session, seed: u64) -> Result<()> {
    session.feed("x", &noise(seed, BATCH * 64, 0.0, 1.0))?;
    session.feed("y", &some_labels(seed, BATCH, 10))
}

#[test]
fn every_call_on_a_lost_device_says_so() {
    for device in own_devices() {
        let plan = plan(&device);
        let mut session = Session::new(&device, &plan).expect("it opens");
        let mut eager = Eager::new(&device, &plan, PoolOptions::default()).expect("it opens");
        feed(&mut session, 1).expect("fed");
        session.step().expect("it runs");
        session.loss().expect("a loss");
        let state = session.state().expect("the device is there");
        let [first, ..] = &state_names(&plan)[..] else { panic!("no parameters") };
        let values = session.parameter(first).expect("there");
        device.wgpu_device().destroy();
        let folder = Folder::new("lost");
        let mut said = Vec::new();
        for round in 0..2 {
            let outcomes: Vec<(&str, Result<()>)> = vec![
                ("wait", session.wait()),
                ("feed", feed(&mut session, 2)),
                ("step", session.step()),
                ("loss", session.loss().map(drop)),
                ("losses", session.losses().map(drop)),
                ("output", session.output::<f32>(ProgramId(0), "loss").map(drop)),
                ("parameter", session.parameter(first).map(drop)),
                ("set_parameter", session.set_parameter(first, &values)),
                ("state", session.state().map(drop)),
                ("set_state", session.set_state(&state)),
                ("check_parameters", session.check_parameters()),
                ("save", session.save(folder.join("m.safetensors"))),
                ("new", Session::new(&device, &plan).map(drop)),
                ("eager feed", eager.feed("y", &some_labels(1, BATCH, 10))),
                ("eager step", eager.step()),
                ("eager new", Eager::new(&device, &plan, PoolOptions::default()).map(drop)),
                ("device", device.wait(None)),
                ("poll", device.poll()),
            ];
            for (call, outcome) in outcomes {
                match outcome {
                    Err(Error::DeviceLost(message)) => said.push(message),
                    other => panic!("{}: {call}, round {round}: {other:?}", device.adapter().name),
                }
            }
        }
        said.dedup();
        assert_eq!(said.len(), 1, "one reason: {said:?}");
        session.plan(ProgramId(0)).expect("what the host knows is still there");
    }
}

fn state_names(plan: &Plan) -> Vec<String> {
    plan.graph().parameters.iter().map(|param| param.name().to_string()).collect()
}

/// Opens the same adapter anew, by its selector, and goes on from a file: the bits of a run that lost nothing.
#[test]
fn a_run_goes_on_from_a_checkpoint_on_the_same_adapter_opened_anew() {
    on_each(devices(), |through| {
        let plan = plan(through);
        let names = state_names(&plan);
        let steps = |session: &mut Session, seeds: std::ops::Range<u64>| {
            for seed in seeds {
                feed(session, seed).expect("fed");
                session.step().expect("it runs");
            }
        };
        let bits = |session: &mut Session| -> Vec<u32> {
            let all = names.iter().map(|name| session.parameter(name).expect("there"));
            all.flatten().map(f32::to_bits).collect()
        };
        let folder = Folder::new("anew");
        let path = folder.join("m.safetensors");
        let selector = through.adapter().selector();
        let first = Device::by_name(&selector).expect("it opens");
        let mut session = Session::new(&first, &plan).expect("it opens");
        steps(&mut session, 0..3);
        session.save_with(&path, &wgrad::exec::SaveOptions::training_state()).expect("saved");
        feed(&mut session, 3).expect("fed");
        session.step().expect("it runs");
        first.wgpu_device().destroy();
        // A loss that arrives before the device is lost is returned, so the loss is waited for first.
        assert!(session.wait().is_err());
        let error = session.loss().expect_err("the device is gone");
        assert!(error.to_string().contains("open a new device"), "{error}");

        let again = Device::by_name(&selector).expect("it opens anew");
        assert_eq!(again.adapter().selector(), selector);
        let mut session = Session::new(&again, &plan).expect("it opens");
        session.load(&path).expect("the checkpoint");
        assert_eq!(session.steps(), 3);
        steps(&mut session, 3..6);
        let mut other = Session::new(through, &plan).expect("it opens");
        steps(&mut other, 0..6);
        assert!(bits(&mut session) == bits(&mut other), "other bits");
    });
}
