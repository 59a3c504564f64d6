//! Attention and positions.

use super::{NO, Row, YES, row};

pub(super) const ATTENTION: &[Row] = &[
    row(
        "x.attention(k, v, options)",
        "F.scaled_dot_product_attention",
        "`q [b, s, h, d]`, `k, v [b, t, hkv, d]`; causal, sliding windows, ALiBi; no scores in memory",
        YES,
        &["Attention"],
    ),
    row(
        "x.self_attention(heads, kv_heads, options)",
        "F.scaled_dot_product_attention",
        "packed: `[b, s, h + 2 hkv, d] → [b, s, h, d]`",
        YES,
        &[],
    ),
    row(
        "x.attention_within(k, v, documents, options)",
        "flash_attn_varlen_func",
        "`attention` of rows with several documents, of which no query sees another",
        YES,
        &[],
    ),
    row(
        "x.self_attention_within(heads, kv_heads, documents, options)",
        "flash_attn_varlen_qkvpacked_func",
        "the same, packed",
        YES,
        &[],
    ),
    row(
        "x.attention_unfused(k, v, options)",
        "F.scaled_dot_product_attention",
        "scores in memory; heads of any size",
        YES,
        &[],
    ),
    row(
        "x.attention_masked(k, v, mask, options)",
        "F.scaled_dot_product_attention(attn_mask=…)",
        "the mask is added to the scores",
        YES,
        &[],
    ),
    row("x.padding_mask()", "", "`[b, 1, 1, t]` from `[b, t]`: keys where `x` is 0 are hidden", NO, &[]),
    row(
        "x.in_chunks(rows, f)",
        "",
        "applies `f` to at most `rows` rows at a time, so that memory holds one chunk",
        YES,
        &[],
    ),
    row(
        "x.cached_attention(k, v, caches, pages, length, options)",
        "",
        "`attention` to the keys and values in pages of a cache as well, to which the new ones are added; in forward passes",
        NO,
        &[],
    ),
    row("x.rotary_at(positions, heads, rope)", "", "`rotary` at the positions of a tensor", YES, &[]),
    row("x.rotary(heads, rope)", "", "rotary position embedding, Hugging Face's `rotate_half`", YES, &[]),
];
