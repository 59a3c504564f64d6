//! Assembles WGSL from the modules in `shaders/`. There are three kinds of directives, each on a line of its
//! own:
//!
//! - `#import NAME` inserts a module, once per kernel; `#import generated` inserts the generated source of
//!   the kernel, and `#import elementwise/unary_table` the functions of [`Unary`](crate::graph::Unary), `binary_table` those of
//!   [`Binary`](crate::graph::Binary).
//! - `#if CONDITION`, `#elif CONDITION`, `#else`, `#endif`: a condition is a list of `NAME` or `!NAME`, all
//!   combined by `||` or all by `&&`.
//! - `#let NAME NUMBER` names a number. `#repeat NAME COUNT`, `#endrepeat`: the lines between are inserted COUNT
//!   times, with 0, 1, 2, … as the number of that name.
//!
//! `$NAME` is replaced by a number, `$(NAME / 4 % 2)` by an expression of them.

use std::borrow::Cow;

use super::elementwise::{binary_table, unary_table};

/// The modules that are generated from the tables of functions.
const UNARY_TABLE: &str = "elementwise/unary_table";
const BINARY_TABLE: &str = "elementwise/binary_table";

/// The module that is generated for a kernel.
pub(crate) const GENERATED: &str = "generated";

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        /// Every module with its source, sorted by name.
        pub(crate) const MODULES: &[(&str, &str)] = &[$(($name, {
            const TEXT: &[u8] = include_bytes!(concat!("../../shaders/", $name, ".wgsl"));
            const BARE: [u8; bare::<0>(TEXT).1] = bare(TEXT).0;
            match std::str::from_utf8(&BARE) {
                Ok(source) => source,
                Err(_) => panic!("not UTF-8"),
            }
        })),*];
    };
}

/// The first `N` bytes of a source without comments, indentation and empty lines, and the number of all: pages download it.
const fn bare<const N: usize>(text: &[u8]) -> ([u8; N], usize) {
    let (mut source, mut length) = ([0; N], 0);
    let (mut i, mut begins_line) = (0, true);
    while i < text.len() {
        let byte = text[i];
        if byte == b'/' && i + 1 < text.len() && text[i + 1] == b'/' {
            while i < text.len() && text[i] != b'\n' {
                i += 1;
            }
            continue;
        }
        i += 1;
        if begins_line && (byte == b' ' || byte == b'\n') {
            continue;
        }
        begins_line = byte == b'\n';
        if length < N {
            source[length] = byte;
        }
        length += 1;
    }
    (source, length)
}

modules![
    "attention/cache",
    "attention/cached",
    "attention/cpu",
    "attention/cpu_dkv",
    "attention/means",
    "attention/operands",
    "attention/scores",
    "attention/tile",
    "attention/tiled",
    "attention/tiled_dkv",
    "attention/tiles",
    "common/activation",
    "common/codes",
    "common/elem",
    "common/grid",
    "common/half",
    "common/held",
    "common/jobs",
    "common/lanes",
    "common/nan",
    "common/operand",
    "common/pieces",
    "common/random",
    "common/store",
    "conv/bias",
    "conv/conv",
    "conv/cpu",
    "conv/direct",
    "conv/operands",
    "conv/pack",
    "conv/source",
    "conv/unroll",
    "conv/weight",
    "conv/weight_cpu",
    "conv/weight_operands",
    "cooperative/main",
    "cooperative/matrices",
    "cooperative/product",
    "cooperative/tiles",
    "elementwise/binary",
    "elementwise/binary_functions",
    "elementwise/cast",
    "elementwise/mask",
    "elementwise/unary",
    "elementwise/unary_functions",
    "embedding/embedding",
    "embedding/rotary",
    "embedding/sort",
    "indices/argsort",
    "indices/gather",
    "matmul/any",
    "matmul/blocks",
    "matmul/cpu",
    "matmul/cpu_any",
    "matmul/operands",
    "matmul/params",
    "matmul/quads",
    "matmul/tiles",
    "movement/copy",
    "norm/batch_norm",
    "norm/batch_norm_sums",
    "norm/batch_stats",
    "norm/channels",
    "norm/row_norm",
    "norm/row_norm_grad",
    "norm/row_norm_kind",
    "norm/row_norm_sums",
    "optimizer/adafactor",
    "optimizer/adam",
    "optimizer/adam_codes",
    "optimizer/adam_mini",
    "optimizer/lion",
    "optimizer/loss_scale",
    "optimizer/moment_codes",
    "optimizer/moving_average",
    "optimizer/not_finite",
    "optimizer/rmsprop",
    "optimizer/sgd",
    "optimizer/weight",
    "pool/avg_pool",
    "pool/max_pool",
    "pool/resample",
    "recurrent/gates",
    "reduce/parts",
    "reduce/reduce",
    "softmax/cross_entropy",
    "softmax/cross_entropy_grad",
    "softmax/softmax",
    "softmax/softmax_grad",
    "tile/tile",
];

/// Returns the source of `module` with everything that it imports, for these conditions.
pub(crate) fn assemble(module: &'static str, defines: &[&str], generated: Option<&str>) -> String {
    assembly_of(module, defines, generated).source
}

/// Returns the modules that [`assemble`] inserts, in order of insertion.
pub(crate) fn modules_of(
    module: &'static str,
    defines: &[&str],
    generated: Option<&str>,
) -> Vec<&'static str> {
    assembly_of(module, defines, generated).imported
}

fn assembly_of<'a>(module: &str, defines: &'a [&'a str], generated: Option<&'a str>) -> Assembly<'a> {
    let (imported, numbers) = (Vec::new(), Vec::new());
    let mut assembly = Assembly { defines, generated, imported, numbers, source: String::new() };
    assembly.import(module);
    assembly
}

/// Number of lines before the `#endrepeat` of a `#repeat` just before these lines.
fn repeated(lines: &[&str]) -> usize {
    let mut depth = 1;
    let ends = |line: &&str| {
        let word = line.split(' ').next();
        depth += i32::from(word == Some("#repeat")) - i32::from(word == Some("#endrepeat"));
        depth == 0
    };
    lines.iter().position(ends).unwrap_or(lines.len())
}

struct Assembly<'a> {
    defines: &'a [&'a str],
    generated: Option<&'a str>,
    imported: Vec<&'static str>,
    /// Numbers by name; later ones hide earlier ones of the same name.
    numbers: Vec<(String, u32)>,
    source: String,
}

/// State of one `#if`: whether the following lines are inserted, and whether some branch has been taken.
struct Branch {
    active: bool,
    taken: bool,
}

impl<'a> Assembly<'a> {
    /// Inserts a module. An unknown name stays in the source as a directive, which WGSL compilers reject.
    fn import(&mut self, name: &str) {
        let known = MODULES.iter().find(|(module, _)| *module == name);
        let (module, text): (&'static str, Cow<'a, str>) = match (name, self.generated, known) {
            (GENERATED, Some(generated), _) => (GENERATED, generated.into()),
            (UNARY_TABLE, ..) => (UNARY_TABLE, unary_table().into()),
            (BINARY_TABLE, ..) => (BINARY_TABLE, binary_table().into()),
            (.., Some((module, source))) => (module, (*source).into()),
            _ => {
                self.source.push_str(&format!("#import {name}\n"));
                return;
            }
        };
        if self.imported.contains(&module) {
            return;
        }
        self.imported.push(module);
        self.insert(&text.lines().collect::<Vec<_>>());
    }

    fn insert(&mut self, lines: &[&str]) {
        let mut branches: Vec<Branch> = Vec::new();
        let mut at = 0;
        while let Some(&line) = lines.get(at) {
            at += 1;
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let inside = branches.iter().all(|branch| branch.active);
            match (word, branches.last_mut()) {
                ("#if", _) => {
                    let holds = self.holds(rest);
                    branches.push(Branch { active: holds, taken: holds });
                }
                ("#elif", Some(branch)) => {
                    branch.active = !branch.taken && self.holds(rest);
                    branch.taken |= branch.active;
                }
                ("#else", Some(branch)) => branch.active = !branch.taken,
                ("#endif", Some(_)) => drop(branches.pop()),
                ("#repeat", _) => {
                    let body = &lines[at..at + repeated(&lines[at..])];
                    at += body.len() + 1;
                    if inside {
                        self.repeat(rest, body);
                    }
                }
                _ if !inside => {}
                ("#import", _) => self.import(rest),
                ("#let", _) => {
                    if let Some((name, value)) = self.named_number(rest) {
                        self.numbers.push((name, value));
                    }
                }
                _ => {
                    let line = self.substitute(line);
                    self.source.push_str(&line);
                    self.source.push('\n');
                }
            }
        }
    }

    fn repeat(&mut self, head: &str, body: &[&str]) {
        let Some((name, count)) = self.named_number(head) else { return };
        let outside = self.numbers.len();
        for i in 0..count {
            self.numbers.push((name.clone(), i));
            self.insert(body);
            self.numbers.truncate(outside);
        }
    }

    /// Reads `NAME NUMBER`, where the number may be given by other names.
    fn named_number(&self, text: &str) -> Option<(String, u32)> {
        let text = self.substitute(text);
        let (name, value) = text.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    }

    /// Replaces `$NAME` and `$(…)`. What is not a number stays, and WGSL compilers reject the `$`.
    fn substitute<'t>(&self, line: &'t str) -> Cow<'t, str> {
        if !line.contains('$') {
            return line.into();
        }
        let mut parts = line.split('$');
        let mut result = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (expression, rest) = match part.strip_prefix('(').and_then(|part| part.split_once(')')) {
                Some(split) => split,
                None => {
                    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    part.split_at(part.find(|c| !word(c)).unwrap_or(part.len()))
                }
            };
            match self.evaluate(expression) {
                Some(number) => result.push_str(&format!("{number}{rest}")),
                None => result.push_str(&format!("${part}")),
            }
        }
        result.into()
    }

    fn evaluate(&self, expression: &str) -> Option<u32> {
        let number = |word: &str| {
            let named = self.numbers.iter().rev().find(|(name, _)| name == word);
            named.map(|(_, value)| *value).or_else(|| word.parse().ok())
        };
        // A sum of products: `sum` is complete, `product` is not.
        let (mut sum, mut product, mut negative) = (0i64, None, false);
        let mut words = expression.split_whitespace();
        let mut operator = "*";
        loop {
            let other = i64::from(number(words.next()?)?);
            product = Some(match (operator, product) {
                (_, None) => other,
                ("*", Some(product)) => i64::checked_mul(product, other)?,
                ("/", Some(product)) => i64::checked_div(product, other)?,
                ("%", Some(product)) => i64::checked_rem(product, other)?,
                _ => return None,
            });
            operator = words.next().unwrap_or_default();
            if ["+", "-", ""].contains(&operator) {
                let product = product.take()?;
                sum = sum.checked_add(if negative { -product } else { product })?;
                negative = operator == "-";
            }
            if operator.is_empty() {
                return u32::try_from(sum).ok();
            }
        }
    }

    fn holds(&self, condition: &str) -> bool {
        let name = |name: &str| match name.trim().strip_prefix('!') {
            Some(name) => !self.defines.contains(&name),
            None => self.defines.contains(&name.trim()),
        };
        if condition.contains("||") {
            condition.split("||").any(name)
        } else {
            condition.split("&&").all(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_without_comments_and_indentation() {
        let text = b"// A.\n\n    a / b; // C.\n  d\n";
        let (source, length) = bare::<20>(text);
        assert_eq!(&source[..length], b"a / b; \nd\n");
        assert_eq!(bare::<0>(text).1, length);
        for (name, source) in MODULES {
            let needless = |line: &str| line.is_empty() || line.starts_with(' ') || line.contains("//");
            assert!(!source.is_empty() && !source.lines().any(needless), "{name}");
        }
    }

    #[test]
    fn imports_are_inserted_once_and_branches_follow_conditions() {
        let generated = "#import common/pieces\n#if A\na\n#elif !B || C\nb\n#if A\nno\n#endif\n#else\nc\n#endif\n#import common/pieces\n";
        let of = |defines: &[&str]| {
            let source = assemble(GENERATED, defines, Some(generated));
            assert_eq!(source.matches("fn piece_of").count(), 1);
            source
                .lines()
                .filter(|line| line.len() < 3 && *line != "}" && !line.is_empty())
                .collect::<String>()
        };
        assert_eq!(
            [of(&["A"]), of(&[]), of(&["B", "C"]), of(&["B"]), of(&["A", "B"])],
            ["a", "b", "b", "c", "a"]
        );
    }

    #[test]
    fn repeated_lines_are_inserted_with_their_number() {
        let of = |source: &str| assemble(GENERATED, &["A"], Some(source));
        let source = "#let N 2\n#repeat i $N\n#repeat j $(N * 2)\n#if A\nc$(i)_$j = $(i * 4 + j % 3 - i)u;\n#endif\n#endrepeat\n#endrepeat\nend $N\n";
        assert_eq!(
            of(source),
            "c0_0 = 0u;\nc0_1 = 1u;\nc0_2 = 2u;\nc0_3 = 0u;\nc1_0 = 3u;\nc1_1 = 4u;\nc1_2 = 5u;\nc1_3 = 3u;\nend 2\n"
        );
        assert_eq!(of("#if B\n#repeat i 2\n#else\n#endrepeat\n#endif\na $b $(1 / 0)\n"), "a $b $(1 / 0)\n");
    }

    #[test]
    fn unknown_modules_stay_in_the_source() {
        assert_eq!(assemble(GENERATED, &[], Some("#import no/module\n")), "#import no/module\n");
    }

    #[test]
    fn every_directive_is_closed_and_every_name_is_a_module() {
        for (module, source) in MODULES {
            let count =
                |word: &str| source.lines().filter(|line| line.split(' ').next() == Some(word)).count();
            assert_eq!(count("#if"), count("#endif"), "{module}");
            assert_eq!(count("#repeat"), count("#endrepeat"), "{module}");
            for name in source.lines().filter_map(|line| line.strip_prefix("#import ")) {
                let known = [GENERATED, UNARY_TABLE, BINARY_TABLE].contains(&name)
                    || MODULES.iter().any(|(module, _)| *module == name);
                assert!(known, "{module} imports {name}");
            }
        }
    }
}
