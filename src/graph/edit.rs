//! The only way to change a traced graph: passes add values and nodes here and never create ids themselves.

use std::panic::Location;
use std::sync::Arc;

use super::{Class, Graph, Node, Op, Phase, STEP_SCALARS, StepScalars, Value, ValueId};
use crate::dtype::DType;
use crate::shape::Shape;

impl Value {
    /// Creates a value that the step computes and keeps on the device.
    pub(crate) fn new(name: impl Into<String>, shape: Shape, dtype: DType, class: Class) -> Self {
        Self {
            name: name.into(),
            shape,
            dtype,
            class,
            indices: None,
            again: false,
            offloaded: false,
            part: 0,
            part_of: None,
            rows_of: 0,
        }
    }
}

impl Graph {
    /// Adds a value that no node computes yet.
    pub(crate) fn add_value(&mut self, value: Value) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(value);
        id
    }

    /// The input that the session feeds before each step ([`StepScalars`]), added where there is none.
    pub(crate) fn step_scalars(&mut self) -> ValueId {
        let known = self.inputs().find(|(_, value)| value.name == STEP_SCALARS).map(|(id, _)| id);
        known.unwrap_or_else(|| {
            let shape = Shape::from([StepScalars::WORDS]);
            self.add_value(Value::new(STEP_SCALARS, shape, DType::U32, Class::Input))
        })
    }

    /// Adds a copy of the value `like`, modified by `change`, under the name `NAME.suffix`. A node will compute it: of a
    /// parameter or an input it is neither.
    pub(crate) fn derive(&mut self, like: ValueId, suffix: &str, change: impl FnOnce(&mut Value)) -> ValueId {
        let mut value = self.value(like).clone();
        value.name = format!("{}.{suffix}", value.name);
        if matches!(value.class, Class::Parameter | Class::Input) {
            value.class = Class::Activation;
            value.indices = None;
            value.part_of = None;
        }
        value.rows_of = 0;
        change(&mut value);
        self.add_value(value)
    }

    /// Returns the layer of the node that computes a value; empty for inputs and parameters.
    pub(crate) fn layer_of<'a>(nodes: impl DoubleEndedIterator<Item = &'a Node>, id: ValueId) -> Arc<str> {
        let producer = nodes.rev().find(|node| node.outputs.contains(&id));
        producer.map_or_else(|| Arc::from(""), |node| Arc::clone(&node.layer))
    }
}

impl Node {
    /// Creates a node that a pass adds, with one operand and one result.
    pub(crate) fn inserted(op: Op, input: ValueId, output: ValueId, layer: Arc<str>, phase: Phase) -> Self {
        let (inputs, outputs) = (vec![input], vec![output]);
        Self { op, inputs, outputs, layer, phase, at: Location::caller() }
    }

    /// Creates a node in the layer and phase of this one.
    pub(crate) fn sibling(&self, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) -> Self {
        Self { op, inputs, outputs, layer: Arc::clone(&self.layer), phase: self.phase, at: self.at }
    }
}
