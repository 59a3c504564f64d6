//! Matrix products that read 16-bit elements give the bits of products of widened copies, for all operands.

use half::{bf16, f16};
use wgrad::compile::{Forward, Plan};
use wgrad::device::Device;
use wgrad::dtype::DType;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Params, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::shape::Shape;

use super::products::{TRANSPOSES, swapped};
use super::{everywhere, unchecked};
use crate::support::compare::{compare_fused, kernels};
use crate::support::{each_case, noise};

const TYPES: [[DType; 2]; 8] = [
    [DType::F16, DType::F16],
    [DType::F16, DType::F32],
    [DType::F32, DType::F16],
    [DType::BF16, DType::BF16],
    [DType::BF16, DType::F32],
    [DType::F32, DType::BF16],
    [DType::F16, DType::BF16],
    [DType::BF16, DType::F16],
];

/// Feeds the data as elements of `dtype`.
fn feed(session: &mut Session, name: &str, dtype: DType, data: &[f32]) {
    let fed = match dtype {
        DType::F16 => session.feed(name, &data.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()),
        DType::BF16 => session.feed(name, &data.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>()),
        _ => session.feed(name, data),
    };
    fed.expect("a valid input");
}

/// Checks that elements are bit-identical or both NaN: which of two NaN payloads a product propagates is the
/// compiler's choice.
fn assert_same(what: &str, found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (x, y)) in found.iter().zip(wanted).enumerate() {
        let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
        assert!(same, "{what}: element {i} is {x:e}, of widened copies {y:e}");
    }
}

/// Returns numbers, among them NaN, infinities, 16-bit subnormals, the ends of the range, and zeros of either
/// sign.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    const NASTY: [f32; 10] =
        [0.0, -0.0, 6e-8, -3e-5, 65_504.0, 6.2e-5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -65_504.0];
    let mut data = noise(seed, n, -2.0, 2.0);
    // Few of them, so that most results stay finite.
    for (i, nasty) in NASTY.iter().enumerate().take(n / 16) {
        data[(7 + i * n / 10).min(n - 1)] = *nasty;
    }
    data
}

/// One product, computed twice: of the 16-bit elements and of widened copies.
struct Case<'a> {
    a: &'a [usize],
    b: &'a [usize],
    types: [DType; 2],
    transposes: (bool, bool),
}

impl Case<'_> {
    fn shapes(&self) -> [Shape; 2] {
        [swapped(self.a, self.transposes.0), swapped(self.b, self.transposes.1)]
    }
}

/// Runs both products of each case in one unfused plan, with `then` applied to each product, and compares
/// them.
fn compare_with_widened(
    device: &Device,
    limits: &Limits,
    cases: &[Case],
    then: impl Fn(&Tensor) -> Tensor,
) -> Plan {
    let forward = Forward::trace(&Params::new(0), "unused", |trace| {
        for (i, case) in cases.iter().enumerate() {
            let [a, b] = [0, 1]
                .map(|k| trace.input_of(case.types[k], &format!("{}{i}", ["a", "b"][k]), case.shapes()[k]));
            let (ta, tb) = case.transposes;
            let wide = |x: &Tensor, dtype| if dtype == DType::F32 { x.clone() } else { x.cast(DType::F32) };
            let read = a.matmul_transposed(&b, ta, tb);
            let widened = wide(&a, case.types[0]).matmul_transposed(&wide(&b, case.types[1]), ta, tb);
            trace.output(&format!("read{i}"), &then(&read));
            trace.output(&format!("widened{i}"), &then(&widened));
        }
        trace.input("unused input", [1]).scale(1.0)
    });
    let plan = forward.expect("valid").plan_unfused(limits).expect("planned");
    let mut session = Session::new(device, &plan).expect("it opens");
    session.set_accept_non_finite(true);
    session.feed("unused input", &[0.0f32]).expect("valid");
    for (i, case) in cases.iter().enumerate() {
        for k in 0..2 {
            let data = numbers((2 * i + k) as u64, case.shapes()[k].numel() as usize);
            feed(&mut session, &format!("{}{i}", ["a", "b"][k]), case.types[k], &data);
        }
    }
    session.step().expect("it runs");
    for (i, case) in cases.iter().enumerate() {
        let [read, widened] = ["read", "widened"]
            .map(|way| session.output::<f32>(ProgramId(0), &format!("{way}{i}")).expect("an output"));
        let [a, b] = case.shapes();
        let what =
            format!("{}: {} {a} · {} {b}, {:?}", limits.name, case.types[0], case.types[1], case.transposes);
        assert_same(&what, &read, &widened);
        assert!(read.iter().any(|x| x.is_finite() && *x != 0.0), "{what}: there is nothing to compare");
    }
    plan
}

/// With odd inner dimensions rows start in the middle of a 32-bit word; three rows of odd length end in one.
#[test]
fn products_of_16_bit_operands_equal_products_of_widened_copies() {
    let sizes = [
        (1, 1, 1),
        (3, 5, 7),
        (4, 24, 8),
        (7, 28, 12),
        (33, 36, 40),
        (65, 63, 33),
        (64, 64, 16),
        (40, 132, 28),
    ];
    let shapes: Vec<_> = sizes.iter().map(|&(m, n, k)| ([m, k], [k, n])).collect();
    each_case(TYPES, false, |device, limits, &types| {
        let cases =
            shapes.iter().flat_map(|(a, b)| TRANSPOSES.map(|transposes| Case { a, b, types, transposes }));
        let plan = compare_with_widened(device, limits, &cases.collect::<Vec<_>>(), Tensor::clone);
        let (names, [a, b]) = (kernels(&plan), types.map(DType::name));
        let ending = if a == b { a.to_owned() } else { format!("{a}_{b}") };
        assert!(names.iter().any(|name| name.ends_with(&ending)), "{names:?}");
    });
}

#[test]
fn batched_and_long_16_bit_products_equal_products_of_widened_copies() {
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[3, 5, 7], &[3, 7, 9]),
        (&[2, 33, 36], &[2, 36, 40]),
        (&[3, 5, 3], &[3, 5]),
        (&[5, 7], &[3, 7, 3]),
        (&[3, 70_001], &[70_001, 2]),
        (&[4, 140_000], &[140_000, 24]),
    ];
    unchecked(|device, limits| {
        for (i, (a, b)) in shapes.into_iter().enumerate() {
            // The pieces of long rows do not depend on the types.
            let both = [TYPES[0], TYPES[5]];
            for &types in if a.len() == 2 && i >= 4 { &both[i - 4..=i - 4] } else { &both[..] } {
                let cases = TRANSPOSES.map(|transposes| Case { a, b, types, transposes });
                // Results of long rows are NaN if one of their elements is.
                compare_with_widened(device, limits, &cases, Tensor::clone);
            }
        }
    });
}

/// Every 16-bit pattern times one equals its cast to `f32`.
#[test]
fn every_16_bit_pattern_is_read_like_a_cast() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let identity: Vec<f32> = (0..32 * 32).map(|i| f32::from(u8::from(i / 32 == i % 32))).collect();
    let finite = |x: f32| x.is_finite();
    everywhere(|device, limits| {
        for dtype in [DType::F16, DType::BF16] {
            // Through kernels that read vec4, and through kernels that read single elements.
            for shape in [[2048, 32], [65_536, 1]] {
                let columns = shape[1];
                let forward = Forward::trace(&Params::new(0), "y", |trace| {
                    let x = trace.input_of(dtype, "x", shape);
                    let y = x.matmul(&trace.input("one", [columns, columns]));
                    // And as the other operand.
                    let one = trace.input("one more", [columns, columns]);
                    trace.output("z", &one.matmul_transposed(&x, false, true));
                    y
                });
                let plan = forward.expect("valid").plan(limits).expect("planned");
                let mut session = Session::new(device, &plan).expect("it opens");
                session.set_accept_non_finite(true);
                let halves: Vec<f16> = all.iter().copied().map(f16::from_bits).collect();
                let brains: Vec<bf16> = all.iter().copied().map(bf16::from_bits).collect();
                match dtype {
                    DType::F16 => session.feed("x", &halves),
                    _ => session.feed("x", &brains),
                }
                .expect("valid");
                let one = if columns == 1 { &[1.0][..] } else { &identity };
                session.feed("one", one).expect("valid");
                session.feed("one more", one).expect("valid");
                session.step().expect("it runs");
                let (y, z) = (
                    session.output::<f32>(ProgramId(0), "y").expect("there"),
                    session.output::<f32>(ProgramId(0), "z").expect("there"),
                );
                let wide: Vec<f32> = match dtype {
                    DType::F16 => halves.iter().map(|x| x.to_f32()).collect(),
                    _ => brains.iter().map(|x| x.to_f32()).collect(),
                };
                for (i, &wanted) in wide.iter().enumerate() {
                    let (row, column) = (i / columns, i % columns);
                    let found = [y[i], z[column * (65_536 / columns) + row]];
                    let whole = wide[row * columns..][..columns].iter().all(|x| finite(*x));
                    for found in found {
                        // A sum that starts at 0 is never a negative zero, and software adapters flush
                        // subnormal numbers.
                        let tiny = wanted.abs() < f32::MIN_POSITIVE && found == 0.0;
                        let same = found.to_bits() == wanted.to_bits() || tiny;
                        assert!(
                            if whole { same } else { !finite(found) || !finite(wanted) || columns > 1 },
                            "{dtype} {i:#06x} in {columns} columns is {found:e}, should be {wanted:e}"
                        );
                        assert!(
                            columns > 1 || finite(wanted) || wanted.is_nan() == found.is_nan(),
                            "{i:#06x}"
                        );
                    }
                }
            }
        }
    });
}

/// Widening casts, also through a reshape, are fused into products together with the epilogue.
#[test]
fn planned_products_read_16_bit_operands_directly() {
    unchecked(|device, limits| {
        for dtype in [DType::F16, DType::BF16] {
            let plan = compare_fused(device, limits, |trace: &Trace, batch| {
                let x = batch.input(trace, [3, 4, 7], noise(1, 84, -2.0, 2.0)).cast(dtype);
                let w = batch.input(trace, [7, 24], noise(2, 168, -2.0, 2.0)).cast(dtype);
                let bias = batch.input(trace, [24], noise(3, 24, -2.0, 2.0));
                let (wide, w) = (x.cast(DType::F32), w.cast(DType::F32));
                let near = crate::support::close::Near { rel: 1e-5, abs: 1e-5 };
                batch.expect("layer", &wide.reshape([12, 7]).matmul(&w).add(&bias).relu(), near);
                let y = wide.reshape([4, 21]).matmul_transposed(&wide.reshape([4, 21]), false, true);
                batch.expect("with itself", &y.gelu(), near);
                // Operands of the epilogue may be saved in 16 bits as well, read as vec4 or as scalars.
                for n in [24, 25] {
                    let a = batch.input(trace, [5, 8], noise(4, 40, -2.0, 2.0));
                    let b = batch.input(trace, [8, n], noise(5, 8 * n, -2.0, 2.0));
                    let kept = batch.input(trace, [5, n], noise(6, 5 * n, -2.0, 2.0)).cast(dtype);
                    batch.expect(&format!("{n} wide"), &a.matmul(&b).mul(&kept.cast(DType::F32)), near);
                }
            });
            let names = kernels(&plan);
            assert!(!names.iter().any(|name| name.starts_with("unpack")), "{names:?}");
            let layer = format!("{dtype}+add+relu");
            assert!(names.iter().any(|name| name.contains(&layer)), "{names:?}");
            assert_eq!(names.iter().filter(|name| name.contains("+mul")).count(), 2, "{names:?}");
        }
    });
}
