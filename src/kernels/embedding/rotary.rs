//! Rotary position embedding: a thread computes the cosine and sine of a pair at a position, for several heads.

use crate::graph::Rope;
use crate::kernels::grid::per_thread;
use crate::kernels::{Kernel, Lowered, Operand, Site, and_in_place};

static ROTARY: Kernel = Kernel::new("rotary", "embedding/rotary", &[], &[1, 2], 64, &[&[]]);
/// Reads the positions.
static ROTARY_AT: Kernel =
    Kernel::new("rotary_at", "embedding/rotary", &["POSITIONS"], &[1, 2, 3], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    and_in_place(&[ROTARY.clone(), ROTARY_AT.clone()])
}

/// Heads of a thread: enough that memory takes longer than the angle.
const GROUP: usize = 8;

/// Bits of a pair's index for which the kernel has powers in its parameters.
const POWERS: u64 = 16;

pub(in crate::kernels) fn rotary(site: &Site, heads: usize, rope: &Rope, back: bool) -> Lowered {
    let [batch, positions, all_heads, columns] = *site.output().dims() else {
        unreachable!("rotary embedding is inferred for four dimensions");
    };
    let half = columns as u64 / 2;
    let done_heads = if site.in_place.is_some() { heads } else { all_heads };
    let groups = done_heads.div_ceil(GROUP);
    let jobs = (batch * positions * groups) as u64 * half;
    let sizes = [groups, GROUP, heads, done_heads, all_heads, positions].map(|n| n as u32);
    let bits = u64::from(half.ilog2() + 1).min(POWERS) as u32;
    let turn: f32 = if back { -1.0 } else { 1.0 };
    let mut params = [&[jobs as u32, half as u32], &sizes[..], &[bits, turn.to_bits(), 0]].concat();
    // 2⁶⁴ times a number of at most 1; 2⁶⁴ itself saturates.
    let fraction = |number: f64| (number * 2f64.powi(64)) as u64;
    let words = |fraction: u64| [fraction as u32, (fraction >> 32) as u32];
    for k in 0..POWERS {
        let power = libm::pow(f64::from(rope.base), -2.0 * (1u64 << k) as f64 / columns as f64);
        params.extend(words(fraction(power)));
    }
    let [far, slope, offset] = rope.ramp();
    params.extend(words(fraction(far)));
    params.extend([slope as f32, offset as f32].map(f32::to_bits));
    let (kernel, rest): (_, &[_]) =
        if site.inputs.len() > 1 { (&ROTARY_AT, &[Operand::Input(1)]) } else { (&ROTARY, &[]) };
    per_thread(site, &site.variant(kernel), jobs, site.placed(0, rest), &params).into()
}
