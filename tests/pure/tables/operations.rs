//! The table of operations has every operation, layer, optimizer and schedule of the sources, and no other.

use std::collections::BTreeSet;

use wgrad::graph::Op;
use wgrad::report::{ONNX_CONSTANTS, Operation, operations, operations_markdown};

use super::check;
use crate::source_rules::sources;

/// Methods that return a tensor and record nothing.
const NOT_OPERATIONS: [&str; 2] = ["mistake", "named"];

/// Structs of `nn` that are settings.
const NOT_LAYERS: [&str; 5] = ["BlockConfig", "RecurrentConfig", "States", "Conv", "ConvTranspose"];

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// Splits at commas outside of brackets.
fn arguments(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in list.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(list[start..].trim());
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// `x.name(a, b)` of each public method in the `impl Tensor` blocks of a file that returns tensors.
fn methods(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in text.split("\nimpl Tensor {\n").skip(1) {
        let block = block.split("\n}\n").next().unwrap_or(block);
        for function in block.split("\n    pub fn ").skip(1) {
            let signature = function.split(" {\n").next().unwrap_or(function);
            let Some((head, result)) = signature.rsplit_once(" -> ") else { continue };
            let (name, list) = head.split_once('(').expect("a list of arguments");
            let name = word(name);
            let list = arguments(list.rsplit_once(')').expect("its end").0);
            let takes_self = list.first().is_some_and(|first| matches!(*first, "self" | "&self"));
            let tensors = result.contains("Tensor") || result.trim() == "Self";
            if takes_self && tensors && !NOT_OPERATIONS.contains(&name) {
                let list: Vec<&str> = list[1..].iter().map(|argument| word(argument)).collect();
                found.push(format!("x.{name}({})", list.join(", ")));
            }
        }
    }
    found
}

/// The methods that the table of functions of one element defines: `Clamp(lo = -0.5, hi = 0.8) as clamp saves ..`.
fn unary(text: &str) -> Vec<String> {
    let table =
        text.split("\nfunctions! {\n").nth(1).expect("a table").split("\n}\n").next().expect("its end");
    let entry = |line: &str| {
        let (variant, rest) = line.split_once(" as ")?;
        let list = variant.split_once('(').map_or("", |(_, list)| list.trim_end_matches(')'));
        let list: Vec<&str> = arguments(list).into_iter().map(word).collect();
        rest.contains(" saves ").then(|| format!("x.{}({})", word(rest), list.join(", ")))
    };
    table.lines().filter_map(entry).collect()
}

/// The methods that the table of functions of two elements defines: `Add as add gives ..`.
fn binary(text: &str) -> Vec<String> {
    let table = text.split("\n    methods {\n").nth(1).expect("a table");
    let table = table.split("\n    others {\n").next().expect("its end");
    let entry = |line: &str| {
        let (_, rest) = line.split_once(" as ")?;
        rest.contains(" gives ").then(|| format!("x.{}(other)", word(rest)))
    };
    table.lines().filter_map(entry).collect()
}

/// The variants of an enum.
fn variants(text: &str, name: &str) -> Vec<String> {
    let body = text.split(&format!("\npub enum {name} {{\n")).nth(1).expect("an enum");
    let body = body.split("\n}\n").next().expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let starts = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    starts.map(|line| format!("{name}::{}", word(line))).collect()
}

fn names(group: &[&str]) -> BTreeSet<String> {
    let rows: Vec<Operation> = operations();
    let rows = rows.iter().filter(|row| group.contains(&row.group));
    rows.map(|row| row.wgrad.to_owned()).collect()
}

fn compare(what: &str, table: &BTreeSet<String>, found: impl IntoIterator<Item = String>) {
    let found: BTreeSet<String> = found.into_iter().collect();
    let missing: Vec<_> = found.difference(table).collect();
    let unknown: Vec<_> = table.difference(&found).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "src/report/operations, {what}: without an entry {missing:?}; of no source {unknown:?}"
    );
}

#[test]
fn every_method_that_returns_a_tensor_has_an_entry() {
    let table =
        operations().into_iter().map(|row| row.wgrad.to_owned()).filter(|name| name.starts_with("x."));
    let mut found = Vec::new();
    for source in sources("src") {
        found.extend(methods(&source.text));
        match &source.path[..] {
            "graph/op/unary.rs" => found.extend(unary(&source.text)),
            "graph/op/binary.rs" => found.extend(binary(&source.text)),
            _ => {}
        }
    }
    assert!(found.len() > 130, "only {} methods", found.len());
    compare("methods", &table.collect(), found);
}

#[test]
fn every_layer_has_an_entry() {
    let table = names(&["layers"]).into_iter().filter(|name| name.starts_with("nn::")).collect();
    let declared = |text: &str| -> Vec<String> {
        let starts = ["\npub struct ", "\npub type "];
        let found = starts.iter().flat_map(|start| text.split(start).skip(1).map(word));
        found.filter(|name| !NOT_LAYERS.contains(name)).map(|name| format!("nn::{name}")).collect()
    };
    compare("layers", &table, sources("src/nn").iter().flat_map(|source| declared(&source.text)));
}

#[test]
fn every_initialiser_optimizer_and_schedule_has_an_entry() {
    let all = sources("src");
    let text = |path: &str| &all.iter().find(|source| source.path == path).expect("the file").text;
    let params = text("graph/params.rs");
    let block =
        params.split("\nimpl Init {\n").nth(1).expect("a block").split("\n}\n").next().expect("its end");
    let functions = block.split("\n    pub fn ").skip(1);
    // The first function follows the start of the block.
    let first = block.trim_start().lines().find_map(|line| line.trim().strip_prefix("pub fn "));
    let functions = functions.chain(first).map(|function| format!("Init::{}", word(function)));
    compare("initialisers", &names(&["initialisers"]), variants(params, "Init").into_iter().chain(functions));
    let optimizers = variants(text("optim/mod.rs"), "Optimizer").into_iter();
    let optimizers = optimizers.map(|name| name.replace("Optimizer::", "optim::"));
    let clips = variants(text("optim/clip.rs"), "Clip");
    compare("optimizers", &names(&["optimizers"]), optimizers.chain(clips));
    compare("schedules", &names(&["schedules"]), variants(text("optim/schedule.rs"), "Schedule"));
}

/// A kind of operation has the name of a method or optimizer, or an entry of its own.
#[test]
fn every_kind_of_operation_has_an_entry() {
    let kinds: BTreeSet<&str> = Op::KINDS.iter().copied().collect();
    let mut others = BTreeSet::new();
    let mut named = BTreeSet::new();
    for row in operations() {
        if row.group == "recorded by the compiler" {
            others.insert(row.wgrad);
        } else {
            let name = row.wgrad.trim_start_matches("x.").trim_start_matches("optim::");
            named.insert(word(name).to_lowercase());
        }
    }
    let own = kinds.iter().filter(|kind| !named.contains(**kind)).map(|kind| (*kind).to_owned());
    compare("kinds of operations", &others.into_iter().map(str::to_owned).collect(), own);
}

#[test]
fn every_node_of_onnx_is_in_the_table() {
    let mut table: BTreeSet<String> = ONNX_CONSTANTS.iter().map(|&name| name.to_owned()).collect();
    for row in operations() {
        table.extend(row.onnx.iter().map(|&name| name.to_owned()));
    }
    let nodes = |text: &str| -> Vec<String> {
        let table = text.split("const OPS: &[(&str, Handler)] = &[\n").nth(1).unwrap_or_default();
        let table = table.split("\n];\n").next().unwrap_or_default();
        let names = table.lines().filter_map(|line| line.strip_prefix("    (\""));
        names.map(|line| word(line).to_owned()).collect()
    };
    compare("nodes of ONNX", &table, sources("src/onnx/ops").iter().flat_map(|source| nodes(&source.text)));
}

#[test]
fn entries_are_complete_and_different() {
    let mut known = BTreeSet::new();
    for row in operations() {
        assert!(known.insert(row.wgrad), "{} twice", row.wgrad);
        assert!(!row.note.is_empty(), "{} has neither formula nor note", row.wgrad);
        let is_method = row.wgrad.starts_with("x.") && row.group != "layers";
        assert!(
            row.gradient.is_some() || !is_method || row.wgrad.contains("s, t") || row.wgrad.contains("_like")
        );
    }
}

#[test]
fn table_of_operations_matches_the_code() {
    check("docs/ops.md", "operations", &operations_markdown(&operations()));
}
