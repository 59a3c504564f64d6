//! Chains of element functions as one generated kernel: every function, every way to read an operand, odd lengths, both
//! placements, and how much is joined.

use wgrad::graph::Tensor;
use wgrad::plan::Plan;

use super::support::close::{EXACT, Near, ULP};
use super::support::compare::{Batch, compare_fused};
use super::support::noise;
use super::{SIZES, everywhere};

/// Rounding of a handful of functions one after the other.
const NEAR: Near = Near { rel: 64.0 * ULP, abs: 2e-6 };

/// Operations of a plan that are chains.
fn chains(plan: &Plan) -> Vec<&'static str> {
    let names = plan.graph().nodes.iter().map(|node| node.op.name());
    names.filter(|name| name.contains('+')).collect()
}

#[test]
fn every_function_follows_every_other_way_to_read() {
    everywhere(|device, limits| {
        for n in SIZES {
            for keep in [false, true] {
                let plan = compare_fused(device, limits, |trace, batch| {
                    let x = batch.input(trace, [3, n], noise(1, 3 * n, -2.0, 2.0));
                    let z = batch.input(trace, [3, n], noise(2, 3 * n, 0.5, 2.0));
                    let row = batch.input(trace, [n], noise(3, n, 0.5, 2.0));
                    let column = batch.input(trace, [3, 1], noise(4, 3, 0.5, 2.0));
                    let one = batch.input(trace, [], vec![0.75]);
                    let smooth =
                        |t: &Tensor| t.gelu().sigmoid().offset(0.5).log().exp().sqrt().recip().tanh();
                    batch.expect("unary", &smooth(&x), NEAR);
                    let more =
                        x.silu().gelu_tanh().leaky_relu(0.1).square().clamp(0.01, 3.0).abs().neg().scale(1.5);
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
            }
        }
    });
}

/// Planes that are a multiple of four, and others; scalars, channels and pixels beside each other.
#[test]
fn norms_of_images_join_what_follows() {
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
