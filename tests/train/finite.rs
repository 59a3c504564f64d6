//! NaN and infinities: where they are refused, and that files saved before stay.

use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{devices, on_each};
use half::{bf16, f16};
use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::data::{Batch, Dataset, Loader};
use wgrad::dtype::DType;
use wgrad::exec::{Eager, LoadOptions, SaveOptions, Session};
use wgrad::graph::{Init, Params, Trace};
use wgrad::memory::PoolOptions;
use wgrad::nn::{Linear, Module};
use wgrad::optim::AdamW;
use wgrad::train::{Checkpoint, Task, TrainOptions, Trainer};
use wgrad::{Error, Result};

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("wgrad-finite-{name}-{}.safetensors", std::process::id()))
}

fn regression(params: &Params) -> Linear {
    Linear::new(&params.scope("fc"), 2, 1)
}

#[test]
fn inputs_are_finite_unless_accepted() {
    let params = Params::new(0);
    let net = regression(&params);
    let step = TrainStep::trace(&params, |trace| net.forward(&trace.input("x", [2, 2])).square().mean(&[]));
    let step = step.unwrap();
    on_each(devices(), |device| {
        let plan = step.plan(&PlanOptions::default(), device.limits()).unwrap();
        let mut session = Session::new(device, &plan).unwrap();
        let mut eager = Eager::new(device, &plan, PoolOptions::default()).unwrap();
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let x = [0.0, 1.0, odd, odd];
            let error = session.feed("x", &x).unwrap_err();
            assert!(matches!(error, Error::NotFinite { index: 2, .. }), "{error}");
            assert!(error.to_string().contains("input `x`: element 2 is"), "{error}");
            assert!(matches!(eager.feed("x", &x), Err(Error::NotFinite { .. })));
        }
        session.set_accept_non_finite(true);
        eager.set_accept_non_finite(true);
        session.feed("x", &[f32::NAN; 4]).unwrap();
        eager.feed("x", &[f32::NAN; 4]).unwrap();
        session.step().unwrap();
        assert!(matches!(session.loss(), Err(Error::LossNotFinite { .. })));
    });
}

/// Labelled points, one of them NaN.
struct OneNan(Option<usize>);

impl Dataset for OneNan {
    fn len(&self) -> usize {
        24
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        let x =
            samples.iter().flat_map(|&i| [if self.0 == Some(i) { f32::NAN } else { 0.1 }, i as f32 / 24.0]);
        Ok(Batch::new(samples.len()).with("x", x.collect::<Vec<f32>>()))
    }
}

#[test]
fn one_nan_sample_ends_a_run_and_the_checkpoint_stays() {
    let params = Params::new(0);
    let net = regression(&params);
    let task = || {
        Task::new(&params, |trace: &Trace, n: usize| {
            net.forward(&trace.input("x", [n, 2])).square().mean(&[])
        })
    };
    on_each(devices(), |device| {
        let path = file("sample");
        let mut checkpoint = Checkpoint { path: path.clone(), ..Checkpoint::default() };
        let mut fit = |odd| {
            let loader = Loader::new(Arc::new(OneNan(odd)), 8).unwrap();
            let mut trainer = Trainer::new(device, task(), loader, &TrainOptions::default()).unwrap();
            trainer.fit(1, None, &mut [&mut checkpoint])
        };
        fit(None).unwrap();
        let saved = std::fs::read(&path).unwrap();
        let error = fit(Some(17)).unwrap_err();
        assert!(matches!(&error, Error::NotFinite { what, index: 2, .. } if what.contains("`x`")), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), saved);
        std::fs::remove_file(&path).unwrap();
    });
}

/// Row ids; row 3 of the table is never drawn, so the loss does not see it.
struct Ids;

impl Dataset for Ids {
    fn len(&self) -> usize {
        12
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        Ok(Batch::new(samples.len()).with("ids", samples.iter().map(|&i| i as u32 % 3).collect::<Vec<u32>>()))
    }
}

#[test]
fn parameters_that_are_not_finite_are_neither_saved_nor_loaded() {
    let params = Params::new(0);
    let table = params.add("table", [4, 2], Init::Normal(1.0));
    // A mask may hold infinities.
    let mask = params.add_buffer("mask", [2], Init::Data([0.0, f32::NEG_INFINITY].into()));
    let task = || {
        Task::new(&params, |trace: &Trace, n: usize| {
            let rows = trace.param(&table).embedding(&trace.ids("ids", [n], 4));
            (rows + trace.param(&mask)).log_softmax().exp().square().mean(&[])
        })
    };
    on_each(devices(), |device| {
        let path = file("parameters");
        let start = || {
            let loader = Loader::new(Arc::new(Ids), 4).unwrap();
            let plan = PlanOptions { optimizer: AdamW::default().into(), ..PlanOptions::default() };
            Trainer::new(device, task(), loader, &TrainOptions { plan, ..TrainOptions::default() }).unwrap()
        };
        let mut trainer = start();
        trainer.fit(1, None, &mut []).unwrap();
        trainer.save(&path).unwrap();
        let good = std::fs::read(&path).unwrap();

        let mut rows = trainer.session().parameter("table").unwrap();
        rows[7] = f32::NAN;
        trainer.session().set_parameter("table", &rows).unwrap();
        let mut checkpoint = Checkpoint { path: path.clone(), ..Checkpoint::default() };
        let errors = [
            trainer.session().check_parameters().unwrap_err(),
            trainer.save(&path).unwrap_err(),
            trainer.fit(1, None, &mut [&mut checkpoint]).unwrap_err(),
            trainer.fit(1, None, &mut []).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(&error, Error::NotFinite { what, index: 7, .. } if what.contains("`table`")),
                "{error}"
            );
        }
        assert_eq!(std::fs::read(&path).unwrap(), good);

        let anyway = SaveOptions { accept_non_finite: true, ..SaveOptions::training_state() };
        trainer.session().save_with(&path, &anyway).unwrap();
        let mut other = start();
        let before = other.session().parameter("table").unwrap();
        let error = other.load(&path).unwrap_err();
        assert!(matches!(error, Error::NotFinite { index: 7, .. }), "{error}");
        assert_eq!((other.session().steps(), other.session().parameter("table").unwrap()), (0, before));
        let accept = LoadOptions { accept_non_finite: true, ..LoadOptions::default() };
        other.session().load_with(&path, &accept).unwrap();
        assert!(other.session().parameter("table").unwrap()[7].is_nan());
        std::fs::remove_file(&path).unwrap();
    });
}

/// Parameters of a file in 16 bits are the nearest numbers; buffers and optimizer state are as they were.
#[test]
fn files_in_16_bits_hold_the_nearest_numbers() {
    let params = Params::new(3);
    let w = params.add("w", [3, 5], Init::Uniform(2.0));
    let mean = params.add_buffer("mean", [3], Init::Constant(1.0 / 3.0));
    let step = TrainStep::trace(&params, |t| t.param(&w).square().sum(&[]).add(&t.param(&mean).sum(&[])));
    let step = step.expect("valid");
    let plan = PlanOptions { optimizer: AdamW::default().into(), ..PlanOptions::default() };
    let plan = step.plan(&plan, devices()[0].limits()).expect("planned");
    let mut session = Session::new(&devices()[0], &plan).expect("it opens");
    session.step().expect("it runs");
    let of = |session: &mut Session, name: &str| session.parameter(name).expect("it is there");
    let [moments, means] = ["w.exp_avg", "mean"].map(|name| of(&mut session, name));
    let whole = of(&mut session, "w");
    for dtype in [DType::F16, DType::BF16] {
        let options = SaveOptions { dtype: Some(dtype), ..SaveOptions::training_state() };
        let bytes = session.save_bytes(&options).expect("saved");
        let mut other = Session::new(&devices()[0], &plan).expect("it opens");
        let report = other.load_bytes("a file", &bytes, &LoadOptions::default()).expect("it loads");
        let converted: Vec<_> = report.converted.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(converted, ["w"]);
        let nearest = |x: &f32| match dtype {
            DType::F16 => f16::from_f32(*x).to_f32(),
            _ => bf16::from_f32(*x).to_f32(),
        };
        assert_eq!(of(&mut other, "w"), whole.iter().map(nearest).collect::<Vec<_>>());
        assert_eq!((of(&mut other, "w.exp_avg"), of(&mut other, "mean")), (moments.clone(), means.clone()));
        // The same numbers give the same file.
        assert_eq!(other.save_bytes(&options).expect("saved"), bytes);
    }
    let mut large = whole.clone();
    large[4] = 70_000.0;
    session.set_parameter("w", &large).expect("finite");
    let path = file("half");
    let half = |accept_non_finite| SaveOptions {
        dtype: Some(DType::F16),
        accept_non_finite,
        ..SaveOptions::default()
    };
    let error = session.save_with(&path, &half(false)).expect_err("too large").to_string();
    assert!(error.contains("parameter `w` in f16: element 4 is inf"), "{error}");
    assert!(error.contains("`SaveOptions::dtype`") && !path.exists(), "{error}");
    session.save_with(&path, &half(true)).expect("accepted");
    std::fs::remove_file(&path).expect("removed");
    for (options, part) in [
        (
            SaveOptions { dtype: Some(DType::Int8), ..SaveOptions::default() },
            "f32, f16 and bf16 are possible",
        ),
        (SaveOptions { merged: true, ..SaveOptions::training_state() }, "no adapters to train"),
        (SaveOptions { merged: true, ..SaveOptions::default() }, "no adapters"),
    ] {
        let error = session.save_with(&path, &options).expect_err("refused").to_string();
        assert!(error.contains(part) && !path.exists(), "{error}");
    }
}
