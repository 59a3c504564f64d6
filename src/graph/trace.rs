//! Records a model's code as a graph. Mistakes are collected and reported together.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use super::infer::infer;
use super::{
    Class, GradientOf, Graph, Indices, Node, Op, Param, ParamGroup, Params, PartOf, Phase, Piece, Share,
    Tensor, Value, ValueId,
};
use crate::dtype::DType;
use crate::error::{Error, Result, TraceError};
use crate::shape::{MAX_DIM, Shape};

/// Whether a model is traced for training or for evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout is active.
    Train,
    /// Dropout is the identity.
    Eval,
}

/// The recorder that a model's code runs against. Cheap to clone.
#[derive(Clone)]
pub struct Trace {
    pub(super) state: Rc<RefCell<State>>,
}

pub(super) struct State {
    pub(super) graph: Graph,
    errors: Vec<TraceError>,
    mode: Mode,
    phase: Phase,
    layer: Arc<str>,
    /// Calls of layers that are being run, and of the trace itself, outermost first.
    calls: Vec<&'static Location<'static>>,
    names: BTreeMap<String, u32>,
    /// How many of the first `counted` values have each name.
    having: HashMap<String, u32>,
    counted: usize,
    /// Registry of the parameters that may be used; `None` when recording continues a graph that already has
    /// its parameters.
    registry: Option<Arc<()>>,
    imported: BTreeMap<usize, ValueId>,
    dropouts: u32,
    /// Values of the backward passes of [`Tensor::with_gradient`], which only they may read.
    pub(super) inner: BTreeSet<ValueId>,
}

impl Trace {
    /// Runs `model` with a new recorder. Its result becomes the graph's first output, called `name`.
    ///
    /// # Errors
    /// [`Error::Trace`] with every mistake found, each with its source location.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    #[track_caller]
    pub fn record(
        params: &Params,
        mode: Mode,
        name: &str,
        model: impl FnOnce(&Self) -> Tensor,
    ) -> Result<Graph> {
        let trace = Self::over(Graph::default(), mode);
        trace.state.borrow_mut().registry = Some(params.identity());
        let result = trace.called_at(Location::caller(), || model(&trace));
        trace.output(name, &result);
        let mut state = trace.state.borrow_mut();
        state.errors.extend(params.errors());
        // Layers may register parameters while the model runs.
        state.graph.parameters = params.list();
        // A result after a mistake was not added as an output.
        if result.id().is_some() {
            state.graph.outputs.rotate_right(1);
        }
        drop(state);
        trace.finish()
    }

    /// Continues recording at the end of an existing graph.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn over(graph: Graph, mode: Mode) -> Self {
        let mut names = BTreeMap::new();
        let mut imported = BTreeMap::new();
        for (id, value) in graph.ids() {
            names.insert(value.name.clone(), 1);
            if value.class == Class::Parameter
                && let Some(param) = graph.parameters.iter().find(|p| p.name() == value.name)
            {
                imported.insert(param.index(), id);
            }
        }
        let dropouts = graph.draw_keys();
        let state = State {
            graph,
            errors: Vec::new(),
            mode,
            phase: Phase::Forward,
            layer: Arc::from(""),
            calls: Vec::new(),
            names,
            having: HashMap::new(),
            counted: 0,
            registry: None,
            imported,
            dropouts,
            inner: BTreeSet::new(),
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Returns the recorded graph.
    ///
    /// # Errors
    /// [`Error::Trace`] with every mistake found.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn finish(self) -> Result<Graph> {
        let mut state = self.state.borrow_mut();
        if state.errors.is_empty() {
            Ok(std::mem::take(&mut state.graph))
        } else {
            Err(Error::Trace(std::mem::take(&mut state.errors)))
        }
    }

    /// Returns the number of operations recorded.
    pub(crate) fn len(&self) -> usize {
        self.state.borrow().graph.nodes.len()
    }

    /// Adds an operation whose operands and results exist.
    pub(crate) fn append(&self, node: Node) {
        self.state.borrow_mut().graph.nodes.push(node);
    }

    /// Adds a view of `result`, which replaces that of `node`, under the id that others read.
    pub(crate) fn append_view(&self, node: &Node, result: &Tensor, id: ValueId) {
        let inputs = result.id().into_iter().collect();
        self.append(node.sibling(Op::Reshape(result.shape()), inputs, vec![id]));
    }

    /// Returns the mode of the trace.
    pub fn mode(&self) -> Mode {
        self.state.borrow().mode
    }

    /// Creates a tensor with all elements equal to `value`.
    #[cfg(feature = "onnx")]
    pub(crate) fn filled(&self, shape: Shape, value: f32) -> Tensor {
        self.emit(Op::Fill { shape, value }, &[], Location::caller()).swap_remove(0)
    }

    /// Declares an `f32` input that the host feeds by this name.
    #[track_caller]
    pub fn input(&self, name: &str, shape: impl Into<Shape>) -> Tensor {
        self.declare(name, shape.into(), DType::F32, None, Location::caller())
    }

    /// Declares an input of another element type, such as 16-bit images; [`Tensor::cast`] converts it to
    /// `f32`.
    #[track_caller]
    pub fn input_of(&self, dtype: DType, name: &str, shape: impl Into<Shape>) -> Tensor {
        self.declare(name, shape.into(), dtype, None, Location::caller())
    }

    /// Declares a `u32` input of class indices, each below `classes` or [`IGNORE`](super::IGNORE); feeding
    /// others is an error.
    #[track_caller]
    pub fn labels(&self, name: &str, shape: impl Into<Shape>, classes: u32) -> Tensor {
        self.declare(name, shape.into(), DType::U32, Some(Indices::Labels(classes)), Location::caller())
    }

    /// Declares a `u32` input of row numbers for [`Tensor::embedding`], each below `below`; feeding others is
    /// an error.
    #[track_caller]
    pub fn ids(&self, name: &str, shape: impl Into<Shape>, below: u32) -> Tensor {
        self.declare(name, shape.into(), DType::U32, Some(Indices::Ids(below)), Location::caller())
    }

    /// Keeps a value until the end of the step, for the host to read by this name. A parameter is copied: the
    /// host reads the value that the step computed with, not the updated one.
    #[track_caller]
    pub fn output(&self, name: &str, tensor: &Tensor) {
        let Some(id) = self.new_output(name, tensor) else { return };
        let copied = self.state.borrow().is_parameter(id);
        let copy = copied.then(|| tensor.one(Op::Copy, &[tensor], Location::caller()).id).flatten();
        self.state.borrow_mut().graph.outputs.push((name.to_owned(), copy.unwrap_or(id)));
    }

    /// Keeps the gradient of the loss with respect to `tensor` (a parameter, an input or any result) until the
    /// end of a training step, for the host to read by this name: `tensor.retain_grad()`. It has the tensor's
    /// shape, is not clipped and not multiplied by a loss scale, and is zero if the loss does not depend on the
    /// tensor. A frozen parameter and an input get a gradient by this. A forward pass has no such output.
    ///
    /// With [`PlanOptions::accumulate`](crate::compile::PlanOptions), the gradients of parameters and scalars are
    /// summed over the parts; those of other tensors are concatenated, as outputs are.
    #[track_caller]
    pub fn output_gradient(&self, name: &str, tensor: &Tensor) {
        let Some(id) = self.new_output(name, tensor) else { return };
        if tensor.dtype == DType::U32 {
            let message = format!("gradient `{name}`: integers {} have none", tensor.shape);
            self.complain(message, Location::caller());
            return;
        }
        self.state.borrow_mut().graph.gradient_outputs.push((name.to_owned(), GradientOf::Value(id)));
    }

    /// Keeps the norm of the gradients of all trained parameters together, before clipping, for the host to
    /// read by this name: what `clip_grad_norm_` returns. A forward pass has no such output.
    #[track_caller]
    pub fn output_gradient_norm(&self, name: &str) {
        self.check_output_name(name, Location::caller());
        self.state.borrow_mut().graph.gradient_outputs.push((name.to_owned(), GradientOf::Norm));
    }

    /// Returns the value that becomes the output `name`; `None` after a mistake.
    #[track_caller]
    fn new_output(&self, name: &str, tensor: &Tensor) -> Option<ValueId> {
        self.check_output_name(name, Location::caller());
        if !Rc::ptr_eq(&tensor.trace.state, &self.state) {
            let message = format!("output `{name}` {}: it belongs to another trace", tensor.shape);
            self.complain(message, Location::caller());
            return None;
        }
        if tensor.id.is_some_and(|id| self.state.borrow().inner.contains(&id)) {
            let message = format!("output `{name}` is of a backward pass of `with_gradient`");
            self.complain(message, Location::caller());
            return None;
        }
        tensor.id
    }

    fn check_output_name(&self, name: &str, at: &'static Location<'static>) {
        let state = self.state.borrow();
        let (outputs, gradients) = (&state.graph.outputs, &state.graph.gradient_outputs);
        let mut names = outputs.iter().map(|(name, _)| name).chain(gradients.iter().map(|(name, _)| name));
        let taken = names.any(|other| other == name);
        drop(names);
        drop(state);
        if taken {
            self.complain(format!("output `{name}` is declared twice"), at);
        }
    }

    /// Notes that `parts` are the rows of one tensor, which recomputation keeps or repeats together.
    pub(crate) fn rows_of_one(&self, parts: &[Tensor]) {
        let mut state = self.state.borrow_mut();
        let Some(number) = parts.first().and_then(Tensor::id).map(|id| id.0 + 1) else { return };
        for mut id in parts.iter().filter_map(Tensor::id) {
            // What is kept is what a view is of.
            let made = |id: ValueId| state.graph.nodes.iter().rev().find(|node| node.outputs.contains(&id));
            while let Some(Node { op: Op::Reshape(_), inputs, .. }) = made(id) {
                id = inputs[0];
            }
            state.graph.values[id.index()].rows_of = number;
        }
    }

    /// Runs `body` with its operations attributed to the layer `path`. A mistake in `body` is reported with
    /// the path and, if `body` is code of this crate, with the line of the caller.
    #[track_caller]
    pub fn layer<T>(&self, path: &str, body: impl FnOnce() -> T) -> T {
        let outer = std::mem::replace(&mut self.state.borrow_mut().layer, Arc::from(path));
        let result = self.called_at(Location::caller(), body);
        self.state.borrow_mut().layer = outer;
        result
    }

    /// Runs `body`, which was called at `at`.
    pub(crate) fn called_at<T>(&self, at: &'static Location<'static>, body: impl FnOnce() -> T) -> T {
        self.state.borrow_mut().calls.push(at);
        let result = body();
        self.state.borrow_mut().calls.pop();
        result
    }

    /// Runs `body` with its operations attributed to a phase. Outside the forward phase, their results are of
    /// class gradient.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn phase<T>(&self, phase: Phase, body: impl FnOnce() -> T) -> T {
        let outer = std::mem::replace(&mut self.state.borrow_mut().phase, phase);
        let result = body();
        self.state.borrow_mut().phase = outer;
        result
    }

    /// Returns a parameter as a tensor of this trace. A parameter of other [`Params`] than the traced ones is
    /// a mistake.
    #[track_caller]
    pub fn param(&self, param: &Param) -> Tensor {
        let stranger = self.state.borrow().registry.as_ref().is_some_and(|own| !param.is_of(own));
        if stranger {
            let message = format!(
                "parameter `{}` {} belongs to other `Params` than the ones that are traced; register both models with \
                 scopes of one `Params`",
                param.name(),
                param.shape()
            );
            self.complain(message, Location::caller());
            return Tensor { trace: self.clone(), shape: param.shape(), dtype: DType::F32, id: None };
        }
        // Reported where it was registered.
        if param.shape().check_size().is_err() {
            return Tensor { trace: self.clone(), shape: param.shape().ones(), dtype: DType::F32, id: None };
        }
        let known = self.state.borrow().imported.get(&param.index()).copied();
        let id = known.unwrap_or_else(|| {
            let id = self.persistent(param.name(), param.shape(), DType::F32, Class::Parameter);
            self.state.borrow_mut().imported.insert(param.index(), id);
            id
        });
        self.tensor(id)
    }

    /// Declares optimizer state that starts as zeros and persists across steps.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn state(&self, name: &str, shape: Shape) -> Tensor {
        self.state_of(DType::F32, name, shape)
    }

    /// Does what [`Trace::state`] does, for another element type.
    pub(crate) fn state_of(&self, dtype: DType, name: &str, shape: Shape) -> Tensor {
        let id = self.persistent(name, shape, dtype, Class::Optimizer);
        self.tensor(id)
    }

    /// Returns the optimizer state of this name, which it adds if it is not there.
    pub(crate) fn one_state_of(&self, dtype: DType, name: &str, shape: Shape) -> Tensor {
        let is_it = |(_, value): &(ValueId, &Value)| value.class == Class::Optimizer && value.name == name;
        let known = self.state.borrow().graph.ids().find(is_it).map(|(id, _)| id);
        known.map_or_else(|| self.state_of(dtype, name, shape), |id| self.tensor(id))
    }

    /// Does what [`Trace::state_of`] does, for this rank's share of state of this shape.
    pub(crate) fn part_of_state(&self, dtype: DType, name: &str, shape: Shape, share: Share) -> Tensor {
        let id = self.persistent(name, Shape::from([share.len as usize]), dtype, Class::Optimizer);
        self.state.borrow_mut().graph.values[id.index()].part_of = Some(PartOf::share(share, shape));
        self.tensor(id)
    }

    /// Whether this rank has a part of a parameter, as one of those that compute a layer together.
    pub(crate) fn is_split(&self, id: ValueId) -> bool {
        self.state.borrow().graph.value(id).part_of.is_some()
    }

    /// Says that `state`, of the same shape, has the same elements as a parameter of which this rank has a part.
    pub(crate) fn split_like(&self, state: &Tensor, parameter: &Tensor) {
        if let (Some(state), Some(parameter)) = (state.id(), parameter.id()) {
            let values = &mut self.state.borrow_mut().graph.values;
            values[state.index()].part_of = values[parameter.index()].part_of;
        }
    }

    /// Returns the input that the session feeds before each step; see [`StepScalars`](super::StepScalars).
    pub(crate) fn step_scalars(&self) -> Tensor {
        let id = self.state.borrow_mut().graph.step_scalars();
        self.tensor(id)
    }

    /// Returns an existing value as a tensor.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn tensor(&self, id: ValueId) -> Tensor {
        let state = self.state.borrow();
        let value = state.graph.value(id);
        Tensor { trace: self.clone(), shape: value.shape, dtype: value.dtype, id: Some(id) }
    }

    /// Returns the name of a value of this trace.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn name_of(&self, id: ValueId) -> String {
        self.state.borrow().graph.value(id).name.clone()
    }

    /// Returns what a value's memory is for.
    pub(crate) fn class_of(&self, id: ValueId) -> Class {
        self.state.borrow().graph.value(id).class
    }

    /// Returns which rows of a parameter a value has, if it is a piece of one.
    pub(crate) fn piece(&self, rows: ValueId) -> Option<Piece> {
        self.state.borrow().graph.pieces.iter().find(|piece| piece.rows == rows).copied()
    }

    /// Whether a parameter is read and updated in pieces.
    pub(crate) fn is_in_pieces(&self, parameter: &Tensor) -> bool {
        self.state.borrow().graph.pieces.iter().any(|piece| Some(piece.of) == parameter.id())
    }

    /// Returns the parameter of this name.
    pub(crate) fn parameter(&self, name: &str) -> Option<Param> {
        self.state.borrow().graph.parameters.iter().find(|param| param.name() == name).cloned()
    }

    /// Returns how a parameter is updated.
    pub(crate) fn group_of(&self, parameter: &str) -> ParamGroup {
        self.parameter(parameter).map_or_else(ParamGroup::default, |param| *param.group())
    }

    /// Whether a parameter is a table that [`Op::Embedding`] reads.
    pub(crate) fn is_table(&self, parameter: ValueId) -> bool {
        let reads = |node: &Node| node.op == Op::Embedding && node.inputs[0] == parameter;
        self.state.borrow().graph.nodes.iter().any(reads)
    }

    pub(super) fn next_dropout(&self) -> u32 {
        let mut state = self.state.borrow_mut();
        state.dropouts += 1;
        state.dropouts
    }

    pub(super) fn complain(&self, message: String, at: &'static Location<'static>) {
        let mut state = self.state.borrow_mut();
        // The line of the user's code: the call itself, or of the innermost layer that the user called.
        let own = |at: &&&'static Location<'static>| !at.file().starts_with(crate_folder());
        let at = std::iter::once(&at).chain(state.calls.iter().rev()).find(own).copied().unwrap_or(at);
        let message = match &*state.layer {
            "" => message,
            layer => format!("`{layer}`: {message}"),
        };
        state.errors.push(TraceError { message, file: at.file(), line: at.line() });
    }

    /// Appends a node. If an operand carries a mistake, so do the results, without a second report.
    pub(crate) fn emit(&self, op: Op, inputs: &[&Tensor], at: &'static Location<'static>) -> Vec<Tensor> {
        let outputs = op.results();
        let (shape, dtype) = inputs.first().map_or(([].into(), DType::F32), |like| (like.shape, like.dtype));
        let broken = || vec![Tensor { trace: self.clone(), shape, dtype, id: None }; outputs];
        if let Some(stranger) = inputs.iter().find(|t| !Rc::ptr_eq(&t.trace.state, &self.state)) {
            self.complain(
                format!("{}: an operand {} belongs to another trace", op.name(), stranger.shape),
                at,
            );
            return broken();
        }
        let Some(ids) = inputs.iter().map(|t| t.id).collect::<Option<Vec<_>>>() else {
            return broken();
        };
        if ids.iter().any(|id| self.state.borrow().inner.contains(id)) {
            let message = format!("{}: an operand is of a backward pass of `with_gradient`", op.name());
            self.complain(message, at);
            return broken();
        }
        if let Some(number) = op.numbers().into_iter().find(|number| *number > MAX_DIM) {
            self.complain(format!("{}: {number} is too large, at most {MAX_DIM} can be", op.name()), at);
            return broken();
        }
        let types: Vec<_> = inputs.iter().map(|t| (t.shape, t.dtype)).collect();
        let results = infer(&op, &types).and_then(|results| {
            let large = results.iter().find_map(|(shape, _)| shape.check_size().err());
            large.map_or(Ok(results), |message| Err(format!("{}: the result {message}", op.name())))
        });
        match results {
            Ok(results) => {
                let mut state = self.state.borrow_mut();
                let class = if state.phase == Phase::Forward { Class::Activation } else { Class::Gradient };
                let name = match &*state.layer {
                    "" => op.name().to_owned(),
                    layer => format!("{layer}.{}", op.name()),
                };
                let suffix = if state.phase == Phase::Forward { "" } else { ".grad" };
                let outputs = results
                    .iter()
                    .map(|&(shape, dtype)| {
                        state.add_value(format!("{name}{suffix}"), shape, dtype, class, None)
                    })
                    .collect::<Vec<_>>();
                let (layer, phase) = (state.layer.clone(), state.phase);
                state.graph.nodes.push(Node { op, inputs: ids, outputs: outputs.clone(), layer, phase, at });
                drop(state);
                outputs.into_iter().map(|id| self.tensor(id)).collect()
            }
            Err(message) => {
                self.complain(message, at);
                broken()
            }
        }
    }

    fn declare(
        &self,
        name: &str,
        shape: Shape,
        dtype: DType,
        indices: Option<Indices>,
        at: &'static Location<'static>,
    ) -> Tensor {
        let taken = self.state.borrow().graph.inputs().any(|(_, value)| value.name == name);
        if taken {
            self.complain(format!("input `{name}` is declared twice"), at);
        } else if shape.numel() == 0 {
            self.complain(format!("input `{name}` {shape} has no elements; a batch is at least 1"), at);
        }
        if let Err(message) = shape.check_size() {
            self.complain(format!("input `{name}` {message}"), at);
            return Tensor { trace: self.clone(), shape: shape.ones(), dtype, id: None };
        }
        let id = self.state.borrow_mut().add_value(name.to_owned(), shape, dtype, Class::Input, indices);
        self.tensor(id)
    }

    fn persistent(&self, name: &str, shape: Shape, dtype: DType, class: Class) -> ValueId {
        self.state.borrow_mut().add_value(name.to_owned(), shape, dtype, class, None)
    }
}

/// Returns the folder of this crate's sources, as the compiler names it.
fn crate_folder() -> &'static str {
    &file!()[..file!().len() - "graph/trace.rs".len()]
}

impl State {
    /// Whether a value is in a parameter's memory: the parameter, or a view of it.
    pub(super) fn is_parameter(&self, mut id: ValueId) -> bool {
        for node in self.graph.nodes.iter().rev() {
            if node.outputs.contains(&id) {
                match node.op {
                    Op::Reshape(_) | Op::Slice { .. } => id = node.inputs[0],
                    _ => return false,
                }
            }
        }
        self.graph.value(id).class == Class::Parameter
    }

    /// Names a value, unless another one has the name. A trace that has ended has no values.
    pub(super) fn rename(&mut self, id: ValueId, name: &str) {
        for value in self.graph.values.get(self.counted..).unwrap_or_default() {
            *self.having.entry(value.name.clone()).or_insert(0) += 1;
        }
        self.counted = self.graph.values.len();
        let taken = self.having.get(name).is_some_and(|count| *count > 0);
        if let Some(value) = self.graph.values.get_mut(id.index()).filter(|_| !taken) {
            let before = std::mem::replace(&mut value.name, name.to_owned());
            self.having.entry(before).and_modify(|count| *count -= 1);
            *self.having.entry(name.to_owned()).or_insert(0) += 1;
        }
    }

    /// Adds a value under a unique name: the second `relu` is `relu.2`.
    fn add_value(
        &mut self,
        name: String,
        shape: Shape,
        dtype: DType,
        class: Class,
        indices: Option<Indices>,
    ) -> ValueId {
        let count = self.names.entry(name.clone()).or_insert(0);
        *count += 1;
        let name = if *count == 1 { name } else { format!("{name}.{count}") };
        self.graph.add_value(Value { indices, ..Value::new(name, shape, dtype, class) })
    }
}
