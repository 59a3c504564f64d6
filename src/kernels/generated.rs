//! Kernels whose text is written for a plan. Each distinct text exists once, for as long as the program runs: there are as
//! many as networks have kinds of chains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::table::{self, Held, Kernel};

/// Texts that a generated one may build on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prelude {
    /// `thread_number`
    Grid,
    /// `Elem` and `InMemory`, in fours.
    Fours,
    /// `unary_f` and `slope_f`
    Unary,
    /// `binary_f`
    Binary,
    /// `norm` and `activated` of an `Elem`.
    Norm,
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
            Self::Fours => &[table::ELEM4],
            Self::Unary => &[table::NAN, table::UNARY_FUNCTIONS],
            Self::Binary => &[table::NAN, table::BINARY_FUNCTIONS],
            Self::Norm => &[table::ACTIVATION],
            Self::Dropout => &[table::PCG4D, table::DROPPED],
            Self::F16 => &[table::HALF_F16, table::WIDENED],
            Self::Bf16 => &[table::HALF_BF16, table::WIDENED],
        }
    }
}

/// What a generated kernel is made of, beside its text.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its name, and what follows the number that tells it from others of this name.
    pub name: [String; 2],
    /// Texts in front of its own.
    pub preludes: BTreeSet<Prelude>,
    /// Its own text.
    pub text: String,
    /// Binding numbers of its storage buffers.
    pub slots: Vec<u32>,
}

impl Draft {
    /// The kernel of this text, which has an entry point of 64 threads.
    pub fn kernel(self) -> &'static Kernel {
        self.known(Vec::new(), 64, &[&[]])
    }

    /// The kernel `base` with this text in the place of the one that stores its results.
    pub fn behind(self, base: &Kernel) -> &'static Kernel {
        self.instead(base, text_that_stores(stores(base)))
    }

    /// The kernel `base` with this text in the place of one of its own.
    fn instead(self, base: &Kernel, part: &str) -> &'static Kernel {
        let parts = base.parts.iter().copied().filter(|other| *other != part).collect();
        self.known(parts, base.workgroup, base.variants)
    }

    fn known(
        self,
        mut parts: Vec<&'static str>,
        workgroup: u32,
        variants: &'static [&'static [(&'static str, f64)]],
    ) -> &'static Kernel {
        let mut known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for text in self.preludes.iter().flat_map(|prelude| prelude.texts()) {
            // A kernel may have some of them of its own.
            if !parts.contains(text) {
                parts.push(text);
            }
        }
        let key = (parts, self.text);
        if let Some(kernel) = known.kernels.get(&key) {
            return kernel;
        }
        let mut parts = key.0.clone();
        parts.push(key.1.clone().leak());
        let [name, ending] = &self.name;
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel {
            name: known.unused(name, ending),
            parts: parts.leak(),
            slots: self.slots.leak(),
            workgroup,
            variants,
        }));
        known.kernels.insert(key, kernel);
        kernel
    }
}

/// The matrix product `base`, which reads 32 bits, with operands that are held like this.
pub fn reading(base: &'static Kernel, held: [Held; 2]) -> &'static Kernel {
    if held == [Held::F32; 2] {
        return base;
    }
    let formats: BTreeSet<Held> = held.into_iter().collect();
    let mut parts: Vec<&'static str> = formats.iter().filter_map(|held| held.numbers(base)).collect();
    parts.extend(base.parts.iter().map(|part| {
        let operand = (0..2).find(|&i| Held::F32.operand(i) == *part);
        operand.map_or(*part, |i| held[i].operand(i))
    }));
    let [a, b] = held.map(Held::name);
    let formats = if a == b { a.to_owned() } else { format!("{a}_{b}") };
    of_parts(base, [format!("{}_{formats}", base.name), String::new()], parts)
}

/// How names of kernels end whose result lies over an operand.
const IN_PLACE_ENDING: &str = "_in_place";

/// The kernel `base`, with words of 64 bits where it goes through memory in fours of 32 bits.
pub fn in_long_words(base: &'static Kernel) -> &'static Kernel {
    // A convolution that reads through a norm has fours for its arithmetic alone.
    let in_memory = |part: &&str| *part != table::ELEM4 && part.contains("InMemory");
    if !base.parts.contains(&table::ELEM4) || !base.parts.iter().any(in_memory) {
        return base;
    }
    let exchanged = |part: &&'static str| if *part == table::ELEM4 { table::ELEM4_U64 } else { *part };
    let in_place = base.name.strip_suffix(IN_PLACE_ENDING);
    let ending = if in_place.is_some() { IN_PLACE_ENDING } else { "" };
    let name = [format!("{}_u64", in_place.unwrap_or(base.name)), ending.to_owned()];
    of_parts(base, name, base.parts.iter().map(exchanged).collect())
}

/// The kernel `base`, some of whose texts were exchanged.
fn of_parts(base: &Kernel, name: [String; 2], mut parts: Vec<&'static str>) -> &'static Kernel {
    let text = parts.pop().unwrap_or_default().to_owned();
    let (preludes, slots) = (BTreeSet::new(), base.slots.to_vec());
    Draft { name, preludes, text, slots }.known(parts, base.workgroup, base.variants)
}

/// How a kernel hands over what it stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Four neighbours at once.
    Fours,
    /// Four, each with a place of its own.
    Lanes,
    /// One by one.
    One,
}

fn text_that_stores(stores: Stores) -> &'static str {
    match stores {
        Stores::Fours => table::STORE_FOURS,
        Stores::Lanes => table::STORE_LANES,
        Stores::One => table::STORE_ONE,
    }
}

/// How a product or a convolution hands over what it stores.
pub fn stores(kernel: &Kernel) -> Stores {
    let all = [Stores::Fours, Stores::Lanes, Stores::One];
    let own = all.into_iter().find(|stores| kernel.parts.contains(&text_that_stores(*stores)));
    own.expect("operations that something may follow store by one of the texts for that")
}

/// A convolution, or the gradient of its weight, whose image has elements of 16 bits.
pub fn of_half_image(base: &Kernel, format: Prelude) -> &'static Kernel {
    let name = [base.name.to_owned(), if format == Prelude::F16 { "_f16" } else { "_bf16" }.to_owned()];
    let text = table::IMAGE_HALF.to_owned();
    Draft { name, preludes: [format].into(), text, slots: base.slots.to_vec() }.instead(base, table::IMAGE)
}

/// A convolution in tiles, or the gradient of its weight, by cooperative matrices of `side` × `side`, 8 or 16; `half`: its image is
/// in `f16`. What the kernel reads and stores stays as it is.
pub fn cooperating(base: &'static Kernel, side: u32, half: bool) -> &'static Kernel {
    let mut parts = table::cooperating_parts(base, side, half);
    let text = parts.pop().unwrap_or_default().to_owned();
    let name = base.name.replacen("tiled64", &format!("cooperative{side}"), 1);
    let ending = if half { "_f16" } else { "" }.to_owned();
    let (preludes, slots) = (BTreeSet::new(), base.slots.to_vec());
    Draft { name: [name, ending], preludes, text, slots }.known(parts, 256, table::cooperating_variants(base))
}

#[derive(Default)]
struct Known {
    kernels: BTreeMap<(Vec<&'static str>, String), &'static Kernel>,
    names: BTreeSet<&'static str>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { kernels: BTreeMap::new(), names: BTreeSet::new() });

impl Known {
    /// A name for reports.
    fn unused(&mut self, name: &str, ending: &str) -> &'static str {
        let number = |n: u32| if n == 1 { format!("{name}{ending}") } else { format!("{name}.{n}{ending}") };
        let name = (1..).map(number).find(|name| !self.names.contains(name.as_str())).unwrap_or_default();
        let name: &'static str = name.leak();
        self.names.insert(name);
        name
    }
}
