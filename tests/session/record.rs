//! A run of the eager executor is recorded, read back and replayed without loss.

use crate::support;
use crate::support::{devices, on_each};
use wgrad::compile::PlanOptions;
use wgrad::exec::Eager;
use wgrad::memory::replay::{contenders, replay};
use wgrad::memory::trace::{Trace, write_events};
use wgrad::memory::{Growth, PoolOptions};
use wgrad::models::Model;

#[test]
fn a_recorded_run_replays_to_the_pools_own_statistics() {
    let model = Model::named("digits", 0).expect("a known model");
    let batch = 32;
    let step = model.train_step(batch).expect("a valid model");
    let x = support::noise(1, batch * model.inputs, 0.0, 1.0);
    let y = support::some_labels(2, batch, model.classes as u32);
    on_each(devices(), |device| {
        let plan = step.plan(&PlanOptions::default(), device.limits()).expect("a small model");
        let options = PoolOptions { events: 100_000, ..PoolOptions::default() };
        let mut eager = Eager::new(device, &plan, options).expect("a pool opens");
        for _ in 0..3 {
            eager.feed("x", &x).expect("a valid input");
            eager.feed("y", &y).expect("valid labels");
            eager.step().expect("a step runs");
        }
        let (stats, log) = (*eager.stats(), eager.log());
        assert_eq!(log.dropped(), 0, "a log with gaps cannot be replayed");

        let trace = Trace::parse(&write_events(log.events())).expect("our own form");
        assert_eq!(trace.blocks.len() as u64, stats.allocations.allocated);
        assert_eq!(trace.lower_bound(), stats.requested.peak);
        for name in ["fc1.weight", "fc1.bias and 2 more"] {
            assert!(trace.blocks.iter().any(|block| block == name), "`{name}` is not in {:?}", trace.blocks);
        }
        for contender in contenders() {
            let outcome = replay(&trace, contender, None).expect("a valid setting");
            assert_eq!(outcome.peak_live, stats.requested.peak, "{}", contender.name);
            assert_eq!(outcome.failed, Some(0), "{}", contender.name);
            if contender.name == "bins-doubling" {
                assert_eq!(outcome.peak_reserved, stats.reserved.peak, "the pool that recorded, once more");
            }
        }
    });
}

#[test]
fn compaction_between_steps_moves_blocks_and_changes_no_bit() {
    let model = Model::named("digits", 0).expect("a known model");
    let step = model.train_step(32).expect("a valid model");
    let x = support::noise(1, 32 * model.inputs, 0.0, 1.0);
    let y = support::some_labels(2, 32, model.classes as u32);
    on_each(devices(), |device| {
        let plan = step.plan(&PlanOptions::default(), device.limits()).expect("a small model");
        let run = |compact: bool| {
            let options = PoolOptions { growth: Growth::Fixed(1 << 17), ..PoolOptions::default() };
            let mut eager = Eager::new(device, &plan, options).expect("a pool opens");
            eager.feed("x", &x).expect("a valid input");
            eager.feed("y", &y).expect("valid labels");
            for _ in 0..3 {
                eager.step().expect("a step runs");
                if compact {
                    let (before, reserved) =
                        (eager.stats().allocations.allocated, eager.stats().reserved.current);
                    let released = eager.compact(u64::MAX).expect("a sound pool");
                    assert!(eager.stats().allocations.allocated > before, "nothing was moved");
                    assert_eq!(eager.stats().reserved.current, reserved - released);
                    assert!(released > 0, "no page became empty");
                }
            }
            let bits = |eager: &mut Eager, name| eager.parameter(name).expect("a parameter");
            (bits(&mut eager, "fc1.weight"), bits(&mut eager, "fc3.bias.exp_avg_sq"))
        };
        assert_eq!(run(true), run(false));
    });
}
