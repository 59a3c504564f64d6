//! Pieces of the inner dimension on GPUs, where a product or a convolution has too few tiles to keep every unit
//! busy. Each piece is a product with a result in scratch; `sum_parts` adds them in order, so that the bits are
//! the same every time.

use crate::limits::AdapterClass;

/// Pieces begin at multiples of this many steps, which all tiles divide.
const MULTIPLE: u64 = 32;
/// Fewest steps of a piece. With fewer, the scratch of a large product moves more bytes than its operands.
const SMALLEST: u64 = 256;

/// A workgroup of more threads hides its latency by itself.
const FEW_THREADS: u32 = 64;

/// Units of a large GPU (an H200), of Apple's, and of large blocks of a software adapter with cooperative matrices.
fn units(class: AdapterClass) -> u64 {
    match class {
        AdapterClass::Cpu => 64,
        AdapterClass::Integrated => 40,
        AdapterClass::Discrete => 132,
    }
}

/// Returns the workgroups of this many threads that keep the adapters of a class busy: two for each unit. Of workgroups of 64
/// threads a unit of a GPU takes four: with two, half of its schedulers have nothing to hide latency with.
fn enough(class: AdapterClass, threads: u32) -> u64 {
    units(class) * if threads <= FEW_THREADS && !class.is_cpu() { 4 } else { 2 }
}

/// Fewest steps of the pieces that a product has beyond [`enough`]: their sums take little beside them.
const LONG: u64 = 768;

/// In more rounds than this, what the last one leaves idle is little.
const FEW_ROUNDS: u64 = 8;

/// Returns the number of pieces for a result that `workgroups` compute, each of `threads`; 1 on software adapters.
pub(super) fn pieces(class: AdapterClass, (workgroups, threads): (u64, u32), steps: u64) -> u64 {
    if class.is_cpu() { 1 } else { divided(steps, workgroups, enough(class, threads), SMALLEST) }
}

/// Returns the number of pieces of a product whose result has this many rows, or columns if they are fewer. A piece of `n`
/// steps reads `n` elements of the longer operand for each two that it moves of a result's row: so few rows allow shorter pieces.
pub(super) fn pieces_of_product(
    class: AdapterClass,
    (workgroups, threads): (u64, u32),
    steps: u64,
    rows: u64,
) -> u64 {
    if class.is_cpu() {
        return 1;
    }
    let pieces = divided(steps, workgroups, enough(class, threads), (2 * rows).clamp(SMALLEST / 2, SMALLEST));
    if threads > FEW_THREADS { pieces } else { fullest(steps, workgroups, units(class), pieces) }
}

/// Returns the number of pieces, from `least` to twice as many, so that scratch at most doubles, that leaves the fewest units idle
/// in the last round, when some have a workgroup more than others: 576 workgroups on 132 units take as long as 660.
fn fullest(steps: u64, workgroups: u64, units: u64, least: u64) -> u64 {
    if workgroups * least > FEW_ROUNDS * units {
        return least;
    }
    let idle = |pieces: u64| {
        let rounds = (workgroups * pieces).div_ceil(units).max(1);
        1.0 - (workgroups * pieces) as f64 / (rounds * units) as f64
    };
    let more = (least + 1..=(2 * least).min(steps / LONG)).map(|pieces| counted(steps, pieces));
    more.fold(least, |best, pieces| if idle(pieces) < idle(best) { pieces } else { best })
}

/// Returns the pieces that make `wanted` of `workgroups`, of at least `smallest` steps each.
fn divided(steps: u64, workgroups: u64, wanted: u64, smallest: u64) -> u64 {
    counted(steps, wanted.div_ceil(workgroups.max(1)).min(steps / smallest).max(1))
}

/// Returns how many pieces there are of the length that this many have.
fn counted(steps: u64, pieces: u64) -> u64 {
    steps.div_ceil(length(steps, pieces)).max(1)
}

/// Returns the steps of a piece; the last one may be shorter.
pub(super) fn length(steps: u64, pieces: u64) -> u64 {
    if pieces == 1 { steps.max(1) } else { steps.div_ceil(pieces).next_multiple_of(MULTIPLE) }
}

/// Whether `workgroups` of `threads` each, split into pieces if `steps` are enough for some, keep the adapter busy.
pub(super) fn fills(class: AdapterClass, (workgroups, threads): (u64, u32), steps: u64) -> bool {
    workgroups * pieces(class, (workgroups, threads), steps) >= enough(class, threads)
}

/// Whether this many threads, in workgroups of `workgroup`, keep the adapter busy. A software adapter has few cores: any do.
pub(super) fn threads_fill(class: AdapterClass, threads: u64, workgroup: u32) -> bool {
    class.is_cpu() || fills(class, (threads.div_ceil(u64::from(workgroup)), workgroup), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_step_and_none_is_empty() {
        use AdapterClass::{Cpu, Discrete, Integrated};
        for (class, work, steps, expected) in [
            (Discrete, (144, 256), 8192, 2),
            (Discrete, (144, 64), 8192, 4),
            (Discrete, (72, 256), 50_257, 4),
            (Discrete, (264, 256), 1 << 20, 1),
            (Discrete, (1, 256), 255, 1),
            (Discrete, (1, 256), 1 << 20, 263),
            (Discrete, (0, 64), 0, 1),
            (Integrated, (12, 256), 30_522, 7),
            (Cpu, (1, 256), 100_000, 1),
        ] {
            let found = pieces(class, work, steps);
            assert_eq!(found, expected, "{class:?} {work:?} {steps}");
        }
        for steps in (0..5000).chain([50_257, 65_537]) {
            for workgroups in [1, 7, 100, 263] {
                let found = pieces(Discrete, (workgroups, 256), steps);
                let length = length(steps, found);
                assert!(found * length >= steps && (found == 1 || (found - 1) * length < steps), "{steps}");
                assert!(found == 1 || length.is_multiple_of(32) && length >= SMALLEST, "{steps}: {length}");
            }
        }
        let of = |rows| pieces_of_product(Discrete, (16, 64), 1280, rows);
        assert_eq!([1, 64, 65, 96, 128, 4096].map(of), [10, 10, 8, 6, 5, 5]);
        // Of long products more pieces, where units would wait in the last round; not of workgroups that have many threads.
        let of = |workgroups, threads, steps| pieces_of_product(Discrete, (workgroups, threads), steps, 4096);
        assert_eq!(
            [of(72, 64, 50_257), of(144, 64, 8192), of(432, 64, 8192), of(576, 64, 8192)],
            [11, 8, 3, 2]
        );
        assert_eq!([of(144, 256, 8192), of(256, 64, 1024), of(1536, 64, 3072)], [2, 3, 1]);
        let [few, many] = [144, 528].map(|workgroups| (workgroups, 64));
        assert!(fills(Discrete, few, 8192) && !fills(Discrete, few, 128));
        assert!(fills(Discrete, many, 1) && fills(Cpu, (128, 256), 1));
    }
}
