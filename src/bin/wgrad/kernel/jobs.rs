//! Operations that can be measured alone: each has a plan, the dispatches of it that are timed, and counts of their
//! operations and bytes.

use std::sync::Arc;

use wgrad::autodiff::Gradients;
use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::dtype::{DType, Precision, WeightStorage};
use wgrad::graph::{Class, Graph, Init, Mode, Param, Params, Tensor, Trace, Value};
use wgrad::limits::Limits;
use wgrad::optim::{Clip, Optimizer};
use wgrad::shape::Shape;
use wgrad::{Error, Result};

use super::work::{Timed, Work};

/// Returns the precision to plan for: with `f16` operands, cooperative matrices lose no precision.
pub fn precision(dtype: WeightStorage) -> Precision {
    match dtype {
        WeightStorage::F16(_) => Precision::F16,
        WeightStorage::F32 | WeightStorage::Bf16(_) | WeightStorage::Bf24 => Precision::F32,
    }
}

/// One operation, planned.
pub struct Job {
    pub plan: Plan,
    /// The dispatches to time, by their numbers.
    pub launches: Vec<usize>,
    /// Bytes of operands and results, each counted once.
    pub bytes: f64,
}

impl Job {
    /// Plans an operation with operands stored as `dtype`. As in any plan, casts precede a kernel that cannot
    /// read it.
    pub fn new(work: &Work, dtype: WeightStorage, limits: &Limits) -> Result<Self> {
        let operands = Operands::of(work, &work.dims, |_| Init::fan_in(4));
        let plan = match work.timed {
            Timed::All => {
                let forward = Forward::trace(&operands.params, "y", |trace| operands.result(work, trace))?;
                forward.plan_in(precision(dtype), dtype, limits)?
            }
            Timed::Training(_) => {
                let step = operands.step(work)?;
                let settings = PlanOptions {
                    optimizer: Optimizer::named("sgd")?,
                    precision: precision(dtype),
                    weights: dtype,
                    ..PlanOptions::default()
                };
                step.plan(&settings, limits)?
            }
            Timed::Update(_) => Plan::of_graph(operands.update(dtype)?, Some(Work::optimizer()?), limits)?,
        };
        if !matches!(work.timed, Timed::Update(_)) {
            held(&plan, dtype)?;
        }
        let program = &plan.program;
        let timed = |position: usize| match work.timed {
            Timed::Training(op) | Timed::Update(op) => {
                program.graph.nodes[program.order[position]].op.name() == op
            }
            Timed::All => true,
        };
        let launches: Vec<usize> = program
            .launches
            .iter()
            .enumerate()
            .filter(|(_, (_, position))| timed(*position))
            .map(|(i, _)| i)
            .collect();
        if launches.is_empty() {
            let ops: Vec<_> = program.graph.nodes.iter().map(|node| node.op.name()).collect();
            return Err(Error::Internal(format!("none of {} is timed", ops.join(", "))));
        }
        // Operands in the narrow format, and all other tensors, which are f32.
        let narrow = dtype.storage().unwrap_or(DType::F32).bytes(2) as f64 / 2.0;
        let bytes = narrow * work.narrow + 4.0 * work.others;
        Ok(Self { plan, launches, bytes })
    }

    /// Returns the names of the kernels that are timed, in order.
    pub fn variant(&self) -> String {
        let launches = &self.plan.program.launches;
        let names: Vec<&str> = self.launches.iter().map(|&i| &*launches[i].0.kernel.name).collect();
        names.join(" + ")
    }
}

/// Operands are parameters, which are persistent; inputs would be copied to the device before each run.
pub struct Operands {
    pub params: Params,
    operands: Vec<Param>,
}

impl Operands {
    /// Registers the operands of `work` with dimensions of these lengths; `init` returns the elements of the operand with
    /// this number.
    pub fn of(work: &Work, lengths: &[usize], init: impl Fn(usize) -> Init) -> Self {
        let params = Params::new(0);
        let one = |(i, operand): (usize, &super::work::Operand)| {
            let dims: Vec<usize> = operand.dims.iter().map(|&dim| lengths[dim]).collect();
            params.add(operand.name, Shape::try_new(&dims).unwrap_or(Shape::from([])), init(i))
        };
        let operands = work.operands.iter().enumerate().map(one).collect();
        Self { params, operands }
    }

    pub fn tensors(&self, trace: &Trace) -> Vec<Tensor> {
        self.operands.iter().map(|param| trace.param(param)).collect()
    }

    pub fn list(&self) -> &[Param] {
        &self.operands
    }

    /// The operation's result.
    pub fn result(&self, work: &Work, trace: &Trace) -> Tensor {
        (work.build)(trace, &self.tensors(trace))
    }

    /// A training step around the operation, with the gradients of the operands that `work` checks as outputs. The loss
    /// is the sum of the result times the last operand, or the result itself if that is one number. Only a number that
    /// is added to the loss is trained, so that no other gradient is computed.
    pub fn step(&self, work: &Work) -> Result<TrainStep> {
        let trained = self.params.add("trained", Shape::from([]), Init::Constant(0.0));
        for operand in &self.operands {
            self.params.freeze(operand.name())?;
        }
        TrainStep::trace(&self.params, |trace| {
            let operands = self.tensors(trace);
            let y = (work.build)(trace, &operands);
            for result in &work.results {
                let of = self.operands.iter().position(|param| param.name() == result.of);
                if let Some(of) = of {
                    trace.output_gradient(&result.output(), &operands[of]);
                }
            }
            let loss = match operands.last() {
                Some(dy) if y.shape().rank() > 0 => y.mul(dy).sum(&[]),
                _ => y,
            };
            loss.add(&trace.param(&trained))
        })
    }

    /// The update of the first operand, stored as `dtype`, by the second.
    pub fn update(&self, dtype: WeightStorage) -> Result<Graph> {
        let mut graph = Trace::record(&self.params, Mode::Train, "loss", |trace| {
            let operands = self.tensors(trace);
            operands[2].sum(&[])
        })?;
        let id = |i: usize| {
            let found = graph.ids().find(|(_, v)| v.name == self.operands[i].name()).map(|(id, _)| id);
            found.ok_or_else(|| Error::Internal("the update's operands were not traced".to_owned()))
        };
        let (weight, gradient) = (id(0)?, id(1)?);
        graph.values[weight.index()].dtype = dtype.storage().unwrap_or(DType::F32);
        let trace = Trace::over(graph, Mode::Train);
        let pairs = vec![(weight, trace.tensor(gradient))];
        Work::optimizer()?.append(
            &trace,
            Gradients { pairs, weights: dtype, ..Gradients::default() },
            Clip::Off,
        )?;
        trace.finish()
    }
}

/// Returns an error if an operand is not stored as `dtype`: plans store small operands in 32 bits.
fn held(plan: &Plan, dtype: WeightStorage) -> Result<()> {
    let Some(dtype) = dtype.storage() else { return Ok(()) };
    let operand = |value: &&Value| value.class == Class::Parameter && value.shape.rank() >= 2;
    match plan.graph().values.iter().filter(operand).find(|value| value.dtype != dtype) {
        None => Ok(()),
        Some(value) => Err(Error::setting(
            "command line",
            format!(
                "--dtype {dtype}: operand `{}` {} has {} elements, and plans hold fewer than {} in f32; take a larger --size",
                value.name,
                value.shape,
                value.shape.numel(),
                WeightStorage::SMALLEST
            ),
        )),
    }
}

/// Initial elements from a list.
pub fn data(elements: Vec<f32>) -> Init {
    Init::Data(Arc::from(elements))
}
