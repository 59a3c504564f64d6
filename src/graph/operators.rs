//! Operators on tensors: `a + b`, `-a`, `2.0 * a`, with shapes broadcast as by [`Tensor::add`] and its kind.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::Tensor;

/// An operator between tensors, owned or borrowed.
macro_rules! between_tensors {
    ($trait:ident, $method:ident) => {
        between_tensors!($trait, $method, Tensor, Tensor);
        between_tensors!($trait, $method, Tensor, &Tensor);
        between_tensors!($trait, $method, &Tensor, Tensor);
        between_tensors!($trait, $method, &Tensor, &Tensor);
    };
    ($trait:ident, $method:ident, $a:ty, $b:ty) => {
        impl $trait<$b> for $a {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: $b) -> Tensor {
                Tensor::$method(&self, &other)
            }
        }
    };
}

/// An operator between a tensor, owned or borrowed, and a number on either side.
macro_rules! with_number {
    ($trait:ident, $method:ident, |$x:ident, $n:ident| $right:expr, $left:expr) => {
        with_number!($trait, $method, Tensor, |$x, $n| $right, $left);
        with_number!($trait, $method, &Tensor, |$x, $n| $right, $left);
    };
    ($trait:ident, $method:ident, $tensor:ty, |$x:ident, $n:ident| $right:expr, $left:expr) => {
        impl $trait<f32> for $tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, $n: f32) -> Tensor {
                let $x = &self;
                $right
            }
        }
        impl $trait<$tensor> for f32 {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, tensor: $tensor) -> Tensor {
                let ($x, $n) = (&tensor, self);
                $left
            }
        }
    };
}

between_tensors!(Add, add);
between_tensors!(Sub, sub);
between_tensors!(Mul, mul);
between_tensors!(Div, div);
with_number!(Add, add, |x, n| x.offset(n), x.offset(n));
with_number!(Sub, sub, |x, n| x.offset(-n), x.neg().offset(n));
with_number!(Mul, mul, |x, n| x.scale(n), x.scale(n));
with_number!(Div, div, |x, n| x.scale(1.0 / n), x.recip().scale(n));

impl Neg for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(&self)
    }
}

impl Neg for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::{Mode, Params, Trace};

    #[test]
    fn operators_record_the_operations_of_the_methods() {
        let names = |build: &dyn Fn(&Trace) -> crate::graph::Tensor| -> Vec<String> {
            let graph = Trace::record(&Params::new(0), Mode::Eval, "y", build).expect("valid");
            graph.nodes.iter().map(|node| format!("{:?}", node.op)).collect()
        };
        let of = |trace: &Trace| (trace.input("x", [2, 3]), trace.input("y", [3]));
        let by_operator = names(&|trace| {
            let (x, y) = of(trace);
            let sum = 2.0 * (&x + &y) - 1.0;
            -(sum / &y) * x.exp() + 3.0 / (1.0 - y)
        });
        let by_method = names(&|trace| {
            let (x, y) = of(trace);
            let sum = x.add(&y).scale(2.0).offset(-1.0);
            let product = sum.div(&y).neg().mul(&x.exp());
            product.add(&y.neg().offset(1.0).recip().scale(3.0))
        });
        assert_eq!(by_operator.len(), by_method.len());
        for op in &by_method {
            let count = |list: &[String]| list.iter().filter(|name| *name == op).count();
            assert_eq!(count(&by_operator), count(&by_method), "{op}");
        }
    }

    #[test]
    fn mistakes_name_the_line_of_the_operator() {
        let error = Trace::record(&Params::new(0), Mode::Eval, "y", |trace| {
            trace.input("x", [2, 3]) + trace.input("y", [2])
        });
        let message = error.expect_err("shapes that do not broadcast").to_string();
        assert!(message.contains("operators.rs"), "{message}");
    }
}
