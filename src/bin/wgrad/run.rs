//! `wgrad run`: computes the outputs of a network, after some steps of training if asked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::dtype::{DType, Precision};
use wgrad::exec::{Debug, ProgramId, Session};
use wgrad::graph::STEP_SCALARS;
use wgrad::onnx::{Dimension, Loss, Port};
use wgrad::optim::Sgd;
use wgrad::{Error, Result, files};

use crate::files::unusable;
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
    /// Train this many steps of gradient descent on the inputs first and print the loss of each; the file of inputs then
    /// has `labels` or `target`, too.
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    train: usize,
    /// Learning rate of --train.
    #[arg(long, value_name = "RATE", default_value_t = 0.01, requires = "train")]
    lr: f32,
    /// Loss of --train: cross-entropy or mse of the first output, or output:NAME; by default what fits the output.
    #[arg(long, value_name = "LOSS", requires = "train")]
    loss: Option<Loss>,
    #[command(flatten)]
    device: crate::device::Options,
}

pub fn run(options: &Options) -> Result<()> {
    options.network.no_dim("`run` takes lengths from the tensors in --inputs")?;
    files::check(&options.outputs).map_err(|e| unusable(&options.outputs, &e))?;
    let bytes = std::fs::read(&options.inputs).map_err(|e| unusable(&options.inputs, &e))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| unusable(&options.inputs, &e))?;
    let selected = options.network.open()?;
    let (train_step, forward) = trace(options, &selected, &file)?;
    let device = options.device.open()?;
    let limits = options.device.limits(&device, Precision::F32)?;
    let optimizer = Sgd { lr: options.lr, ..Sgd::default() }.into();
    let settings = PlanOptions { optimizer, ..PlanOptions::default() };
    let train_step = train_step.map(|step| step.plan(&settings, &limits)).transpose()?;
    let plan = forward.plan(&limits)?;
    let plans: Vec<&Plan> = train_step.iter().chain([&plan]).collect();
    let mut session = Session::with_plans(&device, &plans, Debug::default())?;
    if let Some(path) = &options.load {
        session.load(path)?;
    }
    // What the network makes of NaN and infinities is its own affair.
    session.set_accept_non_finite(true);
    for (i, plan) in plans.iter().enumerate() {
        for (_, input) in plan.graph().inputs().filter(|(_, input)| input.name != STEP_SCALARS) {
            let (name, tensor) = (&input.name, tensor(&file, &input.name)?);
            if tensor.shape() != input.shape.dims() {
                let message = format!("{:?} in the file, the network takes {}", tensor.shape(), input.shape);
                return Err(Error::Input { name: name.clone(), message });
            }
            let numbers = numbers(name, &tensor)?;
            match input.dtype {
                DType::U32 => session.feed_to(ProgramId(i), name, &indices(&selected, name, &numbers)?)?,
                _ => {
                    let numbers: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
                    session.feed_to(ProgramId(i), name, &numbers)?;
                }
            }
        }
    }
    for step in 1..=options.train {
        session.step()?;
        println!("step {step}: loss {}", session.loss()?);
    }
    let own = ProgramId(plans.len() - 1);
    session.run(own)?;
    let mut outputs = BTreeMap::new();
    for (name, id) in &plan.graph().outputs {
        let data = session.output::<f32>(own, name)?;
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

/// Traces the network for the shapes of the inputs in `file`; with a training step if `--train` asks for steps.
fn trace(options: &Options, selected: &Selected, file: &SafeTensors) -> Result<(Option<TrainStep>, Forward)> {
    match selected {
        Selected::Named(model) => {
            options.network.no_loss(options.loss.as_ref())?;
            let batch = tensor(file, "x")?.shape().first().copied().unwrap_or(1);
            let train_step = (options.train > 0).then(|| model.train_step(batch)).transpose()?;
            Ok((train_step, model.forward(batch)?))
        }
        Selected::File { network, params, sizes, .. } => {
            let mut sizes = sizes.clone();
            for port in &network.inputs() {
                let tensor = tensor(file, &port.name)?;
                fits(port, tensor.shape())?;
                let own = |(axis, len): (usize, &usize)| (format!("{}.{axis}", port.name), *len);
                sizes.named.extend(tensor.shape().iter().enumerate().map(own));
            }
            let loss = options.loss.clone().unwrap_or_default();
            let step =
                || network.train_step(params, &sizes, |trace, outputs| network.loss(&loss, trace, outputs));
            let train_step = (options.train > 0).then(step).transpose()?;
            Ok((train_step, network.inference(params, &sizes)?))
        }
    }
}

fn tensor<'a>(file: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>> {
    file.tensor(name).map_err(|_| Error::Unknown {
        kind: "tensor in the file of inputs called",
        name: name.to_owned(),
        known: file.names().into_iter().map(str::to_owned).collect(),
    })
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

fn indices(network: &Selected, name: &str, numbers: &[f64]) -> Result<Vec<u32>> {
    let index = |(i, x): (usize, &f64)| {
        let integer = (x.fract() == 0.0 && x.abs() <= f64::from(u32::MAX)).then_some(*x as i64);
        let found = integer.and_then(|integer| match network {
            Selected::File { network, .. } => network.index(name, integer),
            Selected::Named(_) => u32::try_from(integer).ok(),
        });
        found.ok_or_else(|| {
            let message = format!(
                "element {i} is {x}; integers are fed as u32, from 0 to {}, and count from the end below 0 where they only \
                 select rows of tables",
                u32::MAX
            );
            Error::Input { name: name.to_owned(), message }
        })
    };
    numbers.iter().enumerate().map(index).collect()
}
