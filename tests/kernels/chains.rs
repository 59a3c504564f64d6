//! Chains of elementwise functions as one generated kernel: every function, every way to read an operand, odd
//! lengths, both placements, and how much is fused.

use wgrad::compile::Plan;
use wgrad::device::Device;
use wgrad::graph::Tensor;
use wgrad::limits::Limits;

use super::{SIZES, everywhere, unchecked};
use crate::support::close::{EXACT, Near, ULP};
use crate::support::compare::{Batch, compare_fused, kernels};
use crate::support::{each_case, noise};

/// Rounding error of a few functions in sequence.
const NEAR: Near = Near { rel: 64.0 * ULP, abs: 2e-6 };

/// Returns the names of a plan's operations that are chains.
fn chains(plan: &Plan) -> Vec<&'static str> {
    let names = plan.graph().nodes.iter().map(|node| node.op.name());
    names.filter(|name| name.contains('+')).collect()
}

#[test]
fn fused_chains_match_separate_functions_for_every_operand_layout() {
    let cases = SIZES.into_iter().flat_map(|n| [(n, false), (n, true)]);
    each_case(cases, true, |device, limits, &(n, keep)| {
        let plan = compare_fused(device, limits, |trace, batch| {
            let x = batch.input(trace, [3, n], noise(1, 3 * n, -2.0, 2.0));
            let z = batch.input(trace, [3, n], noise(2, 3 * n, 0.5, 2.0));
            let row = batch.input(trace, [n], noise(3, n, 0.5, 2.0));
            let column = batch.input(trace, [3, 1], noise(4, 3, 0.5, 2.0));
            let one = batch.input(trace, [], vec![0.75]);
            let smooth = |t: &Tensor| t.gelu().sigmoid().offset(0.5).log().exp().sqrt().recip().tanh();
            batch.expect("unary", &smooth(&x), NEAR);
            let more = x.silu().gelu_tanh().leaky_relu(0.1).square().clamp(0.01, 3.0).abs().neg().scale(1.5);
            batch.expect("more unary", &more, NEAR);
            let strips = x.mul(&row).add(&column).div(&z).maximum(&one).minimum(&row.scale(0.5));
            batch.expect("strips", &strips, NEAR);
            let flags = x.sub(&z).greater(&row).add(&x.offset(1.0).greater(&one));
            batch.expect("flags", &flags, EXACT);
            let wide = row.scale(2.0).expand([3, n]).mul(&x).add(&column.expand([3, n]));
            batch.expect("expand", &wide, NEAR);
            if keep {
                [&x, &z, &row, &column, &one].iter().for_each(|input| batch.keep(input));
            }
        });
        assert!(chains(&plan).len() >= 5, "{:?}", chains(&plan));
    });
}

/// Planes whose size is a multiple of four, and others; operands that are scalars, per channel and per pixel
/// in one chain.
#[test]
fn batch_norm_is_fused_with_the_functions_after_it() {
    everywhere(|device, limits| {
        for (n, c, h, w) in
            [(2, 3, 4, 5), (2, 3, 3, 3), (1, 1, 1, 1), (3, 1, 5, 1), (2, 5, 1, 1), (1, 4, 2, 2)]
        {
            let plan = compare_fused(device, limits, |trace, batch| {
                let count = n * c * h * w;
                let x = batch.input(trace, [n, c, h, w], noise(1, count, -2.0, 2.0));
                let skip = batch.input(trace, [n, c, h, w], noise(2, count, -2.0, 2.0));
                let of = |batch: &mut Batch, seed| batch.input(trace, [c], noise(seed, c, 0.5, 1.5));
                let [mean, var, gamma, beta] = [3, 4, 5, 6].map(|seed| of(batch, seed));
                let norm = x.batch_norm_eval(&mean, &var, &gamma, &beta, 1e-5);
                let bias = of(batch, 7).reshape([c, 1, 1]);
                batch.expect("block", &norm.add(&skip).relu().mul(&bias), NEAR);
            });
            assert_eq!(chains(&plan), ["offset+sqrt+recip", "batch_norm+add+relu+mul"]);
        }
    });
}

/// Returns the number of matrix product kernels that have an epilogue.
fn matmul_epilogues(plan: &Plan) -> usize {
    kernels(plan).iter().filter(|name| name.starts_with("matmul") && name.contains('+')).count()
}

#[test]
fn matmul_is_fused_with_the_functions_after_it() {
    let check = |device: &Device, limits: &Limits, [batches, m, k, n]: [usize; 4], keep: bool| {
        let mut products = 0;
        let plan = compare_fused(device, limits, |trace, batch| {
            for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
                let swapped =
                    |a: usize, b: usize, swap: bool| if swap { [batches, b, a] } else { [batches, a, b] };
                let a = batch.input(trace, swapped(m, k, ta), noise(1, batches * m * k, -1.0, 1.0));
                let b = batch.input(trace, swapped(k, n, tb), noise(2, batches * k * n, -1.0, 1.0));
                let product = || a.matmul_transposed(&b, ta, tb);
                let bias = batch.input(trace, [n], noise(3, n, -1.0, 1.0));
                let column = batch.input(trace, [m, 1], noise(4, m, 0.5, 2.0));
                let skip = batch.input(trace, [batches, m, n], noise(5, batches * m * n, -1.0, 1.0));
                batch.expect("linear", &product().add(&bias).silu().add(&skip), PRODUCT);
                batch.expect("scaled", &product().mul(&column).scale(0.5), PRODUCT);
                products += 2;
                if keep {
                    [&bias, &column, &skip].iter().for_each(|input| batch.keep(input));
                }
            }
        });
        assert_eq!(matmul_epilogues(&plan), products, "{:?}", kernels(&plan));
    };
    everywhere(|device, limits| {
        [false, true].iter().for_each(|keep| check(device, limits, [2, 33, 8, 28], *keep));
    });
    let sizes = [[1, 1, 1, 1], [1, 5, 8, 24], [3, 9, 7, 6], [1, 70, 12, 65]];
    each_case(sizes, false, |device, limits, sizes| check(device, limits, *sizes, false));
}

/// Sums of up to 20 products below 1, followed by elementwise functions.
const PRODUCT: Near = Near { rel: 64.0 * ULP, abs: 2e-5 };

/// Only a long inner dimension is split into partial sums, so such a product has one dispatch.
#[test]
fn matmul_with_many_rows_is_written_over_the_addend() {
    everywhere(|device, limits| {
        let plan = compare_fused(device, limits, |trace, batch| {
            let a = batch.input(trace, [131_073, 2], noise(1, 2 * 131_073, -1.0, 1.0));
            let b = batch.input(trace, [2, 3], noise(2, 6, -1.0, 1.0));
            let skip = batch.input(trace, [131_073, 3], noise(3, 3 * 131_073, -1.0, 1.0));
            batch.expect("many rows", &a.matmul(&b).add(&skip), PRODUCT);
        });
        let names = kernels(&plan);
        assert!(names.iter().any(|name| name.contains("+add.") && name.ends_with("_in_place")), "{names:?}");
    });
}

/// On software adapters such a product is computed as partial sums, and its epilogue then has a separate
/// dispatch.
#[test]
fn matmul_with_a_long_inner_dimension_and_an_epilogue_matches_the_twin() {
    unchecked(|device, limits| {
        let k = 140_000;
        compare_fused(device, limits, |trace, batch| {
            let a = batch.input(trace, [3, k], noise(1, 3 * k, -1.0, 1.0));
            let b = batch.input(trace, [k, 5], noise(2, 5 * k, -1.0, 1.0));
            let bias = batch.input(trace, [5], noise(3, 5, -1.0, 1.0));
            let skip = batch.input(trace, [3, 5], noise(4, 15, -1.0, 1.0));
            let y = a.matmul(&b).add(&bias).relu().add(&skip);
            batch.expect("long", &y, Near { rel: 1e-4, abs: 2e-3 });
        });
    });
}
