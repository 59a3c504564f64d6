//! Host cost of a step: CPU time of the calling thread for feeding, encoding and submitting, per dispatch.
//!
//! `cargo bench --bench host_cost`
//!
//! The step is a chain of 1,000 dispatches on 16 numbers, so the device has almost no work. Work on the
//! driver's own threads is not counted.

use std::time::{Duration, Instant};

use wgrad::prelude::*;

const DISPATCHES: usize = 1000;
const STEPS: u32 = 300;

fn main() -> Result<()> {
    let params = Params::new(0);
    let forward = Forward::trace(&params, "y", |g| {
        let mut x = g.input("x", [16]);
        // Two alternating operations, so that the pipeline changes with each dispatch.
        for _ in 0..DISPATCHES / 2 {
            x = x.relu().neg();
        }
        x
    })?;
    for adapter in Device::list().into_iter().filter(|adapter| adapter.unusable.is_none()) {
        let device = Device::by_name(&adapter.selector())?;
        let plan = forward.plan(device.limits())?;
        let mut session = Session::new(&device, &plan)?;
        session.feed("x", &[1.0f32; 16])?;
        for _ in 0..3 {
            session.step()?;
            session.wait()?;
        }
        // All steps are timed as one interval: Linux updates a thread's CPU time only every few milliseconds.
        let start = thread_time();
        for _ in 0..STEPS {
            session.step()?;
        }
        let spent = thread_time() - start;
        session.wait()?;
        let dispatches = plan.program.launches.len();
        let per_dispatch = spent.as_secs_f64() * 1e6 / f64::from(STEPS) / dispatches as f64;
        println!(
            "{}: {per_dispatch:.2} µs of CPU per dispatch, {dispatches} dispatches, 1 submit",
            adapter.name
        );
    }
    Ok(())
}

/// Returns the CPU time of this thread where Linux reports it, else wall time.
fn thread_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = stat.and_then(|text| text.split_whitespace().next()?.parse().ok());
    match nanoseconds {
        Some(nanoseconds) => Duration::from_nanos(nanoseconds),
        None => {
            static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
            START.get_or_init(Instant::now).elapsed()
        }
    }
}
