//! What a run reports: statistics, profiles, traces, snapshots.

use crate::support;
use crate::support::skip::skip;
use crate::support::{devices, on_each};
use wgrad::compile::{Plan, PlanOptions};
use wgrad::device::Device;
use wgrad::exec::{Eager, ProgramId, Session};
use wgrad::graph::Class;
use wgrad::limits::Card;
use wgrad::memory::snapshot::Snapshot;
use wgrad::memory::{PoolOptions, Stat};
use wgrad::models::Model;

const BATCH: usize = 32;

fn model_and_plan(device: &Device) -> (Model, Plan) {
    let model = Model::named("digits", 0).unwrap();
    let plan = model.train_step(BATCH).unwrap().plan(&PlanOptions::default(), device.limits()).unwrap();
    (model, plan)
}

fn data(model: &Model) -> (Vec<f32>, Vec<u32>) {
    let x = support::noise(1, BATCH * model.inputs, 0.0, 1.0);
    (x, support::some_labels(2, BATCH, model.classes as u32))
}

fn session(device: &Device) -> (Session, Plan) {
    let (model, plan) = model_and_plan(device);
    let (x, y) = data(&model);
    let mut session = Session::new(device, &plan).unwrap();
    session.feed("x", &x).unwrap();
    session.feed("y", &y).unwrap();
    (session, plan)
}

fn check_stat(name: &str, stat: &Stat) {
    assert!(stat.current <= stat.peak, "{name}: {stat:?}");
    assert_eq!(stat.allocated - stat.freed, stat.current, "{name}");
}

#[test]
fn session_statistics_match_the_plan() {
    on_each(devices(), |device| {
        let (mut session, plan) = session(device);
        let others = plan.footprint().total() - plan.footprint().persistent - plan.footprint().step;
        let before = session.memory_stats();
        let at_rest = plan.layout.persistent_bytes() + others;
        assert_eq!(before.memory.allocated.peak, at_rest, "nothing has run");
        for _ in 0..3 {
            session.step().unwrap();
        }
        let stats = session.memory_stats();
        let m = &stats.memory;
        assert_eq!(m.allocated.peak, plan.lower_bound_bytes() + others);
        assert_eq!((m.reserved.current, m.reserved.peak), (session.device_bytes(), session.device_bytes()));
        assert_eq!(m.segments.current, session.buffers() as u64);
        assert!(m.requested.current <= m.allocated.current && m.active.peak <= m.reserved.peak);
        assert_eq!(m.inactive_split.current + m.active.current, m.reserved.current, "the loss is alive");
        let total: u64 = stats.by_class.iter().map(|(_, stat)| stat.current).sum();
        assert_eq!(total, m.allocated.current);
        let layers: u64 = stats.by_layer.iter().map(|(_, stat)| stat.current).sum();
        assert_eq!(layers + others, m.allocated.current);
        for class in [Class::Parameter, Class::Optimizer] {
            let planned = plan.class_bytes().iter().find(|(c, _)| *c == class).unwrap().1;
            assert_eq!(stats.by_class.get(class.name()).unwrap().peak, planned, "{class}");
        }
        for (name, stat) in stats.by_class.iter().chain(stats.by_layer.iter()) {
            check_stat(name, stat);
        }
        let transient: Vec<_> = plan.program.storages.iter().filter(|s| !s.persistent).collect();
        assert_eq!(m.allocations.allocated - before.memory.allocations.allocated, 3 * transient.len() as u64);

        session.reset_peak_memory_stats();
        assert_eq!(session.memory_stats().memory.allocated.peak, m.allocated.current);
        session.step().unwrap();
        assert_eq!(session.memory_stats().memory.allocated.peak, m.allocated.peak);

        let text = stats.to_string();
        assert!(text.contains("Allocated memory") && text.contains("fc1"), "{text}");
        let json = stats.json();
        assert_eq!(json.get("allocated_bytes.all.peak"), Some(&m.allocated.peak.into()));
        match stats.driver {
            Some(driver) => assert!(driver.allocated >= session.device_bytes(), "{driver}"),
            None => eprintln!("{device}: the driver's allocator does not report"),
        }
    });
}

#[test]
fn eager_statistics_are_counted_by_class_and_by_layer() {
    on_each(devices(), |device| {
        let (model, plan) = model_and_plan(device);
        let (x, y) = data(&model);
        let mut eager =
            Eager::new(device, &plan, PoolOptions { events: 1000, ..PoolOptions::default() }).unwrap();
        eager.feed("x", &x).unwrap();
        eager.feed("y", &y).unwrap();
        for _ in 0..2 {
            eager.step().unwrap();
        }
        let stats = eager.memory_stats();
        assert_eq!(stats.memory.reserved.current, eager.device_bytes());
        let total: u64 = stats.by_class.iter().map(|(_, stat)| stat.current).sum();
        assert_eq!(total, stats.memory.allocated.current);
        let peak = stats.by_class.get("gradients").unwrap().peak;
        assert!(peak > 0 && stats.by_class.get("gradients").unwrap().current == 0);
        assert!(stats.by_layer.get("fc1").unwrap().current > 0);
        stats.by_class.iter().chain(stats.by_layer.iter()).for_each(|(name, stat)| check_stat(name, stat));
        let requested = eager.stats().requested.peak;
        eager.reset_peak_memory_stats();
        assert_eq!(eager.memory_stats().by_class.get("gradients").unwrap().peak, 0);

        let read = Snapshot::read(&eager.dump().pickle()).unwrap();
        let active: u64 =
            read.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.active).map(|b| b.size).sum();
        assert_eq!(active, eager.stats().allocated.current);
        assert_eq!(read.reserved(0), eager.stats().reserved.current);
        assert_eq!(read.trace(0).unwrap().lower_bound(), requested);
    });
}

#[test]
fn profile_times_every_dispatch_and_changes_no_bit() {
    on_each(devices(), |device| {
        let ((mut timed, plan), (mut plain, _)) = (session(device), session(device));
        let buffers = timed.buffers();
        plain.step().unwrap();
        let profile = match timed.profile(ProgramId(0)) {
            Ok(profile) => profile,
            Err(error) if device.timestamp_period().is_none() => {
                assert!(error.to_string().contains("timestamp"), "{error}");
                skip(&error.to_string());
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(timed.loss().unwrap().to_bits(), plain.loss().unwrap().to_bits());
        assert_eq!(timed.parameter("fc1.weight").unwrap(), plain.parameter("fc1.weight").unwrap());
        assert_eq!((timed.steps(), timed.buffers()), (1, buffers));
        assert_eq!(profile.spans.len(), plan.program.launches.len());
        assert!(profile.total_ns() > 0.0);
        assert!(profile.spans.windows(2).all(|p| p[0].start_ns <= p[1].start_ns), "in the order they ran");
        let flops: u64 = profile.spans.iter().map(|s| s.flops).sum();
        let launched: u64 = {
            let mut positions: Vec<usize> = plan.program.launches.iter().map(|(_, at)| *at).collect();
            positions.dedup();
            let nodes = positions.iter().flat_map(|&at| plan.program.nodes_at(at));
            nodes.map(|node| plan.graph().cost(node).flops).sum()
        };
        let planned = plan.launches(&Card::default()).unwrap();
        assert!(profile.spans.iter().zip(&planned).all(|(span, launch)| span.flops == launch.job.flops));
        assert_eq!(flops, launched);
        let kernels = profile.kernels();
        assert_eq!(kernels.iter().map(|(_, k)| k.calls).sum::<usize>(), profile.spans.len());
        let text = profile.to_string();
        assert!(kernels.iter().all(|(name, _)| text.contains(name)), "{text}");

        let trace = profile.chrome_trace().to_string();
        assert_eq!(trace.matches("\"ph\":\"X\"").count(), profile.spans.len());
        // The counters at the peak are the plan's classes.
        let classes = plan.class_bytes().map(|(class, bytes)| format!("\"{class}\":{bytes}")).join(",");
        assert!(trace.contains(&classes), "{classes} is not in the trace");
    });
}

#[test]
fn snapshot_of_a_plan_replays_to_its_bytes() {
    let model = Model::named("cnn", 0).unwrap();
    let step = model.train_step(16).unwrap();
    let plan = step.plan(&PlanOptions::default(), &wgrad::limits::Limits::default()).unwrap();
    let read = Snapshot::read(&plan.dump().pickle()).unwrap();
    assert_eq!(read.reserved(0), plan.peak_bytes());
    let trace = read.trace(0).unwrap();
    assert_eq!(trace.blocks.len(), plan.program.storages.len());
    let (peak, padding) = (trace.lower_bound(), 256 * plan.program.storages.len() as u64);
    let bound = plan.lower_bound_bytes();
    assert!(peak <= bound && bound - peak < padding, "{peak} of {bound}: requested bytes are not padded");
}
