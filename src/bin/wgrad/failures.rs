//! What the program does with a failure: what is known of it is written down, and the file named.

use std::path::PathBuf;

use wgrad::report::Failure;
use wgrad::{Error, Result};

#[derive(clap::Args)]
pub struct Options {
    /// Where a plan over its budget, a session that does not open or a run that fails is written down, with a snapshot for
    /// <https://pytorch.org/memory_viz>; by default in the folder for temporary files.
    #[arg(long, value_name = "FOLDER")]
    failures: Option<PathBuf>,
}

impl Options {
    /// Passes a result on; of an error that a report helps with, writes down what `known` adds to it.
    pub fn note<T>(&self, result: Result<T>, known: impl FnOnce(Failure) -> Failure) -> Result<T> {
        result.inspect_err(|error: &Error| {
            if Failure::helps_with(error) {
                let folder = self.failures.clone().unwrap_or_else(std::env::temp_dir);
                match known(Failure::of(error)).write(folder) {
                    Ok(path) => eprintln!("what is known of this failure is in {}", path.display()),
                    Err(error) => eprintln!("the failure could not be written down: {error}"),
                }
            }
        })
    }
}
