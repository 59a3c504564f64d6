//! Runs that stop and continue, and the files between them.

use std::path::Path;
use std::sync::Arc;

use crate::support::digits::digits;
use crate::support::folder::{Folder, names as names_in};
use crate::support::{devices, on_each};
use wgrad::compile::PlanOptions;
use wgrad::data::Loader;
use wgrad::device::Device;
use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::exec::read_notes;
use wgrad::graph::{LossScale, Params, Tensor};
use wgrad::nn::{Dropout, Linear, Module, Sequential};
use wgrad::optim::{AdamW, Optimizer, Schedule};
use wgrad::train::{
    Best, Callback, Checkpoint, EarlyStopping, Epoch, Metric, ReduceOnPlateau, StepProgress, Stop, Task,
    TrainOptions, Trainer,
};
use wgrad::{Error, Result};

fn trainer(device: &Device, loader: Loader, options: &TrainOptions) -> Trainer {
    open(device, loader, options).unwrap()
}

/// Opens a trainer for a network of digits with dropout.
pub(super) fn open(device: &Device, loader: Loader, options: &TrainOptions) -> Result<Trainer> {
    let params = Params::new(1);
    let net = Sequential::new()
        .add(Linear::new(&params.scope("fc1"), 64, 16))
        .add(Tensor::relu)
        .add(Dropout { p: 0.25 })
        .add(Linear::new(&params.scope("fc2"), 16, 10));
    let task = Task::classifier(&params, 64, 10, |x| net.forward(x));
    Trainer::new(device, task, loader, options)
}

fn loader() -> Loader {
    // Four batches, the last one smaller.
    let (some, _) = digits().split(0.2, 0);
    Loader::new(Arc::new(some), 100).unwrap().shuffled(4)
}

/// Requests a stop at a step.
pub struct StopAt(pub u64, pub Stop);

impl Callback for StopAt {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        if progress.epoch * progress.steps as u64 + progress.step as u64 == self.0 {
            self.1.request();
        }
        Ok(())
    }
}

fn state(trainer: &mut Trainer) -> Vec<Vec<u32>> {
    let graph = trainer.session().plan(wgrad::exec::ProgramId(0)).unwrap().graph().clone();
    let names: Vec<String> = graph.parameters.iter().map(|param| param.name().to_owned()).collect();
    let bits =
        |name: &String| trainer.session().parameter(name).unwrap().iter().map(|x| x.to_bits()).collect();
    names.iter().map(bits).collect()
}

/// A run that is stopped in the middle of an epoch and continues in another trainer has the bits of one that
/// is not, for every optimizer, precision and storage of weights, with dropout and a schedule.
#[test]
fn stopped_runs_continue_to_the_bit() {
    on_each(devices(), |device| {
        let folder = Folder::new("resume-bits");
        let storages = [
            (Precision::F32, WeightStorage::F32),
            (Precision::F16, WeightStorage::F32),
            (Precision::Bf16, WeightStorage::Bf16(Rounding::Stochastic)),
        ];
        let each = Optimizer::NAMES.into_iter().zip(storages.into_iter().cycle());
        let corrected =
            ["adamw", "adam8bit", "muon"].map(|name| (name, (Precision::F32, WeightStorage::Bf24)));
        for (name, (precision, weights)) in each.chain(corrected) {
            let loss_scale = (precision == Precision::F16).then(LossScale::default);
            let optimizer = Optimizer::named(name).unwrap();
            let plan = PlanOptions { optimizer, precision, weights, loss_scale, ..PlanOptions::default() };
            let schedule = Schedule::Cosine { warmup: 2, total: 12, floor: 0.1 };
            let options = TrainOptions { plan, schedule, ..TrainOptions::default() };
            let mut through = trainer(device, loader(), &options);
            through.fit(3, None, &mut []).unwrap();

            let mut first = trainer(device, loader(), &options);
            let path = folder.join("m.safetensors");
            let mut checkpoint = Checkpoint { path: path.clone(), every: 100, ..Checkpoint::default() };
            let mut stop = StopAt(6, first.stop());
            let error = first.fit(3, None, &mut [&mut checkpoint, &mut stop]).unwrap_err();
            assert!(matches!(error, Error::Stopped { steps: 6 }), "{error}");
            let mut second = trainer(device, loader(), &options);
            second.load(&path).unwrap();
            assert_eq!(second.fit(2, None, &mut []).unwrap().epoch, 2);
            assert!(state(&mut second) == state(&mut through), "{name} {precision:?}: other bits");
            // The trainer that was stopped continues as well.
            assert_eq!(first.fit(2, None, &mut []).unwrap().epoch, 2);
            assert!(state(&mut first) == state(&mut through), "{name}: other bits in one process");
        }
    });
}

#[test]
fn checkpoints_of_another_run_are_refused_with_the_differences() {
    on_each(devices(), |device| {
        let folder = Folder::new("resume-foreign");
        let path = folder.join("m.safetensors");
        let options = |lr| TrainOptions {
            plan: PlanOptions {
                optimizer: AdamW { lr, ..AdamW::default() }.into(),
                ..PlanOptions::default()
            },
            ..TrainOptions::default()
        };
        let mut first = trainer(device, loader(), &options(1e-3));
        first.fit(1, None, &mut []).unwrap();
        first.save(&path).unwrap();
        let notes = read_notes(&path).unwrap();
        assert_eq!((&*notes["run.batch"], &*notes["run.version"]), ("100", env!("CARGO_PKG_VERSION")));

        let (some, other) = digits().split(0.2, 0);
        let loaders = [
            (Loader::new(Arc::new(some.clone()), 50).unwrap().shuffled(4), "batch: 100 in the file, 50 here"),
            (
                Loader::new(Arc::new(some.clone()), 100).unwrap().shuffled(5),
                "seed 4 in the file, seed 5 here",
            ),
            (Loader::new(Arc::new(some), 100).unwrap(), "shuffle: seed 4 in the file, off here"),
            (Loader::new(Arc::new(other), 100).unwrap().shuffled(4), "samples: "),
        ];
        for (loader, wanted) in loaders {
            let mut second = trainer(device, loader, &options(1e-3));
            let before = state(&mut second);
            let error = second.load(&path).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("set_steps(0)"), "{error}");
            assert!(second.session().steps() == 0 && state(&mut second) == before);
            // The way out that the message names.
            second.session().load(&path).unwrap();
            second.session().set_steps(0);
            assert!(state(&mut second) == state(&mut first));
        }
        // Another learning rate is a warning.
        trainer(device, loader(), &options(2e-3)).load(&path).unwrap();

        // A number of steps that cannot be counted on from.
        first.session().set_steps(u64::MAX);
        first.save(&path).unwrap();
        let error = trainer(device, loader(), &options(1e-3)).load(&path).unwrap_err().to_string();
        assert!(error.contains("18446744073709551615 steps"), "{error}");
    });
}

/// Sets the metric of each epoch before a checkpoint sees it.
struct Scripted<'a>(&'a [f64], &'a mut Checkpoint);

impl Callback for Scripted<'_> {
    fn on_epoch(&mut self, epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        let metric = Metric { name: "accuracy", value: self.0[epoch.epoch as usize] };
        self.1.on_epoch(&Epoch { metric: Some(metric), ..*epoch }, trainer)
    }
}

#[test]
fn the_last_files_and_the_best_are_kept() {
    on_each(devices(), |device| {
        let folder = Folder::new("resume-kept");
        let steps = |name: &str| read_notes(folder.join(name)).unwrap()["steps"].clone();
        let path = folder.join("m.safetensors");
        let mut checkpoint =
            Checkpoint { path: path.clone(), last: 3, best: Some(Best::Highest), ..Checkpoint::default() };
        let metrics = [0.5, 0.9, 0.8, 0.7, f64::NAN, 0.9];
        let options = TrainOptions::default();
        let mut first = trainer(device, loader(), &options);
        first.fit(5, None, &mut [&mut Scripted(&metrics, &mut checkpoint)]).unwrap();
        let names = ["m.1.safetensors", "m.2.safetensors", "m.best.safetensors", "m.safetensors"];
        assert_eq!(names_in(&folder), names);
        assert_eq!(names.map(steps), ["16", "12", "8", "20"]);
        // The best metric is in the file: an epoch that only equals it replaces nothing.
        let mut second = trainer(device, loader(), &options);
        second.load(&path).unwrap();
        second.fit(1, None, &mut [&mut Scripted(&metrics, &mut checkpoint)]).unwrap();
        assert_eq!(names.map(steps), ["20", "16", "8", "24"]);
        assert_eq!(names_in(&folder), names);
        let error = second.fit(1, None, &mut [&mut checkpoint]).unwrap_err().to_string();
        assert!(error.contains("evaluation data"), "{error}");
    });
}

#[test]
fn a_best_metric_whose_file_is_not_written_is_not_the_best() {
    on_each(devices(), |device| {
        let folder = Folder::new("resume-best");
        let best = folder.join("m.best.safetensors");
        let path = folder.join("m.safetensors");
        let mut checkpoint = Checkpoint { path, best: Some(Best::Highest), ..Checkpoint::default() };
        let mut trainer = trainer(device, loader(), &TrainOptions::default());
        let metrics = [0.9, 0.9];
        std::fs::create_dir(&best).unwrap();
        let error = trainer.fit(1, None, &mut [&mut Scripted(&metrics, &mut checkpoint)]).unwrap_err();
        assert!(matches!(&error, Error::Weights { path, .. } if *path == best), "{error}");
        std::fs::remove_dir(&best).unwrap();
        trainer.fit(1, None, &mut [&mut Scripted(&metrics, &mut checkpoint)]).unwrap();
        assert_eq!(read_notes(&best).unwrap()["steps"], "8");
    });
}

#[test]
fn stops_take_effect_between_steps_and_lose_no_end_of_an_epoch() {
    on_each(devices(), |device| {
        let folder = Folder::new("resume-stop");
        let path = folder.join("m.safetensors");
        let saved = || read_notes(&path).unwrap()["run.best"].clone();
        let mut checkpoint =
            Checkpoint { path: path.clone(), best: Some(Best::Highest), ..Checkpoint::default() };
        let mut trainer = trainer(device, loader(), &TrainOptions::default());
        trainer.stop().request();
        let error = trainer.fit(1, None, &mut []).unwrap_err();
        assert!(matches!(error, Error::Stopped { steps: 0 }), "{error}");
        // In the last step of the first epoch, whose metric is recorded all the same.
        let mut stop = StopAt(4, trainer.stop());
        let error =
            trainer.fit(2, None, &mut [&mut Scripted(&[0.5], &mut checkpoint), &mut stop]).unwrap_err();
        assert!(matches!(error, Error::Stopped { steps: 4 }), "{error}");
        assert_eq!(saved(), "0.5");
        // In the last step of all; the run after it is not stopped.
        let mut stop = StopAt(8, trainer.stop());
        assert_eq!(trainer.fit(1, None, &mut [&mut stop]).unwrap().epoch, 1);
        assert_eq!(trainer.fit(1, None, &mut []).unwrap().epoch, 2);
    });
}

#[test]
fn paths_that_cannot_be_written_end_a_run_before_its_first_step() {
    on_each(devices(), |device| {
        let folder = Folder::new("resume-paths");
        let mut trainer = trainer(device, loader(), &TrainOptions::default());
        for path in
            [folder.join("none/m.safetensors"), folder.to_path_buf(), Path::new("/dev/full").to_owned()]
        {
            let mut checkpoint = Checkpoint { path: path.clone(), ..Checkpoint::default() };
            let error = trainer.fit(1, None, &mut [&mut checkpoint]).unwrap_err();
            assert!(matches!(&error, Error::Weights { path: at, .. } if *at == path), "{error}");
            assert_eq!(trainer.session().steps(), 0);
            assert!(trainer.save(&path).is_err());
        }
    });
}

#[test]
fn no_parameter_has_the_name_of_the_notes() {
    let params = Params::new(0);
    let weight = params.add("__metadata__", [2], wgrad::graph::Init::Constant(1.0));
    let step = wgrad::compile::TrainStep::trace(&params, |trace| trace.param(&weight).sum(&[]));
    let error = step.map(drop).unwrap_err().to_string();
    assert!(error.contains("__metadata__") && error.contains("resume.rs"), "{error}");
}

/// A metric that never improves halves the rate after each epoch but the first, also across a stop.
#[test]
fn reductions_on_plateaus_continue_to_the_bit() {
    let params = Params::new(1);
    let net = Linear::new(&params.scope("fc"), 64, 10);
    let (_, test) = digits().split(0.2, 0);
    on_each(devices(), |device| {
        let folder = Folder::new("resume-plateau");
        let trainer = |plateau| {
            let task = Task::classifier(&params, 64, 10, |x| net.forward(x));
            let task = task.metric("constant", "logits", |_, batch| batch.samples() as f64);
            let options = TrainOptions { plateau, ..TrainOptions::default() };
            Trainer::new(device, task, loader(), &options).unwrap()
        };
        let halves = ReduceOnPlateau { factor: 0.5, patience: 0, ..ReduceOnPlateau::new(Best::Highest) };
        let mut through = trainer(Some(halves));
        through.fit(4, Some(&test), &mut []).unwrap();

        let mut first = trainer(Some(halves));
        let error = first.fit(2, None, &mut []).unwrap_err().to_string();
        assert!(error.contains("evaluation data"), "{error}");
        first.fit(2, Some(&test), &mut []).unwrap();
        let path = folder.join("m.safetensors");
        first.save(&path).unwrap();
        assert_eq!(&*read_notes(&path).unwrap()["run.plateau"], "1 0 0 0.5");
        let mut second = trainer(Some(halves));
        second.load(&path).unwrap();
        second.fit(2, Some(&test), &mut []).unwrap();
        assert!(state(&mut second) == state(&mut through), "other bits");

        let mut plain = trainer(None);
        plain.fit(4, Some(&test), &mut []).unwrap();
        assert!(state(&mut plain) != state(&mut through), "the rate does not fall");
        plain.save(&path).unwrap();
        assert!(!read_notes(&path).unwrap().contains_key("run.plateau"));

        let wrong =
            TrainOptions { plateau: Some(ReduceOnPlateau { factor: 2.0, ..halves }), ..Default::default() };
        let task = Task::classifier(&params, 64, 10, |x| net.forward(x));
        let error = Trainer::new(device, task, loader(), &wrong).err().unwrap().to_string();
        assert!(error.contains("plateau: factor = 2"), "{error}");
    });
}

/// At a rate of 0 nothing improves after the first epoch.
#[test]
fn early_stopping_ends_a_run_where_it_would_have_without_a_checkpoint_between() {
    on_each(devices(), |device| {
        let folder = Folder::new("resume-early");
        let path = folder.join("m.safetensors");
        let optimizer = AdamW { lr: 0.0, ..AdamW::default() }.into();
        let plan = PlanOptions { optimizer, ..PlanOptions::default() };
        let options = TrainOptions { plan, ..TrainOptions::default() };
        let (_, test) = digits().split(0.9, 0);
        let stopping = EarlyStopping { patience: 2, ..EarlyStopping::default() };
        let fit = |trainer: &mut Trainer, epochs| {
            let mut checkpoint = Checkpoint { path: path.clone(), ..Checkpoint::default() };
            trainer.fit(epochs, Some(&test), &mut [&mut stopping.clone(), &mut checkpoint]).unwrap().epoch
        };
        assert_eq!(fit(&mut trainer(device, loader(), &options), 10), 2);
        assert_eq!(fit(&mut trainer(device, loader(), &options), 2), 1);
        let mut second = trainer(device, loader(), &options);
        second.load(&path).unwrap();
        assert_eq!(fit(&mut second, 10), 2);
        // It has ended: another call counts anew.
        assert_eq!(fit(&mut second, 10), 5);
        let never = EarlyStopping { patience: 0, ..stopping };
        let error = second.fit(1, Some(&test), &mut [&mut never.clone()]).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }), "{error}");
    });
}
