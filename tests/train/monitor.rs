//! Monitored runs: metrics in files, alerts, and the report of a failed run.

use std::path::Path;
use std::sync::Arc;

use crate::support;
use crate::support::folder::Folder;
use wgrad::Bytes;
use wgrad::compile::PlanOptions;
use wgrad::data::{Loader, Table};
use wgrad::exec::Eager;
use wgrad::memory::PoolOptions;
use wgrad::memory::snapshot::Snapshot;
use wgrad::models::Model;
use wgrad::optim::Sgd;
use wgrad::report::Failure;
use wgrad::train::{Alert, Callback, Metrics, Monitor, MonitorOptions, TrainOptions, Trainer};

const STEPS: usize = 4;

fn trainer(device: &wgrad::device::Device, lr: f32) -> Trainer {
    let count = 16 * STEPS;
    let x = support::noise(1, count * 64, 0.0, 1.0);
    let table = Table::new(64, 10, x, support::some_labels(2, count, 10)).unwrap();
    let plan = PlanOptions { optimizer: Sgd { lr, ..Sgd::default() }.into(), ..PlanOptions::default() };
    let loader = Loader::new(Arc::new(table), 16).unwrap();
    let options = TrainOptions { plan, ..TrainOptions::default() };
    Trainer::new(device, &Model::named("digits", 0).unwrap(), loader, &options).unwrap()
}

/// Returns the messages of a TFRecord file, as TensorBoard reads it; unit tests check the checksums.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut list) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        list.push(rest[12..12 + length].to_vec());
        rest = &rest[12 + length + 4..];
    }
    list
}

/// Returns the float after a tag in an event's message.
fn scalar(message: &[u8], tag: &str) -> Option<f32> {
    let at = message.windows(tag.len()).position(|window| window == tag.as_bytes())? + tag.len();
    assert_eq!(message[at], 2 << 3 | 5, "a float follows");
    Some(f32::from_le_bytes(message[at + 1..at + 5].try_into().unwrap()))
}

#[test]
fn metrics_of_every_step_are_the_same_in_all_files() {
    support::on_each(support::devices(), |device| {
        let folder = Folder::new("monitor-metrics");
        let mut jsonl = Metrics::jsonl(folder.join("run.jsonl")).unwrap();
        let mut csv = Metrics::csv(folder.join("run.csv")).unwrap();
        let mut board = Metrics::tensorboard(folder.join("board")).unwrap();
        let mut trainer = trainer(device, 0.1);
        trainer.fit(3, None, &mut [&mut jsonl, &mut csv, &mut board]).unwrap();

        let lines = std::fs::read_to_string(jsonl.path()).unwrap();
        let rows = std::fs::read_to_string(csv.path()).unwrap();
        assert_eq!((lines.lines().count(), rows.lines().count()), (3 * STEPS, 3 * STEPS + 1));
        let events = records(board.path());
        assert_eq!(events.len(), 1 + 3 * STEPS + 3, "a head, the steps, the epochs");
        let steps = events.iter().filter(|e| scalar(e, "memory/device_bytes").is_some());
        let bytes = trainer.session().device_bytes();
        for (i, ((line, row), event)) in lines.lines().zip(rows.lines().skip(1)).zip(steps).enumerate() {
            let cells: Vec<&str> = row.split(',').collect();
            let loss = if cells[2].is_empty() { "null" } else { cells[2] };
            let start = format!("{{\"step\":{},\"epoch\":{},\"loss\":{loss},", i + 1, i / STEPS);
            assert!(line.starts_with(&start), "{line} and {row}");
            assert!(line.ends_with(&format!("\"device_bytes\":{bytes}}}")), "{line}");
            assert_eq!(scalar(event, "train/loss"), cells[2].parse().ok(), "{row}");
            assert_eq!(scalar(event, "memory/device_bytes"), Some(bytes as f32));
        }
        assert!(lines.lines().last().is_some_and(|line| !line.contains("\"loss\":null")), "{lines}");
    });
}

#[test]
fn failed_run_writes_a_report() {
    support::on_each(support::devices(), |device| {
        let folder = Folder::new("monitor-failure");
        let mut trainer = trainer(device, 1e20);
        let (bytes, peak) = (trainer.session().device_bytes(), {
            let plan = trainer.session().plan(wgrad::exec::ProgramId(0)).unwrap();
            plan.peak_bytes()
        });
        let options = MonitorOptions {
            budget: Some(Bytes(bytes + bytes / 100)),
            failures: Some(folder.to_path_buf()),
            ..MonitorOptions::default()
        };
        let mut heard = Vec::new();
        let mut monitor = Monitor::new(options, |alert| heard.push(alert.clone()));
        let error = trainer.fit(5, None, &mut [&mut monitor]).unwrap_err();
        assert_eq!(monitor.alerts().len(), 3, "{:?}", monitor.alerts());
        drop(monitor);
        let [Alert::NearBudget { used, .. }, Alert::NotFinite { .. }, failed] = &heard[..] else {
            panic!("{heard:?}");
        };
        assert!(*used >= bytes, "{used}");
        let Alert::Failed { report: Some(path), .. } = failed else { panic!("{failed}") };
        assert!(failed.to_string().contains(&path.display().to_string()), "{failed}");
        let text = std::fs::read_to_string(path).unwrap();
        for part in
            [&error.to_string().replace('\n', "\\n"), "\"estimate\":{", "\"last_steps\":[{\"step\":1,"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.contains(&format!("\"reserved_bytes.all.current\":{bytes}")), "{text}");
        let snapshot = Snapshot::read(&std::fs::read(path.with_extension("pickle")).unwrap()).unwrap();
        assert_eq!(snapshot.reserved(0), peak);
    });
}

/// Returns the contents of `wgrad-failure-….json` in a folder, and the snapshot next to it.
fn written(alert: &Alert, folder: &Path) -> (String, Snapshot) {
    let Alert::Failed { report: Some(path), .. } = alert else { panic!("{alert:?}") };
    assert!(path.starts_with(folder), "{}", path.display());
    let snapshot = Snapshot::read(&std::fs::read(path.with_extension("pickle")).unwrap()).unwrap();
    (std::fs::read_to_string(path).unwrap(), snapshot)
}

#[test]
fn run_that_cannot_start_writes_a_report() {
    let step = Model::named("digits", 0).unwrap().train_step(16).unwrap();
    support::on_each(&support::own_devices(), |device| {
        let folder = Folder::new("monitor-refusal");
        let options = MonitorOptions { failures: Some(folder.to_path_buf()), ..MonitorOptions::default() };
        let mut monitor = Monitor::new(options, |_| {});
        let mut refuse = |plan: PlanOptions| {
            let table = Table::new(64, 10, vec![0.0; 64 * 64], vec![0; 64]).unwrap();
            let loader = Loader::new(Arc::new(table), 16).unwrap();
            let options = TrainOptions { plan, ..TrainOptions::default() };
            let model = Model::named("digits", 0).unwrap();
            let refused = Trainer::watched(device, &model, loader, &options, &mut [&mut monitor]);
            let error = refused.err().expect("it cannot begin").to_string();
            let (text, snapshot) = written(monitor.alerts().last().expect("it was told"), &folder);
            assert!(text.contains(&error.replace('\n', "\\n")), "{error} is not in {text}");
            (error, text, snapshot)
        };
        let options = PlanOptions::default();
        let planned = step.plan(&options, device.limits()).unwrap();
        // A plan over its budget, and a device with too little memory for a plan without one.
        let tight = PlanOptions { budget: Some(Bytes::kib(64)), ..options };
        let least = step.plan_over_budget(&tight, device.limits()).unwrap().peak_bytes();
        let (error, text, snapshot) = refuse(tight);
        assert!(error.contains("the budget is 64.0 KiB"), "{error}");
        assert_eq!(snapshot.reserved(0), least);
        assert!(text.contains(&format!("\"planned_bytes\":{least}")), "{text}");
        device.set_budget(Some(Bytes::kib(64)));
        let (error, text, snapshot) = refuse(options);
        assert!(error.contains("out of device memory"), "{error}");
        assert_eq!(snapshot.reserved(0), planned.peak_bytes());
        for part in ["\"budget_bytes\":65536", "\"used_bytes\":0", "\"estimate\":{", &device.adapter().name] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    });
}

#[test]
fn report_of_an_eager_run_has_the_snapshot_of_its_pool() {
    support::on_each(support::devices(), |device| {
        let folder = Folder::new("monitor-eager");
        let step = Model::named("digits", 0).unwrap().train_step(4).unwrap();
        let plan = step.plan(&PlanOptions::default(), device.limits()).unwrap();
        let mut eager =
            Eager::new(device, &plan, PoolOptions { events: 1000, ..PoolOptions::default() }).unwrap();
        let error = eager.step().unwrap_err();
        assert!(!Failure::helps_with(&error), "{error}: a mistake needs no report");
        let path = Failure::of(&error).with_eager(&eager).write(&*folder).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"memory\":{"), "{text}");
        let snapshot = Snapshot::read(&std::fs::read(path.with_extension("pickle")).unwrap()).unwrap();
        assert_eq!(snapshot.reserved(0), eager.stats().reserved.current);
    });
}

#[test]
fn error_of_a_file_that_cannot_be_written_has_its_name() {
    let Err(error) = Metrics::csv("/dev/null/run.csv") else { panic!("a file below a file") };
    assert!(error.to_string().contains("run.csv"), "{error}");
}

/// A session without problems raises no alert in any epoch.
#[test]
fn run_without_problems_raises_no_alert() {
    // Devices of its own: memory that other tests use on a device would look like a leak.
    support::on_each(&support::own_devices(), |device| {
        // Times on a shared machine may drift.
        let options = MonitorOptions { slower: f64::INFINITY, epochs: 2, ..MonitorOptions::default() };
        let mut monitor = Monitor::new(options, |alert| panic!("{alert}"));
        let watched: &mut dyn Callback = &mut monitor;
        trainer(device, 0.01).fit(8, None, &mut [watched]).unwrap();
    });
}
