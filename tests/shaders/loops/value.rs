//! Values that decide about loops: integers and conditions. All other values, and all values from memory, are
//! unknown.

use naga::{BinaryOperator as B, Handle, MathFunction, Module, ScalarKind, Type, TypeInner, UnaryOperator};

/// A value of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U32(u32),
    I32(i32),
    Bool(bool),
    /// A vector, an array or a struct.
    Many(Vec<Value>),
    Unknown,
}

use Value::{Bool, I32, Many, U32, Unknown};

/// Longer arrays do not decide about loops.
const LONGEST_ARRAY: u32 = 64;

impl Value {
    /// Returns zero, or the value of the words of memory at byte `offset`.
    pub fn of_type(module: &Module, ty: Handle<Type>, words: &[u32], offset: u32) -> Self {
        let scalar = |kind, at: u32| {
            let word = words.get(at as usize / 4).copied().unwrap_or(0);
            match kind {
                ScalarKind::Uint => U32(word),
                ScalarKind::Sint => I32(word as i32),
                ScalarKind::Bool => Bool(word != 0),
                _ => Unknown,
            }
        };
        match module.types[ty].inner {
            TypeInner::Scalar(of) if of.width <= 4 => scalar(of.kind, offset),
            TypeInner::Vector { size, scalar: of } if of.width <= 4 => {
                Many((0..size as u32).map(|i| scalar(of.kind, offset + 4 * i)).collect())
            }
            TypeInner::Array { base, size: naga::ArraySize::Constant(n), stride }
                if n.get() <= LONGEST_ARRAY =>
            {
                Many((0..n.get()).map(|i| Self::of_type(module, base, words, offset + i * stride)).collect())
            }
            TypeInner::Struct { ref members, .. } => {
                let one = |member: &naga::StructMember| {
                    Self::of_type(module, member.ty, words, offset + member.offset)
                };
                Many(members.iter().map(one).collect())
            }
            _ => Unknown,
        }
    }

    pub fn literal(literal: naga::Literal) -> Self {
        match literal {
            naga::Literal::U32(n) => U32(n),
            naga::Literal::I32(n) => I32(n),
            naga::Literal::Bool(on) => Bool(on),
            _ => Unknown,
        }
    }

    pub fn at(&self, index: usize) -> Self {
        match self {
            Many(list) => list.get(index).cloned().unwrap_or(Unknown),
            _ => Unknown,
        }
    }

    /// Returns the value as an index.
    pub fn index(&self) -> Option<usize> {
        match self {
            U32(n) => Some(*n as usize),
            I32(n) => usize::try_from(*n).ok(),
            _ => None,
        }
    }

    /// Merges the value with that of the other branch; they must agree, or the value is unknown.
    pub fn merge(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Many(a), Many(b)) if a.len() == b.len() => a.iter_mut().zip(b).for_each(|(a, b)| a.merge(b)),
            (a, b) if a == b => {}
            _ => *self = Unknown,
        }
    }

    fn each(&self, other: &Self, f: impl Fn(&Self, &Self) -> Self) -> Self {
        match (self, other) {
            (Many(a), Many(b)) => Many(a.iter().zip(b).map(|(a, b)| f(a, b)).collect()),
            (Many(a), b) => Many(a.iter().map(|a| f(a, b)).collect()),
            (a, Many(b)) => Many(b.iter().map(|b| f(a, b)).collect()),
            (a, b) => f(a, b),
        }
    }
}

pub fn unary(op: UnaryOperator, value: &Value) -> Value {
    match (op, value) {
        (_, Many(list)) => Many(list.iter().map(|value| unary(op, value)).collect()),
        (UnaryOperator::Negate, I32(n)) => I32(n.wrapping_neg()),
        (UnaryOperator::LogicalNot, Bool(on)) => Bool(!on),
        (UnaryOperator::BitwiseNot, U32(n)) => U32(!n),
        (UnaryOperator::BitwiseNot, I32(n)) => I32(!n),
        _ => Unknown,
    }
}

pub fn binary(op: B, a: &Value, b: &Value) -> Value {
    a.each(b, |a, b| match (op, a, b) {
        (B::LogicalAnd | B::And, Bool(false), _) | (B::LogicalAnd | B::And, _, Bool(false)) => Bool(false),
        (B::LogicalOr | B::InclusiveOr, Bool(true), _) | (B::LogicalOr | B::InclusiveOr, _, Bool(true)) => {
            Bool(true)
        }
        (B::Equal, a, b) if *a != Unknown && *b != Unknown => Bool(a == b),
        (B::NotEqual, a, b) if *a != Unknown && *b != Unknown => Bool(a != b),
        (_, Bool(a), Bool(b)) => match op {
            B::LogicalAnd | B::And => Bool(*a && *b),
            B::LogicalOr | B::InclusiveOr => Bool(*a || *b),
            _ => Unknown,
        },
        (_, U32(a), U32(b)) => unsigned(op, *a, *b),
        (_, I32(a), I32(b)) => signed(op, *a, *b),
        (B::ShiftLeft, I32(a), U32(b)) => I32(a.wrapping_shl(*b)),
        (B::ShiftRight, I32(a), U32(b)) => I32(a.wrapping_shr(*b)),
        _ => Unknown,
    })
}

fn unsigned(op: B, a: u32, b: u32) -> Value {
    match op {
        B::Add => U32(a.wrapping_add(b)),
        B::Subtract => U32(a.wrapping_sub(b)),
        B::Multiply => U32(a.wrapping_mul(b)),
        // WGSL defines division by zero.
        B::Divide => U32(a.checked_div(b).unwrap_or(a)),
        B::Modulo => U32(a.checked_rem(b).unwrap_or(0)),
        B::Less => Bool(a < b),
        B::LessEqual => Bool(a <= b),
        B::Greater => Bool(a > b),
        B::GreaterEqual => Bool(a >= b),
        B::And => U32(a & b),
        B::ExclusiveOr => U32(a ^ b),
        B::InclusiveOr => U32(a | b),
        B::ShiftLeft => U32(a.wrapping_shl(b)),
        B::ShiftRight => U32(a.wrapping_shr(b)),
        _ => Unknown,
    }
}

fn signed(op: B, a: i32, b: i32) -> Value {
    match op {
        B::Add => I32(a.wrapping_add(b)),
        B::Subtract => I32(a.wrapping_sub(b)),
        B::Multiply => I32(a.wrapping_mul(b)),
        B::Divide => I32(a.checked_div(b).unwrap_or(a)),
        B::Modulo => I32(a.checked_rem(b).unwrap_or(0)),
        B::Less => Bool(a < b),
        B::LessEqual => Bool(a <= b),
        B::Greater => Bool(a > b),
        B::GreaterEqual => Bool(a >= b),
        B::And => I32(a & b),
        B::ExclusiveOr => I32(a ^ b),
        B::InclusiveOr => I32(a | b),
        _ => Unknown,
    }
}

pub fn math(function: MathFunction, args: &[Value]) -> Value {
    let [first, rest @ ..] = args else { return Unknown };
    match (function, rest) {
        (MathFunction::Min, [other]) => first.each(other, |a, b| choose(a, b, true)),
        (MathFunction::Max, [other]) => first.each(other, |a, b| choose(a, b, false)),
        (MathFunction::Clamp, [low, high]) => {
            first.each(low, |a, b| choose(a, b, false)).each(high, |a, b| choose(a, b, true))
        }
        _ => Unknown,
    }
}

fn choose(a: &Value, b: &Value, smaller: bool) -> Value {
    match (a, b) {
        (U32(a), U32(b)) => U32(if smaller { *a.min(b) } else { *a.max(b) }),
        (I32(a), I32(b)) => I32(if smaller { *a.min(b) } else { *a.max(b) }),
        _ => Unknown,
    }
}

/// Converts a value, or with `converts` false reinterprets its bits.
pub fn cast(value: &Value, to: ScalarKind, converts: bool) -> Value {
    match (value, to) {
        (Many(list), _) => Many(list.iter().map(|value| cast(value, to, converts)).collect()),
        (U32(n), ScalarKind::Uint) => U32(*n),
        (I32(n), ScalarKind::Uint) => U32(*n as u32),
        (U32(n), ScalarKind::Sint) => I32(*n as i32),
        (I32(n), ScalarKind::Sint) => I32(*n),
        (Bool(on), ScalarKind::Uint) if converts => U32(u32::from(*on)),
        (Bool(on), ScalarKind::Sint) if converts => I32(i32::from(*on)),
        (U32(n), ScalarKind::Bool) if converts => Bool(*n != 0),
        (I32(n), ScalarKind::Bool) if converts => Bool(*n != 0),
        (Bool(on), ScalarKind::Bool) => Bool(*on),
        _ => Unknown,
    }
}

pub fn select(condition: &Value, accept: &Value, reject: &Value) -> Value {
    match (condition, accept, reject) {
        (Bool(true), accept, _) => accept.clone(),
        (Bool(false), _, reject) => reject.clone(),
        (Many(conditions), accept, reject) => {
            let one = |(i, condition): (usize, &Value)| select(condition, &accept.at(i), &reject.at(i));
            Many(conditions.iter().enumerate().map(one).collect())
        }
        (_, accept, reject) if accept == reject => accept.clone(),
        _ => Unknown,
    }
}
