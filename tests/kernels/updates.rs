//! Optimizer updates on parameters of odd sizes, over several steps.

use wgrad::exec::Session;
use wgrad::graph::{Init, Params};
use wgrad::optim::{Adam, AdamW, Clip, Optimizer, Schedule, Sgd};
use wgrad::plan::{PlanOptions, TrainStep};
use wgrad::reference::Twin;

use super::support::close::{Near, assert_close};
use super::support::noise;
use super::{SIZES, everywhere};

fn optimizers() -> Vec<(Optimizer, Clip)> {
    let sgd = Sgd { lr: 0.05, ..Sgd::default() };
    let adam = Adam { lr: 0.01, ..Adam::default() };
    vec![
        (sgd.into(), Clip::Off),
        (Sgd { weight_decay: 0.1, ..sgd }.into(), Clip::Off),
        (Sgd { momentum: 0.9, weight_decay: 0.1, ..sgd }.into(), Clip::Off),
        (Sgd { momentum: 0.9, weight_decay: 0.1, nesterov: true, ..sgd }.into(), Clip::Value(0.3)),
        (sgd.into(), Clip::Norm(0.5)),
        (sgd.into(), Clip::Norm(1e6)),
        (adam.into(), Clip::Off),
        (Adam { weight_decay: 0.1, betas: (0.8, 0.9), eps: 1e-3, ..adam }.into(), Clip::Off),
        (AdamW { lr: 0.01, weight_decay: 0.3, ..AdamW::default() }.into(), Clip::Norm(0.5)),
    ]
}

#[test]
fn updates_agree_with_the_twin_step_by_step() {
    let params = Params::new(9);
    let all: Vec<_> = SIZES
        .iter()
        .map(|&n| params.add(&format!("w{n}"), [n], Init::Data(noise(n as u64, n, -2.0, 2.0).into())))
        .collect();
    // Gradients differ from element to element and from step to step, and none is near 0, where Adam sees only noise.
    let step = TrainStep::trace(&params, |trace| {
        let losses = all.iter().map(|param| {
            let w = trace.param(param);
            w.square().scale(0.25).add(&w.scale(1.25)).sum(&[])
        });
        losses.reduce(|sum, one| sum.add(&one)).expect("some parameters")
    });
    let step = step.expect("valid");
    let schedule = Schedule::Linear { warmup: 2, total: 10 };
    everywhere(|device, limits| {
        for (optimizer, clip) in optimizers() {
            let options = PlanOptions { optimizer, clip, ..PlanOptions::default() };
            let plan = step.plan(&options, limits).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            session.set_schedule(schedule);
            let mut twin = Twin::new(plan.graph());
            for step in 0..4 {
                let rate = optimizer.learning_rate() * schedule.factor(step);
                twin.set_step(&optimizer.scalars(step, rate, plan.seed));
                twin.run().expect("the twin runs");
                session.step().expect("it runs");
                let near = Near { rel: 1e-5, abs: 1e-7 };
                for storage in plan.program.storages.iter().filter(|s| s.persistent) {
                    let found = session.parameter(&storage.name).expect("there");
                    let what = format!("{optimizer:?} {clip:?}: {} after step {step}", storage.name);
                    assert_close(&what, &found, twin.parameter(&storage.name).expect("there"), near);
                }
            }
        }
    });
}
