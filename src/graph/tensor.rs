//! The symbolic tensor of model code.

use std::fmt;
use std::panic::Location;

use super::{Indices, Trace, ValueId};
use crate::dtype::DType;
use crate::shape::Shape;

/// Symbolic tensor: a value of a [`Trace`]. Methods record operations; nothing is computed until a planned
/// step runs. Cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    pub(super) trace: Trace,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    /// `None` after a mistake, which is reported when the trace ends.
    pub(super) id: Option<ValueId>,
}

impl Tensor {
    /// Returns the recorder of this tensor.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the dimensions. After a mistake: those of an operand.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the length of dimension `axis`; 1 if there is no such dimension.
    pub fn dim(&self, axis: usize) -> usize {
        self.shape.dims().get(axis).copied().unwrap_or(1)
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the value's id; `None` after a mistake.
    pub fn id(&self) -> Option<ValueId> {
        self.id
    }

    /// Returns the range of the class indices that this input was declared with.
    pub(super) fn indices(&self) -> Option<Indices> {
        // A trace that has ended has no values.
        let state = self.trace.state.borrow();
        self.id.and_then(|id| state.graph.values.get(id.index())?.indices)
    }

    /// Reports a mistake that the trace cannot infer from an operation's operands, at the call site. Returns
    /// a placeholder of this shape; operations on it do not report further mistakes.
    #[track_caller]
    #[must_use]
    pub fn mistake(&self, message: impl Into<String>, shape: impl Into<Shape>) -> Self {
        self.trace.complain(message.into(), Location::caller());
        Self { id: None, shape: shape.into(), dtype: DType::F32, trace: self.trace.clone() }
    }

    /// Names the value for reports, unless another value has the name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        if let Some(id) = self.id {
            self.trace.state.borrow_mut().rename(id, name);
        }
        self
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "Tensor({} {} {})", id.0, self.dtype, self.shape),
            None => write!(f, "Tensor(broken)"),
        }
    }
}
