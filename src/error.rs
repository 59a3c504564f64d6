//! All errors of the crate in one enum. Messages state what happened, where, with which numbers, and what to
//! do.

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
    /// The mismatch, with the shapes.
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

/// Any failure of this crate. The crate does not panic on a user's mistake or a device's failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// All mistakes in a model's code, found in one trace.
    #[error("the model does not fit together ({} {}):{}", .0.len(), plural(.0.len(), "mistake"), lines(.0))]
    Trace(Vec<TraceError>),

    /// A tensor larger than the adapter's largest binding, and not one that can be split; or larger than its largest buffer.
    #[error(
        "tensor `{name}` {shape} needs {}, but `{limits}` allows at most {}{}",
        Bytes(*bytes), Bytes(*max), advice(*batch_that_fits)
    )]
    TensorTooLarge {
        /// Name of the tensor.
        name: String,
        /// Its shape, as text.
        shape: String,
        /// Bytes it needs.
        bytes: u64,
        /// Bytes that one binding covers, or one buffer holds.
        max: u64,
        /// Name of the limits that were planned for.
        limits: String,
        /// Largest first dimension with which this tensor would fit.
        batch_that_fits: Option<u64>,
    },

    /// A plan that needs more than its budget.
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
        /// The budget in bytes.
        budget: u64,
        /// Operation and layer of the peak.
        peak_at: String,
        /// The largest tensors alive at the peak.
        largest: String,
        /// Options that would fit.
        help: String,
    },

    /// A problem that the packer rejects, such as sizes that overflow.
    #[error(transparent)]
    Pack(#[from] PackError),

    /// A pool that cannot serve a request, such as one over its cap.
    #[error(transparent)]
    Pool(#[from] AllocError),

    /// A bug in this crate: the independent check of a plan failed.
    #[error("internal: {0}; please report this with the model's code")]
    Internal(String),

    /// No adapter was found.
    #[error(
        "no GPU adapter was found{}\nhelp: {NO_ADAPTER_HELP}",
        bracketed(.0)
    )]
    NoAdapter(
        /// The requested adapter; empty for any.
        String,
    ),

    /// An unknown name.
    #[error("there is no {kind} `{name}`; known: {}", known.join(", "))]
    Unknown {
        /// Kind of the named object: adapter, model, optimizer, input.
        kind: &'static str,
        /// The requested name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },

    /// Invalid data fed to a step.
    #[error("input `{name}`: {message}")]
    Input {
        /// Name of the input.
        name: String,
        /// The problem, with the numbers.
        message: String,
    },

    /// An option or argument with a value that it cannot have, such as a batch of 0.
    #[error("{message}")]
    Setting {
        /// The option: `optimizer.lr`, `batch`, `loss_scale`, `--steps`.
        name: String,
        /// The value, what it may be, and what to do.
        message: String,
    },

    /// An operation or feature that an adapter does not have.
    #[error("{message}")]
    Unsupported {
        /// Name of the adapter or of the limits that were planned for.
        adapter: String,
        /// The operation with its sizes, what the adapter takes, and what to do.
        message: String,
    },

    /// A tensor or step with more bytes or elements than can be counted.
    #[error("{0}")]
    TooManyElements(String),

    /// A plan that does not belong to a device, or to the other plans of a session.
    #[error("{0}")]
    PlanMismatch(String),

    /// Something was asked for before it exists, such as the loss before the first step.
    #[error("{0}")]
    NotReady(String),

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
        /// The largest tensors in the buffer, with the operation and layer of its peak use.
        holds: String,
        /// Message of the driver or of the device's budget.
        message: String,
    },

    /// The device had no memory to run commands; they did not run.
    #[error(
        "out of device memory running commands, with {} of buffers in use: {message}\n\
         help: `OnOom::Refit` goes on with a smaller plan; or set `PlanOptions::budget` to what the device has",
        Bytes(*used)
    )]
    SubmitOutOfMemory {
        /// Bytes of all buffers of this crate on the device.
        used: u64,
        /// Message of the driver.
        message: String,
    },

    /// The device stopped working.
    #[error("the device was lost ({0}); parameters saved before are safe, open a new device to go on")]
    DeviceLost(String),

    /// wgpu rejected a call of this crate.
    #[error("the device refused {what}: {message}")]
    Device {
        /// The attempted action.
        what: String,
        /// Message of wgpu.
        message: String,
    },

    /// A kernel that a model wrote ([`Trace::kernel`](crate::graph::Trace::kernel)) is not valid.
    #[error("kernel `{name}`{}: {message}", if *line > 0 { format!(", line {line} of its source") } else { String::new() })]
    Kernel {
        /// Its name, and a hash of its source.
        name: String,
        /// The line, from 1 on; 0 if no line is to blame.
        line: u32,
        /// What is wrong.
        message: String,
    },

    /// The loss became NaN or infinite.
    #[error(
        "the loss became {loss} at step {step}{}; parameters saved before are safe\n\
         help: lower the learning rate, clip gradients (`Clip::Norm`), or look for log or division of 0 in the model",
        rank.map_or_else(String::new, |rank| format!(", on the samples of rank {rank}"))
    )]
    LossNotFinite {
        /// Steps made before this one.
        step: u64,
        /// The loss.
        loss: f32,
        /// Of several ranks the first on whose samples it is not finite, unless that is so on all.
        rank: Option<u32>,
    },

    /// NaN or an infinity in an input, a parameter or a file.
    #[error("{what}: element {index} is {value}\nhelp: {help}")]
    NotFinite {
        /// The input, or the parameter and its file.
        what: String,
        /// Position of the first such element, in row-major order.
        index: u64,
        /// The element.
        value: f32,
        /// What to do, and how to accept such values.
        help: &'static str,
    },

    /// A run was stopped by [`Stop`](crate::train::Stop).
    #[cfg(feature = "gpu")]
    #[error(
        "stopped after step {steps}; `Trainer::fit` goes on from here, also in another process after `Trainer::load`"
    )]
    Stopped {
        /// Training steps made.
        steps: u64,
    },

    /// A weights file that does not match the model, or is damaged.
    #[error("{}: {message}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// All problems found.
        message: String,
    },

    /// A data file that is missing or damaged, or an empty data set.
    #[error("{what}: {message}")]
    Data {
        /// The file or data set.
        what: String,
        /// The problem and its position.
        message: String,
    },

    /// An ONNX file that cannot be read or recorded.
    #[error("{file}: {message}")]
    Onnx {
        /// The file.
        file: String,
        /// The node or tensor, and what is wrong with it.
        message: String,
    },

    /// A run on several devices ended, on all ranks with the same error.
    #[error(
        "rank {rank}: {message}\nhelp: all ranks have stopped; start them again from the last checkpoint, on fewer devices too"
    )]
    Rank {
        /// The rank that ended, or that differs from rank 0.
        rank: u32,
        /// What happened there.
        message: String,
    },

    /// A debug check found an out-of-bounds write.
    #[error("debug check: {0}")]
    Check(String),
}

impl Error {
    /// Creates an [`Error::Setting`].
    pub fn setting(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Setting { name: name.into(), message: message.into() }
    }

    /// Creates an [`Error::Unknown`].
    pub(crate) fn unknown(kind: &'static str, name: &str, known: &[&str]) -> Self {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        Self::Unknown { kind, name: name.to_owned(), known }
    }

    /// Creates an [`Error::Unsupported`].
    pub(crate) fn unsupported(adapter: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Unsupported { adapter: adapter.into(), message: message.into() }
    }

    /// Whether the device ran out of memory, so that a smaller plan may succeed.
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

/// How to come by an adapter.
const NO_ADAPTER_HELP: &str = if cfg!(target_family = "wasm") {
    "use a browser with WebGPU, such as a recent Chrome, Edge, Firefox or Safari, and open the page by https or from localhost"
} else {
    "install a driver; on Debian and Ubuntu a software one is `apt-get install mesa-vulkan-drivers`"
};

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
