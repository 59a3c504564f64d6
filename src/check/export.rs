//! Exports random networks as JSON for comparison with other libraries: `benches/check/against_pytorch.py`
//! runs them in PyTorch.

use super::network::{Feed, Network};
use super::outcome::starts;
use super::reference::Reference;
use crate::error::{Error, Result};
use crate::graph::{
    Attend, Averaging, Class, Graph, Node, Op, Resample, RowNorm, STEP_SCALARS, StepScalars, Value, Window,
};
use crate::json::Json;
use crate::optim::{Optimizer, Sgd};
use crate::reference::{Twin, dropout_keeps};

/// Exports the traced network of a seed, its input data, and its loss and gradients in `f64`: `values`,
/// `nodes` with `op`, `inputs`, `outputs` and their settings, `loss`, `gradients` by name.
///
/// # Errors
/// Only on bugs of the library.
pub fn network(seed: u64) -> Result<Json> {
    let network = Network::random(seed, super::nodes(seed))?;
    let graph = network.step.graph();
    let optimizer: Optimizer = Sgd::default().into();
    let scalars = optimizer.scalars(0, 0.0, seed);
    let parameters = starts(graph, &Twin::new(graph))?;
    let reference = Reference::of(&network, 1, &parameters, &scalars, None)?;
    let words: &[u32] = bytemuck::cast_slice(std::slice::from_ref(&scalars));
    let words: [u32; StepScalars::WORDS] =
        words.try_into().map_err(|_| Error::Internal("other step scalars".to_owned()))?;
    let values = graph.values.iter().map(|value| {
        let data = match network.feeds.get(&value.name) {
            _ if value.name == STEP_SCALARS => Json::Null,
            Some(Feed::Floats { numbers, .. }) => {
                floats(numbers[..count(value)].iter().map(|x| f64::from(*x)))
            }
            Some(Feed::Indices(indices)) => Json::list(indices[..count(value)].iter().map(|i| u64::from(*i))),
            None => parameters.get(&value.name).map_or(Json::Null, |data| floats(data.iter().copied())),
        };
        let trained = value.class == Class::Parameter
            && graph.parameters.iter().any(|param| param.trained() && param.name() == value.name);
        Json::object([
            ("name", Json::Text(value.name.clone())),
            ("shape", Json::list(value.shape.dims().iter().copied())),
            ("dtype", Json::Text(value.dtype.name().to_owned())),
            ("trained", Json::Bool(trained)),
            ("data", data),
        ])
    });
    let nodes = graph.nodes.iter().map(|node| {
        let ids = |ids: &[crate::graph::ValueId]| Json::list(ids.iter().map(|id| id.index()));
        let mut entries = vec![
            ("op", Json::Text(node.op.name().to_owned())),
            ("inputs", ids(&node.inputs)),
            ("outputs", ids(&node.outputs)),
        ];
        entries.extend(settings(graph, node, words));
        Json::object(entries)
    });
    let gradients = reference.gradients.iter().map(|(name, g)| (name.clone(), floats(g.iter().copied())));
    Ok(Json::object([
        ("seed", Json::Int(seed)),
        ("values", Json::List(values.collect())),
        ("nodes", Json::List(nodes.collect())),
        ("output", Json::Int(graph.outputs[0].1.index() as u64)),
        ("loss", Json::Float(reference.loss)),
        ("gradients", Json::object(gradients)),
    ]))
}

fn count(value: &Value) -> usize {
    value.shape.numel() as usize
}

fn floats(data: impl Iterator<Item = f64>) -> Json {
    Json::List(data.map(Json::Float).collect())
}

fn number(x: f32) -> Json {
    Json::Float(f64::from(x))
}

fn window(window: Window) -> Vec<(&'static str, Json)> {
    let Window { kernel, stride, padding, dilation } = window;
    vec![
        ("kernel", Json::list(kernel)),
        ("stride", Json::list(stride)),
        ("padding", Json::list(padding)),
        ("dilation", Json::list(dilation)),
    ]
}

/// Returns the settings of an operation of the forward pass.
fn settings(graph: &Graph, node: &Node, words: [u32; StepScalars::WORDS]) -> Vec<(&'static str, Json)> {
    match &node.op {
        Op::MatMul { ta, tb, .. } => vec![("ta", Json::Bool(*ta)), ("tb", Json::Bool(*tb))],
        Op::Unary(f) => {
            let constants = ["a", "b"].into_iter().zip(f.code().1);
            constants.take(f.function().constants).map(|(name, value)| (name, number(value))).collect()
        }
        Op::Reduce { axes, .. } => {
            vec![("axes", Json::list((0..8usize).filter(|axis| axes >> axis & 1 == 1)))]
        }
        Op::Permute(perm) => vec![("perm", Json::list(perm.iter().copied()))],
        Op::Slice { axis, start, len } => {
            vec![("axis", Json::from(*axis)), ("start", Json::from(*start)), ("len", Json::from(*len))]
        }
        Op::Stride { axis, start, step, len } | Op::Place { axis, start, step, len } => vec![
            ("axis", Json::from(*axis)),
            ("start", Json::from(*start)),
            ("step", Json::Float(*step as f64)),
            ("len", Json::from(*len)),
        ],
        Op::Iota { axis, .. } | Op::Gather { axis } => vec![("axis", Json::from(*axis))],
        Op::ScatterAdd { axis, len } => vec![("axis", Json::from(*axis)), ("len", Json::from(*len))],
        Op::ArgSort { descending } => vec![("descending", Json::Bool(*descending))],
        Op::Concat { axis } => vec![("axis", Json::from(*axis))],
        Op::Fill { value, .. } => vec![("value", number(*value))],
        Op::Dropout { p, key, every } => {
            let n = count(graph.value(node.outputs[0]));
            let kept = (0..n).map(|i| Json::Bool(dropout_keeps(i, [*key, *every], words, *p)));
            vec![("p", Json::Float(*p)), ("kept", Json::List(kept.collect()))]
        }
        Op::Attention(Attend { packed, band, documents, offset, alibi, scale, cap, dropout, .. }) => vec![
            ("packed", packed.map_or(Json::Null, Json::list)),
            ("before", Json::from(band.before as usize)),
            ("after", Json::from(band.after as usize)),
            ("documents", Json::Bool(*documents)),
            ("offset", Json::from(*offset as usize)),
            ("alibi", Json::Bool(*alibi)),
            ("scale", number(*scale)),
            ("cap", number(*cap)),
            ("dropout", Json::Float(*dropout)),
        ],
        Op::Conv2d { window: w, groups, .. } => [window(*w), vec![("groups", Json::from(*groups))]].concat(),
        Op::Conv2dInput { window: w, groups, size, .. } => {
            [window(*w), vec![("groups", Json::from(*groups)), ("size", Json::list(*size))]].concat()
        }
        Op::MaxPool2d(w) => window(*w),
        Op::AvgPool2d(Averaging::Window { window: w, count_padding }) => {
            [window(*w), vec![("count_padding", Json::Bool(*count_padding))]].concat()
        }
        Op::AvgPool2d(Averaging::Adaptive(size)) => vec![("adaptive", Json::list(*size))],
        Op::Resample { mode, size } => {
            vec![("size", Json::list(*size)), ("corners", Json::Bool(*mode == Resample::BilinearCorners))]
        }
        Op::BatchStats { eps, .. } => vec![("eps", number(*eps))],
        Op::RowNorm { kind, eps } => vec![("rms", Json::Bool(*kind == RowNorm::Rms)), ("eps", number(*eps))],
        Op::Rotary { heads, rope, .. } => {
            let [far, slope, offset] = rope.ramp().map(Json::Float);
            vec![
                ("heads", Json::from(*heads)),
                ("base", number(rope.base)),
                ("far", far),
                ("slope", slope),
                ("offset", offset),
            ]
        }
        _ => Vec::new(),
    }
}
