//! Pieces of the inner dimension on GPUs, where a product or a convolution has too few tiles to keep every unit
//! busy. Each piece is a product with a result in scratch; `sum_parts` adds them in order, so that the bits are
//! the same every time.

use crate::limits::AdapterClass;

/// Pieces begin at multiples of this many steps, which all tiles divide.
const MULTIPLE: u64 = 32;
/// Fewest steps of a piece: with fewer, scratch moves more bytes than operands.
const SMALLEST: u64 = 256;

/// Returns the workgroups that keep the adapters of a class busy: two for each unit of a large GPU (132 units of an
/// H200), of Apple's (40), and large blocks of a software adapter with cooperative matrices.
pub(super) fn enough(class: AdapterClass) -> u64 {
    match class {
        AdapterClass::Cpu => 128,
        AdapterClass::Integrated => 80,
        AdapterClass::Discrete => 264,
    }
}

/// Returns the number of pieces for a result of this many workgroups; software adapters take one.
pub(super) fn pieces(class: AdapterClass, workgroups: u64, steps: u64) -> u64 {
    if class.is_cpu() {
        return 1;
    }
    let wanted = enough(class).div_ceil(workgroups.max(1)).min(steps / SMALLEST).max(1);
    steps.div_ceil(length(steps, wanted)).max(1)
}

/// Returns the steps of a piece; the last one may be shorter.
pub(super) fn length(steps: u64, pieces: u64) -> u64 {
    if pieces == 1 { steps.max(1) } else { steps.div_ceil(pieces).next_multiple_of(MULTIPLE) }
}

/// Whether a result of this many workgroups keeps the adapter busy, if necessary in pieces.
pub(super) fn fills(class: AdapterClass, workgroups: u64, steps: u64) -> bool {
    workgroups * pieces(class, workgroups, steps) >= enough(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_step_and_none_is_empty() {
        use AdapterClass::{Cpu, Discrete, Integrated};
        for (class, workgroups, steps, expected) in [
            (Discrete, 144, 8192, 2),
            (Discrete, 72, 50_257, 4),
            (Discrete, 264, 1 << 20, 1),
            (Discrete, 1, 255, 1),
            (Discrete, 1, 1 << 20, 263),
            (Discrete, 0, 0, 1),
            (Integrated, 12, 30_522, 7),
            (Cpu, 1, 100_000, 1),
        ] {
            let found = pieces(class, workgroups, steps);
            assert_eq!(found, expected, "{class:?} {workgroups} {steps}");
        }
        for steps in (0..5000).chain([50_257, 65_537]) {
            for workgroups in [1, 7, 100, 263] {
                let found = pieces(Discrete, workgroups, steps);
                let length = length(steps, found);
                assert!(found * length >= steps && (found == 1 || (found - 1) * length < steps), "{steps}");
                assert!(found == 1 || length.is_multiple_of(32) && length >= SMALLEST, "{steps}: {length}");
            }
        }
        assert!(fills(Discrete, 144, 8192) && !fills(Discrete, 144, 128) && fills(Cpu, 128, 1));
    }
}
