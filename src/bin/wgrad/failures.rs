//! Writes a report of a failure to a file and prints the file's path.

use std::path::PathBuf;

use wgrad::report::Failure;
use wgrad::{Error, Result};

#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Folder for reports of plans over their budget, sessions that do not open and runs that fail, with
    /// snapshots for <https://pytorch.org/memory_viz>; by default the folder for temporary files.
    #[arg(long, value_name = "FOLDER")]
    failures: Option<PathBuf>,
}

impl Options {
    /// Returns the result unchanged. For an error that a report helps with, first writes a report, to which
    /// `known` adds its data.
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
