//! Kernels of a model's own, written in WGSL.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location};
use std::sync::Arc;

use super::{Op, Tensor, Trace};
use crate::dtype::DType;
use crate::shape::Shape;

/// The definition of a kernel in `f64`: operands in order, row-major, to the elements of the result.
type Reference = dyn Fn(&[&[f64]]) -> Vec<f64> + Send + Sync;

/// What [`Op::Custom`] runs: one dispatch of a model's own kernel.
pub struct CustomKernel {
    /// Name in reports.
    pub(crate) name: String,
    /// WGSL, as the model wrote it.
    pub(crate) source: Arc<str>,
    /// The variable of each operand.
    pub(crate) names: Vec<String>,
    /// Threads of a workgroup.
    pub(crate) workgroup: u32,
    /// Threads of the dispatch, if they are not one for each element of the result.
    pub(crate) threads: Option<u64>,
    /// Floating-point operations, if they are not one for each element of the result.
    pub(crate) flops: Option<u64>,
    /// Shape and element type of the result.
    pub(crate) result: (Shape, DType),
    /// Its definition for the reference. Nothing is kept of a call that panics, so plans stay unwind safe.
    pub(crate) reference: Option<AssertUnwindSafe<Arc<Reference>>>,
}

impl CustomKernel {
    /// The variable that the kernel writes.
    pub(crate) const RESULT: &'static str = "y";
    /// Most operands: with the result as many storage buffers as every adapter binds.
    pub(crate) const MAX_INPUTS: usize = 7;
    /// The start of what is appended to the model's source.
    pub(crate) const APPENDED: &'static str = "\n\nstruct Grid { threads_x: u32 }\n";
    /// Names that are declared there, beside those of the variables.
    const DECLARED: [&'static str; 5] = ["main", "thread_of", "WORKGROUP", "Grid", "grid_"];
    /// Most threads of a workgroup on every adapter.
    const MAX_WORKGROUP: u32 = 256;

    /// Returns what is wrong with the declaration, for operands of these types.
    fn mistake(&self, types: &[DType]) -> Option<String> {
        let identifier = |name: &str| {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(word)
        };
        let (count, most) = (self.names.len(), Self::MAX_INPUTS);
        if count > most {
            return Some(format!("{count} inputs; a kernel takes at most {most}: concatenate some"));
        }
        for (i, name) in self.names.iter().enumerate() {
            if !identifier(name) {
                return Some(format!("input {i} is called `{name}`, which is no name of a WGSL variable"));
            }
            let constants = |name: &str| [format!("{name}_len"), format!("{name}_shape")];
            for other in self.names[..i].iter().map(String::as_str).chain([Self::RESULT]) {
                if other == name {
                    return Some(format!(
                        "two variables are called `{name}`; the result is `{}`",
                        Self::RESULT
                    ));
                }
                if constants(other).contains(name) || constants(name).iter().any(|own| own == other) {
                    return Some(format!("`{name}` and `{other}`: one is a constant of the other"));
                }
            }
            if Self::DECLARED.contains(&&name[..]) {
                return Some(format!("input {i} is called `{name}`, which is declared already"));
            }
        }
        for (name, dtype) in self.names.iter().zip(types).chain([(&"the result".to_owned(), &self.result.1)])
        {
            if dtype.is_half() {
                return Some(format!(
                    "{name} is {dtype}; kernels read and write f32 and u32: cast it to f32"
                ));
            }
        }
        if !(1..=Self::MAX_WORKGROUP).contains(&self.workgroup) {
            let most = Self::MAX_WORKGROUP;
            return Some(format!("workgroups of {} threads; from 1 to {most} can be", self.workgroup));
        }
        if self.threads.is_some_and(|threads| !(1..=u64::from(u32::MAX)).contains(&threads)) {
            return Some(format!("{:?} threads; from 1 to 2^32 - 1 can be", self.threads.unwrap_or(0)));
        }
        if self.result.0.numel() == 0 {
            return Some(format!("the result {} has no elements", self.result.0));
        }
        None
    }
}

impl fmt::Debug for CustomKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, names, workgroup, threads, result, .. } = self;
        write!(f, "CustomKernel({name} {names:?} → {} {}, {threads:?} / {workgroup})", result.1, result.0)
    }
}

impl PartialEq for CustomKernel {
    /// Equal kernels compute the same; definitions for the reference are not compared.
    fn eq(&self, other: &Self) -> bool {
        let key = |kernel: &Self| (kernel.workgroup, kernel.threads, kernel.flops, kernel.result);
        key(self) == key(other)
            && (&self.name, &self.source, &self.names) == (&other.name, &other.source, &other.names)
    }
}

/// A kernel that is being declared: [`Trace::kernel`].
#[must_use = "`KernelCall::result` records the kernel"]
pub struct KernelCall {
    trace: Trace,
    kernel: CustomKernel,
    inputs: Vec<Tensor>,
}

impl Trace {
    /// Declares one dispatch of a kernel written in WGSL, for what no operation does. It takes part in the plan as
    /// every operation: its result has a lifetime, is counted to the byte, and is recomputed where that pays, so the
    /// kernel must compute the same from the same inputs.
    ///
    /// # What the source has
    /// One entry point, `@compute @workgroup_size(WORKGROUP) fn main(@builtin(global_invocation_id) id: vec3<u32>)`,
    /// or with other built-in values, and what it calls. It declares no bindings; these are appended to it:
    ///
    /// | name | what |
    /// |---|---|
    /// | `x` for each [`input`](KernelCall::input) `x` | `array<f32>` or `array<u32>`, row-major, only to read |
    /// | `y` | the result, of the same kind; every element must be written, because memory is not cleared |
    /// | `x_len`, `y_len` | constants: numbers of elements |
    /// | `x_shape`, `y_shape` | constants: `array<u32, rank>`, of tensors with at least one dimension |
    /// | `WORKGROUP` | constant: threads of a workgroup, 64 or [`KernelCall::workgroup`] |
    /// | `thread_of(id)` | number of the thread: large grids are folded into two dimensions |
    ///
    /// There are at least as many threads as the result has elements, or [`KernelCall::threads`], in whole
    /// workgroups: more than that, so `main` compares `thread_of(id)` with `y_len`. A buffer may be longer than its
    /// tensor by padding. The order of threads is not defined; software adapters end all loops of a thread after
    /// 65,535 iterations together.
    ///
    /// # Gradient
    /// [`Tensor::with_gradient`] gives one, of operations or of another kernel. A kernel without one whose operands need a
    /// gradient is a mistake.
    ///
    /// ```
    /// use wgrad::compile::TrainStep;
    /// use wgrad::graph::{Init, Params, Tensor};
    ///
    /// const SOFTSIGN: &str = "
    /// @compute @workgroup_size(WORKGROUP)
    /// fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    ///     let i = thread_of(id);
    ///     if (i < y_len) { y[i] = x[i] / (1.0 + abs(x[i])); }
    /// }";
    /// fn softsign(x: &Tensor) -> Tensor {
    ///     let y = x.trace().kernel("softsign", SOFTSIGN).input("x", x).result(x.shape());
    ///     y.with_gradient([x], |dy| [dy * (1.0 + x.abs()).square().recip()])
    /// }
    /// let params = Params::new(0);
    /// let w = params.add("w", [8], Init::Normal(1.0));
    /// let step = TrainStep::trace(&params, |trace| softsign(&trace.param(&w)).square().mean(&[]))?;
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Precision
    /// Inputs are `f32` or `u32`, and so is the result. Where a plan stores activations or weights in 16 bits, casts
    /// surround the kernel; a tensor in 16 bits as an input is a mistake.
    ///
    /// # Errors
    /// The source is checked when a [`Session`](crate::exec::Session) or [`Eager`](crate::exec::Eager) opens, before
    /// anything runs: [`Error::Kernel`](crate::Error::Kernel) with line and message, also for an input that is
    /// written. (In a browser the browser checks.) An access past the end of a buffer reads some number or writes none of
    /// its elements, or another one of them; other memory is not touched.
    pub fn kernel(&self, name: &str, source: &str) -> KernelCall {
        let kernel = CustomKernel {
            name: name.to_owned(),
            source: source.into(),
            names: Vec::new(),
            workgroup: 64,
            threads: None,
            flops: None,
            result: (Shape::from([]), DType::F32),
            reference: None,
        };
        KernelCall { trace: self.clone(), kernel, inputs: Vec::new() }
    }
}

impl KernelCall {
    /// Adds an input, the array `name` of the source. At most seven.
    pub fn input(mut self, name: &str, x: &Tensor) -> Self {
        self.kernel.names.push(name.to_owned());
        self.inputs.push(x.clone());
        self
    }

    /// Sets the threads of a workgroup, 1 to 256, in place of 64.
    pub fn workgroup(mut self, threads: u32) -> Self {
        self.kernel.workgroup = threads;
        self
    }

    /// Sets the threads of the dispatch, rounded up to whole workgroups, in place of one for each element of the result.
    pub fn threads(mut self, threads: u64) -> Self {
        self.kernel.threads = Some(threads);
        self
    }

    /// Sets the floating-point operations of the dispatch, in place of one for each element of the result. Modelled times,
    /// and so what [`Recompute::Auto`](crate::compile::Recompute::Auto) computes again, depend on it.
    pub fn flops(mut self, flops: u64) -> Self {
        self.kernel.flops = Some(flops);
        self
    }

    /// Sets what the kernel computes, in `f64`: from the inputs in order to the elements of the result, row-major.
    /// `wgrad::reference` and gradient checks compute with it, and refuse a kernel without it.
    pub fn reference(mut self, of: impl Fn(&[&[f64]]) -> Vec<f64> + Send + Sync + 'static) -> Self {
        self.kernel.reference = Some(AssertUnwindSafe(Arc::new(of)));
        self
    }

    /// Records the kernel; its result is `f32` and has this shape.
    ///
    /// # Mistakes
    /// More than seven inputs, inputs of 16 bits, names that WGSL does not take, a workgroup of more than 256 threads.
    #[track_caller]
    pub fn result(self, shape: impl Into<Shape>) -> Tensor {
        self.record(DType::F32, shape.into(), Location::caller())
    }

    /// Records the kernel with a result of `u32`, as [`KernelCall::result`] does.
    #[track_caller]
    pub fn result_u32(self, shape: impl Into<Shape>) -> Tensor {
        self.record(DType::U32, shape.into(), Location::caller())
    }

    fn record(self, dtype: DType, shape: Shape, at: &'static Location<'static>) -> Tensor {
        let Self { trace, mut kernel, inputs } = self;
        kernel.result = (shape, dtype);
        let types: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
        if let Some(why) = kernel.mistake(&types) {
            trace.complain(format!("kernel `{}`: {why}", kernel.name), at);
            return Tensor { id: None, shape, dtype, trace };
        }
        let name = kernel.name.clone();
        let results = trace.emit(Op::Custom(Arc::new(kernel)), &inputs.iter().collect::<Vec<_>>(), at);
        // After a mistake in an operand `emit` returns that operand's shape.
        let result = results.into_iter().next().unwrap_or(Tensor { id: None, shape, dtype, trace });
        Tensor { shape, dtype, ..result.named(&name) }
    }
}
