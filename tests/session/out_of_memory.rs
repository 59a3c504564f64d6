//! Out of memory at every possible point: a budget makes each allocation fail in turn.

use crate::support::{noise, own_devices, some_labels};
use wgrad::compile::{Plan, PlanOptions};
use wgrad::device::Device;
use wgrad::exec::{Eager, Session};
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::{Bytes, Error};

const BATCH: usize = 8;

fn plan(device: &Device) -> Plan {
    let step = Model::named("digits", 0).unwrap().train_step(BATCH).unwrap();
    step.plan(&PlanOptions::default(), device.limits()).unwrap()
}

fn losses(session: &mut Session) -> Vec<f32> {
    session.feed("x", &noise(1, BATCH * 64, 0.0, 1.0)).unwrap();
    session.feed("y", &some_labels(2, BATCH, 10)).unwrap();
    let mut step = || {
        session.step().unwrap();
        session.loss().unwrap()
    };
    (0..3).map(|_| step()).collect()
}

#[test]
fn failure_of_each_allocation_of_a_session_is_an_error_and_leaks_nothing() {
    for device in own_devices() {
        let plan = plan(&device);
        let expected = losses(&mut Session::new(&device, &plan).unwrap());
        assert_eq!(device.used_bytes(), 0, "a closed session gives everything back");
        let mut budget = 0;
        let mut refused = Vec::new();
        let mut session = loop {
            device.set_budget(Some(Bytes(budget)));
            match Session::new(&device, &plan) {
                Ok(session) => break session,
                Err(Error::OutOfMemory { name, bytes, created, holds, message }) => {
                    assert_eq!(device.used_bytes(), 0, "what was created before `{name}` is given back");
                    assert!(created + bytes > budget && created <= budget, "{name}");
                    assert!(message.contains("the device's budget is"), "{message}");
                    let arena = name.starts_with("step") || name.starts_with("persistent");
                    assert!(
                        !arena || (holds.contains("fc1.weight") && holds.contains("operation")),
                        "{holds}"
                    );
                    budget = created + bytes;
                    refused.push(name);
                }
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(refused.len(), session.buffers(), "{refused:?}");
        assert_eq!(budget, plan.footprint().total());
        assert_eq!(device.used_bytes(), session.device_bytes());
        assert_eq!(losses(&mut session), expected);
        // There is no room for a second session, and the first continues.
        assert!(matches!(Session::new(&device, &plan), Err(Error::OutOfMemory { .. })));
        losses(&mut session);
        device.set_budget(None);
        assert_eq!(device.budget(), None);
        Session::new(&device, &plan).expect("there is room again");
    }
}

#[test]
fn pool_that_may_not_grow_uses_its_pages_or_is_an_error() {
    for device in own_devices() {
        let plan = plan(&device);
        let mut eager = Eager::new(&device, &plan, PoolOptions::default()).unwrap();
        eager.feed("x", &noise(1, BATCH * 64, 0.0, 1.0)).unwrap();
        eager.feed("y", &some_labels(2, BATCH, 10)).unwrap();
        assert_eq!(device.used_bytes(), eager.device_bytes());
        // The pool has one page; a budget of the bytes in use lets it use that page only.
        device.set_budget(Some(Bytes(device.used_bytes())));
        eager.step().expect("the first page is large enough");
        drop(eager);
        device.set_budget(Some(Bytes(4096)));
        let text = Eager::new(&device, &plan, PoolOptions::default()).err().expect("too little").to_string();
        assert!(text.contains("the device's budget is 4.0 KiB"), "{text}");
    }
}
