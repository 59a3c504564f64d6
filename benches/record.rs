//! Records a baseline to compare before and after a change of the compiler or the kernels: each model's plan
//! under each set of limits and precision, and a hash of the parameters after training on each adapter of
//! this machine.
//!
//! `cargo bench --bench record > benches/results/record.tsv; git diff benches/results/record.tsv`
//!
//! `cargo bench --bench record -- plans` leaves out training. On software adapters (lavapipe of Mesa 22.3,
//! SwiftShader) the hashes depend on the driver's version, so compare only lines of one machine.

use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Indices, STEP_SCALARS};
use wgrad::models::{Model, ModelOptions};
use wgrad::prelude::*;
use wgrad::random;
use wgrad::report::kept_bytes;

/// Returns the batch size for which a model is planned.
fn batch_of(model: &Model) -> usize {
    match (model.name.as_str(), model.seq()) {
        ("unet", _) => 2,
        (_, Some(_)) => 4,
        _ => 32,
    }
}

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::F16, Precision::Bf16];

/// Models that software adapters train in seconds: name, side of the image (`None` for the model's default)
/// and batch size.
const TRAINED: [(&str, Option<usize>, usize); 10] = [
    ("mlp", None, 16),
    ("digits", None, 16),
    ("cnn", None, 8),
    ("lenet", None, 8),
    ("resnet18", Some(32), 2),
    ("resnet50", Some(32), 2),
    ("mobilenet-v2", Some(32), 2),
    ("densenet121", Some(32), 2),
    ("unet", Some(32), 1),
    ("gpt-nano", None, 2),
];

const STEPS: usize = 20;

fn main() -> Result<()> {
    println!("model\tlimits\tprecision\tplanned bytes\tkept bytes\tdispatches\tmodelled ms");
    for name in Model::NAMES {
        let model = Model::named(name, 0)?;
        let step = model.train_step(batch_of(&model))?;
        for limits in Limits::NAMES {
            for precision in PRECISIONS {
                let plan = planned(&step, limits, precision).unwrap_or_else(|error| error.to_string());
                println!("{name}\t{limits}\t{}\t{plan}", precision.name());
            }
        }
    }
    if std::env::args().any(|argument| argument == "plans") {
        return Ok(());
    }
    println!("\nmodel\tadapter\tprecision\tparameters after {STEPS} steps");
    for adapter in Device::list().into_iter().filter(|adapter| adapter.unusable.is_none()) {
        let device = Device::by_name(&adapter.selector())?;
        for (name, size, batch) in TRAINED {
            for precision in [Precision::F32, Precision::Bf16] {
                let hash = trained(&device, name, size, batch, precision)?;
                println!("{name}\t{}\t{}\t{hash:016x}", adapter.name, precision.name());
            }
        }
    }
    Ok(())
}

/// Returns the columns of a plan: bytes created, bytes saved for the backward pass, dispatches, modelled
/// milliseconds.
fn planned(step: &TrainStep, limits: &str, precision: Precision) -> Result<String> {
    let of = Limits::named(limits).expect("one of the names");
    let options = PlanOptions { precision, ..PlanOptions::default() };
    let plan = step.plan(&options, &of)?;
    let ms = plan.work.seconds() * 1e3;
    let dispatches = plan.program.launches.len();
    Ok(format!("{}\t{}\t{dispatches}\t{ms:.3}", plan.footprint().total(), kept_bytes(&plan)))
}

/// Returns a hash of all parameters after training on one synthetic batch.
fn trained(
    device: &Device,
    name: &str,
    size: Option<usize>,
    batch: usize,
    precision: Precision,
) -> Result<u64> {
    let options = ModelOptions { image: size.map(|size| [size, size]), ..ModelOptions::default() };
    let model = Model::with_options(name, 0, &options)?;
    let options = PlanOptions { precision, ..PlanOptions::default() };
    let plan = model.train_step(batch)?.plan(&options, device.limits())?;
    let mut session = Session::new(device, &plan)?;
    for (_, value) in plan.graph().inputs().filter(|(_, value)| value.name != STEP_SCALARS) {
        let key = random::key(0, &format!("record {}", value.name));
        let elements = 0..value.shape.numel();
        match value.indices {
            Some(Indices::Labels(below) | Indices::Ids(below)) => {
                let draw = |i| (random::bits(key, i) % u64::from(below)) as u32;
                session.feed(&value.name, &elements.map(draw).collect::<Vec<u32>>())?;
            }
            None => {
                let draw = |i| random::uniform(key, i);
                session.feed(&value.name, &elements.map(draw).collect::<Vec<f32>>())?;
            }
        }
    }
    for _ in 0..STEPS {
        session.run(ProgramId(0))?;
    }
    session.loss()?;
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for parameter in &plan.graph().parameters {
        for number in session.parameter(parameter.name())? {
            hash = random::mix(hash ^ u64::from(number.to_bits()));
        }
    }
    Ok(hash)
}
