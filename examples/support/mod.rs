//! What the examples share: their command line.
#![allow(dead_code, reason = "each example uses a part")]

use std::process::ExitCode;
use std::str::FromStr;

use wgrad::device::Device;
use wgrad::{Error, Result};

/// Runs an example; an error is told and is the exit status.
pub fn main(run: impl FnOnce() -> Result<()>) -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Options of the command line.
pub struct Arguments {
    pairs: Vec<(String, String)>,
    flags: Vec<String>,
}

/// Options without a value.
const FLAGS: [&str; 1] = ["--quiet"];

impl Arguments {
    /// Reads the command line. Options are the words of `help` that begin with two dashes; each but [`FLAGS`] takes a value. `None`
    /// after `--help`, which prints the text.
    pub fn parse(help: &str) -> Result<Option<Self>> {
        let (mut pairs, mut flags) = (Vec::new(), Vec::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                println!("{help}");
                return Ok(None);
            }
            let known = help.split([' ', '\n', '[', ']']).any(|other| other == word);
            if !word.starts_with("--") || !known {
                return Err(Error::Option(format!("there is no option {word}\n\n{help}")));
            }
            if FLAGS.contains(&word.as_str()) {
                flags.push(word);
                continue;
            }
            let value =
                words.next().ok_or_else(|| Error::Option(format!("{word} needs a value\n\n{help}")))?;
            pairs.push((word, value));
        }
        Ok(Some(Self { pairs, flags }))
    }

    /// Whether an option without a value is there.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    /// The value of an option, if it is there; of several the last.
    pub fn text(&self, option: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }

    /// The value of an option as a number.
    pub fn number<T: FromStr>(&self, option: &str, default: T) -> Result<T> {
        let Some(value) = self.text(option) else { return Ok(default) };
        value.parse().map_err(|_| Error::Option(format!("{option} {value}: not a number that can be used")))
    }

    /// The adapter of `--adapter`, or the best one.
    pub fn device(&self) -> Result<Device> {
        self.text("--adapter").map_or_else(Device::new, Device::by_name)
    }
}
