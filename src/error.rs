//! Everything that can go wrong, in one enum: what happened, the numbers, where, what to do.

use std::fmt;
use std::path::PathBuf;

use crate::memory::AllocError;
use crate::memory::planner::PackError;
use crate::units::Bytes;

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One mistake found while a model was traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// What does not fit, with the shapes.
    pub message: String,
    /// Source file of the call.
    pub file: &'static str,
    /// Line of the call.
    pub line: u32,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Any failure of this crate. Nothing in it panics on a user's mistake or a device's failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every mistake in a model's code, found in one trace.
    #[error("the model does not fit together ({} {}):{}", .0.len(), plural(.0.len(), "mistake"), lines(.0))]
    Trace(Vec<TraceError>),

    /// A tensor that no binding of the adapter can cover.
    #[error(
        "tensor `{name}` {shape} needs {}, but `{limits}` binds at most {}{}",
        Bytes(*bytes), Bytes(*max), advice(*batch_that_fits)
    )]
    TensorTooLarge {
        /// Name of the tensor.
        name: String,
        /// Its shape, as text.
        shape: String,
        /// Bytes it needs.
        bytes: u64,
        /// Bytes one binding covers.
        max: u64,
        /// Name of the limits that were planned for.
        limits: String,
        /// Largest first dimension with which this tensor would fit.
        batch_that_fits: Option<u64>,
    },

    /// A plan that needs more than it was allowed.
    #[error(
        "{what} needs {}, the budget is {} ({} too much); the peak is at {peak_at}, largest there: {largest}\n\
         help: {help}",
        Bytes(*needed), Bytes(*budget), Bytes(needed.saturating_sub(*budget))
    )]
    OverBudget {
        /// The step, by name and batch.
        what: String,
        /// Bytes the plan needs.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
        /// Operation and layer of the peak.
        peak_at: String,
        /// The largest tensors alive at the peak.
        largest: String,
        /// What would fit.
        help: String,
    },

    /// A problem the packer refuses, such as sizes that overflow.
    #[error(transparent)]
    Pack(#[from] PackError),

    /// A pool that cannot serve a request, such as one over its cap.
    #[error(transparent)]
    Pool(#[from] AllocError),

    /// A bug in this crate: the independent check of a plan failed.
    #[error("internal: {0}; please report this with the model's code")]
    Internal(String),

    /// No adapter at all.
    #[error(
        "no GPU adapter was found{}\nhelp: install a driver; on Debian and Ubuntu a software one is \
         `apt-get install mesa-vulkan-drivers`",
        bracketed(.0)
    )]
    NoAdapter(
        /// What was asked for, empty for any.
        String,
    ),

    /// A name that fits none of the things there are.
    #[error("there is no {kind} `{name}`; known: {}", known.join(", "))]
    Unknown {
        /// What sort of thing: adapter, model, optimizer, input.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },

    /// Data fed to a step that the step cannot take.
    #[error("input `{name}`: {message}")]
    Input {
        /// Name of the input.
        name: String,
        /// What is wrong, with the numbers.
        message: String,
    },

    /// An option that makes no sense, such as a batch of 0.
    #[error("{0}")]
    Option(String),

    /// The device refused to create a buffer.
    #[error(
        "out of device memory creating `{name}` of {} ({} created before it){}: {message}\n\
         help: `OnOom::Refit` goes on with the next plan that fits; or set `PlanOptions::budget` to what the device has",
        Bytes(*bytes), Bytes(*created),
        if holds.is_empty() { String::new() } else { format!("; it would hold {holds}") }
    )]
    OutOfMemory {
        /// Which buffer.
        name: String,
        /// Its size.
        bytes: u64,
        /// Bytes created before it.
        created: u64,
        /// The largest tensors that it is for, with the operation and layer where most of it is needed.
        holds: String,
        /// The driver's words, or those of the device's budget.
        message: String,
    },

    /// The device had no memory to run commands, which therefore did not run.
    #[error(
        "out of device memory running commands, with {} of buffers in use: {message}\n\
         help: `OnOom::Refit` goes on with a smaller plan; or set `PlanOptions::budget` to what the device has",
        Bytes(*used)
    )]
    SubmitOutOfMemory {
        /// Bytes of all buffers that this crate had on the device.
        used: u64,
        /// The driver's words.
        message: String,
    },

    /// The device stopped working.
    #[error("the device was lost ({0}); parameters saved before are safe, open a new device to go on")]
    DeviceLost(String),

    /// wgpu refused something this crate did.
    #[error("the device refused {what}: {message}")]
    Device {
        /// What was being done.
        what: String,
        /// wgpu's words.
        message: String,
    },

    /// The loss became NaN or infinite.
    #[error(
        "the loss became {loss} at step {step}; parameters saved before are safe\n\
         help: lower the learning rate, clip gradients (`Clip::Norm`), or look for log or division of 0 in the model"
    )]
    LossNotFinite {
        /// Steps made before this one.
        step: u64,
        /// The loss.
        loss: f32,
    },

    /// A weights file that does not belong to the model, or is damaged.
    #[error("{}: {message}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What is wrong, all of it.
        message: String,
    },

    /// A data file that is missing or damaged, or an empty data set.
    #[error("{what}: {message}")]
    Data {
        /// The file or data set.
        what: String,
        /// What is wrong, and where.
        message: String,
    },

    /// A debug check found memory that was written by nobody who may.
    #[error("debug check: {0}")]
    Check(String),
}

impl Error {
    /// Whether memory of the device ran out, and a smaller plan may go on.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::SubmitOutOfMemory { .. })
    }
}

fn plural(n: usize, word: &str) -> String {
    if n == 1 { word.to_owned() } else { format!("{word}s") }
}

fn lines(errors: &[TraceError]) -> String {
    errors.iter().map(|e| format!("\n  {e}")).collect()
}

fn bracketed(what: &str) -> String {
    if what.is_empty() { String::new() } else { format!(" ({what})") }
}

fn advice(batch: Option<u64>) -> String {
    match batch {
        Some(0) | None => {
            "\nhelp: plan for limits with larger bindings, or split the tensor in the model".to_owned()
        }
        Some(n) => format!("\nhelp: it fits with a first dimension of at most {n}"),
    }
}
