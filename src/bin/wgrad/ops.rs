//! `wgrad ops`: the table of operations.

use wgrad::report::{operations, operations_json, operations_text};

#[derive(clap::Args)]
pub struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) {
    let table = operations();
    match options.json {
        true => println!("{}", operations_json(&table)),
        false => print!("{}", operations_text(&table)),
    }
}
