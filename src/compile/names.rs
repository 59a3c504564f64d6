//! What is recomputed and offloaded, by the names of the command line.

use super::{Activations, Offload, Recompute};
use crate::error::{Error, Result};
use crate::units::Bytes;

impl Recompute {
    /// Returns a choice by name: `off`, `auto`, `sqrt`, `policy`, `every:N` for segments of N layers, or `named:PATH,PATH`. Paths
    /// stay in memory as long as the process.
    ///
    /// # Errors
    /// [`Error::Setting`] for other names.
    pub fn named(name: &str) -> Result<Self> {
        let wrong = || {
            let message =
                format!("recompute {name}: expected off, auto, every:N, sqrt, policy or named:PATH,PATH");
            Error::setting("recompute", message)
        };
        Ok(match name.split_once(':') {
            None => match name {
                "off" => Self::Off,
                "auto" => Self::Auto,
                "sqrt" => Self::Sqrt,
                "policy" => Self::Policy,
                _ => return Err(wrong()),
            },
            Some(("every", n)) => Self::Every(n.parse().ok().filter(|&n: &u32| n > 0).ok_or_else(wrong)?),
            Some(("named", layers)) => Self::Named(leaked(layers, ',')),
            Some(_) => return Err(wrong()),
        })
    }
}

impl Offload {
    /// Returns a choice by name: `off`, or a list, separated by commas, of `optimizer` and one of `activations`,
    /// `activations:SIZE` and `activations:PATH+PATH`. Paths stay in memory as long as the process.
    ///
    /// # Errors
    /// [`Error::Setting`] for other names.
    pub fn named(name: &str) -> Result<Self> {
        let wrong = || {
            Error::setting(
                "offload",
                format!(
                    "offload {name}: expected off, optimizer, activations, activations:SIZE or activations:PATH+PATH, or \
                     optimizer and one of the others with a comma between"
                ),
            )
        };
        let mut offload = Self::OFF;
        if name == "off" {
            return Ok(offload);
        }
        for part in name.split(',') {
            let (what, which) =
                part.split_once(':').map_or((part, None), |(what, which)| (what, Some(which)));
            match (what, which) {
                ("optimizer", None) if !offload.optimizer => offload.optimizer = true,
                ("activations", which) if offload.activations == Activations::Keep => {
                    offload.activations = match which {
                        None => Activations::All,
                        Some("") => return Err(wrong()),
                        Some(which) => match which.parse::<Bytes>() {
                            Ok(bytes) => Activations::Most(bytes),
                            Err(message) if is_size(which) => {
                                return Err(Error::setting("offload", format!("offload {name}: {message}")));
                            }
                            Err(_) => Activations::Layers(leaked(which, '+')),
                        },
                    };
                }
                _ => return Err(wrong()),
            }
        }
        Ok(offload)
    }
}

/// Whether a text is a number of bytes rather than the path of a layer.
fn is_size(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim().to_ascii_lowercase();
    unit.len() < text.len() && unit.len() <= 3 && unit.ends_with('b')
}

/// Splits paths at separators and leaks them: options are `Copy`.
fn leaked(text: &str, separator: char) -> &'static [&'static str] {
    let paths: Vec<&'static str> =
        text.split(separator).map(|path| &*String::leak(path.to_owned())).collect();
    Vec::leak(paths)
}
