//! Dynamic loss scaling: a step that overflows changes only the scale, and without overflow no bit differs.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::{devices, noise, on_each};
use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::exec::SaveOptions;
use wgrad::exec::Session;
use wgrad::graph::{Init, LossScale, Params};
use wgrad::optim::{Clip, Optimizer};
use wgrad::reference::Twin;

const N: usize = 5000;

/// `loss = mean((tanh(w) + b) x)`: an input of 3e38 is a finite loss, but 2¹⁶ times its gradient is not.
fn step() -> TrainStep {
    step_of(N)
}

fn step_of(n: usize) -> TrainStep {
    let params = Params::new(1);
    let w = params.add("w", [n / 10, 10], Init::Data(noise(1, n, -0.5, 0.5).into()));
    let b = params.add("b", [10], Init::Data(noise(2, 10, -0.5, 0.5).into()));
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [n / 10, 10]);
        trace.param(&w).tanh().add(&trace.param(&b)).mul(&x).mean(&[])
    });
    step.expect("valid")
}

fn x(at: u64) -> Vec<f32> {
    noise(100 + at, N, -1.0, 1.0)
}

fn huge() -> Vec<f32> {
    let mut x = x(99);
    x[N - 1] = 3e38;
    x
}

fn plan(device: &Device, optimizer: Optimizer, clip: Clip, loss_scale: Option<LossScale>) -> Plan {
    let options = PlanOptions { optimizer, clip, loss_scale, ..PlanOptions::default() };
    step().plan(&options, device.limits()).expect("it can be planned")
}

fn state(session: &mut Session, plan: &Plan) -> Vec<(String, Vec<f32>)> {
    let names = plan.program.storages.iter().filter(|s| s.persistent && s.name != "loss_scale");
    names.map(|s| (s.name.clone(), session.parameter(&s.name).expect("there"))).collect()
}

fn bits(state: &[(String, Vec<f32>)]) -> Vec<u32> {
    state.iter().flat_map(|(_, data)| data).map(|x| x.to_bits()).collect()
}

fn train(session: &mut Session, x: &[f32]) {
    session.feed("x", x).expect("valid");
    session.step().expect("it runs");
    session.loss().expect("a finite loss");
}

#[test]
fn loss_scaling_without_overflow_changes_no_bit() {
    on_each(devices(), |device| {
        for name in Optimizer::NAMES {
            for clip in [Clip::Off, Clip::Norm(1e-3)] {
                let optimizer = Optimizer::named(name).expect("known");
                let plain = plan(device, optimizer, clip, None);
                let scaled = plan(device, optimizer, clip, Some(LossScale { start: 1024.0, interval: 2 }));
                let mut a = Session::new(device, &plain).expect("it opens");
                let mut b = Session::new(device, &scaled).expect("it opens");
                assert_eq!((a.loss_scale().unwrap(), b.loss_scale().unwrap()), (None, Some((1024.0, 0))));
                for at in 0..5 {
                    train(&mut a, &x(at));
                    train(&mut b, &x(at));
                }
                for ((name, a), (_, b)) in state(&mut a, &plain).iter().zip(&state(&mut b, &scaled)) {
                    assert_same_bits(&format!("{optimizer:?} {clip:?}: {name}"), a, b);
                }
                assert_eq!(b.loss_scale().unwrap(), Some((4096.0, 0)), "doubled twice in five clean steps");
            }
        }
    });
}

#[test]
fn step_that_overflows_changes_only_the_scale() {
    on_each(devices(), |device| {
        for name in Optimizer::NAMES {
            let optimizer = Optimizer::named(name).expect("known");
            let plan = plan(device, optimizer, Clip::Off, Some(LossScale::default()));
            let mut session = Session::new(device, &plan).expect("it opens");
            let mut twin = Twin::new(plan.graph());
            for at in 0..9 {
                let overflows = at == 2 || at == 3;
                let x = if overflows { huge() } else { x(at) };
                let before = state(&mut session, &plan);
                train(&mut session, &x);
                let after = state(&mut session, &plan);
                assert_eq!(bits(&before) == bits(&after), overflows, "{name}, step {at}");
                twin.set_step(&optimizer.scalars(at, optimizer.learning_rate(), plan.seed));
                twin.set_f32("x", &x).expect("valid");
                twin.run().expect("it runs");
                for (tensor, found) in &after {
                    // A code halfway between two may round either way, and the weights follow it.
                    if !["adam8bit", "adam4bit"].contains(&name) {
                        let wanted = twin.parameter(tensor).expect("there");
                        let near = Near { rel: 2e-4, abs: 2e-5 };
                        assert_close(&format!("{name}: {tensor} after step {at}"), found, wanted, near);
                    }
                }
            }
            assert_eq!(session.loss_scale().unwrap(), Some((16_384.0, 2)), "{name}: halved twice");
        }
    });
}

/// Gradients wait in `f16` for their norm: one above 65,504 would be stored as 65,504, so the scale must be
/// lowered.
#[test]
fn gradient_beyond_the_range_of_f16_counts_as_infinite() {
    on_each(devices(), |device| {
        let loss_scale = Some(LossScale { start: 16.0, interval: 1000 });
        for (precision, skipped) in [(Precision::F32, 0), (Precision::Bf16, 0), (Precision::F16, 1)] {
            let optimizer = Optimizer::named("sgd").expect("known");
            let options = PlanOptions {
                optimizer,
                clip: Clip::Norm(1.0),
                loss_scale,
                precision,
                ..PlanOptions::default()
            };
            // As many as are stored in 16 bits.
            let n = 80_000;
            let plan = step_of(n).plan(&options, device.limits()).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            // A mean: a gradient of about 80,000 with the scale 16, half of that with 8.
            let mut far = noise(101, n, -1.0, 1.0);
            far[17] = 4e8;
            let before = bits(&state(&mut session, &plan));
            train(&mut session, &far);
            let same = before == bits(&state(&mut session, &plan));
            assert_eq!(same, skipped == 1, "{precision:?}");
            assert_eq!(session.loss_scale().unwrap(), Some((16.0 / 2f32.powi(skipped), skipped as u64)));
            train(&mut session, &far);
            assert_ne!(before, bits(&state(&mut session, &plan)), "the scale fits now");
        }
    });
}

#[test]
fn scale_must_be_a_power_of_two() {
    let limits = wgrad::limits::Limits::named("discrete").expect("a preset");
    for loss_scale in [LossScale { start: 1000.0, interval: 10 }, LossScale { start: 2.0, interval: 0 }] {
        let options = PlanOptions { loss_scale: Some(loss_scale), ..PlanOptions::default() };
        let message = step().plan(&options, &limits).expect_err("out of range").to_string();
        assert!(message.contains("power of two"), "{message}");
    }
}

/// The scale and 8-bit codes are saved as well.
#[cfg(feature = "safetensors")]
#[test]
fn training_resumes_from_a_checkpoint() {
    on_each(devices(), |device| {
        let path = std::env::temp_dir().join(format!("wgrad-scale-{}.safetensors", std::process::id()));
        let optimizer = Optimizer::named("adam8bit").expect("known");
        let plan = plan(device, optimizer, Clip::Off, Some(LossScale::default()));
        let data = |at: u64| if at == 1 { huge() } else { x(at) };
        let mut through = Session::new(device, &plan).expect("it opens");
        (0..4).for_each(|at| train(&mut through, &data(at)));
        let mut first = Session::new(device, &plan).expect("it opens");
        (0..2).for_each(|at| train(&mut first, &data(at)));
        first.save_with(&path, &SaveOptions::training_state()).expect("it is written");
        let mut second = Session::new(device, &plan).expect("it opens");
        second.load(&path).expect("it fits");
        assert_eq!(second.loss_scale().unwrap(), Some((32_768.0, 1)));
        (2..4).for_each(|at| train(&mut second, &data(at)));
        assert_eq!(bits(&state(&mut through, &plan)), bits(&state(&mut second, &plan)));
        assert_eq!(through.loss_scale().unwrap(), second.loss_scale().unwrap());
        std::fs::remove_file(&path).expect("it is there");
    });
}
