//! Inputs that are not fed again: a run copies them only where something was written over them.
#![cfg(feature = "gpu")]

use crate::support::{devices, noise, on_each};
use wgrad::compile::{Forward, Plan};
use wgrad::device::Device;
use wgrad::exec::{Debug, ProgramId, Session};
use wgrad::graph::{Init, Params};

const SIDE: usize = 33;

/// A product of the input, which lives beside its result, and two products, of which the second takes the input's place.
fn plans(device: &Device) -> [Plan; 2] {
    let params = Params::new(1);
    let w = params.add("w", [SIDE, SIDE], Init::fan_in(SIDE));
    let plan =
        |forward: wgrad::Result<Forward>| forward.and_then(|f| f.plan(device.limits())).expect("planned");
    [
        plan(Forward::trace(&params, "y", |t| t.input("x", [SIDE, SIDE]).matmul(&t.param(&w)))),
        plan(Forward::trace(&params, "y", |t| {
            t.input("x", [SIDE, SIDE]).matmul(&t.param(&w)).matmul(&t.param(&w))
        })),
    ]
}

fn result(session: &mut Session, id: usize) -> Vec<f32> {
    session.run(ProgramId(id)).expect("it runs");
    session.output(ProgramId(id), "y").expect("it ran")
}

#[test]
fn inputs_are_copied_again_only_where_they_were_overwritten() {
    on_each(devices(), |device| {
        let plans = plans(device);
        let fed = [noise(1, SIDE * SIDE, -1.0, 1.0), noise(2, SIDE * SIDE, -1.0, 1.0)];
        for poison in [false, true] {
            let open = || {
                let both = [&plans[0], &plans[1]];
                Session::with_plans(device, &both, Debug { poison }).expect("it opens")
            };
            // Fed before each run.
            let fresh = |id: usize, x: &[f32]| {
                let mut session = open();
                session.feed_to(ProgramId(id), "x", x).expect("valid");
                result(&mut session, id)
            };
            let mut session = open();
            let there = |session: &Session, id| session.inputs_there(ProgramId(id)).expect("a plan").len();
            for id in [0, 1] {
                session.feed_to(ProgramId(id), "x", &fed[id]).expect("valid");
            }
            assert_eq!(there(&session, 0), 0);
            for _ in 0..2 {
                assert_eq!(result(&mut session, 0), fresh(0, &fed[0]));
                assert_eq!(there(&session, 0), 1, "nothing of this plan is written over its input");
                assert_eq!(result(&mut session, 0), fresh(0, &fed[0]), "not copied again (poison: {poison})");
                // The other plan writes to the same memory.
                assert_eq!(result(&mut session, 1), fresh(1, &fed[1]));
                assert_eq!(there(&session, 0), 0);
                assert_eq!(there(&session, 1), 0, "its own result is written over its input");
                assert_eq!(result(&mut session, 1), fresh(1, &fed[1]), "copied again");
            }
            assert_eq!(result(&mut session, 0), fresh(0, &fed[0]));
            session.feed_to(ProgramId(0), "x", &fed[1]).expect("valid");
            assert_eq!(there(&session, 0), 0, "other data was fed");
            assert_eq!(result(&mut session, 0), fresh(0, &fed[1]));
        }
    });
}
