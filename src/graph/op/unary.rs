//! Functions of one element. A function is one entry of the table: its name, its WGSL, its `f64` definition and the derivative of
//! both. The method of [`Tensor`](crate::graph::Tensor), the kernels, the reference and the random networks of `check` read it there.

use std::f64::consts::{FRAC_1_SQRT_2, PI};
use std::panic::Location;

use super::special::{erf as erf_f64, erfc};
use crate::graph::Tensor;

/// What the backward pass of a [`Unary`] saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// Nothing: the derivative is a constant factor.
    Nothing,
    /// The input.
    Input,
    /// The output, so the input's memory may be reused at once.
    Output,
}

/// Numbers for which a function and its derivative are moderate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Any,
    /// From -1 to 1.
    Bounded,
    Positive,
}

/// An entry of the table. Expressions of WGSL are of `v`, an input, or `s`, the number that was saved, both `vec4<f32>`, and of
/// the constants `a` and `b`; functions of `f64` have the same arguments. They may call what
/// `shaders/elementwise/unary_functions.wgsl` defines.
pub(crate) struct Function {
    pub name: &'static str,
    /// Its formula, as in the documentation of the method.
    pub doc: &'static str,
    /// How many constants it has.
    pub constants: usize,
    pub saves: Saves,
    /// Whether the saved number must not be rounded to 16 bits.
    pub exact: bool,
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "`check` draws inputs from it"))]
    pub domain: Domain,
    pub wgsl: &'static str,
    pub wgsl_slope: &'static str,
    value: fn(f64, f64, f64) -> f64,
    slope: fn(f64, f64, f64) -> f64,
}

impl Function {
    /// The derivative where `s` is saved, with constants of 1.
    pub(crate) fn slope_at(&self, s: f64) -> f64 {
        (self.slope)(s, 1.0, 1.0)
    }
}

/// The type of a constant.
macro_rules! f32_of {
    ($constant:ident) => {
        f32
    };
}

macro_rules! functions {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident $(($($constant:ident = $example:literal),+))? as $name:ident saves $saves:ident $(, $exact:ident)? on $domain:ident:
            $value:expr, $wgsl:literal;
            $slope:expr, $wgsl_slope:literal;
    )*) => {
        /// A function of one element.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Unary {
            $($(#[doc = $doc])* $variant $(($(f32_of!($constant)),+))?,)*
        }

        #[derive(Clone, Copy)]
        enum Code {
            $($variant,)*
        }

        impl Unary {
            /// The names of all functions.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Every function, in the order of its codes.
            pub(crate) const TABLE: &'static [Function] = &[$(Function {
                name: stringify!($name),
                doc: concat!($($doc),*),
                constants: <[f32]>::len(&[$($($example),+)?]),
                saves: Saves::$saves,
                exact: <[&str]>::len(&[$(stringify!($exact))?]) > 0,
                domain: Domain::$domain,
                wgsl: $wgsl,
                wgsl_slope: $wgsl_slope,
                value: $value,
                slope: $slope,
            }),*];

            /// Every function once, with some constants.
            #[cfg(any(test, feature = "gpu"))]
            pub(crate) const EXAMPLES: &'static [Self] = &[$(Self::$variant $(($($example),+))?),*];

            /// The override constants of kernels that select a function by its code.
            pub(crate) const CODES: &'static [&'static [(&'static str, f64)]] =
                &[$(&[("F", Code::$variant as u32 as f64)]),*];

            /// Returns the function's code and its two constants.
            pub fn code(self) -> (u32, [f32; 2]) {
                match self {
                    $(Self::$variant $(($($constant),+))? => (
                        Code::$variant as u32,
                        two(&[$($($constant),+)?]),
                    ),)*
                }
            }
        }

        impl Tensor {
            $($(#[doc = $doc])*
            ///
            /// Element by element, any shape.
            #[track_caller]
            #[must_use]
            #[allow(clippy::should_implement_trait, reason = "PyTorch's names; the operand is a reference")]
            pub fn $name(&self $($(, $constant: f32)+)?) -> Tensor {
                self.apply_unary(Unary::$variant $(($($constant),+))?, Location::caller())
            })*
        }
    };
}

fn two(constants: &[f32]) -> [f32; 2] {
    [constants.first().copied().unwrap_or(0.0), constants.get(1).copied().unwrap_or(0.0)]
}

functions! {
    /// `y = a x`
    Scale(a = 0.7) as scale saves Nothing on Any:
        |x, a, _| a * x, "a * v";
        |_, a, _| a, "vec4(a)";
    /// `y = x + a`
    Offset(a = 0.1) as offset saves Nothing on Any:
        |x, a, _| x + a, "v + a";
        |_, _, _| 1.0, "vec4(1.0)";
    /// `y = eˣ`
    Exp as exp saves Output, exact on Bounded:
        |x, _, _| x.exp(), "exp4(v)";
        |s, _, _| s, "s";
    /// `y = ln x`
    Log as log saves Input, exact on Positive:
        |x, _, _| x.ln(), "log4(v)";
        |s, _, _| 1.0 / s, "1.0 / s";
    /// `y = √x`
    Sqrt as sqrt saves Output, exact on Positive:
        |x, _, _| x.sqrt(), "sqrt(v)";
        |s, _, _| 0.5 / s, "0.5 / s";
    /// `y = |x|`; the derivative at 0 is 0
    Abs as abs saves Input on Any:
        |x, _, _| x.abs(), "abs(v)";
        |s, _, _| if s == 0.0 { 0.0 } else { s.signum() }, "or_nan4(s, sign(s))";
    /// `y = x²`
    Square as square saves Input on Any:
        |x, _, _| x * x, "v * v";
        |s, _, _| 2.0 * s, "2.0 * s";
    /// `y = 1/x`
    Recip as recip saves Output, exact on Positive:
        |x, _, _| 1.0 / x, "1.0 / v";
        |s, _, _| -s * s, "-s * s";
    /// `y = min(max(x, lo), hi)`; the gradient passes where `lo ≤ x ≤ hi`
    Clamp(lo = -0.5, hi = 0.8) as clamp saves Input on Any:
        // `f64::clamp` propagates NaN, `f64::max` does not.
        |x, lo, hi| x.clamp(lo, hi), "or_nan4(v, min(max(v, vec4(a)), vec4(b)))";
        |s, lo, hi| f64::from(u8::from(s >= lo && s <= hi)), "select(vec4(0.0), vec4(1.0), (s >= vec4(a)) & (s <= vec4(b)))";
    /// `y = max(x, 0)`; the derivative at 0 is 0
    Relu as relu saves Output on Any:
        |x, _, _| if x < 0.0 { 0.0 } else { x }, "or_nan4(v, max(v, vec4(0.0)))";
        |s, _, _| f64::from(u8::from(s > 0.0 || s.is_nan())), "select(vec4(0.0), vec4(1.0), (s > vec4(0.0)) | nan4(s))";
    /// `y = x` where `x > 0`, else `slope x`
    LeakyRelu(slope = 0.1) as leaky_relu saves Output on Any:
        |x, a, _| if x > 0.0 { x } else { a * x }, "select(a * v, v, v > vec4(0.0))";
        |s, a, _| if s > 0.0 { 1.0 } else { a }, "select(vec4(a), vec4(1.0), s > vec4(0.0))";
    /// `y = 1 / (1 + e⁻ˣ)`
    Sigmoid as sigmoid saves Output on Any:
        |x, _, _| sigmoid(x), "sigmoid(v)";
        |s, _, _| s * (1.0 - s), "s * (1.0 - s)";
    /// `y = tanh x`
    Tanh as tanh saves Output on Any:
        |x, _, _| x.tanh(), "tanh_safe(v)";
        |s, _, _| 1.0 - s * s, "1.0 - s * s";
    /// `y = x Φ(x)`, where Φ is the normal distribution function (Hendrycks & Gimpel 2016)
    Gelu as gelu saves Input on Any:
        |x, _, _| x * normal_cdf(x), "v * normal_cdf(v)";
        |s, _, _| normal_cdf(s) + s * (-0.5 * s * s).exp() / (2.0 * PI).sqrt(), "normal_cdf(s) + s * 0.39894228040 * exp(-0.5 * s * s)";
    /// `y = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`, the approximation of GELU that GPT-2 uses
    GeluTanh as gelu_tanh saves Input on Any:
        |x, _, _| 0.5 * x * (1.0 + gelu_tanh_inner(x).tanh()), "0.5 * v * (1.0 + tanh_safe(GELU_A * (v + GELU_B * v * v * v)))";
        |s, _, _| gelu_tanh_slope(s), "gelu_tanh_slope(s)";
    /// `y = x / (1 + e⁻ˣ)` (Elfwing et al. 2018)
    Silu as silu saves Input on Any:
        |x, _, _| x * sigmoid(x), "v * sigmoid(v)";
        |s, _, _| sigmoid(s) * (1.0 + s * (1.0 - sigmoid(s))), "silu_slope(s)";
    /// `y = -x`
    Neg as neg saves Nothing on Any:
        |x, _, _| -x, "-v";
        |_, _, _| -1.0, "vec4(-1.0)";
    /// `y = 1/√x`
    Rsqrt as rsqrt saves Output, exact on Positive:
        |x, _, _| 1.0 / x.sqrt(), "1.0 / sqrt(v)";
        |s, _, _| -0.5 * s * s * s, "-0.5 * s * s * s";
    /// `y = ln(1 + eˣ)`
    Softplus as softplus saves Input on Any:
        |x, _, _| softplus(x), "softplus(v)";
        |s, _, _| sigmoid(s), "sigmoid(s)";
    /// `y = x` where `x > 0`, else `a (eˣ - 1)` (Clevert et al. 2016)
    Elu(a = 0.8) as elu saves Input on Any:
        |x, a, _| if x > 0.0 { x } else { a * x.exp_m1() }, "or_nan4(v, select(a * expm1(min(v, vec4(0.0))), v, v > vec4(0.0)))";
        |s, a, _| if s > 0.0 { 1.0 } else { a * s.exp() }, "or_nan4(s, select(a * exp(min(s, vec4(0.0))), vec4(1.0), s > vec4(0.0)))";
    /// `y = min(max(x/6 + 1/2, 0), 1)`; the derivative where it bends is 0
    Hardsigmoid as hardsigmoid saves Input on Any:
        |x, _, _| (x / 6.0 + 0.5).clamp(0.0, 1.0), "or_nan4(v, clamp(v / 6.0 + 0.5, vec4(0.0), vec4(1.0)))";
        |s, _, _| if s.abs() < 3.0 { 1.0 / 6.0 } else { 0.0 }, "select(vec4(0.0), vec4(1.0 / 6.0), abs(s) < vec4(3.0))";
    /// `y = x min(max(x/6 + 1/2, 0), 1)` (Howard et al. 2019)
    Hardswish as hardswish saves Input on Any:
        |x, _, _| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), "v * clamp(v / 6.0 + 0.5, vec4(0.0), vec4(1.0))";
        |s, _, _| if s >= 3.0 { 1.0 } else if s <= -3.0 { 0.0 } else { s / 3.0 + 0.5 }, "select(select(s / 3.0 + 0.5, vec4(0.0), s <= vec4(-3.0)), vec4(1.0), s >= vec4(3.0))";
    /// `y = sin x`, within 2e-6 for `|x| ≤ 50,000`
    Sin as sin saves Input, exact on Any:
        |x, _, _| x.sin(), "wave(v, 0)";
        |s, _, _| s.cos(), "wave(s, 1)";
    /// `y = cos x`, within 2e-6 for `|x| ≤ 50,000`
    Cos as cos saves Input, exact on Any:
        |x, _, _| x.cos(), "wave(v, 1)";
        |s, _, _| -s.sin(), "-wave(s, 0)";
    /// The largest integer that is at most `x`; the derivative is 0
    Floor as floor saves Nothing on Any:
        |x, _, _| x.floor(), "or_nan4(v, floor(v))";
        |_, _, _| 0.0, "vec4(0.0)";
    /// The smallest integer that is at least `x`; the derivative is 0
    Ceil as ceil saves Nothing on Any:
        |x, _, _| x.ceil(), "or_nan4(v, ceil(v))";
        |_, _, _| 0.0, "vec4(0.0)";
    /// The nearest integer, ties to even; the derivative is 0
    Round as round saves Nothing on Any:
        |x, _, _| x.round_ties_even(), "or_nan4(v, round(v))";
        |_, _, _| 0.0, "vec4(0.0)";
    /// -1, 0 or 1, NaN for NaN; the derivative is 0
    Sign as sign saves Nothing on Any:
        |x, _, _| if x == 0.0 || x.is_nan() { x } else { x.signum() }, "or_nan4(v, sign(v))";
        |_, _, _| 0.0, "vec4(0.0)";
    /// `y = x tanh(ln(1 + eˣ))` (Misra 2019)
    Mish as mish saves Input on Any:
        |x, _, _| x * softplus(x).tanh(), "v * tanh_safe(softplus(v))";
        |s, _, _| { let t = softplus(s).tanh(); t + s * (1.0 - t * t) * sigmoid(s) }, "mish_slope(s)";
    /// The error function
    Erf as erf saves Input on Any:
        |x, _, _| erf_f64(x), "erf(v)";
        |s, _, _| 2.0 / PI.sqrt() * (-s * s).exp(), "1.12837916710 * exp4(-s * s)";
}

impl Unary {
    pub(crate) fn function(self) -> &'static Function {
        &Self::TABLE[self.code().0 as usize]
    }

    /// Returns the function's name in reports.
    pub fn name(self) -> &'static str {
        self.function().name
    }

    /// Whether the derivative is 1 or one other number, so that one bit selects it.
    pub(crate) fn has_two_slopes(self) -> bool {
        matches!(self, Self::Relu | Self::Clamp(..)) || matches!(self, Self::LeakyRelu(slope) if slope >= 0.0)
    }

    /// Returns what the backward pass needs.
    pub fn saves(self) -> Saves {
        match self {
            // With a negative slope the sign of the output does not determine the sign of the input.
            Self::LeakyRelu(slope) if slope < 0.0 => Saves::Input,
            _ => self.function().saves,
        }
    }

    /// `f(x)`.
    pub fn value(self, x: f64) -> f64 {
        let [a, b] = self.code().1.map(f64::from);
        (self.function().value)(x, a, b)
    }

    /// `f'`, given what [`Unary::saves`] selects: the input or the output of `f`.
    pub fn slope(self, s: f64) -> f64 {
        let [a, b] = self.code().1.map(f64::from);
        (self.function().slope)(s, a, b)
    }
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Φ, by `erfc` so that its left tail keeps its precision.
fn normal_cdf(x: f64) -> f64 {
    0.5 * erfc(-x * FRAC_1_SQRT_2)
}

fn gelu_tanh_inner(x: f64) -> f64 {
    (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)
}

fn gelu_tanh_slope(s: f64) -> f64 {
    let t = gelu_tanh_inner(s).tanh();
    let inner = (2.0 / PI).sqrt() * (1.0 + 3.0 * 0.044715 * s * s);
    // 1 - t² is 0 long before the rest overflows.
    let bend = if t.abs() == 1.0 { 0.0 } else { 0.5 * s * (1.0 - t * t) * inner };
    0.5 * (1.0 + t) + bend
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_the_derivatives_of_the_functions() {
        for &f in Unary::EXAMPLES {
            let points: &[f64] = match f.function().domain {
                Domain::Any => &[-3.7, -1.1, -0.3, 0.2, 0.9, 2.3, 7.1],
                Domain::Bounded => &[-0.9, -0.2, 0.3, 0.8],
                Domain::Positive => &[0.2, 0.7, 1.3, 4.0],
            };
            for &x in points {
                let saved = if f.saves() == Saves::Output { f.value(x) } else { x };
                let h = 1e-6;
                let found = (f.value(x + h) - f.value(x - h)) / (2.0 * h);
                let slope = f.slope(saved);
                assert!((slope - found).abs() < 1e-7 * (1.0 + slope.abs()), "{f:?} at {x}: {slope}, {found}");
            }
        }
    }

    #[test]
    fn codes_are_places_in_the_table() {
        for (i, &f) in Unary::EXAMPLES.iter().enumerate() {
            assert_eq!((f.code().0 as usize, f.name()), (i, Unary::NAMES[i]));
        }
    }
}
