//! `wgrad run`: computes the outputs of a network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use wgrad::dtype::{DType, Precision};
use wgrad::exec::{ProgramId, Session};
use wgrad::onnx::{Dimension, Port};
use wgrad::{Error, Result, files};

use crate::model::Selected;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Choice,
    /// Safetensors file with a tensor for each input, by its name.
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// Safetensors file to write with a tensor, f32, for each output.
    #[arg(long, value_name = "FILE")]
    outputs: PathBuf,
    /// File with trained parameters, safetensors or PyTorch's .pt, in place of the initial ones or those in an ONNX file.
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    #[command(flatten)]
    device: crate::device::Options,
}

pub fn run(options: &Options) -> Result<()> {
    files::check(&options.outputs).map_err(|e| unusable(&options.outputs, &e))?;
    let network = options.network.open()?;
    let bytes = std::fs::read(&options.inputs).map_err(|e| unusable(&options.inputs, &e))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| unusable(&options.inputs, &e))?;
    let tensor = |name: &str| {
        file.tensor(name).map_err(|_| Error::Unknown {
            kind: "tensor in the file of inputs called",
            name: name.to_owned(),
            known: file.names().into_iter().map(str::to_owned).collect(),
        })
    };
    let forward = match &network {
        Selected::Named(model) => model.forward(tensor("x")?.shape().first().copied().unwrap_or(1))?,
        Selected::File { network, params, sizes, .. } => {
            let mut sizes = sizes.clone();
            for port in &network.inputs() {
                let tensor = tensor(&port.name)?;
                fits(port, tensor.shape())?;
                let own = |(axis, len): (usize, &usize)| (format!("{}.{axis}", port.name), *len);
                sizes.named.extend(tensor.shape().iter().enumerate().map(own));
            }
            network.inference(params, &sizes)?
        }
    };
    let device = options.device.open()?;
    let plan = forward.plan(&options.device.limits(&device, Precision::F32)?)?;
    let mut session = Session::new(&device, &plan)?;
    if let Some(path) = &options.load {
        session.load(path)?;
    }
    // What the network makes of NaN and infinities is its own affair.
    session.set_accept_non_finite(true);
    for (_, input) in forward.graph().inputs() {
        let (name, tensor) = (&input.name, tensor(&input.name)?);
        if tensor.shape() != input.shape.dims() {
            let message = format!("{:?} in the file, the network takes {}", tensor.shape(), input.shape);
            return Err(Error::Input { name: name.clone(), message });
        }
        let numbers = numbers(name, &tensor)?;
        match input.dtype {
            DType::U32 => session.feed(name, &indices(name, &numbers)?)?,
            _ => session.feed(name, &numbers.iter().map(|x| *x as f32).collect::<Vec<_>>())?,
        }
    }
    session.run(ProgramId(0))?;
    let mut outputs = BTreeMap::new();
    for (name, id) in &plan.graph().outputs {
        let data = session.output::<f32>(ProgramId(0), name)?;
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        outputs.insert(name.clone(), (plan.graph().value(*id).shape, bytes));
    }
    let views = outputs.iter().map(|(name, (shape, bytes))| {
        TensorView::new(Dtype::F32, shape.dims().to_vec(), bytes).map(|view| (name, view))
    });
    let views: std::result::Result<Vec<_>, _> = views.collect();
    let bytes = views.and_then(|views| safetensors::serialize(views, None));
    let bytes = bytes.map_err(|e| Error::Internal(e.to_string()))?;
    files::write(&options.outputs, &bytes).map_err(|e| unusable(&options.outputs, &e))?;
    for (name, (shape, _)) in &outputs {
        println!("{name} {shape}");
    }
    Ok(())
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Data { what: path.display().to_string(), message: error.to_string() }
}

/// Compares the shape of a tensor with the dimensions that the network fixes.
fn fits(port: &Port, shape: &[usize]) -> Result<()> {
    let equal = |(dim, len): (&Dimension, &usize)| !matches!(dim, Dimension::Fixed(fixed) if fixed != len);
    if port.dims.len() == shape.len() && port.dims.iter().zip(shape).all(equal) {
        return Ok(());
    }
    let dims: Vec<String> = port
        .dims
        .iter()
        .map(|dim| match dim {
            Dimension::Fixed(len) => len.to_string(),
            Dimension::Named(name) if name.is_empty() => "?".to_owned(),
            Dimension::Named(name) => name.clone(),
        })
        .collect();
    let message = format!("{shape:?} in the file, the network takes [{}]", dims.join(", "));
    Err(Error::Input { name: port.name.clone(), message })
}

/// Returns the elements of a tensor of any type.
fn numbers(name: &str, tensor: &TensorView) -> Result<Vec<f64>> {
    macro_rules! of {
        ($type:ty) => {
            tensor
                .data()
                .chunks_exact(size_of::<$type>())
                .map(|bytes| <$type>::from_le_bytes(bytes.try_into().unwrap_or_default()) as f64)
                .collect()
        };
    }
    let bits = || tensor.data().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    Ok(match tensor.dtype() {
        Dtype::F32 => of!(f32),
        Dtype::F64 => of!(f64),
        Dtype::F16 => bits().map(|bits| half::f16::from_bits(bits).to_f64()).collect(),
        Dtype::BF16 => bits().map(|bits| half::bf16::from_bits(bits).to_f64()).collect(),
        Dtype::I64 => of!(i64),
        Dtype::U64 => of!(u64),
        Dtype::I32 => of!(i32),
        Dtype::U32 => of!(u32),
        Dtype::I16 => of!(i16),
        Dtype::U16 => of!(u16),
        Dtype::I8 => of!(i8),
        Dtype::U8 | Dtype::BOOL => of!(u8),
        other => {
            let message = format!("elements of type {other:?} are not read");
            return Err(Error::Input { name: name.to_owned(), message });
        }
    })
}

fn indices(name: &str, numbers: &[f64]) -> Result<Vec<u32>> {
    let index = |(i, x): (usize, &f64)| {
        let whole = x.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(x);
        let message = || format!("element {i} is {x}; integers are fed as u32, from 0 to {}", u32::MAX);
        if whole { Ok(*x as u32) } else { Err(Error::Input { name: name.to_owned(), message: message() }) }
    };
    numbers.iter().enumerate().map(index).collect()
}
