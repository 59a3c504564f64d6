//! Assembles WGSL from the modules in `shaders/`. There are two kinds of directives, each on a line of its
//! own:
//!
//! - `#import NAME` inserts a module, once per kernel; `#import generated` inserts the generated source of
//!   the kernel, and `#import elementwise/unary_table` the functions of [`Unary`](crate::graph::Unary), `binary_table` those of
//!   [`Binary`](crate::graph::Binary).
//! - `#if CONDITION`, `#elif CONDITION`, `#else`, `#endif`: a condition is a list of `NAME` or `!NAME`, all
//!   combined by `||` or all by `&&`.

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
        pub(crate) const MODULES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../shaders/", $name, ".wgsl")))),*];
    };
}

modules![
    "attention/cpu",
    "attention/cpu_dkv",
    "attention/eights",
    "attention/fours",
    "attention/means",
    "attention/operands",
    "attention/tile",
    "attention/tiled",
    "attention/tiled_dkv",
    "attention/tiles",
    "common/activation",
    "common/elem",
    "common/grid",
    "common/half",
    "common/jobs",
    "common/nan",
    "common/operand",
    "common/pieces",
    "common/random",
    "common/share",
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
    "elementwise/dropout",
    "elementwise/mask",
    "elementwise/unary",
    "elementwise/unary_functions",
    "embedding/embedding",
    "embedding/rotary",
    "embedding/sort",
    "matmul/any",
    "matmul/b_layout",
    "matmul/blocks",
    "matmul/cpu",
    "matmul/cpu8",
    "matmul/cpu_any",
    "matmul/cpu_tn",
    "matmul/operands",
    "matmul/params",
    "matmul/quads",
    "matmul/tiles",
    "movement/copy",
    "norm/batch_norm",
    "norm/batch_norm_grad",
    "norm/batch_norm_sums",
    "norm/batch_stats",
    "norm/channels",
    "norm/row_norm",
    "norm/row_norm_grad",
    "norm/row_norm_kind",
    "norm/row_norm_sums",
    "norm/running_stats",
    "optimizer/adafactor",
    "optimizer/adam",
    "optimizer/adam8",
    "optimizer/dynamic_8bit",
    "optimizer/lion",
    "optimizer/loss_scale",
    "optimizer/moving_average",
    "optimizer/not_finite",
    "optimizer/sgd",
    "optimizer/weight",
    "pool/avg_pool",
    "pool/max_pool",
    "pool/resample",
    "reduce/reduce",
    "softmax/cross_entropy",
    "softmax/cross_entropy_grad",
    "softmax/online",
    "softmax/softmax",
    "softmax/softmax_grad",
    "tile/tile128",
    "tile/tile64",
];

/// Returns the source of `module` with everything that it imports, for these conditions.
pub(crate) fn assemble(module: &'static str, defines: &[&str], generated: Option<&str>) -> String {
    let mut assembly = Assembly { defines, generated, imported: Vec::new(), source: String::new() };
    assembly.import(module);
    assembly.source
}

/// Returns the modules that [`assemble`] inserts, in order of insertion.
pub(crate) fn modules_of(
    module: &'static str,
    defines: &[&str],
    generated: Option<&str>,
) -> Vec<&'static str> {
    let mut assembly = Assembly { defines, generated, imported: Vec::new(), source: String::new() };
    assembly.import(module);
    assembly.imported
}

struct Assembly<'a> {
    defines: &'a [&'a str],
    generated: Option<&'a str>,
    imported: Vec<&'static str>,
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
        let mut branches: Vec<Branch> = Vec::new();
        for line in text.lines() {
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
                _ if !inside => {}
                ("#import", _) => self.import(rest),
                _ => {
                    self.source.push_str(line);
                    self.source.push('\n');
                }
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
    fn unknown_modules_stay_in_the_source() {
        assert_eq!(assemble(GENERATED, &[], Some("#import no/module\n")), "#import no/module\n");
    }

    #[test]
    fn every_directive_is_closed_and_every_name_is_a_module() {
        for (module, source) in MODULES {
            let count =
                |word: &str| source.lines().filter(|line| line.split(' ').next() == Some(word)).count();
            assert_eq!(count("#if"), count("#endif"), "{module}");
            for name in source.lines().filter_map(|line| line.strip_prefix("#import ")) {
                let known = [GENERATED, UNARY_TABLE, BINARY_TABLE].contains(&name)
                    || MODULES.iter().any(|(module, _)| *module == name);
                assert!(known, "{module} imports {name}");
            }
        }
    }
}
