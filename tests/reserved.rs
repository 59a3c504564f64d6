//! The bytes that a session creates, measured from outside: wgpu's own allocator has every buffer of a
//! session and nothing else of it, and with wgrad's descriptor it reserves little more from the driver.

mod support;

use std::collections::BTreeMap;

use support::skip::skip;
use support::{noise, some_labels};
use wgrad::compile::{Offload, Plan, PlanOptions};
use wgrad::device::{Device, DeviceOptions, Select, descriptor};
use wgrad::exec::{Debug, Session};
use wgrad::models::Model;

/// The bound of docs/out-of-memory.md for `descriptor`: reserved bytes are at most the created bytes, plus
/// this share of them, plus this many bytes for each kind of memory.
const SHARE: f64 = 0.05;
const BLOCK: u64 = 4 << 20;

/// Live allocations by name: their count and their bytes.
type Allocations = BTreeMap<String, (u64, u64)>;

/// Calls `body` with an app's own device on every adapter that wgrad would use, with the descriptor's memory
/// hints or others.
fn on_each_app(hints: Option<&wgpu::MemoryHints>, body: impl Fn(Device)) {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let usable: Vec<_> = Device::list().into_iter().filter(|adapter| adapter.unusable.is_none()).collect();
    let mut seen = 0;
    for raw in pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all())) {
        let info = raw.get_info();
        if !usable.iter().any(|a| a.name == info.name && a.backend == info.backend.to_str()) {
            continue;
        }
        seen += 1;
        let mut asked = descriptor(&raw);
        if let Some(hints) = hints {
            asked.memory_hints = hints.clone();
        }
        let (device, queue) =
            pollster::block_on(raw.request_device(&asked)).expect("the adapter has all of it");
        body(Device::from_wgpu(device, queue));
    }
    assert_eq!(seen, usable.len(), "every adapter that wgrad would use is here");
}

fn plan(name: &str, batch: usize, offload: Offload, device: &Device) -> Plan {
    let step = Model::named(name, 0).expect("a model").train_step(batch).expect("valid");
    step.plan(&PlanOptions { offload, ..PlanOptions::default() }, device.limits()).expect("planned")
}

/// Returns the live allocations; `None` where the backend does not report them.
fn allocations(device: &Device) -> Option<Allocations> {
    device.wait(None).expect("it runs");
    let report = device.wgpu_device().generate_allocator_report();
    if report.is_none() {
        skip(&format!("{}: the backend does not report allocations", device.adapter().name));
    }
    let mut all = Allocations::new();
    for allocation in report?.allocations {
        let (count, bytes) = all.entry(allocation.name).or_default();
        *count += 1;
        *bytes += allocation.size;
    }
    Some(all)
}

fn train(session: &mut Session) {
    session.feed("x", &noise(0, 128 * 784, 0.0, 1.0)).expect("valid");
    session.feed("y", &some_labels(0, 128, 10)).expect("valid");
    for _ in 0..3 {
        session.step().expect("it runs");
    }
    session.loss().expect("finite");
}

/// Compares the allocator's list before a session, while it trains, and after it. The difference is the
/// session's buffers, each by its name, in number and, up to the rounding of each, in bytes.
#[test]
fn allocations_match_the_buffers_of_a_session() {
    on_each_app(None, |device| {
        // wgpu releases its initial staging memory after the first submit.
        let encoder = device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        device.submit(encoder).expect("nothing to do");
        let Some(before) = allocations(&device) else { return };
        let evaluate = Model::named("mlp", 0).expect("a model").forward(32).expect("valid");
        let evaluate = evaluate.plan(device.limits()).expect("planned");
        for offload in [Offload::OFF, Offload::OPTIMIZER] {
            let plan = plan("mlp", 128, offload, &device);
            let mut session =
                Session::with_plans(&device, &[&plan, &evaluate], Debug::default()).expect("it opens");
            train(&mut session);
            let during = allocations(&device).expect("it reported before");
            let of_session: Allocations =
                during.into_iter().filter(|(name, _)| !before.contains_key(name)).collect();
            let count: u64 = of_session.values().map(|(count, _)| count).sum();
            assert_eq!(count, session.buffers() as u64, "{of_session:?}");
            let bytes: u64 = of_session.values().map(|(_, bytes)| bytes).sum();
            let created = session.device_bytes();
            println!("{}: {created} created, {bytes} allocated", device.adapter().name);
            assert!((created..=created + 256 * count).contains(&bytes), "{created} created: {of_session:?}");
            // The largest buffers, by name, each a separate allocation.
            let footprint = session.footprint();
            for (name, wanted) in [("persistent.0", footprint.persistent), ("step.0", footprint.step)] {
                let (count, bytes) = of_session[name];
                assert_eq!(count, 1);
                assert!((wanted..wanted + 256).contains(&bytes), "{name}: {bytes} of {wanted}");
            }
            assert_eq!(
                of_session.keys().any(|name| name.starts_with("offload")),
                offload == Offload::OPTIMIZER
            );
            drop(session);
            assert_eq!(allocations(&device).expect("it reported before"), before, "all of it is given back");
        }
    });
}

/// wgpu reserves little more from the driver than the session creates with the descriptor's hints, and
/// several times as much with wgpu's own.
#[test]
fn reserved_bytes_stay_close_to_created_bytes() {
    let jobs = [("digits", 32), ("mlp", 128), ("cnn", 128), ("lenet", 512), ("gpt-nano", 4)];
    for (name, batch) in jobs {
        let default = (name == "mlp").then_some(wgpu::MemoryHints::Performance);
        for hints in [None].into_iter().chain(default.map(Some)) {
            on_each_app(hints.as_ref(), |device| {
                let plan = plan(name, batch, Offload::OFF, &device);
                let session = Session::new(&device, &plan).expect("it opens");
                session.wait().expect("it is there");
                let Some(driver) = device.driver_memory() else {
                    skip(&format!("{}: the backend does not report allocations", device.adapter().name));
                    return;
                };
                let (created, adapter) = (session.device_bytes(), device.adapter());
                let factor = driver.reserved as f64 / created as f64;
                let what =
                    format!("{name} {batch}, {hints:?}, {}: {created} created, {driver:?}", adapter.name);
                println!("{what}, {factor:.2} × created");
                assert!(driver.allocated >= created && driver.reserved >= driver.allocated, "{what}");
                if hints.is_some() {
                    assert!(driver.reserved >= 64 << 20, "{what}: the page says that it is more");
                    return;
                }
                // A GPU may have three kinds of memory: device-local, host-writable and host-readable.
                let kinds = if adapter.kind == "software" { 1 } else { 3 };
                let most = created + (SHARE * created as f64) as u64 + kinds * BLOCK;
                assert!(driver.reserved <= most, "{what}: the page says that it is {most} at most");
            });
        }
    }
}

/// A device that an app opens with the descriptor has the limits of one that wgrad opens, except for
/// cooperative matrices.
#[test]
fn descriptor_gives_an_app_the_same_limits() {
    on_each_app(None, |app| {
        let select = Select::Named(app.adapter().selector());
        let own = Device::open(&DeviceOptions { select, cooperative: false, ..DeviceOptions::default() });
        let own = own.expect("it is usable");
        assert_eq!(app.limits(), own.limits());
        assert_eq!(app.adapter().subgroups, own.adapter().subgroups);
        assert_eq!(app.timestamp_period().is_some(), own.timestamp_period().is_some());
    });
}
