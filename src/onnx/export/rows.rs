//! Norms of rows, attention and rotary positions, from simpler operations where opset 18 has none.

use super::{Export, float, int};
use crate::graph::{Attend, AttendSizes, Band, Gates, Node, Rope, RowNorm};
use crate::shape::Shape;

impl Export<'_> {
    pub(super) fn row_norm(&mut self, kind: RowNorm, eps: f32, node: &Node) -> String {
        let operands: Vec<String> = (0..node.inputs.len()).map(|i| self.float(node, i)).collect();
        let last = self.value(node, 0).shape.rank() - 1;
        match kind {
            RowNorm::Layer => {
                let operands: Vec<&str> = operands.iter().map(|name| &name[..]).collect();
                let attributes = vec![int("axis", last), float("epsilon", eps)];
                self.node("LayerNormalization", &operands, attributes)
            }
            RowNorm::Rms => {
                let (x, gamma) = (&operands[0], &operands[1]);
                let squares = self.node("Mul", &[x, x], Vec::new());
                let mean = self.reduced("ReduceMean", &squares, &[last]);
                let sum = self.by_number("Add", &mean, eps);
                let root = self.node("Sqrt", &[&sum], Vec::new());
                let normal = self.node("Div", &[x, &root], Vec::new());
                self.node("Mul", &[&normal, gamma], Vec::new())
            }
        }
    }

    /// The gates of a recurrent layer, one by one.
    pub(super) fn gates(&mut self, gates: Gates, node: &Node) -> Vec<String> {
        let size = self.value(node, 0).shape.last() / gates.count();
        let operands: Vec<String> = (0..node.inputs.len()).map(|i| self.float(node, i)).collect();
        let gate = |export: &mut Self, i: usize, k: usize| export.slice(&operands[i], 1, k * size, size, 1);
        match gates {
            Gates::Lstm => {
                let [input, forget, new, output] = [0, 1, 2, 3].map(|k| {
                    let part = gate(self, 0, k);
                    self.node(if k == 2 { "Tanh" } else { "Sigmoid" }, &[&part], Vec::new())
                });
                let kept = self.node("Mul", &[&forget, &operands[1]], Vec::new());
                let added = self.node("Mul", &[&input, &new], Vec::new());
                let memory = self.node("Add", &[&kept, &added], Vec::new());
                let shown = self.node("Tanh", &[&memory], Vec::new());
                vec![self.node("Mul", &[&output, &shown], Vec::new()), memory]
            }
            Gates::Gru => {
                let [reset, update] = [0, 1].map(|k| {
                    let parts = [0, 1].map(|i| gate(self, i, k));
                    let sum = self.node("Add", &[&parts[0], &parts[1]], Vec::new());
                    self.node("Sigmoid", &[&sum], Vec::new())
                });
                let (own, back) = (gate(self, 0, 2), gate(self, 1, 2));
                let back = self.node("Mul", &[&reset, &back], Vec::new());
                let sum = self.node("Add", &[&own, &back], Vec::new());
                let new = self.node("Tanh", &[&sum], Vec::new());
                let change = self.node("Sub", &[&operands[2], &new], Vec::new());
                let kept = self.node("Mul", &[&update, &change], Vec::new());
                vec![self.node("Add", &[&new, &kept], Vec::new())]
            }
        }
    }

    /// `softmax(scale q kᵀ) v` for each head.
    pub(super) fn attention(&mut self, attend: &Attend, node: &Node) -> String {
        let shapes: Vec<Shape> = (0..attend.operands()).map(|i| self.value(node, i).shape).collect();
        let sizes = attend.sizes(&shapes).expect("checked when traced");
        let AttendSizes { heads, kv_heads, rows, cols, .. } = sizes;
        let [q, k, v] = match attend.packed {
            None => [0, 1, 2].map(|i| self.float(node, i)),
            Some(_) => {
                let all = self.float(node, 0);
                let parts = [(0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads)];
                parts.map(|(start, count)| self.slice(&all, 2, start, count, 1))
            }
        };
        let q = self.permute(&q, &[0, 2, 1, 3]);
        let k = self.for_each_query(&k, sizes, &[0, 2, 3, 1]);
        let v = self.for_each_query(&v, sizes, &[0, 2, 1, 3]);
        let scores = self.node("MatMul", &[&q, &k], Vec::new());
        let mut scores = self.by_number("Mul", &scores, attend.scale);
        if attend.cap > 0.0 {
            let part = self.by_number("Mul", &scores, 1.0 / attend.cap);
            let part = self.node("Tanh", &[&part], Vec::new());
            scores = self.by_number("Mul", &part, attend.cap);
        }
        if attend.band != Band::ALL {
            let unseen = |i: usize| {
                if attend.band.seen(i / cols, cols).contains(&(i % cols)) { 0.0 } else { f32::MIN }
            };
            let mask: Vec<f32> = (0..rows * cols).map(unseen).collect();
            let mask = self.array(&[rows, cols], &mask);
            scores = self.node("Add", &[&scores, &mask], Vec::new());
        }
        if attend.alibi {
            let distances: Vec<f32> =
                (0..rows * cols).map(|i| (i / cols).abs_diff(i % cols) as f32).collect();
            let slopes: Vec<f32> = (0..heads).map(|head| attend.slope(head, heads) as f32).collect();
            let distances = self.array(&[rows, cols], &distances);
            let slopes = self.array(&[heads, 1, 1], &slopes);
            let bias = self.node("Mul", &[&distances, &slopes], Vec::new());
            scores = self.node("Sub", &[&scores, &bias], Vec::new());
        }
        let weights = self.node("Softmax", &[&scores], vec![int("axis", 3)]);
        let y = self.node("MatMul", &[&weights, &v], Vec::new());
        self.permute(&y, &[0, 2, 1, 3])
    }

    /// Permutes keys or values, and repeats their heads for the query heads that share them.
    fn for_each_query(&mut self, x: &str, sizes: AttendSizes, perm: &[usize; 4]) -> String {
        let AttendSizes { batch, heads, kv_heads, cols, size, .. } = sizes;
        let x = self.permute(x, perm);
        if heads == kv_heads {
            return x;
        }
        let [rows, columns] = [perm[2], perm[3]].map(|axis| if axis == 1 { cols } else { size });
        let x = self.reshape(&x, &[batch, kv_heads, 1, rows, columns]);
        let x = self.expand(&x, &[batch, kv_heads, heads / kv_heads, rows, columns]);
        self.reshape(&x, &[batch, heads, rows, columns])
    }

    /// `x cos + rotate_half(x) sin`, where `rotate_half` of `a, b` is `-b, a`.
    pub(super) fn rotary(&mut self, heads: usize, rope: &Rope, back: bool, node: &Node) -> String {
        let whole = self.float(node, 0);
        let shape = self.value(node, 0).shape;
        let (positions, all_heads, size) = (shape.dims()[1], shape.dims()[2], shape.dims()[3]);
        let half = size / 2;
        let angle = |i: usize| {
            let (position, column) = (i / size, i % size % half.max(1));
            position as f64 * rope.frequency(column, size)
        };
        let sign = if back { -1.0 } else { 1.0 };
        let cos: Vec<f32> = (0..positions * size).map(|i| angle(i).cos() as f32).collect();
        let sin: Vec<f32> = (0..positions * size).map(|i| (sign * angle(i).sin()) as f32).collect();
        let [cos, sin] = [cos, sin].map(|table| self.array(&[positions, 1, size], &table));
        let x = if heads < all_heads { self.slice(&whole, 2, 0, heads, 1) } else { whole.clone() };
        let (first, second) = (self.slice(&x, 3, 0, half, 1), self.slice(&x, 3, half, half, 1));
        let minus = self.node("Neg", &[&second], Vec::new());
        let turned = self.node("Concat", &[&minus, &first], vec![int("axis", 3)]);
        let one = self.node("Mul", &[&x, &cos], Vec::new());
        let other = self.node("Mul", &[&turned, &sin], Vec::new());
        let y = self.node("Add", &[&one, &other], Vec::new());
        if heads == all_heads {
            return y;
        }
        let rest = self.slice(&whole, 2, heads, all_heads - heads, 1);
        self.node("Concat", &[&y, &rest], vec![int("axis", 2)])
    }
}
