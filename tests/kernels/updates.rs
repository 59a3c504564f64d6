//! Optimizer updates on parameters of odd sizes, over several steps.

use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::{Rounding, WeightStorage};
use wgrad::exec::Session;
use wgrad::graph::{Init, Params};
use wgrad::limits::Limits;
use wgrad::optim::{
    Adafactor, Adagrad, Adam, Adam4bit, Adam8bit, AdamMini, AdamW, Apollo, Clip, Lion, Muon, NAdam,
    Optimizer, RAdam, RmsProp, Schedule, Sgd,
};
use wgrad::reference::Twin;

use super::{SIZES, everywhere};
use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::compare::kernels;
use crate::support::{devices, noise, on_each};

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
        (Adam { amsgrad: true, betas: (0.8, 0.9), weight_decay: 0.1, ..adam }.into(), Clip::Off),
        (NAdam { lr: 0.01, weight_decay: 0.1, ..NAdam::default() }.into(), Clip::Off),
        // A step has its own rate for each element from the sixth on.
        (RAdam { lr: 0.01, weight_decay: 0.3, decoupled: true, ..RAdam::default() }.into(), Clip::Off),
        (RmsProp { lr: 0.01, weight_decay: 0.1, ..RmsProp::default() }.into(), Clip::Off),
        (RmsProp { lr: 0.01, momentum: 0.9, ..RmsProp::default() }.into(), Clip::Norm(0.5)),
        (Adagrad { lr: 0.1, lr_decay: 0.5, weight_decay: 0.1, ..Adagrad::default() }.into(), Clip::Off),
        (Lion { lr: 0.01, weight_decay: 0.3, ..Lion::default() }.into(), Clip::Off),
        (Adafactor::default().into(), Clip::Off),
        (
            Adafactor { lr: 0.3, clip: 0.5, weight_decay: 0.2, ..Adafactor::default() }.into(),
            Clip::Value(0.3),
        ),
        (AdamMini { lr: 0.01, weight_decay: 0.3, ..AdamMini::default() }.into(), Clip::Norm(0.5)),
        // Vectors are updated by AdamW.
        (Muon { lr: 0.02, weight_decay: 0.3, ..Muon::default() }.into(), Clip::Off),
        // These tensors are too small for state in codes, so these are AdamW.
        (Adam8bit { lr: 0.01, ..Adam8bit::default() }.into(), Clip::Off),
        (Adam4bit { lr: 0.01, ..Adam4bit::default() }.into(), Clip::Off),
    ]
}

/// Returns a step over vectors. Gradients differ from element to element and from step to step, and none is
/// near 0, where Adam's update would be noise.
fn of_vectors(sizes: impl Iterator<Item = usize>) -> TrainStep {
    let params = Params::new(9);
    let all: Vec<_> = sizes
        .map(|n| params.add(&format!("w{n}"), [n], Init::Data(noise(n as u64, n, -2.0, 2.0).into())))
        .collect();
    let step = TrainStep::trace(&params, |trace| {
        let losses = all.iter().map(|param| {
            let w = trace.param(param);
            w.square().scale(0.25).add(&w.scale(1.25)).sum(&[])
        });
        losses.reduce(|sum, one| sum.add(&one)).expect("some parameters")
    });
    step.expect("valid")
}

#[test]
fn updates_match_the_twin_at_every_step() {
    let step = of_vectors(SIZES.iter().copied());
    let schedule = Schedule::Linear { warmup: 2, total: 10 };
    everywhere(|device, limits| {
        for (optimizer, clip) in optimizers() {
            let options = PlanOptions { optimizer, clip, ..PlanOptions::default() };
            let plan = step.plan(&options, limits).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            session.set_schedule(schedule.clone());
            let mut twin = Twin::new(plan.graph());
            let steps = if matches!(optimizer, Optimizer::RAdam(_)) { 7 } else { 4 };
            for step in 0..steps {
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

/// Prefixes of the names of kernels that update a parameter.
const UPDATES: [&str; 6] = ["sgd", "momentum", "adam", "rmsprop", "lion", "adafactor"];

/// The kernels differ only in the width of their memory accesses.
#[test]
fn u64_update_kernels_are_bit_identical_to_u32() {
    on_each(devices(), |device| {
        let own = device.limits();
        // SwiftShader has no 64-bit words.
        assert_eq!(own.kernels.long_words, own.name.contains("llvmpipe"), "{}", own.name);
        if !own.kernels.long_words {
            return;
        }
        let short = own.choosing(|kernels| kernels.long_words = false);
        // The last vector is large enough for moments in codes.
        let step = of_vectors([1, 7, 64, Adam8bit::SMALLEST as usize + 3].into_iter());
        let formats = [
            WeightStorage::F32,
            WeightStorage::F16(Rounding::Nearest),
            WeightStorage::Bf16(Rounding::Stochastic),
        ];
        for ((optimizer, clip), weights) in optimizers().into_iter().flat_map(|o| formats.map(|f| (o, f))) {
            let options = PlanOptions { optimizer, clip, weights, ..PlanOptions::default() };
            let [found, wanted] = [own, &short].map(|limits| {
                let plan = step.plan(&options, limits).expect("it can be planned");
                let all = kernels(&plan);
                let updates =
                    || all.iter().filter(|name| UPDATES.iter().any(|update| name.starts_with(update)));
                assert!(updates().count() > 0, "{all:?}");
                assert!(updates().all(|name| name.ends_with("_u64") == limits.kernels.long_words), "{all:?}");
                let mut session = Session::new(device, &plan).expect("it opens");
                (0..3).for_each(|_| session.step().expect("it runs"));
                let lasting = plan.program.storages.iter().filter(|storage| storage.persistent);
                let mut read = |name: &str| session.parameter(name).expect("there");
                lasting.map(|storage| (storage.name.clone(), read(&storage.name))).collect::<Vec<_>>()
            });
            assert_eq!(wanted.len(), found.len());
            for ((tensor, wanted), (_, found)) in wanted.iter().zip(&found) {
                assert_same_bits(&format!("{optimizer:?} {weights:?}: {tensor}"), wanted, found);
            }
        }
    });
}

/// Matrices, batches of matrices and convolution weights. For Adafactor, rows and columns are the last two dimensions.
#[test]
fn optimizers_of_matrices_match_the_twin_for_matrices_and_batches() {
    let params = Params::new(3);
    let shapes: [&[usize]; 5] = [&[5, 7], &[1, 9], &[9, 1], &[3, 2, 3, 3], &[]];
    let all: Vec<_> = shapes
        .iter()
        .map(|dims| {
            let shape = wgrad::shape::Shape::try_new(dims).expect("at most six dimensions");
            let data = noise(dims.len() as u64, shape.numel() as usize, -2.0, 2.0);
            params.add(&format!("w{dims:?}"), shape, Init::Data(data.into()))
        })
        .collect();
    let step = TrainStep::trace(&params, |trace| {
        let losses = all.iter().map(|param| {
            let w = trace.param(param);
            w.square().scale(0.25).add(&w.scale(1.25)).sum(&[]).reshape([])
        });
        losses.reduce(|sum, one| sum.add(&one)).expect("some parameters")
    });
    let step = step.expect("valid");
    let adafactor = Adafactor { weight_decay: 0.1, ..Adafactor::default() };
    let mini = AdamMini { lr: 0.01, weight_decay: 0.1, ..AdamMini::default() };
    let muon = Muon { weight_decay: 0.1, ..Muon::default() };
    // A new projection after two steps.
    let apollo = Apollo { lr: 0.01, weight_decay: 0.1, rank: 3, refresh: 2, ..Apollo::default() };
    let whole = Apollo { whole: true, scale: 3.0, rank: 1, ..apollo };
    let optimizers: [Optimizer; 5] =
        [adafactor.into(), mini.into(), muon.into(), apollo.into(), whole.into()];
    let all = |device: &Device, limits: &Limits, optimizer: Optimizer| {
        let options = PlanOptions { optimizer, ..PlanOptions::default() };
        let plan = step.plan(&options, limits).expect("it can be planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        let mut twin = Twin::new(plan.graph());
        for step in 0..4 {
            twin.set_step(&optimizer.scalars(step, optimizer.learning_rate(), plan.seed));
            twin.run().expect("the twin runs");
            session.step().expect("it runs");
            for storage in plan.program.storages.iter().filter(|s| s.persistent) {
                let found = session.parameter(&storage.name).expect("there");
                let what = format!("{} after step {step}", storage.name);
                // A small singular value and its rounding error grow by up to 3.4445⁵ in a step of Muon.
                let abs = if matches!(optimizer, Optimizer::Muon(_)) { 2e-6 } else { 1e-7 };
                assert_close(
                    &what,
                    &found,
                    twin.parameter(&storage.name).expect("there"),
                    Near { rel: 1e-5, abs },
                );
            }
        }
    };
    everywhere(|device, limits| optimizers.iter().for_each(|optimizer| all(device, limits, *optimizer)));
}

/// Codes are rounded to the nearest: where the twin and a device differ, the number lay halfway between two
/// codes, which is rare. The device continues from the twin's state, so that such a difference does not grow.
#[test]
fn moments_in_codes_match_the_twin() {
    let params = Params::new(4);
    let sizes = [4096, 4097, 5003, 4096 + 254];
    // Each gradient is a separate constant times a factor that changes from step to step. The constants span
    // seven decades.
    let all: Vec<_> = sizes
        .iter()
        .map(|&n| {
            let spread = |seed: u64, low: f32, high: f32| noise(seed + n as u64, n, low, high);
            let slopes: Vec<f32> = spread(1, -7.0, 0.5)
                .iter()
                .zip(spread(2, -1.0, 1.0))
                .map(|(e, s)| 10f32.powf(*e) * s)
                .collect();
            let w = params.add(&format!("w{n}"), [n], Init::Data(spread(3, -1.0, 1.0).into()));
            let slope = params.add_buffer(&format!("slope{n}"), [n], Init::Data(slopes.into()));
            (w, slope)
        })
        .collect();
    let step = TrainStep::trace(&params, |trace| {
        let factor = trace.input("factor", []);
        let losses =
            all.iter().map(|(w, slope)| trace.param(w).mul(&trace.param(slope)).mul(&factor).sum(&[]));
        losses.reduce(|sum, one| sum.add(&one)).expect("some parameters")
    });
    let step = step.expect("valid");
    let eight = Adam8bit { lr: 0.01, weight_decay: 0.1, ..Adam8bit::default() };
    let four = Adam4bit { lr: 0.01, weight_decay: 0.1, ..Adam4bit::default() };
    let all = |device: &Device, limits: &Limits, (optimizer, bits): (Optimizer, u32)| {
        let options = PlanOptions { optimizer, ..PlanOptions::default() };
        let plan = step.plan(&options, limits).expect("it can be planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        let mut twin = Twin::new(plan.graph());
        for (step, factor) in [1.0f32, -0.5, 0.0, 3.0, 1.5].into_iter().enumerate() {
            twin.set_step(&optimizer.scalars(step as u64, optimizer.learning_rate(), plan.seed));
            twin.set_f32("factor", &[factor]).expect("an input");
            session.feed("factor", &[factor]).expect("an input");
            twin.run().expect("the twin runs");
            session.step().expect("it runs");
            for storage in plan.program.storages.iter().filter(|s| s.persistent) {
                let found = session.parameter(&storage.name).expect("there");
                let wanted = twin.parameter(&storage.name).expect("there");
                let what = format!("{} after step {step} ({})", storage.name, limits.name);
                if !storage.name.ends_with(&format!("{bits}bit")) {
                    // Where the second moment is the code next to 0, a step is a hundred learning rates long:
                    // the bound is 2e-6 of that.
                    assert_close(&what, &found, wanted, Near { rel: 1e-5, abs: 2e-6 });
                    continue;
                }
                let code = |word: u32, i: u32| i64::from(word >> (bits * i) & ((1 << bits) - 1));
                let mut others = 0;
                for (found, wanted) in found.iter().zip(wanted) {
                    for i in 0..32 / bits {
                        let apart = (code(found.to_bits(), i) - code(*wanted as u32, i)).abs();
                        assert!(apart <= 1, "{what}: codes {apart} apart");
                        others += apart;
                    }
                }
                assert!(others <= found.len() as i64 / 50, "{what}: {others} codes differ");
                let words: Vec<f32> = wanted.iter().map(|word| f32::from_bits(*word as u32)).collect();
                session.set_parameter(&storage.name, &words).expect("the right length");
            }
        }
    };
    let both: [(Optimizer, u32); 2] = [(eight.into(), 8), (four.into(), 4)];
    everywhere(|device, limits| both.into_iter().for_each(|one| all(device, limits, one)));
}

#[test]
fn state_in_codes_takes_two_or_one_byte_per_parameter() {
    let model = wgrad::models::Model::named("mlp", 0).expect("a model");
    let limits = wgrad::limits::Limits::named("discrete").expect("a preset");
    let step = model.train_step(8).expect("valid");
    let state = |name: &str| {
        let optimizer = Optimizer::named(name).expect("known");
        let plan = step.plan(&PlanOptions { optimizer, ..PlanOptions::default() }, &limits).expect("planned");
        let storages = plan.program.storages.iter().filter(|s| s.persistent);
        let skip = plan.graph().parameters.len();
        storages.skip(skip).map(|s| s.bytes).sum::<u64>() as f64 / model.params().count() as f64
    };
    let names =
        ["sgd", "lion", "adamw", "adam8bit", "adafactor", "adam-mini", "adam4bit", "apollo", "apollo-mini"];
    let bytes = names.map(state);
    println!("bytes of state for each parameter: {bytes:?}");
    assert!(
        bytes[0] == 0.0 && (4.0..4.01).contains(&bytes[1]) && (8.0..8.01).contains(&bytes[2]),
        "{bytes:?}"
    );
    // One number for each of 512 + 512 + 10 rows and 3 biases, of 669,706 parameters.
    assert!((4.0..4.03).contains(&bytes[5]), "{bytes:?}");
    assert!(bytes[3] <= 2.06 && bytes[4] <= 0.05 && bytes[6] <= 1.09, "{bytes:?}");
    // Moments of 256 × (784 + 512) elements and those of AdamW of the last layer; of 784 + 2 × 512 elements.
    assert!((4.0..4.06).contains(&bytes[7]) && bytes[8] <= 0.05, "{bytes:?}");
}
