//! Operations of extreme and of ordinary shapes, forward and backward, and the adapters that they are lowered
//! for.

use wgrad::autodiff::differentiate;
use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::dtype::{DType, Precision, Rounding, WeightStorage};
use wgrad::graph::{
    Attention, Class, Graph, Init, LossScale, Mode, Params, Reduction, Tensor, Trace, Window,
};
use wgrad::kernels::{conv, matmul};
use wgrad::limits::{Cooperative, Limits, Products};
use wgrad::optim::Optimizer;

/// A graph with its backward pass.
pub struct Case {
    pub name: String,
    pub graph: Graph,
    /// Whether it has a matrix product or a convolution, for which adapters have many kernels.
    pub product: bool,
}

fn named(name: &str) -> Limits {
    Limits::named(name).expect("a preset")
}

/// Returns software adapters, with every row of the tables of products and convolutions by name; or all other
/// adapters, those with cooperative matrices included.
pub fn adapters(software: bool) -> Vec<Limits> {
    let mut list: Vec<Limits> = Limits::NAMES.map(named).to_vec();
    // The kernels of these presets are those of `nvidia` and `webgpu`.
    let same = ["rdna", "arc", "steam-deck", "apple"];
    list.retain(|limits| limits.class.is_cpu() == software && !same.contains(&&*limits.name));
    let ways = matmul::VARIANTS.iter().map(|row| row.name).chain(conv::VARIANTS.iter().map(|row| row.name));
    let mut ways: Vec<&'static str> = ways.collect();
    ways.sort_unstable();
    ways.dedup();
    for preset in list.clone() {
        list.extend(ways.iter().map(|way| Limits {
            name: format!("{} by {way}", preset.name),
            ..preset.choosing(|kernels| kernels.products = Products::all(way))
        }));
        // Other software adapters have no subgroups.
        let name = format!("{} without subgroups", preset.name);
        let short = preset.choosing(|kernels| kernels.long_words = false);
        list.push(Limits { name, min_subgroup: 0, ..short });
    }
    for side in [8, 16].into_iter().filter(|_| !software) {
        let cooperative = Some(Cooperative { side, lanes: 32 });
        let limits = named("discrete").choosing(|kernels| kernels.cooperative = cooperative);
        list.push(Limits { name: format!("cooperative {side}"), ..limits });
    }
    list
}

/// The source of a case's operands.
pub struct Stage<'a> {
    params: Params,
    trace: &'a Trace,
}

impl Stage<'_> {
    /// Returns a parameter.
    fn raw(&self, shape: &[usize]) -> Tensor {
        let shape = wgrad::shape::Shape::try_new(shape).expect("few dimensions");
        let name = format!("p{}", self.params.list().len());
        self.trace.param(&self.params.add(&name, shape, Init::Constant(1.0)))
    }

    /// Returns a function of a parameter: it has a gradient, and an operation may overwrite it.
    fn x(&self, shape: &[usize]) -> Tensor {
        self.raw(shape).scale(2.0)
    }

    fn ids(&self, n: usize, below: u32) -> Tensor {
        self.trace.ids("ids", [n], below)
    }
}

fn case(name: String, build: impl Fn(&Stage) -> Tensor) -> Case {
    let params = Params::new(1);
    let step =
        TrainStep::trace(&params, |trace| build(&Stage { params: params.clone(), trace }).square().sum(&[]));
    let graph = step.unwrap_or_else(|e| panic!("{name}: {e}")).graph().clone();
    let loss = graph.outputs[0].1;
    let (trace, _) = differentiate(graph, loss).unwrap_or_else(|e| panic!("{name}: {e}"));
    let graph = trace.finish().unwrap_or_else(|e| panic!("{name}: {e}"));
    let product = name.starts_with("matmul") || name.starts_with("conv2d");
    Case { name, graph, product }
}

/// A forward pass alone.
fn forward(name: String, build: impl Fn(&Stage) -> Tensor) -> Case {
    let params = Params::new(1);
    let graph =
        Trace::record(&params, Mode::Eval, "y", |trace| build(&Stage { params: params.clone(), trace }));
    Case { graph: graph.unwrap_or_else(|e| panic!("{name}: {e}")), name, product: false }
}

/// Attention over caches: new tokens, tokens of the cache, elements and number of heads.
fn cached_attentions(sizes: &[[usize; 4]]) -> Vec<Case> {
    let one = |&[rows, length, size, heads]: &[usize; 4]| {
        let dtype = if size.is_multiple_of(64) { DType::Uint8 } else { DType::F32 };
        let mut case = forward(format!("attention of {rows} to {length} by {size}, {heads} heads"), |s| {
            let [k, v] = [s.x(&[1, rows, 1, size]), s.x(&[1, rows, 1, size])];
            let caches = ["k", "v"].map(|name| s.params.add_cache(name, [1, length, 1, size], dtype));
            let caches = caches.each_ref().map(|cache| s.trace.param(cache));
            let pages = s.trace.ids("pages", [1, 1], u32::MAX);
            let used = s.trace.ids("used", [1], u32::MAX);
            s.x(&[1, rows, heads, size]).cached_attention(
                &k,
                &v,
                caches.each_ref(),
                &pages,
                &used,
                &Attention::causal(),
            )
        });
        // A pass of planning gives caches their type.
        let caches = case.graph.values.iter_mut().filter(|value| value.class == Class::Parameter);
        caches.filter(|value| value.shape.rank() == 4).for_each(|value| value.dtype = dtype);
        case
    };
    sizes.iter().map(one).collect()
}

/// A rotary embedding of heads of `d` elements at positions that are fed.
fn placed(positions: usize, d: usize) -> Case {
    forward(format!("rotary of {positions} positions that are fed"), |s| {
        let at = s.trace.ids("positions", [1, positions], u32::MAX);
        s.x(&[1, positions, 1, d]).rotary_at(&at, 1, 10_000.0)
    })
}

/// The number of elements in the largest binding of a software adapter; lavapipe's is smaller.
const HUGE: usize = 1 << 28;

type Add<'a> = &'a mut dyn FnMut(String, &dyn Fn(&Stage) -> Tensor);

pub fn extremes() -> Vec<Case> {
    let mut list = Vec::new();
    let add: Add = &mut |name, build| list.push(case(name, build));
    reductions(
        add,
        &[vec![HUGE], vec![3, HUGE / 4], vec![HUGE / 4, 3], vec![1 << 9, 5, 1 << 9, 7, 1 << 5, 3]],
    );
    reductions(add, &[vec![1 << 20, 3, 2], vec![1 << 20, 2, 3], vec![3, 1 << 13, 2, 1 << 12]]);
    matmuls(add, &[(7, 5), (64, 64)], &[100_001, 130_000, 130_001, 260_000, 1 << 22]);
    for d in [50_257, 100_000, 100_001, 1 << 20, 2_500_000, 1 << 25, HUGE] {
        rows(add, 1, d);
    }
    for (n, d) in [(HUGE / 4, 1), (HUGE / 4, 3), (HUGE / 4, 4), (1 << 20, 33)] {
        rows(add, n, d);
    }
    lookups(add, &[(HUGE / 2, 3, 1), (HUGE / 64, 1 << 20, 4), (70_000, 256, 3)]);
    indices(add, &[[HUGE / 4, 1], [3, 1 << 20], [70_000, 9]], 60_000);
    rotaries(add, &[(1 << 20, 1, 64), (33, 3, 1 << 16), (1 << 16, 4, 6)]);
    attentions(add, &[(1 << 13, 4, 1, 1), (1 << 15, 256, 1, 1), (513, 128, 64, 1)]);
    averages(
        add,
        &[
            ([300, 300], [300, 300], 1),
            ([300, 300], [256, 256], 1),
            ([700, 500], [300, 300], 1),
            ([5000, 5000], [5000, 5000], 1),
            ([1, 1 << 20], [1, 100_000], 1),
            ([1 << 20, 1], [100_000, 1], 7),
        ],
    );
    bins(add, &[([300, 300], [1, 1]), ([5000, 3000], [2, 1]), ([1, 1], [300, 300]), ([3, 1], [4000, 3000])]);
    bins(add, &[([1, 1 << 22], [1, 3]), ([255, 257], [4, 1000])]);
    maxima(add, &[[15, 17], [1, 255], [255, 1]]);
    let up = [([1, 1], [300, 300]), ([1, 1], [5000, 5000]), ([2, 3], [700, 2900]), ([1, 2], [1, 1 << 20])];
    resamples(add, &up);
    resamples(add, &[([300, 300], [7, 1]), ([9, 9], [2700, 2701])]);
    norms(
        add,
        &[[1, 1, 5000, 5000], [1 << 20, 3, 1, 1], [64, 1 << 10, 8, 9], [1, 1, 1, HUGE], [1, 1 << 22, 1, 2]],
    );
    convolutions(
        add,
        &[
            ([1, 70_000, 2, 2], [3, 70_000, 1, 1], 1, 1),
            ([1, 30_000, 2, 2], [3, 30_000, 1, 1], 1, 1),
            ([1, 60_000, 2, 2], [3, 60_000, 1, 1], 1, 1),
            ([1, 1, 300, 300], [5, 1, 299, 299], 1, 1),
            ([1, 4, 200, 200], [4, 1, 180, 180], 4, 1),
            ([1, 4, 300, 300], [4, 1, 270, 270], 4, 1),
            ([1, 64, 3000, 2000], [64, 64, 3, 3], 1, 1),
            ([1, 3, 5000, 5000], [16, 3, 3, 3], 1, 2),
            ([1, 4, 5000, 5000], [4, 1, 3, 3], 4, 2),
            ([2, 5, 40, 41], [60_000, 5, 1, 1], 1, 1),
            ([1, 20_000, 5, 5], [2, 20_000, 3, 3], 1, 3),
        ],
    );
    list.extend(cached_attentions(&[[1, 1 << 18, 4, 1], [3, 1 << 14, 256, 2], [1, 1 << 20, 64, 1]]));
    list.push(placed(1 << 10, 1 << 16));
    list
}

/// Returns ordinary shapes, which GPUs compute too: every operation with a loop, in every form.
pub fn others() -> Vec<Case> {
    let mut list = Vec::new();
    let add: Add = &mut |name, build| list.push(case(name, build));
    reductions(add, &[vec![7, 33, 65]]);
    matmuls(add, &[(5, 3), (4, 32), (64, 64), (2048, 2048)], &[31, 64]);
    for (n, d) in [(9, 30), (9, 32), (3, 1000), (1000, 32)] {
        rows(add, n, d);
    }
    lookups(add, &[(700, 300, 3), (700, 300, 4), (1, 1, 1)]);
    indices(add, &[[70, 9]], 1000);
    rotaries(add, &[(33, 3, 6), (33, 3, 64)]);
    attentions(add, &[(70, 64, 4, 2), (70, 20, 1, 1)]);
    averages(add, &[([9, 9], [3, 3], 2)]);
    bins(add, &[([9, 9], [2, 4])]);
    maxima(add, &[[3, 3]]);
    resamples(add, &[([9, 9], [18, 19])]);
    norms(add, &[[2, 3, 9, 9], [4, 3, 40, 40]]);
    convolutions(
        add,
        &[
            ([2, 5, 20, 21], [7, 5, 3, 3], 1, 2),
            ([2, 64, 40, 40], [64, 64, 3, 3], 1, 1),
            ([2, 256, 80, 80], [256, 256, 1, 1], 1, 1),
            ([2, 12, 9, 9], [12, 1, 3, 3], 12, 1),
        ],
    );
    // On GPUs the keys of the first are divided between workgroups.
    list.extend(cached_attentions(&[[1, 2000, 64, 1], [70, 70, 20, 2]]));
    list.push(placed(70, 64));
    list
}

fn reductions(add: Add, shapes: &[Vec<usize>]) {
    for dims in shapes {
        // Every set of axes for few dimensions, some of the sets for many.
        let step = if dims.len() > 4 { 7 } else { 1 };
        for mask in (step..1u8 << dims.len()).step_by(usize::from(step)) {
            let axes: Vec<usize> = (0..dims.len()).filter(|axis| mask >> axis & 1 == 1).collect();
            let kinds = [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::SumSquares];
            add(format!("reduction of {dims:?} over {axes:?}"), &|s| {
                s.x(dims).reduce_keep(kinds[usize::from(mask) % 4], &axes)
            });
        }
    }
}

fn matmuls(add: Add, results: &[(usize, usize)], inner: &[usize]) {
    for (&k, &(m, n)) in inner.iter().flat_map(|k| results.iter().map(move |result| (k, result))) {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = if ta { [k, m] } else { [m, k] };
            let b = if tb { [n, k] } else { [k, n] };
            add(format!("matmul of {m} × {k} × {n}, {ta} {tb}"), &|s| {
                s.x(&a).matmul_transposed(&s.x(&b), ta, tb)
            });
        }
    }
}

fn rows(add: Add, n: usize, d: usize) {
    add(format!("softmax of {n} × {d}"), &|s| s.x(&[n, d]).softmax());
    add(format!("log_softmax of {n} × {d}"), &|s| s.x(&[n, d]).log_softmax());
    add(format!("cross_entropy of {n} × {d}"), &|s| s.x(&[n, d]).cross_entropy(&s.ids(n, d as u32)));
    add(format!("layer_norm of {n} × {d}"), &|s| s.x(&[n, d]).layer_norm(&s.x(&[d]), &s.x(&[d]), 1e-5));
    add(format!("rms_norm of {n} × {d}"), &|s| s.x(&[n, d]).rms_norm(&s.x(&[d]), 1e-5));
}

/// Ids, rows of the table, and columns.
fn lookups(add: Add, sizes: &[(usize, usize, usize)]) {
    for &(ids, rows, d) in sizes {
        add(format!("embedding of {ids} of {rows} rows of {d}"), &|s| {
            s.x(&[rows, d]).embedding(&s.ids(ids, rows as u32))
        });
    }
}

/// Gathers along the first of two axes, and sorted rows.
fn indices(add: Add, sizes: &[[usize; 2]], sorted: usize) {
    for &[n, d] in sizes {
        add(format!("gather from [{n}, {d}]"), &|s| {
            s.x(&[n, d]).gather(0, &s.ids(n * d, n as u32).reshape([n, d]))
        });
    }
    add(format!("sort of {sorted}"), &|s| s.x(&[3, sorted]).sort(1, false).0);
}

/// Positions, heads and columns.
fn rotaries(add: Add, sizes: &[(usize, usize, usize)]) {
    for &(positions, heads, d) in sizes {
        add(format!("rotary of {positions} by {d}"), &|s| {
            s.x(&[1, positions, heads, d]).rotary(heads, 10_000.0)
        });
    }
}

/// Positions, columns of a head, heads of queries and of keys.
fn attentions(add: Add, sizes: &[(usize, usize, usize, usize)]) {
    for &(positions, size, heads, kv_heads) in sizes {
        // Masked cases are shorter because the interpreter takes longer for them.
        for (causal, dropout, part) in [(false, 0.0, 1), (true, 0.1, 16)] {
            let positions = positions / part;
            let (window, alibi) = (causal.then_some(positions / 3 + 1), causal);
            let options = Attention { causal, dropout, window, alibi, ..Attention::default() };
            let name = format!("attention of {positions} by {size}, {heads} heads, {options:?}");
            add(name.clone(), &|s| {
                let [q, k, v] = [heads, kv_heads, kv_heads].map(|heads| s.x(&[1, positions, heads, size]));
                q.attention(&k, &v, &options)
            });
            add(format!("packed {name}"), &|s| {
                s.x(&[1, positions, heads + 2 * kv_heads, size]).self_attention(heads, kv_heads, &options)
            });
        }
    }
}

/// Images, windows and strides.
fn averages(add: Add, sizes: &[([usize; 2], [usize; 2], usize)]) {
    for &([h, w], kernel, stride) in sizes {
        let window = Window { kernel, stride: [stride; 2], ..Window::square(1) };
        add(format!("avg_pool of {h} × {w} by {kernel:?}"), &|s| {
            s.x(&[1, 2, h, w]).avg_pool2d(window, true)
        });
    }
}

fn bins(add: Add, sizes: &[([usize; 2], [usize; 2])]) {
    for &([h, w], bins) in sizes {
        add(format!("avg_pool of {h} × {w} to {bins:?}"), &|s| s.x(&[1, 2, h, w]).adaptive_avg_pool2d(bins));
    }
}

fn maxima(add: Add, windows: &[[usize; 2]]) {
    for &kernel in windows {
        let window = Window { kernel, ..Window::square(1) };
        add(format!("max_pool by {kernel:?}"), &|s| s.x(&[2, 3, 300, 301]).max_pool2d(window));
    }
}

fn resamples(add: Add, sizes: &[([usize; 2], [usize; 2])]) {
    for &([h, w], size) in sizes {
        add(format!("nearest of {h} × {w} to {size:?}"), &|s| s.x(&[1, 2, h, w]).upsample_nearest(size));
        for corners in [false, true] {
            add(format!("bilinear of {h} × {w} to {size:?}, {corners}"), &|s| {
                s.x(&[1, 2, h, w]).upsample_bilinear(size, corners)
            });
        }
    }
}

fn norms(add: Add, images: &[[usize; 4]]) {
    for image in images {
        let c = image[1];
        add(format!("batch_norm of {image:?}"), &|s| {
            s.x(image).batch_norm_train(&s.x(&[c]), &s.x(&[c]), 1e-5, None)
        });
        add(format!("group_norm of {image:?}"), &|s| s.x(image).group_norm(1, &s.x(&[c]), &s.x(&[c]), 1e-5));
    }
}

/// Images, weights, groups and strides.
fn convolutions(add: Add, sizes: &[([usize; 4], [usize; 4], usize, usize)]) {
    for &(x, weight, groups, stride) in sizes {
        let window = Window { kernel: [weight[2], weight[3]], ..Window::square(1).stride(stride) };
        add(format!("conv2d of {x:?} by {weight:?}, stride {stride}"), &|s| {
            s.x(&x).conv2d(&s.x(&weight), None, window, groups)
        });
    }
}

/// Returns steps with every optimizer and every kind of weights, with and without a loss scale, for software
/// adapters and for a GPU.
pub fn trained() -> Vec<(Graph, Limits)> {
    let mut list = Vec::new();
    let rounding = Rounding::default();
    for weights in
        [WeightStorage::F32, WeightStorage::F16(rounding), WeightStorage::Bf16(rounding), WeightStorage::Bf24]
    {
        for optimizer in Optimizer::NAMES {
            let optimizer = Optimizer::named(optimizer).expect("known");
            for (precision, loss_scale) in
                [(Precision::F32, None), (Precision::F16, Some(LossScale::default()))]
            {
                let options =
                    PlanOptions { optimizer, weights, precision, loss_scale, ..PlanOptions::default() };
                let params = Params::new(1);
                let step = TrainStep::trace(&params, |trace| {
                    let stage = Stage { params: params.clone(), trace };
                    let y = stage.raw(&[40, 300]).matmul(&stage.raw(&[300, 70])).relu();
                    y.cross_entropy(&stage.ids(40, 70))
                });
                let step = step.expect("valid");
                for limits in ["lavapipe", "swiftshader", "discrete"].map(named) {
                    let plan = step.plan(&options, &limits).expect("planned");
                    list.push((plan.graph().clone(), limits));
                }
            }
        }
    }
    // Small gradients are checked together.
    let options = PlanOptions { loss_scale: Some(LossScale::default()), ..PlanOptions::default() };
    for count in 1..=7 {
        let params = Params::new(1);
        let step = TrainStep::trace(&params, |trace| {
            let stage = Stage { params: params.clone(), trace };
            let sums = (0..count).map(|i| stage.raw(&[i + 3]).square().sum(&[]));
            sums.reduce(|sum, next| sum.add(&next)).expect("at least one")
        });
        for limits in ["lavapipe", "discrete"].map(named) {
            let plan = step.as_ref().expect("valid").plan(&options, &limits).expect("planned");
            list.push((plan.graph().clone(), limits));
        }
    }
    list
}
