//! What may lie in the host's memory.

use crate::units::Bytes;

/// What lies in the host's memory while the device does not need it. Results are the same bits; what moves counts as time of
/// the step (see [`Roofline::host_bytes_per_s`](crate::graph::Roofline::host_bytes_per_s)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Optimizer state of [`Offload::SMALLEST`] bytes or more, tensor by tensor: it is on the device while its parameter is
    /// updated.
    pub optimizer: bool,
    /// Results of the forward pass that wait for the backward pass. Not with [`Recompute::Auto`](crate::compile::Recompute::Auto).
    pub activations: Activations,
}

/// Which results of the forward pass wait for the backward pass in the host's memory: of those that are not computed again,
/// of [`Offload::SMALLEST`] bytes or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// None.
    #[default]
    Keep,
    /// All.
    All,
    /// So many bytes, those that wait longest.
    Most(Bytes),
    /// Those of the layers of these paths, such as `layer1.0`.
    Layers(&'static [&'static str]),
}

impl Offload {
    /// Nothing.
    pub const OFF: Self = Self { optimizer: false, activations: Activations::Keep };
    /// Optimizer state.
    pub const OPTIMIZER: Self = Self { optimizer: true, activations: Activations::Keep };
    /// Activations.
    pub const ACTIVATIONS: Self = Self { optimizer: false, activations: Activations::All };
    /// Smaller tensors stay on the device: to move them costs more than they take.
    pub const SMALLEST: u64 = 16 << 10;
}
