//! Kernels whose text is written for a plan. Each distinct text exists once, for as long as the program runs: there are as
//! many as networks have kinds of chains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::table::{self, Kernel};

/// Texts that a generated one may build on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prelude {
    /// `thread_number`
    Grid,
    /// `unary_f` and `slope_f`
    Unary,
    /// `binary_f`
    Binary,
    /// `norm` and `activated` of one element.
    NormOne,
    /// `norm` and `activated` of four.
    NormFour,
    /// `dropout`, which reads `scalars`.
    Dropout,
    /// `widened` of f16.
    F16,
    /// `widened` of bf16.
    Bf16,
}

impl Prelude {
    fn texts(self) -> &'static [&'static str] {
        match self {
            Self::Grid => &[table::GRID],
            Self::Unary => &[table::UNARY_FUNCTIONS],
            Self::Binary => &[table::BINARY_FUNCTIONS],
            Self::NormOne => &[table::ELEM1, table::ACTIVATION],
            Self::NormFour => &[table::ELEM4, table::ACTIVATION],
            Self::Dropout => &[table::PCG4D, table::DROPPED],
            Self::F16 => &[table::HALF_F16, table::WIDENED],
            Self::Bf16 => &[table::HALF_BF16, table::WIDENED],
        }
    }
}

#[derive(Default)]
struct Known {
    kernels: BTreeMap<(Vec<Prelude>, String), &'static Kernel>,
    names: BTreeSet<&'static str>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { kernels: BTreeMap::new(), names: BTreeSet::new() });

/// The kernel of this text, with storage at `slots`; its name begins with `name` and ends with `ending`.
pub fn generated(
    [name, ending]: [&str; 2],
    preludes: &BTreeSet<Prelude>,
    text: String,
    slots: &[u32],
    workgroup: u32,
) -> &'static Kernel {
    let mut known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let preludes: Vec<Prelude> = preludes.iter().copied().collect();
    let key = (preludes, text);
    if let Some(kernel) = known.kernels.get(&key) {
        return kernel;
    }
    let text: &'static str = key.1.clone().leak();
    let mut parts: Vec<&'static str> = key.0.iter().flat_map(|prelude| prelude.texts()).copied().collect();
    parts.push(text);
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel {
        name: known.unused(name, ending),
        parts: parts.leak(),
        slots: slots.to_vec().leak(),
        workgroup,
        variants: &[&[]],
    }));
    known.kernels.insert(key, kernel);
    kernel
}

impl Known {
    /// A device finds pipelines by name.
    fn unused(&mut self, name: &str, ending: &str) -> &'static str {
        let number = |n: u32| if n == 1 { format!("{name}{ending}") } else { format!("{name}.{n}{ending}") };
        let name = (1..).map(number).find(|name| !self.names.contains(name.as_str())).unwrap_or_default();
        let name: &'static str = name.leak();
        self.names.insert(name);
        name
    }
}
