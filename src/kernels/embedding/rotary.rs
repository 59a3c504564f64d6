//! Rotary position embedding: one dispatch computes cosines and sines for each position, one rotates all
//! batches and heads.

use crate::graph::Rope;
use crate::kernels::grid::per_thread;
use crate::kernels::{Kernel, Lowered, Operand, Site, and_in_place};

static ROTARY: Kernel = Kernel::new("rotary", "embedding/rotary", &[], &[1, 2, 3], 64, &[&[]]);
static ANGLES: Kernel = Kernel::new("rotary_angles", "embedding/rotary", &["ANGLES"], &[1], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    [and_in_place(&[ROTARY.clone(), ROTARY.in_vec4()]), vec![ANGLES.clone()]].concat()
}

/// Positions for which one thread computes angles, all of one frequency.
const CHUNK: u64 = 64;

/// Bits of a pair's index for which the kernel of angles has powers in its parameters.
const POWERS: u64 = 16;

pub(in crate::kernels) fn rotary(site: &Site, heads: usize, rope: &Rope, back: bool) -> Lowered {
    let [batch, positions, all_heads, columns] = *site.output().dims() else {
        unreachable!("rotary embedding is inferred for four dimensions");
    };
    let half = columns as u64 / 2;
    let jobs = half * (positions as u64).div_ceil(CHUNK);
    let turn: f32 = if back { -1.0 } else { 1.0 };
    let bits = u64::from(half.ilog2() + 1).min(POWERS);
    let mut params = [jobs, half, positions as u64, CHUNK, bits].map(|n| n as u32).to_vec();
    params.extend([turn.to_bits(), 0]);
    // 2⁶⁴ times a number of at most 1; 2⁶⁴ itself saturates.
    let fraction = |number: f64| (number * 2f64.powi(64)) as u64;
    let words = |fraction: u64| [fraction as u32, (fraction >> 32) as u32];
    for k in 0..POWERS {
        let power = f64::from(rope.base).powf(-2.0 * (1u64 << k) as f64 / columns as f64);
        params.extend(words(fraction(power)));
    }
    let [far, slope, offset] = rope.ramp();
    params.extend(words(fraction(far)));
    params.extend([slope as f32, offset as f32].map(f32::to_bits));
    let table = Operand::Workspace(0);
    let angles = per_thread(site, &ANGLES, jobs, vec![table], &params);
    let done_heads = if site.in_place.is_some() { heads } else { all_heads };
    let (kernel, half) =
        if half.is_multiple_of(4) { (ROTARY.in_vec4(), half / 4) } else { (ROTARY.clone(), half) };
    let jobs = (batch * positions * done_heads) as u64 * half;
    let sizes = [heads, done_heads, all_heads, positions].map(|n| n as u32);
    let params = [&[jobs as u32, half as u32], &sizes[..]].concat();
    let turned = per_thread(site, &site.variant(&kernel), jobs, site.placed(0, &[table]), &params);
    Lowered { launches: vec![angles, turned], workspace: vec![(positions * columns) as u64 * 4] }
}
