//! Options for tensors stored in host memory.

use crate::units::Bytes;

/// What is stored in host memory while the device does not need it. Results are bitwise identical. Copies
/// count toward the modelled time of the step (see
/// [`Card::host_bytes_per_s`](crate::limits::Card::host_bytes_per_s)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Optimizer state of [`Offload::SMALLEST`] bytes or more, per tensor. It is on the device only while its
    /// parameter is updated. With [`Recompute::Auto`](crate::compile::Recompute::Auto) on one device this is the state that may be: as
    /// much stays on the device as the budget has room for, if recomputation does not need the room more
    /// ([`Plan::state_away`](crate::compile::Plan::state_away)). Parameters with more than 4,194,304 elements are updated in shares of
    /// this size, unless the optimizer needs whole matrices, ranks share the parameter, or it is larger than a binding and updated by its
    /// pieces.
    pub optimizer: bool,
    /// Forward results kept for the backward pass.
    pub activations: Activations,
}

/// Which forward results are stored in host memory until the backward pass. Only results that are not
/// recomputed and have [`Offload::SMALLEST`] bytes or more are considered. With
/// [`Recompute::Auto`](crate::compile::Recompute::Auto) these are the results that may be: the search offloads what takes less
/// time to copy than to recompute, or does not fit otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// No results.
    #[default]
    Keep,
    /// All results.
    All,
    /// At most this many bytes: the results that are kept longest.
    Most(Bytes),
    /// The results of the layers with these paths, such as `layer1.0`.
    Layers(&'static [&'static str]),
}

impl Offload {
    /// Nothing is offloaded.
    pub const OFF: Self = Self { optimizer: false, activations: Activations::Keep };
    /// Optimizer state is offloaded.
    pub const OPTIMIZER: Self = Self { optimizer: true, activations: Activations::Keep };
    /// All activations are offloaded.
    pub const ACTIVATIONS: Self = Self { optimizer: false, activations: Activations::All };
    /// Minimum size in bytes of an offloaded tensor. For smaller tensors, the copies cost more than the saved
    /// memory is worth.
    pub const SMALLEST: u64 = 16 << 10;
    /// The most elements of a parameter that are updated at once if its state is offloaded.
    pub(crate) const AT_ONCE: u64 = 4 << 20;
}
