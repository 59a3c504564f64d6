//! Pieces of the inner dimension on GPUs, where a product or a convolution has too few tiles to keep every unit
//! busy. Each piece is a product with a result in scratch; `sum_parts` adds them in order, so that the bits are
//! the same every time.

use crate::limits::AdapterClass;

/// Pieces begin at multiples of this many steps, which all tiles divide.
const MULTIPLE: u64 = 32;
/// Fewest steps of a piece. With fewer, the scratch of a large product moves more bytes than its operands.
const SMALLEST: u64 = 256;

/// Returns the workgroups of this many threads that keep the adapters of a class busy: two for each unit of a large GPU
/// (132 units of an H200), of Apple's (40), and large blocks of a software adapter with cooperative matrices. Of
/// workgroups of 64 threads a unit takes four: with two, half of its schedulers have nothing to hide latency with.
fn enough(class: AdapterClass, threads: u32) -> u64 {
    let small = if threads <= 64 { 2 } else { 1 };
    match class {
        AdapterClass::Cpu => 128,
        AdapterClass::Integrated => 80 * small,
        AdapterClass::Discrete => 264 * small,
    }
}

/// Returns the number of pieces for a result that `workgroups` compute, each of `threads`; 1 on software adapters.
pub(super) fn pieces(class: AdapterClass, work: (u64, u32), steps: u64) -> u64 {
    pieces_of(class, work, steps, SMALLEST)
}

/// Returns the number of pieces of a product whose result has this many rows, or columns if they are fewer. A piece of `n`
/// steps reads `n` elements of the longer operand for each two that it moves of a result's row: so few rows allow shorter pieces.
pub(super) fn pieces_of_product(class: AdapterClass, work: (u64, u32), steps: u64, rows: u64) -> u64 {
    pieces_of(class, work, steps, (2 * rows).clamp(SMALLEST / 2, SMALLEST))
}

fn pieces_of(class: AdapterClass, (workgroups, threads): (u64, u32), steps: u64, smallest: u64) -> u64 {
    if class.is_cpu() {
        return 1;
    }
    let wanted = enough(class, threads).div_ceil(workgroups.max(1)).min(steps / smallest).max(1);
    steps.div_ceil(length(steps, wanted)).max(1)
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
        let [few, many] = [144, 528].map(|workgroups| (workgroups, 64));
        assert!(fills(Discrete, few, 8192) && !fills(Discrete, few, 128));
        assert!(fills(Discrete, many, 1) && fills(Cpu, (128, 256), 1));
    }
}
