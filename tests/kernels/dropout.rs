//! Dropout: drop rate, scale, and the same mask whenever it is redrawn.

use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, Params};
use wgrad::optim::Sgd;
use wgrad::reference::dropout_keeps;

use super::everywhere;
use crate::support::close::assert_same_bits;

const N: usize = 40_003;

/// Plans a step that applies dropout to the parameter `w`; its gradient is the mask times 1 / (1 - p).
fn plan(limits: &wgrad::limits::Limits, p: f64, seed: u64) -> Plan {
    let params = Params::new(seed);
    let w = params.add("w", [N], Init::Constant(3.0));
    let step = TrainStep::trace(&params, |trace| {
        let dropped = trace.param(&w).dropout(p);
        trace.output("dropped", &dropped);
        dropped.scale(2.0).sum(&[]).scale(0.5)
    });
    let optimizer = Sgd { lr: 0.0, momentum: 1e-30, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    step.expect("valid").plan(&options, limits).expect("it can be planned")
}

fn run(session: &mut Session) -> (Vec<f32>, Vec<f32>) {
    session.step().expect("it runs");
    let dropped = session.output(ProgramId(0), "dropped").expect("an output");
    (dropped, session.parameter("w.momentum_buffer").expect("optimizer state"))
}

#[test]
fn mask_is_the_same_forward_and_backward_and_changes_each_step() {
    everywhere(|device, limits| {
        for p in [0.1, 0.5, 0.9, 0.999] {
            let plan = plan(limits, p, 7 + (1 << 40));
            let mut session = Session::new(device, &plan).expect("it opens");
            let mut last: Option<Vec<bool>> = None;
            for step in 0..3 {
                let (dropped, gradient) = run(&mut session);
                let kept: Vec<bool> = dropped.iter().map(|&v| v != 0.0).collect();
                let scale = (1.0 / (1.0 - p)) as f32;
                for (i, (&y, &g)) in dropped.iter().zip(&gradient).enumerate() {
                    let (want, slope) = if kept[i] { (3.0 * scale, scale) } else { (0.0, 0.0) };
                    assert!(
                        (y - want).abs() <= 4e-7 * want && (g - slope).abs() <= 4e-7 * slope + 1e-20,
                        "p {p} step {step} element {i}: {y} {g}"
                    );
                }
                let scalars = plan.optimizer.expect("a training plan").scalars(step, 0.0, plan.seed);
                let words: [u32; 9] = bytemuck_cast(scalars);
                assert!(
                    (0..N).all(|i| dropout_keeps(i, [1, 1], words, p) == kept[i]),
                    "the mask is not the twin's"
                );
                let share = kept.iter().filter(|kept| **kept).count() as f64 / N as f64;
                // Four standard deviations of a binomial share.
                assert!(
                    (share - (1.0 - p)).abs() < 4.0 * (p * (1.0 - p) / N as f64).sqrt(),
                    "{share} kept at {p}"
                );
                let pairs = kept.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64 / N as f64;
                assert!((pairs - (1.0 - p).powi(2)).abs() < 0.02, "neighbours are not independent: {pairs}");
                if let Some(last) = last.replace(kept.clone()) {
                    let same = last.iter().zip(&kept).filter(|(a, b)| a == b).count() as f64 / N as f64;
                    let chance = p * p + (1.0 - p) * (1.0 - p);
                    assert!((same - chance).abs() < 0.02, "step {step} draws the mask of the step before");
                }
            }
        }
    });
}

fn bytemuck_cast(scalars: wgrad::graph::StepScalars) -> [u32; 9] {
    [
        scalars.learning_rate.to_bits(),
        scalars.bias1.to_bits(),
        scalars.sqrt_bias2.to_bits(),
        scalars.step,
        scalars.seed_low,
        scalars.seed_high,
        0,
        0,
        0,
    ]
}

#[test]
fn mask_depends_only_on_seed_and_step() {
    everywhere(|device, limits| {
        let masks = |seed: u64| {
            let mut session = Session::new(device, &plan(limits, 0.5, seed)).expect("it opens");
            [run(&mut session).0, run(&mut session).0]
        };
        let [first, second] = masks(1);
        let again = masks(1);
        assert_same_bits("step 0", &first, &again[0]);
        assert_same_bits("step 1", &second, &again[1]);
        assert!(masks(2)[0] != first && masks(1 << 32)[0] != first, "both halves of the seed count");
        let mut session = Session::new(device, &plan(limits, 0.5, 1)).expect("it opens");
        session.set_steps(1);
        assert_same_bits("from step 1 on", &run(&mut session).0, &second);
    });
}

#[test]
fn dropouts_of_one_graph_draw_different_masks() {
    everywhere(|device, limits| {
        let params = Params::new(3);
        let w = params.add("w", [1000], Init::Constant(1.0));
        let step = TrainStep::trace(&params, |trace| {
            let (a, b) = (trace.param(&w).dropout(0.5), trace.param(&w).dropout(0.5));
            trace.output("a", &a);
            trace.output("b", &b);
            a.add(&b).sum(&[])
        });
        let plan = step.expect("valid").plan(&PlanOptions::default(), limits).expect("it can be planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        session.step().expect("it runs");
        let read =
            |session: &mut Session, name| session.output::<f32>(ProgramId(0), name).expect("an output");
        assert_ne!(read(&mut session, "a"), read(&mut session, "b"));
    });
}
