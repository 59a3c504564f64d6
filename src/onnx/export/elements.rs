//! Functions of elements, reductions and products.

use std::f32::consts::{FRAC_1_SQRT_2, PI};

use super::{Export, FLOAT, float, int};
use crate::graph::{Binary, Node, Reduction, Unary};

impl Export<'_> {
    pub(super) fn unary(&mut self, f: Unary, node: &Node) -> String {
        let x = &self.float(node, 0)[..];
        let simple = |export: &mut Self, op: &str| export.node(op, &[x], Vec::new());
        match f {
            Unary::Scale(a) => self.by_number("Mul", x, a),
            Unary::Offset(a) => self.by_number("Add", x, a),
            Unary::Exp => simple(self, "Exp"),
            Unary::Log => simple(self, "Log"),
            Unary::Sqrt => simple(self, "Sqrt"),
            Unary::Abs => simple(self, "Abs"),
            Unary::Square => self.node("Mul", &[x, x], Vec::new()),
            Unary::Recip => simple(self, "Reciprocal"),
            Unary::Clamp(low, high) => self.clip(x, low, high),
            Unary::Relu => simple(self, "Relu"),
            Unary::LeakyRelu(slope) => self.node("LeakyRelu", &[x], vec![float("alpha", slope)]),
            Unary::Sigmoid => simple(self, "Sigmoid"),
            Unary::Tanh => simple(self, "Tanh"),
            // x (1 + erf(x / √2)) / 2, and its approximation: opset 18 has no GELU.
            Unary::Gelu => {
                let inner = self.by_number("Mul", x, FRAC_1_SQRT_2);
                let erf = self.node("Erf", &[&inner], Vec::new());
                self.gelu(x, &erf)
            }
            Unary::GeluTanh => {
                let square = self.node("Mul", &[x, x], Vec::new());
                let cube = self.node("Mul", &[&square, x], Vec::new());
                let cube = self.by_number("Mul", &cube, 0.044_715);
                let sum = self.node("Add", &[x, &cube], Vec::new());
                let inner = self.by_number("Mul", &sum, (2.0 / PI).sqrt());
                let tanh = self.node("Tanh", &[&inner], Vec::new());
                self.gelu(x, &tanh)
            }
            Unary::Silu => {
                let gate = simple(self, "Sigmoid");
                self.node("Mul", &[x, &gate], Vec::new())
            }
            Unary::Neg => simple(self, "Neg"),
            Unary::Rsqrt => {
                let root = simple(self, "Sqrt");
                self.node("Reciprocal", &[&root], Vec::new())
            }
            Unary::Softplus => simple(self, "Softplus"),
            Unary::Elu(a) => self.node("Elu", &[x], vec![float("alpha", a)]),
            Unary::Hardsigmoid => {
                self.node("HardSigmoid", &[x], vec![float("alpha", 1.0 / 6.0), float("beta", 0.5)])
            }
            Unary::Hardswish => simple(self, "HardSwish"),
            Unary::Sin => simple(self, "Sin"),
            Unary::Cos => simple(self, "Cos"),
            Unary::Floor => simple(self, "Floor"),
            Unary::Ceil => simple(self, "Ceil"),
            Unary::Round => simple(self, "Round"),
            Unary::Sign => simple(self, "Sign"),
            Unary::Mish => simple(self, "Mish"),
            Unary::Erf => simple(self, "Erf"),
        }
    }

    /// `x (1 + y) / 2`
    fn gelu(&mut self, x: &str, y: &str) -> String {
        let sum = self.by_number("Add", y, 1.0);
        let product = self.node("Mul", &[x, &sum], Vec::new());
        self.by_number("Mul", &product, 0.5)
    }

    pub(super) fn by_number(&mut self, op: &str, x: &str, number: f32) -> String {
        let number = self.number(number);
        self.node(op, &[x, &number], Vec::new())
    }

    pub(super) fn clip(&mut self, x: &str, low: f32, high: f32) -> String {
        let (low, high) = (self.number(low), self.number(high));
        self.node("Clip", &[x, &low, &high], Vec::new())
    }

    /// Returns `None` for functions that only backward passes have.
    pub(super) fn binary(&mut self, f: Binary, node: &Node) -> Option<String> {
        let (a, b) = (&self.float(node, 0)[..], &self.float(node, 1)[..]);
        let flags = |export: &mut Self, op: &str| {
            let flags = export.node(op, &[a, b], Vec::new());
            export.cast(&flags, FLOAT)
        };
        let op = match f {
            Binary::Add => "Add",
            Binary::Sub => "Sub",
            Binary::Mul => "Mul",
            Binary::Div => "Div",
            Binary::Max => "Max",
            Binary::Min => "Min",
            Binary::Pow => "Pow",
            Binary::Equal => return Some(flags(self, "Equal")),
            Binary::Greater => return Some(flags(self, "Greater")),
            Binary::GreaterEqual => return Some(flags(self, "GreaterOrEqual")),
            Binary::Less => return Some(flags(self, "Less")),
            Binary::LessEqual => return Some(flags(self, "LessOrEqual")),
            Binary::NotEqual => {
                let equal = self.node("Equal", &[a, b], Vec::new());
                let not = self.node("Not", &[&equal], Vec::new());
                return Some(self.cast(&not, FLOAT));
            }
            Binary::Masked | Binary::Unmasked => {
                let zero = self.number(0.0);
                let none = self.node("Equal", &[b, &zero], Vec::new());
                let (there, gone) = if f == Binary::Masked { (&zero[..], a) } else { (a, &zero[..]) };
                return Some(self.node("Where", &[&none, there, gone], Vec::new()));
            }
            // max(a, 0) - a b + ln(1 + e^-|a|)
            Binary::BceLogits => {
                let positive = self.node("Relu", &[a], Vec::new());
                let product = self.node("Mul", &[a, b], Vec::new());
                let size = self.node("Abs", &[a], Vec::new());
                let less = self.node("Neg", &[&size], Vec::new());
                let tail = self.node("Softplus", &[&less], Vec::new());
                let rest = self.node("Sub", &[&positive, &product], Vec::new());
                return Some(self.node("Add", &[&rest, &tail], Vec::new()));
            }
            Binary::BceLogitsGrad | Binary::PowSlope | Binary::PowLog => return None,
        };
        Some(self.node(op, &[a, b], Vec::new()))
    }

    /// The axes remain, with length 1.
    pub(super) fn reduce(&mut self, kind: Reduction, axes: u8, node: &Node) -> String {
        let x = self.float(node, 0);
        let list: Vec<usize> = (0..8).filter(|axis| axes >> axis & 1 == 1).collect();
        // Without axes ONNX would reduce all of them.
        match (kind, &list[..]) {
            (Reduction::SumSquares, []) => self.node("Mul", &[&x, &x], Vec::new()),
            (_, []) => self.node("Identity", &[&x], Vec::new()),
            (Reduction::Sum, _) => self.reduced("ReduceSum", &x, &list),
            (Reduction::Mean, _) => self.reduced("ReduceMean", &x, &list),
            (Reduction::Max, _) => self.reduced("ReduceMax", &x, &list),
            (Reduction::SumSquares, _) => self.reduced("ReduceSumSquare", &x, &list),
        }
    }

    pub(super) fn reduced(&mut self, op: &str, x: &str, axes: &[usize]) -> String {
        let axes = self.lengths(axes);
        self.node(op, &[x, &axes], vec![int("keepdims", 1)])
    }

    pub(super) fn matmul(&mut self, ta: bool, tb: bool, node: &Node) -> String {
        let operands = [(0, ta), (1, tb)]
            .map(|(i, transposed)| (self.float(node, i), self.value(node, i).shape.rank(), transposed));
        if operands.iter().all(|(_, rank, _)| *rank == 2) && (ta || tb) {
            let flags = vec![int("transA", ta.into()), int("transB", tb.into())];
            return self.node("Gemm", &[&operands[0].0, &operands[1].0], flags);
        }
        let [a, b] = operands.map(|(name, rank, transposed)| {
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(rank - 2, rank - 1);
            if transposed { self.permute(&name, &perm) } else { name }
        });
        self.node("MatMul", &[&a, &b], Vec::new())
    }
}
