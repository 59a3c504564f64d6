//! Colours of classes: Okabe & Ito's palette. Classes differ in lightness, and in their pattern where the
//! lightness is similar.

use crate::graph::Class;

/// How a class is drawn.
pub(super) struct Look {
    /// Fill colour.
    pub(super) fill: &'static str,
    /// Colour of text and of pattern lines on that fill.
    pub(super) pen: &'static str,
    /// Pattern over the fill, as an SVG path in a tile of 8 × 8.
    pub(super) pattern: &'static str,
}

/// Returns the look of a class.
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

/// Pattern drawn over the fill of recomputed tensors.
pub(super) const AGAIN: &str = "M-1 -1L9 9M-1 7L1 9M7 -1L9 1";
