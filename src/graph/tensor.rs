//! The symbolic tensor that model code computes with.

use std::fmt;
use std::panic::Location;

use super::{Trace, ValueId};
use crate::dtype::DType;
use crate::shape::Shape;

/// A value of a [`Trace`]. Methods record operations; nothing is computed until a planned step runs. Cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    pub(super) trace: Trace,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    /// `None` after a mistake, which is reported when the trace ends.
    pub(super) id: Option<ValueId>,
}

impl Tensor {
    /// The recorder this tensor belongs to.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Dimensions. After a mistake: those of an operand.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Length of dimension `axis`; 1 where there is none.
    pub fn dim(&self, axis: usize) -> usize {
        self.shape.dims().get(axis).copied().unwrap_or(1)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The value's id; `None` after a mistake.
    pub fn id(&self) -> Option<ValueId> {
        self.id
    }

    /// Reports a mistake that an operation's operands do not show, at the place of the call. Stands for a result of this
    /// shape; what is computed from it is not reported again.
    #[track_caller]
    #[must_use]
    pub fn mistake(&self, message: impl Into<String>, shape: impl Into<Shape>) -> Self {
        self.trace.complain(message.into(), Location::caller());
        Self { id: None, shape: shape.into(), dtype: DType::F32, trace: self.trace.clone() }
    }

    /// Gives the value a name of its own for reports, if no other has it.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let mut state = self.trace.state.borrow_mut();
        let taken = state.graph.values.iter().any(|value| value.name == name);
        if let Some(id) = self.id
            && !taken
        {
            state.graph.values[id.index()].name = name.to_owned();
        }
        drop(state);
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
