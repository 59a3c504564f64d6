//! `wgrad bench KERNEL`: measures one operation, compared with the adapter's copy bandwidth and the `f64`
//! reference.

mod copy;
mod jobs;
mod timing;

use serde_json::json;
use wgrad::device::Device;
use wgrad::dtype::{Rounding, WeightStorage};
use wgrad::exec::{ProgramId, Session};
use wgrad::kernels::conv;
use wgrad::kernels::cooperative::{BLOCKS, Block};
use wgrad::kernels::matmul;
use wgrad::limits::Limits;
use wgrad::reference::Twin;
use wgrad::{Error, Result};

use jobs::Job;
pub use jobs::Kind;
use timing::{Spent, time};

/// The operation to measure and the device to measure it on.
pub struct Options<'a> {
    /// The operation.
    pub kind: Kind,
    /// Its size, such as `1024` or `8x64x64x28x3x1`; the operation's own by default.
    pub size: Option<&'a str>,
    /// Storage format of the operands.
    pub dtype: WeightStorage,
    /// Name of a matmul or convolution variant; chosen automatically if `None`.
    pub variant: Option<&'a str>,
    /// Options of the device.
    pub device: &'a crate::device::Options,
    /// Print JSON.
    pub json: bool,
}

/// Returns a storage format by name.
pub fn storage(name: &str) -> Result<WeightStorage> {
    WeightStorage::named(name, Rounding::Nearest).ok_or_else(|| {
        Error::setting(
            "command line",
            format!("--dtype {name}: expected {}", WeightStorage::NAMES.join(", ")),
        )
    })
}

/// Number of floating-point operations that the reference computes in one to two seconds.
const AFFORDABLE: f64 = 3e9;

pub fn run(options: &Options) -> Result<()> {
    let device = options.device.open()?;
    let large = !device.limits().class.is_cpu();
    let size = options.kind.size(options.size, large)?;
    let limits = limits(options, &options.device.limits(&device, jobs::precision(options.dtype))?)?;
    let job = Job::new(options.kind, &size, options.dtype, &limits)?;
    let mut session = Session::new(&device, &job.plan)?;
    session.run(ProgramId(0))?;
    let max_error = if job.flops <= AFFORDABLE { Some(worst(&mut session, &job)?) } else { None };
    let spent = time(&device, || session.run(ProgramId(0)))?;
    let copy = copy::bandwidth(&device)?;
    print(options, &device, &job, &size, &Measured { spent, copy, max_error });
    Ok(())
}

/// Returns the adapter's limits with the requested variant.
fn limits(options: &Options, own: &Limits) -> Result<Limits> {
    let Some(name) = options.variant else { return Ok(own.clone()) };
    let blocks = BLOCKS.iter().map(|block| (block.name, block.runs_on(own)));
    // Every variant, and whether the adapter can run it.
    let ways: Vec<(&'static str, bool)> = match options.kind {
        Kind::Matmul => {
            matmul::VARIANTS.iter().map(|way| (way.name, way.runs_on(own))).chain(blocks).collect()
        }
        Kind::Conv => conv::VARIANTS.iter().map(|way| (way.name, way.runs_on(own))).chain(blocks).collect(),
        _ => Vec::new(),
    };
    let wrong = |what: String| Err(Error::setting("command line", format!("--variant {name}: {what}")));
    match ways.iter().find(|(way, _)| *way == name) {
        Some((way, true)) => Ok(own.choosing(|kernels| kernels.product = Some(way))),
        Some(_) if Block::named(name).is_some() => wrong(format!(
            "`{}` has no cooperative matrices, or they did not win: --dtype f16 --cooperative always takes them",
            own.name
        )),
        Some(_) => wrong(format!("`{}` cannot run it", own.name)),
        None if ways.is_empty() => wrong(format!(
            "it names a way to compute matrix products or convolutions, not `{}`",
            options.kind.name()
        )),
        None => {
            let names: Vec<_> = ways.iter().map(|(way, _)| *way).collect();
            wrong(format!("expected one of {} for `{}`", names.join(", "), options.kind.name()))
        }
    }
}

struct Measured {
    spent: Spent,
    /// Bytes read and written per second by buffer copies.
    copy: f64,
    max_error: Option<f64>,
}

fn print(options: &Options, device: &Device, job: &Job, size: &[usize], measured: &Measured) {
    let Measured { spent, copy, max_error } = measured;
    let gflops = job.flops / spent.wall / 1e9;
    let gbps = job.bytes / spent.wall / 1e9;
    let per_cpu = |work: f64| spent.cpu.map(|seconds| work / seconds / 1e9);
    let variant = job.variant();
    if options.json {
        let result = json!({
            "kernel": options.kind.name(),
            "size": size,
            "dtype": options.dtype.name(),
            "adapter": device.adapter().name,
            "driver": device.adapter().driver,
            "variant": variant,
            "checked": options.device.checked(),
            "seconds": spent.wall,
            "cpu_seconds": spent.cpu,
            "gflops": gflops,
            "gbps": gbps,
            "gflops_per_cpu_s": per_cpu(job.flops),
            "gbps_per_cpu_s": per_cpu(job.bytes),
            "copy_gbps": copy / 1e9,
            "max_error": max_error,
        });
        println!("{result}");
        return;
    }
    let shape = size.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    println!("{} {shape} · {} · {}", options.kind.name(), options.dtype, device.adapter().name);
    println!("variant      {variant}");
    println!("time         {:.3} ms", 1e3 * spent.wall);
    println!("arithmetic   {gflops:.1} GFLOP/s");
    println!(
        "memory       {gbps:.2} GB/s, {:.0} % of a copy's {:.2} GB/s",
        100.0 * gbps * 1e9 / copy,
        copy / 1e9
    );
    if let (Some(flops), Some(bytes)) = (per_cpu(job.flops), per_cpu(job.bytes)) {
        println!("             {flops:.1} GFLOP and {bytes:.2} GB for each second of CPU time");
    }
    match max_error {
        Some(error) => println!("error        {error:.1e} of the largest element, against f64"),
        None => println!("error        not checked: the f64 twin would take too long"),
    }
}

/// Returns the largest difference from the reference, as a fraction of the reference's largest element.
fn worst(session: &mut Session, job: &Job) -> Result<f64> {
    let mut twin = Twin::new(job.plan.graph());
    if let Some(optimizer) = job.plan.optimizer {
        twin.set_step(&optimizer.scalars(0, optimizer.learning_rate(), job.plan.seed));
    }
    twin.run()?;
    let (device, expected) = match &job.trained {
        Some(name) => (session.parameter(name)?, twin.parameter(name)?),
        None => (session.output::<f32>(ProgramId(0), "y")?, twin.output("y")?),
    };
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let mut worst = 0.0f64;
    for (ours, theirs) in device.iter().zip(expected) {
        if !ours.is_finite() {
            return Err(Error::Internal(format!("{} returned {ours}", job.variant())));
        }
        worst = worst.max((f64::from(*ours) - theirs).abs());
    }
    Ok(worst / largest)
}
