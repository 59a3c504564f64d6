//! How long something takes on a device, by the wall and in CPU time.

use std::time::Instant;

use wgrad::Result;
use wgrad::device::Device;

use crate::cpu_time::cpu_seconds;

/// Seconds of one run.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// By the clock on the wall.
    pub wall: f64,
    /// Of all threads of this process together; `None` where the system does not tell.
    pub cpu: Option<f64>,
}

/// Rounds of which the best counts, and how long one takes at least.
const ROUNDS: u32 = 5;
const ROUND_SECONDS: f64 = 0.1;

/// The best of several rounds, each of as many runs as fill a tenth of a second.
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
