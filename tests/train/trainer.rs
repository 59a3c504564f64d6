//! Training end to end: real digits, on every adapter, and runs that stop with an error.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support;
use crate::support::digits::digits;
use wgrad::compile::PlanOptions;
use wgrad::data::{Batch, Dataset, Loader, Table};
use wgrad::exec::Session;
use wgrad::graph::{Params, Trace};
use wgrad::models::Model;
use wgrad::nn::{Linear, Module};
use wgrad::optim::{AdamW, Sgd};
use wgrad::train::{Callback, Checkpoint, Epoch, StepProgress, Task, TrainOptions, Trainer};
use wgrad::{Error, Result};

fn options(lr: f32) -> TrainOptions {
    let optimizer = AdamW { lr, ..AdamW::default() }.into();
    TrainOptions { plan: PlanOptions { optimizer, ..PlanOptions::default() }, ..TrainOptions::default() }
}

/// The calls that a callback received.
#[derive(Default)]
struct Seen {
    losses: Vec<f32>,
    steps: usize,
    ended: bool,
}

impl Callback for Seen {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        self.steps += 1;
        assert!(progress.step <= progress.steps && progress.device_bytes > 0);
        Ok(())
    }

    fn on_epoch(&mut self, epoch: &Epoch, _trainer: &mut Trainer) -> Result<()> {
        self.losses.push(epoch.loss);
        Ok(())
    }

    fn on_end(&mut self) {
        self.ended = true;
    }
}

#[test]
fn a_network_learns_real_digits() {
    support::on_each(support::devices(), |device| {
        let (train, test) = digits().split(0.8, 0);
        let count = train.len();
        let loader = Loader::new(Arc::new(train), 32).unwrap().shuffled(0);
        assert_ne!(loader.tail(), 0, "the last batch is to be a smaller one");
        let model = Model::named("digits", 0).unwrap();
        let mut trainer = Trainer::new(device, &model, loader, &options(4e-3)).unwrap();
        let mut seen = Seen::default();
        let end = trainer.fit(6, Some(&test), &mut [&mut seen]).unwrap();
        let metric = end.metric.unwrap();
        assert!(metric.name == "accuracy" && metric.value >= 0.95, "{metric:?}");
        assert!(seen.losses.windows(2).take(2).all(|pair| pair[1] < pair[0]), "losses {:?}", seen.losses);
        assert_eq!(seen.steps, 6 * count.div_ceil(32));
        assert!(seen.ended);
        assert_eq!(trainer.session().device_bytes(), trainer.session().footprint().total());
    });
}

#[test]
fn diverging_run_is_an_error_and_keeps_its_checkpoint() {
    support::on_each(support::devices(), |device| {
        let path = std::env::temp_dir().join(format!("wgrad-diverges-{}.safetensors", std::process::id()));
        let model = Model::named("digits", 0).unwrap();
        let loader = || Loader::new(Arc::new(digits()), 64).unwrap();
        let mut calm = Trainer::new(device, &model, loader(), &options(1e-3)).unwrap();
        let mut checkpoint = Checkpoint { path: path.clone(), ..Checkpoint::default() };
        calm.fit(1, None, &mut [&mut checkpoint]).unwrap();
        let saved = std::fs::read(&path).unwrap();

        let optimizer = Sgd { lr: 1e20, ..Sgd::default() }.into();
        let plan = PlanOptions { optimizer, ..PlanOptions::default() };
        let wild = TrainOptions { plan, ..TrainOptions::default() };
        let mut trainer = Trainer::new(device, &model, loader(), &wild).unwrap();
        trainer.session().load(&path).expect_err("this file has Adam's state, plain SGD has none");
        let mut seen = Seen::default();
        let error = trainer.fit(3, None, &mut [&mut checkpoint, &mut seen]).unwrap_err();
        assert!(matches!(error, Error::LossNotFinite { .. }), "{error}");
        assert!(error.to_string().contains("lower the learning rate"), "{error}");
        assert!(seen.ended);
        assert_eq!(std::fs::read(&path).unwrap(), saved);
        std::fs::remove_file(&path).unwrap();
    });
}

/// Ends the run at a step.
struct StopAt(u64);

impl Callback for StopAt {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        let step = progress.epoch * progress.steps as u64 + progress.step as u64;
        if step == self.0 {
            Err(Error::Data { what: "test".to_owned(), message: "stop".to_owned() })
        } else {
            Ok(())
        }
    }
}

#[test]
fn training_resumes_from_a_checkpoint_bit_for_bit() {
    support::on_each(support::devices(), |device| {
        let path = std::env::temp_dir().join(format!("wgrad-resumes-{}.safetensors", std::process::id()));
        let model = Model::named("digits", 0).unwrap();
        let start = || {
            let loader = Loader::new(Arc::new(digits()), 100).unwrap().shuffled(4);
            Trainer::new(device, &model, loader, &options(1e-3)).unwrap()
        };
        let names = ["fc1.weight", "fc3.bias", "fc2.weight.exp_avg_sq"];
        let state = |trainer: &mut Trainer| names.map(|name| trainer.session().parameter(name).unwrap());
        let mut through = start();
        assert_eq!(through.fit(3, None, &mut []).unwrap().epoch, 2);
        let wanted = state(&mut through);

        // Between epochs, in one process and through a file.
        let mut first = start();
        first.fit(1, None, &mut [&mut Checkpoint { path: path.clone(), ..Checkpoint::default() }]).unwrap();
        let mut second = start();
        second.load(&path).unwrap();
        for trainer in [&mut first, &mut second] {
            assert_eq!(trainer.fit(2, None, &mut []).unwrap().epoch, 2);
            assert_eq!(state(trainer), wanted);
        }
        // In the middle of an epoch.
        let mut first = start();
        first.fit(3, None, &mut [&mut StopAt(23)]).unwrap_err();
        first.save(&path).unwrap();
        let mut second = start();
        second.load(&path).unwrap();
        assert_eq!(second.session().steps(), 23);
        assert_eq!(second.fit(2, None, &mut []).unwrap().epoch, 2);
        assert_eq!(state(&mut second), wanted);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn evaluation_rejects_mismatched_data() {
    support::on_each(support::devices(), |device| {
        let model = Model::named("digits", 0).unwrap();
        let loader = Loader::new(Arc::new(digits()), 100).unwrap();
        let mut trainer = Trainer::new(device, &model, loader, &options(1e-3)).unwrap();
        let wide = Table::new(3, 10, vec![0.0; 6], vec![0, 1]).unwrap();
        let error = trainer.evaluate(&wide).unwrap_err().to_string();
        assert!(error.contains("input `x`") && error.contains("300"), "{error}");
        let none = Table::new(64, 10, vec![], vec![]).unwrap();
        assert!(matches!(trainer.evaluate(&none), Err(Error::Data { .. })));
        assert!(matches!(trainer.fit(0, None, &mut []), Err(Error::Setting { .. })));
        let large = Batch::new(101).with("x", vec![0.0f32; 6464]);
        assert!(trainer.predict("logits", &large).unwrap_err().to_string().contains("101 samples"));
        assert!(matches!(trainer.predict("probabilities", &large), Err(Error::Unknown { .. })));
    });
}

/// Fewer samples in a forward pass change neither the metric nor training.
#[test]
fn evaluations_have_batches_of_their_own() {
    support::on_each(support::devices(), |device| {
        let (train, test) = digits().split(0.9, 0);
        let model = Model::named("digits", 0).unwrap();
        let trained = |eval_batch| {
            let loader = Loader::new(Arc::new(train.clone()), 64).unwrap();
            let options = TrainOptions { eval_batch, ..options(4e-3) };
            let mut trainer = Trainer::new(device, &model, loader, &options)?;
            let metric = trainer.fit(1, Some(&test), &mut [])?.metric.unwrap();
            Ok::<_, Error>((metric.value, trainer.session().device_bytes(), trainer))
        };
        let (all, created, _) = trained(None).unwrap();
        let (few, smaller, mut trainer) = trained(Some(7)).unwrap();
        assert!(all > 0.5 && smaller <= created, "{all}, {smaller} of {created}");
        assert_eq!(few, all);
        let batch = |n: usize| Batch::new(n).with("x", vec![0.5f32; 64 * n]);
        assert_eq!(trainer.predict("logits", &batch(3)).unwrap().len(), 30);
        let error = trainer.predict("logits", &batch(8)).unwrap_err().to_string();
        assert!(error.contains("8 samples, the trainer's forward passes have 7"), "{error}");
        assert!(matches!(trained(Some(0)), Err(Error::Setting { .. })));
    });
}

/// Points of a plane, with noise.
struct Plane;

impl Dataset for Plane {
    fn len(&self) -> usize {
        70
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        let x: Vec<f32> = samples.iter().flat_map(|&i| support::noise(i as u64, 2, -1.0, 1.0)).collect();
        let y: Vec<f32> = x.chunks(2).map(|x| 0.5 * x[0] - 0.25 * x[1] + 0.1).collect();
        Ok(Batch::new(samples.len()).with("x", x).with("y", y))
    }
}

#[test]
fn any_loss_is_trained_on_any_data() {
    support::on_each(support::devices(), |device| {
        let params = Params::new(3);
        let net = Linear::new(&params.scope("fc"), 2, 1);
        let predict = |trace: &Trace, n: usize| net.forward(&trace.input("x", [n, 2]));
        let task = || {
            let loss =
                |trace: &Trace, n: usize| (predict(trace, n) - trace.input("y", [n, 1])).square().mean(&[]);
            Task::new(&params, loss).program("prediction", predict)
        };
        let error = |prediction: &[f32], batch: &Batch| -> f64 {
            assert_eq!(prediction.len(), batch.samples());
            prediction.iter().zip(batch.f32("y")).map(|(a, b)| f64::from((a - b).abs())).sum()
        };
        let measured = task().metric("absolute error", "prediction", error);
        let loader = || Loader::new(Arc::new(Plane), 16).unwrap().shuffled(1);
        let mut trainer = Trainer::new(device, measured, loader(), &options(0.05)).unwrap();
        let end = trainer.fit(20, Some(&Plane), &mut []).unwrap();
        let metric = end.metric.unwrap();
        assert!(metric.name == "absolute error" && metric.value < 0.02, "{metric:?}");
        let weight = trainer.session().parameter("fc.weight").unwrap();
        assert!((weight[0] - 0.5).abs() < 0.05 && (weight[1] + 0.25).abs() < 0.05, "{weight:?}");

        let mut unmeasured = Trainer::new(device, task(), loader(), &options(0.05)).unwrap();
        assert!(matches!(unmeasured.fit(1, Some(&Plane), &mut []), Err(Error::NotReady(_))));
        let misnamed = task().metric("error", "predictions", |_, _| 0.0);
        assert!(matches!(
            Trainer::new(device, misnamed, loader(), &options(0.05)),
            Err(Error::Unknown { .. })
        ));
    });
}

/// A device that an app destroyed is an error at the next step, not a panic.
#[test]
fn destroyed_device_is_an_error() {
    for adapter in wgrad::device::Device::list().into_iter().filter(|adapter| adapter.unusable.is_none()) {
        let device = wgrad::device::Device::by_name(&adapter.selector()).unwrap();
        let model = Model::named("digits", 0).unwrap();
        let plan = model.train_step(8).unwrap().plan(&PlanOptions::default(), device.limits()).unwrap();
        let mut session = Session::new(&device, &plan).unwrap();
        session.feed("x", &vec![0.5f32; 8 * 64]).unwrap();
        session.feed("y", &[1u32; 8]).unwrap();
        session.step().unwrap();
        session.loss().unwrap();
        device.wgpu_device().destroy();
        let outcome = (|| {
            session.feed("x", &vec![0.5f32; 8 * 64])?;
            session.step()?;
            session.loss()
        })();
        assert!(matches!(outcome, Err(Error::DeviceLost(_))), "{outcome:?}");
    }
}

/// Says which epoch a batch to train on is asked for.
struct Announced(Table, Sender<u64>);

impl Dataset for Announced {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        self.0.batch(samples)
    }

    fn training_batch(&self, epoch: u64, samples: &[usize]) -> Result<Batch> {
        let _ = self.1.send(epoch);
        self.0.batch(samples)
    }
}

/// Gives its first batch when one of the second epoch has been asked for.
struct Waiting(Table, Mutex<Option<Receiver<u64>>>);

impl Dataset for Waiting {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        if let Some(announced) = self.1.lock().unwrap().take() {
            // The limit of time is only there to fail instead of waiting for ever.
            while announced.recv_timeout(Duration::from_secs(60)).expect("a batch made ahead") != 1 {}
        }
        self.0.batch(samples)
    }
}

#[test]
fn the_next_epoch_is_prepared_while_the_evaluation_runs() {
    support::on_each(support::devices(), |device| {
        let (train, test) = digits().split(0.1, 0);
        let (test, _) = test.split(0.05, 0);
        let (sender, receiver) = channel();
        let loader = Loader::new(Arc::new(Announced(train, sender)), 64).unwrap();
        let model = Model::named("digits", 0).unwrap();
        let mut trainer = Trainer::new(device, &model, loader, &options(4e-3)).unwrap();
        let test = Waiting(test, Mutex::new(Some(receiver)));
        trainer.fit(2, Some(&test), &mut []).unwrap();
        assert!(test.1.into_inner().unwrap().is_none(), "the evaluation read the data");
    });
}
