//! Optimizer state in the host's memory: the same bits with less device memory, through every operation of a
//! session.

use std::collections::BTreeMap;

use crate::support::close::assert_same_bits;
use crate::support::{devices, noise, on_each, own_devices, some_labels};
use wgrad::compile::{self, Forward, Offload, Plan, PlanOptions, Recompute, TrainStep};
use wgrad::dtype::{Rounding, WeightStorage};
use wgrad::exec::{Debug, Eager, ProgramId, SaveOptions, Session};
use wgrad::graph::{Init, LossScale, Params, Phase};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::models::{Mlp, Model, ModelOptions};
use wgrad::nn::Module;
use wgrad::optim::{Clip, Optimizer};
use wgrad::{Bytes, Error};

const BATCH: usize = 4;
const INPUTS: usize = 70;
const CLASSES: usize = 5;

/// States of several sizes: some stay on the device, some are transferred in one piece, the largest in
/// several.
const SIZES: [usize; 5] = [INPUTS, 300, 301, 64, CLASSES];

fn mlp(sizes: &[usize]) -> (Params, Mlp) {
    let params = Params::new(3);
    let mlp = Mlp::new(&params, sizes);
    (params, mlp)
}

fn step(batch: usize) -> TrainStep {
    step_of(&SIZES, batch)
}

fn step_of(sizes: &[usize], batch: usize) -> TrainStep {
    let (params, mlp) = mlp(sizes);
    let step = TrainStep::trace(&params, |trace| {
        let logits = mlp.forward(&trace.input("x", [batch, INPUTS]).dropout(0.1));
        logits.cross_entropy(&trace.labels("y", [batch], CLASSES as u32))
    });
    step.expect("valid")
}

fn options(optimizer: &str, offload: Offload) -> PlanOptions {
    let optimizer = Optimizer::named(optimizer).expect("known");
    PlanOptions { optimizer, offload, clip: Clip::Norm(1.0), ..PlanOptions::default() }
}

fn feed(session: &mut Session, id: ProgramId, i: u64, batch: usize) {
    session.feed_to(id, "x", &noise(i, batch * INPUTS, -1.0, 1.0)).expect("valid");
    session.feed_to(id, "y", &some_labels(i, batch, CLASSES as u32)).expect("valid");
}

fn train(session: &mut Session, steps: std::ops::Range<u64>) -> Vec<f32> {
    let mut one = |i: u64| {
        feed(session, ProgramId(0), i, BATCH);
        session.step().expect("it runs");
        session.loss().expect("finite")
    };
    steps.map(&mut one).collect()
}

fn names(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> =
        plan.program.storages.iter().filter(|s| s.is_state()).map(|s| s.name.clone()).collect();
    names.sort();
    names
}

fn state(session: &mut Session) -> Vec<(String, Vec<f32>)> {
    let plan = session.plan(ProgramId(0)).expect("a plan").clone();
    names(&plan).into_iter().map(|name| (name.clone(), session.parameter(&name).expect("there"))).collect()
}

fn assert_same(what: &str, wanted: &[(String, Vec<f32>)], found: &[(String, Vec<f32>)]) {
    assert_eq!(wanted.len(), found.len(), "{what}");
    for ((a, wanted), (b, found)) in wanted.iter().zip(found) {
        assert_eq!(a, b);
        assert_same_bits(&format!("{what}: {a}"), wanted, found);
    }
}

#[test]
fn offload_is_bit_identical_with_every_optimizer() {
    on_each(devices(), |device| {
        let names_of_all = [
            "momentum",
            "adamw",
            "amsgrad",
            "rmsprop",
            "lion",
            "adam8bit",
            "adam4bit",
            "adam-mini",
            "adafactor",
            "muon",
            "apollo",
            "apollo-mini",
            "sgd",
        ];
        for optimizer in names_of_all {
            let plans = [Offload::OFF, Offload::OPTIMIZER].map(|offload| {
                step(BATCH).plan(&options(optimizer, offload), device.limits()).expect("planned")
            });
            let [off, away] = &plans;
            assert_eq!(names(off), names(away));
            // AdamW's state of vectors is too small to move.
            let moves = !matches!(optimizer, "adafactor" | "muon" | "apollo-mini" | "sgd");
            assert_eq!(away.program.offloaded().count() > 0, moves, "{optimizer}");
            let sessions = plans.each_ref().map(|plan| {
                let mut session =
                    Session::with_plans(device, &[plan], Debug { poison: true }).expect("it opens");
                assert_eq!(session.device_bytes(), plan.footprint().total(), "{optimizer}");
                assert_eq!(session.memory_stats().memory.allocated.current, {
                    let s = session.memory_stats();
                    s.by_class.iter().map(|(_, stat)| stat.current).sum::<u64>()
                });
                let losses = train(&mut session, 0..5);
                assert_eq!(session.device_bytes(), plan.footprint().total(), "nothing grows");
                (losses, state(&mut session))
            });
            let [(losses, wanted), (away_losses, found)] = &sessions;
            assert_eq!(losses, away_losses, "{optimizer}");
            assert!(losses[0] != losses[4]);
            assert_same(optimizer, wanted, found);

            // The same operations one by one, with all tensors in a pool.
            let mut eager = Eager::new(device, away, PoolOptions::default()).expect("it opens");
            for i in 0..5 {
                eager.feed("x", &noise(i, BATCH * INPUTS, -1.0, 1.0)).expect("valid");
                eager.feed("y", &some_labels(i, BATCH, CLASSES as u32)).expect("valid");
                eager.step().expect("it runs");
            }
            for (name, wanted) in wanted {
                assert_same_bits(name, wanted, &eager.parameter(name).expect("there"));
            }
        }
    });
}

#[test]
fn offload_is_bit_identical_with_other_options() {
    on_each(devices(), |device| {
        let more = [
            PlanOptions { recompute: Recompute::Every(1), ..options("adamw", Offload::OFF) },
            PlanOptions { accumulate: 2, ..options("adamw", Offload::OFF) },
            PlanOptions { loss_scale: Some(LossScale::default()), ..options("momentum", Offload::OFF) },
            PlanOptions { reuse: false, ..options("adamw", Offload::OFF) },
            PlanOptions { guard: true, ..options("adamw", Offload::OFF) },
        ];
        for options in more {
            let batch = BATCH / options.accumulate as usize;
            let run = |offload| {
                let options = PlanOptions { offload, ..options };
                let plan = step(batch).plan(&options, device.limits()).expect("planned");
                let debug = Debug { poison: options.guard };
                let mut session = Session::with_plans(device, &[&plan], debug).expect("it opens");
                let losses = train(&mut session, 0..3);
                if options.guard {
                    session.check_guards(ProgramId(0)).expect("nothing is written between tensors");
                }
                (losses, state(&mut session))
            };
            let ((losses, wanted), (found_losses, found)) = (run(Offload::OFF), run(Offload::OPTIMIZER));
            assert_eq!(losses, found_losses);
            assert_same(&format!("{options:?}"), &wanted, &found);
        }
    });
}

/// `Recompute::Auto` moves no more state than the budget needs, and another plan of the session the same.
#[test]
fn state_of_some_parameters_is_offloaded_within_a_budget() {
    on_each(devices(), |device| {
        for optimizer in ["adamw", "momentum"] {
            let step = |batch| step_of(&[INPUTS, 400, 402, 398, 400, 399, CLASSES], batch);
            let plan = |options: PlanOptions| step(BATCH).plan(&options, device.limits()).expect("planned");
            let [off, away] =
                [Offload::OFF, Offload::OPTIMIZER].map(|offload| plan(options(optimizer, offload)));
            let [most, least] = [&off, &away].map(|plan| plan.footprint().total());
            let budget = Some(Bytes((most + least) / 2));
            let within =
                PlanOptions { recompute: Recompute::Auto, budget, ..options(optimizer, Offload::OPTIMIZER) };
            let some = plan(within);
            let share = some.state_away.expect("offloaded");
            assert!(share > 0.0 && share < 1.0, "{optimizer}: {share} of the state is in host memory");
            let moved = some.work.moved;
            assert!(moved > 0 && moved < away.work.moved, "{optimizer}: {moved} of {}", away.work.moved);
            let beside = |options: PlanOptions| {
                let tail = step(BATCH - 1).plan_beside(&some, &options, device.limits()).expect("planned");
                assert_eq!(tail.state_away, Some(share), "{optimizer}");
                tail
            };
            let kept = step(BATCH - 1).plan(&options(optimizer, Offload::OFF), device.limits());
            let run = |plans: [&Plan; 2]| {
                let mut session =
                    Session::with_plans(device, &plans, Debug { poison: true }).expect("it opens");
                let losses = train(&mut session, 0..3);
                feed(&mut session, ProgramId(1), 3, BATCH - 1);
                session.run(ProgramId(1)).expect("it runs");
                (losses, state(&mut session))
            };
            let (losses, wanted) = run([&off, &kept.expect("planned")]);
            for tail in [within, options(optimizer, Offload::OPTIMIZER)].map(beside) {
                let (found_losses, found) = run([&some, &tail]);
                assert_eq!(losses, found_losses);
                assert_same(optimizer, &wanted, &found);
            }
            let mixed = Session::with_plans(device, &[&some, &away], Debug::default());
            let error = mixed.err().expect("they differ").to_string();
            assert!(error.contains("`TrainStep::plan_beside`"), "{error}");
        }
    });
}

#[test]
fn offloaded_state_is_read_written_saved_and_loaded() {
    on_each(devices(), |device| {
        let plan = |offload| step(BATCH).plan(&options("adamw", offload), device.limits()).expect("planned");
        let (off, away) = (plan(Offload::OFF), plan(Offload::OPTIMIZER));
        let open = |plan: &Plan| Session::new(device, plan).expect("it opens");
        let path = |what: &str| {
            std::env::temp_dir().join(format!("wgrad-offload-{what}-{}.safetensors", std::process::id()))
        };
        let (mut near, mut far) = (open(&off), open(&away));
        train(&mut near, 0..2);
        train(&mut far, 0..2);
        near.save_with(path("near"), &SaveOptions::training_state()).expect("saved");
        far.save_with(path("far"), &SaveOptions::training_state()).expect("saved");
        let [a, b] = ["near", "far"].map(|what| std::fs::read(path(what)).expect("there"));
        assert!(a == b, "the files differ");
        let losses = train(&mut near, 2..4);
        // Each plan loads the file that the other saved.
        for (plan, file) in [(&away, "near"), (&off, "far"), (&away, "far")] {
            let mut session = open(plan);
            train(&mut session, 7..8);
            session.load(path(file)).expect("it fits");
            assert_eq!(session.steps(), 2);
            assert_eq!(train(&mut session, 2..4), losses);
            assert_same(file, &state(&mut near), &state(&mut session));
        }
        for what in ["near", "far"] {
            std::fs::remove_file(path(what)).expect("there");
        }
        let name = away.program.offloaded().next().expect("some").name.clone();
        let words = vec![0.25; far.parameter(&name).expect("there").len()];
        far.set_parameter(&name, &words).expect("it fits");
        assert_eq!(far.parameter(&name).expect("there"), words);
        assert!(matches!(far.set_parameter(&name, &words[1..]), Err(Error::Input { .. })));
        assert!(matches!(far.parameter("nothing"), Err(Error::Unknown { .. })));
    });
}

#[test]
fn programs_of_a_session_share_offloaded_state() {
    on_each(devices(), |device| {
        let plan = |batch, offload| -> Plan {
            step(batch).plan(&options("adamw", offload), device.limits()).expect("planned")
        };
        let (params, mlp) = mlp(&SIZES);
        let forward = Forward::trace(&params, "logits", |trace| mlp.forward(&trace.input("x", [2, INPUTS])));
        let forward = forward.expect("valid").plan(device.limits()).expect("planned");
        let run = |offload| {
            let (whole, tail) = (plan(BATCH, offload), plan(BATCH - 1, offload));
            let plans = [&whole, &forward, &tail];
            let mut session = Session::with_plans(device, &plans, Debug::default()).expect("it opens");
            assert_eq!(session.device_bytes(), session.footprint().total());
            for i in 0..4 {
                let (id, batch) = if i % 2 == 0 { (ProgramId(0), BATCH) } else { (ProgramId(2), BATCH - 1) };
                feed(&mut session, id, i, batch);
                session.run(id).expect("it runs");
                session.feed_to(ProgramId(1), "x", &noise(i, 2 * INPUTS, -1.0, 1.0)).expect("valid");
                session.run(ProgramId(1)).expect("it runs");
            }
            (session.output::<f32>(ProgramId(1), "logits").expect("there"), state(&mut session))
        };
        let ((wanted_logits, wanted), (logits, found)) = (run(Offload::OFF), run(Offload::OPTIMIZER));
        assert_same_bits("logits", &wanted_logits, &logits);
        assert_same("several programs", &wanted, &found);
        let mixed = [&plan(BATCH, Offload::OFF), &plan(BATCH - 1, Offload::OPTIMIZER)];
        let error = Session::with_plans(device, &mixed, Debug::default()).err().expect("they differ");
        assert!(error.to_string().contains("the same optimizer state"), "{error}");
    });
}

#[test]
fn replan_moves_state_to_the_host_and_back_whatever_allocation_fails() {
    for device in own_devices() {
        let plan = |offload| step(BATCH).plan(&options("adamw", offload), device.limits()).expect("planned");
        let (off, away) = (plan(Offload::OFF), plan(Offload::OPTIMIZER));
        let mut calm = Session::new(&device, &off).expect("it opens");
        let losses = train(&mut calm, 0..6);
        let wanted = state(&mut calm);
        drop(calm);
        let mut session = Session::new(&device, &off).expect("it opens");
        assert_eq!(train(&mut session, 0..2), losses[..2]);
        for (plan, steps) in [(&away, 2..4), (&off, 4..6)] {
            let before = state(&mut session);
            let mut failed = 0;
            device.set_budget(Some(Bytes(0)));
            while let Err(error) = session.replan(&[plan]) {
                let Error::OutOfMemory { bytes, created, .. } = error else { panic!("{error}") };
                failed += 1;
                assert_eq!((session.device_bytes(), device.used_bytes()), (0, 0), "the host has everything");
                for (name, wanted) in &before {
                    assert_same_bits(name, wanted, &session.parameter(name).expect("still there"));
                }
                device.set_budget(Some(Bytes(created + bytes)));
            }
            assert!(failed > 5, "{failed} allocations");
            device.set_budget(None);
            assert_eq!(session.device_bytes(), plan.footprint().total());
            assert_same("after the move", &before, &state(&mut session));
            assert_eq!(train(&mut session, steps.clone()), losses[steps.start as usize..steps.end as usize]);
        }
        assert_same("there and back", &wanted, &state(&mut session));
    }
}

#[test]
fn failed_submit_in_the_middle_of_a_step_is_reported() {
    for device in own_devices() {
        let plan = step(BATCH).plan(&options("adamw", Offload::OPTIMIZER), device.limits()).expect("planned");
        let mut calm = Session::new(&device, &plan).expect("it opens");
        let losses = train(&mut calm, 0..2);
        let mut session = Session::new(&device, &plan).expect("it opens");
        assert_eq!(train(&mut session, 0..1), losses[..1]);
        feed(&mut session, ProgramId(0), 1, BATCH);
        device.fail_submit(1);
        let error = session.step().expect_err("the first submit");
        assert!(error.is_out_of_memory(), "{error}");
        // Nothing was submitted: the step can be repeated.
        assert_eq!(train(&mut session, 1..2), losses[1..]);
        assert_same("after a failure", &state(&mut calm), &state(&mut session));
        feed(&mut session, ProgramId(0), 2, BATCH);
        device.fail_submit(3);
        let error = session.step().expect_err("in the middle");
        assert!(!error.is_out_of_memory(), "{error}");
        assert!(error.to_string().contains("a step ahead of others"), "{error}");
        // The session is intact; only its contents are inconsistent.
        let path = std::env::temp_dir().join(format!("wgrad-torn-{}.safetensors", std::process::id()));
        calm.save_with(&path, &SaveOptions::training_state()).expect("saved");
        session.load(&path).expect("it fits");
        std::fs::remove_file(&path).expect("there");
        assert_eq!(train(&mut calm, 2..4), train(&mut session, 2..4));
    }
}

/// A table of more elements than are updated at once; with small bindings, it is in pieces.
#[test]
fn state_of_large_parameters_is_updated_in_shares() {
    const ROWS: u32 = 70_000;
    on_each(devices(), |device| {
        let whole = device.limits().clone();
        let small = Limits { max_binding: 5 << 20, ..whole.clone() };
        let drawn = WeightStorage::Bf16(Rounding::Stochastic);
        for (optimizer, weights, limits, shares) in [
            ("momentum", drawn, &whole, 2),
            ("adam8bit", WeightStorage::Bf24, &whole, 2),
            ("adamw", WeightStorage::F32, &small, 4),
        ] {
            let params = Params::new(1);
            let table = params.add("table", [ROWS as usize, 64], Init::Uniform(0.5));
            let step = TrainStep::trace(&params, |trace| {
                let rows = trace.param(&table).embedding(&trace.ids("ids", [6], ROWS));
                rows.tanh().square().mean(&[])
            });
            let step = step.expect("valid");
            let plans = [Offload::OFF, Offload::OPTIMIZER].map(|offload| {
                let options = PlanOptions { weights, ..options(optimizer, offload) };
                step.plan(&options, limits).expect("planned")
            });
            let [off, away] = &plans;
            let updates =
                |plan: &Plan| plan.graph().nodes.iter().filter(|n| n.phase == Phase::Update).count();
            assert!(updates(away) >= shares, "{optimizer}: {} updates", updates(away));
            let held = away.program.offloaded().map(|storage| storage.bytes).max();
            assert!(held > Some(0) && held <= Some(16 << 20), "{optimizer}: {held:?}");
            let bytes = away.program.host_bytes();
            let kept = off.program.storages.iter().filter(|of| of.persistent && bytes.contains_key(&of.name));
            let kept: BTreeMap<_, _> = kept.map(|of| (of.name.clone(), of.used_bytes)).collect();
            assert_eq!(bytes, kept, "{optimizer}");
            let ids = |i: u64| some_labels(i, 6, ROWS);
            let [wanted, found] = plans.each_ref().map(|plan| {
                let mut session =
                    Session::with_plans(device, &[plan], Debug { poison: true }).expect("it opens");
                for i in 0..2 {
                    session.feed("ids", &ids(i)).expect("valid");
                    session.step().expect("it runs");
                }
                state(&mut session)
            });
            // Millions of numbers are compared at once.
            let bits = bytemuck::cast_slice::<f32, u8>;
            let same = |a: &[f32], b: &[f32]| bits(a) == bits(b);
            for ((name, wanted), (_, found)) in wanted.iter().zip(&found) {
                assert!(same(wanted, found), "{optimizer}: {name}");
            }
            let mut eager = Eager::new(device, away, PoolOptions::default()).expect("it opens");
            for i in 0..2 {
                eager.feed("ids", &ids(i)).expect("valid");
                eager.step().expect("it runs");
            }
            for (name, wanted) in &wanted {
                assert!(same(wanted, &eager.parameter(name).expect("there")), "eager, {optimizer}: {name}");
            }
        }
    });
}

#[test]
fn plan_counts_the_saved_bytes_and_the_transfer_time() {
    let limits = Limits::named("nvidia").expect("known");
    let model = Model::with_options("gpt2", 0, &ModelOptions { seq: Some(128), ..ModelOptions::default() });
    let model = model.expect("known");
    let trace = |batch: usize| model.train_step(batch);
    let options =
        PlanOptions { optimizer: Optimizer::named("adamw").expect("known"), ..PlanOptions::default() };
    let off = trace(2).expect("valid").plan(&options, &limits).expect("planned");
    let away = PlanOptions { offload: Offload::OPTIMIZER, ..options };
    let away = trace(2).expect("valid").plan(&away, &limits).expect("planned");
    let states: u64 = off
        .program
        .storages
        .iter()
        .skip(off.graph().parameters.len())
        .filter(|s| s.persistent)
        .map(|s| s.used_bytes)
        .sum();
    let moved: u64 = away.program.host_bytes().values().sum();
    assert!(moved * 1000 > states * 998, "{moved} of {states}");
    let (a, b) = (off.footprint(), away.footprint());
    assert_eq!(b.host, moved);
    assert!(b.offload > 0 && b.offload <= 32 << 20, "{}", Bytes(b.offload));
    assert!(a.total() - b.total() > moved / 2, "{} and {}", Bytes(a.total()), Bytes(b.total()));
    assert_eq!(away.work.moved, 2 * moved);
    let seconds = 2.0 * moved as f64 / options.card.host_bytes_per_s;
    assert!((away.work.moved_s - seconds).abs() < 1e-12 && off.work.moved_s == 0.0);
    assert!(a.persistent - b.persistent >= moved, "{} and {}", Bytes(a.persistent), Bytes(b.persistent));
    let levers = compile::levers(trace, 2, &options, Bytes(b.total()), &limits).expect("planned");
    let lever = levers.iter().find(|lever| lever.name == "offload optimizer").expect("listed");
    assert!(lever.exact && lever.total_bytes == b.total() && lever.time_fraction > 0.0);
    let fitted = compile::fit(trace, 2, &options, Bytes(b.total()), &limits).expect("it fits");
    assert!(fitted.exact && fitted.changes[0] == "offload optimizer", "{:?}", fitted.changes);
}
