//! Cases of operations on rows: embedding, norms of rows, rotary embedding, cross-entropy in chunks.

use std::collections::BTreeMap;

use wgrad::graph::{IGNORE, Rope, RopeScaling, Tensor};

use super::cases::{Case, Stage, case, labelled};
use super::some_labels;

/// Row lengths around the widths that kernels work in.
const LENGTHS: [usize; 5] = [1, 7, 64, 65, 257];

pub(super) fn all() -> Vec<Case> {
    let mut list = norms();
    list.extend(embeddings());
    list.extend(rotaries());
    list.extend(chunked_losses());
    list
}

fn layer_norm(s: &Stage, x: &Tensor) -> Tensor {
    let d = x.shape().last();
    x.layer_norm(&s.x([d], 0.5, 1.5), &s.x([d], -1.0, 1.0), 1e-3)
}

fn rms_norm(s: &Stage, x: &Tensor) -> Tensor {
    x.rms_norm(&s.x([x.shape().last()], 0.5, 1.5), 1e-3)
}

fn norms() -> Vec<Case> {
    let mut list = Vec::new();
    for d in LENGTHS {
        list.push(case(format!("layer_norm of {d}"), move |s| layer_norm(s, &s.x([3, d], -2.0, 2.0))));
        list.push(case(format!("rms_norm of {d}"), move |s| rms_norm(s, &s.x([3, d], -2.0, 2.0))));
    }
    list.push(case("layer_norm of one axis", |s| layer_norm(s, &s.x([9], -2.0, 2.0))));
    list.push(case("layer_norm of three axes", |s| layer_norm(s, &s.x([2, 3, 8], -2.0, 2.0))));
    list.push(case("rms_norm of four axes", |s| rms_norm(s, &s.x([2, 1, 3, 8], -2.0, 2.0))));
    list.push(case("layer_norm of many rows", |s| layer_norm(s, &s.x([300, 3], -2.0, 2.0))));
    list.push(case("layer_norm whose result is used twice", |s| {
        let x = s.x([4, 6], -2.0, 2.0);
        let y = layer_norm(s, &x);
        y.matmul(&s.x([6, 6], -1.0, 1.0)).add(&y.gelu()).add(&x)
    }));
    list.push(case("layer_norm of constants", |s| {
        let x = s.x([3, 5], -2.0, 2.0);
        x.layer_norm(&x.fill_like([5], 1.5), &x.fill_like([5], 0.5), 1e-3)
    }));
    list.push(case("a transformer's feed-forward half", |s| {
        let x = s.x([5, 8], -2.0, 2.0);
        let wide = layer_norm(s, &x).matmul(&s.x([8, 16], -0.5, 0.5)).add(&s.x([16], -0.5, 0.5));
        x.add(&wide.gelu_tanh().matmul(&s.x([16, 8], -0.5, 0.5)))
    }));
    list
}

fn embeddings() -> Vec<Case> {
    let ids = |ids: Vec<u32>| BTreeMap::from([("ids", ids)]);
    let mut list = Vec::new();
    for d in LENGTHS {
        list.push(labelled(format!("embedding of {d}"), ids(vec![2, 0, 2, 4, 2]), move |s| {
            s.x([5, d], -2.0, 2.0).embedding(&s.trace.ids("ids", [5], 5))
        }));
    }
    for n in LENGTHS {
        let some = some_labels(n as u64, n, 7);
        list.push(labelled(format!("embedding of {n} ids"), ids(some), move |s| {
            s.x([7, 4], -2.0, 2.0).embedding(&s.trace.ids("ids", [n], 7))
        }));
    }
    list.push(labelled("embedding of one id, many times", ids(vec![3; 300]), |s| {
        s.x([5, 3], -2.0, 2.0).embedding(&s.trace.ids("ids", [3, 100], 5))
    }));
    list.push(labelled("a table read twice", ids(vec![1, 0, 1, 3]), |s| {
        let table = s.x([4, 5], -2.0, 2.0);
        let ids = s.trace.ids("ids", [2, 2], 4);
        table.embedding(&ids).mul(&table.embedding(&ids.reshape([4])).reshape([2, 2, 5]).exp())
    }));
    list.push(labelled("tied output weights", ids(vec![1, 0, 5, 5, 2, 1]), |s| {
        let table = s.raw([6, 4], -1.0, 1.0);
        let h = table.embedding(&s.trace.ids("ids", [6], 6)).tanh();
        h.matmul_transposed(&table, false, true).softmax()
    }));
    list.push(labelled("tied weights that are also added", ids(vec![1, 0, 3, 3]), |s| {
        let table = s.x([4, 4], -1.0, 1.0);
        table.embedding(&s.trace.ids("ids", [4], 4)).add(&table).add(&table.exp())
    }));
    list
}

/// The second has pairs below, within and above its ramp, for heads of 16 elements and a base of 10,000.
pub const SCALINGS: [RopeScaling; 2] = [
    RopeScaling::Linear { factor: 3.0 },
    RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 64.0 },
];

fn rotaries() -> Vec<Case> {
    let mut list = Vec::new();
    for (shape, heads) in
        [([2, 3, 2, 8], 2), ([1, 5, 3, 6], 2), ([2, 7, 4, 4], 1), ([1, 1, 1, 2], 1), ([2, 65, 1, 2], 1)]
    {
        list.push(case(format!("rotary {shape:?} {heads}"), move |s| {
            s.x(shape, -2.0, 2.0).rotary(heads, 10_000.0)
        }));
    }
    for scaling in SCALINGS {
        list.push(case(format!("rotary, {scaling:?}"), move |s| {
            s.x([2, 9, 3, 16], -2.0, 2.0).rotary(2, Rope { base: 10_000.0, scaling })
        }));
    }
    list.push(case("rotary of no head", |s| s.x([1, 3, 2, 4], -2.0, 2.0).rotary(0, 10_000.0)));
    list.push(case("rotary of what is used again", |s| {
        let x = s.x([1, 3, 2, 4], -2.0, 2.0);
        x.rotary(2, 100.0).mul(&x)
    }));
    list
}

fn chunked_losses() -> Vec<Case> {
    let mut list = Vec::new();
    for (rows, chunks) in [(1, 1), (7, 1), (7, 2), (7, 7), (64, 3), (65, 4)] {
        let mut labels = some_labels(rows as u64, rows, 5);
        if rows > 4 {
            labels[3] = IGNORE;
        }
        let labels = BTreeMap::from([("y", labels)]);
        list.push(labelled(format!("linear_cross_entropy of {rows} in {chunks}"), labels, move |s| {
            let (x, w) = (s.x([rows, 4], -2.0, 2.0), s.x([5, 4], -1.0, 1.0));
            x.linear_cross_entropy(&w, &s.trace.labels("y", [rows], 5), chunks).square()
        }));
    }
    list
}
