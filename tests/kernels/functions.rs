//! Functions that are composed of others against PyTorch: `tests/golden/functions.py` has a case of each name.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::close::{Near, assert_close};
use crate::support::golden::{File, read, wide};
use crate::support::{devices, on_each};
use wgrad::autodiff::differentiate;
use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::dtype::DType;
use wgrad::exec::Session;
use wgrad::graph::{
    Attention, Bag, CrossEntropy, IGNORE, Init, Padding, Param, Params, Reduce, Tensor, Trace, Window,
};
use wgrad::nn::{Cell, Module, Recurrent, RecurrentConfig};
use wgrad::optim::Sgd;
use wgrad::reference::Twin;
use wgrad::shape::Shape;

/// The function of this name, of its operands in order.
fn apply(name: &str, x: &[Tensor]) -> Tensor {
    let a = &x[0];
    let window = |kernel: usize| Window::square(kernel).stride(2).padding(1);
    let deep = Window::of([2, 3, 2]).strides([1, 2, 2]).paddings([1, 1, 0]);
    let attention = Attention::default();
    let masked = |mask: &Tensor| a.attention_masked(&x[1], &x[2], mask, &attention);
    let entropy = |reduce: Reduce| {
        let weight = x[2].detach();
        a.cross_entropy_with(&x[1], &CrossEntropy { weight: Some(&weight), label_smoothing: 0.2, reduce })
    };
    // A few numbers, by position: no parameter is needed.
    let constant = |dims: [usize; 2], data: &[f32]| {
        let place = a.indices_like([data.len()], 0);
        let one = |(i, value): (usize, &f32)| place.equal(&a.fill_like([], i as f32)).scale(*value);
        let all = data.iter().enumerate().map(one).reduce(|sum, next| sum.add(&next)).expect("some numbers");
        all.reshape(dims)
    };
    match name {
        "min" => a.min(&[1]),
        "prod" | "prod_zeros" => a.prod(&[1]),
        "var" => a.var(&[0, 2], 1),
        "var_biased" => a.var(&[1], 0),
        "std" => a.std(&[1], 1),
        "norm" => a.norm(2.0, &[2]),
        "norm_zero" => a.norm(2.0, &[1]),
        "norm_1" => a.norm(1.0, &[0, 1]),
        "norm_3" => a.norm(3.0, &[1]),
        "norm_inf" => a.norm(f32::INFINITY, &[1]),
        "logsumexp" => a.logsumexp(&[1]),
        "logsumexp_two" => a.logsumexp(&[0, 2]),
        "argmax" => a.argmax(1),
        "argmin" => a.argmin(2),
        "cumsum" => a.cumsum(1),
        "softmax_over" => a.softmax_over(1),
        "log_softmax_over" => a.log_softmax_over(0),
        "gather" => a.gather(0, &x[1]),
        "gather_fewer" => a.gather(1, &x[1]),
        "scatter_add" => a.scatter_add(0, &x[1], &x[2]),
        "index_select" => a.index_select(1, &x[1]),
        "index_select_rows" => a.index_select(0, &x[1]),
        "one_hot" => a.one_hot(5),
        "sort" => a.sort(1, false).0,
        "sort_first" => a.sort(0, true).0,
        "argsort" => a.argsort(1, true),
        "topk" => a.topk(3, 1, true).0,
        "topk_smallest" => a.topk(2, 1, false).0,
        "einsum_matmul" => a.einsum("bij,bjk->bik", &[&x[1]]),
        "einsum_outer" => a.einsum("i,j->ji", &[&x[1]]),
        "einsum_sum" => a.einsum("ij,ij->", &[&x[1]]),
        "einsum_three" => a.einsum("ab,bc,cd->ad", &[&x[1], &x[2]]),
        "einsum_heads" => a.einsum("bqhd,bkhd->bhqk", &[&x[1]]),
        "einsum_implicit" => a.einsum("ij,jk", &[&x[1]]),
        "unsqueeze" => a.unsqueeze(1).squeeze(1),
        "stack" => a.stack(&[&x[1]], 1),
        "split" => a.split(1, &[2, 4, 1])[1].clone(),
        "chunk" => a.chunk(1, 3)[2].clone(),
        "repeat" => a.repeat(&[2, 3, 2]),
        "flip" => a.flip(1),
        "roll" => a.roll(1, 2),
        "roll_back" => a.roll(1, -7),
        "slice_step" => a.slice_step(0, 1..8, 3),
        "tril" => a.tril(1),
        "triu" => a.triu(-1),
        "pad_constant" => a.pad_with(1, 2, 1, Padding::Constant(1.5)),
        "pad_reflect" => a.pad_with(2, 3, 2, Padding::Reflect),
        "pad_replicate" => a.pad_with(2, 2, 4, Padding::Replicate),
        "pad_circular" => a.pad_with(2, 3, 2, Padding::Circular),
        "pixel_shuffle" => a.pixel_shuffle(2),
        "pixel_unshuffle" => a.pixel_unshuffle(2),
        "matmul_vectors" | "matmul_row" | "matmul_column" => a.matmul(&x[1]),
        "detach" => a.mul(&a.exp().detach()),
        "conv1d" => a.conv1d(&x[1], Some(&x[2]), Window::square(3).stride(2).padding(1).dilation(2), 2),
        "conv_transpose1d" => {
            a.conv_transpose1d(&x[1], Some(&x[2]), Window::square(3).stride(2).padding(1), 1, 2)
        }
        "conv3d" => {
            let window = Window::of([3, 2, 3]).strides([2, 1, 2]).paddings([1, 0, 1]).dilations([1, 2, 1]);
            a.conv3d(&x[1], Some(&x[2]), window, 2)
        }
        "conv_transpose3d" => {
            let window = Window::of([2, 3, 2]).strides([2, 1, 2]).paddings([0, 1, 1]);
            a.conv_transpose3d(&x[1], Some(&x[2]), window, [1, 0, 1], 2)
        }
        "max_pool1d" => a.max_pool1d(Window::square(3).stride(2).padding(1)),
        "avg_pool1d" => a.avg_pool1d(Window::square(3).stride(2).padding(1), true),
        "max_pool3d" => a.max_pool3d(deep),
        "avg_pool3d" => a.avg_pool3d(deep, false),
        "max_pool2d_ceil" => a.max_pool2d_ceil(window(3)),
        "avg_pool2d_ceil" => a.avg_pool2d_ceil(window(3), true),
        "avg_pool2d_ceil_inside" => a.avg_pool2d_ceil(window(3), false),
        "max_pool2d_large" => a.max_pool2d(Window::of([17, 16]).strides([2, 3])),
        "adaptive_max_pool2d" | "adaptive_max_pool2d_even" => a.adaptive_max_pool2d([3, 2]),
        "instance_norm" => a.instance_norm(&x[1], &x[2], 1e-5),
        "group_norm_3d" => a.group_norm(2, &x[1], &x[2], 1e-5),
        "local_response_norm" => a.local_response_norm(4, 0.5, 0.75, 2.0),
        "bicubic" => a.upsample_bicubic([9, 3], false),
        "bicubic_corners" => a.upsample_bicubic([9, 7], true),
        "einsum_diagonal" => a.einsum("bii, bj -> ij", &[&x[1]]),
        "einsum_trace" => a.einsum("ii", &[]),
        "einsum_ellipsis" => a.einsum("...ij,...jk->...ki", &[&x[1]]),
        "einsum_broadcast" => a.einsum("bi,bi->b", &[&x[1]]),
        "max_pool1d_long" => a.max_pool1d(Window::of([300]).stride(7).padding(20)),
        "max_pool1d_longer" => a.max_pool1d(Window::of([520]).stride(9).dilation(2)),
        "max_pool1d_ceil" => a.max_pool1d_ceil(Window::square(3).stride(2).padding(1)),
        "avg_pool1d_ceil" => a.avg_pool1d_ceil(Window::square(3).stride(2).padding(1), true),
        "max_pool3d_ceil" => a.max_pool3d_ceil(Window::square(3).stride(2).padding(1)),
        "avg_pool3d_ceil" => a.avg_pool3d_ceil(Window::square(3).stride(2).padding(1), true),
        "avg_pool3d_ceil_inside" => a.avg_pool3d_ceil(Window::square(3).stride(2).padding(1), false),
        "adaptive_avg_pool1d" => a.adaptive_avg_pool1d(3),
        "adaptive_max_pool1d" => a.adaptive_max_pool1d(3),
        "adaptive_avg_pool3d" => a.adaptive_avg_pool3d([2, 3, 2]),
        "adaptive_max_pool3d" => a.adaptive_max_pool3d([2, 3, 2]),
        "nll_ignored" => a.log_softmax().nll(&x[1]),
        "smooth_l1_zero" => a.smooth_l1(&x[1], 0.0),
        "scatter_add_fewer" => a.scatter_add(1, &x[1], &x[2]),
        "embedding_bag" => a.embedding_bag(&x[1], Bag::Mean, None),
        "embedding_bag_sum" => a.embedding_bag(&x[1], Bag::Sum, Some(2)),
        "embedding_bag_mean" => a.embedding_bag(&x[1], Bag::Mean, Some(2)),
        "embedding_bag_max" => a.embedding_bag(&x[1], Bag::Max, Some(2)),
        "embedding_bag_whole" => a.embedding_bag(&x[1], Bag::Max, None),
        "cross_entropy_3d" => a.cross_entropy(&x[1]),
        "cross_entropy_mean" => entropy(Reduce::Mean),
        "cross_entropy_sum" => entropy(Reduce::Sum),
        "cross_entropy_none" => entropy(Reduce::None),
        "nll" => a.log_softmax().nll(&x[1]),
        "kl_div" => a.log_softmax().kl_div(&x[1].softmax()),
        "l1" => a.l1(&x[1]),
        "huber" => a.huber(&x[1], 0.7),
        "smooth_l1" => a.smooth_l1(&x[1], 0.7),
        "hinge" => a.hinge(&x[1].sign().detach()),
        "cosine_similarity" => a.cosine_similarity(&x[1], 1, 1e-8),
        "cosine_embedding" => {
            a.cosine_embedding(&x[1], &constant([1, 4], &[1.0, -1.0, 1.0, -1.0]).squeeze(0), -0.2)
        }
        "ctc" => a.log_softmax().ctc(&x[1], &x[2], &x[3], 0),
        "attention_padding" => {
            let seen = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0];
            masked(&constant([2, 5], &seen).padding_mask())
        }
        "attention_bias" => masked(&x[3]),
        _ => panic!("the file has a function `{name}` that this test does not know"),
    }
}

const CELLS: [(&str, Cell); 3] = [("rnn", Cell::Rnn), ("gru", Cell::Gru), ("lstm", Cell::Lstm)];
const WEIGHTS: [&str; 4] = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"];

/// Names of the cases in a file.
fn names(file: &File) -> BTreeSet<String> {
    file.keys().filter_map(|key| key.strip_suffix("/y")).map(str::to_owned).collect()
}

/// The operands of a case: numbers are parameters, integers inputs.
struct Operands {
    params: Vec<Option<Param>>,
    integers: BTreeMap<String, (Vec<usize>, Vec<u32>)>,
}

fn operands(file: &File, name: &str, params: &Params) -> Operands {
    let mut all = Operands { params: Vec::new(), integers: BTreeMap::new() };
    for i in 0.. {
        let key = format!("{name}/{i}");
        let Some((dims, data)) = file.get(&key) else { break };
        let shape = Shape::try_new(dims).expect("few dimensions");
        // What PyTorch has no gradient for is integers, or a weight that it detached.
        let detached = name.starts_with("cross_entropy") && i == 2 || name == "hinge" && i == 1;
        if file.contains_key(&format!("{name}/d{i}")) || detached || name.starts_with("arg") {
            all.params.push(Some(params.add(&key, shape, Init::Data(data.as_slice().into()))));
        } else {
            let id = |x: &f32| if *x < 0.0 { IGNORE } else { *x as u32 };
            all.params.push(None);
            all.integers.insert(key, (dims.clone(), data.iter().map(id).collect()));
        }
    }
    all
}

fn recurrent(file: &File, name: &str, cell: Cell, params: &Params, trace: &Trace) -> Tensor {
    let data = |key: String| {
        let (dims, data) = &file[&key];
        (Shape::try_new(dims).expect("few dimensions"), Init::Data(data.as_slice().into()))
    };
    let (shape, init) = data(format!("{name}/0"));
    let x = params.add(&format!("{name}/0"), shape, init);
    let (inputs, hidden) = (shape.last(), file[&format!("{name}/2")].0[1]);
    let layer =
        Recurrent::new(&params.scope(name), inputs, hidden, RecurrentConfig { cell, ..Default::default() });
    layer.forward(&trace.param(&x))
}

/// All cases in one step: the gradient of a case's weights is its result.
fn step(file: &File) -> (TrainStep, BTreeMap<String, Vec<u32>>) {
    let params = Params::new(0);
    let mut integers = BTreeMap::new();
    let step = TrainStep::trace(&params, |trace| {
        let mut terms = Vec::new();
        for name in names(file) {
            let y = if let Some((_, cell)) = CELLS.iter().find(|(cell, _)| *cell == name) {
                recurrent(file, &name, *cell, &params, trace)
            } else {
                let own = operands(file, &name, &params);
                let mut x = Vec::new();
                for (i, param) in own.params.iter().enumerate() {
                    let key = format!("{name}/{i}");
                    x.push(match param {
                        Some(param) => trace.param(param),
                        None => {
                            let (dims, data) = &own.integers[&key];
                            let shape = Shape::try_new(dims).expect("few dimensions");
                            let below = data.iter().filter(|id| **id != IGNORE).max().map_or(1, |id| id + 1);
                            match data.contains(&IGNORE) {
                                true => trace.labels(&key, shape, below),
                                false => trace.ids(&key, shape, below),
                            }
                        }
                    });
                }
                integers.extend(own.integers.into_iter().map(|(key, (_, data))| (key, data)));
                apply(&name, &x)
            };
            let (dims, y_data) = &file[&format!("{name}/y")];
            let y = y.cast(DType::F32);
            assert_eq!(y.shape().dims(), dims, "{name}");
            // Integers have no weights.
            let weights =
                file.get(&format!("{name}/dy")).map_or(vec![1.0; y_data.len()], |(_, dy)| dy.clone());
            let weights = params.add(&format!("{name}/dy"), y.shape(), Init::Data(weights.into()));
            terms.push(y.mul(&trace.param(&weights)).sum(&[]));
        }
        terms.into_iter().reduce(|sum, term| sum.add(&term)).expect("the file has cases")
    });
    (step.unwrap_or_else(|e| panic!("{e}")), integers)
}

/// The weights of recurrent layers, by parameter.
fn weights(file: &File) -> BTreeMap<String, Vec<f32>> {
    let all =
        CELLS.iter().flat_map(|(cell, _)| WEIGHTS.iter().zip(1..).map(move |(name, i)| (*cell, *name, i)));
    all.map(|(cell, name, i)| (format!("{cell}.{name}"), file[&format!("{cell}/{i}")].1.clone())).collect()
}

/// The key in the file of the gradient of a parameter, if it has one.
fn expected<'a>(file: &'a File, parameter: &str) -> Option<&'a [f32]> {
    let weights = CELLS.iter().find_map(|(cell, _)| {
        let name = parameter.strip_prefix(&format!("{cell}."))?;
        Some((*cell, WEIGHTS.iter().position(|own| *own == name)? + 1))
    });
    let key = match (weights, parameter.rsplit_once('/')) {
        (Some((cell, i)), _) => format!("{cell}/d{i}"),
        // The gradient of the weights is the result.
        (None, Some((name, "dy"))) => format!("{name}/y"),
        (None, Some((name, i))) => format!("{name}/d{i}"),
        (None, None) => panic!("parameter `{parameter}`"),
    };
    file.get(&key).map(|(_, data)| &data[..])
}

#[test]
fn composed_functions_match_pytorch() {
    let file = read("functions.safetensors");
    assert!(names(&file).len() >= 108, "only {} functions in the file", names(&file).len());
    let (step, integers) = step(&file);
    let graph = step.graph().clone();
    let loss = graph.outputs[0].1;
    let (trace, gradients) = differentiate(graph, loss).expect("a scalar loss");
    let graph = trace.finish().expect("valid");
    let mut twin = Twin::new(&graph);
    integers.iter().for_each(|(name, data)| twin.set_u32(name, data).expect("valid ids"));
    let weights = weights(&file);
    weights.iter().for_each(|(name, data)| twin.set_f32(name, data).expect("a weight of a layer"));
    twin.run().expect("the twin runs");
    for (parameter, gradient) in &gradients.pairs {
        let name = &graph.value(*parameter).name;
        let (Some(expected), Some(id)) = (expected(&file, name), gradient.id()) else { continue };
        let found = twin.value(id).expect("computed");
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - f64::from(*expected)).abs();
            assert!(error < 1e-6 * (1.0 + found.abs()), "{name} at {i}: {found}, PyTorch has {expected}");
        }
    }
    let optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    on_each(devices(), |device| {
        let mut session = Session::new(device, &step.plan(&options, device.limits()).expect("it fits"))
            .expect("a session opens");
        integers.iter().for_each(|(name, data)| session.feed(name, data).expect("valid ids"));
        weights
            .iter()
            .for_each(|(name, data)| session.set_parameter(name, data).expect("a weight of a layer"));
        session.step().expect("the plan runs");
        for (parameter, _) in &gradients.pairs {
            let name = &graph.value(*parameter).name;
            let Some(expected) = expected(&file, name) else { continue };
            // A momentum buffer after one step is the gradient.
            let found = session.parameter(&format!("{name}.momentum_buffer")).expect("momentum's state");
            assert_close(
                &format!("gradient of {name}"),
                &found,
                &wide(expected),
                Near { rel: 2e-5, abs: 1e-5 },
            );
        }
    });
}
