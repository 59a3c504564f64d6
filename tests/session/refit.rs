//! When memory runs out, training continues with the next plan that fits, and with the same bits.

use std::sync::Arc;

use crate::support::close::assert_same_bits;
use crate::support::{noise, own_devices, some_labels};
use wgrad::compile::{Plan, PlanOptions, Planned, Recompute, TrainStep};
use wgrad::data::{Loader, Table};
use wgrad::device::Device;
use wgrad::exec::{Debug, OnOom, ProgramId, Refit, Session};
use wgrad::graph::{LossScale, Params, Tensor, Window};
use wgrad::limits::Limits;
use wgrad::models::Mlp;
use wgrad::nn::{BatchNorm2d, Conv2d, Linear, Module};
use wgrad::train::{Callback, Checkpoint, Epoch, Task, TrainOptions, Trainer};
use wgrad::{Bytes, Error, Result};

const BATCH: usize = 32;
const CLASSES: usize = 4;
const SIDE: usize = 8;

/// Convolutions with normalisation and dropout: running statistics and masks must be the same, too.
struct Net {
    params: Params,
    convs: Vec<(Conv2d, BatchNorm2d)>,
    fc: Linear,
}

impl Net {
    fn new() -> Self {
        let params = Params::new(5);
        let conv = |i: usize| {
            let scope = params.scope(format!("block{i}"));
            let inputs = if i == 0 { 1 } else { 6 };
            let conv = Conv2d::new(&scope.scope("conv"), inputs, 6, Window::square(3).padding(1));
            (conv, BatchNorm2d::new(&scope.scope("norm"), 6))
        };
        let convs = (0..3).map(conv).collect();
        let fc = Linear::new(&params.scope("fc"), 6 * SIDE * SIDE, CLASSES);
        Self { params, convs, fc }
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.reshape([x.shape().dims()[0], 1, SIDE, SIDE]);
        for (conv, norm) in &self.convs {
            x = x.apply(conv).apply(norm).gelu().dropout(0.1);
        }
        x.flatten(1).apply(&self.fc)
    }
}

fn data() -> Table {
    let count = 5 * BATCH / 2 + 3;
    let samples = noise(1, count * SIDE * SIDE, -1.0, 1.0);
    Table::new(SIDE * SIDE, CLASSES, samples, some_labels(2, count, CLASSES as u32)).expect("a table")
}

fn options(on_oom: OnOom) -> TrainOptions {
    let plan = PlanOptions { loss_scale: Some(LossScale::default()), ..PlanOptions::default() };
    TrainOptions { plan, on_oom, ..TrainOptions::default() }
}

fn trainer(device: &Device, on_oom: OnOom) -> Result<Trainer> {
    let loader = Loader::new(Arc::new(data()), BATCH).expect("a loader").shuffled(3);
    let net = Net::new();
    let task = Task::classifier(&net.params, SIDE * SIDE, CLASSES, |x| net.forward(x));
    Trainer::new(device, task, loader, &options(on_oom))
}

/// Returns all persistent tensors.
fn state(session: &mut Session) -> Vec<(String, Vec<f32>)> {
    let plan = session.plan(ProgramId(0)).expect("a plan").clone();
    let names = plan.program.storages.iter().filter(|s| s.persistent).map(|s| s.name.clone());
    names.map(|name| (name.clone(), session.parameter(&name).expect("there"))).collect()
}

fn assert_same(what: &str, wanted: &[(String, Vec<f32>)], found: &[(String, Vec<f32>)]) {
    assert_eq!(wanted.len(), found.len(), "{what}");
    for ((name, wanted), (_, found)) in wanted.iter().zip(found) {
        assert_same_bits(&format!("{what}: {name}"), wanted, found);
    }
}

/// Lowers the device's budget after the first epoch, and records refits.
struct Lower<'a> {
    device: &'a Device,
    share: f64,
    heard: Vec<Refit>,
}

impl Callback for Lower<'_> {
    fn on_epoch(&mut self, epoch: &Epoch, _trainer: &mut Trainer) -> Result<()> {
        if epoch.epoch == 0 {
            let budget = (self.device.used_bytes() as f64 * self.share) as u64;
            self.device.set_budget(Some(Bytes(budget)));
        }
        Ok(())
    }

    fn on_refit(&mut self, refit: &Refit, trainer: &mut Trainer) -> Result<()> {
        assert_eq!(trainer.session().device_bytes(), refit.after);
        self.heard.push(refit.clone());
        Ok(())
    }
}

#[test]
fn budget_lowered_between_epochs_changes_no_bit() {
    for device in own_devices() {
        let test = data();
        let (wanted, accuracy, whole) = {
            let mut calm = trainer(&device, OnOom::Fail).expect("it opens");
            let accuracy = calm.fit(3, Some(&test), &mut []).expect("it trains").metric;
            (state(calm.session()), accuracy, calm.session().device_bytes())
        };
        let mut exact = 0;
        for share in [0.95, 0.9, 0.85] {
            let mut trainer = trainer(&device, OnOom::Refit).expect("it opens");
            assert_eq!((trainer.refits().len(), trainer.session().device_bytes()), (0, whole));
            let mut lower = Lower { device: &device, share, heard: Vec::new() };
            let end = trainer.fit(3, Some(&test), &mut [&mut lower]).expect("it goes on");
            let [refit] = &lower.heard[..] else { panic!("{share}: {:?}", lower.heard) };
            assert_eq!(trainer.refits(), &lower.heard);
            assert!(refit.after <= refit.within && refit.within < refit.before, "{refit}");
            assert_eq!((refit.before, refit.step), (whole, 3), "{refit}");
            assert_eq!(trainer.session().device_bytes(), device.used_bytes());
            assert_eq!(trainer.session().steps(), 9);
            assert!(refit.to_string().contains("recompute auto") || !refit.exact, "{refit}");
            if refit.exact {
                exact += 1;
                assert_eq!(end.metric, accuracy);
                assert_same(&refit.to_string(), &wanted, &state(trainer.session()));
            }
            device.set_budget(None);
        }
        assert!(exact >= 1, "no refit by recomputation alone");
        assert_eq!(device.used_bytes(), 0);
    }
}

#[test]
fn each_failed_submit_is_repeated_after_a_refit() {
    for device in own_devices() {
        let test = data();
        let wanted = {
            let mut calm = trainer(&device, OnOom::Fail).expect("it opens");
            calm.fit(1, Some(&test), &mut []).expect("it trains");
            state(calm.session())
        };
        // Three steps; then an evaluation of three runs, each followed by a copy.
        for n in [1, 2, 3, 4, 5, 9] {
            let mut trainer = trainer(&device, OnOom::Refit).expect("it opens");
            device.fail_submit(n);
            trainer.fit(1, Some(&test), &mut []).expect("it goes on");
            device.fail_submit(0);
            let [refit] = trainer.refits() else { panic!("{n}: {:?}", trainer.refits()) };
            assert!(
                refit.exact && refit.cause.starts_with("out of device memory running commands"),
                "{refit}"
            );
            assert_same(&format!("submit {n}"), &wanted, &state(trainer.session()));
        }
        let mut fails = trainer(&device, OnOom::Fail).expect("it opens");
        device.fail_submit(2);
        let error = fails.fit(1, None, &mut []).expect_err("refits were not asked for");
        assert!(matches!(error, Error::SubmitOutOfMemory { .. }), "{error}");
        assert_eq!(fails.session().steps(), 1, "the step that failed was not made");
    }
}

#[test]
fn trainer_refits_whichever_allocation_fails_at_the_start() {
    for device in own_devices() {
        let (whole, buffers) = {
            let mut trainer = trainer(&device, OnOom::Fail).expect("it opens");
            (trainer.session().device_bytes(), trainer.session().buffers())
        };
        let (mut budget, mut opened, mut refused) = (0, 0, 0);
        for i in 0..buffers {
            device.set_budget(Some(Bytes(budget)));
            match trainer(&device, OnOom::Fail) {
                Err(Error::OutOfMemory { bytes, created, .. }) => {
                    budget = created + bytes;
                    // Finding that nothing fits takes longest, and the result is the same for the first
                    // allocations, so most are skipped.
                    if i % 8 != 0 && (created < whole * 9 / 10 || i % 3 != 0) {
                        continue;
                    }
                    let budget = budget - bytes.min(256);
                    device.set_budget(Some(Bytes(budget)));
                    match trainer(&device, OnOom::Refit) {
                        Ok(mut trainer) => {
                            let refit = trainer.refits()[0].clone();
                            assert!(refit.after <= budget && refit.before == whole, "{refit} of {budget}");
                            assert_eq!(refit.within, budget);
                            trainer.fit(1, None, &mut []).expect("it trains");
                            opened += 1;
                        }
                        Err(Error::OverBudget { .. }) => refused += 1,
                        Err(other) => panic!("{other}"),
                    }
                    assert_eq!(device.used_bytes(), 0, "everything is given back");
                }
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("{budget} bytes of {whole} are enough"),
            }
        }
        assert_eq!(budget, whole);
        assert!(opened > 0 && refused > 0, "{opened} sessions, {refused} errors");
        device.set_budget(None);
    }
}

#[test]
fn refit_offloads_state_where_recomputation_saves_nothing() {
    for device in own_devices() {
        let open = |on_oom| {
            // Products with more optimizer state than activations.
            let params = Params::new(8);
            let layers = Mlp::new(&params, &[SIDE * SIDE, 200, 201, 200, 201, 200, CLASSES]);
            let loader = Loader::new(Arc::new(data()), BATCH).expect("a loader");
            let task = Task::classifier(&params, SIDE * SIDE, CLASSES, |x| layers.forward(x));
            Trainer::new(&device, task, loader, &options(on_oom)).expect("it opens")
        };
        // Compared by name: offloaded state is in another order.
        let sorted = |trainer: &mut Trainer| {
            let names =
                ["fc1.weight", "fc2.bias", "fc2.weight.exp_avg", "fc5.weight.exp_avg_sq", "loss_scale"];
            names.map(|name| (name.to_owned(), trainer.session().parameter(name).expect("there")))
        };
        let mut calm = open(OnOom::Fail);
        calm.fit(3, Some(&data()), &mut []).expect("it trains");
        let wanted = sorted(&mut calm);
        drop(calm);
        let mut trainer = open(OnOom::Refit);
        let mut lower = Lower { device: &device, share: 0.75, heard: Vec::new() };
        trainer.fit(2, Some(&data()), &mut [&mut lower]).expect("it goes on");
        let [refit] = trainer.refits() else { panic!("{:?}", trainer.refits()) };
        assert!(refit.exact && refit.changes[0] == "offload optimizer", "{refit}");
        assert!(trainer.session().footprint().host > 0);
        // And back to the device.
        device.set_budget(None);
        trainer.refit_within(None).expect("there is room");
        assert_eq!(trainer.session().footprint().host, 0);
        let batches = Loader::new(Arc::new(data()), BATCH).expect("a loader");
        for batch in batches.epoch(2, 0) {
            let batch = batch.expect("a batch");
            let id = ProgramId(if batch.samples() == BATCH { 0 } else { 2 });
            trainer.session().feed_batch(id, &batch).expect("valid");
            trainer.session().run(id).expect("it runs");
        }
        assert_same("through the host", &wanted, &sorted(&mut trainer));
    }
}

fn step() -> TrainStep {
    let net = Net::new();
    let step = TrainStep::trace(&net.params, |trace| {
        let logits = net.forward(&trace.input("x", [BATCH, SIDE * SIDE]));
        logits.cross_entropy(&trace.labels("y", [BATCH], CLASSES as u32))
    });
    step.expect("valid")
}

fn train(session: &mut Session, steps: std::ops::Range<u64>) -> Vec<f32> {
    let mut one = |i: u64| {
        session.feed("x", &noise(i, BATCH * SIDE * SIDE, -1.0, 1.0)).expect("valid");
        session.feed("y", &some_labels(i, BATCH, CLASSES as u32)).expect("valid");
        session.step().expect("it runs");
        session.loss().expect("finite")
    };
    steps.map(&mut one).collect()
}

#[test]
fn replan_loses_nothing_whichever_allocation_fails() {
    for device in own_devices() {
        let limits = device.limits();
        let plan = |recompute| -> Plan {
            let options = PlanOptions { recompute, ..PlanOptions::default() };
            step().plan(&options, limits).expect("planned")
        };
        let (off, other) = (plan(Recompute::Off), plan(Recompute::Every(1)));
        let (wanted, losses) = {
            let mut session = Session::new(&device, &off).expect("it opens");
            let losses = train(&mut session, 0..4);
            (state(&mut session), losses)
        };
        let mut session = Session::new(&device, &off).expect("it opens");
        assert_eq!(train(&mut session, 0..2), losses[..2]);
        let before = state(&mut session);
        let kept = off.footprint().persistent + off.footprint().transfer;
        let mut failed = 0;
        device.set_budget(Some(Bytes(kept)));
        while let Err(error) = session.replan(&[&other]) {
            let Error::OutOfMemory { bytes, created, .. } = error else { panic!("{error}") };
            failed += 1;
            assert_eq!((session.device_bytes(), device.used_bytes()), (kept, kept));
            assert_eq!(session.footprint().total(), kept);
            assert_eq!(session.steps(), 2);
            let error = session.step().expect_err("there is no plan").to_string();
            assert!(error.contains("no plan since memory ran out"), "{error}");
            for (name, wanted) in &before {
                assert_same_bits(name, wanted, &session.parameter(name).expect("still there"));
            }
            device.set_budget(Some(Bytes(created + bytes)));
        }
        assert!(failed > 5, "{failed} allocations");
        assert_eq!(session.device_bytes(), other.footprint().total());
        assert_eq!(train(&mut session, 2..3), losses[2..3]);
        device.set_budget(None);
        // And back.
        session.replan(&[&off]).expect("there is room");
        assert_eq!(train(&mut session, 3..4), losses[3..]);
        assert_same("through other plans and back", &wanted, &state(&mut session));
        let momentum = PlanOptions {
            optimizer: wgrad::optim::Optimizer::named("momentum").expect("known"),
            ..PlanOptions::default()
        };
        let momentum = step().plan(&momentum, limits).expect("planned");
        let error = session.replan(&[&momentum]).expect_err("another optimizer").to_string();
        assert!(error.contains("optimizer"), "{error}");
        assert!(session.replan(&[]).is_err());
        assert_eq!(train(&mut session, 4..5).len(), 1, "a refusal changes nothing");
    }
}

#[test]
fn every_budget_down_to_that_of_the_smallest_plan_is_met() {
    for preset in ["nvidia", "webgpu", "lavapipe"] {
        let limits = Limits::named(preset).expect("a preset");
        let (step, options) = (step(), PlanOptions::default());
        let whole = step.plan(&options, &limits).expect("planned").footprint().total();
        let Err(Error::OverBudget { needed, .. }) = step.fit(&options, Bytes(1), &limits) else {
            panic!("a step fits in a byte")
        };
        for part in 0..=32 {
            let budget = needed + (whole - needed) * part / 32;
            let fitted = step.fit(&options, Bytes(budget), &limits).expect("a plan of fewer bytes is known");
            assert!(fitted.plan.footprint().total() <= budget, "{preset}: {budget}");
        }
    }
}

#[test]
fn session_opens_with_the_next_plan_that_fits() {
    for device in own_devices() {
        let limits = device.limits();
        let step = step();
        let options = PlanOptions::default();
        let whole = step.plan(&options, limits).expect("planned").footprint().total();
        let mut planner = |within: Option<Bytes>| -> Result<Planned> {
            Ok(match within {
                None => step.plan(&options, limits)?.into(),
                Some(bytes) => step.fit(&options, bytes, limits)?.into(),
            })
        };
        let mut open = |on_oom| Session::open(&device, &mut planner, on_oom, Debug::default());
        let (session, refit) = open(OnOom::Refit).expect("there is room");
        assert!(refit.is_none() && session.device_bytes() == whole);
        drop(session);
        device.set_budget(Some(Bytes(whole * 9 / 10)));
        assert!(matches!(open(OnOom::Fail), Err(Error::OutOfMemory { .. })));
        let (session, refit) = open(OnOom::Refit).expect("recomputation is enough");
        let refit = refit.expect("something was changed");
        assert_eq!(refit.changes, ["recompute auto"]);
        assert!(refit.exact && refit.after == session.device_bytes() && refit.time_fraction < 0.5, "{refit}");
        // The remaining budget is too small for a second session.
        assert!(matches!(open(OnOom::Refit), Err(Error::OverBudget { .. })));
    }
}

#[test]
fn trainer_refits_on_request_and_saves_where_nothing_fits() {
    for device in own_devices() {
        let mut trainer = trainer(&device, OnOom::Refit).expect("it opens");
        let whole = trainer.session().device_bytes();
        device.set_budget(Some(Bytes(whole)));
        let beside = Plan::of_graph(
            wgrad::graph::Trace::record(&Params::new(0), wgrad::graph::Mode::Eval, "y", |trace| {
                trace.input("x", [64, 16]).relu()
            })
            .expect("valid"),
            None,
            device.limits(),
        )
        .expect("planned");
        assert!(Session::new(&device, &beside).is_err());
        let less = whole - beside.footprint().total();
        trainer.refit_within(Some(Bytes(less))).expect("there is a smaller plan");
        assert!(trainer.session().device_bytes() <= less && trainer.refits().len() == 1);
        let other = Session::new(&device, &beside).expect("there is room now");
        trainer.fit(1, None, &mut []).expect("it trains");
        drop(other);
        trainer.refit_within(None).expect("there is room");
        assert_eq!(trainer.session().device_bytes(), whole);

        let wanted = state(trainer.session());
        let path = std::env::temp_dir().join(format!("wgrad-refit-{}.safetensors", std::process::id()));
        let mut checkpoint = Checkpoint { path: path.clone(), every: 100, ..Checkpoint::default() };
        device.set_budget(Some(Bytes(64 << 10)));
        let error = trainer.fit(1, None, &mut [&mut checkpoint]).expect_err("nothing fits");
        assert!(matches!(error, Error::OverBudget { .. }), "{error}");
        device.set_budget(None);
        assert_same("after a refusal", &wanted, &state(trainer.session()));
        let mut fresh = self::trainer(&device, OnOom::Fail).expect("it opens");
        fresh.session().load(&path).expect("it was saved");
        std::fs::remove_file(&path).expect("it is there");
        assert_same("from the file", &wanted, &state(fresh.session()));
        assert_eq!(fresh.session().steps(), trainer.session().steps());
        trainer.fit(1, None, &mut []).expect("and on it goes");
    }
}
