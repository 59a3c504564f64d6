//! The table of operations: each operation, layer, optimizer and schedule with its name in PyTorch. `wgrad ops` prints it, and
//! docs/ops.md has it; tests compare it with the sources.

mod attention;
mod layers;
mod tensors;

use super::table::Table;
use crate::graph::{Binary, Results, Saves, Unary};
use crate::json::Json;

/// A row of the table of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Group: `elementwise`, `losses`, `layers` and so on.
    pub group: &'static str,
    /// Name in wgrad, of methods with their arguments: `x.clamp(lo, hi)`, `nn::Linear`.
    pub wgrad: &'static str,
    /// Names in PyTorch, separated by commas, with `F` for `torch.nn.functional`; empty if it has none.
    pub pytorch: &'static str,
    /// Formula, shapes or difference.
    pub note: &'static str,
    /// Whether gradients reach its operands or parameters; `None` for what has no operands.
    pub gradient: Option<bool>,
    /// Kinds of nodes in ONNX files that are recorded as it.
    pub onnx: &'static [&'static str],
}

/// A row as it is written down. The note and the gradient of functions of elements are empty: their own tables have them.
struct Row {
    wgrad: &'static str,
    pytorch: &'static str,
    note: &'static str,
    gradient: Option<bool>,
    onnx: &'static [&'static str],
}

const fn row(
    wgrad: &'static str,
    pytorch: &'static str,
    note: &'static str,
    gradient: Option<bool>,
    onnx: &'static [&'static str],
) -> Row {
    Row { wgrad, pytorch, note, gradient, onnx }
}

/// A function of elements, described in [`Unary`] or [`Binary`].
const fn function(wgrad: &'static str, pytorch: &'static str, onnx: &'static [&'static str]) -> Row {
    row(wgrad, pytorch, "", None, onnx)
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

/// Kinds of nodes in ONNX files that are computed from shapes and constants when the network is traced, and recorded as no
/// operation.
pub const ONNX_CONSTANTS: &[&str] = &[
    "Constant",
    "ConstantOfShape",
    "EyeLike",
    "If",
    "Mod",
    "NonZero",
    "Range",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "Shape",
    "Size",
];

const GROUPS: [(&str, &[Row]); 14] = [
    ("elementwise", tensors::ELEMENTWISE),
    ("reductions", tensors::REDUCTIONS),
    ("shapes and indices", tensors::SHAPES),
    ("products", tensors::PRODUCTS),
    ("convolution and pools", tensors::IMAGES),
    ("norms", tensors::NORMS),
    ("attention", attention::ATTENTION),
    ("losses", tensors::LOSSES),
    ("random", tensors::RANDOM),
    ("layers", layers::LAYERS),
    ("initialisers", layers::INITIALISERS),
    ("optimizers", layers::OPTIMIZERS),
    ("schedules", layers::SCHEDULES),
    ("recorded by the compiler", layers::COMPILER),
];

/// Returns the table of operations, group by group.
pub fn operations() -> Vec<Operation> {
    let of = |group: &'static str, row: &Row| {
        let Row { wgrad, pytorch, note, gradient, onnx } = *row;
        let (note, gradient) = if note.is_empty() { described(name(wgrad)) } else { (note, gradient) };
        Operation { group, wgrad, pytorch, note: note.trim(), gradient, onnx }
    };
    GROUPS.iter().flat_map(|(group, rows)| rows.iter().map(move |row| of(group, row))).collect()
}

/// The name in `x.name(a, b)`.
fn name(method: &str) -> &str {
    let method = method.strip_prefix("x.").unwrap_or(method);
    method.split('(').next().unwrap_or(method)
}

/// Returns the description of a function of elements, and whether it passes gradients.
fn described(name: &str) -> (&'static str, Option<bool>) {
    if let Some(f) = Unary::TABLE.iter().find(|f| f.name == name) {
        let flat = f.saves == Saves::Nothing && f.slope_at(1.0) == 0.0;
        return (f.doc, Some(!flat));
    }
    let binary = Binary::TABLE.iter().find(|f| f.name == name);
    binary.map_or(("", None), |f| (f.doc, Some(f.results != Results::Flags)))
}

impl Operation {
    fn gradient(&self) -> &'static str {
        self.gradient.map_or("–", |gradient| if gradient { "yes" } else { "no" })
    }
}

const COLUMNS: [&str; 5] = ["wgrad", "PyTorch", "formula or note", "gradient", "ONNX"];

/// Groups of consecutive operations.
fn groups(operations: &[Operation]) -> impl Iterator<Item = &[Operation]> {
    operations.chunk_by(|a, b| a.group == b.group)
}

/// Returns operations as a text table for each group.
pub fn operations_text(operations: &[Operation]) -> String {
    let mut text = String::new();
    for group in groups(operations) {
        let mut table = Table::new(&COLUMNS.map(|name| (name, true)));
        for operation in group {
            let onnx = operation.onnx.join(", ");
            table.row([
                operation.wgrad.to_owned(),
                operation.pytorch.to_owned(),
                operation.note.replace('`', ""),
                operation.gradient().to_owned(),
                onnx,
            ]);
        }
        let line_feed = if text.is_empty() { "" } else { "\n" };
        text += &format!("{line_feed}{}\n{}", group[0].group, table.lines());
    }
    text
}

/// Returns operations as a Markdown table for each group, with the group as a heading.
pub fn operations_markdown(operations: &[Operation]) -> String {
    // A bar ends a cell, in code too.
    let cell = |text: &str| text.replace('|', "\\|");
    let code = |names: &str| match names {
        "" => "–".to_owned(),
        names => names.split(", ").map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let mut text = String::new();
    for group in groups(operations) {
        let line_feed = if text.is_empty() { "" } else { "\n" };
        text += &format!("{line_feed}### {}\n\n| {} |\n", capital(group[0].group), COLUMNS.join(" | "));
        text += &format!("|{}\n", "---|".repeat(COLUMNS.len()));
        for operation in group {
            text += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                operation.wgrad,
                code(operation.pytorch),
                cell(operation.note),
                operation.gradient(),
                operation.onnx.join(", ")
            );
        }
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns operations as a JSON array with one object for each.
pub fn operations_json(operations: &[Operation]) -> Json {
    let names = |list: &str| Json::list(list.split(", ").filter(|name| !name.is_empty()));
    let one = |operation: &Operation| {
        Json::object([
            ("group", operation.group.into()),
            ("wgrad", operation.wgrad.into()),
            ("pytorch", names(operation.pytorch)),
            ("note", operation.note.into()),
            ("gradient", operation.gradient.map_or(Json::Null, Json::from)),
            ("onnx", Json::list(operation.onnx.iter().copied())),
        ])
    };
    Json::List(operations.iter().map(one).collect())
}
