//! Chains of element functions: one kernel written for each, in fours throughout.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::elementwise::dropout_words;
use super::grid::{per_thread, quads};
use super::{Operand, Site, images};
use crate::dtype::DType;
use crate::graph::{Arg, Chain, Link, Op, Read, Unary};
use crate::kernels::{Launch, Prelude, generated};
use crate::shape::Shape;

pub(super) fn chain(site: &Site, chain: &Chain) -> Launch<Operand> {
    let writer = Writer::new(site, chain);
    let mut slots = vec![1];
    let mut memory = vec![Operand::Output(0)];
    for k in (0..site.inputs.len()).filter(|k| site.in_place != Some(*k)) {
        slots.push(slot(k));
        memory.push(Operand::Input(k));
    }
    let text = writer.kernel();
    let ending = if site.in_place.is_some() { "_in_place" } else { "" };
    let kernel = generated([chain.name(), ending], &writer.preludes, text, &slots, 64);
    let count = quads(chain.shape().numel());
    let words: Vec<u32> = [count, 0].into_iter().chain(writer.words).collect();
    per_thread(site, kernel, u64::from(count), memory, &words)
}

/// The binding of an operand; the result is at 1.
fn slot(operand: usize) -> u32 {
    operand as u32 + 2
}

/// An expression for four elements: a vector, or one number that they share.
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

/// The text of one chain, and the words of its `Params` behind the number of quads.
struct Writer<'a> {
    site: &'a Site<'a>,
    bindings: String,
    fields: String,
    body: String,
    words: Vec<u32>,
    preludes: BTreeSet<Prelude>,
    strips: Vec<Read>,
}

impl<'a> Writer<'a> {
    fn new(site: &'a Site<'a>, chain: &Chain) -> Self {
        let mut writer = Self {
            site,
            bindings: String::new(),
            fields: String::new(),
            body: String::new(),
            words: Vec::new(),
            preludes: BTreeSet::from([Prelude::Grid]),
            strips: Vec::new(),
        };
        let shapes: Vec<Shape> = site.inputs.iter().map(|(shape, _)| *shape).collect();
        let reads = chain.reads(&shapes).expect("a chain is made of operands that it can read");
        let operands: Vec<Four> = reads.iter().enumerate().map(|(k, read)| writer.load(k, *read)).collect();
        let mut results: Vec<Four> = Vec::new();
        for (j, link) in chain.links().iter().enumerate() {
            let args: Vec<Four> = link
                .args
                .iter()
                .map(|arg| match *arg {
                    Arg::Operand(k) => operands[k].clone(),
                    Arg::Link(j) => results[j].clone(),
                })
                .collect();
            let last = j + 1 == chain.links().len();
            let result = writer.link(j, link, &args, last);
            results.push(result);
        }
        let last = results.last().map(Four::vector).unwrap_or_default();
        writer.line(&format!("y[i] = {last};"));
        writer
    }

    fn line(&mut self, text: &str) {
        self.body.push_str("        ");
        self.body.push_str(text);
        self.body.push('\n');
    }

    /// A field of `Params`.
    fn field(&mut self, name: &str, kind: &str, word: u32) -> String {
        // Writing to a string cannot fail.
        let _ = writeln!(self.fields, "    {name}: {kind},");
        self.words.push(word);
        format!("p.{name}")
    }

    fn bind(&mut self, operand: usize, name: &str, elements: &str) {
        let slot = slot(operand);
        let _ = writeln!(
            self.bindings,
            "@group(0) @binding({slot}) var<storage, read_write> {name}: array<{elements}>;"
        );
    }

    fn load(&mut self, k: usize, read: Read) -> Four {
        let (name, memory) = (format!("v{k}"), format!("x{k}"));
        let dtype = self.site.inputs[k].1;
        let shared = match read {
            Read::Words => {
                self.bind(k, "scalars", "u32");
                return Four { name, shared: false };
            }
            Read::Whole if self.site.in_place == Some(k) => {
                self.line(&format!("let {name} = y[i];"));
                false
            }
            Read::Whole if dtype.is_half() => {
                self.preludes.insert(if dtype == DType::F16 { Prelude::F16 } else { Prelude::Bf16 });
                self.bind(k, &memory, "vec2<u32>");
                self.line(&format!("let {name} = bitcast<vec4<f32>>(widened({memory}[i]));"));
                false
            }
            Read::Whole => {
                self.bind(k, &memory, "vec4<f32>");
                self.line(&format!("let {name} = {memory}[i];"));
                false
            }
            Read::Strip { len: 1, .. } => {
                self.bind(k, &memory, "f32");
                self.line(&format!("let {name} = {memory}[0];"));
                true
            }
            Read::Strip { inner, len } => {
                let in_fours = inner == 1 && len.is_multiple_of(4);
                self.bind(k, &memory, if in_fours { "vec4<f32>" } else { "f32" });
                let (at, shared) = self.place(read, inner, len);
                if shared || in_fours {
                    self.line(&format!("let {name} = {memory}[{at}];"));
                } else {
                    let lanes = ["x", "y", "z", "w"].map(|lane| format!("{memory}[{at}.{lane}]"));
                    self.line(&format!("let {name} = vec4({});", lanes.join(", ")));
                }
                shared
            }
        };
        Four { name, shared }
    }

    /// Where in a strip the four elements are, and whether that is one place.
    fn place(&mut self, read: Read, inner: u64, len: u64) -> (String, bool) {
        let shared = inner.is_multiple_of(4);
        let known = self.strips.iter().position(|other| *other == read);
        let s = known.unwrap_or(self.strips.len());
        let at = format!("at{s}");
        if known.is_none() {
            self.strips.push(read);
            let in_fours = inner == 1 && len.is_multiple_of(4);
            let (inner, len) = match (shared, in_fours) {
                (true, _) => (inner / 4, len),
                (_, true) => (1, len / 4),
                _ => (inner, len),
            };
            let inner = self.field(&format!("inner{s}"), "u32", inner as u32);
            let len = self.field(&format!("len{s}"), "u32", len as u32);
            let place = match (shared, in_fours) {
                (true, _) => format!("i / {inner} % {len}"),
                (_, true) => format!("i % {len}"),
                _ => format!("(vec4(4u * i) + vec4(0u, 1u, 2u, 3u)) / {inner} % {len}"),
            };
            self.line(&format!("let {at} = {place};"));
        }
        (at, shared)
    }

    /// Names the result of link `j`. Between two links it is kept from the compiler that a product meets a sum.
    fn link(&mut self, j: usize, link: &Link, args: &[Four], last: bool) -> Four {
        let vector = |i: usize| args[i].vector();
        let text = match &link.op {
            Op::Unary(f) => {
                let constants = self.unary(j, *f);
                format!("unary_{}({}, {constants})", function(*f), vector(0))
            }
            Op::UnaryGrad(f) => {
                let constants = self.unary(j, *f);
                format!("{} * slope_{}({}, {constants})", vector(1), function(*f), vector(0))
            }
            Op::Binary(_) => {
                self.preludes.insert(Prelude::Binary);
                format!("binary_{}({}, {})", link.op.name(), vector(0), vector(1))
            }
            Op::Dropout { p, key } => {
                self.preludes.insert(Prelude::Dropout);
                let [key, threshold, scale] = dropout_words(*p, *key);
                let key = self.field(&format!("key{j}"), "u32", key);
                let threshold = self.field(&format!("threshold{j}"), "u32", threshold);
                let scale = self.field(&format!("scale{j}"), "f32", scale);
                format!("dropout({}, i, {key}, {threshold}, {scale})", vector(0))
            }
            Op::BatchNorm(activation) => self.norm(images::code(*activation), args),
            // Nothing but how it is read.
            _ => return args[0].clone(),
        };
        let name = format!("t{j}");
        let kept = if last { text } else { format!("kept({text})") };
        self.line(&format!("let {name} = {kept};"));
        Four { name, shared: false }
    }

    /// The two constants of a function of one element; no words for those it has not.
    fn unary(&mut self, j: usize, f: Unary) -> String {
        self.preludes.insert(Prelude::Unary);
        let (_, [a, b]) = f.code();
        match f {
            Unary::Neg | Unary::Scale(_) | Unary::Offset(_) | Unary::LeakyRelu(_) => {
                format!("{}, 0.0", self.field(&format!("a{j}"), "f32", a.to_bits()))
            }
            Unary::Clamp(..) => {
                let a = self.field(&format!("a{j}"), "f32", a.to_bits());
                format!("{a}, {}", self.field(&format!("b{j}"), "f32", b.to_bits()))
            }
            _ => "0.0, 0.0".to_owned(),
        }
    }

    /// Four elements of one channel at once; where a plane is no multiple of four, each by itself.
    fn norm(&mut self, code: u32, args: &[Four]) -> String {
        let norm = |[x, mean, deviation, gamma, beta]: [String; 5]| {
            let terms = format!("Elem({mean}), Elem({deviation} * {gamma}), Elem({beta})");
            format!("activated(norm({x}, {terms}), {code}u)")
        };
        let names = |of: &dyn Fn(&Four) -> String| -> [String; 5] { std::array::from_fn(|i| of(&args[i])) };
        if args[1..].iter().all(|arg| arg.shared) {
            self.preludes.insert(Prelude::NormFour);
            return norm(names(&|arg| arg.name.clone()));
        }
        self.preludes.insert(Prelude::NormOne);
        let lanes = ["x", "y", "z", "w"].map(|lane| norm(names(&|arg| format!("{}.{lane}", arg.name))));
        format!("vec4({})", lanes.join(", "))
    }

    fn kernel(&self) -> String {
        let Self { fields, bindings, body, .. } = self;
        format!(
            "struct Params {{
    threads_x: u32,
    quads: u32,
    zero: u32,
{fields}}}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
{bindings}
// A result as memory would hold it: compilers do not know that the word is 0, so that they join nothing on its two sides,
// and each function rounds as it does by itself.
fn kept(v: vec4<f32>) -> vec4<f32> {{
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ vec4(p.zero));
}}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {{
{body}    }}
}}
"
        )
    }
}

/// The name of a function in `shaders/prelude/unary_functions.wgsl`.
fn function(f: Unary) -> &'static str {
    match f {
        // a x, a being -1.
        Unary::Neg => "scale",
        f => Op::Unary(f).name(),
    }
}
