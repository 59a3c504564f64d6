//! Pipelines are compiled before the first step and never after it, and are cached on disk between processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::folder::Folder;
use crate::support::skip::skip;
use crate::support::{devices, noise, on_each, some_labels};
use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::device::{Device, DeviceOptions, Select};
use wgrad::dtype::Precision;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, Params};
use wgrad::limits::{AdapterClass, Limits};
use wgrad::models::Model;
use wgrad::nn::Linear;

const BATCH: usize = 8;

fn session(device: &Device, model: &str) -> Session {
    let step = Model::named(model, 0).unwrap().train_step(BATCH).unwrap();
    Session::new(device, &step.plan(&PlanOptions::default(), device.limits()).unwrap()).unwrap()
}

fn feed(session: &mut Session, length: usize) {
    session.feed("x", &noise(1, BATCH * length, 0.0, 1.0)).unwrap();
    session.feed("y", &some_labels(2, BATCH, 10)).unwrap();
}

/// Opens the same adapter with a separate cache folder for compiled pipelines.
fn cached(device: &Device, folder: &Path) -> Device {
    let select = Select::Named(device.adapter().selector());
    Device::open(&DeviceOptions { select, cache: Some(folder.to_owned()), ..DeviceOptions::default() })
        .unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the loss after a few steps of one layer, which needs few pipelines: they are compiled a dozen
/// times.
fn loss(device: &Device) -> u32 {
    let params = Params::new(0);
    let layer = Linear::new(&params, 64, 10);
    let step = TrainStep::trace(&params, |trace| {
        trace.input("x", [BATCH, 64]).apply(&layer).cross_entropy(&trace.labels("y", [BATCH], 10))
    });
    let plan = step.unwrap().plan(&PlanOptions::default(), device.limits()).unwrap();
    let mut session = Session::new(device, &plan).unwrap();
    feed(&mut session, 64);
    for _ in 0..3 {
        session.step().unwrap();
    }
    session.loss().unwrap().to_bits()
}

#[test]
fn nothing_is_compiled_after_a_session_opens() {
    on_each(devices(), |device| {
        // A separate device, because other tests compile at the same time.
        let device = &Device::by_name(&device.adapter().selector()).unwrap();
        let mut first = session(device, "cnn");
        let compiled = device.pipelines();
        assert!(compiled > 0);
        feed(&mut first, 28 * 28);
        for _ in 0..3 {
            first.step().unwrap();
        }
        first.loss().unwrap();
        first.parameter("fc.weight").unwrap();
        if device.timestamp_period().is_some() {
            first.profile(ProgramId(0)).unwrap();
        }
        assert_eq!(device.pipelines(), compiled);
        // A second session of the same network reuses all of them.
        drop(session(device, "cnn"));
        assert_eq!(device.pipelines(), compiled);
    });
}

#[test]
fn compiled_pipelines_are_cached_and_damaged_files_ignored() {
    on_each(devices(), |device| {
        let folder = Folder::new("pipelines");
        let expected = loss(device);
        let run = || loss(&cached(device, &folder));
        assert_eq!(run(), expected);
        let [file] = &files(&folder)[..] else {
            skip(&format!("{} hands out no compiled pipelines", device.adapter().name));
            return;
        };
        let whole = std::fs::read(file).unwrap();
        assert_eq!(run(), expected, "with a file that is whole");
        assert_eq!(files(&folder).len(), 1, "nothing half written is left");
        // Truncated, changed in the middle, of another driver, not a cache, empty.
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        let mut other = whole.clone();
        other[whole.len().min(40)] ^= 1;
        for bad in [&whole[..whole.len() / 2], &changed, &other, b"not a cache at all", b""] {
            std::fs::write(file, bad).unwrap();
            assert_eq!(run(), expected);
            assert_ne!(std::fs::read(file).unwrap(), bad, "it is written anew");
        }
        // A folder that cannot be created is not an error.
        assert_eq!(loss(&cached(device, Path::new("/dev/null/pipelines"))), expected);
    });
}

/// Also where two kernels begin with the same name: dropout that reads 32 bits, and dropout for 16 bits.
#[test]
fn pipelines_are_distinguished_by_kernel_source() {
    let params = Params::new(0);
    let w = params.add("w", [64, 64], Init::fan_in(64));
    let step = TrainStep::trace(&params, |trace| {
        // Maxima are searched among rounded numbers, so dropout also reads 16 bits.
        let x = trace.param(&w).add(&trace.input("x", [64, 64]));
        x.dropout(0.25).matmul(&trace.param(&w)).square().mean(&[]).add(&x.max(&[1]).mean(&[]))
    });
    let step = step.expect("valid");
    on_each(devices(), |device| {
        let limits = device.limits().choosing(|kernels| kernels.long_words = false);
        let limits = Limits { class: AdapterClass::Discrete, ..limits };
        let plan = |(precision, fuse)| {
            let options = PlanOptions { precision, fuse, rebuild: false, ..PlanOptions::default() };
            step.plan(&options, &limits).expect("it fits")
        };
        let loss = |device: &Device, plan: &Plan| {
            let mut session = Session::new(device, plan).expect("it opens");
            session.feed("x", &noise(1, 64 * 64, -1.0, 1.0)).expect("valid");
            session.step().expect("it runs");
            session.loss().expect("finite").to_bits()
        };
        let plans = [(Precision::F32, false), (Precision::F16, true), (Precision::Bf16, true)].map(plan);
        let mut sources = BTreeMap::new();
        for (launch, _) in plans.iter().flat_map(|plan| &plan.program.launches) {
            let source = launch.kernel.source();
            let known = sources.entry(launch.kernel.name.to_string()).or_insert_with(|| source.clone());
            assert_eq!(*known, source, "two kernels are named {}", launch.kernel.name);
        }
        let shared = &Device::by_name(&device.adapter().selector()).expect("it is there");
        for plan in &plans {
            let alone = &Device::by_name(&device.adapter().selector()).expect("it is there");
            assert_eq!(
                loss(shared, plan),
                loss(alone, plan),
                "after other plans, and on a device of its own"
            );
        }
    });
}
