//! Views: values stored inside other values without a copy. These are reshapes, contiguous slices, and
//! operands computed in place inside a concatenation.

use crate::graph::{Class, Graph, Node, Op, Update, Value, ValueId};
use crate::kernels;
use crate::limits::ALIGNMENT;

/// Kernels may access memory up to the next multiple of this many bytes after a tensor.
const PADDING: u64 = 16;

/// For each value of a graph, the value that contains it, if any.
#[derive(Clone, Debug)]
pub struct Views {
    /// The containing value, and the byte offset in it.
    inside: Vec<Option<(ValueId, u64)>>,
    /// Whether slices and concatenations are views, too.
    parts: bool,
}

impl Views {
    /// Views for reshapes and, with `parts`, for slices and concatenations where their offsets allow it.
    pub(in crate::compile) fn of(graph: &Graph, parts: bool) -> Self {
        let mut views = Self { inside: vec![None; graph.values.len()], parts };
        for node in &graph.nodes {
            if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
                views.inside[to.index()] = Some((*from, 0));
            }
        }
        for node in &graph.nodes {
            let Op::Slice { start, .. } = node.op else { continue };
            // The whole could not be bound to be copied. The backward pass may have slices of its own.
            if graph.reads_piece(node) {
                let whole = graph.value(node.inputs[0]);
                let offset = whole.dtype.bytes((start * whole.shape.last()) as u64);
                views.inside[node.outputs[0].index()] = Some((node.inputs[0], offset));
            }
        }
        if parts {
            views.add_slices(graph);
            views.add_joins(graph);
        }
        views.add_fused_gradients(graph);
        views
    }

    /// Whether slices and concatenations are views, too, where their offsets allow it.
    pub(in crate::compile) fn has_parts(&self) -> bool {
        self.parts
    }

    /// The value that owns the memory of `id`, and the byte offset in it.
    pub fn root(&self, id: ValueId) -> (ValueId, u64) {
        let mut place = (id, 0);
        while let Some(&Some((around, offset))) = self.inside.get(place.0.index()) {
            place = (around, place.1 + offset);
        }
        place
    }

    /// [`Views::root`] of every value, without the offsets.
    pub fn roots(&self) -> Vec<ValueId> {
        ValueId::all(self.inside.len()).map(|id| self.root(id).0).collect()
    }

    /// Whether the value has no memory of its own.
    pub(crate) fn is_view(&self, id: ValueId) -> bool {
        self.inside.get(id.index()).is_some_and(Option::is_some)
    }

    /// Whether the operation copies nothing: its result is a view, or its operands were computed inside its
    /// result.
    pub fn is_free(&self, node: &Node) -> bool {
        let within = |id: ValueId, whole: ValueId| self.around(id).is_some_and(|(around, _)| around == whole);
        match node.op {
            // Not if the result is part of a concatenation: then it is copied there.
            Op::Reshape(_) | Op::Slice { .. } => within(node.outputs[0], node.inputs[0]),
            Op::Concat { .. } => node.inputs.iter().all(|id| within(*id, node.outputs[0])),
            _ => false,
        }
    }

    /// The value that directly contains this one, and the byte offset in it.
    pub(in crate::compile) fn around(&self, id: ValueId) -> Option<(ValueId, u64)> {
        self.inside[id.index()]
    }

    /// Gradients of fused updates, each at a multiple of [`ALIGNMENT`].
    fn add_fused_gradients(&mut self, graph: &Graph) {
        for fused in &graph.fused_updates {
            let mut offset = 0;
            for &n in &fused.updates {
                let (part, _) = self.root(graph.nodes[n].inputs[Update::GRADIENT]);
                self.inside[part.index()] = Some((fused.gradients, offset));
                offset += graph.value(part).bytes().next_multiple_of(ALIGNMENT);
            }
        }
    }

    /// Slices with contiguous elements. Unless the whole stays in memory anyway, the slices must use nearly
    /// all of it: otherwise a part would keep the whole alive.
    fn add_slices(&mut self, graph: &Graph) {
        let mut sliced = vec![0u64; graph.values.len()];
        for node in graph.nodes.iter().filter(|node| matches!(node.op, Op::Slice { .. })) {
            sliced[node.inputs[0].index()] += graph.value(node.outputs[0]).bytes();
        }
        for node in &graph.nodes {
            let Op::Slice { axis, start, .. } = node.op else { continue };
            let (from, to) = (node.inputs[0], node.outputs[0]);
            let (whole, part) = (graph.value(from), graph.value(to));
            let stays = whole.class.is_persistent() || whole.class == Class::Input;
            if let Some(offset) = place(whole, part, axis, start)
                && (stays || sliced[from.index()] >= whole.bytes() / 8 * 7)
            {
                self.inside[to.index()] = Some((from, offset));
            }
        }
    }

    /// Concatenations with operands that can all be computed in place. An operand that could overwrite its
    /// own operand does that instead.
    fn add_joins(&mut self, graph: &Graph) {
        let mut movable = vec![false; graph.values.len()];
        for node in &graph.nodes {
            let types: Vec<_> =
                node.inputs.iter().map(|id| (graph.value(*id).shape, graph.value(*id).dtype)).collect();
            for (i, id) in node.outputs.iter().enumerate() {
                let over =
                    i == 0 && !kernels::in_place_inputs(&node.op, &types, graph.value(*id).shape).is_empty();
                movable[id.index()] = !over && !self.is_view(*id);
            }
        }
        graph.outputs.iter().for_each(|(_, id)| movable[id.index()] = false);
        for node in &graph.nodes {
            let Op::Concat { axis } = node.op else { continue };
            let y = node.outputs[0];
            let mut start = 0;
            let mut places = Vec::new();
            for id in &node.inputs {
                let part = graph.value(*id);
                let seen = places.iter().any(|(other, _)| other == id);
                let offset =
                    place(graph.value(y), part, axis, start).filter(|_| movable[id.index()] && !seen);
                places.extend(offset.map(|offset| (*id, offset)));
                start += part.shape.dims()[axis];
            }
            if places.len() == node.inputs.len() {
                for (id, offset) in places {
                    self.inside[id.index()] = Some((y, offset));
                    movable[id.index()] = false;
                }
            }
        }
    }
}

/// The byte offset of a part that starts at `start` along `axis`. `None` unless its elements are contiguous
/// whole words, a binding can start at the offset, and the padding after the part belongs to no other value.
fn place(whole: &Value, part: &Value, axis: usize, start: usize) -> Option<u64> {
    let outer: usize = whole.shape.dims()[..axis].iter().product();
    let row = part.bytes().checked_div(part.shape.dims()[axis] as u64)?;
    let offset = row * start as u64;
    let fits = outer == 1
        && !whole.dtype.is_half()
        && offset.is_multiple_of(ALIGNMENT)
        && part.bytes().is_multiple_of(PADDING);
    (fits && part.bytes() > 0).then_some(offset)
}
