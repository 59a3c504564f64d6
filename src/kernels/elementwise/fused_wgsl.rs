//! Generated WGSL of a chain of elementwise functions.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::dropout_words;
use crate::dtype::DType;
use crate::graph::{Arg, FusedElementwise, FusedOp, Op, Read, Unary};
use crate::kernels::Kernel;
use crate::kernels::norm::batch;
use crate::shape::Shape;

/// How a product or a convolution passes its results to the function `store` of `shaders/common/store.wgsl`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// Four neighbours as a vec4, with one index.
    Vec4,
    /// Four elements, each with its own index.
    Lanes,
    /// One by one.
    One,
}

impl Stores {
    pub(super) fn of(kernel: &Kernel) -> Self {
        match () {
            () if kernel.is("STORE_VEC4") => Self::Vec4,
            () if kernel.is("STORE_LANES") => Self::Lanes,
            () => Self::One,
        }
    }
}

/// Where the four elements lie that a thread computes together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// vec4 `i` of `y`; one thread for each.
    Alone,
    /// In `c`, as an epilogue, at the indices that the kernel stores to; operands are bound from `slots` on.
    Epilogue { stores: Stores, slots: u32 },
}

impl Layout {
    /// Returns the binding of an operand.
    pub(super) fn slot(self, operand: usize) -> u32 {
        match self {
            Self::Alone => operand as u32 + 2,
            // Operand 0 is the result of the operation.
            Self::Epilogue { slots, .. } => slots + operand as u32 - 1,
        }
    }

    /// Returns how an epilogue receives its elements; `None` for a chain by itself, which reads them.
    fn stores(self) -> Option<Stores> {
        match self {
            Self::Alone => None,
            Self::Epilogue { stores, .. } => Some(stores),
        }
    }

    /// Returns the type of four neighbours in memory.
    fn vec4(self) -> &'static str {
        if self == Self::Alone { "InMemory" } else { "vec4<f32>" }
    }

    /// Returns the expression that reads four neighbours.
    fn four(self, memory: &str, at: &str) -> String {
        let read = format!("{memory}[{at}]");
        if self == Self::Alone { format!("from_memory({read})") } else { read }
    }

    fn params(self) -> &'static str {
        if self == Self::Alone { "p" } else { "p.rest" }
    }

    fn result(self) -> &'static str {
        if self == Self::Alone { "y" } else { "c" }
    }
}

const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// An expression for four elements: a vector, or one number that all four share.
#[derive(Clone)]
struct Four {
    name: String,
    shared: bool,
}

impl Four {
    fn vector(&self) -> String {
        if self.shared { format!("vec4({})", self.name) } else { self.name.clone() }
    }
}

/// Writer of the source of one chain, and of the words of its `Params` from `zero` on.
pub(super) struct Writer {
    layout: Layout,
    bindings: String,
    fields: String,
    body: String,
    pub(super) words: Vec<u32>,
    imports: BTreeSet<&'static str>,
    pub(super) defines: BTreeSet<&'static str>,
    strips: Vec<Read>,
}

impl Writer {
    pub(super) fn new(
        layout: Layout,
        chain: &FusedElementwise,
        operands: &[(Shape, DType)],
        in_place: Option<usize>,
    ) -> Self {
        let mut writer = Self::empty(layout);
        let shapes: Vec<Shape> = operands.iter().map(|(shape, _)| *shape).collect();
        let reads = chain.reads(&shapes).expect("a chain is made of operands that it can read");
        let mut loaded = Vec::new();
        for (k, read) in reads.iter().enumerate() {
            let over = in_place == Some(k);
            loaded.push(writer.load(k, *read, operands[k].1, over));
        }
        let mut results: Vec<Four> = Vec::new();
        for (j, link) in chain.links().iter().enumerate() {
            let args: Vec<Four> = link
                .args
                .iter()
                .map(|arg| match *arg {
                    Arg::Operand(k) => loaded[k].clone(),
                    Arg::Result(j) => results[j].clone(),
                })
                .collect();
            let last = j + 1 == chain.links().len();
            let result = writer.link(j, link, &args, last);
            results.push(result);
        }
        let last = results.last().map(Four::vector).unwrap_or_default();
        writer.line(&format!("let result = {last};"));
        writer
    }

    /// Writes an epilogue that is a function or its gradient over its own result: one source, selected by a
    /// word of the parameters.
    pub(super) fn both_ways(layout: Layout, f: Unary, back: bool) -> Self {
        let mut writer = Self::empty(layout);
        let product = writer.load(0, Read::Whole, DType::F32, false).vector();
        let saved = writer.load(1, Read::Whole, DType::F32, true).vector();
        let back = writer.field("back", "u32", u32::from(back));
        let (constants, f) = (writer.unary(0, f), f.name());
        writer.line(&format!("let there = unary_{f}({product}, {constants});"));
        writer.line(&format!("let slope = slope_{f}({saved}, {constants});"));
        writer.line(&format!("let result = select(there, {product} * slope, vec4({back} == 1u));"));
        writer
    }

    fn empty(layout: Layout) -> Self {
        Self {
            layout,
            bindings: String::new(),
            fields: String::new(),
            body: String::new(),
            words: vec![0],
            imports: BTreeSet::new(),
            defines: BTreeSet::new(),
            strips: Vec::new(),
        }
    }

    /// Imports a module of `shaders/`.
    pub(super) fn import(&mut self, module: &'static str) {
        self.imports.insert(module);
    }

    /// Sets a condition of the imported modules.
    pub(super) fn define(&mut self, name: &'static str) {
        self.defines.insert(name);
    }

    /// Imports the functions that widen 16-bit elements.
    fn import_half(&mut self, dtype: DType) {
        self.import("common/half");
        self.define(if dtype == DType::F16 { "F16" } else { "BF16" });
    }

    fn line(&mut self, text: &str) {
        self.body.push_str("    ");
        self.body.push_str(text);
        self.body.push('\n');
    }

    /// Adds a field to `Params` and returns its expression.
    fn field(&mut self, name: &str, kind: &str, word: u32) -> String {
        // Writing to a string cannot fail.
        let _ = writeln!(self.fields, "    {name}: {kind},");
        self.words.push(word);
        format!("{}.{name}", self.layout.params())
    }

    fn bind(&mut self, operand: usize, name: &str, elements: &str) {
        let slot = self.layout.slot(operand);
        let _ = writeln!(
            self.bindings,
            "@group(0) @binding({slot}) var<storage, read_write> {name}: array<{elements}>;"
        );
    }

    fn lanes(memory: &str, at: &str) -> String {
        let lanes = LANES.map(|lane| format!("{memory}[{at}.{lane}]"));
        format!("vec4({})", lanes.join(", "))
    }

    fn load(&mut self, k: usize, read: Read, dtype: DType, over: bool) -> Four {
        let (name, memory) = (format!("v{k}"), format!("x{k}"));
        let apart = self.layout.stores() == Some(Stores::Lanes);
        let one = self.layout.stores() == Some(Stores::One);
        let mut shared = false;
        let value = match read {
            // `kept` stops compilers from combining the operation's arithmetic with the epilogue's.
            _ if k == 0 && self.layout != Layout::Alone => "kept(vec4(product))".to_owned(),
            Read::Words => {
                self.bind(k, "scalars", "u32");
                return Four { name, shared };
            }
            Read::Whole if dtype.is_half() && (apart || one) => {
                self.import_half(dtype);
                self.bind(k, &memory, "u32");
                let at = if one { "vec4(at)" } else { "at" };
                let words = LANES.map(|lane| format!("{memory}[{at}.{lane} >> 1u]")).join(", ");
                format!("one_of_two(vec4({words}), {at})")
            }
            Read::Whole if one => {
                shared = true;
                if over {
                    format!("{}[at]", self.layout.result())
                } else {
                    self.bind(k, &memory, "f32");
                    format!("{memory}[at]")
                }
            }
            Read::Whole if over && apart => Self::lanes(self.layout.result(), "at"),
            Read::Whole if over => self.layout.four(self.layout.result(), "i"),
            Read::Whole if apart => {
                self.bind(k, &memory, "f32");
                Self::lanes(&memory, "at")
            }
            Read::Whole if dtype.is_half() => {
                self.import_half(dtype);
                self.bind(k, &memory, "vec2<u32>");
                format!("bitcast<vec4<f32>>(widened({memory}[i]))")
            }
            Read::Whole => {
                self.bind(k, &memory, self.layout.vec4());
                self.layout.four(&memory, "i")
            }
            Read::Strip { len: 1, .. } => {
                self.bind(k, &memory, "f32");
                shared = true;
                format!("{memory}[0]")
            }
            Read::Strip { inner, len } => {
                let as_vec4 = !apart && !one && inner == 1 && len.is_multiple_of(4);
                shared = one || (!apart && inner.is_multiple_of(4));
                self.bind(k, &memory, if as_vec4 { self.layout.vec4() } else { "f32" });
                let at = self.place(read, inner, len);
                match (as_vec4, shared) {
                    (true, _) => self.layout.four(&memory, &at),
                    (false, true) => format!("{memory}[{at}]"),
                    (false, false) => Self::lanes(&memory, &at),
                }
            }
        };
        self.line(&format!("let {name} = {value};"));
        Four { name, shared }
    }

    /// Returns the indices of the four elements in a strip, or one index if they share an element or form a
    /// vec4.
    fn place(&mut self, read: Read, inner: u64, len: u64) -> String {
        let known = self.strips.iter().position(|other| *other == read);
        let s = known.unwrap_or(self.strips.len());
        let name = format!("at{s}");
        if known.is_some() {
            return name;
        }
        self.strips.push(read);
        let apart = matches!(self.layout.stores(), Some(Stores::Lanes | Stores::One));
        let (inner, len, places) = match (apart, inner) {
            (true, _) => (inner, len, "at"),
            (_, 1) if len.is_multiple_of(4) => (1, len / 4, "i"),
            _ if inner.is_multiple_of(4) => (inner / 4, len, "i"),
            _ => (inner, len, "(vec4(4u * i) + vec4(0u, 1u, 2u, 3u))"),
        };
        let inner = self.field(&format!("inner{s}"), "u32", inner as u32);
        let len = self.field(&format!("len{s}"), "u32", len as u32);
        self.line(&format!("let {name} = {places} / {inner} % {len};"));
        name
    }

    /// Writes link `j`. `kept` between two links stops compilers from contracting a product and a sum.
    fn link(&mut self, j: usize, link: &FusedOp, args: &[Four], last: bool) -> Four {
        let vector = |i: usize| args[i].vector();
        let text = match &link.op {
            Op::Unary(f) => {
                let constants = self.unary(j, *f);
                format!("unary_{}({}, {constants})", f.name(), vector(0))
            }
            Op::UnaryGrad(f) => {
                let constants = self.unary(j, *f);
                format!("{} * slope_{}({}, {constants})", vector(1), f.name(), vector(0))
            }
            Op::Binary(_) => {
                self.import("elementwise/binary_functions");
                format!("binary_{}({}, {})", link.op.name(), vector(0), vector(1))
            }
            Op::Dropout { p, key, every } => self.dropout(j, dropout_words(*p, *key), *every, &vector(0)),
            Op::BatchNorm(activation) => self.norm(batch::code(*activation), args),
            // Broadcasts and casts only determine how the operand is read.
            _ => return args[0].clone(),
        };
        let name = format!("t{j}");
        let kept = if last { text } else { format!("kept({text})") };
        self.line(&format!("let {name} = {kept};"));
        Four { name, shared: false }
    }

    /// Returns the two constants of a unary function; constants that it does not have take no words.
    fn unary(&mut self, j: usize, f: Unary) -> String {
        self.import("elementwise/unary_functions");
        let (_, constants) = f.code();
        let constant = |(i, value): (usize, f32)| match i < f.function().constants {
            true => self.field(&format!("{}{j}", ["a", "b"][i]), "f32", value.to_bits()),
            false => "0.0".to_owned(),
        };
        constants.into_iter().enumerate().map(constant).collect::<Vec<_>>().join(", ")
    }

    /// Writes dropout. The four elements of a vec4 share a random draw; elements with separate indices draw
    /// one each.
    fn dropout(&mut self, j: usize, [key, threshold, scale]: [u32; 3], every: u32, x: &str) -> String {
        self.import("common/random");
        self.define("DROPOUT");
        let key = self.field(&format!("key{j}"), "u32", key);
        let threshold = self.field(&format!("threshold{j}"), "u32", threshold);
        let scale = self.field(&format!("scale{j}"), "f32", scale);
        let rest = format!("{key}, {every}u, {threshold}, {scale}");
        let lane = |x: String, at: String| format!("dropout(vec4({x}), {at} / 4u, {rest})[{at} % 4u]");
        match self.layout.stores() {
            None | Some(Stores::Vec4) => format!("dropout({x}, i, {rest})"),
            Some(Stores::Lanes) => {
                let lanes = LANES.map(|name| lane(format!("{x}.{name}"), format!("at.{name}")));
                format!("vec4({})", lanes.join(", "))
            }
            Some(Stores::One) => format!("vec4({})", lane(format!("{x}.x"), "at".to_owned())),
        }
    }

    /// Writes a batch norm; its terms are shared by elements of one channel, or each element has its own.
    fn norm(&mut self, code: u32, args: &[Four]) -> String {
        self.import("common/elem");
        self.import("common/activation");
        self.define("ELEM4");
        let x = args[0].vector();
        let [mean, deviation, gamma, beta] = [1, 2, 3, 4].map(|i| args[i].name.as_str());
        format!("activated(norm({x}, Elem({mean}), Elem({deviation} * {gamma}), Elem({beta})), {code}u)")
    }

    pub(super) fn source(&self) -> String {
        let Self { layout, fields, bindings, body, .. } = self;
        let imports: String = self.imports.iter().map(|module| format!("#import {module}\n")).collect();
        let p = layout.params();
        let kept = format!(
            "// A result as memory would hold it: compilers do not know that the word is 0, so that they join nothing on its two
// sides, and each function rounds as it does by itself.
fn kept(v: vec4<f32>) -> vec4<f32> {{
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ vec4({p}.zero));
}}
"
        );
        let own = match layout.stores() {
            None => format!(
                "struct Params {{
    threads_x: u32,
    quads: u32,
    zero: u32,
{fields}}}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> y: array<InMemory>;
{bindings}
{kept}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = thread_number(id, p.threads_x);
    if (i >= p.quads) {{
        return;
    }}
{body}    y[i] = to_memory(result);
}}
"
            ),
            Some(Stores::Vec4) => format!(
                "struct Rest {{
    zero: u32,
{fields}}}
{bindings}
{kept}
fn store(i: u32, product: vec4<f32>) {{
{body}    c[i] = result;
}}
"
            ),
            Some(Stores::One) => format!(
                "struct Rest {{
    zero: u32,
{fields}}}
{bindings}
{kept}
fn store(at: u32, product: f32) {{
{body}    c[at] = result.x;
}}
"
            ),
            Some(Stores::Lanes) => format!(
                "struct Rest {{
    zero: u32,
{fields}}}
{bindings}
{kept}
fn store(places: vec4<u32>, live: vec4<bool>, product: vec4<f32>) {{
    if (!live.x) {{
        return;
    }}
    let at = select(vec4(places.x), places, live);
{body}    c[at.x] = result.x;
    if (live.y) {{
        c[at.y] = result.y;
    }}
    if (live.z) {{
        c[at.z] = result.z;
    }}
    if (live.w) {{
        c[at.w] = result.w;
    }}
}}
"
            ),
        };
        imports + &own
    }
}
