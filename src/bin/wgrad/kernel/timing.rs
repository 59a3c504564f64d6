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
    /// Runs in each submit.
    pub repeats: usize,
}

/// Minimum duration of a round in seconds.
const ROUND_SECONDS: f64 = 0.1;

/// Seconds of work in a submit: far more than a submit costs, far less than a system lets one take.
const SUBMIT_SECONDS: f64 = 0.01;

/// The most runs in a submit, and submits in a round.
const MOST_REPEATS: f64 = 2000.0;
const MOST_SUBMITS: f64 = 50.0;

/// Returns the time per run in the best of `rounds` rounds. `submit` submits its argument's number of runs at once;
/// a round has several of these in flight and waits once.
pub fn time(device: &Device, rounds: u32, mut submit: impl FnMut(usize) -> Result<()>) -> Result<Spent> {
    let mut round = |submits: u32, repeats: usize| -> Result<Spent> {
        let (wall, cpu) = (Instant::now(), cpu_seconds());
        for _ in 0..submits {
            submit(repeats)?;
        }
        device.wait(None)?;
        let per = f64::from(submits) * repeats as f64;
        let cpu = cpu_seconds().zip(cpu).map(|(after, before)| (after - before) / per);
        Ok(Spent { wall: wall.elapsed().as_secs_f64() / per, cpu, repeats })
    };
    round(2, 1)?;
    // Of the first estimate, most may be the submit itself.
    let mut repeats = 1;
    for _ in 0..2 {
        let once = round(1, repeats)?.wall.max(1e-7);
        repeats = (SUBMIT_SECONDS / once).clamp(1.0, MOST_REPEATS) as usize;
    }
    let once = round(1, repeats)?.wall * repeats as f64;
    let submits = (ROUND_SECONDS / once.max(1e-7)).ceil().clamp(1.0, MOST_SUBMITS) as u32;
    let mut best = round(submits, repeats)?;
    for _ in 1..rounds {
        let next = round(submits, repeats)?;
        best.wall = best.wall.min(next.wall);
        best.cpu = best.cpu.zip(next.cpu).map(|(a, b)| a.min(b));
    }
    Ok(best)
}
