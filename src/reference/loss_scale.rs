//! Dynamic loss scaling.

use crate::dtype::DType;
use crate::graph::{Counting, LossScale};

pub(super) fn seed(state: &[f64], start: f32) -> f64 {
    if state[0] == 0.0 { f64::from(start) } else { state[0] }
}

pub(super) fn not_finite(x: &[f64], held: DType) -> f64 {
    // A number beyond the range of f32 is infinite on the device; in 16 bits it is stored as the largest one.
    let most = f64::from(held.largest());
    let beyond = |x: f64| x.is_nan() || if held.is_half() { x.abs() >= most } else { x.abs() > most };
    f64::from(u8::from(x.iter().any(|x| beyond(*x))))
}

/// `state, bad, scalars` → the scalars of this step, and the inverse of the scale. Updates the state in
/// place.
pub(super) fn judge(
    memory: &mut [Vec<f64>],
    settings: LossScale,
    counting: Counting,
    early: bool,
) -> [Vec<f64>; 2] {
    let word = |x: f64| f64::from((x as f32).to_bits());
    let (scale, skip) = (seed(&memory[0], settings.start), memory[1][0] > 0.0);
    let mut scalars = memory[2].clone();
    scalars[6] = word(if early { 1.0 } else { 1.0 / scale });
    scalars[7] = f64::from(u8::from(skip));
    let skipped = memory[0][2];
    let t = (memory[2][3] + 1.0 - skipped).max(1.0);
    if skipped > 0.0 {
        let rate = f64::from(f32::from_bits(memory[2][0] as u32));
        for (at, correction) in [1, 2, 8].into_iter().zip(counting.corrections(t, rate)) {
            scalars[at] = word(correction);
        }
    }
    let clean = memory[0][1] + 1.0;
    let grows = !skip && clean >= f64::from(settings.interval);
    let factor = if skip {
        0.5
    } else if grows {
        2.0
    } else {
        1.0
    };
    let next = (scale * factor).clamp(0.5f64.powi(60), 2f64.powi(60));
    memory[0] = vec![next, if skip || grows { 0.0 } else { clean }, skipped + f64::from(u8::from(skip)), 0.0];
    [scalars, vec![1.0 / scale]]
}
