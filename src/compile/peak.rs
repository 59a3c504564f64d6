//! The peak memory of a step.

use std::collections::BTreeMap;

use super::Program;
use crate::graph::Class;

/// The operation with the most live bytes, and the classes of these bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Position in the order of operations.
    pub position: usize,
    /// Description of the operation, such as `matmul (backward) in fc1, operation 7 of 20`.
    pub at: String,
    /// Name of the operation.
    pub op: String,
    /// Path of the layer, empty outside any layer.
    pub layer: String,
    /// Live bytes of each class.
    pub classes: BTreeMap<Class, u64>,
}

impl Peak {
    pub(super) fn of(program: &Program) -> Self {
        let count = program.order.len();
        let mut change = vec![0i128; count + 2];
        for storage in program.storages.iter().filter(|s| !s.persistent) {
            change[storage.first] += i128::from(storage.bytes);
            change[storage.last.min(count) + 1] -= i128::from(storage.bytes);
        }
        let mut live = 0;
        let mut best = (-1, 0);
        for (position, delta) in change.iter().take(count.max(1)).enumerate() {
            live += delta;
            if live > best.0 {
                best = (live, position);
            }
        }
        let position = best.1;
        let mut classes = BTreeMap::new();
        for storage in program.storages.iter().filter(|s| s.alive_at(position)) {
            *classes.entry(storage.class_at(position)).or_insert(0) += storage.bytes;
        }
        let Some(node) = program.order.get(position).map(|&n| &program.graph.nodes[n]) else {
            return Self { position, classes, ..Self::default() };
        };
        let (op, layer) = (node.op.name().to_owned(), node.layer.to_string());
        let place = if layer.is_empty() { String::new() } else { format!(" in {layer}") };
        let at = format!("{op} ({}){place}, operation {} of {count}", node.phase.name(), position + 1);
        Self { position, at, op, layer, classes }
    }
}
