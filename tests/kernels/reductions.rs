//! Sums, means, maxima and sums of squares over any axes of any length.

use std::collections::BTreeSet;

use wgrad::compile::{Forward, Plan};
use wgrad::dtype::FrozenStorage;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, Mode, Op, Param, ParamGroup, Params, Reduction, Tensor, Trace};
use wgrad::reference::Twin;
use wgrad::shape::Shape;

use super::{Batch, everywhere, is_gpu, unchecked};
use crate::support::close::{EXACT, Near, assert_close, ulps};
use crate::support::compare::{compare, kernels};
use crate::support::noise;

fn axes_of(mask: u8) -> Vec<usize> {
    (0..6).filter(|axis| mask >> axis & 1 == 1).collect()
}

fn all_kinds(batch: &mut Batch, x: &Tensor, axes: &[usize]) {
    let name = |kind: &str| format!("{kind} of {} over {axes:?}", x.shape());
    let count = axes.iter().map(|&axis| x.dim(axis)).product::<usize>();
    let sum = |x: &Tensor| x.reduce_keep(Reduction::Sum, axes);
    batch.expect_sum(&name("sum"), &sum(x), &sum(&x.abs()), count);
    let mean = |x: &Tensor| x.mean(axes);
    batch.expect_sum(&name("mean"), &mean(x), &mean(&x.abs()), count);
    let squares = x.reduce_keep(Reduction::SumSquares, axes);
    batch.expect_sum(&name("sum of squares"), &squares, &squares, count);
    batch.expect(&name("max"), &x.max(axes), EXACT);
}

#[test]
fn reductions_match_the_twin_for_every_set_of_axes() {
    let shapes: [&[usize]; 4] = [&[7], &[5, 9], &[3, 4, 5], &[2, 3, 1, 4]];
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for dims in shapes {
                let shape = Shape::try_new(dims).expect("few dimensions");
                let x = batch.input(trace, shape, noise(1, shape.numel() as usize, -2.0, 2.0));
                for mask in 1..1u8 << dims.len() {
                    all_kinds(batch, &x, &axes_of(mask));
                }
            }
        });
    });
}

#[test]
fn reductions_match_the_twin_for_every_set_of_six_axes() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [2, 3, 2, 3, 2, 5], noise(1, 360, -2.0, 2.0));
            for mask in 1..64 {
                let axes = axes_of(mask);
                let sum = |x: &Tensor| x.sum(&axes);
                batch.expect_sum(&format!("{axes:?}"), &sum(&x), &sum(&x.abs()), 360);
                batch.expect(&format!("max {axes:?}"), &x.max(&axes), EXACT);
            }
        });
    });
}

/// Frozen weights of 16, 8 and 4 bits are read as they are stored: no widened copy is made.
#[test]
fn sums_of_squares_of_frozen_weights_match_the_twin() {
    everywhere(|device, limits| {
        for storage in FrozenStorage::ALL {
            let params = Params::new(0);
            let mut list = Vec::new();
            for (i, [rows, columns]) in [[37, 29], [130, 36], [16, 1000], [300, 64]].into_iter().enumerate() {
                let mut data = noise(i as u64, rows * columns, -2.0, 2.0);
                data[7] = if i == 3 { f32::NAN } else { 30.0 };
                list.push(params.add(&format!("w{i}"), [rows, columns], Init::Data(data.into())));
            }
            let group = ParamGroup { frozen: true, storage: Some(storage), ..ParamGroup::default() };
            params.set_group("*", group).expect("there are some");
            let forward = Forward::trace(&params, "sum", |trace| {
                let of = |(i, param): (usize, &Param), axis: usize| {
                    let squares = trace.param(param).reduce_keep(Reduction::SumSquares, &[axis]);
                    trace.output(&format!("{i} over {axis}"), &squares);
                    squares.sum(&[])
                };
                let sums = (0..list.len()).flat_map(|i| [0, 1].map(|axis| of((i, &list[i]), axis)));
                sums.reduce(|sum, next| sum.add(&next)).expect("some")
            });
            let plan = forward.expect("valid").plan(limits).expect("it fits");
            let names = kernels(&plan);
            assert!(
                !names.iter().any(|name| name.contains("decode") || name.contains("unpack")),
                "{names:?}"
            );
            let mut session = Session::new(device, &plan).expect("it opens");
            let mut twin = Twin::new(plan.graph());
            session.step().expect("it runs");
            twin.run().expect("the twin runs");
            for name in (0..list.len()).flat_map(|i| [0, 1].map(|axis| format!("{i} over {axis}"))) {
                let found: Vec<f32> = session.output(ProgramId(0), &name).expect("an output");
                let expected = twin.output(&name).expect("an output");
                assert_eq!(found.iter().any(|x| x.is_nan()), name.starts_with('3'), "{storage:?}: {name}");
                assert_close(&format!("{storage:?}: {name}"), &found, expected, Near { rel: 2e-6, abs: 0.0 });
            }
        }
    });
}

/// Long axes are split into parts; lavapipe would silently end a thread's loops after 65,535 iterations.
#[test]
fn reductions_over_long_axes_match_the_twin() {
    let shapes: [(&[usize], &[usize]); 13] = [
        (&[1_000_003], &[0]),
        (&[16_384], &[0]),
        (&[65_536], &[0]),
        (&[2, 70_001], &[1]),
        (&[70_001, 2], &[0]),
        (&[65_536, 3], &[0]),
        (&[70_001, 3], &[0, 1]),
        (&[3, 16_385, 2], &[1]),
        (&[2, 70_001, 2], &[0, 2]),
        (&[3, 2, 70_001], &[0, 2]),
        (&[70_001, 2, 3], &[0, 2]),
        (&[300, 2, 300], &[0, 2]),
        (&[7, 2, 100, 2, 90, 2], &[0, 2, 4]),
    ];
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (dims, axes) in shapes {
                let shape = Shape::try_new(dims).expect("few dimensions");
                let x = batch.input(trace, shape, noise(1, shape.numel() as usize, -2.0, 2.0));
                all_kinds(batch, &x, axes);
            }
        });
    });
}

/// With equal elements each addition rounds the same way, and a long naive sum drifts.
#[test]
fn sums_of_equal_elements_do_not_drift() {
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            for dims in [[120_000, 1], [16_384, 1], [400, 300], [8000, 2], [3, 100_000]] {
                let x = batch.input(trace, dims, vec![0.1; dims[0] * dims[1]]);
                let near = Near { rel: 1e-6, abs: 0.0 };
                for axes in [&[0usize][..], &[1], &[0, 1]] {
                    batch.expect(&format!("sum of {dims:?} over {axes:?}"), &x.sum(axes), near);
                }
                let x = x.reshape([dims[0], 1, dims[1], 1]).expand([dims[0], 2, dims[1], 1]);
                batch.expect(&format!("sum of {dims:?} apart"), &x.sum(&[0, 2]), near);
            }
        });
    });
}

/// Sums of ones count the elements: an element that is skipped or added twice changes the sum by one.
#[test]
fn every_element_is_summed_once() {
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            let short = [1, 31, 32, 33, 47, 255, 256, 257, 511];
            let long = [16_383, 16_384, 16_385, 65_535, 65_536, 262_144, 999_983];
            for n in [&short[..], &long].concat() {
                let x = batch.input(trace, [n], vec![1.0; n]);
                batch.expect(&format!("row of {n}"), &x.sum(&[]), EXACT);
                batch.expect(&format!("column of {n}"), &x.reshape([n, 1]).expand([n, 2]).sum(&[0]), EXACT);
            }
        });
    });
}

#[test]
fn max_and_sum_of_negative_and_huge_elements_match_the_twin() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [2, 3], vec![-5.0, -3.0, -4.0, f32::MIN, f32::MIN, f32::MIN]);
            batch.expect("max", &x.max(&[1]), EXACT);
            let x = batch.input(trace, [3], vec![3e38, -3e38, 1e30]);
            batch.expect("sum without overflow on the way", &x.sum(&[]), ulps(4.0));
        });
    });
}

/// The threads of a workgroup that share an output may have no element: their part of a maximum is neither zero nor lost.
#[test]
fn maxima_of_negative_elements_of_any_length_match_the_twin() {
    everywhere(|device, limits| {
        let plan = compare(device, limits, |trace, batch| {
            for n in [31, 32, 33, 47, 100, 2049, 4100] {
                let noise = noise(n as u64, 3 * n, -2.0, -1.0);
                let mut with_nan = noise.clone();
                *with_nan.last_mut().expect("not empty") = f32::NAN;
                for data in [noise, with_nan] {
                    for (dims, axis) in [([3, n], 1), ([n, 3], 0)] {
                        let x = batch.input(trace, dims, data.clone());
                        batch.expect(&format!("max of {dims:?}"), &x.max(&[axis]), EXACT);
                    }
                }
            }
        });
        assert_eq!(kernels(&plan).iter().any(|name| name == "reduce_wg"), is_gpu(limits), "{}", limits.name);
    });
}

/// Of plans of several ranks: parts alone, on a sum in its place, and on one that is read later.
#[test]
fn parts_are_added_in_their_order() {
    const PARTS: usize = 5;
    let sums = ["none", "replaced", "kept"];
    everywhere(|device, limits| {
        let mut ran = BTreeSet::new();
        for len in [6, 1 << 19] {
            let traced = Trace::record(&Params::new(1), Mode::Eval, "kept", |trace| {
                let parts = trace.input("parts", [PARTS, len]);
                let sums = sums.map(|name| (name, trace.input(name, [len])));
                for (name, sum) in &sums {
                    trace.output(&format!("{name} and parts"), &sum.add(&parts.sum(&[0])));
                }
                sums[2].1.clone()
            });
            let mut graph = traced.expect("valid");
            let [parts, none] = ["parts", "none"].map(|name| {
                graph.ids().find(|(_, value)| value.name == name).map(|(id, _)| id).expect("declared")
            });
            for node in graph.nodes.iter_mut().filter(|node| node.op.kind() == "binary") {
                let sum = Some(node.inputs[0]).filter(|sum| *sum != none);
                (node.op, node.inputs) = (Op::SumParts { shape: Shape::from([len]) }, vec![parts]);
                node.inputs.extend(sum);
            }
            let data = |salt, n: usize| noise(salt, n, -2.0, 2.0);
            let mut numbers = data(1, PARTS * len);
            (numbers[3], numbers[2 * len + 1]) = (1e8, f32::NAN);
            let plan = Plan::of_graph(graph, None, limits).expect("planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            session.set_accept_non_finite(true);
            session.feed("parts", &numbers).expect("fed");
            sums.iter().for_each(|name| session.feed(name, &data(2, len)).expect("fed"));
            session.step().expect("it runs");
            for name in sums {
                let start = if name == "none" { vec![0.0; len] } else { data(2, len) };
                let wanted = numbers
                    .chunks(len)
                    .fold(start, |sum, part| sum.iter().zip(part).map(|(sum, x)| sum + x).collect());
                let found: Vec<f32> =
                    session.output(ProgramId(0), &format!("{name} and parts")).expect("read");
                let wanted: Vec<f64> = wanted.into_iter().map(f64::from).collect();
                assert_close(&format!("{name}, {len}"), &found, &wanted, Near { rel: 0.0, abs: 0.0 });
            }
            ran.extend(kernels(&plan).into_iter().filter(|name| name.starts_with("sum_parts")));
        }
        assert_eq!(ran.len(), 6, "every form: {ran:?}");
    });
}
