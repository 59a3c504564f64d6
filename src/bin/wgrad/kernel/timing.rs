//! Measures wall-clock time and CPU time of work on a device.

use std::time::Instant;

use wgrad::Result;
use wgrad::device::Device;

use crate::cpu_time::cpu_seconds;

/// Seconds of one run.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Wall-clock time.
    pub wall: f64,
    /// CPU time of all threads of this process; `None` if the system does not report it.
    pub cpu: Option<f64>,
}

/// Number of rounds, of which the best counts, and minimum duration of a round in seconds.
const ROUNDS: u32 = 5;
const ROUND_SECONDS: f64 = 0.1;

/// Returns the time per run in the best of `ROUNDS` rounds. A round has enough runs to take
/// `ROUND_SECONDS`, but at most 2000.
pub fn time(device: &Device, mut run: impl FnMut() -> Result<()>) -> Result<Spent> {
    let mut round = |runs: u32| -> Result<Spent> {
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        for _ in 0..runs {
            run()?;
        }
        device.wait(None)?;
        let per = f64::from(runs);
        let cpu = cpu_seconds().zip(cpu).map(|(after, before)| (after - before) / per);
        Ok(Spent { wall: wall.elapsed().as_secs_f64() / per, cpu })
    };
    round(2)?;
    let once = round(1)?.wall.max(1e-6);
    let runs = (ROUND_SECONDS / once).ceil().clamp(1.0, 2000.0) as u32;
    let mut best = round(runs)?;
    for _ in 1..ROUNDS {
        let next = round(runs)?;
        best.wall = best.wall.min(next.wall);
        best.cpu = best.cpu.zip(next.cpu).map(|(a, b)| a.min(b));
    }
    Ok(best)
}
