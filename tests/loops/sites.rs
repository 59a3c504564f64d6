//! Operations of extreme shapes, forward and backward, and the adapters that they are lowered for.

use wgrad::autodiff::differentiate;
use wgrad::dtype::DType;
use wgrad::graph::{Attention, Graph, Init, Params, Reduction, Tensor, Trace, Window};
use wgrad::limits::{Cooperative, Limits};
use wgrad::lower::{conv, products};
use wgrad::plan::TrainStep;

/// A graph with its backward pass.
pub struct Extreme {
    pub name: String,
    pub graph: Graph,
}

/// Every preset, every way to compute products and convolutions by name, and cooperative matrices.
pub fn presets() -> Vec<Limits> {
    let named = |name: &str| Limits::named(name).expect("a preset");
    let mut list: Vec<Limits> = Limits::NAMES.map(named).to_vec();
    let ways = products::ROWS.iter().map(|row| row.name).chain(conv::ROWS.iter().map(|row| row.name));
    let mut ways: Vec<&'static str> = ways.collect();
    ways.sort_unstable();
    ways.dedup();
    for preset in ["lavapipe", "swiftshader"] {
        list.extend(ways.iter().map(|way| Limits {
            name: format!("{preset} by {way}"),
            product: Some(way),
            ..named(preset)
        }));
    }
    for side in [8, 16] {
        let cooperative = Some(Cooperative { side, lanes: 32 });
        list.push(Limits { name: format!("cooperative {side}"), cooperative, ..named("discrete") });
    }
    list
}

/// Where a case's operands come from.
pub struct Stage<'a> {
    params: Params,
    trace: &'a Trace,
}

impl Stage<'_> {
    /// A parameter: what an operation does with it has a gradient.
    fn x(&self, shape: &[usize]) -> Tensor {
        let shape = wgrad::shape::Shape::try_new(shape).expect("few dimensions");
        let name = format!("p{}", self.params.list().len());
        self.trace.param(&self.params.add(&name, shape, Init::Constant(1.0))).scale(2.0)
    }

    fn ids(&self, n: usize, below: u32) -> Tensor {
        self.trace.ids("ids", [n], below)
    }
}

fn extreme(name: String, build: impl Fn(&Stage) -> Tensor) -> Extreme {
    let params = Params::new(1);
    let step = TrainStep::trace(&params, |trace| {
        build(&Stage { params: params.clone(), trace }).square().sum(&[])
    });
    let graph = step.unwrap_or_else(|e| panic!("{name}: {e}")).graph().clone();
    let loss = graph.outputs[0].1;
    let (trace, _) = differentiate(graph, loss).unwrap_or_else(|e| panic!("{name}: {e}"));
    let graph = trace.finish().unwrap_or_else(|e| panic!("{name}: {e}"));
    Extreme { name, graph }
}

/// More than a binding of lavapipe holds, and within 32 bits.
const HUGE: usize = 1 << 27;

pub fn extremes() -> Vec<Extreme> {
    let mut list = Vec::new();
    let mut add = |name: String, build: &dyn Fn(&Stage) -> Tensor| list.push(extreme(name, build));
    for dims in [vec![HUGE], vec![3, HUGE / 4], vec![HUGE / 4, 3], vec![1 << 9, 5, 1 << 9, 7, 1 << 5, 3]] {
        for kind in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::SumSquares] {
            for mask in 1..1u8 << dims.len() {
                let axes: Vec<usize> = (0..dims.len()).filter(|axis| mask >> axis & 1 == 1).collect();
                add(format!("{kind:?} of {dims:?} over {axes:?}"), &|s| s.x(&dims).reduce_keep(kind, &axes));
            }
        }
    }
    for k in [65_536, 100_001, 130_000, 130_001, 260_000, 1 << 20, 1 << 22] {
        for (m, n) in [(1, 1), (7, 5), (8, 64), (64, 64)] {
            for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
                let a = if ta { [k, m] } else { [m, k] };
                let b = if tb { [n, k] } else { [k, n] };
                add(format!("matmul of {m} × {k} × {n}, {ta} {tb}"), &|s| {
                    s.x(&a).matmul_transposed(&s.x(&b), ta, tb)
                });
            }
        }
    }
    for d in [50_257, 100_000, 100_001, 1 << 20, 1 << 22, 1 << 25] {
        for rows in [1, 3] {
            add(format!("softmax of {rows} × {d}"), &|s| s.x(&[rows, d]).softmax());
            add(format!("log_softmax of {rows} × {d}"), &|s| s.x(&[rows, d]).log_softmax());
            add(format!("cross_entropy of {rows} × {d}"), &|s| {
                s.x(&[rows, d]).cross_entropy(&s.ids(rows, d as u32))
            });
            add(format!("layer_norm of {rows} × {d}"), &|s| s.x(&[rows, d]).layer_norm(&s.x(&[d]), &s.x(&[d]), 1e-5));
            add(format!("rms_norm of {rows} × {d}"), &|s| s.x(&[rows, d]).rms_norm(&s.x(&[d]), 1e-5));
        }
    }
    for (rows, d) in [(HUGE / 4, 1), (HUGE / 4, 3), (HUGE / 4, 4), (1 << 20, 33)] {
        add(format!("norms of {rows} rows of {d}"), &|s| {
            let x = s.x(&[rows, d]).layer_norm(&s.x(&[d]), &s.x(&[d]), 1e-5);
            x.rms_norm(&s.x(&[d]), 1e-5).softmax()
        });
        add(format!("cross_entropy of {rows} rows of {d}"), &|s| {
            s.x(&[rows, d]).cross_entropy(&s.ids(rows, d as u32))
        });
    }
    for (ids, rows, d) in [(HUGE / 8, 3, 1), (HUGE / 64, 1 << 20, 4), (70_000, 256, 3), (1, 1, 1)] {
        add(format!("embedding of {ids} of {rows} rows of {d}"), &|s| {
            s.x(&[rows, d]).embedding(&s.ids(ids, rows as u32))
        });
    }
    let list_of_rotary = [(1, 1 << 20, 1, 64), (2, 33, 3, 1 << 16), (1, 1 << 16, 4, 6)];
    for (batch, positions, heads, d) in list_of_rotary {
        add(format!("rotary of {positions} by {d}"), &|s| {
            s.x(&[batch, positions, heads, d]).rotary(heads, 10_000.0)
        });
    }
    for (seq, size, heads, kv_heads) in [(1 << 16, 4, 1, 1), (1 << 14, 64, 4, 1), (1 << 17, 128, 2, 2), (513, 256, 64, 1)] {
        for causal in [false, true] {
            let options = Attention { causal, dropout: 0.1, ..Attention::default() };
            add(format!("attention of {seq} by {size}, {heads} heads"), &|s| {
                let [q, k, v] = [heads, kv_heads, kv_heads].map(|heads| s.x(&[1, seq, heads, size]));
                q.attention(&k, &v, &options)
            });
            add(format!("packed attention of {seq} by {size}, {heads} heads"), &|s| {
                s.x(&[1, seq, (heads + 2 * kv_heads) * size]).reshape([1, seq, heads + 2 * kv_heads, size]).self_attention(heads, kv_heads, &options)
            });
        }
    }
    images(&mut add);
    list
}

fn images(add: &mut dyn FnMut(String, &dyn Fn(&Stage) -> Tensor)) {
    for (image, kernel, stride) in [
        ([300, 300], [300, 300], 1),
        ([300, 300], [256, 256], 1),
        ([700, 500], [300, 300], 1),
        ([5000, 5000], [5000, 5000], 1),
        ([1, 1 << 20], [1, 100_000], 1),
        ([1 << 20, 1], [100_000, 1], 7),
    ] {
        for count in [false, true] {
            let window = Window { kernel, stride: [stride; 2], ..Window::square(1) };
            add(format!("avg_pool of {image:?} by {kernel:?}"), &|s| {
                s.x(&[1, 2, image[0], image[1]]).avg_pool2d(window, count)
            });
        }
    }
    for (image, bins) in [([300, 300], [1, 1]), ([5000, 3000], [2, 1]), ([1, 1], [300, 300]), ([3, 1], [4000, 3000]), ([1, 1 << 22], [1, 3])] {
        add(format!("adaptive_avg_pool of {image:?} to {bins:?}"), &|s| {
            s.x(&[1, 2, image[0], image[1]]).adaptive_avg_pool2d(bins)
        });
    }
    for kernel in [[15, 17], [1, 255], [255, 1]] {
        let window = Window { kernel, ..Window::square(1) };
        add(format!("max_pool by {kernel:?}"), &|s| s.x(&[2, 3, 300, 301]).max_pool2d(window));
    }
    for (image, size) in [([1, 1], [300, 300]), ([1, 1], [5000, 5000]), ([2, 3], [700, 2900]), ([1, 2], [1, 1 << 20]), ([300, 300], [7, 1]), ([9, 9], [2700, 2701])] {
        add(format!("upsample_nearest of {image:?} to {size:?}"), &|s| {
            s.x(&[1, 2, image[0], image[1]]).upsample_nearest(size)
        });
        for corners in [false, true] {
            add(format!("upsample_bilinear of {image:?} to {size:?}, {corners}"), &|s| {
                s.x(&[1, 2, image[0], image[1]]).upsample_bilinear(size, corners)
            });
        }
    }
    for [n, c, h, w] in [[1, 1, 5000, 5000], [1 << 20, 3, 1, 1], [64, 1 << 10, 8, 9], [1, 1, 1, HUGE], [1, 1 << 22, 1, 2]] {
        add(format!("batch_norm of {:?}", [n, c, h, w]), &|s| {
            s.x(&[n, c, h, w]).batch_norm_train(&s.x(&[c]), &s.x(&[c]), 1e-5, None)
        });
        add(format!("group_norm of {:?}", [n, c, h, w]), &|s| {
            s.x(&[n, c, h, w]).group_norm(1, &s.x(&[c]), &s.x(&[c]), 1e-5)
        });
    }
    for (x, weight, groups, stride) in [
        ([1, 70_000, 2, 2], [3, 70_000, 1, 1], 1, 1),
        ([1, 30_000, 2, 2], [3, 30_000, 1, 1], 1, 1),
        ([1, 1, 300, 300], [5, 1, 299, 299], 1, 1),
        ([1, 4, 200, 200], [4, 1, 180, 180], 4, 1),
        ([1, 4, 300, 300], [4, 1, 270, 270], 4, 1),
        ([1, 64, 3000, 2000], [64, 64, 3, 3], 1, 1),
        ([1, 3, 5000, 5000], [16, 3, 3, 3], 1, 2),
        ([1, 4, 5000, 5000], [4, 1, 3, 3], 4, 2),
        ([2, 5, 40, 41], [60_000, 5, 1, 1], 1, 1),
        ([1, 20_000, 5, 5], [2, 20_000, 3, 3], 1, 3),
    ] {
        let window = Window { kernel: [weight[2], weight[3]], ..Window::square(1).stride(stride) };
        add(format!("conv2d of {x:?} by {weight:?}, stride {stride}"), &|s| {
            s.x(&x).conv2d(&s.x(&weight), None, window, groups)
        });
    }
    let _ = DType::F32;
}
