//! Functions of two elements. A function is one entry of the table: its name, its `f64` definition, its WGSL and the gradients of
//! its operands. The method of [`Tensor`], the kernels, the rule of differentiation and the reference read it there.

use std::panic::Location;

use super::{Op, sigmoid};
use crate::graph::Tensor;

/// What the results of a function of two elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// Computed, and rounded.
    Rounded,
    /// Elements of the operands, or 0.
    Selected,
    /// 0 or 1, from a comparison.
    Flags,
}

/// What the gradients of the operands are made of.
pub(crate) struct Pair<'a> {
    pub a: &'a Tensor,
    pub b: &'a Tensor,
    /// The result and its gradient.
    pub y: &'a Tensor,
    pub dy: &'a Tensor,
    /// Which operands need a gradient.
    pub wants: [bool; 2],
}

impl Pair<'_> {
    fn each(&self, da: impl FnOnce() -> Tensor, db: impl FnOnce() -> Tensor) -> [Option<Tensor>; 2] {
        [self.wants[0].then(da), self.wants[1].then(db)]
    }

    /// Gradients for functions that select: `dy` goes to `b` where `flags` is 1, else to `a`.
    fn selected(&self, flags: &Tensor) -> [Option<Tensor>; 2] {
        let to_b = flags.mul(self.dy);
        self.each(|| self.dy.sub(&to_b), || to_b.clone())
    }

    fn apply(&self, f: Binary, a: &Tensor, b: &Tensor) -> Tensor {
        a.one(Op::Binary(f), &[a, b], Location::caller())
    }
}

/// An entry of the table. WGSL is of `a` and `b`, both `vec4<f32>`, and may call what
/// `shaders/elementwise/binary_functions.wgsl` defines.
pub(crate) struct Function {
    pub name: &'static str,
    /// Its formula, as in the documentation of the method.
    pub doc: &'static str,
    pub results: Results,
    /// Which operands must not be rounded to 16 bits where the backward pass reads them.
    pub exact: &'static [usize],
    pub value: fn(f64, f64) -> f64,
    pub wgsl: &'static str,
    /// The gradients, of the result's shape.
    pub gradient: fn(&Pair) -> [Option<Tensor>; 2],
}

macro_rules! functions {
    (
        methods {$(
            $(#[doc = $doc:literal])*
            $variant:ident as $name:ident gives $results:ident exact $exact:expr; $value:expr, $wgsl:literal; $gradient:expr;
        )*}
        others {$(
            $(#[doc = $other_doc:literal])*
            $other:ident as $other_name:ident gives $other_results:ident exact $other_exact:expr;
                $other_value:expr, $other_wgsl:literal; $other_gradient:expr;
        )*}
    ) => {
        /// A function of two elements; operands broadcast as in NumPy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Binary {
            $($(#[doc = $doc])* $variant,)*
            $($(#[doc = $other_doc])* $other,)*
        }

        impl Binary {
            /// The names of all functions.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)* $(stringify!($other_name),)*];

            /// Every function, in the order of its codes.
            pub(crate) const TABLE: &'static [Function] = &[
                $(Function {
                    name: stringify!($name),
                    doc: concat!($($doc),*),
                    results: Results::$results,
                    exact: &$exact,
                    value: $value,
                    wgsl: $wgsl,
                    gradient: $gradient,
                },)*
                $(Function {
                    name: stringify!($other_name),
                    doc: concat!($($other_doc),*),
                    results: Results::$other_results,
                    exact: &$other_exact,
                    value: $other_value,
                    wgsl: $other_wgsl,
                    gradient: $other_gradient,
                },)*
            ];

            /// The functions that are methods of [`Tensor`].
            #[cfg(any(test, feature = "gpu"))]
            pub(crate) const METHODS: &'static [Self] = &[$(Self::$variant),*];

            /// The override constants of kernels that select a function by its code.
            pub(crate) const CODES: &'static [&'static [(&'static str, f64)]] = &[
                $(&[("F", Self::$variant as u32 as f64)],)*
                $(&[("F", Self::$other as u32 as f64)],)*
            ];
        }

        impl Tensor {
            $($(#[doc = $doc])*
            ///
            /// Element by element; shapes broadcast.
            #[track_caller]
            #[must_use]
            #[allow(clippy::should_implement_trait, reason = "PyTorch's names; both operands are references")]
            pub fn $name(&self, other: &Tensor) -> Tensor {
                self.one(Op::Binary(Binary::$variant), &[self, other], Location::caller())
            })*
        }
    };
}

functions! {
    methods {
        /// `a + b`
        Add as add gives Rounded exact [];
            |a, b| a + b, "a + b";
            |p| p.each(|| p.dy.clone(), || p.dy.clone());
        /// `a - b`
        Sub as sub gives Rounded exact [];
            |a, b| a - b, "a - b";
            |p| p.each(|| p.dy.clone(), || p.dy.neg());
        /// `a b`
        Mul as mul gives Rounded exact [];
            |a, b| a * b, "a * b";
            |p| p.each(|| p.dy.mul(p.b), || p.dy.mul(p.a));
        /// `a / b`
        Div as div gives Rounded exact [1];
            |a, b| a / b, "a / b";
            |p| {
                let over_b = p.dy.div(p.b);
                // d(a/b)/db = -(a/b)/b
                p.each(|| over_b.clone(), || over_b.mul(p.y).neg())
            };
        /// `max(a, b)`. Where both are equal the gradient goes to `a`.
        Max as maximum gives Selected exact [];
            |a, b| largest(a, b), "or_nan4(a, or_nan4(b, max(a, b)))";
            |p| p.selected(&p.b.greater(p.a));
        /// `min(a, b)`. Where both are equal the gradient goes to `a`.
        Min as minimum gives Selected exact [];
            |a, b| -largest(-a, -b), "or_nan4(a, or_nan4(b, min(a, b)))";
            |p| p.selected(&p.a.greater(p.b));
        /// 1 where `a = b`, else 0; no gradient.
        Equal as equal gives Flags exact [];
            |a, b| flag(a == b), "flag(a == b)";
            |_| [None, None];
        /// 1 where `a > b`, else 0; no gradient.
        Greater as greater gives Flags exact [];
            |a, b| flag(a > b), "flag(a > b)";
            |_| [None, None];
        /// 1 where `a ≠ b`, also where one is NaN, else 0; no gradient.
        NotEqual as not_equal gives Flags exact [];
            |a, b| flag(a != b), "1.0 - flag(a == b)";
            |_| [None, None];
        /// 1 where `a ≥ b`, else 0; no gradient.
        GreaterEqual as greater_equal gives Flags exact [];
            |a, b| flag(a >= b), "flag(a >= b)";
            |_| [None, None];
        /// 1 where `a < b`, else 0; no gradient.
        Less as less gives Flags exact [];
            |a, b| flag(a < b), "flag(a < b)";
            |_| [None, None];
        /// 1 where `a ≤ b`, else 0; no gradient.
        LessEqual as less_equal gives Flags exact [];
            |a, b| flag(a <= b), "flag(a <= b)";
            |_| [None, None];
        /// `a` where `b ≠ 0`, else 0, also where `a` is NaN or infinite; no gradient for `b`.
        Masked as masked gives Selected exact [1];
            |a, b| if b == 0.0 { 0.0 } else { a }, "select(a, vec4(0.0), b == vec4(0.0))";
            |p| [p.wants[0].then(|| p.dy.masked(p.b)), None];
        /// `a` where `b = 0`, else 0, also where `a` is NaN or infinite; no gradient for `b`.
        Unmasked as unmasked gives Selected exact [1];
            |a, b| if b == 0.0 { a } else { 0.0 }, "select(vec4(0.0), a, b == vec4(0.0))";
            |p| [p.wants[0].then(|| p.dy.unmasked(p.b)), None];
        /// `aᵇ`; NaN for `a < 0` unless `b` is an integer. The relative error is up to 2⁻²² times the size of the
        /// result's exponent (base 2).
        Pow as pow gives Rounded exact [0, 1];
            |a, b| a.powf(b), "power(a, b)";
            |p| p.each(
                || p.apply(Binary::PowSlope, p.a, p.b).mul(p.dy),
                || p.apply(Binary::PowLog, p.y, p.a).mul(p.dy),
            );
    }
    others {
        /// Binary cross-entropy of logit `a` and target `b`: `max(a, 0) - a b + ln(1 + e^-|a|)`
        BceLogits as bce_logits gives Rounded exact [];
            |a, b| a.max(0.0) - a * b + (-a.abs()).exp().ln_1p(), "max(a, vec4(0.0)) - a * b + log1p4(exp(-abs(a)))";
            |p| p.each(|| p.apply(Binary::BceLogitsGrad, p.a, p.b).mul(p.dy), || p.dy.mul(p.a).neg());
        /// The derivative of `BceLogits` with respect to `a`: `σ(a) - b`
        BceLogitsGrad as bce_logits_grad gives Rounded exact [];
            |a, b| sigmoid(a) - b, "bce_slope(a, b)";
            |_| [None, None];
        /// The derivative of `Pow` with respect to `a`: `b aᵇ⁻¹`, and 0 where `b = 0`
        PowSlope as pow_slope gives Rounded exact [0, 1];
            |a, b| if b == 0.0 { 0.0 } else { b * a.powf(b - 1.0) }, "select(b * power(a, b - 1.0), vec4(0.0), b == vec4(0.0))";
            |_| [None, None];
        /// The derivative of `a = cᵇ` with respect to the exponent, of the result `a` and of `b`, the base `c`: `a ln c`; 0 where
        /// the base is 0 and the result finite
        PowLog as pow_log gives Rounded exact [0, 1];
            |a, b| if b == 0.0 && a <= 1.0 { 0.0 } else { a * b.ln() },
            "select(a * log_or_nan(b), vec4(0.0), (b == vec4(0.0)) & (a <= vec4(1.0)))";
            |_| [None, None];
    }
}

impl Binary {
    pub(crate) fn function(self) -> &'static Function {
        &Self::TABLE[self as usize]
    }

    /// Returns the function's name in reports.
    pub fn name(self) -> &'static str {
        self.function().name
    }

    /// Returns the code by which kernels select the function.
    pub fn code(self) -> u32 {
        self as u32
    }
}

fn flag(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

/// Returns the larger number; NaN if either is NaN.
pub(crate) fn largest(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}
