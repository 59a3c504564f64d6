//! The `f64` reference: an interpreter of a [`Graph`] in plain loops. It is slow and simple and shares no
//! code with the kernels. Tests compare the results of a device with it.
//!
//! ```
//! use wgrad::graph::{Mode, Params, Trace};
//! use wgrad::reference::Twin;
//! let graph = Trace::record(&Params::new(0), Mode::Eval, "y", |trace| trace.input("x", [3]).square())?;
//! let mut twin = Twin::new(&graph);
//! twin.set("x", &[1.0, -2.0, 3.0])?;
//! twin.run()?;
//! assert_eq!(twin.output("y")?, [1.0, 4.0, 9.0]);
//! # Ok::<(), wgrad::Error>(())
//! ```

mod attention;
mod batch_norm;
mod elementwise;
mod embedding;
mod fused;
mod halves;
mod images;
mod loss;
mod loss_scale;
mod matmul;
mod movement;
mod noise;
mod norm;
mod recurrent;
mod reduce;
mod rotary;
mod rows;
mod update;

pub use crate::graph::special::{erf, erfc};
pub use elementwise::{attention_keeps, dropout_keeps};
#[cfg(any(feature = "gpu", test))]
pub(crate) use halves::corrected;

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{
    Attend, Class, CustomKernel, Graph, Node, Op, STEP_SCALARS, Share, Source, StepScalars, Value, ValueId,
};
use crate::shape::Shape;

use noise::Noise;

/// The reference interpreter of a graph, with `f64` values for each tensor; `u32` elements are exact.
///
/// Parameters and optimizer state persist across runs, as on a device.
#[derive(Clone, Debug)]
pub struct Twin<'a> {
    graph: &'a Graph,
    memory: Vec<Option<Vec<f64>>>,
    /// Tensors offloaded to host memory, by slot.
    host: BTreeMap<u32, Vec<f64>>,
    /// Detached values that do not follow their operands.
    held: BTreeMap<ValueId, Vec<f64>>,
    noise: Noise,
}

/// Operand of an operation: shape and elements, row-major.
#[derive(Clone, Copy)]
struct Array<'a> {
    shape: Shape,
    data: &'a [f64],
}

impl<'a> Twin<'a> {
    /// Creates an interpreter with initial parameters and zeros as optimizer state; inputs have to be
    /// [set](Self::set).
    pub fn new(graph: &'a Graph) -> Self {
        let start = |value: &Value| {
            let zeros = || Some(vec![0.0; value.shape.numel() as usize]);
            match value.class {
                Class::Parameter => match graph.parameters.iter().find(|p| p.name() == value.name) {
                    Some(param) => Some(held(value.dtype, &param.initial(0..value.shape.numel()))),
                    None => zeros(),
                },
                Class::Optimizer => zeros(),
                _ => None,
            }
        };
        let memory = graph.values.iter().map(start).collect();
        Self { graph, memory, host: BTreeMap::new(), held: BTreeMap::new(), noise: Noise::default() }
    }

    /// Perturbs from here on every number that is set and every number that an operation computes, by a
    /// random relative change of up to ± `size`. The change in a result measures how well the result is
    /// conditioned in arithmetic with such rounding errors.
    #[cfg(any(feature = "gpu", test))]
    pub(crate) fn perturb(&mut self, seed: u64, size: f64) {
        self.noise = Noise { seed, size };
    }

    /// Holds the results of all [`Op::Detach`] at those of another run: what the derivative of a loss takes as constant.
    #[cfg(any(feature = "gpu", test))]
    pub(crate) fn hold_detached(&mut self, other: &Twin) {
        let detached = self.graph.nodes.iter().filter(|node| node.op == Op::Detach);
        let value = |node: &Node| Some((node.outputs[0], other.value(node.outputs[0])?.to_vec()));
        self.held = detached.filter_map(value).collect();
    }

    /// Replaces an input, a parameter or optimizer state, row-major.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names; [`Error::Input`] for a wrong length.
    pub fn set(&mut self, name: &str, data: &[f64]) -> Result<()> {
        let fed = |value: &Value| value.class == Class::Input || value.class.is_persistent();
        let Some((id, value)) = self.graph.ids().find(|(_, value)| fed(value) && value.name == name) else {
            let known = self.graph.values.iter().filter(|v| fed(v)).map(|v| v.name.clone()).collect();
            return Err(Error::Unknown { kind: "input", name: name.to_owned(), known });
        };
        let mut data = match value.dtype.is_packed() && value.class.is_persistent() {
            true => held(value.dtype, &data.iter().map(|&x| x as f32).collect::<Vec<_>>()),
            false => data.to_vec(),
        };
        // Perturbs after the rounding: a change as small as a rounding error of `f32` would be lost in a
        // 16-bit weight.
        if value.dtype != DType::U32 {
            self.noise.change(&mut data);
        }
        if value.shape.numel() != data.len() as u64 {
            let message =
                format!("{} takes {} elements, got {}", value.shape, value.shape.numel(), data.len());
            return Err(Error::Input { name: name.to_owned(), message });
        }
        self.memory[id.index()] = Some(data);
        Ok(())
    }

    /// Does what [`Twin::set`] does, for `f32` elements.
    ///
    /// # Errors
    /// Those of [`Twin::set`].
    pub fn set_f32(&mut self, name: &str, data: &[f32]) -> Result<()> {
        self.set(name, &data.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())
    }

    /// Does what [`Twin::set`] does, for class indices.
    ///
    /// # Errors
    /// Those of [`Twin::set`].
    pub fn set_u32(&mut self, name: &str, data: &[u32]) -> Result<()> {
        self.set(name, &data.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())
    }

    /// Sets the step scalars, as a session does before a step. Does nothing for a graph without them.
    pub fn set_step(&mut self, scalars: &StepScalars) {
        let words: &[u32] = bytemuck::cast_slice(std::slice::from_ref(scalars));
        let id = self.graph.inputs().find(|(_, value)| value.name == STEP_SCALARS).map(|(id, _)| id);
        if let Some(id) = id {
            self.memory[id.index()] = Some(words.iter().map(|&word| f64::from(word)).collect());
        }
    }

    /// Computes every node once, in order.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that was never set.
    pub fn run(&mut self) -> Result<()> {
        for node in &self.graph.nodes {
            self.compute(node)?;
        }
        Ok(())
    }

    /// Returns the elements of any value; `None` before the first run.
    pub fn value(&self, id: ValueId) -> Option<&[f64]> {
        self.memory[id.index()].as_deref()
    }

    /// Returns the elements of an output.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known outputs; [`Error::NotReady`] before the first run.
    pub fn output(&self, name: &str) -> Result<&[f64]> {
        let outputs = &self.graph.outputs;
        let Some((_, id)) = outputs.iter().find(|(other, _)| other == name) else {
            let known = outputs.iter().map(|(name, _)| name.clone()).collect();
            return Err(Error::Unknown { kind: "output", name: name.to_owned(), known });
        };
        self.value(*id).ok_or_else(|| Error::NotReady(format!("`{name}` was not computed yet")))
    }

    /// Returns the elements of a parameter or of optimizer state.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names.
    pub fn parameter(&self, name: &str) -> Result<&[f64]> {
        let stays = |value: &&Value| value.class.is_persistent();
        let found = self.graph.ids().find(|(_, value)| stays(value) && value.name == name);
        found.and_then(|(id, _)| self.value(id)).ok_or_else(|| {
            let known = self.graph.values.iter().filter(stays).map(|v| v.name.clone()).collect();
            Error::Unknown { kind: "parameter", name: name.to_owned(), known }
        })
    }

    fn compute(&mut self, node: &Node) -> Result<()> {
        match &node.op {
            Op::Update { rule, rate, stored, .. } if self.has_all_state(node) => {
                let held = self.graph.value(node.inputs[0]).dtype;
                let share = |i: usize| self.graph.operand_share(node, i);
                let shares: Vec<Option<Share>> = (0..node.inputs.len()).map(share).collect();
                return self.update(node, |memory| {
                    let range = |share: &Share| share.start as usize..(share.start + share.len) as usize;
                    let cut = |(all, share): (&Vec<f64>, &Option<Share>)| match share {
                        Some(share) => all[range(share)].to_vec(),
                        None => all.clone(),
                    };
                    let mut own: Vec<Vec<f64>> = memory.iter().zip(&shares).map(cut).collect();
                    halves::load(*stored, &mut own);
                    update::update(rule, *rate, &mut own);
                    let first = shares[0].map_or(0, |share| share.start);
                    halves::store(held, (*stored, first), &mut own);
                    for ((all, share), own) in memory.iter_mut().zip(&shares).zip(own) {
                        match share {
                            Some(share) => all[range(share)].copy_from_slice(&own),
                            None => *all = own,
                        }
                    }
                });
            }
            Op::ToHost { slot } => {
                self.host.insert(*slot, self.read(node.inputs[0])?.to_vec());
                return Ok(());
            }
            Op::FromHost { slot } => {
                self.memory[node.outputs[0].index()] = self.host.get(slot).cloned();
                return Ok(());
            }
            Op::Send { .. } | Op::Receive { .. } | Op::Replace { .. } | Op::Update { .. } => {
                let message = "the reference has one rank: it runs no plan with exchanges";
                return Err(Error::PlanMismatch(message.to_owned()));
            }
            Op::RunningStats(running) => {
                return self.update(node, |memory| batch_norm::running(memory, running));
            }
            Op::BatchStats { eps, running: Some(running) } => {
                let results = batch_norm::stats(self.operands(node)?[0], *eps);
                let [mean, var] = [&results[0], &results[2]].map(Clone::clone);
                self.update(node, |memory| {
                    let mut moved =
                        [std::mem::take(&mut memory[1]), std::mem::take(&mut memory[2]), mean, var];
                    batch_norm::running(&mut moved, running);
                    let [mean, var, ..] = moved;
                    (memory[1], memory[2]) = (mean, var);
                })?;
                for (id, data) in node.outputs.iter().zip(results) {
                    self.memory[id.index()] = Some(data);
                }
                return Ok(());
            }
            Op::LossScale { settings, counting, early } => {
                let mut results = [Vec::new(), Vec::new()];
                let judge = |memory: &mut [_]| loss_scale::judge(memory, *settings, *counting, *early);
                self.update(node, |memory| results = judge(memory))?;
                for (id, data) in node.outputs.iter().zip(results) {
                    self.memory[id.index()] = Some(data);
                }
                return Ok(());
            }
            Op::MovingAverage { scale, share } => {
                self.update(node, |memory| update::moving_average(memory, *scale, *share))?;
                self.memory[node.outputs[0].index()] = Some(self.read(node.inputs[0])?.to_vec());
                return Ok(());
            }
            Op::CachedAttention(attend) => {
                let held = self.graph.value(node.inputs[Attend::CACHES[0]]).dtype;
                let inputs = self.operands(node)?;
                let (o, stored) = attention::over_cache(&inputs, attend, held);
                for (i, cache) in Attend::CACHES.into_iter().zip(stored) {
                    self.memory[node.inputs[i].index()] = Some(cache);
                }
                self.memory[node.outputs[0].index()] = Some(o);
                return Ok(());
            }
            _ => {}
        }
        let mut inputs = self.operands(node)?;
        let others = inputs.split_off(node.op.main_inputs(inputs.len()));
        let shape = |i: usize| self.graph.value(node.outputs[i]).shape;
        let x = |i: usize| inputs[i];
        let mut results = match &node.op {
            Op::MatMul { ta, tb, .. } => vec![matmul::matmul(x(0), x(1), *ta, *tb)],
            Op::Mask(f) => vec![elementwise::mask(*f, x(0).data)],
            Op::MaskGrad(f) => vec![elementwise::mask_grad(*f, x(0).data, x(1).data)],
            Op::Quantise { dtype, key } => vec![elementwise::quantise(x(0), x(1), *dtype, *key)],
            Op::Fused(chain) => vec![fused::chain(chain, &inputs, self.noise)],
            op if fused::can_fuse(op) => vec![fused::link(op, &inputs, shape(0))],
            Op::Reduce { kind, axes } => vec![reduce::reduce(*kind, *axes, x(0))],
            Op::SumParts { shape } => vec![reduce::sum_parts(*shape, x(0), inputs.get(1).copied())],
            Op::Softmax { log } => vec![rows::softmax(x(0), *log)],
            Op::SoftmaxGrad { log } => vec![rows::softmax_grad(x(0), x(1), *log)],
            Op::CrossEntropy => loss::cross_entropy(x(0), x(1)),
            Op::CrossEntropyGrad => vec![loss::cross_entropy_grad(x(0), x(1), x(2), x(3))],
            Op::LabelShare => vec![loss::label_share(x(0))],
            Op::Detach if self.held.contains_key(&node.outputs[0]) => {
                vec![self.held[&node.outputs[0]].clone()]
            }
            // Of one rank.
            Op::Reshape(_) | Op::Copy | Op::Detach | Op::SumRanks { .. } => vec![x(0).data.to_vec()],
            Op::Permute(perm) => vec![movement::permute(x(0), perm)],
            Op::Slice { axis, start, len } => vec![movement::slice(x(0), *axis, *start, *len)],
            Op::Stride { axis, start, step, len } => vec![movement::stride(x(0), *axis, *start, *step, *len)],
            Op::Place { axis, start, step, len } => vec![movement::place(x(0), *axis, *start, *step, *len)],
            Op::Iota { shape, axis } => vec![movement::iota(*shape, *axis)],
            Op::Gather { axis } => vec![movement::gather(x(0), x(1), *axis)],
            Op::ScatterAdd { axis, len } => vec![movement::scatter_add(x(0), x(1), *axis, *len)],
            Op::ArgSort { descending } => vec![movement::argsort(x(0), *descending)],
            Op::Concat { axis } => vec![movement::concat(&inputs, *axis)],
            Op::Fill { shape, value } => vec![vec![f64::from(*value); shape.numel() as usize]],
            Op::LossScaleSeed { start } => vec![vec![loss_scale::seed(x(0).data, *start)]],
            Op::NotFinite => {
                let held = node.inputs.iter().map(|id| self.graph.value(*id).dtype);
                let found = inputs.iter().zip(held).skip(1);
                let found = found.map(|(x, held)| loss_scale::not_finite(x.data, held));
                vec![vec![found.fold(x(0).data[0], f64::max)]]
            }
            Op::Update { .. }
            | Op::RunningStats(_)
            | Op::MovingAverage { .. }
            | Op::LossScale { .. }
            | Op::CachedAttention(_)
            | Op::ToHost { .. }
            | Op::FromHost { .. }
            | Op::Send { .. }
            | Op::Receive { .. }
            | Op::Replace { .. } => {
                unreachable!("handled above")
            }
            Op::Custom(own) => vec![custom(own, &inputs)?],
            Op::BatchStats { eps, .. } => batch_norm::stats(x(0), *eps),
            Op::BatchNormGrad { activation, training } => batch_norm::grad(&inputs, *activation, *training),
            Op::Embedding => vec![embedding::embedding(x(0), x(1))],
            Op::EmbeddingGrad { rows, share } => {
                vec![embedding::grad(x(0), x(1), inputs.get(2).copied(), *rows, *share)]
            }
            Op::RowNorm { kind, eps } => norm::norm(&inputs, *kind, *eps),
            Op::RowNormGrad { kind } => norm::grad(&inputs, *kind),
            Op::Rotary { heads, rope, back } => vec![rotary::rotary(&inputs, *heads, rope, *back)],
            Op::Gates(gates) => recurrent::forward(&inputs, *gates),
            Op::GatesGrad(gates) => recurrent::gradient(&inputs, *gates),
            Op::Attention(attend) => attention::attention(&inputs, attend),
            Op::AttentionGrad(attend) => attention::gradient(&inputs, attend),
            op => self.image(op, &inputs, shape(0)),
        };
        self.noise.change_results(&node.op, &mut results);
        if let Some(then) = node.op.epilogue() {
            let first = Array { shape: then.shape(), data: &results[0] };
            results = vec![fused::chain(then, &[&[first], &others[..]].concat(), self.noise)];
        }
        for (id, data) in node.outputs.iter().zip(results) {
            debug_assert_eq!(data.len() as u64, self.graph.value(*id).shape.numel());
            self.memory[id.index()] = Some(data);
        }
        Ok(())
    }

    fn image(&self, op: &Op, inputs: &[Array], to: Shape) -> Vec<Vec<f64>> {
        let x = |i: usize| inputs[i];
        // The operands of a fused batch norm follow the first two operands.
        let normed = |activation| batch_norm::norm(&[x(0), x(2), x(3), x(4), x(5)], activation);
        let like_x = |data| Array { shape: x(0).shape, data };
        let to = images::dims(Array { shape: to, data: &[] });
        match *op {
            Op::Conv2d { window, groups, source, .. } => {
                let of = |x: Array, bias: Option<&Array>| {
                    vec![images::conv2d(x, inputs[1], bias.copied(), window, groups, to)]
                };
                match source {
                    Source::Tensor => of(x(0), inputs.get(2)),
                    Source::Normed(activation) => of(like_x(&normed(activation)), inputs.get(6)),
                    Source::Joined => {
                        let (second, others) = inputs.split_last().unwrap_or((&inputs[0], &[]));
                        let (shape, more) = (x(0).shape, second.shape.dims()[1]);
                        let data = movement::concat(&[x(0), *second], 1);
                        of(Array { shape: shape.with(1, shape.dims()[1] + more), data: &data }, others.get(2))
                    }
                }
            }
            Op::Conv2dInput { window, groups, .. } => {
                vec![images::conv2d_input(x(0), x(1), inputs.get(2).copied(), window, groups, to)]
            }
            Op::Conv2dWeight { window, groups, normed: Some(activation) } => {
                vec![images::conv2d_weight(like_x(&normed(activation)), x(1), window, groups, to)]
            }
            Op::Conv2dWeight { window, groups, normed: None } => {
                vec![images::conv2d_weight(x(0), x(1), window, groups, to)]
            }
            Op::MaxPool2d(window) => images::max_pool2d(x(0), window, to),
            Op::MaxPool2dGrad { window, .. } => vec![images::max_pool2d_grad(x(0), x(1), window, to)],
            Op::AvgPool2d(over) => vec![images::avg_pool2d(x(0), over, to)],
            Op::AvgPool2dGrad { over, .. } => vec![images::avg_pool2d_grad(x(0), over, to)],
            Op::Resample { mode, .. } => vec![images::resample(x(0), mode, to)],
            Op::ResampleGrad { mode, .. } => vec![images::resample_grad(x(0), mode, to)],
            _ => unreachable!("`compute` knows the others"),
        }
    }

    /// Whether no other rank has a part of the optimizer state.
    fn has_all_state(&self, node: &Node) -> bool {
        node.inputs.iter().all(|id| self.graph.value(*id).part_of.is_none())
    }

    fn update(&mut self, node: &Node, change: impl FnOnce(&mut [Vec<f64>])) -> Result<()> {
        let mut memory = Vec::new();
        for id in &node.inputs {
            memory.push(self.read(*id)?.to_vec());
        }
        change(&mut memory);
        for &position in node.op.mutates() {
            self.memory[node.inputs[position].index()] = Some(std::mem::take(&mut memory[position]));
        }
        Ok(())
    }

    fn operands(&self, node: &Node) -> Result<Vec<Array<'_>>> {
        let one = |id: &ValueId| Ok(Array { shape: self.graph.value(*id).shape, data: self.read(*id)? });
        node.inputs.iter().map(one).collect()
    }

    fn read(&self, id: ValueId) -> Result<&[f64]> {
        self.value(id).ok_or_else(|| Error::Input {
            name: self.graph.value(id).name.clone(),
            message: "nothing was set; call `set` before the first run".to_owned(),
        })
    }
}

/// Returns the result of a kernel that a model wrote, by its own definition in `f64`.
fn custom(own: &CustomKernel, inputs: &[Array]) -> Result<Vec<f64>> {
    let Some(reference) = &own.reference else {
        let message = format!(
            "kernel `{}` has no definition in f64, so the reference cannot compute it: give it one by \
             `KernelCall::reference`",
            own.name
        );
        return Err(Error::unsupported("reference", message));
    };
    let inputs: Vec<&[f64]> = inputs.iter().map(|x| x.data).collect();
    let data = reference(&inputs);
    let (count, (shape, _)) = (data.len(), own.result);
    if count as u64 != shape.numel() {
        let message = format!("its definition in f64 returns {count} elements, its result is {shape}");
        return Err(Error::Kernel { name: own.name.clone(), line: 0, message });
    }
    Ok(data)
}

/// Returns elements rounded to this type.
fn held(dtype: DType, data: &[f32]) -> Vec<f64> {
    dtype.unpack(&dtype.pack(data), data.len()).into_iter().map(f64::from).collect()
}

/// Returns the offset of every position of `dims` with `strides`, in row-major order of the positions.
fn offsets(dims: &[usize], strides: &[u64]) -> Vec<usize> {
    let mut all = vec![0usize];
    for (&len, &stride) in dims.iter().zip(strides) {
        let mut next = Vec::with_capacity(all.len() * len);
        for &base in &all {
            next.extend((0..len).map(|i| base + i * stride as usize));
        }
        all = next;
    }
    all
}
