//! Convolutions with fused epilogues: every kernel, every source, odd sizes, written to their own memory and
//! over an operand, give the bits of separate operations. Also products, where a function and its gradient
//! share one kernel source.

use std::collections::BTreeMap;

use wgrad::compile::{Plan, PlanOptions, TrainStep};
use wgrad::dtype::DType;
use wgrad::graph::{Init, Params, Tensor, Window};
use wgrad::limits::Limits;
use wgrad::shape::Shape;

use super::{everywhere, unchecked};
use crate::support::cases::sum_squares;
use crate::support::close::{Near, ULP, assert_same_bits, assert_within};
use crate::support::compare::{
    Batch, compare_fused, device_gradients, gradients_of, kernels, twin_gradients,
};
use crate::support::image_cases::shapes_of_convolutions;
use crate::support::noise;

/// Sums of up to 630 products below 1, followed by elementwise functions.
const NEAR: Near = Near { rel: 64.0 * ULP, abs: 4e-4 };

/// Returns the number of convolution kernels with an epilogue, and how many of them write over an operand.
fn convolution_epilogues(plan: &Plan) -> [usize; 2] {
    // Of a convolution in pieces, their sum has the epilogue.
    let own = |name: &String| name.starts_with("conv_") || name.starts_with("sum_parts");
    let names: Vec<_> = kernels(plan).into_iter().filter(own).collect();
    let count = |what: &str| names.iter().filter(|name| name.contains('+') && name.contains(what)).count();
    [count("+"), count("_in_place")]
}

#[test]
fn convolution_epilogues_match_separate_operations() {
    unchecked(|device, limits| {
        for (case, (_, [n, c, h, w], kernel, groups, window)) in
            shapes_of_convolutions().into_iter().enumerate()
        {
            for keep in [false, true] {
                let plan = compare_fused(device, limits, |trace, batch| {
                    let o = kernel[0];
                    let of =
                        |batch: &mut Batch, seed, len| batch.input(trace, [len], noise(seed, len, 0.5, 1.5));
                    let x = batch.input(trace, [n, c, h, w], noise(1, n * c * h * w, -1.0, 1.0));
                    let count = kernel.iter().product();
                    let weight = batch.input(trace, kernel, noise(2, count, -1.0, 1.0));
                    let bias = of(batch, 3, o);
                    let conv = |biased: bool| x.conv2d(&weight, biased.then_some(&bias), window, groups);
                    let shape = conv(false).shape();
                    let skip = batch.input(trace, shape, noise(4, shape.numel() as usize, -1.0, 1.0));
                    let terms = [5, 6, 7, 8].map(|seed| of(batch, seed, o));
                    let [mean, var, gamma, beta] = &terms;
                    let norm = |y: &Tensor| y.batch_norm_eval(mean, var, gamma, beta, 1e-5);
                    batch.expect("activation", &conv(true).silu(), NEAR);
                    batch.expect("residual", &conv(false).scale(0.5).add(&skip).relu(), NEAR);
                    batch.expect("norm", &norm(&conv(case % 2 == 0)).clamp(0.0, 6.0), NEAR);
                    let plane = batch.input(trace, shape.with(0, 1).with(1, 1), {
                        noise(9, (shape.numel() as usize) / (n * o), 0.5, 1.5)
                    });
                    batch.expect("strips", &conv(false).mul(&plane).leaky_relu(0.1).tanh(), NEAR);
                    if keep {
                        batch.keep(&skip);
                    }
                });
                let [all, over] = convolution_epilogues(&plan);
                assert_eq!((all, over), (4, usize::from(!keep)), "{:?}", kernels(&plan));
            }
        }
    });
}

/// A transposed convolution has one launch for each phase of its stride.
#[test]
fn every_phase_of_a_transposed_convolution_has_the_epilogue() {
    unchecked(|device, limits| {
        for (groups, stride) in [(1, 2), (3, 3), (1, 1)] {
            let window = Window::square(3).stride(stride).padding(1);
            let plan = compare_fused(device, limits, |trace, batch| {
                let x = batch.input(trace, [2, 6, 3, 4], noise(1, 144, -1.0, 1.0));
                let w = batch.input(trace, [6, 2, 3, 3], noise(2, 108, -1.0, 1.0));
                let bias = batch.input(trace, [2 * groups], noise(3, 2 * groups, -1.0, 1.0));
                let y = || x.conv_transpose2d(&w, Some(&bias), window, [0, 0], groups);
                let skip = batch.input(trace, y().shape(), noise(4, y().shape().numel() as usize, -1.0, 1.0));
                batch.expect("transposed", &y().mul(&skip).gelu(), NEAR);
            });
            assert_eq!(convolution_epilogues(&plan), [stride * stride; 2], "{:?}", kernels(&plan));
        }
    });
}

/// In the epilogue of every kernel of convolutions and of products.
#[test]
fn epilogues_read_16_bit_operands_directly() {
    unchecked(|device, limits| {
        for format in [DType::F16, DType::BF16] {
            let plan = compare_fused(device, limits, |trace, batch| {
                // The 16-bit operand is packed before the operation runs.
                let beside = |batch: &mut Batch, name: &str, y: &dyn Fn() -> Tensor| {
                    let shape = y().shape();
                    let skip = batch.input(trace, shape, noise(3, shape.numel() as usize, -1.0, 1.0));
                    let packed = skip.cast(format);
                    batch.expect(name, &y().mul(&packed.cast(DType::F32)).relu(), NEAR);
                };
                for (name, [n, c, h, w], kernel, groups, window) in shapes_of_convolutions() {
                    let x = batch.input(trace, [n, c, h, w], noise(1, n * c * h * w, -1.0, 1.0));
                    let weight = batch.input(trace, kernel, noise(2, kernel.iter().product(), -1.0, 1.0));
                    beside(batch, name, &|| x.conv2d(&weight, None, window, groups));
                }
                for [m, k, n] in [[33, 8, 28], [5, 7, 9], [70, 12, 65], [4, 8, 32]] {
                    let a = batch.input(trace, [m, k], noise(4, m * k, -1.0, 1.0));
                    let b = batch.input(trace, [k, n], noise(5, k * n, -1.0, 1.0));
                    beside(batch, "product", &|| a.matmul(&b));
                }
            });
            let all = kernels(&plan).iter().filter(|name| name.contains("+mul+relu")).count();
            assert_eq!(all, 12, "{:?}", kernels(&plan));
        }
    });
}

/// After a convolution that reads two tensors, or that applies a norm while it reads.
#[test]
fn epilogues_of_convolutions_with_fused_sources_match_the_twin() {
    everywhere(|device, limits| {
        let window = Window::square(3).padding(1);
        compare_fused(device, limits, |trace, batch| {
            let of = |batch: &mut Batch, seed| batch.input(trace, [5], noise(seed, 5, 0.5, 1.5));
            let x = batch.input(trace, [2, 5, 6, 7], noise(1, 420, -1.0, 1.0));
            let y = batch.input(trace, [2, 3, 6, 7], noise(2, 252, -1.0, 1.0));
            let w = batch.input(trace, [4, 8, 3, 3], noise(3, 288, -1.0, 1.0));
            let v = batch.input(trace, [5, 5, 3, 3], noise(4, 225, -1.0, 1.0));
            let terms = [5, 6, 7, 8].map(|seed| of(batch, seed));
            let norm = |y: &Tensor| y.batch_norm_eval(&terms[0], &terms[1], &terms[2], &terms[3], 1e-5);
            let joined = x.concat(&[&y], 1).conv2d(&w, None, window, 1).gelu();
            batch.expect("joined", &joined, NEAR);
            batch.expect("normed", &norm(&norm(&x).relu().conv2d(&v, None, window, 1)).relu(), NEAR);
        });
    });
}

/// On CPU adapters a function and its gradient over its own result share one kernel if both follow the same
/// kernel.
#[test]
fn function_and_its_gradient_share_a_kernel_on_cpu_adapters() {
    type Function = fn(&Tensor) -> Tensor;
    let functions: [(&str, Function); 3] =
        [("relu", |x| x.relu()), ("leaky_relu", |x| x.leaky_relu(0.1)), ("sigmoid", |x| x.sigmoid())];
    unchecked(|device, limits| {
        // Kernels that pass their results to the epilogue as vec4 or per lane, and as scalars.
        let alone = Limits { min_subgroup: 0, ..limits.clone() };
        for ((name, f), limits) in functions.into_iter().flat_map(|of| [(of, limits), (of, &alone)]) {
            let params = Params::new(0);
            let data = |shape: Shape, seed| noise(seed, shape.numel() as usize, 0.05, 0.25);
            let trained = |name: &str, shape: Shape, seed| {
                params.add(name, shape, Init::Data(data(shape, seed).into()))
            };
            let images = [
                trained("x", [2, 3, 6, 7].into(), 1),
                trained("w", [5, 3, 3, 3].into(), 2),
                trained("v", [5, 5, 3, 3].into(), 3),
            ];
            let matrices = [(9, 11), (12, 24)].map(|(rows, columns)| {
                let named = |name: &str| format!("{name}{columns}");
                [
                    trained(&named("a"), [rows, columns].into(), 4),
                    trained(&named("b"), [columns, columns].into(), 5),
                ]
            });
            let window = Window::square(3).padding(1);
            let step = TrainStep::trace(&params, |trace| {
                let [x, w, v] = images.each_ref().map(|param| trace.param(param));
                let image = f(&x.conv2d(&w, None, window, 1)).conv2d(&v, None, window, 1);
                let [odd, even] = matrices.each_ref().map(|all| {
                    let [a, b] = all.each_ref().map(|param| trace.param(param));
                    // Only the gradient of the function reads its result.
                    let last = b.fill_like(b.shape(), 0.25);
                    sum_squares(&f(&a.matmul(&b)).matmul(&last))
                });
                sum_squares(&image).add(&odd).add(&even)
            });
            let step = step.expect("valid");
            let labels = BTreeMap::new();
            let (plan, found) = device_gradients(device, &step, limits, &labels);
            let all = kernels(&plan);
            let shared = |of: &str| {
                let function = format!("+{name}.");
                let ends = |kernel: &&String| kernel.contains(&function) && kernel.ends_with("_both_ways");
                all.iter().filter(|kernel| kernel.starts_with(of)).filter(ends).count()
            };
            let counts = if limits.class.is_cpu() { [2, 4] } else { [0, 0] };
            assert_eq!([shared("conv"), shared("matmul")], counts, "{name}: {all:?}");
            let options =
                PlanOptions { optimizer: plan.optimizer.expect("trained"), ..PlanOptions::default() };
            let apart = step.plan(&PlanOptions { fuse: false, ..options }, limits).expect("planned");
            let wanted = twin_gradients(&plan, &labels);
            for ((tensor, bits), (_, found)) in gradients_of(device, &apart, &labels).iter().zip(&found) {
                let what = format!("{name}: {tensor} ({})", limits.name);
                assert_same_bits(&what, bits, found);
                let wanted = &wanted[tensor];
                let largest = wanted.iter().fold(0.0f64, |most, g| most.max(g.abs()));
                assert_within(&what, found, wanted, |i| 1e-5 * wanted[i].abs() + 1e-6 * largest);
            }
        }
    });
}
