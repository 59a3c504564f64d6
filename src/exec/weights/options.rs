//! Options for loading a file, and the report on it.

use std::fmt;

use crate::dtype::DType;

/// Options of [`Session::load_with`](crate::exec::Session::load_with).
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Whether a tensor that only the file or only the model has is an error, as in PyTorch's
    /// `load_state_dict(strict=True)`. If not, tensors that match are loaded and [`LoadReport`] names the
    /// rest. Shapes and types that do not match are always an error. The default is `true`.
    pub strict: bool,
    /// How the names of the file's tensors, those of optimizer state included, map to the model's names. The
    /// default is [`Rename::Keep`].
    pub rename: Rename,
    /// Whether parameters may be NaN or infinite. The default is `false`.
    pub accept_non_finite: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { strict: true, rename: Rename::Keep, accept_non_finite: false }
    }
}

/// Mapping of a tensor's name in a file to the model's name.
#[derive(Clone, Debug, Default)]
pub enum Rename {
    /// The name stays the same.
    #[default]
    Keep,
    /// Replaces a prefix of the name. The first pair whose first string is a prefix of the name replaces it
    /// with its second string: `("module.", "")` removes the prefix that PyTorch's `DataParallel` adds,
    /// `("", "encoder.")` adds a prefix to every name. A name that no pair matches stays the same.
    Prefix(Vec<(String, String)>),
    /// Maps the name with this function; a tensor for which it returns `None` is not loaded.
    By(fn(&str) -> Option<String>),
}

impl Rename {
    /// Returns [`Rename::Prefix`] of these pairs: `Rename::prefix([("module.", "")])`.
    pub fn prefix<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::Prefix(pairs.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())).collect())
    }

    /// Returns the model's name for `name`; `None` if the tensor is not to be loaded.
    pub fn apply(&self, name: &str) -> Option<String> {
        match self {
            Self::Keep => Some(name.to_owned()),
            Self::Prefix(pairs) => {
                let replaced =
                    pairs.iter().find_map(|(from, to)| Some(format!("{to}{}", name.strip_prefix(&**from)?)));
                Some(replaced.unwrap_or_else(|| name.to_owned()))
            }
            Self::By(function) => function(name),
        }
    }
}

/// Report on what [`Session::load_with`](crate::exec::Session::load_with) did with a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of tensors loaded.
    pub loaded: usize,
    /// Tensors of the session that the file does not have, by the model's names. They keep their contents.
    pub missing: Vec<String>,
    /// Tensors of the file that the session does not have, by the file's names.
    pub unexpected: Vec<String>,
    /// Tensors whose type in the file differs from the session's.
    pub converted: Vec<Converted>,
    /// Tensors of the file that are not needed, by the file's names.
    pub ignored: Vec<(String, Ignored)>,
    /// The number of training steps, if it was loaded with the optimizer's state.
    pub steps: Option<u64>,
}

/// A tensor that was rounded to nearest, ties to even, or widened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The model's name.
    pub name: String,
    /// Its type in the file: `F16`, `BF16`, `F32` or `F64`.
    pub from: String,
    /// The session's type.
    pub to: DType,
    /// Number of finite elements that became infinite because they exceed the largest number of the session's
    /// type.
    pub overflowed: u64,
}

/// Why a tensor of a file is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// PyTorch's `num_batches_tracked`, an `i64` scalar of each batch norm: it counts batches for averages
    /// with `momentum=None`, which this crate's batch norm does not have.
    BatchCount,
    /// Left out by [`Rename::By`].
    LeftOut,
    /// Equal to another tensor that maps to the same name, such as tied weights.
    Duplicate,
    /// Optimizer state, for a session that only evaluates.
    OptimizerState,
    /// What [`WeightStorage::Bf24`](crate::dtype::WeightStorage::Bf24) adds to 16 bits, for a session with other weights.
    Correction,
    /// Optimizer state that is incomplete in the file: it is loaded whole or not at all.
    PartOfState,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BatchCount => "counts batches",
            Self::LeftOut => "left out by `rename`",
            Self::Duplicate => "equal to another tensor of the same name in the model",
            Self::OptimizerState => "optimizer state, the session only evaluates",
            Self::Correction => "corrects weights in bf24, the session holds them otherwise",
            Self::PartOfState => "part of an optimizer's state",
        })
    }
}

impl LoadReport {
    /// Whether the file and the session have the same tensors.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty()
    }
}

impl fmt::Display for LoadReport {
    /// Formats the number of tensors loaded, and a line for each of the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tensors loaded", self.loaded)?;
        if let Some(steps) = self.steps {
            write!(f, ", after {steps} steps")?;
        }
        for name in &self.missing {
            write!(f, "\n  missing     `{name}`")?;
        }
        for name in &self.unexpected {
            write!(f, "\n  unexpected  `{name}`")?;
        }
        for Converted { name, from, to, overflowed } in &self.converted {
            write!(f, "\n  converted   `{name}` from {from} to {to}")?;
            if *overflowed > 0 {
                write!(f, ", {overflowed} elements became infinite")?;
            }
        }
        for (name, why) in &self.ignored {
            write!(f, "\n  ignored     `{name}`: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_prefix_is_replaced_once() {
        let rename =
            Rename::prefix([("module.", ""), ("module.head.", "never."), ("backbone.", "encoder.backbone.")]);
        let cases = [
            ("module.module.fc.weight", "module.fc.weight"),
            ("module.head.bias", "head.bias"),
            ("backbone.conv1.weight.exp_avg", "encoder.backbone.conv1.weight.exp_avg"),
            ("fc.module.weight", "fc.module.weight"),
        ];
        for (theirs, ours) in cases {
            assert_eq!(rename.apply(theirs).as_deref(), Some(ours));
        }
        assert_eq!(Rename::prefix([("", "net.")]).apply("w").as_deref(), Some("net.w"));
        assert_eq!(Rename::Keep.apply("w").as_deref(), Some("w"));
        assert_eq!(Rename::By(|name| name.strip_suffix(".gamma").map(str::to_owned)).apply("w"), None);
    }
}
