//! A dispatch as plain data: kernel, constants, memory, parameters and grid.

use super::Kernel;

/// One dispatch. `M` is the type of its memory: operands while lowering, regions in a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<M> {
    /// The kernel.
    pub kernel: Kernel,
    /// Values for its `override` constants.
    pub constants: Vec<(&'static str, f64)>,
    /// Memory of the kernel's slots, in their order.
    pub memory: Vec<M>,
    /// Words of the `Params` uniform.
    pub params: Vec<u32>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
}

impl<M> Launch<M> {
    /// Returns the launch with its memory mapped by `to`.
    pub fn map<N>(self, to: impl FnMut(M) -> N) -> Launch<N> {
        let Self { kernel, constants, memory, params, grid } = self;
        Launch { kernel, constants, memory: memory.into_iter().map(to).collect(), params, grid }
    }
}

/// Maximum words of a `Params` uniform: one slot of 256 bytes.
pub const MAX_PARAMS: usize = 64;
