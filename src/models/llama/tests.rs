//! Parts of a batch, and mistakes.

use super::*;
use crate::autodiff::differentiate;
use crate::graph::{Mode, Trace, ValueId};
use crate::models::transformer::token_loss;
use crate::reference::Twin;

/// The loss and the gradients of all parameters.
fn loss_and_gradients(config: &LlamaConfig, [b, s]: [usize; 2], within: bool, rows: usize) -> Vec<Vec<f64>> {
    let params = Params::new(0);
    let model = Llama::new(&params, config).expect("valid");
    let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
        let ids = trace.ids("ids", [b, s], config.vocabulary as u32);
        let labels = trace.labels("labels", [b, s], config.vocabulary as u32);
        let context = within.then(|| Context::within(&trace.ids("documents", [b, s, 2], s as u32 + 1)));
        token_loss(&model.stream(&ids, context.as_ref(), rows), &trace.param(model.output()), &labels, None)
    });
    let graph = graph.expect("valid");
    let loss = graph.outputs[0].1;
    let (trace, gradients) = differentiate(graph, loss).expect("a scalar");
    let mut read: Vec<ValueId> = gradients.pairs.iter().filter_map(|(_, gradient)| gradient.id()).collect();
    read.push(loss);
    let mut graph = trace.finish().expect("valid");
    graph.outputs.extend(read.iter().map(|id| (format!("gradient {}", id.index()), *id)));
    let mut twin = Twin::new(&graph);
    for name in ["ids", "labels"] {
        let token = |i: usize| ((i * 7 + name.len()) % config.vocabulary) as f64;
        twin.set(name, &(0..b * s).map(token).collect::<Vec<_>>()).expect("an input");
    }
    if within {
        // Of four tokens, from the second one of the batch on: the samples have other ends.
        let ends = |i: usize| {
            let (start, end) = ((i % s).saturating_sub((i + 3) % 4), (i % s + 4 - (i + 3) % 4).min(s));
            [start as f64, end as f64]
        };
        twin.set("documents", &(0..b * s).flat_map(ends).collect::<Vec<_>>()).expect("an input");
    }
    twin.run().expect("it runs");
    read.into_iter().map(|id| twin.value(id).expect("it was computed").to_vec()).collect()
}

#[test]
fn a_batch_without_tokens_is_an_error() {
    let params = Params::new(0);
    let model = Llama::new(&params, &LlamaConfig { vocabulary: 11, ..LlamaConfig::TINY }).expect("valid");
    for shape in [[0, 5], [2, 0]] {
        let graph = Trace::record(&params, Mode::Train, "y", |trace| {
            model.hidden(&trace.ids("ids", shape, 11)).sum(&[])
        });
        assert!(graph.is_err(), "{shape:?}");
    }
}

/// Parts of sequences with and without windows, of one and of several samples, and the last of fewer tokens.
#[test]
fn parts_have_the_loss_and_the_gradients_of_the_whole() {
    let tiny = LlamaConfig {
        vocabulary: 11,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_size: 4,
        width: 12,
        hidden: 20,
        ..LlamaConfig::TINY
    };
    let window = LlamaConfig { window: Some(3), qk_norm: true, qkv_bias: true, ..tiny };
    let sizes = LlamaConfig::GEMMA_2_2B;
    let gemma = LlamaConfig { window: Some(4), gemma: sizes.gemma, ..tiny };
    for (config, batch, rows) in [
        (tiny, [1, 9], 4),
        (tiny, [2, 7], 3),
        (tiny, [5, 3], 6),
        (window, [2, 9], 4),
        (window, [1, 10], 2),
        (gemma, [2, 9], 4),
    ] {
        for within in [false, true] {
            let [whole, parts] =
                [usize::MAX, rows].map(|rows| loss_and_gradients(&config, batch, within, rows));
            assert_eq!(whole.len(), parts.len());
            for (a, b) in whole.iter().flatten().zip(parts.iter().flatten()) {
                assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} in the whole, {b} in parts of {rows}");
            }
        }
    }
}
