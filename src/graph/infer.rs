//! Shape and type inference: the types of an operation's results, or an error about its operands.

use std::sync::Arc;

use crate::dtype::DType;
use crate::shape::{MAX_RANK, Shape};

use super::op::{Attend, MAX_HEAD, Op, Update};

/// Shape and element type of one operand or result.
pub(super) type Type = (Shape, DType);

/// Returns the types of the results, or a sentence that names the mismatch.
pub(super) fn infer(op: &Op, inputs: &[Type]) -> Result<Vec<Type>, String> {
    use DType::{F32, U32};
    let all_float = |what: &[Type]| match what.iter().find(|(_, dtype)| *dtype != F32) {
        Some((shape, dtype)) => Err(format!("{} takes f32, got {dtype} {shape}", op.name())),
        None => Ok(()),
    };
    // Operands of the epilogue are checked with the epilogue's chain.
    let own = op.main_inputs(inputs.len());
    let packed = |i: usize, dtype: DType| dtype.is_half() && !reads_packed(op, i) && i < own;
    if let Some((_, (shape, dtype))) = inputs.iter().enumerate().find(|(i, (_, dtype))| packed(*i, *dtype)) {
        return Err(format!("{} takes elements of 32 bits, got {dtype} {shape}; cast it to f32", op.name()));
    }
    let coded = |i: usize, dtype: DType| dtype.is_quantised() && !reads_codes(op, i, dtype) && i < own;
    if let Some((_, (shape, dtype))) = inputs.iter().enumerate().find(|(i, (_, dtype))| coded(*i, *dtype)) {
        return Err(format!(
            "{} takes floating-point numbers, got {dtype} {shape}; cast it to f32",
            op.name()
        ));
    }
    if let (Some(chain), Some(first)) = (op.epilogue(), op.with_epilogue(None)) {
        let (before, others) = inputs.split_at(own);
        let result = infer(&first, before)?[0].0;
        if result.numel() != chain.shape().numel() {
            return Err(format!("{}: {result} is no {}", op.name(), chain.shape()));
        }
        return infer(&Op::Fused(Arc::clone(chain)), &[&[(chain.shape(), F32)], others].concat());
    }
    let shape = |i: usize| inputs[i].0;
    let same = |i: usize| Ok(vec![inputs[i]]);
    match op {
        Op::MatMul { ta, tb, .. } => {
            if let Some((shape, _)) = inputs.iter().find(|(_, dtype)| *dtype == U32) {
                return Err(format!("{} takes f32, f16 or bf16, got u32 {shape}", op.name()));
            }
            Ok(vec![(matmul(shape(0), shape(1), *ta, *tb)?, F32)])
        }
        Op::Unary(_) | Op::Dropout { .. } => {
            all_float(&inputs[..1])?;
            same(0)
        }
        Op::UnaryGrad(_) | Op::SoftmaxGrad { .. } => {
            all_float(inputs)?;
            equal(op, shape(0), shape(1))?;
            same(1)
        }
        Op::Mask(_) => {
            all_float(inputs)?;
            Ok(vec![(Shape::from([shape(0).numel().div_ceil(32) as usize]), U32)])
        }
        Op::MaskGrad(_) => {
            all_float(&inputs[1..])?;
            same(1)
        }
        Op::Quantise { dtype, .. } => {
            all_float(&inputs[..1])?;
            Ok(vec![(shape(0), *dtype)])
        }
        Op::Binary(_) => {
            all_float(inputs)?;
            let (a, b) = (shape(0), shape(1));
            let both =
                a.broadcast(&b).ok_or_else(|| format!("{}: {a} and {b} do not broadcast", op.name()))?;
            Ok(vec![(both, F32)])
        }
        Op::Reduce { axes, .. } => {
            // Other types that it does not read are refused above.
            if inputs[0].1 == U32 || !op.widens(0) {
                all_float(inputs)?;
            }
            let x = shape(0);
            let mut y = x;
            for axis in 0..MAX_RANK {
                if axes >> axis & 1 == 1 {
                    if axis >= x.rank() {
                        return Err(format!("{}: axis {axis} of {x}", op.name()));
                    }
                    y = y.with(axis, 1);
                }
            }
            if x.numel() == 0 && y.numel() > 0 {
                return Err(format!("{} over an empty axis of {x}", op.name()));
            }
            Ok(vec![(y, F32)])
        }
        Op::Softmax { .. } => {
            all_float(inputs)?;
            if shape(0).rank() == 0 {
                return Err(format!("{} needs at least one dimension", op.name()));
            }
            same(0)
        }
        Op::CrossEntropy => {
            labelled(inputs)?;
            let rows = shape(0).dims()[0];
            Ok(vec![(Shape::from([rows]), F32), (Shape::from([rows, 2]), F32)])
        }
        Op::CrossEntropyGrad => {
            labelled(inputs)?;
            same(0)
        }
        Op::LabelShare => Ok(vec![(Shape::from([]), F32)]),
        Op::Reshape(to) => {
            let from = shape(0);
            if from.numel() != to.numel() {
                return Err(format!(
                    "reshape of {from} ({} elements) to {to} ({})",
                    from.numel(),
                    to.numel()
                ));
            }
            Ok(vec![(*to, inputs[0].1)])
        }
        Op::Permute(perm) => {
            let x = shape(0);
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..x.rank()) {
                return Err(format!(
                    "permute of {x} by {perm:?}: not a permutation of its {} axes",
                    x.rank()
                ));
            }
            let dims: Vec<usize> = perm.iter().map(|&axis| x.dims()[axis]).collect();
            Ok(vec![(Shape::try_new(&dims).expect("same rank as the input"), inputs[0].1)])
        }
        Op::Expand(to) => {
            let x = shape(0);
            if x.broadcast(to) != Some(*to) {
                return Err(format!("{x} does not broadcast to {to}"));
            }
            Ok(vec![(*to, inputs[0].1)])
        }
        Op::Slice { axis, start, len } => {
            let x = shape(0);
            let end = start.checked_add(*len);
            match x.dims().get(*axis) {
                Some(dim) if end.is_some_and(|end| end <= *dim) => {
                    if inputs[0].1.is_half() && !whole_words(x, *axis, *start, *len) {
                        return Err(format!("slice of {} {x}: cast it to f32", inputs[0].1));
                    }
                    Ok(vec![(x.with(*axis, *len), inputs[0].1)])
                }
                _ => Err(format!("slice {start}..{start}+{len} along axis {axis} of {x}")),
            }
        }
        Op::Stride { .. }
        | Op::Place { .. }
        | Op::Iota { .. }
        | Op::Gather { .. }
        | Op::ScatterAdd { .. }
        | Op::ArgSort { .. } => super::infer_indices::infer(op, inputs),
        Op::Concat { axis } => concat(inputs, *axis),
        Op::Cast(to) => match (inputs[0].1, *to) {
            (F32, to) if to.is_quantised() => {
                Err(format!("cast of {} to {to}: only frozen parameters are stored so", shape(0)))
            }
            (F32, _) | (_, F32) => Ok(vec![(shape(0), *to)]),
            (from, to) => Err(format!("cast of {from} {} to {to}: go through f32", shape(0))),
        },
        Op::Copy | Op::Detach | Op::SumRanks { .. } => same(0),
        Op::SumParts { shape: part } => {
            all_float(inputs)?;
            let parts = shape(0).numel().checked_div(part.numel()).unwrap_or(0);
            if parts * part.numel() != shape(0).numel() || inputs.get(1).is_some_and(|sum| sum.0 != *part) {
                return Err(format!("{} of {} by {part}", op.name(), shape(0)));
            }
            Ok(vec![(*part, F32)])
        }
        Op::Fill { shape, .. } => Ok(vec![(*shape, F32)]),
        Op::Update { rule, stored, share, .. } => {
            let own = Update::STATE + rule.states() + rule.others();
            debug_assert_eq!(inputs.len(), own + stored.operands());
            debug_assert_eq!(inputs[2].1, U32);
            match share {
                Some(share) if shape(1).numel() == share.len => {}
                _ => equal(op, shape(0), shape(1))?,
            }
            Ok(Vec::new())
        }
        Op::Embedding
        | Op::EmbeddingGrad { .. }
        | Op::RowNorm { .. }
        | Op::RowNormGrad { .. }
        | Op::Rotary { .. }
        | Op::Gates(_)
        | Op::GatesGrad(_) => super::infer_rows::infer(op, inputs),
        Op::Attention(attend) | Op::AttentionGrad(attend) => attention(op, attend, inputs),
        Op::CachedAttention(attend) => cached_attention(attend, inputs),
        Op::ToHost { .. } => Ok(Vec::new()),
        Op::Send { .. } | Op::Replace { .. } => Ok(vec![(Shape::from([]), F32)]),
        Op::Receive { shape, dtype, .. } => Ok(vec![(*shape, *dtype), (Shape::from([]), F32)]),
        Op::FromHost { .. } => Err(format!("{} is for plans to add", op.name())),
        Op::NotFinite => match inputs.iter().find(|(_, dtype)| *dtype == U32) {
            Some((shape, _)) => Err(format!("{} takes f32, f16 or bf16, got u32 {shape}", op.name())),
            None => Ok(vec![(Shape::from([]), F32)]),
        },
        Op::LossScaleSeed { .. } => {
            all_float(inputs)?;
            Ok(vec![(Shape::from([]), F32)])
        }
        Op::LossScale { .. } => Ok(vec![(shape(2), U32), (Shape::from([]), F32)]),
        Op::MovingAverage { .. } => {
            equal(op, shape(0), shape(1))?;
            same(0)
        }
        Op::Custom(own) => Ok(vec![own.result]),
        Op::Fused(chain) => {
            let shapes: Vec<Shape> = inputs.iter().map(|(shape, _)| *shape).collect();
            match chain.reads(&shapes) {
                Some(_) => Ok(vec![(chain.shape(), F32)]),
                None => Err(format!("{}: operands {shapes:?} do not fit {}", op.name(), chain.shape())),
            }
        }
        _ => super::infer_images::infer(op, inputs),
    }
}

/// Whether operand `i` may have 16-bit elements: the operation reads them, or the 32-bit words that hold two
/// each.
fn reads_packed(op: &Op, i: usize) -> bool {
    match op {
        Op::NotFinite => i > 0,
        Op::Cast(_) | Op::Reshape(_) | Op::Copy | Op::Detach | Op::Fused(_) | Op::Slice { .. } => true,
        // The weight.
        Op::Update { .. } => i < 2,
        Op::CachedAttention(_) => Attend::CACHES.contains(&i),
        _ => op.widens(i),
    }
}

/// Whether operand `i` may have codes of 4 or 8 bits.
fn reads_codes(op: &Op, i: usize, dtype: DType) -> bool {
    match op {
        Op::Cast(_) | Op::Reshape(_) | Op::Copy | Op::Detach => true,
        Op::CachedAttention(_) => Attend::CACHES.contains(&i) && Attend::CACHED.contains(&dtype),
        _ => op.reads_codes(i, dtype),
    }
}

/// Whether a slice of 16-bit elements consists of consecutive 32-bit words.
pub(crate) fn whole_words(x: Shape, axis: usize, start: usize, len: usize) -> bool {
    let stride = x.strides()[axis];
    let outer: usize = x.dims()[..axis].iter().product();
    outer == 1 && (start as u64 * stride).is_multiple_of(2) && (len as u64 * stride).is_multiple_of(2)
}

fn equal(op: &Op, a: Shape, b: Shape) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{}: {a} and {b} differ", op.name())) }
}

/// Returns the shape of a matrix product.
pub(crate) fn matmul(a: Shape, b: Shape, ta: bool, tb: bool) -> Result<Shape, String> {
    let wrong = |why: &str| {
        let mark = |t: bool| if t { "ᵀ" } else { "" };
        Err(format!("matmul {a}{} · {b}{}: {why}", mark(ta), mark(tb)))
    };
    if a.rank() < 2 || b.rank() < 2 {
        return wrong("both need two dimensions or more, or a vector the length of the inner dimension");
    }
    let last_two = |s: &Shape, transposed: bool| {
        let (rows, cols) = (s.dims()[s.rank() - 2], s.dims()[s.rank() - 1]);
        if transposed { (cols, rows) } else { (rows, cols) }
    };
    let ((m, k), (k_b, n)) = (last_two(&a, ta), last_two(&b, tb));
    if k != k_b {
        return wrong(&format!("the inner dimensions are {k} and {k_b}"));
    }
    let batch = |s: &Shape| Shape::try_new(&s.dims()[..s.rank() - 2]).expect("fewer dimensions than before");
    let Some(batch) = batch(&a).broadcast(&batch(&b)) else {
        return wrong("the batch dimensions do not broadcast");
    };
    let mut dims = batch.dims().to_vec();
    dims.extend([m, n]);
    Ok(Shape::try_new(&dims).expect("as many dimensions as the larger operand"))
}

fn attention(op: &Op, attend: &Attend, inputs: &[Type]) -> Result<Vec<Type>, String> {
    let own = attend.operands();
    if let Some((shape, dtype)) = inputs[..own].iter().find(|(_, dtype)| *dtype != DType::F32) {
        return Err(format!("attention takes f32, got {dtype} {shape}"));
    }
    let shapes: Vec<Shape> = inputs[..own].iter().map(|(shape, _)| *shape).collect();
    let sizes = attend.sizes(&shapes)?;
    if sizes.size > MAX_HEAD || sizes.size % 4 != 0 {
        return Err(format!(
            "attention: heads of {} elements; kernels take multiples of four up to {MAX_HEAD}, `attention_unfused` any",
            sizes.size
        ));
    }
    if let Some((shape, dtype)) = attend.documents_of(inputs.len()).map(|i| inputs[i]) {
        let wanted = Shape::from([sizes.batch, sizes.cols, 2]);
        let last = attend.offset as usize + sizes.rows;
        if (shape, dtype) != (wanted, DType::U32) || last > sizes.cols {
            return Err(format!(
                "attention within documents takes a key for each query, from the offset on, and where the document of each position \
                 starts and ends as u32 {wanted}; got {} keys, {} queries from {} on, {dtype} {shape}",
                sizes.cols, sizes.rows, attend.offset
            ));
        }
    }
    if matches!(op, Op::AttentionGrad(_)) {
        return Ok(inputs[..own].to_vec());
    }
    let o = Shape::from([sizes.batch, sizes.rows, sizes.heads, sizes.size]);
    let lse = Shape::from([sizes.batch, sizes.heads, sizes.rows]);
    Ok(vec![(o, DType::F32), (lse, DType::F32)])
}

fn cached_attention(attend: &Attend, inputs: &[Type]) -> Result<Vec<Type>, String> {
    let op = Op::Attention(*attend);
    let mut results = attention(&op, attend, inputs)?;
    let [q, k, _, cached_k, cached_v, pages, lengths] = *inputs else {
        return Err(format!("attention over a cache takes seven operands, got {}", inputs.len()));
    };
    let [batch, rows, kv_heads, size] = k.0.dims() else { unreachable!("attention checks it") };
    if q.0.dims()[1] != *rows {
        return Err(format!("attention over a cache of q {} with k {}: each query has its key", q.0, k.0));
    }
    let fits =
        |cache: Shape| matches!(cache.dims(), [p, t, h, d] if (h, d) == (kv_heads, size) && *p * *t > 0);
    if cached_k != cached_v || !fits(cached_k.0) {
        return Err(format!(
            "attention over caches {} {} and {} {}: of k {} they are [pages, tokens, {kv_heads}, {size}], of one type",
            cached_k.1, cached_k.0, cached_v.1, cached_v.0, k.0
        ));
    }
    if !matches!(pages.0.dims(), [b, n] if b == batch && *n > 0) || pages.1 != DType::U32 {
        return Err(format!(
            "attention over a cache takes the pages of each text as u32 [{batch}, n], got {} {}",
            pages.1, pages.0
        ));
    }
    if lengths != (Shape::from([*batch]), DType::U32) {
        return Err(format!(
            "attention over a cache takes its lengths as u32 [{batch}], got {} {}",
            lengths.1, lengths.0
        ));
    }
    results.truncate(1);
    Ok(results)
}

fn labelled(inputs: &[Type]) -> Result<(), String> {
    let ((logits, float), (labels, index)) = (inputs[0], inputs[1]);
    if float != DType::F32 || index != DType::U32 {
        return Err(format!(
            "cross_entropy takes f32 logits and u32 labels, got {float} {logits} and {index} {labels}"
        ));
    }
    match (logits.dims(), labels.dims()) {
        ([rows, classes], [n]) if rows == n && *classes > 0 => Ok(()),
        _ => {
            Err(format!("cross_entropy takes logits [n, classes] and labels [n], got {logits} and {labels}"))
        }
    }
}

fn concat(inputs: &[Type], axis: usize) -> Result<Vec<Type>, String> {
    let Some(((first, dtype), rest)) = inputs.split_first() else {
        return Err("concat of nothing".to_owned());
    };
    if axis >= first.rank() {
        return Err(format!("concat along axis {axis} of {first}"));
    }
    let mut len = first.dims()[axis];
    for (other, other_dtype) in rest {
        if other.rank() != first.rank() || other.with(axis, 0) != first.with(axis, 0) || other_dtype != dtype
        {
            return Err(format!(
                "concat along axis {axis}: {dtype} {first} and {other_dtype} {other} do not match"
            ));
        }
        len += other.dims()[axis];
    }
    Ok(vec![(first.with(axis, len), *dtype)])
}
