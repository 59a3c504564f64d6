//! Attention and rotary position embedding, for random networks.

use std::ops::Range;

use super::network::{Maker, Sizes};
use crate::dtype::DType;
use crate::graph::{Attention, Rope, RopeScaling, Tensor};

pub(super) fn rotary(maker: &mut Maker) {
    let x = maker.sequence();
    let heads = maker.dice.below(x.dim(2)) + 1;
    // Head sizes are small: all of the ramp is within a few pairs, and it begins and ends among them.
    let llama3 =
        RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: maker.dice.of(&[16.0, 300.0]) };
    let scaling = maker.dice.of(&[RopeScaling::None, RopeScaling::Linear { factor: 3.0 }, llama3]);
    let rope = Rope { base: 10_000.0, scaling };
    let rotated = match maker.dice.below(2) {
        0 => x.rotary(heads, rope),
        _ => {
            // Later positions, in the opposite order.
            let order = x.indices_like([x.dim(0), x.dim(1)], 1).scale(-3.0).offset(300.0);
            x.rotary_at(&order.cast(DType::U32), heads, rope)
        }
    };
    maker.keep(rotated);
}

fn attend(maker: &mut Maker) -> Attention {
    let scale = maker.dice.of(&[None, Some(1.0), Some(6.0)]);
    let dropout = maker.dice.of(&[0.0, 0.0, 0.3]);
    let window = maker.dice.of(&[None, None, Some(1), Some(2), Some(3)]);
    let softcap = maker.dice.of(&[None, None, Some(1.5), Some(50.0)]);
    let (causal, alibi) = (maker.dice.one_in(2), maker.dice.one_in(3));
    Attention { causal, scale, dropout, window, alibi, softcap, offset: 0 }
}

pub(super) fn attention(maker: &mut Maker) {
    let (q, k, v) = (maker.sequence(), maker.sequence(), maker.sequence());
    let options = attend(maker);
    let fewer = |x: &Tensor, heads: usize| x.slice(2, 0..heads);
    let heads = if maker.dice.one_in(2) { maker.sizes.heads / 2 } else { maker.sizes.heads };
    let (k, v) = (fewer(&k, heads), fewer(&v, heads));
    let attended = match maker.dice.below(5) {
        0 => q.attention_unfused(&k, &v, &options),
        1 => q.attention_within(&k, &v, &maker.documents(), &options),
        // The queries of a sequence in two parts.
        2 if q.dim(1) > 1 => {
            let (documents, s) = (maker.documents(), q.dim(1));
            let part = |queries: Range<usize>| {
                let part = Attention { offset: queries.start, alibi: false, window: None, ..options };
                q.slice(1, queries).attention_within(&k, &v, &documents, &part)
            };
            part(0..s / 2).concat(&[&part(s / 2..s)], 1)
        }
        // The last queries of a sequence, and some more than keys.
        3 => {
            let offset = options.window.unwrap_or(4).min(3) - 1;
            q.attention(&k, &v, &Attention { offset, alibi: false, ..options })
        }
        _ => q.attention(&k, &v, &options),
    };
    maker.keep(attended);
}

pub(super) fn self_attention(maker: &mut Maker) {
    let (x, Sizes { batch, length, heads, head, .. }) = (maker.sequence(), maker.sizes);
    let width = heads * head;
    let w = maker.weight([width, 3 * width], width);
    let qkv = x.reshape([batch, length, width]).matmul(&w).reshape([batch, length, 3 * heads, head]);
    let qkv = if head % 4 == 0 && maker.dice.one_in(2) { qkv.rotary(2 * heads, 100.0) } else { qkv };
    let options = attend(maker);
    let attended = match maker.dice.one_in(3) {
        true => qkv.self_attention_within(heads, heads, &maker.documents(), &options),
        false => qkv.self_attention(heads, heads, &options),
    };
    // Two products with attention between them can be split by heads.
    let w = maker.weight([width, width], width);
    let projected = attended.reshape([batch, length, width]).matmul(&w);
    maker.keep(projected.reshape([batch, length, heads, head]));
}
