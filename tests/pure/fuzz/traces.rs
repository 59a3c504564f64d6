//! The body of the fuzz target `traces`, which a plain test runs too.

use wgrad::memory::replay::{contenders, place};
use wgrad::memory::snapshot::Snapshot;
use wgrad::memory::trace::Trace;

/// Reads the bytes in every format, and returns whether one of them is a trace.
pub fn run(bytes: &[u8]) -> bool {
    let mut found = false;
    if let Ok(snapshot) = Snapshot::read(bytes) {
        for device in 0..=snapshot.device_traces.len() {
            snapshot.reserved(device);
            if let Ok(trace) = snapshot.trace(device) {
                check(&trace);
                found = true;
            }
        }
    }
    if let Some(trace) = std::str::from_utf8(bytes).ok().and_then(|text| Trace::parse(text).ok()) {
        check(&trace);
        found = true;
    }
    found
}

fn check(trace: &Trace) {
    let again = Trace::parse(&trace.to_lifetimes()).expect("our own form");
    assert_eq!((again.lower_bound(), again.blocks.len()), (trace.lower_bound(), trace.blocks.len()));
    // Pages can be as large as the sizes require: no strategy touches memory.
    let best_fit = contenders().into_iter().find(|contender| contender.name == "best-fit").expect("known");
    if trace.steps.len() <= 1000 {
        let (placed, reserved) = place(trace, best_fit).expect("sizes up to 2^62 in all");
        assert_eq!(placed.len(), trace.blocks.len());
        assert!(reserved >= trace.lower_bound());
    }
}
