//! `wgrad export`: writes a trained network as an ONNX file.

use std::path::PathBuf;

use wgrad::dtype::Precision;
use wgrad::exec::Session;
use wgrad::{Result, files, onnx};

use crate::files::unusable;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Choice,
    /// Samples of a batch, which the file will fix; by default 1, or as many as an ONNX file fixes.
    #[arg(long, allow_negative_numbers = true)]
    batch: Option<usize>,
    /// File with the trained parameters, safetensors or PyTorch's .pt; the initial ones without it.
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// ONNX file to write.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    device: crate::device::Options,
}

pub fn run(options: &Options) -> Result<()> {
    files::check(&options.output).map_err(|e| unusable(&options.output, &e))?;
    options.network.check_batch(options.batch)?;
    let network = options.network.open()?;
    let forward = network.forward(options.batch.or(network.fixed_batch()).unwrap_or(1))?;
    let device = options.device.open()?;
    let plan = forward.plan(&options.device.limits(&device, Precision::F32)?)?;
    let mut session = Session::new(&device, &plan)?;
    if let Some(path) = &options.load {
        session.load(path)?;
    }
    let bytes = onnx::export(&forward, |name| session.parameter(name))?;
    files::write(&options.output, &bytes).map_err(|e| unusable(&options.output, &e))?;
    for (name, value) in forward.graph().inputs().map(|(_, value)| (&value.name, value)) {
        println!("input {name} {} {}", value.dtype, value.shape);
    }
    for (name, id) in &forward.graph().outputs {
        println!("output {name} {}", forward.graph().value(*id).shape);
    }
    println!("{}: {}", options.output.display(), wgrad::Bytes(bytes.len() as u64));
    Ok(())
}
