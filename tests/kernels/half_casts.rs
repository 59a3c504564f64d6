//! Casts to and from 16 bits, bit for bit against the crate `half`: rounding, subnormal numbers, overflow,
//! NaN.

use half::{bf16, f16};
use wgrad::compile::Forward;
use wgrad::device::Device;
use wgrad::dtype::DType;
use wgrad::exec::{Element, ProgramId, Session};
use wgrad::graph::{Params, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::random;

use super::{SIZES, everywhere};
use crate::support::close::EXACT;
use crate::support::compare::compare;
use crate::support::noise;

/// Runs `y = f(x)` for one input of any type.
fn run<X: Element, Y: Element>(
    device: &Device,
    limits: &Limits,
    x: &[X],
    f: impl Fn(&Tensor) -> Tensor,
) -> Vec<Y> {
    let forward = Forward::trace(&Params::new(0), "y", |trace| f(&trace.input_of(X::DTYPE, "x", [x.len()])));
    let plan = forward.expect("valid").plan(limits).expect("it can be planned");
    let mut session = Session::new(device, &plan).expect("it opens");
    session.set_accept_non_finite(true);
    session.feed("x", x).expect("the right type and length");
    session.step().expect("it runs");
    session.output(ProgramId(0), "y").expect("an output of this type")
}

fn assert_words(what: &str, found: &[u32], wanted: impl Fn(usize) -> u32, from: impl Fn(usize) -> u32) {
    for (i, &found) in found.iter().enumerate() {
        let wanted = wanted(i);
        assert_eq!(found, wanted, "{what} of {:#010x} is {found:#010x}, should be {wanted:#010x}", from(i));
    }
}

/// Returns the result of `half`, except that magnitudes beyond the largest number become that number.
fn limited(bits: u16, infinity: u16) -> u16 {
    if bits & 0x7fff == infinity { bits - 1 } else { bits }
}

#[test]
fn every_16_bit_pattern_survives_a_round_trip_through_f32() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let f16s: Vec<f16> = all.iter().copied().map(f16::from_bits).collect();
    let bf16s: Vec<bf16> = all.iter().copied().map(bf16::from_bits).collect();
    everywhere(|device, limits| {
        let wide: Vec<f32> = run(device, limits, &f16s, |x| x.cast(DType::F32));
        let wide: Vec<u32> = wide.iter().map(|x| x.to_bits()).collect();
        assert_words("f16 as f32", &wide, |i| f16s[i].to_f32().to_bits(), |i| i as u32);
        let again: Vec<f16> = run(device, limits, &f16s, |x| x.cast(DType::F32).cast(DType::F16));
        let again: Vec<u32> = again.iter().map(|x| u32::from(x.to_bits())).collect();
        let wanted = |i: usize| u32::from(limited(f16::from_f32(f16s[i].to_f32()).to_bits(), 0x7c00));
        assert_words("f16 there and back", &again, wanted, |i| i as u32);

        let wide: Vec<f32> = run(device, limits, &bf16s, |x| x.cast(DType::F32));
        let wide: Vec<u32> = wide.iter().map(|x| x.to_bits()).collect();
        assert_words("bf16 as f32", &wide, |i| bf16s[i].to_f32().to_bits(), |i| i as u32);
        let again: Vec<bf16> = run(device, limits, &bf16s, |x| x.cast(DType::F32).cast(DType::BF16));
        let again: Vec<u32> = again.iter().map(|x| u32::from(x.to_bits())).collect();
        let wanted = |i: usize| u32::from(limited(bf16::from_f32(bf16s[i].to_f32()).to_bits(), 0x7f80));
        assert_words("bf16 there and back", &again, wanted, |i| i as u32);
    });
}

/// Returns 32-bit numbers at which rounding is decided: every number of either format, the midpoint to the
/// next, and one bit more or less than that; numbers around the ends of the range; random bits.
fn nasty() -> Vec<f32> {
    let mut bits: Vec<u32> = Vec::new();
    let mut near = |at: u32| bits.extend([at.wrapping_sub(1), at, at.wrapping_add(1)]);
    for pattern in 0..0x7c00u16 {
        let this = f16::from_bits(pattern).to_f32();
        let next = if pattern == 0x7bff { 65_536.0 } else { f16::from_bits(pattern + 1).to_f32() };
        near(this.to_bits());
        near((0.5 * (this + next)).to_bits());
    }
    for pattern in (0..0x7f80u32).step_by(7).chain(0x7f60..0x7f90).chain(0..0x100) {
        near(pattern << 16);
        near(pattern << 16 | 0x8000);
    }
    near(f32::MAX.to_bits());
    near(f32::INFINITY.to_bits());
    near(f32::MIN_POSITIVE.to_bits());
    near(f32::NAN.to_bits());
    let key = random::key(3, "patterns");
    bits.extend((0..50_000).map(|i| random::bits(key, i) as u32));
    let negative: Vec<u32> = bits.iter().map(|b| b ^ 0x8000_0000).collect();
    bits.extend(negative);
    bits.into_iter().map(f32::from_bits).collect()
}

#[test]
fn rounding_is_to_nearest_even_and_overflow_saturates() {
    let x = nasty();
    everywhere(|device, limits| {
        let found: Vec<f16> = run(device, limits, &x, |x| x.cast(DType::F16));
        let found: Vec<u32> = found.iter().map(|x| u32::from(x.to_bits())).collect();
        let wanted = |i: usize| u32::from(limited(f16::from_f32(x[i]).to_bits(), 0x7c00));
        assert_words("f16", &found, wanted, |i| x[i].to_bits());
        let found: Vec<bf16> = run(device, limits, &x, |x| x.cast(DType::BF16));
        let found: Vec<u32> = found.iter().map(|x| u32::from(x.to_bits())).collect();
        let wanted = |i: usize| u32::from(limited(bf16::from_f32(x[i]).to_bits(), 0x7f80));
        assert_words("bf16", &found, wanted, |i| x[i].to_bits());
    });
}

/// Odd lengths, views and copies. The twin rounds exactly as the kernels do.
#[test]
fn casts_of_any_length_match_the_twin() {
    everywhere(|device, limits| {
        compare(device, limits, |trace: &Trace, batch| {
            for n in SIZES {
                let mut data = noise(n as u64, n, -3.0, 3.0);
                for (x, nasty) in data.iter_mut().zip([1e-7, -7e4, 65_519.0, 3e-8, 1e38, -1e-30, 0.0, 6.1e-5])
                {
                    *x = nasty;
                }
                let x = batch.input(trace, [n], data);
                for dtype in [DType::F16, DType::BF16] {
                    let packed = x.cast(dtype);
                    batch.expect(&format!("{dtype} of {n}"), &packed.cast(DType::F32), EXACT);
                    let view = packed.reshape([1, n]).cast(DType::F32);
                    batch.expect(&format!("a view of {n} {dtype}"), &view, EXACT);
                }
                batch.keep(&x);
            }
        });
    });
}

#[test]
fn operations_on_16_bit_elements_are_errors() {
    let forward = Forward::trace(&Params::new(0), "y", |trace| {
        let x = trace.input("x", [4]).cast(DType::F16);
        x.square().add(&x.cast(DType::U32).cast(DType::F32))
    });
    let message = forward.expect_err("two mistakes").to_string();
    assert!(message.contains("square takes elements of 32 bits, got f16 [4]; cast it to f32"), "{message}");
    assert!(message.contains("cast of f16 [4] to u32: go through f32"), "{message}");
}
