//! Kernels: the table of WGSL texts, launches as plain data, and (with a GPU) the pipelines made from them.

mod generated;
mod launch;
pub mod table;

pub use generated::{Draft, Prelude, Stores, cooperating, in_long_words, of_half_image, reading, stores};
pub use launch::{Launch, MAX_PARAMS};
pub use table::{Held, Kernel};

impl Kernel {
    /// The complete WGSL text.
    pub fn source(&self) -> String {
        self.parts.join("\n")
    }
}
