//! Operations that can be measured alone: each has a plan and counts of its operations and bytes.

use wgrad::autodiff::Gradients;
use wgrad::compile::{Forward, Plan};
use wgrad::dtype::{DType, Precision, WeightStorage};
use wgrad::graph::{Attention, Class, Init, Mode, Params, Tensor, Trace, Value, Window};
use wgrad::limits::Limits;
use wgrad::optim::{Clip, Optimizer};
use wgrad::shape::Shape;
use wgrad::{Error, Result};

/// An operation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[m, k] · [k, n]`
    Matmul,
    /// Forward convolution: samples, channels, result channels, side, kernel, stride; padded by half the
    /// kernel.
    Conv,
    /// Softmax of `[rows, columns]`
    Softmax,
    /// Layer norm of `[rows, columns]`, with weight and bias
    LayerNorm,
    /// Forward causal self-attention: batch, length, heads, size of a head
    Attention,
    /// `a + b`
    Elementwise,
    /// AdamW's update of one parameter.
    AdamW,
}

impl Kind {
    const ALL: [(&'static str, Self); 7] = [
        ("matmul", Self::Matmul),
        ("conv", Self::Conv),
        ("softmax", Self::Softmax),
        ("layer-norm", Self::LayerNorm),
        ("attention", Self::Attention),
        ("elementwise", Self::Elementwise),
        ("adamw", Self::AdamW),
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(other, _)| *other == name).map(|(_, kind)| *kind)
    }

    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|(name, _)| *name).collect()
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Returns the names of the numbers of a size.
    fn meaning(self) -> &'static [&'static str] {
        match self {
            Self::Matmul => &["m", "n", "k"],
            Self::Conv => &["samples", "channels", "results", "side", "kernel", "stride"],
            Self::Softmax | Self::LayerNorm => &["rows", "columns"],
            Self::Attention => &["batch", "length", "heads", "size"],
            Self::Elementwise | Self::AdamW => &["elements"],
        }
    }

    fn default_size(self, large: bool) -> &'static [usize] {
        match (self, large) {
            (Self::Matmul, false) => &[1024, 1024, 1024],
            (Self::Matmul, true) => &[4096, 4096, 4096],
            (Self::Conv, false) => &[8, 64, 64, 28, 3, 1],
            (Self::Conv, true) => &[64, 64, 64, 56, 3, 1],
            (Self::Softmax | Self::LayerNorm, false) => &[1024, 1024],
            (Self::Softmax | Self::LayerNorm, true) => &[32_768, 1024],
            (Self::Attention, false) => &[1, 1024, 4, 64],
            (Self::Attention, true) => &[8, 2048, 12, 64],
            (Self::Elementwise, false) => &[1 << 22],
            (Self::Elementwise, true) => &[1 << 26],
            (Self::AdamW, false) => &[1 << 22],
            (Self::AdamW, true) => &[1 << 26],
        }
    }

    /// Parses a size. For `matmul`, a single number stands for all three; with no text, the default size is
    /// used.
    pub fn size(self, text: Option<&str>, large: bool) -> Result<Vec<usize>> {
        let Some(text) = text else { return Ok(self.default_size(large).to_vec()) };
        let meaning = self.meaning();
        let wrong = || {
            Error::setting(
                "command line",
                format!("--size {text}: expected {}, each at least 1", meaning.join("x")),
            )
        };
        let numbers: Vec<usize> =
            text.split('x').map(str::parse).collect::<std::result::Result<_, _>>().map_err(|_| wrong())?;
        match numbers[..] {
            _ if numbers.contains(&0) => Err(wrong()),
            [side] if self == Self::Matmul => Ok(vec![side; 3]),
            _ if numbers.len() == meaning.len() => Ok(numbers),
            _ => Err(wrong()),
        }
    }
}

/// Returns the precision to plan for: with `f16` operands, cooperative matrices lose no precision.
pub fn precision(dtype: WeightStorage) -> Precision {
    match dtype {
        WeightStorage::F16(_) => Precision::F16,
        WeightStorage::F32 | WeightStorage::Bf16(_) => Precision::F32,
    }
}

/// One operation, planned.
pub struct Job {
    pub plan: Plan,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes of operands and results, each counted once.
    pub bytes: f64,
    /// The parameter that the operation updates, if it has no output.
    pub trained: Option<String>,
}

impl Job {
    /// Plans an operation with operands stored as `dtype`. As in any plan, casts precede a kernel that cannot
    /// read it.
    pub fn new(kind: Kind, size: &[usize], dtype: WeightStorage, limits: &Limits) -> Result<Self> {
        let forward = |model: &dyn Fn(&Operands) -> Tensor| {
            let params = Params::new(0);
            let forward = Forward::trace(&params, "y", |trace| model(&Operands { params: &params, trace }))?;
            let plan = forward.plan_in(precision(dtype), dtype, limits)?;
            held(&plan, dtype)?;
            Ok::<Plan, Error>(plan)
        };
        let count = |numbers: &[usize]| numbers.iter().map(|&n| n as f64).product::<f64>();
        // Bytes of operands stored as `dtype`, and of all other tensors, which are f32.
        let narrow = dtype.storage().unwrap_or(DType::F32).size() as f64;
        let bytes = |operands: f64, others: f64| narrow * operands + 4.0 * others;
        match (kind, size) {
            (Kind::Matmul, &[m, n, k]) => {
                let plan = forward(&|t| t.operand("a", [m, k]).matmul(&t.operand("b", [k, n])))?;
                let bytes = bytes(count(&[m, k]) + count(&[k, n]), count(&[m, n]));
                Ok(Self { plan, flops: 2.0 * count(&[m, n, k]), bytes, trained: None })
            }
            (Kind::Conv, &[n, c, o, side, k, stride]) => {
                let window = Window::square(k).stride(stride).padding(k / 2);
                let [out, _] = window.output([side; 2]).map_err(|e| Error::setting("window", e))?;
                let plan = forward(&|t| {
                    t.operand("x", [n, c, side, side]).conv2d(&t.operand("w", [o, c, k, k]), None, window, 1)
                })?;
                let results = count(&[n, o, out, out]);
                let bytes = bytes(count(&[n, c, side, side]) + count(&[o, c, k, k]), results);
                Ok(Self { plan, flops: 2.0 * results * count(&[c, k, k]), bytes, trained: None })
            }
            (Kind::Softmax, &[rows, columns]) => {
                let plan = forward(&|t| t.operand("x", [rows, columns]).softmax())?;
                let n = count(size);
                // A maximum, a difference, an exponential, a sum, a product.
                Ok(Self { plan, flops: 5.0 * n, bytes: bytes(n, n), trained: None })
            }
            (Kind::LayerNorm, &[rows, columns]) => {
                let plan = forward(&|t| {
                    let (weight, bias) = (t.operand("weight", [columns]), t.operand("bias", [columns]));
                    t.operand("x", [rows, columns]).layer_norm(&weight, &bias, 1e-5)
                })?;
                let n = count(size);
                // Two sums, a difference, two products, a sum. The two statistics of each row are written
                // with the result.
                let (row, column) = (rows as f64, columns as f64);
                let bytes = bytes(n, n + 2.0 * (row + column));
                Ok(Self { plan, flops: 7.0 * n, bytes, trained: None })
            }
            (Kind::Attention, &[b, s, h, d]) => {
                let options = Attention { causal: true, ..Attention::default() };
                let plan = forward(&|t| t.operand("qkv", [b, s, 3 * h, d]).self_attention(h, h, &options))?;
                // Scores and sums of values, 2 d each, for the pairs that the mask allows.
                let pairs = count(&[b, h, s]) * (s + 1) as f64 / 2.0;
                let one = count(&[b, s, h, d]);
                let bytes = bytes(3.0 * one, one + count(&[b, s, h]));
                Ok(Self { plan, flops: 4.0 * pairs * d as f64, bytes, trained: None })
            }
            (Kind::Elementwise, &[n]) => {
                // Two dimensions, because vectors are stored in 32 bits.
                let plan = forward(&|t| t.operand("a", [1, n]).add(&t.operand("b", [1, n])))?;
                let n = n as f64;
                Ok(Self { plan, flops: n, bytes: bytes(2.0 * n, n), trained: None })
            }
            (Kind::AdamW, &[n]) => {
                let plan = update(Optimizer::named("adamw")?, n, dtype, limits)?;
                // Reads weight, gradient and two moments, writes all but the gradient.
                let n = n as f64;
                let bytes = bytes(2.0 * n, 5.0 * n);
                Ok(Self { plan, flops: 14.0 * n, bytes, trained: Some("w".to_owned()) })
            }
            _ => Err(Error::Internal(format!("{} of size {size:?}", kind.name()))),
        }
    }

    /// Returns the names of the kernels that it runs, in order.
    pub fn variant(&self) -> String {
        let names: Vec<&str> = self.plan.program.launches.iter().map(|(l, _)| &*l.kernel.name).collect();
        names.join(" + ")
    }
}

/// Operands are parameters, which are persistent; inputs would be copied to the device before each run.
struct Operands<'a> {
    params: &'a Params,
    trace: &'a Trace,
}

impl Operands<'_> {
    /// Adds an operand with elements in [-0.5, 0.5).
    fn operand(&self, name: &str, shape: impl Into<Shape>) -> Tensor {
        self.trace.param(&self.params.add(name, shape, Init::fan_in(4)))
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

/// Plans the update of a parameter of `n` elements, stored as `dtype`, by an existing gradient.
fn update(optimizer: Optimizer, n: usize, dtype: WeightStorage, limits: &Limits) -> Result<Plan> {
    let params = Params::new(0);
    let mut graph = Trace::record(&params, Mode::Train, "loss", |trace| {
        let operands = Operands { params: &params, trace };
        operands.operand("w", [n]);
        operands.operand("gradient", [n]);
        operands.operand("loss", Shape::from([])).scale(1.0)
    })?;
    let id = |name: &str| graph.ids().find(|(_, v)| v.name == name).map(|(id, _)| id);
    let (Some(weight), Some(gradient)) = (id("w"), id("gradient")) else {
        return Err(Error::Internal("the update's operands were not traced".to_owned()));
    };
    graph.values[weight.index()].dtype = dtype.storage().unwrap_or(DType::F32);
    let trace = Trace::over(graph, Mode::Train);
    let pairs = vec![(weight, trace.tensor(gradient))];
    optimizer.append(&trace, Gradients { pairs, ..Gradients::default() }, Clip::Off)?;
    Plan::of_graph(trace.finish()?, Some(optimizer), limits)
}
