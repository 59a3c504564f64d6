//! Attention and its gradients: lengths around the tile sizes, head sizes, masks, windows, ALiBi, grouped heads,
//! layouts, dropout, large scores.

use std::collections::BTreeMap;

use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::graph::{Attention, Init, Params};
use wgrad::limits::Limits;

use super::{everywhere, is_gpu, unchecked};
use crate::support::close::{Near, assert_within};
use crate::support::compare::{compare, device_gradients, kernels, twin_gradients};
use crate::support::{each_case, noise};

/// One attention: its lengths, its options, and the largest magnitude of the elements of queries and keys.
#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: usize,
    rows: usize,
    cols: usize,
    heads: [usize; 2],
    size: usize,
    packed: bool,
    options: Attention,
    amplitude: f32,
    /// One element of the queries is NaN.
    nan: bool,
    /// The lengths of the documents that rows hold, again and again; none: a row is one text.
    documents: &'static [usize],
}

const FULL: Attention = Attention {
    causal: false,
    scale: None,
    dropout: 0.0,
    window: None,
    alibi: false,
    softcap: None,
    offset: 0,
};
const CAUSAL: Attention = Attention { causal: true, ..FULL };

/// One head of 16 elements with the same number of queries and keys.
fn square(length: usize, options: Attention) -> Shape {
    let (batch, heads, size) = (1, [1, 1], 16);
    Shape {
        batch,
        rows: length,
        cols: length,
        heads,
        size,
        packed: false,
        options,
        amplitude: 2.0,
        nan: false,
        documents: &[],
    }
}

impl Shape {
    /// The inputs of the step.
    fn feeds(&self) -> BTreeMap<&'static str, Vec<u32>> {
        let mut ends = Vec::new();
        let mut lengths = self.documents.iter().cycle();
        for _ in 0..self.batch {
            let mut start = 0;
            while let (true, Some(length)) = (start < self.cols, lengths.next()) {
                let end = (start + length).min(self.cols);
                ends.extend((start..end).flat_map(|_| [start as u32, end as u32]));
                start = end;
            }
        }
        if ends.is_empty() { BTreeMap::new() } else { BTreeMap::from([("documents", ends)]) }
    }
}

/// A step whose gradients are those of attention; the gradient of `dy` is the result of attention.
fn step(shape: &Shape) -> TrainStep {
    let Shape { batch, rows, cols, heads: [heads, kv_heads], size, packed, options, .. } = *shape;
    let Shape { amplitude, nan, documents, .. } = *shape;
    let params = Params::new(11);
    let data = |seed: u64, dims: [usize; 4], most: f32| {
        let mut data = noise(seed, dims.iter().product(), -most, most);
        if nan && seed == 1 {
            // In the first head, before the last row.
            let at = dims[1] / 2 * dims[2] * dims[3] + 1;
            data[at] = f32::NAN;
        }
        Init::Data(data.into())
    };
    let add =
        |seed: u64, name: &str, dims: [usize; 4], most: f32| params.add(name, dims, data(seed, dims, most));
    let dy = add(4, "dy", [batch, rows, heads, size], 1.0);
    if packed {
        let qkv = add(1, "qkv", [batch, rows, heads + 2 * kv_heads, size], amplitude);
        return TrainStep::trace(&params, |t| {
            let qkv = t.param(&qkv);
            let o = match documents {
                [] => qkv.self_attention(heads, kv_heads, &options),
                _ => {
                    let ends = t.ids("documents", [batch, rows, 2], rows as u32 + 1);
                    qkv.self_attention_within(heads, kv_heads, &ends, &options)
                }
            };
            o.mul(&t.param(&dy)).sum(&[])
        })
        .expect("valid");
    }
    let q = add(1, "q", [batch, rows, heads, size], amplitude);
    let kv = [batch, cols, kv_heads, size];
    let (k, v) = (add(2, "k", kv, amplitude), add(3, "v", kv, 1.0));
    TrainStep::trace(&params, |t| {
        let [q, k, v] = [&q, &k, &v].map(|param| t.param(param));
        let o = match documents {
            [] => q.attention(&k, &v, &options),
            _ => {
                let ends = t.ids("documents", [batch, cols, 2], cols as u32 + 1);
                q.attention_within(&k, &v, &ends, &options)
            }
        };
        o.mul(&t.param(&dy)).sum(&[])
    })
    .expect("valid")
}

/// Checks each shape on every device, and with `and_checked` on one with run-time checks.
fn check_each(shapes: impl IntoIterator<Item = Shape>, and_checked: bool) {
    each_case(shapes, and_checked, |device, limits, shape| _ = check(device, limits, shape));
}

fn check(device: &Device, limits: &Limits, shape: &Shape) -> Vec<String> {
    let feeds = shape.feeds();
    let (plan, found) = device_gradients(device, &step(shape), limits, &feeds);
    let wanted = twin_gradients(&plan, &feeds);
    assert_eq!(found.len(), wanted.len());
    // The relative error of a softmax weight is the absolute error of its score, which has the rounding error
    // of its largest product.
    let score = f64::from(shape.amplitude * shape.amplitude) * (shape.size as f64).sqrt();
    for (name, found) in found {
        let wanted = &wanted[&name];
        let largest = wanted.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        let near = 4e-6 + 5e-7 * score;
        assert_within(&format!("{shape:?} ({}): {name}", limits.name), &found, wanted, |i| {
            near * (wanted[i].abs() + largest) + 1e-6
        });
    }
    kernels(&plan)
}

#[test]
fn attention_matches_the_twin_for_lengths_and_head_sizes() {
    let mut shapes = Vec::new();
    for (i, length) in [1, 7, 64, 65, 257].into_iter().enumerate() {
        for (j, size) in [16, 32, 64, 80, 128].into_iter().enumerate() {
            let options = if (i + j) % 2 == 0 { FULL } else { CAUSAL };
            shapes.push(Shape { size, ..square(length, options) });
        }
    }
    check_each(shapes, true);
}

#[test]
fn attention_matches_the_twin_for_the_largest_and_odd_heads() {
    let shape = |size| Shape { size, heads: [2, 1], ..square(37, CAUSAL) };
    check_each([1, 3, 4, 20, 63, 256].map(shape), false);
}

#[test]
fn attention_matches_the_twin_for_grouped_heads_batches_and_layouts() {
    let mut shapes = Vec::new();
    for options in [FULL, CAUSAL] {
        for heads in [[3, 3], [4, 2], [3, 1]] {
            for packed in [false, true] {
                shapes.push(Shape { batch: 2, heads, packed, ..square(45, options) });
            }
        }
    }
    check_each(shapes, false);
}

/// The causal mask aligns the first query with the first key, as in PyTorch. Queries beyond the number of
/// keys see all keys; keys beyond the number of queries are seen by no query, and their gradient is 0.
#[test]
fn attention_matches_the_twin_for_unequal_numbers_of_queries_and_keys() {
    let sizes = [(1, 100), (100, 1), (33, 97), (97, 33), (5, 200), (200, 5)];
    let shape = |options| sizes.map(|(rows, cols)| Shape { rows, cols, ..square(0, options) });
    check_each([FULL, CAUSAL].into_iter().flat_map(shape), false);
}

/// Windows of one position, of less and of more than a tile of 32 or 64 rows, and of more than all keys.
#[test]
fn attention_matches_the_twin_for_windows_and_alibi() {
    let mut shapes = Vec::new();
    for (i, window) in [1, 2, 31, 33, 64, 100, 500].into_iter().enumerate() {
        let options =
            Attention { window: Some(window), alibi: i % 2 == 1, ..if i % 3 == 0 { FULL } else { CAUSAL } };
        let heads = [[1, 1], [4, 2], [3, 1]][i % 3];
        shapes.push(Shape { heads, packed: i % 2 == 0, ..square(193, options) });
    }
    for (rows, cols, window) in [(1, 100, 1), (100, 33, 68), (130, 200, 5), (33, 200, 40)] {
        for options in [FULL, CAUSAL] {
            let options = Attention { window: Some(window), ..options };
            shapes.push(Shape { rows, cols, ..square(0, options) });
        }
    }
    let dropped = Attention { window: Some(40), alibi: true, dropout: 0.3, ..CAUSAL };
    shapes.push(Shape { batch: 2, heads: [6, 3], ..square(97, dropped) });
    check_each(shapes, false);
}

/// Queries that are a part of a sequence, up to its end or not, within one tile of keys and after several.
#[test]
fn attention_matches_the_twin_for_queries_from_an_offset_on() {
    let mut shapes = Vec::new();
    for (rows, offset, cols) in [(33, 64, 97), (40, 7, 47), (1, 150, 151), (70, 30, 200), (64, 64, 128)] {
        for (options, window) in [(CAUSAL, None), (CAUSAL, Some(offset + 3)), (FULL, Some(offset + 20))] {
            let options = Attention { window, offset, ..options };
            shapes.push(Shape { rows, cols, heads: [4, 2], ..square(0, options) });
        }
    }
    let dropped = Attention { offset: 45, dropout: 0.3, softcap: Some(2.0), ..CAUSAL };
    shapes.push(Shape { batch: 2, rows: 35, cols: 80, ..square(0, dropped) });
    check_each(shapes, false);
}

/// Scores around the cap, with everything that comes after it.
#[test]
fn attention_matches_the_twin_for_capped_scores() {
    let options = Attention { softcap: Some(2.0), alibi: true, dropout: 0.3, window: Some(40), ..CAUSAL };
    let shape = |(rows, cols)| Shape { rows, cols, heads: [4, 2], ..square(0, options) };
    check_each([(97, 97), (70, 50)].map(shape), false);
}

#[test]
fn attention_matches_the_twin_for_large_scores() {
    // Scores up to 4.5² · 16 · scale: 81 and, with a scale of -1, 324.
    let shape = |options| Shape { amplitude: 4.5, ..square(70, options) };
    check_each([FULL, CAUSAL, Attention { scale: Some(-1.0), ..FULL }].map(shape), false);
}

/// A NaN in a query reaches the result and the gradient of its row, the gradients of all keys and values, and
/// no other row.
#[test]
fn nan_in_a_query_does_not_reach_other_rows() {
    let shape = |(packed, size)| Shape { packed, size, nan: true, ..square(37, FULL) };
    check_each([(false, 16), (true, 16), (false, 20)].map(shape), false);
}

const NEAR: Near = Near { rel: 1e-5, abs: 1e-5 };

/// The keys that pad a tile contribute 0, and not 0 · ∞.
#[test]
fn infinity_in_the_last_value_does_not_become_nan() {
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (length, size) in [(1, 16), (37, 16), (37, 20), (70, 64)] {
                let dims = [1, length, 1, size];
                let input = |seed| noise(seed, length * size, -1.0, 1.0);
                let (q, k) = (batch.input(trace, dims, input(1)), batch.input(trace, dims, input(2)));
                let mut v = input(3);
                v[length * size - 3] = f32::INFINITY;
                let v = batch.input(trace, dims, v);
                batch.expect(&format!("{length} × {size}"), &q.attention(&k, &v, &FULL), NEAR);
            }
        });
    });
}

#[test]
fn dropout_draws_the_same_mask_in_every_pass() {
    let shape = |p: f64, options, packed| {
        let options = Attention { dropout: p, ..options };
        Shape { batch: 2, heads: [4, 2], packed, ..square(67, options) }
    };
    check_each([(0.1, FULL), (0.5, CAUSAL), (0.9, FULL)].map(|(p, options)| shape(p, options, false)), false);
    everywhere(|device, limits| {
        check(device, limits, &shape(0.3, CAUSAL, true));
    });
}

/// Documents of one position, of less and of more than a tile, with the other options.
#[test]
fn attention_within_documents_matches_the_twin() {
    let all = Attention { softcap: Some(2.0), alibi: true, dropout: 0.3, window: Some(40), ..CAUSAL };
    let near = Attention { window: Some(20), ..FULL };
    let lengths: [&[usize]; 4] = [&[1, 40, 33, 5, 70, 100], &[64], &[3, 1, 2], &[500]];
    let mut shapes = Vec::new();
    for documents in lengths {
        let packed = |options| Shape { batch: 2, packed: true, documents, ..square(193, options) };
        shapes.extend([FULL, CAUSAL, near].map(packed));
        shapes.push(Shape { batch: 2, heads: [4, 2], documents, ..square(193, all) });
        // Queries of a part of the rows, from within a document on.
        let of_window = Attention { causal: false, alibi: false, window: Some(60), offset: 59, ..all };
        let options = if documents.len() > 1 {
            Attention { window: None, offset: 123, ..of_window }
        } else {
            of_window
        };
        shapes.push(Shape { batch: 2, rows: 70, heads: [4, 2], documents, ..square(193, options) });
    }
    check_each(shapes, false);
}

/// The first dispatch of a tile of queries follows the first of them, which sees all before it; the others see themselves alone.
#[test]
fn a_dispatch_without_keys_of_a_row_leaves_them_to_the_next() {
    unchecked(|device, limits| {
        let length = if is_gpu(limits) { 3125 } else { 25_000 };
        let plan = compare(device, limits, |trace, batch| {
            let mut ends: Vec<u32> = (0..length).flat_map(|i| [i, i + 1]).collect();
            let first = (length - 1) / 64 * 64;
            ends[2 * first as usize] = 0;
            let ends = batch.ids(trace, [1, length as usize, 2], length + 1, ends);
            let dims = [1, length as usize, 1, 256];
            let [q, k, v] =
                [1, 2, 3].map(|seed| batch.input(trace, dims, noise(seed, dims.iter().product(), -1.0, 1.0)));
            batch.expect("o", &q.attention_within(&k, &v, &ends, &CAUSAL), NEAR);
        });
        assert!(kernels(&plan).len() > 1, "{:?}", kernels(&plan));
    });
}

/// A position sees itself even where its document is said to be elsewhere, and no number leads outside of memory.
#[test]
fn documents_that_are_wrong_give_numbers() {
    let shape = Shape { documents: &[1], ..square(70, CAUSAL) };
    let wrong = [[0, 0], [70, 70], [70, 0], [u32::MAX >> 8; 2]];
    each_case(wrong, false, |device, limits, ends| {
        let feeds = BTreeMap::from([("documents", ends.repeat(70))]);
        let params = Params::new(1);
        let q = params.add("q", [1, 70, 1, 16], Init::Uniform(1.0));
        let step = TrainStep::trace(&params, |t| {
            let ends = t.ids("documents", [1, 70, 2], u32::MAX);
            let q = t.param(&q);
            q.attention_within(&q, &q, &ends, &shape.options).sum(&[])
        });
        let (_, found) = device_gradients(device, &step.expect("valid"), limits, &feeds);
        assert!(found.iter().all(|(_, values)| values.iter().all(|x| x.is_finite())), "{ends:?}");
    });
}

/// Passes over long sequences are split into several dispatches on software adapters.
#[test]
fn long_sequences_are_split_into_dispatches() {
    unchecked(|device, limits| {
        let base = Shape { size: 256, ..square(0, FULL) };
        let dropped = Attention { dropout: 0.25, ..CAUSAL };
        // Kernels for GPUs take more iterations for a head.
        let n = if is_gpu(limits) { 8 } else { 1 };
        let many_keys = Shape { rows: 3, cols: 25_000 / n, ..base };
        let many_queries = Shape { rows: 2200 / n, cols: 9, heads: [8, 1], options: dropped, ..base };
        for (shape, part, least) in [(many_keys, "attention_", 6), (many_queries, "attention_dkv", 2)] {
            let names = check(device, limits, &shape);
            let launches = names.iter().filter(|name| name.starts_with(part)).count();
            assert!(launches >= least, "{names:?}");
        }
        let wide = Attention { window: Some(20_000 / n), ..FULL };
        let names = check(device, limits, &Shape { options: wide, ..many_keys });
        assert!(names.iter().filter(|name| name.starts_with("attention_")).count() >= 6, "{names:?}");
        check(device, limits, &Shape { rows: 64, cols: 4500, ..square(0, CAUSAL) });
        check(device, limits, &Shape { rows: 4500, cols: 64, ..square(0, CAUSAL) });
    });
}

/// The memory of the fused operation is that of its operands and results, whatever the length.
#[test]
fn memory_is_linear_in_the_length() {
    let limits = Limits::named("nvidia").expect("a preset");
    let bytes = |length: usize| {
        let shape = Shape { heads: [4, 4], size: 64, packed: true, ..square(length, CAUSAL) };
        step(&shape).plan(&PlanOptions::default(), &limits).expect("planned").footprint().step
    };
    assert!(bytes(8192) <= 16 * bytes(512) + 4096, "{} and {}", bytes(512), bytes(8192));
}
