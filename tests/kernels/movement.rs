//! Operations that move elements without changing them.

use wgrad::dtype::DType;
use wgrad::graph::Tensor;

use super::{SIZES, everywhere};
use crate::support::close::EXACT;
use crate::support::compare::compare;
use crate::support::{noise, some_labels};

#[test]
fn permutations_are_exact() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [5, 7], noise(1, 35, -2.0, 2.0));
            batch.expect("transpose", &x.transpose(0, 1), EXACT);
            let x = batch.input(trace, [2, 3, 4], noise(1, 24, -2.0, 2.0));
            for perm in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                batch.expect(&format!("{perm:?}"), &x.permute(&perm), EXACT);
            }
            let x = batch.input(trace, [2, 3, 1, 4, 5, 2], noise(1, 240, -2.0, 2.0));
            batch.expect("six", &x.permute(&[5, 0, 3, 2, 4, 1]), EXACT);
            let x = batch.input(trace, [129, 65], noise(1, 129 * 65, -2.0, 2.0));
            batch.expect("large", &x.transpose(0, 1), EXACT);
        });
    });
}

#[test]
fn slices_pads_and_concats_are_exact() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [4, 5, 6], noise(1, 120, -2.0, 2.0));
            for axis in 0..3 {
                for (start, end) in [(0, 1), (1, 3), (0, 4), (3, 4), (2, 2)] {
                    let part = x.slice(axis, start..end);
                    if start < end {
                        batch.expect(&format!("slice {axis} {start}..{end}"), &part, EXACT);
                    }
                    batch.expect(
                        &format!("joined {axis} {start}..{end}"),
                        &part.concat(&[&x, &part], axis),
                        EXACT,
                    );
                }
                for (before, after) in [(0, 1), (1, 0), (3, 2), (0, 0)] {
                    batch.expect(&format!("pad {axis} {before} {after}"), &x.pad(axis, before, after), EXACT);
                }
            }
            batch.expect("pad of nothing", &x.slice(0, 1..1).pad(0, 1, 2), EXACT);
        });
    });
}

/// Rows of 64 columns start at binding alignment: slices are views, and the parts of a concatenation are
/// written in place.
#[test]
fn aligned_slices_and_concats_in_shared_memory_are_exact() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [6, 64], noise(1, 384, -2.0, 2.0)).scale(2.0);
            let part = |from: usize, to: usize| x.slice(0, from..to);
            batch.expect("middle", &part(1, 4), EXACT);
            batch.expect("both halves", &part(0, 3).add(&part(3, 6)), EXACT);
            batch.expect("overlapping", &part(0, 3).add(&part(2, 5)), EXACT);
            batch.expect("whole and part", &x.sub(&part(5, 6)), EXACT);
            let turned = |from: usize, to: usize| part(from, to).transpose(0, 1).transpose(0, 1);
            let joined = turned(0, 2).concat(&[&turned(2, 3), &turned(3, 6)], 0);
            batch.expect("joined", &joined.neg(), EXACT);
            let nested = turned(0, 2).concat(&[&turned(2, 3)], 0).concat(&[&turned(3, 6)], 0);
            batch.expect("nested", &nested.slice(0, 2..4).neg(), EXACT);
            let (a, b) = (turned(0, 3), turned(3, 6));
            batch.expect("read and joined", &a.concat(&[&b], 0).neg(), EXACT);
            batch.expect("beside it", &a.sub(&b), EXACT);
        });
    });
}

/// Slices that are not views, because nothing reads the rest, are copied directly into their concatenation.
#[test]
fn slices_are_written_into_their_concat() {
    everywhere(|device, limits| {
        let plan = compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [128, 5], noise(1, 640, -1.0, 1.0));
            let part = |i: u8| x.scale(f32::from(1u8 << i)).transpose(0, 1).slice(0, 1..4);
            let parts: Vec<Tensor> = (0..6).map(part).collect();
            let joined = parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), 0);
            batch.expect("the largest of joined slices", &joined.max(&[1]), EXACT);
        });
        let nodes = plan.graph().nodes.iter();
        assert!(nodes.filter(|node| node.op.name() == "concat").all(|node| plan.program.views.is_free(node)));
    });
}

#[test]
fn expansions_views_and_constants_are_exact() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for n in SIZES {
                let x = batch.input(trace, [n], noise(1, n, -2.0, 2.0));
                batch.expect("rows", &x.expand([3, n]), EXACT);
                batch.expect("columns", &x.reshape([n, 1]).expand([n, 3]), EXACT);
                batch.expect("view", &x.reshape([1, n, 1]), EXACT);
                batch.expect("constant", &x.fill_like([n], -7.25), EXACT);
            }
            let x = batch.input(trace, [], vec![1.5]);
            batch.expect("scalar", &x.expand([3, 2, 5]), EXACT);
            let x = batch.input(trace, [2, 1, 3, 1], noise(1, 6, -2.0, 2.0));
            batch.expect("both", &x.expand([5, 2, 4, 3, 2]), EXACT);
        });
    });
}

/// Movement copies bits, not numbers: class indices are unchanged.
#[test]
fn integers_move_unchanged() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let y = batch.labels(trace, [3, 4], 1 << 20, some_labels(3, 12, 1 << 20));
            batch.expect("cast", &y.cast(DType::F32), EXACT);
            batch.expect("transpose", &y.transpose(0, 1).cast(DType::F32), EXACT);
            batch.expect("joined", &y.concat(&[&y.slice(0, 1..2)], 0).cast(DType::F32), EXACT);
            batch.expect("view", &y.reshape([12]).cast(DType::F32), EXACT);
        });
    });
}

/// NaN payloads and infinities pass through movement kernels unchanged.
#[test]
fn nan_and_infinities_move_unchanged() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let values = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, f32::NAN, 1.0];
            let x = batch.input(trace, [2, 3], values);
            batch.expect("transpose", &x.transpose(0, 1), EXACT);
            batch.expect("pad", &x.pad(1, 1, 1), EXACT);
        });
    });
}
