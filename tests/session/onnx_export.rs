//! Networks exported as ONNX files: read again, they compute the same. `benches/onnx/export.py` compares them with
//! onnxruntime.

use std::collections::BTreeMap;

use wgrad::compile::Forward;
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Attention, Init, Padding, Params, Tensor, Trace, Window};
use wgrad::models::{Bert, BertConfig, Gpt, GptConfig, Llama, LlamaConfig, Model, Sequence};
use wgrad::nn::{BatchNorm2d, Cell, Conv2d, Linear, Module, Recurrent, RecurrentConfig};
use wgrad::onnx::{Network, Sizes, export};

use crate::support::{devices, noise, on_each, some_labels};

/// Runs a forward pass and returns all of its outputs; parameters are changed from their initial values first.
fn outputs(device: &Device, forward: &Forward, change: bool) -> (Session, BTreeMap<String, Vec<f32>>) {
    let plan = forward.plan(device.limits()).expect("planned");
    let mut session = Session::new(device, &plan).expect("it opens");
    for (i, param) in forward.graph().parameters.iter().enumerate().filter(|_| change) {
        let mut data = session.parameter(param.name()).expect("a parameter");
        let noise = noise(i as u64, data.len(), 0.0, 0.2);
        data.iter_mut().zip(noise).for_each(|(x, noise)| *x += noise);
        session.set_parameter(param.name(), &data).expect("of its shape");
    }
    for (_, input) in forward.graph().inputs() {
        let count = input.shape.numel() as usize;
        match input.indices {
            Some(_) => session.feed(&input.name, &some_labels(7, count, 2)).expect("ids"),
            None => session.feed(&input.name, &noise(7, count, -1.0, 1.0)).expect("numbers"),
        }
    }
    session.run(ProgramId(0)).expect("it runs");
    let names: Vec<String> = forward.graph().outputs.iter().map(|(name, _)| name.clone()).collect();
    let read = names.into_iter().map(|name| {
        let data = session.output::<f32>(ProgramId(0), &name).expect("an output");
        (name, data)
    });
    let read = read.collect();
    (session, read)
}

/// Exports a forward pass with the parameters of a session, and compares its outputs with those of the file.
fn round_trip(device: &Device, what: &str, forward: &Forward) {
    let (mut session, wanted) = outputs(device, forward, true);
    let file = export(forward, |name| session.parameter(name)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let network = Network::from_bytes(&file).unwrap_or_else(|e| panic!("{what}: {e}"));
    let inputs: Vec<_> = network.inputs().into_iter().map(|port| port.name).collect();
    let own: Vec<_> = forward.graph().inputs().map(|(_, value)| value.name.clone()).collect();
    assert_eq!(inputs, own, "{what}");
    let params = Params::new(1);
    let again = network.inference(&params, &Sizes::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let trained: Vec<_> = forward.graph().parameters.iter().map(|param| param.name()).collect();
    let list = params.list();
    let unknown = list.iter().find(|p| !trained.contains(&p.name()) && !p.name().starts_with("constant."));
    assert!(unknown.is_none(), "{what}: {unknown:?}");
    let (_, found) = outputs(device, &again, false);
    assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "{what}");
    for (name, wanted) in &wanted {
        let found = &found[name];
        assert_eq!(wanted.len(), found.len(), "{what}: {name}");
        let size = wanted.iter().fold(1.0, |size: f32, x| size.max(x.abs()));
        let apart = wanted.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart <= 1e-5 * size, "{what}: {name} differs by {apart} of {size}");
    }
}

type Case = (&'static str, fn(&Tensor) -> Tensor);

/// Operations of elements, reductions, and moves, of `x [2, 4, 6, 5]`.
const OF_NUMBERS: &[Case] = &[
    ("scale", |x| x.scale(0.7)),
    ("offset", |x| x.offset(-0.3)),
    ("exp", |x| x.exp()),
    ("log", |x| x.abs().offset(0.1).log()),
    ("sqrt", |x| x.abs().sqrt()),
    ("square", |x| x.square()),
    ("recip", |x| x.square().offset(0.5).recip()),
    ("rsqrt", |x| x.square().offset(0.5).rsqrt()),
    ("clamp", |x| x.clamp(-0.4, 0.6)),
    ("relu", |x| x.relu()),
    ("leaky_relu", |x| x.leaky_relu(0.2)),
    ("sigmoid", |x| x.sigmoid()),
    ("tanh", |x| x.scale(3.0).tanh()),
    ("gelu", |x| x.scale(3.0).gelu()),
    ("gelu_tanh", |x| x.scale(3.0).gelu_tanh()),
    ("silu", |x| x.silu()),
    ("neg", |x| x.neg()),
    ("softplus", |x| x.softplus()),
    ("elu", |x| x.elu(0.7)),
    ("hardsigmoid", |x| x.scale(5.0).hardsigmoid()),
    ("hardswish", |x| x.scale(5.0).hardswish()),
    ("sin", |x| x.sin()),
    ("cos", |x| x.cos()),
    ("floor", |x| x.scale(3.0).floor()),
    ("ceil", |x| x.scale(3.0).ceil()),
    ("round", |x| x.scale(3.0).round()),
    ("sign", |x| x.sign()),
    ("mish", |x| x.mish()),
    ("erf", |x| x.erf()),
    ("two", |x| x.div(&x.square().offset(1.0)).sub(&x.mul(&x.flip(2))).maximum(&x.minimum(&x.flip(3)))),
    ("pow", |x| x.abs().offset(0.2).pow(x)),
    ("flags", |x| {
        let y = x.flip(3);
        let all = x.greater(&y).add(&x.equal(&y).scale(2.0)).add(&x.not_equal(&y).scale(4.0));
        let more = x.greater_equal(&y).scale(8.0).add(&x.less(&y).scale(16.0));
        all.add(&more).add(&x.less_equal(&y).scale(32.0))
    }),
    ("masked", |x| x.masked(&x.relu()).add(&x.flip(2).unmasked(&x.relu()))),
    ("bce", |x| x.bce_with_logits(&x.sigmoid())),
    ("sum", |x| x.sum(&[1, 3])),
    ("mean", |x| x.mean(&[0])),
    ("max", |x| x.max(&[2])),
    ("length", |x| x.norm(2.0, &[1])),
    ("log_softmax", |x| x.log_softmax()),
    ("softmax", |x| x.softmax_over(1)),
    ("permute", |x| x.permute(&[2, 0, 3, 1]).reshape([12, 20]).slice(0, 3..9)),
    ("stride", |x| x.slice_step(2, 1..6, 2).flip(3)),
    ("pad", |x| x.pad(2, 1, 2).pad_with(3, 2, 1, Padding::Reflect).pad_with(1, 1, 0, Padding::Constant(0.5))),
    ("concat", |x| x.concat(&[&x.relu(), x], 1).roll(3, 2)),
    ("expand", |x| x.slice(1, 0..1).expand([2, 3, 6, 5]).detach()),
    ("triangle", |x| x.tril(0).add(&x.triu(1).scale(0.5))),
    ("cumsum", |x| x.cumsum(2)),
    ("sort", |x| x.sort(3, true).0.concat(&[&x.argsort(2, false).cast(wgrad::dtype::DType::F32)], 3)),
    ("argmax", |x| x.argmax(1).cast(wgrad::dtype::DType::F32)),
    ("gather", |x| x.gather(3, &x.scale(9.0).offset(2.0).cast(wgrad::dtype::DType::U32))),
    ("scatter", |x| x.scatter_add(3, &x.scale(4.0).cast(wgrad::dtype::DType::U32), &x.flip(2))),
    ("matmul", |x| x.matmul_transposed(x, true, false).matmul_transposed(x, false, true)),
    ("einsum", |x| x.einsum("nchw,ncjw->nhj", &[x])),
    ("max_pool", |x| x.max_pool2d(Window::of([3, 2]).stride(2).padding(1))),
    ("avg_pool", |x| x.avg_pool2d(Window::square(3).stride(2).padding(1), false)),
    ("avg_pool_all", |x| x.avg_pool2d(Window::square(3).padding(1), true)),
    ("adaptive", |x| x.adaptive_avg_pool2d([4, 2])),
    ("adaptive_even", |x| x.adaptive_avg_pool2d([3, 5])),
    ("nearest", |x| x.upsample_nearest([9, 10])),
    ("bilinear", |x| x.upsample_bilinear([9, 12], false)),
    ("corners", |x| x.upsample_bilinear([9, 12], true)),
    ("shuffle", |x| x.pixel_shuffle(2)),
    ("rotary", |x| x.permute(&[0, 2, 1, 3]).slice(3, 0..4).rotary(3, 100.0)),
    ("attention", |x| {
        let x = x.permute(&[0, 2, 1, 3]).slice(3, 0..4);
        x.attention(&x.slice(2, 0..2), &x.slice(2, 2..4), &Attention::default())
    }),
    ("causal", |x| {
        let x = x.permute(&[0, 2, 1, 3]).slice(3, 0..4);
        x.self_attention(2, 1, &Attention { causal: true, ..Attention::default() })
    }),
    ("window", |x| {
        let x = x.permute(&[0, 2, 1, 3]).slice(3, 0..4);
        let options = Attention { window: Some(2), alibi: true, softcap: Some(0.5), ..Attention::default() };
        x.self_attention(2, 1, &options)
    }),
];

#[test]
fn operations_are_computed_again_by_the_exported_file() {
    let params = Params::new(3);
    let weight = |name: &str, dims: &[usize]| {
        let shape = wgrad::shape::Shape::try_new(dims).expect("few dimensions");
        params.add(name, shape, Init::Normal(0.3))
    };
    let window = Window::of([3, 2]).stride(2).padding(1);
    let conv = Conv2d::new(&params.scope("conv"), 4, 8, window);
    let norm = BatchNorm2d::new(&params.scope("norm"), 4);
    let recurrent = |cell: Cell| {
        let config = RecurrentConfig { cell, bidirectional: true, ..RecurrentConfig::default() };
        Recurrent::new(&params.scope(format!("{cell:?}")), 5, 6, config)
    };
    let cells = [Cell::Rnn, Cell::Gru, Cell::Lstm].map(|cell| (format!("{cell:?}"), recurrent(cell)));
    let (grouped, up) = (weight("grouped.weight", &[8, 2, 3, 3]), weight("up.weight", &[4, 3, 3, 3]));
    let (gamma, beta) = (weight("gamma", &[5]), weight("beta", &[5]));
    let (channel, table) = (weight("channel", &[4]), weight("table", &[12, 5]));
    let (line, volume) = (weight("line.weight", &[3, 4, 3]), weight("volume.weight", &[2, 4, 2, 2, 2]));
    let model = |trace: &Trace| {
        let x = trace.input("x", [2, 4, 6, 5]);
        let ids = trace.ids("ids", [2, 3], 11);
        for (name, f) in OF_NUMBERS {
            trace.output(name, &trace.layer(name, || f(&x)));
        }
        let p = |param| trace.param(param);
        let rows = x.reshape([2, 24, 5]);
        trace.output("conv", &x.apply(&conv));
        trace.output("grouped", &x.conv2d(&p(&grouped), None, Window::square(3).dilation(2).padding(2), 2));
        let wide = Window::square(3).stride(2).padding(1);
        trace.output("up", &x.conv_transpose2d(&p(&up), None, wide, [1, 0], 1));
        trace.output("line", &x.reshape([2, 4, 30]).conv1d(&p(&line), None, Window::of([3]), 1));
        let cube = x.reshape([2, 4, 3, 2, 5]);
        trace.output("volume", &cube.conv3d(&p(&volume), None, Window::of([2, 2, 2]), 1));
        trace.output("norm", &x.apply(&norm).relu());
        trace.output("group_norm", &x.group_norm(2, &p(&channel), &p(&channel), 1e-5));
        trace.output("layer_norm", &x.layer_norm(&p(&gamma), &p(&beta), 1e-5));
        trace.output("rms_norm", &x.rms_norm(&p(&gamma), 1e-5));
        trace.output("embedding", &p(&table).embedding(&ids));
        cells.iter().for_each(|(name, cell)| trace.output(name, &cell.forward(&rows.slice(1, 0..3))));
        // A parameter, and one value under two names.
        trace.output("copied", &p(&gamma));
        let twice = x.scale(2.0);
        trace.output("twice", &twice);
        trace.output("again", &twice);
        x.mean(&[])
    };
    let forward = Forward::trace(&params, "y", model).expect("valid");
    on_each(devices(), |device| round_trip(device, "operations", &forward));
}

#[test]
fn exported_models_compute_the_same() {
    let named = |name| (name, Model::named(name, 0).expect("known").forward(2).expect("valid"));
    let mut all: Vec<(&str, Forward)> = ["mlp", "cnn"].map(named).into();
    let sequence = |network: &dyn Sequence, params: &Params| {
        let logits = |trace: &Trace| network.logits(&trace.ids("x", [2, 8], 16));
        Forward::trace(params, "logits", logits).expect("valid")
    };
    let (vocabulary, context, width, heads) = (16, 8, 32, 4);
    let params = Params::new(0);
    let config = GptConfig { vocabulary, context, layers: 2, heads, width, dropout: 0.1 };
    all.push(("gpt", sequence(&Gpt::new(&params, &config).expect("valid"), &params)));
    let params = Params::new(0);
    let config = BertConfig { vocabulary, context, layers: 2, heads, width, dropout: 0.1 };
    all.push(("bert", sequence(&Bert::new(&params, &config).expect("valid"), &params)));
    let params = Params::new(0);
    let config =
        LlamaConfig { vocabulary, layers: 2, heads, kv_heads: 2, width, hidden: 48, ..LlamaConfig::TINY };
    all.push(("llama", sequence(&Llama::new(&params, &config).expect("valid"), &params)));
    on_each(devices(), |device| all.iter().for_each(|(name, forward)| round_trip(device, name, forward)));
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let params = Params::new(0);
    let layer = Linear::new(&params.scope("fc"), 4, 3);
    let zeros = |forward: &Forward| {
        let sizes: BTreeMap<String, usize> =
            forward.graph().values.iter().map(|v| (v.name.clone(), v.shape.numel() as usize)).collect();
        move |name: &str| Ok(vec![0.0; sizes[name]])
    };
    let refused = |forward: &Forward, parts: &[&str]| {
        let error = export(forward, zeros(forward)).expect_err("refused").to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "`{part}` is not in: {error}"));
    };
    let loss = Forward::trace(&params, "loss", |trace| {
        let y = layer.forward(&trace.input("x", [2, 4]));
        trace.layer("head", || y.cross_entropy(&trace.labels("labels", [2], 3)))
    });
    refused(&loss.expect("valid"), &["no counterpart in ONNX", "cross_entropy (in head)", "label_share"]);
    let named = Forward::trace(&params, "x", |trace| layer.forward(&trace.input("x", [2, 4])));
    refused(&named.expect("valid"), &["output `x` has the name of an input"]);
    let good = Forward::trace(&params, "y", |trace| layer.forward(&trace.input("x", [2, 4]))).expect("valid");
    let error = export(&good, |_| Ok(vec![0.0])).expect_err("too few").to_string();
    assert!(
        error.contains("parameter `fc.bias` [3] got 1 elements")
            || error.contains("`fc.weight` [3, 4] got 1"),
        "{error}"
    );
    // The same network and parameters give the same bytes.
    assert_eq!(export(&good, zeros(&good)).expect("written"), export(&good, zeros(&good)).expect("written"));
}
