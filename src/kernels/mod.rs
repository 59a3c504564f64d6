//! Kernels by family. Each family has its kernel variants, lowers its operations to launches and generates
//! source code; `shaders/FAMILY/` has its WGSL.

mod assemble;
mod attention;
mod cached_attention;
pub mod conv;
pub mod cooperative;
mod cost;
mod custom;
mod elementwise;
mod embedding;
mod grid;
mod indices;
mod kernel;
mod launch;
mod lower;
pub mod matmul;
mod movement;
mod needs;
mod norm;
mod optimizer;
mod pool;
mod recurrent;
mod reduce;
mod softmax;
mod split;

pub use cost::jobs;
pub use kernel::Kernel;
pub use launch::{Launch, MAX_PARAMS};
pub use lower::{Lowered, Operand, Site, in_place_inputs, lower};
#[cfg(feature = "gpu")]
pub(crate) use movement::fill_words;
pub(crate) use optimizer::updates_by;

/// Returns every kernel without generated source, in all element types and forms, for tests.
pub fn all() -> Vec<Kernel> {
    let families = [
        attention::kernels(),
        cached_attention::kernels(),
        conv::kernels(),
        cooperative::kernels(),
        elementwise::kernels(),
        embedding::kernels(),
        indices::kernels(),
        matmul::kernels(),
        movement::kernels(),
        norm::kernels(),
        optimizer::kernels(),
        pool::kernels(),
        recurrent::kernels(),
        reduce::kernels(),
        softmax::kernels(),
    ];
    families.concat()
}

/// Returns the names of all modules in `shaders/`.
pub fn modules() -> impl Iterator<Item = &'static str> {
    assemble::MODULES.iter().map(|(name, _)| *name)
}

/// Returns each kernel, followed by its in-place form.
fn and_in_place(kernels: &[Kernel]) -> Vec<Kernel> {
    kernels.iter().flat_map(|kernel| [kernel.clone(), kernel.in_place()]).collect()
}
