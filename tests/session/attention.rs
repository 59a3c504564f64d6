//! Blocks of transformers in parts of their tokens; mistakes in attention.

use wgrad::compile::{Offload, PlanOptions, Recompute, TrainStep};
use wgrad::dtype::Precision;
use wgrad::exec::Session;
use wgrad::graph::{Attention, Params, Tensor};
use wgrad::nn::{Embedding, Linear, RmsNorm};

use super::errors::{says, trace_errors};
use crate::support::close::{assert_same_bits, assert_within};
use crate::support::{devices, on_each, some_labels};

const TOKENS: usize = 100;
const WIDTH: usize = 64;
const KINDS: u32 = 32;

/// Three blocks, which compute `rows` tokens at a time.
fn blocks(rows: usize) -> TrainStep {
    let params = Params::new(3);
    let table = Embedding::with_std(&params.scope("table"), KINDS as usize, WIDTH, 1.0);
    let block = |i: usize| {
        let scope = params.scope(format!("blocks.{i}"));
        let linear = |name: &str| Linear::new(&scope.scope(name), WIDTH, WIDTH);
        (RmsNorm::new(&scope.scope("norm"), WIDTH), ["q", "k", "v", "up", "down"].map(linear))
    };
    let blocks: Vec<_> = (0..3).map(block).collect();
    let heads = |x: &Tensor| x.reshape([1, x.dim(0), 4, WIDTH / 4]);
    let step = TrainStep::trace(&params, |trace| {
        let ids = trace.ids("ids", [TOKENS], KINDS);
        let stream =
            blocks.iter().enumerate().fold(ids.apply(&table), |x, (i, (norm, [q, k, v, up, down]))| {
                trace.layer(&format!("blocks.{i}"), || {
                    let keys = heads(&x.in_chunks(rows, |x| x.apply(norm).apply(k)));
                    let values = heads(&x.in_chunks(rows, |x| x.apply(norm).apply(v)));
                    let part = |first: usize| {
                        let x = x.slice(0, first..(first + rows).min(TOKENS));
                        let options = Attention { offset: first, ..Attention::causal() };
                        let attended = heads(&x.apply(norm).apply(q)).attention(&keys, &values, &options);
                        let x = x.add(&attended.reshape(x.shape()));
                        x.add(&x.apply(norm).apply(up).gelu().apply(down))
                    };
                    let parts: Vec<Tensor> = (0..TOKENS).step_by(rows).map(part).collect();
                    match &parts[..] {
                        [whole] => whole.clone(),
                        others => others[0].concat(&others[1..].iter().collect::<Vec<_>>(), 0),
                    }
                })
            });
        stream.matmul_transposed(&trace.param(&table.weight), false, true).cross_entropy(&trace.labels(
            "labels",
            [TOKENS],
            KINDS,
        ))
    });
    step.expect("valid")
}

/// Parts train as the whole does, kept, recomputed and offloaded.
#[test]
fn blocks_in_parts_train_as_the_whole() {
    on_each(devices(), |device| {
        let trained = |rows: usize, options: &PlanOptions| {
            let plan = blocks(rows).plan(options, device.limits()).expect("planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            assert_eq!(session.device_bytes(), plan.footprint().total());
            let mut numbers = Vec::new();
            for i in 0..3 {
                session.feed("ids", &some_labels(i, TOKENS, KINDS)).expect("valid");
                session.feed("labels", &some_labels(i + 7, TOKENS, KINDS)).expect("valid");
                session.step().expect("it runs");
                numbers.push(session.loss().expect("finite"));
            }
            numbers.extend(session.parameter("blocks.0.k.weight").expect("there"));
            numbers
        };
        let plain = PlanOptions::default();
        let half = PlanOptions { precision: Precision::Bf16, ..plain };
        for (options, near) in [(plain, 1e-4), (half, 1e-2)] {
            let parts = trained(32, &options);
            let whole: Vec<f64> = trained(TOKENS, &options).into_iter().map(f64::from).collect();
            assert_within("losses and a weight", &parts, &whole, |i| near * whole[i].abs().max(1.0));
            let again = PlanOptions { recompute: Recompute::Every(1), ..options };
            let recomputed = trained(32, &again);
            // What is stored in 16 bits is not the same where cheap results are kept.
            match options.precision {
                Precision::F32 => assert_same_bits("losses and a weight", &parts, &recomputed),
                _ => assert_within("losses and a weight", &recomputed, &whole, |i| {
                    near * whole[i].abs().max(1.0)
                }),
            }
            let offloaded = trained(32, &PlanOptions { offload: Offload::ACTIVATIONS, ..again });
            assert_same_bits("losses and a weight", &recomputed, &offloaded);
        }
    });
}

#[test]
fn mismatched_attention_shapes_are_errors_with_numbers() {
    let says_of = |parts: &[&str], q: [usize; 4], kv: [usize; 4], options: Attention| {
        for fused in [true, false] {
            let error = trace_errors(|_, trace| {
                let (q, k, v) = (trace.input("q", q), trace.input("k", kv), trace.input("v", kv));
                let o =
                    if fused { q.attention(&k, &v, &options) } else { q.attention_unfused(&k, &v, &options) };
                o.sum(&[])
            });
            says(&error, parts);
        }
    };
    let full = Attention::default();
    says_of(&["6 query heads", "4 key heads"], [1, 5, 6, 8], [1, 5, 4, 8], full);
    says_of(&["[2, 5, 4, 8]", "[1, 5, 4, 8]"], [2, 5, 4, 8], [1, 5, 4, 8], full);
    says_of(&["head size must be equal"], [1, 5, 4, 8], [1, 5, 4, 12], full);
    says_of(&["dropout 1"], [1, 5, 4, 8], [1, 5, 4, 8], Attention { dropout: 1.0, ..full });
    says_of(&["window of 0"], [1, 5, 4, 8], [1, 5, 4, 8], Attention { window: Some(0), ..full });
    let near = Attention { window: Some(3), ..full };
    says_of(&["last of 9 queries", "none of 5 keys", "at least 5"], [1, 9, 4, 8], [1, 5, 4, 8], near);
    let late = Attention { window: Some(3), offset: 7, ..full };
    says_of(
        &["window of 3", "offset of 7", "slice off 5 keys", "offset of 2"],
        [1, 5, 4, 8],
        [1, 12, 4, 8],
        late,
    );
    let slopes = Attention { alibi: true, offset: 2, ..full };
    says_of(&["ALiBi", "offset of 2"], [1, 5, 4, 8], [1, 7, 4, 8], slopes);
    says_of(&["scale NaN"], [1, 5, 4, 8], [1, 5, 4, 8], Attention { scale: Some(f32::NAN), ..full });
    let packed = |shape: [usize; 4], heads, kv_heads| {
        trace_errors(|_, trace| trace.input("qkv", shape).self_attention(heads, kv_heads, &full).sum(&[]))
    };
    says(&packed([1, 5, 7, 8], 4, 2), &["takes 8 in all", "got 7"]);
    let moved = Attention { offset: 1, ..full };
    let part =
        trace_errors(|_, trace| trace.input("qkv", [1, 5, 3, 8]).self_attention(1, 1, &moved).sum(&[]));
    says(&part, &["an offset", "separate queries, keys and values"]);
    says(&packed([1, 5, 8, 8], 8, 0), &["0 key heads"]);
    says(&packed([1, 5, 3, 260], 1, 1), &["heads of 260", "up to 256"]);
    let flat = trace_errors(|_, trace| trace.input("x", [5, 24]).self_attention(1, 1, &full).sum(&[]));
    says(&flat, &["[batch, length, heads, head size]", "[5, 24]"]);
}
