//! Tuning: bounded in time and memory, cached, correct, and off by default.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::support::compare::compare;
use crate::support::folder::Folder;
use crate::support::{devices, noise, on_each};
use wgrad::Bytes;
use wgrad::compile::PlanOptions;
use wgrad::device::{Device, DeviceOptions, Select};
use wgrad::dtype::Precision;
use wgrad::exec::{Tuning, tune};
use wgrad::limits::Products;
use wgrad::models::Model;
use wgrad::progress::watch;

const LONG: Tuning = Tuning { time: Duration::from_secs(100), max_workspace: Bytes(1 << 30) };

/// Opens a separate device, with a cache folder for the results of tuning.
fn fresh(device: &Device, folder: Option<&Path>) -> Device {
    let select = Select::Named(device.adapter().selector());
    let cache = folder.map(Path::to_owned);
    Device::open(&DeviceOptions { select, cache, ..DeviceOptions::default() }).expect("it opens")
}

/// Returns the limits that tuning returns, and how many kernel choices it tried.
fn tried(device: &Device, tuning: &Tuning) -> (wgrad::limits::Limits, u64) {
    let most = Rc::new(RefCell::new(0));
    let heard = Rc::clone(&most);
    let tell = move |progress: &wgrad::progress::Progress| {
        if progress.what == "tuning" {
            *heard.borrow_mut() = progress.done;
        }
    };
    let tuned = watch(tell, || tune(device, device.limits(), Precision::F32, tuning)).expect("it runs");
    let most = *most.borrow();
    (tuned, most)
}

#[test]
fn results_are_cached_and_damaged_files_are_ignored() {
    on_each(devices(), |device| {
        let folder = Folder::new("tune");
        let (first, ways) = tried(&fresh(device, Some(&folder)), &LONG);
        assert!(ways >= 3, "only {ways} ways were tried");
        let again = fresh(device, Some(&folder));
        assert_eq!(tried(&again, &LONG), (first.clone(), 0), "nothing is tried again");
        // A cached result belongs to the adapter: other limits of time and memory do not change it.
        let little = Tuning { time: Duration::ZERO, max_workspace: Bytes(0) };
        assert_eq!(tried(&again, &little), (first, 0));
        let notes = std::fs::read_dir(&*folder).expect("the folder").map(|file| file.expect("a file").path());
        let notes: Vec<_> = notes.filter(|path| path.to_string_lossy().contains("products_f32")).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        let whole = std::fs::read(&notes[0]).expect("it can be read");
        // Damaged files are not believed, and written anew.
        let once = Tuning { time: Duration::ZERO, ..LONG };
        for damaged in [&whole[..whole.len() - 1], b"", b"nonsense"] {
            std::fs::write(&notes[0], damaged).expect("it can be written");
            assert_eq!(tried(&fresh(device, Some(&folder)), &once).1, 1, "a damaged file was believed");
        }
        std::fs::write(&notes[0], b"nonsense").expect("it can be written");
        tried(&fresh(device, Some(&folder)), &LONG);
        assert_eq!(tried(&fresh(device, Some(&folder)), &LONG).1, 0, "it was not written anew");
    });
}

#[test]
fn tuning_respects_its_limits_of_time_and_memory() {
    on_each(devices(), |device| {
        let device = fresh(device, None);
        let none = Tuning { time: Duration::ZERO, ..LONG };
        // The first trial may start, because the duration of a trial is not yet known.
        let (limits, ways) = tried(&device, &none);
        assert_eq!((limits, ways <= 1), (device.limits().clone(), true));
        // No product fits in 0 bytes, so nothing is measured and the limits stay as they are.
        let nothing = Tuning { max_workspace: Bytes(0), ..LONG };
        assert_eq!(tried(&device, &nothing).0, *device.limits());
        assert!(tried(&device, &nothing).1 > 0, "what was not measured is not noted");
        assert_eq!(device.used_bytes(), 0, "everything was given back");
    });
}

#[test]
fn tuned_products_match_the_twin() {
    on_each(devices(), |device| {
        let device = fresh(device, None);
        let tuned = tried(&device, &LONG).0;
        compare(&device, &tuned, |trace, batch| {
            for (m, n, k) in [(1, 1, 1), (37, 65, 33), (64, 64, 64), (5, 132, 28)] {
                for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
                    let swap = |[a, b]: [usize; 2], swap| if swap { [b, a] } else { [a, b] };
                    let a = batch.input(trace, swap([m, k], ta), noise(1, m * k, -2.0, 2.0));
                    let b = batch.input(trace, swap([k, n], tb), noise(2, k * n, -2.0, 2.0));
                    let magnitudes = a.abs().matmul_transposed(&b.abs(), ta, tb);
                    let product = a.matmul_transposed(&b, ta, tb);
                    batch.expect_sum(&format!("{m} {n} {k} {ta} {tb}"), &product, &magnitudes, k);
                }
            }
        });
    });
}

#[test]
fn plans_without_tuning_are_deterministic() {
    let step = Model::named("digits", 0).expect("a model").train_step(32).expect("valid");
    on_each(devices(), |device| {
        let plan = |precision, limits: &_| {
            let options = PlanOptions { precision, ..PlanOptions::default() };
            step.plan(&options, limits).expect("it can be planned").hash()
        };
        let (one, other) = (fresh(device, None), fresh(device, None));
        for precision in Precision::ALL {
            let limits = one.target(precision);
            assert_eq!(limits.kernels.products, Products::default());
            let mut again = other.target(precision);
            if precision == Precision::F16 && !limits.class.is_cpu() {
                // A measurement decides whether cooperative matrices are used, and it may differ between two devices.
                again.kernels = limits.kernels;
            }
            assert_eq!(plan(precision, &limits), plan(precision, &again));
        }
        // The chosen rows are part of the limits, so it changes the plan.
        let named = device.limits().choosing(|kernels| kernels.products = Products::all("any32"));
        assert_ne!(plan(Precision::F32, &named), plan(Precision::F32, device.limits()));
        assert_eq!(plan(Precision::F32, &named), plan(Precision::F32, &named.clone()));
    });
}
