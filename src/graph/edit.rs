//! The one way to change a graph after it was traced: passes add values and nodes here, and never make an id themselves.

use std::panic::Location;
use std::sync::Arc;

use super::{Class, Graph, Node, Op, Phase, Value, ValueId};
use crate::dtype::DType;
use crate::shape::Shape;

impl Value {
    /// A value that the step computes and keeps on the device.
    pub(crate) fn new(name: impl Into<String>, shape: Shape, dtype: DType, class: Class) -> Self {
        Self { name: name.into(), shape, dtype, class, indices: None, again: false, offloaded: false }
    }
}

impl Graph {
    /// Adds a value that no node computes yet.
    pub(crate) fn add_value(&mut self, value: Value) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(value);
        id
    }

    /// Adds a copy of the value `like` under the name `NAME.suffix`, after `change`.
    pub(crate) fn derive(&mut self, like: ValueId, suffix: &str, change: impl FnOnce(&mut Value)) -> ValueId {
        let mut value = self.value(like).clone();
        value.name = format!("{}.{suffix}", value.name);
        change(&mut value);
        self.add_value(value)
    }

    /// Layer of the node that computes a value, empty for inputs and parameters.
    pub(crate) fn layer_of<'a>(nodes: impl DoubleEndedIterator<Item = &'a Node>, id: ValueId) -> Arc<str> {
        let producer = nodes.rev().find(|node| node.outputs.contains(&id));
        producer.map_or_else(|| Arc::from(""), |node| Arc::clone(&node.layer))
    }
}

impl Node {
    /// An operation with one operand and one result that a pass adds.
    pub(crate) fn inserted(op: Op, input: ValueId, output: ValueId, layer: Arc<str>, phase: Phase) -> Self {
        let (inputs, outputs) = (vec![input], vec![output]);
        Self { op, inputs, outputs, layer, phase, at: Location::caller() }
    }

    /// An operation in the layer and phase of this one.
    pub(crate) fn sibling(&self, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) -> Self {
        Self { op, inputs, outputs, layer: Arc::clone(&self.layer), phase: self.phase, at: self.at }
    }
}
