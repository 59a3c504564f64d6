//! Kernels by family. Each family has its variants, the lowering of its operations to launches, and the code that it generates;
//! `shaders/FAMILY/` has its WGSL.

mod assemble;
mod attention;
pub mod conv;
pub mod cooperative;
mod elementwise;
mod embedding;
mod grid;
mod kernel;
mod launch;
mod lower;
pub mod matmul;
mod movement;
mod needs;
mod norm;
mod optimizer;
mod pool;
mod reduce;
mod softmax;

pub use kernel::Kernel;
pub use launch::{Launch, MAX_PARAMS};
pub use lower::{Lowered, Operand, Site, in_place_inputs, lower};
#[cfg(feature = "gpu")]
pub(crate) use movement::fill_words;

/// Every kernel whose source is not generated, for tests: each in every element type and way to be run.
pub fn all() -> Vec<Kernel> {
    let families = [
        attention::kernels(),
        conv::kernels(),
        cooperative::kernels(),
        elementwise::kernels(),
        embedding::kernels(),
        matmul::kernels(),
        movement::kernels(),
        norm::kernels(),
        optimizer::kernels(),
        pool::kernels(),
        reduce::kernels(),
        softmax::kernels(),
    ];
    families.concat()
}

/// Names of all modules in `shaders/`.
pub fn modules() -> impl Iterator<Item = &'static str> {
    assemble::MODULES.iter().map(|(name, _)| *name)
}

/// Each kernel, and the same over its first operand.
fn and_in_place(kernels: &[Kernel]) -> Vec<Kernel> {
    kernels.iter().flat_map(|kernel| [kernel.clone(), kernel.in_place()]).collect()
}
