//! Operations that move elements, and constants.

use super::{AttributeProto, Export, KIND_INTS, KIND_TENSOR, attribute, element_type, floats, int, text};
use crate::dtype::DType;
use crate::graph::{Node, Op};
use crate::shape::Shape;

impl Export<'_> {
    /// Returns `None` for operations without a counterpart.
    pub(super) fn movement(&mut self, node: &Node) -> Option<String> {
        let shape = |export: &Self, i: usize| export.value(node, i).shape;
        Some(match &node.op {
            Op::Reshape(to) => {
                let x = self.operand(node, 0);
                self.reshape(&x, to.dims())
            }
            Op::Permute(perm) => {
                let x = self.operand(node, 0);
                self.permute(&x, perm)
            }
            Op::Expand(to) => {
                let x = self.operand(node, 0);
                self.expand(&x, to.dims())
            }
            Op::Slice { axis, start, len } => {
                let x = self.operand(node, 0);
                self.slice(&x, *axis, *start, *len, 1)
            }
            Op::Stride { axis, start, step, len } => {
                let x = self.operand(node, 0);
                self.slice(&x, *axis, *start, *len, *step as i64)
            }
            Op::Place { axis, start, step, len } => {
                self.place(node, *axis, (*start, *step, *len), shape(self, 0))
            }
            Op::Concat { axis } => {
                let parts: Vec<String> = (0..node.inputs.len()).map(|i| self.operand(node, i)).collect();
                let parts: Vec<&str> = parts.iter().map(|part| &part[..]).collect();
                self.node("Concat", &parts, vec![int("axis", *axis)])
            }
            Op::Cast(to) => self.cast_to(*to, node),
            Op::Copy | Op::Detach => {
                let x = self.operand(node, 0);
                self.node("Identity", &[&x], Vec::new())
            }
            Op::Fill { shape, value } => self.filled(*shape, *value),
            Op::Iota { shape, axis } => {
                let len = shape.dims()[*axis];
                let numbers: Vec<f32> = (0..len).map(|i| i as f32).collect();
                let numbers = self.array(shape.ones().with(*axis, len).dims(), &numbers);
                self.expand(&numbers, shape.dims())
            }
            Op::Gather { axis } => {
                let (x, ids_shape, y) =
                    (self.float(node, 0), shape(self, 1), self.graph.value(node.outputs[0]).shape);
                let ids = self.ids(node, 1, shape(self, 0).dims()[*axis]);
                let along = ids_shape.dims()[*axis];
                if ids_shape.numel() == along as u64 {
                    let ids = self.reshape(&ids, &[along]);
                    self.node("Gather", &[&x, &ids], vec![int("axis", *axis)])
                } else {
                    let ids = self.expand(&ids, y.dims());
                    self.node("GatherElements", &[&x, &ids], vec![int("axis", *axis)])
                }
            }
            Op::ScatterAdd { axis, len } => {
                let (dy, from) = (self.float(node, 1), shape(self, 1));
                let ids = self.ids(node, 0, *len);
                let ids = self.expand(&ids, from.dims());
                let zeros = self.filled(from.with(*axis, *len), 0.0);
                let attributes = vec![int("axis", *axis), text("reduction", "add")];
                self.node("ScatterElements", &[&zeros, &ids, &dy], attributes)
            }
            Op::ArgSort { descending } => {
                let (x, row) = (self.float(node, 0), shape(self, 0));
                let count = self.lengths(&[row.last()]);
                let attributes = vec![int("axis", row.rank() - 1), int("largest", (*descending).into())];
                self.node_of("TopK", &[&x, &count], attributes, 2).swap_remove(1)
            }
            _ => return None,
        })
    }

    pub(super) fn expand(&mut self, x: &str, dims: &[usize]) -> String {
        let shape = self.lengths(dims);
        self.node("Expand", &[x, &shape], Vec::new())
    }

    pub(super) fn filled(&mut self, shape: Shape, value: f32) -> String {
        let dims = self.lengths(shape.dims());
        let value = AttributeProto { t: Some(floats("", &[1], &[value])), ..attribute("value", KIND_TENSOR) };
        self.node("ConstantOfShape", &[&dims], vec![value])
    }

    pub(super) fn slice(&mut self, x: &str, axis: usize, start: usize, len: usize, step: i64) -> String {
        let end = start as i64 + step * len as i64;
        // Backwards past the first element; -1 would be the last.
        let end = if end < 0 { i64::MIN } else { end };
        let list = [start as i64, end, axis as i64, step].map(|n| self.int_list(&[1], &[n]));
        self.node("Slice", &[x, &list[0], &list[1], &list[2], &list[3]], Vec::new())
    }

    /// Pads one axis with zeros.
    fn pad(&mut self, x: &str, axis: usize, before: usize, after: usize) -> String {
        let (pads, zero) = (self.lengths(&[before, after]), self.number(0.0));
        let axis = self.lengths(&[axis]);
        self.node("Pad", &[x, &pads, &zero, &axis], Vec::new())
    }

    fn place(&mut self, node: &Node, axis: usize, to: (usize, isize, usize), from: Shape) -> String {
        let (mut start, step, len) = to;
        let (mut x, count, apart) = (self.operand(node, 0), from.dims()[axis], step.unsigned_abs());
        if count == 0 {
            return self.filled(from.with(axis, len), 0.0);
        }
        if step < 0 {
            x = self.slice(&x, axis, count - 1, count, -1);
            start -= apart * (count - 1);
        }
        if apart > 1 && count > 1 {
            let outer: usize = from.dims()[..axis].iter().product();
            let inner: usize = from.dims()[axis + 1..].iter().product();
            // Each element is followed by zeros, of which those after the last go.
            x = self.reshape(&x, &[outer, count, 1, inner]);
            x = self.pad(&x, 2, 0, apart - 1);
            x = self.reshape(&x, from.with(axis, count * apart).dims());
            x = self.slice(&x, axis, 0, (count - 1) * apart + 1, 1);
        }
        let reach = (count - 1) * apart + 1;
        self.pad(&x, axis, start, len - start - reach)
    }

    fn cast_to(&mut self, to: DType, node: &Node) -> String {
        let x = self.operand(node, 0);
        // Out of range, ONNX's result is not defined for integers and infinite for 16 bits.
        let x = match to {
            DType::U32 => self.clip(&x, 0.0, u32::MAX as f32),
            DType::F16 | DType::BF16 => self.clip(&x, -to.largest(), to.largest()),
            _ => x,
        };
        self.cast(&x, element_type(to))
    }

    /// An attribute of four numbers: padding before the two dimensions of an image, and after them.
    pub(super) fn pads(padding: [usize; 2]) -> AttributeProto {
        let [rows, columns] = padding.map(|n| n as i64);
        AttributeProto { ints: vec![rows, columns, rows, columns], ..attribute("pads", KIND_INTS) }
    }
}
