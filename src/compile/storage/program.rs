//! Assigns a storage to every value and lowers operations to dispatches on those storages. Views and in-place
//! results share a storage.

use super::layout::step_problem;
use super::lowerings::{Lowerings, Type};
use super::transfers::Transfer;
use crate::compile::analysis::Views;
use crate::compile::passes::elements_of_piece;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Class, FusedUpdate, Graph, Node, Op, Param, Update, Value, ValueId};
use crate::kernels::{self, Launch, MAX_PARAMS, Operand};
use crate::limits::{ALIGNMENT, Job, Limits};
use crate::memory::planner;
use crate::shape::Shape;
use crate::units::align_up;

/// Index of a storage in [`Program::storages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u32);

/// A piece of memory and the values stored in it, one after another or as views of each other.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Name of the first value.
    pub name: String,
    /// Size in bytes, a multiple of [`ALIGNMENT`].
    pub bytes: u64,
    /// Position in the order of operations at which it is first needed.
    pub first: usize,
    /// Position at which it is last needed.
    pub last: usize,
    /// For a storage in a row, except the first: the first storage of the row, and the byte offset from its
    /// start. A row is contiguous in memory.
    pub after: Option<(StorageId, u64)>,
    /// Stays allocated on the device across steps.
    pub persistent: bool,
    /// Stored in host memory across steps: it is copied to the device before the operation at `first`, its
    /// update, and copied back after it.
    pub offloaded: bool,
    /// The class of value that it holds, from each of these positions on.
    pub tenants: Vec<(usize, Class)>,
    /// Bytes of its elements, before padding to [`ALIGNMENT`].
    pub used_bytes: u64,
    /// Bytes of it that one buffer holds: all, unless it is larger than a buffer. It then starts one and continues in the
    /// next.
    pub in_buffer: u64,
}

impl Storage {
    /// Whether its contents are needed while the operation at `position` runs.
    pub fn alive_at(&self, position: usize) -> bool {
        self.persistent || (self.first <= position && position <= self.last)
    }

    /// Whether its contents persist across steps, on the device or in host memory.
    pub fn is_state(&self) -> bool {
        self.persistent || self.offloaded
    }

    /// The class of the value that it holds at `position`.
    pub fn class_at(&self, position: usize) -> Class {
        let current = self.tenants.iter().rev().find(|(from, _)| *from <= position);
        current.or(self.tenants.first()).map_or(Class::Workspace, |(_, class)| *class)
    }
}

/// A byte range of a storage, as a dispatch binds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The storage.
    pub storage: StorageId,
    /// Byte offset in the storage, a multiple of [`ALIGNMENT`].
    pub offset: u64,
    /// Size in bytes, a multiple of 16. For a [`FusedUpdate`] it includes the storages that directly follow
    /// in the row.
    pub bytes: u64,
}

impl Span {
    pub(in crate::compile) fn new(storage: StorageId, offset: u64, bytes: u64) -> Self {
        Self { storage, offset, bytes: bytes.next_multiple_of(16).max(16) }
    }
}

/// The most buffers that one tensor lies in.
const MOST_BUFFERS: u64 = 1 << 12;

/// Returns how many bytes of `all` a buffer holds that is cut between pieces of this many; 0 if it holds none, or far too many
/// buffers are needed.
fn cut_between(piece: u64, all: u64, limits: &Limits) -> u64 {
    let in_buffer = limits.max_buffer.checked_div(piece).unwrap_or(0) * piece;
    if in_buffer.saturating_mul(MOST_BUFFERS) < all { 0 } else { in_buffer }
}

/// The error for a tensor of more than `max` bytes.
pub(super) fn too_large(
    name: &str,
    shape: Shape,
    class: Class,
    (bytes, max): (u64, u64),
    limits: &Limits,
) -> Error {
    let rows = shape.dims().first().map_or(1, |&rows| rows.max(1) as u64);
    Error::TensorTooLarge {
        name: name.to_owned(),
        shape: shape.to_string(),
        bytes,
        max,
        limits: limits.name.clone(),
        batch_that_fits: matches!(class, Class::Input | Class::Activation)
            .then(|| max / (bytes / rows).max(1)),
    }
}

/// A graph in execution order, with a storage for each value and the dispatches that compute it.
#[derive(Clone, Debug)]
pub struct Program {
    /// Values and nodes.
    pub graph: Graph,
    /// Indices into `graph.nodes`, in execution order.
    pub order: Vec<usize>,
    /// All storages: parameters first, in order of registration, then optimizer state that stays on the
    /// device, then everything else.
    pub storages: Vec<Storage>,
    /// The storage of each value; `None` for values that are neither computed nor read.
    pub storage_of: Vec<Option<StorageId>>,
    /// Byte offset of each value in its storage.
    pub offset_of: Vec<u64>,
    /// Which values are views into others.
    pub views: Views,
    /// For each of [`Graph::fused_updates`], the position in the order of operations at which it runs: the
    /// position of its last update.
    pub fused_at: Vec<usize>,
    /// Decisions for each node that has dispatches, in execution order.
    nodes: Vec<Assigned>,
    /// Number of dispatches of all nodes.
    pub(in crate::compile) dispatches: usize,
    /// Dispatches, each with the position in `order` that it belongs to.
    pub launches: Vec<(Launch<Span>, usize)>,
    /// Copies between the device and host memory within the step, in order.
    pub transfers: Vec<Transfer>,
    /// Bytes of everything that does not persist across steps, if no memory were shared.
    pub naive_bytes: u64,
}

/// Decisions for the dispatches of one node.
#[derive(Clone, Debug)]
struct Assigned {
    position: usize,
    in_place: Option<usize>,
    workspace: Vec<Span>,
}

impl Program {
    /// Assigns a storage to every value of `graph`, for operations in this order. [`Program::lower`] then
    /// creates the dispatches.
    ///
    /// # Errors
    /// [`Error::TensorTooLarge`] for a tensor larger than a binding; [`Error::Unsupported`] from lowering.
    pub(in crate::compile) fn assign(
        graph: Graph,
        views: Views,
        order: Vec<usize>,
        limits: &Limits,
        in_place: bool,
    ) -> Result<Self> {
        let last_use = last_uses(&graph, &views.roots(), &order);
        let mut program = Self::with_persistent(graph, views, limits)?;
        let mut position = vec![0; program.graph.nodes.len()];
        order.iter().enumerate().for_each(|(at, &n)| position[n] = at);
        let last = |fused: &FusedUpdate| fused.updates.iter().map(|&n| position[n]).max().unwrap_or(0);
        program.fused_at = program.graph.fused_updates.iter().map(last).collect();
        program.order = order;
        let inputs: Vec<ValueId> = program.graph.inputs().map(|(id, _)| id).collect();
        for id in inputs {
            program.new_storage(id, 0, last_use[id.index()], limits)?;
        }
        program.add_offloaded(limits)?;
        let mut lowerings = Lowerings::new(&program.graph, limits);
        for position in 0..program.order.len() {
            program.add_node(position, &last_use, (limits, &mut lowerings), in_place)?;
        }
        Ok(program)
    }

    /// A program with only the storages of parameters and of optimizer state on the device.
    ///
    /// # Errors
    /// [`Error::TensorTooLarge`] for a tensor larger than a binding.
    pub(in crate::compile) fn with_persistent(graph: Graph, views: Views, limits: &Limits) -> Result<Self> {
        let mut program = Self {
            storage_of: vec![None; graph.values.len()],
            offset_of: vec![0; graph.values.len()],
            graph,
            order: Vec::new(),
            views,
            fused_at: Vec::new(),
            storages: Vec::new(),
            nodes: Vec::new(),
            dispatches: 0,
            launches: Vec::new(),
            transfers: Vec::new(),
            naive_bytes: 0,
        };
        program.add_persistent(limits)?;
        Ok(program)
    }

    /// Bytes that stay allocated on the device across steps.
    pub fn persistent_bytes(&self) -> u64 {
        self.storages.iter().filter(|s| s.persistent).map(|s| s.bytes).sum()
    }

    /// Lower bound in bytes on any packing of this order, including persistent storages.
    pub(in crate::compile) fn lower_bound(&self, limits: &Limits) -> Result<u64> {
        let bound = planner::lower_bound(&step_problem(self, limits, true, 0).items);
        let bound = bound.ok_or_else(|| {
            Error::TooManyElements("the step has more bytes than can be counted".to_owned())
        })?;
        Ok(self.persistent_bytes() + bound)
    }

    /// The storage of a value; `None` if the value is neither computed nor read.
    pub fn storage(&self, id: ValueId) -> Option<(StorageId, &Storage)> {
        let storage = self.storage_of[id.index()]?;
        Some((storage, &self.storages[storage.0 as usize]))
    }

    /// Path of the layer that a storage's first value belongs to; empty outside any layer.
    pub(crate) fn layer_of(&self, storage: usize) -> &str {
        let of = &self.storages[storage];
        let class = of.class_at(of.first);
        let fused =
            |fused: &FusedUpdate| self.storage_of[fused.gradients.index()] == Some(StorageId(storage as u32));
        match self.order.get(of.first) {
            _ if self.graph.fused_updates.iter().any(fused) => "",
            Some(&node) if !of.persistent && class != Class::Input => &self.graph.nodes[node].layer,
            _ => class.owner(&of.name),
        }
    }

    /// The nodes computed by the dispatches at a position: one node, or all updates that are fused there.
    pub fn nodes_at(&self, position: usize) -> impl Iterator<Item = &Node> {
        let fused = self.fused_at.iter().position(|&at| at == position);
        let fused = fused.map(|i| &self.graph.fused_updates[i].updates[..]);
        fused.unwrap_or(&self.order[position..=position]).iter().map(|&n| &self.graph.nodes[n])
    }

    pub(in crate::compile) fn new_storage(
        &mut self,
        id: ValueId,
        first: usize,
        last: usize,
        limits: &Limits,
    ) -> Result<StorageId> {
        let value = self.graph.value(id);
        let (bytes, class) = (value.bytes(), value.class);
        let in_pieces = bytes > limits.max_binding && self.is_read_in_pieces(id);
        let in_buffer = if in_pieces { self.whole_pieces(id, limits) } else { 0 };
        let most = match in_pieces {
            true if in_buffer > 0 => u64::MAX,
            true => limits.max_buffer,
            false => limits.max_binding,
        };
        self.check_size(id, bytes, most, limits)?;
        let storage = self.push_storage(value.name.clone(), bytes, (first, last), class, false)?;
        if bytes > limits.max_buffer && in_buffer > 0 {
            self.storages[storage.0 as usize].in_buffer = in_buffer;
        }
        self.storage_of[id.index()] = Some(storage);
        Ok(storage)
    }

    /// Whether operations read parts alone of a parameter or of state.
    fn is_read_in_pieces(&self, id: ValueId) -> bool {
        let part =
            |node: &Node, i: usize| self.views.is_free(node) || self.graph.operand_share(node, i).is_some();
        let reads = |node: &Node| (0..node.inputs.len()).all(|i| node.inputs[i] != id || part(node, i));
        self.graph.value(id).class.is_persistent() && self.graph.nodes.iter().all(reads)
    }

    /// Returns how many bytes of a parameter, or of its state, a buffer holds that is cut between the pieces that operations
    /// read: 0 if none fits, or where a model reads slices of its own.
    fn whole_pieces(&self, id: ValueId, limits: &Limits) -> u64 {
        let value = self.graph.value(id);
        if value.class == Class::Parameter {
            let in_pieces = self.graph.pieces.iter().any(|piece| piece.of == id);
            let is_read = self.graph.nodes.iter().any(|node| node.inputs.contains(&id));
            let param = self.graph.parameters.iter().find(|param| param.name() == value.name);
            let cut = param.filter(|_| in_pieces || !is_read);
            return cut.map_or(0, |param| Self::whole_pieces_of(param, value.dtype, limits));
        }
        let operand = |node: &Node| node.inputs.iter().position(|input| *input == id);
        let readers = self.graph.nodes.iter().filter_map(|node| Some((node, operand(node)?)));
        let shares = readers.filter_map(|(node, i)| self.graph.operand_share(node, i));
        let piece = shares.map(|share| share.len).max().unwrap_or(0);
        cut_between(value.dtype.bytes(piece), value.bytes(), limits)
    }

    /// [`Program::whole_pieces`] of a parameter. Programs that do not read it place it as those that do.
    pub(super) fn whole_pieces_of(param: &Param, stored: DType, limits: &Limits) -> u64 {
        let piece = elements_of_piece(param, stored, limits.max_binding).unwrap_or(0);
        cut_between(stored.bytes(piece), stored.bytes(param.shape().numel()), limits)
    }

    pub(super) fn check_size(&self, id: ValueId, bytes: u64, max: u64, limits: &Limits) -> Result<()> {
        let Value { name, shape, class, .. } = self.graph.value(id);
        if bytes <= max { Ok(()) } else { Err(too_large(name, *shape, *class, (bytes, max), limits)) }
    }

    pub(in crate::compile) fn push_storage(
        &mut self,
        name: String,
        used_bytes: u64,
        (first, last): (usize, usize),
        class: Class,
        offloaded: bool,
    ) -> Result<StorageId> {
        let bytes = align_up(used_bytes.max(1), ALIGNMENT)
            .ok_or_else(|| Error::TooManyElements(format!("`{name}` has more bytes than can be counted")))?;
        let id = StorageId(self.storages.len() as u32);
        let persistent = class.is_persistent() && !offloaded;
        if !persistent {
            self.naive_bytes = self.naive_bytes.saturating_add(bytes);
        }
        let tenants = vec![(first, class)];
        let storage = Storage {
            name,
            bytes,
            first,
            last,
            after: None,
            persistent,
            offloaded,
            tenants,
            used_bytes,
            in_buffer: bytes,
        };
        self.storages.push(storage);
        Ok(id)
    }

    fn add_node(
        &mut self,
        position: usize,
        last_use: &[usize],
        (limits, lowerings): (&Limits, &mut Lowerings),
        in_place: bool,
    ) -> Result<()> {
        let node = self.graph.nodes[self.order[position]].clone();
        let offloaded = self.graph.offloaded_operands(&node);
        let offloaded: Vec<_> =
            offloaded.map(|i| (node.inputs[i], self.graph.operand_share(&node, i))).collect();
        offloaded.iter().for_each(|&of| self.transfer(of, (position, false), true));
        let in_place =
            in_place.then(|| self.in_place(&node.op, &node.inputs, &node.outputs, position)).flatten();
        for (i, &output) in node.outputs.iter().enumerate() {
            let over = in_place.filter(|_| i == 0).map(|input| node.inputs[input]);
            let over = over.map(|input| (self.storage_of[input.index()], self.offset_of[input.index()]));
            match over {
                Some((Some(id), offset)) => {
                    let end = last_use[output.index()].max(position);
                    let class = self.graph.value(output).class;
                    let storage = &mut self.storages[id.0 as usize];
                    storage.last = storage.last.max(end);
                    storage.tenants.push((position, class));
                    self.naive_bytes = self.naive_bytes.saturating_add(storage.bytes);
                    self.storage_of[output.index()] = Some(id);
                    self.offset_of[output.index()] = offset;
                }
                _ => self.place(output, position, last_use, limits)?,
            }
        }
        match node.op {
            Op::ToHost { .. } => self.transfer((node.inputs[0], None), (position, false), false),
            Op::FromHost { .. } => self.transfer((node.outputs[0], None), (position, false), true),
            Op::Send { exchange, start, share } => {
                self.exchange((node.inputs[0], share), position, false, (exchange, start));
            }
            Op::Receive { exchange, start, .. } => {
                self.exchange((node.outputs[0], None), position, true, (exchange, start));
            }
            Op::Replace { exchange, start } => {
                self.exchange((node.inputs[0], None), position, true, (exchange, start));
            }
            _ => offloaded.iter().for_each(|&of| self.transfer(of, (position, true), false)),
        }
        if self.views.is_free(&node) {
            return Ok(());
        }
        let operands = match self.fused_with(self.order[position]) {
            Some(i) if self.fused_at[i] > position => return Ok(()),
            fused => self.operands(&node, fused),
        };
        for (id, (_, span)) in node.inputs.iter().zip(&operands) {
            self.check_size(*id, span.bytes, limits.max_binding, limits)?;
        }
        let results: Vec<_> = node.outputs.iter().map(|id| self.operand(*id)).collect();
        let lowered =
            lowerings.of_node(&self.graph, &node).lower(&node, &types(&operands, &results), in_place)?;
        let mut workspace = Vec::with_capacity(lowered.workspace.len());
        for (i, &bytes) in lowered.workspace.iter().enumerate() {
            let name = format!("{}.workspace{i}", self.graph.value(node.outputs[0]).name);
            let storage = self.push_storage(name, bytes, (position, position), Class::Workspace, false)?;
            workspace.push(Span::new(storage, 0, bytes));
        }
        self.dispatches += lowered.launches.len();
        self.nodes.push(Assigned { position, in_place, workspace });
        Ok(())
    }

    /// Creates the dispatches.
    ///
    /// # Errors
    /// [`Error::Internal`] for a kernel with more parameters than a slot holds.
    pub(in crate::compile) fn lower(&mut self, limits: &Limits) -> Result<()> {
        let mut lowerings = Lowerings::new(&self.graph, limits);
        let mut launches = Vec::with_capacity(self.dispatches);
        for Assigned { position, in_place, workspace } in &self.nodes {
            let n = self.order[*position];
            let node = &self.graph.nodes[n];
            let operands = self.operands(node, self.fused_with(n));
            let results: Vec<_> = node.outputs.iter().map(|id| self.operand(*id)).collect();
            let lowered =
                lowerings.of_node(&self.graph, node).lower(node, &types(&operands, &results), *in_place)?;
            for launch in &lowered.launches {
                if launch.params.len() > MAX_PARAMS {
                    return Err(Error::Internal(format!("{} has too many parameters", launch.kernel.name)));
                }
                let launch = launch.clone().map(|operand| match operand {
                    Operand::Input(i) => operands[i].1,
                    Operand::Output(i) => results[i].1,
                    Operand::Workspace(i) => workspace[i],
                });
                launches.push((launch, *position));
            }
        }
        self.launches = launches;
        Ok(())
    }

    /// Returns the work of each of [`Program::launches`], for modelled times.
    pub(in crate::compile) fn jobs(&self, limits: &Limits) -> Result<Vec<Job>> {
        let mut lowerings = Lowerings::new(&self.graph, limits);
        let mut jobs = Vec::with_capacity(self.dispatches);
        for Assigned { position, in_place, .. } in &self.nodes {
            let n = self.order[*position];
            let node = &self.graph.nodes[n];
            let operands = self.operands(node, self.fused_with(n));
            let results: Vec<_> = node.outputs.iter().map(|id| self.operand(*id)).collect();
            let lowering = lowerings.of_node(&self.graph, node);
            jobs.extend(lowering.jobs(node, &types(&operands, &results), *in_place)?);
        }
        Ok(jobs)
    }

    /// Index of the fused update that contains a node.
    fn fused_with(&self, n: usize) -> Option<usize> {
        self.graph.fused_updates.iter().position(|fused| fused.updates.contains(&n))
    }

    /// Types and spans of a node's operands, or of the operands of the fused update that it ends. A fused
    /// update also updates the padding between its operands.
    fn operands(&self, node: &Node, fused: Option<usize>) -> Vec<Placed> {
        let Some(i) = fused else {
            return node.inputs.iter().enumerate().map(|(i, id)| self.operand_of(node, i, *id)).collect();
        };
        let updates = &self.graph.fused_updates[i].updates;
        let [first, last] = [updates[0], updates[updates.len() - 1]].map(|n| &self.graph.nodes[n].inputs);
        let whole = |(i, (&first, &last)): (usize, (&ValueId, &ValueId))| {
            let (types, span) = self.operand(first);
            if i == Update::SCALARS {
                return (types, span);
            }
            let (_, start) = self.in_row(span);
            let (_, end) = self.in_row(self.operand(last).1);
            let bytes = end - start + self.graph.value(last).bytes();
            ((Shape::from([(bytes / 4) as usize]), DType::F32), Span::new(span.storage, span.offset, bytes))
        };
        first.iter().zip(last).enumerate().map(whole).collect()
    }

    /// Type and span of what an operation reads and changes of its operand `i`.
    fn operand_of(&self, node: &Node, i: usize, id: ValueId) -> Placed {
        let ((shape, dtype), span) = self.operand(id);
        match self.graph.operand_share(node, i) {
            None => ((shape, dtype), span),
            Some(share) => {
                // Of what is offloaded, the device has no more than this.
                let before = if self.graph.value(id).offloaded { 0 } else { dtype.bytes(share.start) };
                let offset = span.offset + before;
                let shape = Shape::from([share.len as usize]);
                ((shape, dtype), Span::new(span.storage, offset, dtype.bytes(share.len)))
            }
        }
    }

    /// Type and span of an operand.
    pub(in crate::compile) fn operand(&self, id: ValueId) -> Placed {
        let value = self.graph.value(id);
        let (storage, offset, bytes) = self.place_of(id);
        let storage = storage.expect("operands get their storage before they are used");
        ((value.shape, value.dtype), Span::new(storage, offset, bytes))
    }

    pub(super) fn place_of(&self, id: ValueId) -> (Option<StorageId>, u64, u64) {
        (self.storage_of[id.index()], self.offset_of[id.index()], self.graph.value(id).bytes())
    }

    /// Assigns a new storage to a value or, for a view, its offset in the containing value. The storage of a
    /// concatenation is assigned when the first of its parts is computed.
    fn place(&mut self, id: ValueId, position: usize, last_use: &[usize], limits: &Limits) -> Result<()> {
        if self.storage_of[id.index()].is_some() {
            return Ok(());
        }
        let Some((around, offset)) = self.views.around(id) else {
            let end = last_use[id.index()].max(position);
            return self.new_storage(id, position, end, limits).map(drop);
        };
        self.place(around, position, last_use, limits)?;
        self.storage_of[id.index()] = self.storage_of[around.index()];
        self.offset_of[id.index()] = self.offset_of[around.index()] + offset;
        Ok(())
    }

    /// Index of the input that the node's first result may overwrite: nothing reads that memory afterwards,
    /// through any view.
    fn in_place(&self, op: &Op, inputs: &[ValueId], outputs: &[ValueId], position: usize) -> Option<usize> {
        let output = self.graph.value(*outputs.first().filter(|id| !self.views.is_view(**id))?);
        let types: Vec<_> =
            inputs.iter().map(|id| (self.graph.value(*id).shape, self.graph.value(*id).dtype)).collect();
        kernels::in_place_inputs(op, &types, output.shape).into_iter().find(|&i| {
            let Some(id) = self.storage_of[inputs[i].index()] else { return false };
            let storage = &self.storages[id.0 as usize];
            let elsewhere = |j: usize| j != i && self.storage_of[inputs[j].index()] == Some(id);
            !storage.persistent && storage.last == position && !(0..inputs.len()).any(elsewhere)
        })
    }
}

/// Type and span of an operand or result.
type Placed = (Type, Span);

/// The types of operands and of results.
fn types(operands: &[Placed], results: &[Placed]) -> [Vec<Type>; 2] {
    [operands, results].map(|places| places.iter().map(|(of, _)| *of).collect())
}

/// The last position that reads each value's memory, directly or through views. Outputs are read after the
/// last operation.
fn last_uses(graph: &Graph, roots: &[ValueId], order: &[usize]) -> Vec<usize> {
    let mut last = vec![0; graph.values.len()];
    for (position, &n) in order.iter().enumerate() {
        for id in &graph.nodes[n].inputs {
            last[roots[id.index()].index()] = position;
        }
    }
    for (_, id) in &graph.outputs {
        last[roots[id.index()].index()] = order.len();
    }
    (0..graph.values.len()).map(|i| last[roots[i].index()]).collect()
}
