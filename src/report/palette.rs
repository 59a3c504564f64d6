//! Colours of classes: Okabe & Ito's palette, told apart by lightness, and by a pattern where lightness is near.

use crate::graph::Class;

/// How a class is drawn.
pub(super) struct Look {
    /// Fill.
    pub(super) fill: &'static str,
    /// Writing, and lines of the pattern, on that fill.
    pub(super) pen: &'static str,
    /// Lines over the fill, as an SVG path in a tile of 8 × 8.
    pub(super) pattern: &'static str,
}

/// The look of a class.
pub(super) fn look(class: Class) -> Look {
    let (fill, pen, pattern) = match class {
        Class::Parameter => ("#0072b2", "#ffffff", ""),
        Class::Optimizer => ("#56b4e9", "#000000", "M0 4H8"),
        Class::Activation => ("#f0e442", "#000000", ""),
        Class::Gradient => ("#d55e00", "#ffffff", "M-1 9L9 -1M-1 1L1 -1M7 9L9 7"),
        Class::Workspace => ("#aaaaaa", "#000000", "M4 0V8"),
        Class::Input => ("#009e73", "#ffffff", "M3 4H5M7 0H9M-1 0H1M7 8H9M-1 8H1"),
    };
    Look { fill, pen, pattern }
}

/// Laid over the fill of what is computed a second time.
pub(super) const AGAIN: &str = "M-1 -1L9 9M-1 7L1 9M7 -1L9 1";
