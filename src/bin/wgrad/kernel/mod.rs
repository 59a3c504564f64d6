//! `wgrad bench KERNEL`: measures one operation, compared with the adapter's copy bandwidth and the `f64`
//! reference.

mod copy;
mod jobs;
mod sample;
mod timing;
mod work;

use serde_json::json;
use wgrad::device::Device;
use wgrad::dtype::{Rounding, WeightStorage};
use wgrad::exec::{ProgramId, Session};
use wgrad::kernels::conv;
use wgrad::kernels::cooperative::{BLOCKS, Block};
use wgrad::kernels::matmul;
use wgrad::limits::{Limits, Products};
use wgrad::{Error, Result};

use jobs::Job;
use sample::Compared;
use timing::{Spent, time};
pub use work::Kind;
use work::Ways;

/// The operation to measure and the device to measure it on.
pub struct Options<'a> {
    /// The operation.
    pub kind: &'static Kind,
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

/// Rounds in which an operation is measured.
const ROUNDS: u32 = 5;

pub fn run(options: &Options) -> Result<()> {
    let device = options.device.open()?;
    let large = !device.limits().class.is_cpu();
    let size = options.kind.size(options.size, large)?;
    let limits = limits(options, &options.device.limits(&device, jobs::precision(options.dtype))?)?;
    let work = options.kind.work(&size)?;
    let job = Job::new(&work, options.dtype, &limits)?;
    let mut session = Session::new(&device, &job.plan)?;
    if let Some((dim, classes)) = work.labels {
        session.feed("labels", &sample::labels(work.dims[dim], classes))?;
    }
    session.run(ProgramId(0))?;
    let compared = sample::compare(&mut session, &job, &work, options.dtype)?;
    let spent = time(&device, ROUNDS, |times| session.repeat(ProgramId(0), &job.launches, times))?;
    let copy = copy::bandwidth(&device)?;
    print(options, &device, &job, &size, &Measured { spent, copy, compared, flops: work.flops });
    Ok(())
}

/// Returns the adapter's limits with the requested variant.
fn limits(options: &Options, own: &Limits) -> Result<Limits> {
    let Some(name) = options.variant else { return Ok(own.clone()) };
    let blocks = BLOCKS.iter().map(|block| (block.name, block.runs_on(own)));
    // Every variant, and whether the adapter can run it.
    let ways: Vec<(&'static str, bool)> = match options.kind.ways {
        Ways::Products => {
            matmul::VARIANTS.iter().map(|way| (way.name, way.runs_on(own))).chain(blocks).collect()
        }
        Ways::Convolutions => {
            conv::VARIANTS.iter().map(|way| (way.name, way.runs_on(own))).chain(blocks).collect()
        }
        Ways::One => Vec::new(),
    };
    let wrong = |what: String| Err(Error::setting("command line", format!("--variant {name}: {what}")));
    match ways.iter().find(|(way, _)| *way == name) {
        Some((way, true)) => Ok(own.choosing(|kernels| kernels.products = Products::all(way))),
        Some(_) if Block::named(name).is_some() => wrong(format!(
            "`{}` has no cooperative matrices, or they did not win: --dtype f16 --cooperative always takes them",
            own.name
        )),
        Some(_) => wrong(format!("`{}` cannot run it", own.name)),
        None if ways.is_empty() => wrong(format!(
            "it names a way to compute matrix products or convolutions, not `{}`",
            options.kind.name
        )),
        None => {
            let names: Vec<_> = ways.iter().map(|(way, _)| *way).collect();
            wrong(format!("expected one of {} for `{}`", names.join(", "), options.kind.name))
        }
    }
}

struct Measured {
    spent: Spent,
    /// Bytes read and written per second by buffer copies.
    copy: f64,
    compared: Compared,
    /// Floating-point operations.
    flops: f64,
}

fn print(options: &Options, device: &Device, job: &Job, size: &[usize], measured: &Measured) {
    let Measured { spent, copy, compared, flops } = measured;
    let gflops = flops / spent.wall / 1e9;
    let gbps = job.bytes / spent.wall / 1e9;
    let per_cpu = |work: f64| spent.cpu.map(|seconds| work / seconds / 1e9);
    let variant = job.variant();
    if options.json {
        let result = json!({
            "kernel": options.kind.name,
            "size": size,
            "dtype": options.dtype.name(),
            "adapter": device.adapter().name,
            "driver": device.adapter().driver,
            "variant": variant,
            "checked": options.device.checked(),
            "seconds": spent.wall,
            "dispatches": job.launches.len(),
            "repeats": spent.repeats,
            "flops": flops,
            "bytes": job.bytes,
            "cpu_seconds": spent.cpu,
            "gflops": gflops,
            "gbps": gbps,
            "gflops_per_cpu_s": per_cpu(*flops),
            "gbps_per_cpu_s": per_cpu(job.bytes),
            "copy_gbps": copy / 1e9,
            "max_error": compared.max_error,
            "compared": compared.elements,
        });
        println!("{result}");
        return;
    }
    let shape = size.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    println!("{} {shape} · {} · {}", options.kind.name, options.dtype, device.adapter().name);
    println!("variant      {variant}");
    let dispatches = job.launches.len();
    let each = 1e6 * spent.wall / dispatches as f64;
    println!("time         {:.4} ms, {each:.1} µs for each of {dispatches} dispatches", 1e3 * spent.wall);
    println!("             {} times in each submit", spent.repeats);
    println!("arithmetic   {gflops:.1} GFLOP/s");
    println!(
        "memory       {gbps:.2} GB/s, {:.0} % of a copy's {:.2} GB/s",
        100.0 * gbps * 1e9 / copy,
        copy / 1e9
    );
    if let (Some(flops), Some(bytes)) = (per_cpu(*flops), per_cpu(job.bytes)) {
        println!("             {flops:.1} GFLOP and {bytes:.2} GB for each second of CPU time");
    }
    println!(
        "error        {:.1e} of the largest element, against f64, of {} elements compared",
        compared.max_error, compared.elements
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use wgrad::dtype::Rounding;

    /// Runs an operation once; returns how it compares with f64, from operands stored as `stored`.
    fn compared(device: &Device, name: &str, size: &str, [held, stored]: [WeightStorage; 2]) -> Compared {
        let kind = Kind::named(name).expect("a kernel");
        let work = kind.size(Some(size), false).and_then(|size| kind.work(&size)).expect("a size");
        let job = Job::new(&work, held, device.limits()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut session = Session::new(device, &job.plan).expect("it opens");
        if let Some((dim, classes)) = work.labels {
            session.feed("labels", &sample::labels(work.dims[dim], classes)).expect("valid");
        }
        session.run(ProgramId(0)).expect("it runs");
        let compared = sample::compare(&mut session, &job, &work, stored).expect("finite");
        session.repeat(ProgramId(0), &job.launches, 2).expect("it runs again");
        session.wait().expect("it ends");
        compared
    }

    #[test]
    fn operands_of_16_bits_are_read_as_such_and_match_the_twin() {
        let jobs = [
            ("matmul", "65x33x129", "matmul"),
            ("conv", "2x13x25x9x3x2", "conv"),
            ("softmax", "33x65", "softmax"),
            ("layer-norm", "33x65", "layer_norm"),
            ("attention", "2x33x3x16", "attention"),
            ("elementwise", "1025", "add"),
            ("adamw", "1001", "adam"),
        ];
        for adapter in Device::list().iter().filter(|adapter| adapter.unusable.is_none()) {
            let device = Device::by_name(&adapter.name).expect("it is usable");
            for (name, size, part) in jobs {
                let job = |dtype| {
                    let kind = Kind::named(name).expect("a kernel");
                    let work = kind.size(Some(size), false).and_then(|size| kind.work(&size));
                    Job::new(&work.expect("a size"), dtype, device.limits()).expect("planned")
                };
                let wide = job(WeightStorage::F32);
                for dtype in ["f16", "bf16"] {
                    let held = storage(dtype).expect("a format");
                    let (job, error) = (job(held), compared(&device, name, size, [held; 2]).max_error);
                    let variant = job.variant();
                    // Fused chains are named after their operations.
                    assert!(
                        variant.contains(part) && (variant.contains(dtype) || part == "add"),
                        "{variant}"
                    );
                    assert!(job.bytes < 0.95 * wide.bytes, "{name}: {} and {}", job.bytes, wide.bytes);
                    // A 16-bit weight may round to the neighbour of the twin's weight.
                    let allowed = if name == "adamw" { 1e-2 } else { 1e-5 };
                    assert!(error < allowed, "{name} {dtype} on {}: {error}", adapter.name);
                }
            }
        }
    }

    /// More indices than are sampled, and odd ones.
    #[test]
    fn every_kernel_matches_the_twin_where_it_is_sampled() {
        let f32 = WeightStorage::F32;
        let bf16 = WeightStorage::Bf16(Rounding::Nearest);
        // One adapter is enough for what is compared; tests/kernels run on all.
        let adapters = Device::list();
        if let Some(adapter) = adapters.iter().rfind(|adapter| adapter.unusable.is_none()) {
            let device = Device::by_name(&adapter.name).expect("it is usable");
            for kind in work::KINDS {
                let size = match kind.name {
                    name if name.starts_with("matmul") => "65x33x129",
                    name if name.starts_with("conv") => "3x13x15x9x3x2",
                    name if name.starts_with("depthwise") => "3x13x9x3x2",
                    name if name.starts_with("attention") => "2x33x3x16",
                    name if name.starts_with("batch-norm") => "3x7x9",
                    "layer-norm-grad" => "520x33",
                    "elementwise" | "adamw" | "dispatch" => "1001",
                    _ => "33x65",
                };
                let Compared { max_error, elements } = compared(&device, kind.name, size, [f32; 2]);
                assert!(max_error < 1e-5, "{} on {}: {max_error}", kind.name, adapter.name);
                assert!(elements >= 60, "{}: {elements} elements", kind.name);
            }
            // What the device computes from other operands is not within any error.
            for (name, size) in [("matmul-tn", "65x33x129"), ("conv-dw", "3x13x15x9x3x2")] {
                let error = compared(&device, name, size, [f32, bf16]).max_error;
                assert!(error > 1e-4, "{name}: {error} with operands that were rounded");
            }
        }
    }
}
