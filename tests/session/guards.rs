//! Guards between tensors must detect writes past the end of any tensor.
#![cfg(feature = "gpu")]

use crate::support::networks::{BATCH, network, optimizer};
use crate::support::{devices, noise, on_each, some_labels};
use wgrad::Error;
use wgrad::compile::{Plan, PlanOptions};
use wgrad::device::Device;
use wgrad::exec::{Debug, ProgramId, Session};
use wgrad::graph::Class;

/// Returns the result of checking the guards after a step.
fn checked(device: &Device, plan: &Plan) -> wgrad::Result<()> {
    let mut session = Session::with_plans(device, &[plan], Debug { poison: true }).expect("it opens");
    session.feed("x", &noise(1, BATCH * 24, -1.0, 1.0)).expect("valid");
    session.feed("y", &some_labels(1, BATCH, 5)).expect("valid");
    session.step().expect("it runs");
    session.check_guards(ProgramId(0))
}

#[test]
fn writes_past_the_end_of_any_tensor_are_detected() {
    on_each(devices(), |device| {
        let options = PlanOptions { optimizer: optimizer(), guard: true, ..PlanOptions::default() };
        let plan = network("mlp", BATCH).plan(&options, device.limits()).expect("planned");
        let guard = plan.layout.guard_bytes;
        assert!(guard > 0);
        checked(device, &plan).expect("nothing is written between tensors");
        let mut seen = 0;
        let step = |plan: &Plan| {
            (0..plan.program.storages.len())
                .filter(|&i| !plan.program.storages[i].persistent)
                .collect::<Vec<_>>()
        };
        for i in step(&plan) {
            // The dispatches are the same, but the plan is changed to end a tensor before its last bytes,
            // which are therefore written past its end.
            let storage = &plan.program.storages[i];
            if storage.bytes <= guard || storage.class_at(storage.last) == Class::Workspace {
                continue;
            }
            let mut shorter = plan.clone();
            shorter.program.storages[i].bytes -= guard;
            let Err(Error::Check(message)) = checked(device, &shorter) else {
                panic!("what lies after `{}` was not looked at", storage.name)
            };
            assert!(message.contains(&format!("`{}`", storage.name)), "{message}");
            seen += 1;
        }
        assert!(seen >= 5, "only {seen} tensors are longer than their guard");
    });
}
