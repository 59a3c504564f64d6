//! Elementwise functions: vec4 kernels where the layout allows, kernels with general strides elsewhere.

pub(super) mod fused;
mod fused_wgsl;
pub(super) mod mask;

use super::grid::{per_thread, quads};
use super::lower::flag;
use super::{Kernel, Launch, Operand, Site, and_in_place};
use crate::dtype::{DType, blocks};
use crate::graph::{Binary, Unary};
use crate::shape::{MAX_RANK, Shape};

static UNARY: Kernel =
    Kernel::new("unary", "elementwise/unary", &["VEC4", "BY_CODE"], &[1, 2], 64, Unary::CODES);
static UNARY_GRAD: Kernel = Kernel::new(
    "unary_grad",
    "elementwise/unary",
    &["VEC4", "BY_CODE", "GRADIENT"],
    &[1, 2, 3],
    64,
    Unary::CODES,
);
static BINARY: Kernel =
    Kernel::new("binary", "elementwise/binary", &["VEC4", "BY_CODE"], &[1, 2, 3], 256, Binary::CODES);
static BINARY_STRIDED: Kernel = Kernel::new(
    "binary_strided",
    "elementwise/binary",
    &["STRIDED", "BY_CODE"],
    &[1, 2, 3],
    64,
    Binary::CODES,
);
static DROPOUT: Kernel =
    Kernel::new("dropout", "elementwise/unary", &["VEC4", "DROPOUT"], &[1, 2, 3], 64, &[&[("EVERY", 1.0)]]);
static CAST: Kernel =
    Kernel::new("cast", "elementwise/cast", &[], &[1, 2], 64, &[&[("TO_U32", 0.0)], &[("TO_U32", 1.0)]]);
static PACK_F16: Kernel = Kernel::new("pack_f16", "elementwise/cast", &["PACK", "F16"], &[1, 2], 64, &[&[]]);
static PACK_BF16: Kernel =
    Kernel::new("pack_bf16", "elementwise/cast", &["PACK", "BF16"], &[1, 2], 64, &[&[]]);
static UNPACK_F16: Kernel =
    Kernel::new("unpack_f16", "elementwise/cast", &["UNPACK", "F16"], &[1, 2], 64, &[&[]]);
static UNPACK_BF16: Kernel =
    Kernel::new("unpack_bf16", "elementwise/cast", &["UNPACK", "BF16"], &[1, 2], 64, &[&[]]);
static DECODE_INT8: Kernel =
    Kernel::new("decode_int8", "elementwise/cast", &["DECODE", "INT8"], &[1, 2], 64, &[&[]]);
static DECODE_INT4: Kernel =
    Kernel::new("decode_int4", "elementwise/cast", &["DECODE", "INT4"], &[1, 2], 64, &[&[]]);
static DECODE_NF4: Kernel =
    Kernel::new("decode_nf4", "elementwise/cast", &["DECODE", "NF4"], &[1, 2], 64, &[&[]]);
static DECODE_UINT8: Kernel =
    Kernel::new("decode_uint8", "elementwise/cast", &["DECODE", "UINT8"], &[1, 2], 64, &[&[]]);
static DECODE_UINT4: Kernel =
    Kernel::new("decode_uint4", "elementwise/cast", &["DECODE", "UINT4"], &[1, 2], 64, &[&[]]);
static ENCODE_UINT8: Kernel =
    Kernel::new("encode_uint8", "elementwise/cast", &["ENCODE", "UINT8"], &[1, 2, 3], 64, &[&[]]);
static ENCODE_UINT4: Kernel =
    Kernel::new("encode_uint4", "elementwise/cast", &["ENCODE", "UINT4"], &[1, 2, 3], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    let functions = [&UNARY, &UNARY_GRAD, &BINARY, &BINARY_STRIDED, &DROPOUT, &mask::GRAD].map(Kernel::clone);
    let casts = [&CAST, &PACK_F16, &PACK_BF16, &UNPACK_F16, &UNPACK_BF16, &DECODE_INT8, &DECODE_INT4];
    let codes = [&DECODE_NF4, &DECODE_UINT8, &DECODE_UINT4, &ENCODE_UINT8, &ENCODE_UINT4];
    let others = [&mask::MASK, &mask::MASK_WG].into_iter().chain(casts).chain(codes);
    let others = others.cloned().collect();
    [and_in_place(&functions), others].concat()
}

fn in_vec4(site: &Site, kernel: &Kernel, memory: Vec<Operand>, params: &[u32]) -> Launch<Operand> {
    let count = quads(site.output().numel());
    let mut words = vec![count];
    words.extend_from_slice(params);
    per_thread(site, kernel, u64::from(count), memory, &words)
}

pub(super) fn unary(site: &Site, f: Unary) -> Launch<Operand> {
    let (code, [a, b]) = f.code();
    let mut launch = in_vec4(site, &site.variant(&UNARY), site.placed(0, &[]), &[a.to_bits(), b.to_bits()]);
    launch.constants = vec![("F", f64::from(code))];
    launch
}

pub(super) fn unary_grad(site: &Site, f: Unary) -> Launch<Operand> {
    let (code, [a, b]) = f.code();
    let memory = site.placed(1, &[Operand::Input(0)]);
    let mut launch = in_vec4(site, &site.variant(&UNARY_GRAD), memory, &[a.to_bits(), b.to_bits()]);
    launch.constants = vec![("F", f64::from(code))];
    launch
}

/// Returns key, threshold and scale of dropout in `shaders/common/random.wgsl`.
fn dropout_words(p: f64, key: u32) -> [u32; 3] {
    // An element is dropped where its 32 random bits are below p · 2³².
    let threshold = (p * 4_294_967_296.0) as u32;
    let scale = (1.0 / (1.0 - p)) as f32;
    [key, threshold, scale.to_bits()]
}

pub(super) fn dropout(site: &Site, p: f64, [key, every]: [u32; 2]) -> Launch<Operand> {
    let memory = site.placed(0, &[Operand::Input(1)]);
    let mut launch = in_vec4(site, &site.variant(&DROPOUT), memory, &dropout_words(p, key));
    launch.constants = vec![("EVERY", f64::from(every))];
    launch
}

pub(super) fn cast(site: &Site, to: DType) -> Launch<Operand> {
    let memory = vec![Operand::Input(0), Operand::Output(0)];
    let halves = match (site.inputs[0].1, to) {
        (_, DType::F16) => Some(&PACK_F16),
        (_, DType::BF16) => Some(&PACK_BF16),
        (DType::F16, _) => Some(&UNPACK_F16),
        (DType::BF16, _) => Some(&UNPACK_BF16),
        (DType::Int8, _) => Some(&DECODE_INT8),
        (DType::Int4, _) => Some(&DECODE_INT4),
        (DType::Nf4, _) => Some(&DECODE_NF4),
        (DType::Uint8, _) => Some(&DECODE_UINT8),
        (DType::Uint4, _) => Some(&DECODE_UINT4),
        _ => None,
    };
    if let Some(kernel) = halves {
        let count = quads(site.output().numel());
        let eights = count.div_ceil(2);
        return per_thread(site, kernel, u64::from(eights), memory, &[eights, count]);
    }
    let mut launch = in_vec4(site, &CAST, memory, &[]);
    launch.constants = vec![("TO_U32", f64::from(u8::from(to == DType::U32)))];
    launch
}

/// Rounds stochastically to codes of 8 or 4 bits. A workgroup computes two blocks.
pub(super) fn quantise(site: &Site, dtype: DType, key: u32) -> Launch<Operand> {
    let kernel = if dtype == DType::Uint8 { &ENCODE_UINT8 } else { &ENCODE_UINT4 };
    let count = site.output().numel();
    let blocks = count.div_ceil(blocks::BLOCK);
    let memory = vec![Operand::Input(0), Operand::Output(0), Operand::Input(1)];
    let params = [count as u32, blocks as u32, key];
    per_thread(site, kernel, blocks * (blocks::BLOCK / 4), memory, &params)
}

/// Operand `x` has the output's shape, and the result may overwrite it. The other operand, `b`, is read as
/// vec4s if it has the same number of elements, is one number, or is a row that repeats.
pub(super) fn binary(site: &Site, f: Binary) -> Launch<Operand> {
    let output = site.output();
    let shape = |i: usize| site.inputs[i].0;
    let x = site.in_place.unwrap_or(if shape(0) == output { 0 } else { usize::from(shape(1) == output) });
    let b = 1 - x;
    let constants = vec![("F", f64::from(f.code())), ("SWAP", x as f64)];
    let memory = site.placed(x, &[Operand::Input(b)]);
    let quads_of_b = if shape(x) != output {
        None
    } else if shape(b).numel() == 1 {
        Some((1, true))
    } else {
        repeats(shape(b), output).then(|| (quads(shape(b).numel()), false))
    };
    let mut launch = match quads_of_b {
        Some((b_quads, scalar)) => {
            let mut launch = in_vec4(site, &site.variant(&BINARY), memory, &[b_quads]);
            launch.constants.push(("B_SCALAR", flag(scalar)));
            launch.constants.push(("B_REPEATS", flag(b_quads != quads(output.numel()))));
            launch
        }
        None => {
            let mut params = vec![output.numel() as u32, 0, 0];
            params.extend(six(&dims_of(output), 1));
            params.extend(six(&shape(x).broadcast_strides(&output), 0));
            params.extend(six(&shape(b).broadcast_strides(&output), 0));
            per_thread(site, &site.variant(&BINARY_STRIDED), output.numel(), memory, &params)
        }
    };
    launch.constants.extend(constants);
    launch
}

/// Whether `b`, read cyclically as vec4s, equals `b` broadcast to `output`.
fn repeats(b: Shape, output: Shape) -> bool {
    if b.numel() == output.numel() {
        return true;
    }
    let own: Vec<usize> = b.dims().iter().copied().skip_while(|&dim| dim == 1).collect();
    b.numel().is_multiple_of(4) && output.dims().ends_with(&own)
}

pub(super) fn dims_of(shape: Shape) -> Vec<u64> {
    shape.dims().iter().map(|&dim| dim as u64).collect()
}

/// Returns the words of WGSL's `Six`: innermost dimension last, `missing` for absent outer ones, padded to
/// eight words.
pub(super) fn six(values: &[u64], missing: u32) -> [u32; 8] {
    let mut words = [missing; 8];
    words[6..].fill(0);
    for (word, value) in words[MAX_RANK - values.len()..MAX_RANK].iter_mut().zip(values) {
        *word = *value as u32;
    }
    words
}

/// Returns the WGSL of all unary functions and their derivatives, from the table of [`Unary`].
pub(super) fn unary_table() -> String {
    let values: Vec<_> = Unary::TABLE.iter().map(|f| (f.name, f.wgsl)).collect();
    let slopes: Vec<_> = Unary::TABLE.iter().map(|f| (f.name, f.wgsl_slope)).collect();
    let constants = ", a: f32, b: f32";
    let (values, value) =
        functions("unary", "unary", (&format!("v: vec4<f32>{constants}"), "v, a, b"), &values);
    let (slopes, slope) =
        functions("slope", "unary_slope", (&format!("s: vec4<f32>{constants}"), "s, a, b"), &slopes);
    format!("{values}{slopes}#if BY_CODE\noverride F: u32 = 0u;\n{value}{slope}#endif\n")
}

/// Returns the WGSL of all binary functions, from the table of [`Binary`].
pub(super) fn binary_table() -> String {
    let values: Vec<_> = Binary::TABLE.iter().map(|f| (f.name, f.wgsl)).collect();
    let (values, value) = functions("binary", "binary", ("a: vec4<f32>, b: vec4<f32>", "a, b"), &values);
    format!("{values}#if BY_CODE\noverride F: u32 = 0u;\n{value}#endif\n")
}

/// Returns a function `KIND_NAME` for each entry, a name and an expression, and the function `selector` that calls
/// one of them by the override `F`.
fn functions(
    kind: &str,
    selector: &str,
    (parameters, arguments): (&str, &str),
    entries: &[(&str, &str)],
) -> (String, String) {
    let (mut all, mut cases) = (String::new(), String::new());
    for (code, (name, expression)) in entries.iter().enumerate() {
        all += &format!("fn {kind}_{name}({parameters}) -> vec4<f32> {{\n    return {expression};\n}}\n");
        // The last is the default.
        let case = if code + 1 < entries.len() { format!("case {code}u") } else { "default".to_owned() };
        cases += &format!("        {case}: {{ return {kind}_{name}({arguments}); }}\n");
    }
    (all, format!("fn {selector}({parameters}) -> vec4<f32> {{\n    switch F {{\n{cases}    }}\n}}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_repeat_as_vec4_are_recognized() {
        let cases: [(&[usize], &[usize], bool); 6] = [
            (&[8], &[3, 8], true),
            (&[1, 8], &[3, 8], true),
            (&[6], &[3, 6], false),
            (&[3, 1], &[3, 8], false),
            (&[3, 8], &[3, 8], true),
            (&[1, 4, 8], &[2, 4, 8], true),
        ];
        for (b, output, expected) in cases {
            let (b, output) = (Shape::try_new(b).unwrap(), Shape::try_new(output).unwrap());
            assert_eq!(repeats(b, output), expected, "{b} in {output}");
        }
    }
}
