//! Kernels: the table of WGSL texts, launches as plain data, and (with a GPU) the pipelines made from them.

mod generated;
mod launch;
pub mod table;

pub use generated::{Draft, Prelude, Stores, cooperating, in_long_words, of_half_image, reading, stores};
pub use launch::{Launch, MAX_PARAMS};
pub use table::{Held, Kernel};

use crate::limits::AdapterClass;

impl Kernel {
    /// The complete WGSL text.
    pub fn source(&self) -> String {
        self.parts.join("\n")
    }

    /// The text as adapters of a class get it. On software adapters parameters are copied in front of everything: behind a branch
    /// lavapipe reads them lane by lane, in a loop again in each turn. Kernels with barriers stay as they are: a compiler demands
    /// that all threads come to a barrier, and does not know that a copy is the same for all of them. Of subgroup operations
    /// naga demands nothing.
    pub fn source_for(&self, class: AdapterClass) -> String {
        let text = self.source();
        if class.is_cpu() && !text.contains("Barrier();") { with_params_copied(&text) } else { text }
    }
}

const PARAMS: &str = "var<uniform> p: Params;";

fn with_params_copied(text: &str) -> String {
    let in_main = |at: usize| text[at..].find(") {").map(|open| at + open + 3);
    let Some(body) = text.find("fn main(").and_then(in_main) else { return text.to_owned() };
    let (head, body) = text.split_at(body);
    if !head.contains(PARAMS) {
        return text.to_owned();
    }
    let head = head.replace(PARAMS, "var<uniform> params: Params;\nvar<private> p: Params;");
    format!("{head}\n    p = params;{body}")
}
