//! Modelled cost of an operation: floating-point operations and bytes moved.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use super::{Attend, Averaging, FusedElementwise, Graph, Node, Op, Source, Update, Window};
use crate::dtype::DType;
use crate::shape::Shape;

/// Arithmetic and traffic of one operation or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiplication with its addition counts as two.
    pub flops: u64,
    /// Bytes read and written. Each pass over a tensor counts it once; caches are not modelled.
    pub bytes: u64,
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { flops: self.flops.saturating_add(other.flops), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

impl Cost {
    /// Returns the cost of an operation on operands and results of these shapes and types. Views cost nothing;
    /// plans count host transfers.
    pub(crate) fn of(op: &Op, inputs: &[(Shape, DType)], outputs: &[(Shape, DType)]) -> Self {
        if matches!(op, Op::Reshape(_) | Op::Detach | Op::SumRanks { .. }) || op.moves() {
            return Self::default();
        }
        let shape = |of: &[(Shape, DType)], i: usize| of.get(i).map(|(shape, _)| *shape);
        let first = shape(inputs, 0).unwrap_or(Shape::from([]));
        let result = shape(outputs, 0).unwrap_or(first);
        let shapes: Vec<Shape> = inputs.iter().map(|(shape, _)| *shape).collect();
        Self { flops: flops(op, &shapes, result), bytes: traffic(op, inputs, outputs) }
    }
}

impl Graph {
    /// Returns the cost of one operation of this graph. Views cost nothing; plans count host transfers.
    pub fn cost(&self, node: &Node) -> Cost {
        let [inputs, outputs] = self.types(node);
        Cost::of(&node.op, &inputs, &outputs)
    }

    /// Returns the shapes and types of a node's operands and results.
    pub(crate) fn types(&self, node: &Node) -> [Vec<(Shape, DType)>; 2] {
        let of = |id: &super::ValueId| (self.value(*id).shape, self.value(*id).dtype);
        let shared = |(i, id): (usize, &super::ValueId)| {
            let (shape, dtype) = of(id);
            let share = self.operand_share(node, i);
            (share.map_or(shape, |share| Shape::from([share.len as usize])), dtype)
        };
        [node.inputs.iter().enumerate().map(shared).collect(), node.outputs.iter().map(of).collect()]
    }

    /// Returns the total cost of all operations.
    pub fn total_cost(&self) -> Cost {
        self.nodes.iter().map(|node| self.cost(node)).sum()
    }
}

impl Op {
    /// Returns the operation without what it recomputes itself: a batch norm that the forward pass has already
    /// applied.
    pub(crate) fn once(&self) -> Self {
        match self {
            Self::Conv2dWeight { window, groups, normed: Some(_) } => {
                Self::Conv2dWeight { window: *window, groups: *groups, normed: None }
            }
            _ => self.clone(),
        }
    }
}

/// Side of a convolution's output tiles. Each tile reads a source element once.
const TILE: u64 = 64;

/// Arithmetic of a batch norm that a convolution applies while it reads `x`. Each tile of output channels
/// repeats it.
fn while_reading(normed: bool, convolution: u64, results: u64) -> u64 {
    let each_read = if normed { NORM } else { 0 };
    // A convolution does two operations for each read and each of the `results` channels that use it.
    convolution / 2 / results.max(1) * results.div_ceil(TILE) * each_read
}

/// Operations of a batch norm per element: a difference, a multiply-add and a maximum.
const NORM: u64 = 4;

/// Multiplications and additions of a convolution with `y` results and weight `w [o, c/g, kh, kw]`.
fn convolution(y: u64, w: Shape) -> u64 {
    let taps: u64 = w.dims().iter().skip(1).map(|&dim| dim as u64).product();
    2 * y * taps
}

fn window_taps(over: &Averaging, image: Shape, pooled: Shape) -> u64 {
    match over {
        Averaging::Window { window, .. } => window.taps() as u64,
        // Bins cover each pixel once, except where they overlap.
        Averaging::Adaptive(_) => image.numel().div_ceil(pooled.numel().max(1)),
    }
}

/// Arithmetic of a fused attention with so many products of queries and keys.
fn attended(attend: &Attend, shapes: &[Shape], products: u64) -> u64 {
    let sizes = attend.sizes(&shapes[..attend.operands().min(shapes.len())]);
    sizes.map_or(0, |sizes| attend.flops(sizes, products))
}

/// `shapes` are those of the operands, `result` that of the first result, or of the first operand if there is
/// no result.
fn flops(op: &Op, shapes: &[Shape], result: Shape) -> u64 {
    let operand = |i: usize| shapes.get(i).copied().unwrap_or(Shape::from([]));
    let (first, second) = (operand(0), operand(1));
    let taps = |window: &Window| window.taps() as u64;
    let n = result.numel();
    let linked = |chain: &FusedElementwise| -> u64 {
        chain.links().iter().map(|link| flops(&link.op, &[result], result)).sum()
    };
    let epilogue = op.epilogue().map_or(0, |chain| linked(chain));
    let own = match op {
        Op::MatMul { ta, .. } => {
            let dims = first.dims();
            let depth = if *ta { dims.len().checked_sub(2) } else { dims.len().checked_sub(1) };
            2 * n * depth.map_or(1, |i| dims[i] as u64)
        }
        Op::Conv2d { source, groups, .. } => {
            let own = convolution(n, second);
            own + while_reading(matches!(source, Source::Normed(_)), own, (second.dims()[0] / groups) as u64)
        }
        Op::Conv2dInput { .. } => convolution(first.numel(), second),
        Op::Conv2dWeight { normed, groups, .. } => {
            let own = convolution(second.numel(), result);
            own + while_reading(normed.is_some(), own, (result.dims()[0] / groups) as u64)
        }
        Op::Attention(attend) => attended(attend, shapes, 2),
        // The pages of a text are read as if they were full.
        Op::CachedAttention(attend) => {
            let length = |shape: Shape| shape.dims().get(1).map_or(0, |n| *n as u64);
            let keys = length(operand(Attend::PAGES)) * length(operand(Attend::CACHES[0]));
            4 * first.numel() * keys.min(u64::from(attend.band.before).saturating_add(1))
        }
        // The kernels of keys and values and the one of queries both compute the scores, and the gradient of the
        // weights.
        Op::AttentionGrad(attend) => attended(attend, shapes, 7),
        Op::MaxPool2d(window) => n * taps(window),
        Op::MaxPool2dGrad { window, .. } => second.numel() * taps(window),
        Op::AvgPool2d(over) => n * window_taps(over, first, result),
        Op::AvgPool2dGrad { over, .. } => first.numel() * window_taps(over, result, first),
        // Every element is compared with all of its row.
        Op::ArgSort { .. } => n.saturating_mul(first.last() as u64),
        Op::Resample { .. } => 8 * n,
        Op::ResampleGrad { .. } => 8 * first.numel(),
        Op::Reduce { .. } | Op::SumParts { .. } | Op::LabelShare | Op::Mask(_) => first.numel(),
        Op::BatchStats { .. } => 4 * first.numel(),
        Op::BatchNorm(_) => NORM * n,
        Op::BatchNormGrad { .. } | Op::Gates(_) | Op::GatesGrad(_) => 16 * n,
        Op::CrossEntropy | Op::CrossEntropyGrad => 6 * first.numel(),
        Op::Softmax { .. } | Op::SoftmaxGrad { .. } | Op::UnaryGrad(_) => 6 * n,
        Op::Dropout { .. } | Op::Quantise { .. } => 8 * n,
        Op::Update { rule: Update::Sgd { .. }, .. } => 4 * first.numel(),
        Op::Update { rule: Update::Momentum { .. }, .. } => 6 * first.numel(),
        Op::Update { .. } => 16 * first.numel(),
        Op::RunningStats(_) => 8 * operand(2).numel(),
        Op::Custom(kernel) => kernel.flops.unwrap_or(n),
        Op::Fused(chain) => linked(chain),
        // Operations that only move elements cost no arithmetic; all others count one operation per element.
        Op::Reshape(_)
        | Op::Permute(_)
        | Op::Expand(_)
        | Op::Slice { .. }
        | Op::Stride { .. }
        | Op::Place { .. }
        | Op::Gather { .. }
        | Op::Detach
        | Op::SumRanks { .. }
        | Op::Concat { .. }
        | Op::Copy
        | Op::Cast(_)
        | Op::Fill { .. } => 0,
        _ => n,
    };
    own + epilogue
}

fn traffic(op: &Op, inputs: &[(Shape, DType)], outputs: &[(Shape, DType)]) -> u64 {
    let bytes = |(shape, dtype): &(Shape, DType)| dtype.bytes(shape.numel());
    let sum = |of: &[(Shape, DType)]| of.iter().map(bytes).sum::<u64>();
    let (read, written) = (sum(inputs), sum(outputs));
    match op {
        // Only the sliced part is read.
        Op::Slice { .. } | Op::Stride { .. } => 2 * written,
        // Only the rows that are looked up are read.
        Op::Embedding | Op::Gather { .. } => 2 * written + sum(inputs.get(1..).unwrap_or_default()),
        // Of caches the rows of keys and values are written.
        Op::CachedAttention(_) => read + written + sum(inputs.get(1..3).unwrap_or_default()),
        // Image and gradient are read for the sums, and once more for the result.
        Op::BatchNormGrad { .. } => 2 * read + written,
        // Operands changed in place are also written.
        _ => {
            let changed = op.mutates().iter().filter_map(|&i| inputs.get(i)).map(bytes);
            read + written + changed.sum::<u64>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Attention, Init, Mode, Params, Trace};

    fn cost_of(name: &str, graph: &Graph) -> Cost {
        let node = graph.nodes.iter().find(|node| node.op.name() == name);
        graph.cost(node.unwrap_or_else(|| panic!("no {name}")))
    }

    #[test]
    fn products_and_convolutions_count_two_flops_per_pair() {
        let params = Params::new(0);
        let weight = params.add("w", [8, 3, 3, 3], Init::Constant(0.0));
        let graph = Trace::record(&params, Mode::Train, "y", |trace| {
            let x = trace.input("x", [2, 3, 10, 10]);
            let y = x.conv2d(&trace.param(&weight), None, Window::square(3), 1);
            let flat = y.reshape([2, 8 * 64]).relu();
            flat.matmul_transposed(&flat.exp(), false, true).sum(&[])
        })
        .expect("valid");
        let floats = |n: u64| 4 * n;
        let conv = Cost { flops: 2 * 2 * 8 * 64 * 27, bytes: floats(600 + 216 + 1024) };
        assert_eq!(cost_of("conv2d", &graph), conv);
        assert_eq!(
            cost_of("matmul", &graph),
            Cost { flops: 2 * 2 * 2 * 512, bytes: floats(1024 + 1024 + 4) }
        );
        assert_eq!(cost_of("relu", &graph), Cost { flops: 1024, bytes: floats(2048) });
        assert_eq!(cost_of("reshape", &graph), Cost::default());
    }

    /// Each of the two gradients of a convolution does as many multiplications as the convolution itself.
    #[test]
    fn gradients_of_a_convolution_cost_as_much_as_the_convolution() {
        let params = Params::new(0);
        let weights = params.add("w", [4, 3, 3, 3], Init::Constant(0.0));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let w = trace.param(&weights);
            let x = trace.input("x", [2, 3, 9, 9]).mul(&w.sum(&[]));
            x.conv2d(&w, None, Window::square(3).stride(2), 1).square().sum(&[])
        })
        .expect("valid");
        let loss = graph.outputs[0].1;
        let (trace, gradients) = crate::autodiff::differentiate(graph, loss).expect("a scalar");
        drop(gradients);
        let graph = trace.finish().expect("valid");
        let [forward, input, weight] =
            ["conv2d", "conv2d_input", "conv2d_weight"].map(|name| cost_of(name, &graph).flops);
        assert_eq!(forward, 2 * 2 * 4 * 16 * 27);
        assert_eq!([input, weight], [forward; 2]);
    }

    /// Two products of each query with each key that it sees, of 4 heads of 8; six more operations for the softmax.
    #[test]
    fn attention_counts_the_pairs_that_are_seen() {
        let full = Attention::default();
        let near = Attention { window: Some(3), ..full };
        let last = Attention { window: Some(3), ..Attention::causal() };
        let of = |options: Attention| {
            let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
                trace.input("qkv", [2, 10, 8, 8]).self_attention(4, 2, &options).sum(&[])
            });
            cost_of("attention", &graph.expect("valid"))
        };
        for (options, pairs) in [(full, 100), (Attention::causal(), 55), (near, 44), (last, 27)] {
            let flops = 2 * 4 * pairs * (2 * 2 * 8 + 6);
            assert_eq!(of(options), Cost { flops, bytes: 4 * (2 * 10 * (8 + 4) * 8 + 2 * 4 * 10) });
        }
    }

    /// An operation passes over each tensor once, except over tensors that are read twice, read in part, or
    /// written in place.
    #[test]
    fn traffic_is_counted_in_passes_over_tensors() {
        let params = Params::new(0);
        let weights = params.add("w", [2, 3, 4, 5], Init::Constant(0.5));
        let scales = params.add("scale", [3], Init::Constant(1.0));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let scale = trace.param(&scales);
            let normal = trace.param(&weights).batch_norm_train(&scale, &scale, 1e-5, None);
            normal.square().slice(0, 0..1).exp().sum(&[])
        })
        .expect("valid");
        let loss = graph.outputs[0].1;
        let (trace, gradients) = crate::autodiff::differentiate(graph, loss).expect("a scalar");
        crate::optim::Optimizer::named("momentum")
            .and_then(|momentum| momentum.append(&trace, gradients, crate::optim::Clip::Off))
            .expect("valid");
        let graph = trace.finish().expect("valid");
        let (image, channels) = (120, 3);
        let floats = |n: u64| 4 * n;
        assert_eq!(cost_of("batch_stats", &graph).bytes, floats(image + 3 * channels));
        assert_eq!(cost_of("batch_norm", &graph).bytes, floats(2 * image + 4 * channels));
        // Image, gradient, mean, deviation, scale and offset are read twice; the gradients of image, scale
        // and offset are written once.
        let grad = graph.nodes.iter().find(|node| node.op.name() == "batch_norm_grad").expect("a gradient");
        assert_eq!((grad.inputs.len(), grad.outputs.len()), (6, 3));
        let (twice, once) = (2 * image + 4 * channels, image + 2 * channels);
        assert_eq!(graph.cost(grad).bytes, floats(2 * twice + once));
        assert_eq!(graph.cost(grad).flops, 16 * image);
        assert_eq!(cost_of("slice", &graph).bytes, floats(2 * image / 2));
        // Weight and momentum are read and written, gradient and the step's scalars are read.
        let update = graph.nodes.iter().rfind(|node| node.op.name() == "momentum").expect("an update");
        let size = graph.value(update.inputs[0]).shape.numel();
        let scalars = graph.value(update.inputs[2]).bytes();
        assert_eq!((size, graph.cost(update).bytes), (3, floats(5 * 3) + scalars));
    }
}
