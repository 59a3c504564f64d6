//! Cases of attention: separate and packed operands, full and causal, windows, ALiBi, grouped heads, dropout.

use wgrad::graph::Attention;

use super::cases::{Case, case};

pub fn all() -> Vec<Case> {
    let full = Attention::default();
    let causal = Attention::causal();
    let dropped = Attention { dropout: 0.3, ..causal };
    // Name, queries, keys, options.
    let apart = [
        ("attention", [2, 3, 2, 4], [2, 5, 2, 4], full),
        ("attention, causal", [1, 6, 2, 4], [1, 6, 2, 4], causal),
        ("attention, causal, more keys", [1, 3, 1, 8], [1, 5, 1, 8], causal),
        ("attention, causal, fewer keys", [1, 5, 1, 4], [1, 3, 1, 4], causal),
        ("attention in groups", [2, 4, 6, 4], [2, 4, 2, 4], full),
        ("attention with a scale", [1, 4, 1, 4], [1, 4, 1, 4], Attention { scale: Some(0.75), ..full }),
        ("attention of odd heads", [1, 4, 2, 3], [1, 5, 1, 3], full),
        ("attention with dropout", [2, 5, 4, 4], [2, 6, 2, 4], dropped),
        ("attention in a window", [1, 7, 2, 4], [1, 6, 2, 4], Attention { window: Some(2), ..full }),
        ("attention from an offset on", [2, 3, 4, 4], [2, 7, 2, 4], Attention { offset: 2, ..causal }),
        (
            "attention from an offset on in a window",
            [1, 4, 2, 4],
            [1, 6, 2, 4],
            Attention { offset: 2, window: Some(4), ..full },
        ),
        ("attention with ALiBi", [1, 5, 3, 4], [1, 6, 3, 4], Attention { alibi: true, ..full }),
        (
            "attention, causal, in a window, with ALiBi",
            [2, 6, 4, 4],
            [2, 6, 2, 4],
            Attention { window: Some(3), alibi: true, ..causal },
        ),
    ];
    let mut list = Vec::new();
    for (name, q, kv, options) in apart {
        list.push(case(name, move |s| {
            let (q, k, v) = (s.x(q, -1.0, 1.0), s.x(kv, -1.0, 1.0), s.x(kv, -1.0, 1.0));
            q.attention(&k, &v, &options)
        }));
        list.push(case(format!("{name}, unfused"), move |s| {
            let (q, k, v) = (s.x(q, -1.0, 1.0), s.x(kv, -1.0, 1.0), s.x(kv, -1.0, 1.0));
            q.attention_unfused(&k, &v, &options)
        }));
    }
    let packed = [
        ("self-attention", [2, 4, 6, 4], [2, 2], full),
        ("self-attention in groups", [1, 5, 8, 4], [4, 2], causal),
    ];
    for (name, qkv, [heads, kv_heads], options) in packed {
        list.push(case(name, move |s| s.x(qkv, -1.0, 1.0).self_attention(heads, kv_heads, &options)));
    }
    list.push(case("attention of a tensor to itself", move |s| {
        let x = s.x([1, 4, 2, 4], -1.0, 1.0);
        x.attention(&x, &x, &causal)
    }));
    list
}
