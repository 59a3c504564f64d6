//! Compares fused attention with attention built from matrix products, a mask and softmax: planned bytes and
//! time of a forward and backward pass (CPU time on software adapters). Run it with `cargo bench --bench
//! attention [ADAPTER] [LENGTH] [HEAD_SIZE]`.

#[path = "../src/bin/wgrad/cpu_time.rs"]
mod cpu_time;

use std::time::Instant;

use cpu_time::cpu_seconds;
use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::exec::Session;
use wgrad::graph::{Attention, Init, Params};
use wgrad::{Bytes, Result};

const HEADS: usize = 4;
const LENGTHS: [usize; 3] = [256, 1024, 2048];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let numbers: Vec<usize> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    let name = arguments.iter().find(|a| a.parse::<usize>().is_err());
    let device = name.map_or_else(Device::new, |name| Device::by_name(name))?;
    let lengths = numbers.first().map_or(LENGTHS.to_vec(), |&length| vec![length]);
    let size = numbers.get(1).copied().unwrap_or(64);
    println!("{}: {HEADS} heads of {size}, forward + backward", device.adapter().name);
    println!("length  mask    peak fused  unfused     ratio  ms fused  unfused  ratio");
    for length in lengths {
        for causal in [false, true] {
            let options = Attention { causal, ..Attention::default() };
            let plans = [true, false].map(|fused| plan(&device, length, size, &options, fused));
            let [fused, unfused] = plans;
            let (fused, unfused) = (fused?, unfused?);
            let bytes = [&fused, &unfused].map(|plan| plan.footprint().step);
            let seconds = race(&device, [&fused, &unfused])?;
            println!(
                "{length:<7} {:<7} {:<11} {:<11} {:<6.1} {:<9.1} {:<8.1} {:.2}",
                if causal { "causal" } else { "full" },
                Bytes(bytes[0]).to_string(),
                Bytes(bytes[1]).to_string(),
                bytes[1] as f64 / bytes[0] as f64,
                seconds[0] * 1e3,
                seconds[1] * 1e3,
                seconds[1] / seconds[0],
            );
        }
    }
    Ok(())
}

fn plan(device: &Device, length: usize, size: usize, options: &Attention, fused: bool) -> Result<Plan> {
    let params = Params::new(0);
    let shape = [1, length, HEADS, size];
    let [q, k, v, dy] = ["q", "k", "v", "dy"].map(|name| params.add(name, shape, Init::Uniform(1.0)));
    let step = TrainStep::trace(&params, |t| {
        let (q, k, v) = (t.param(&q), t.param(&k), t.param(&v));
        let o = if fused { q.attention(&k, &v, options) } else { q.attention_unfused(&k, &v, options) };
        o.mul(&t.param(&dy)).sum(&[])
    })?;
    step.plan(&PlanOptions::default(), device.limits())
}

/// Returns the seconds of one step of each plan. The plans run alternately, and the fastest of several rounds
/// counts.
fn race<const N: usize>(device: &Device, plans: [&Plan; N]) -> Result<[f64; N]> {
    let mut best = [f64::INFINITY; N];
    for round in 0..4 {
        for (plan, best) in plans.iter().zip(&mut best) {
            let mut session = Session::new(device, plan)?;
            session.step()?;
            session.wait()?;
            let (wall, cpu) = (Instant::now(), cpu_seconds());
            session.step()?;
            session.wait()?;
            let spent = match (cpu, cpu_seconds()) {
                (Some(before), Some(after)) if device.adapter().kind == "software" => after - before,
                _ => wall.elapsed().as_secs_f64(),
            };
            // The first round compiles the pipelines.
            if round > 0 {
                *best = best.min(spent);
            }
        }
    }
    Ok(best)
}
