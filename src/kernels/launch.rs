//! A dispatch as plain data: which kernel, on what memory, with which numbers.

use super::Kernel;

/// One dispatch. `M` says what memory is: operands while lowering, regions in a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<M> {
    /// The kernel.
    pub kernel: Kernel,
    /// Values for its `override` constants.
    pub constants: Vec<(&'static str, f64)>,
    /// Memory for each of the kernel's slots, in their order.
    pub memory: Vec<M>,
    /// The words of its `Params` uniform.
    pub params: Vec<u32>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
}

impl<M> Launch<M> {
    /// The same launch on other memory.
    pub fn map<N>(self, to: impl FnMut(M) -> N) -> Launch<N> {
        let Self { kernel, constants, memory, params, grid } = self;
        Launch { kernel, constants, memory: memory.into_iter().map(to).collect(), params, grid }
    }
}

/// The most words a `Params` uniform has: one slot of 256 bytes.
pub const MAX_PARAMS: usize = 64;
