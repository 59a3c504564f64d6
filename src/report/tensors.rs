//! Every tensor of a plan: its type, its lifetime and its place.

use crate::compile::{Plan, Region, Storage};
use crate::dtype::DType;
use crate::graph::{Class, ValueId};
use crate::limits::ALIGNMENT;
use crate::shape::Shape;

/// A tensor of a plan.
#[derive(Clone, Debug)]
pub struct TensorReport {
    /// Unique in the plan.
    pub name: String,
    /// Dimensions.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Class of its memory.
    pub class: Class,
    /// Path of the layer that computes it, or that the parameter belongs to; empty outside of layers.
    pub layer: String,
    /// Name of the operation that computes it; empty for parameters, state, inputs and accumulated gradients.
    pub op: &'static str,
    /// Whether it is recomputed in the backward pass instead of being saved.
    pub again: bool,
    /// Bytes of its region, padding included.
    pub bytes: u64,
    /// Position in the order of operations at which it is first written.
    pub first: usize,
    /// Last position at which it owns its region: where it is last read; for a persistent tensor, the end of
    /// the step; for a tensor overwritten in place, the position before the operation that overwrites it.
    pub last: usize,
    /// Its place.
    pub region: Region,
}

/// Returns every tensor of a plan except views, sorted by their first positions; workspaces come last among
/// those with the same position.
///
/// A tensor written in place over another has the same region and owns it from its own operation on. So the
/// bytes alive at a position are the sum over all tensors whose `first..=last` contains it.
pub fn tensors(plan: &Plan) -> Vec<TensorReport> {
    let program = &plan.program;
    let end = program.order.len();
    let (mut born, mut read) = (vec![0; program.graph.values.len()], vec![0; program.graph.values.len()]);
    let mut maker = vec![None; program.graph.values.len()];
    for (position, &n) in program.order.iter().enumerate() {
        let node = &program.graph.nodes[n];
        for id in &node.outputs {
            born[id.index()] = position;
            read[id.index()] = position;
            maker[id.index()] = Some(node);
        }
        for id in &node.inputs {
            read[id.index()] = position;
        }
    }
    // A read of a view is a read of its root; the result of a concat is alive from the first of its operands
    // on.
    for (id, _) in program.graph.ids() {
        let (root, _) = program.views.root(id);
        read[root.index()] = read[root.index()].max(read[id.index()]);
        if program.storage_of[id.index()].is_some() {
            born[root.index()] = born[root.index()].min(born[id.index()]);
        }
    }
    for (_, id) in &program.graph.outputs {
        read[id.index()] = end;
    }
    let mut list: Vec<TensorReport> = Vec::new();
    for (id, value) in program.graph.ids().filter(|(id, _)| !program.views.is_view(*id)) {
        let Some((storage, memory)) = program.storage(id) else { continue };
        let made = maker[id.index()];
        // A tensor written in parts is alive from the first part on.
        let first = made.map_or(memory.first, |_| born[id.index()]);
        list.push(TensorReport {
            name: value.name.clone(),
            shape: value.shape,
            dtype: value.dtype,
            class: value.class,
            layer: made.map_or_else(|| value.class.owner(&value.name), |node| &node.layer).to_owned(),
            op: made.map_or("", |node| node.op.name()),
            again: value.again,
            bytes: own_bytes(plan, id, memory),
            first,
            last: if memory.persistent { end } else { until(memory, first, read[id.index()]) },
            region: plan.layout.locate(program, storage, program.offset_of[id.index()]),
        });
    }
    for (storage, region) in program.storages.iter().zip(&plan.layout.regions) {
        if storage.class_at(storage.first) == Class::Workspace {
            let node = program.order.get(storage.first).map(|&n| &program.graph.nodes[n]);
            list.push(TensorReport {
                name: storage.name.clone(),
                shape: Shape::from([storage.used_bytes as usize / 4]),
                dtype: DType::F32,
                class: Class::Workspace,
                layer: node.map_or_else(String::new, |node| node.layer.to_string()),
                op: node.map_or("", |node| node.op.name()),
                again: false,
                bytes: storage.bytes,
                first: storage.first,
                last: storage.last,
                region: *region,
            });
        }
    }
    list.sort_by_key(|t| (t.first, t.class == Class::Workspace));
    list
}

/// Returns the bytes of the whole storage, or the value's own bytes if it lies inside the storage of another
/// value.
pub(super) fn own_bytes(plan: &Plan, id: ValueId, memory: &Storage) -> u64 {
    match plan.program.offset_of[id.index()] {
        0 => memory.bytes,
        _ => plan.graph().value(id).bytes().next_multiple_of(ALIGNMENT),
    }
}

/// Returns the last position before another value overwrites the storage in place.
fn until(memory: &Storage, first: usize, read: usize) -> usize {
    let next = memory.tenants.iter().map(|(from, _)| *from).find(|&from| from > first);
    next.map_or(read, |next| read.min(next - 1))
}
