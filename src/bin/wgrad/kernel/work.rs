//! The operations that `wgrad bench` measures: sizes, operands, results, and which results the f64 check samples.

use wgrad::graph::{Attention, Tensor, Trace, Window};
use wgrad::optim::Optimizer;
use wgrad::{Error, Result, random};

/// What is timed.
#[derive(Clone, Copy, Debug)]
pub enum Timed {
    /// Every dispatch of a forward pass.
    All,
    /// The dispatches of the operation of this name in a training step.
    Training(&'static str),
    /// The dispatches of the update of this name, of the first operand by the second.
    Update(&'static str),
}

/// An operand with elements in [-0.5, 0.5).
pub struct Operand {
    pub name: &'static str,
    /// Its dimensions, by their positions in [`Work::dims`].
    pub dims: Vec<usize>,
}

/// A result that is compared with f64, or some elements of it.
pub struct Checked {
    /// The operand whose gradient it is, or that was updated; `y` for the operation's result.
    pub of: &'static str,
    /// Its dimensions, by their positions in [`Work::dims`].
    pub dims: Vec<usize>,
    /// For each of [`Work::dims`], the indices that are computed in f64.
    pub take: Vec<Vec<usize>>,
    /// A dimension over which the result is a sum; it is computed in parts, which are added.
    pub summed: Option<usize>,
    /// Factor of what f64 computes from these indices alone.
    pub factor: f64,
}

impl Checked {
    /// Returns the name of the session's output.
    pub fn output(&self) -> String {
        if self.of == "y" { "y".to_owned() } else { format!("gradient of {}", self.of) }
    }
}

/// What an operation computes from its operands.
pub type Build = Box<dyn Fn(&Trace, &[Tensor]) -> Tensor>;

/// One operation of one size.
pub struct Work {
    /// Lengths of the dimensions.
    pub dims: Vec<usize>,
    pub operands: Vec<Operand>,
    /// Class indices, an input called `labels`: the dimension that it has, and the number of classes.
    pub labels: Option<(usize, u32)>,
    /// Records the operation on operands of any lengths of the dimensions.
    pub build: Build,
    pub timed: Timed,
    pub results: Vec<Checked>,
    /// Floating-point operations of what is timed.
    pub flops: f64,
    /// Elements that it reads and that may be stored in 16 bits.
    pub narrow: f64,
    /// All other elements that it reads or writes.
    pub others: f64,
}

impl Work {
    /// The optimizer of [`Timed::Update`].
    pub fn optimizer() -> Result<Optimizer> {
        Optimizer::named("adamw")
    }

    /// Whether an operand is stored in 16 bits where that is asked for: matrices are, vectors are not, but for a
    /// parameter that is updated.
    pub fn is_held(&self, operand: usize) -> bool {
        match self.timed {
            Timed::Update(_) => operand == 0,
            Timed::All | Timed::Training(_) => self.operands[operand].dims.len() >= 2,
        }
    }
}

/// An operation to measure.
pub struct Kind {
    pub name: &'static str,
    /// The names of the numbers of a size.
    meaning: &'static [&'static str],
    /// The default size on CPUs and on GPUs.
    small: &'static [usize],
    large: &'static [usize],
    pub ways: Ways,
    work: fn(&[usize]) -> Result<Work>,
}

/// Which table has the ways to compute an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    Products,
    Convolutions,
    One,
}

const CONV: &[&str] = &["samples", "channels", "results", "side", "kernel", "stride"];
const DEPTHWISE: &[&str] = &["samples", "channels", "side", "kernel", "stride"];
const IMAGES: &[&str] = &["samples", "channels", "side"];
const ROWS: &[&str] = &["rows", "columns"];
const HEADS: &[&str] = &["batch", "length", "heads", "size"];

macro_rules! kinds {
    ($($name:literal $meaning:expr, $small:expr, $large:expr, $ways:ident, $work:expr;)*) => {
        /// Every operation. The transposed products are those of a linear layer's backward pass: `matmul-nt` is
        /// `a [m, k] · b [n, k]ᵀ`, `matmul-tn` is `a [k, m]ᵀ · b [k, n]`.
        pub static KINDS: &[Kind] = &[$(Kind {
            name: $name, meaning: $meaning, small: $small, large: $large, ways: Ways::$ways, work: $work,
        }),*];
    };
}

kinds! {
    "matmul" &["m", "n", "k"], &[1024; 3], &[4096; 3], Products, |s| Ok(product(s, [false, false]));
    "matmul-nt" &["m", "n", "k"], &[1024; 3], &[4096; 3], Products, |s| Ok(product(s, [false, true]));
    "matmul-tn" &["m", "n", "k"], &[1024; 3], &[4096; 3], Products, |s| Ok(product(s, [true, false]));
    "conv" CONV, &[8, 64, 64, 28, 3, 1], &[64, 64, 64, 56, 3, 1], Convolutions, |s| convolution(s, Of::Result);
    "conv-dx" CONV, &[8, 64, 64, 28, 3, 1], &[64, 64, 64, 56, 3, 1], Convolutions, |s| convolution(s, Of::Image);
    "conv-dw" CONV, &[8, 64, 64, 28, 3, 1], &[64, 64, 64, 56, 3, 1], Convolutions, |s| convolution(s, Of::Weight);
    "depthwise" DEPTHWISE, &[8, 64, 28, 3, 1], &[64, 144, 56, 3, 1], Convolutions, |s| depthwise(s, Of::Result);
    "depthwise-dx" DEPTHWISE, &[8, 64, 28, 3, 1], &[64, 144, 56, 3, 1], Convolutions, |s| depthwise(s, Of::Image);
    "depthwise-dw" DEPTHWISE, &[8, 64, 28, 3, 1], &[64, 144, 56, 3, 1], Convolutions, |s| depthwise(s, Of::Weight);
    "attention" HEADS, &[1, 1024, 4, 64], &[8, 2048, 12, 64], One, |s| Ok(attention(s, false));
    "attention-grad" HEADS, &[1, 1024, 4, 64], &[8, 2048, 12, 64], One, |s| Ok(attention(s, true));
    "softmax" ROWS, &[1024, 1024], &[32_768, 1024], One, |s| Ok(softmax(s, false));
    "softmax-grad" ROWS, &[1024, 1024], &[32_768, 1024], One, |s| Ok(softmax(s, true));
    "cross-entropy" ROWS, &[512, 1024], &[8192, 50_257], One, |s| Ok(cross_entropy(s, false));
    "cross-entropy-grad" ROWS, &[512, 1024], &[8192, 50_257], One, |s| Ok(cross_entropy(s, true));
    "layer-norm" ROWS, &[1024, 1024], &[32_768, 1024], One, |s| Ok(layer_norm(s, false));
    "layer-norm-grad" ROWS, &[1024, 1024], &[32_768, 1024], One, |s| Ok(layer_norm(s, true));
    "batch-norm" IMAGES, &[8, 64, 28], &[64, 64, 112], One, |s| Ok(batch_norm(s, false));
    "batch-norm-grad" IMAGES, &[8, 64, 28], &[64, 64, 112], One, |s| Ok(batch_norm(s, true));
    "sum" ROWS, &[1024, 1024], &[8192, 3072], One, |s| Ok(sum(s));
    "elementwise" &["elements"], &[1 << 22], &[1 << 26], One, |s| Ok(elementwise(s));
    "adamw" &["elements"], &[1 << 22], &[1 << 26], One, |s| Ok(update(s));
    "dispatch" &["elements"], &[64], &[64], One, |s| Ok(elementwise(s));
}

impl Kind {
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    pub fn names() -> Vec<&'static str> {
        KINDS.iter().map(|kind| kind.name).collect()
    }

    /// Returns the operation of this size.
    pub fn work(&self, size: &[usize]) -> Result<Work> {
        (self.work)(size)
    }

    /// Parses a size. For products, a single number stands for all three; with no text, the default size is
    /// used.
    pub fn size(&self, text: Option<&str>, large: bool) -> Result<Vec<usize>> {
        let Some(text) = text else { return Ok(if large { self.large } else { self.small }.to_vec()) };
        let wrong = || {
            Error::setting(
                "command line",
                format!("--size {text}: expected {}, each at least 1", self.meaning.join("x")),
            )
        };
        let numbers: Vec<usize> =
            text.split('x').map(str::parse).collect::<std::result::Result<_, _>>().map_err(|_| wrong())?;
        match numbers[..] {
            _ if numbers.contains(&0) => Err(wrong()),
            [side] if self.ways == Ways::Products => Ok(vec![side; 3]),
            _ if numbers.len() == self.meaning.len() => Ok(numbers),
            _ => Err(wrong()),
        }
    }
}

/// Which of a convolution's tensors is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Result,
    Image,
    Weight,
}

/// Up to `count` different indices below `length`, in order: the first, the last, which partial tiles reach, and
/// others at random.
fn some(length: usize, count: usize) -> Vec<usize> {
    if length <= count {
        return (0..length).collect();
    }
    let key = random::key(length as u64, "sampled indices");
    let others = (0..).map(|i| (random::bits(key, i) as usize) % length);
    let mut taken = std::collections::BTreeSet::from([0, length - 1]);
    for index in others {
        if taken.len() >= count {
            break;
        }
        taken.insert(index);
    }
    taken.into_iter().collect()
}

/// All indices of the dimensions, to be replaced by some of those that a result's elements do not sum over.
fn all(dims: &[usize]) -> Vec<Vec<usize>> {
    dims.iter().map(|&length| (0..length).collect()).collect()
}

/// A result of which `count` indices of each of these dimensions are checked.
fn sampled(work: &[usize], of: &'static str, dims: &[usize], counts: &[(usize, usize)]) -> Checked {
    let mut take = all(work);
    for &(dim, count) in counts {
        take[dim] = some(work[dim], count);
    }
    Checked { of, dims: dims.to_vec(), take, summed: None, factor: 1.0 }
}

fn operands(list: &[(&'static str, &[usize])]) -> Vec<Operand> {
    list.iter().map(|(name, dims)| Operand { name, dims: dims.to_vec() }).collect()
}

fn count(numbers: &[usize]) -> f64 {
    numbers.iter().map(|&n| n as f64).product()
}

/// A forward pass or, with `training`, the gradient of this name.
fn timed(training: bool, op: &'static str) -> Timed {
    if training { Timed::Training(op) } else { Timed::All }
}

fn product(size: &[usize], [ta, tb]: [bool; 2]) -> Work {
    let (m, n, k) = (0, 1, 2);
    let (a, b) = (if ta { [k, m] } else { [m, k] }, if tb { [n, k] } else { [k, n] });
    let [rows, columns, depth] = [size[0], size[1], size[2]];
    Work {
        dims: size.to_vec(),
        operands: operands(&[("a", &a), ("b", &b)]),
        labels: None,
        build: Box::new(move |_, x| x[0].matmul_transposed(&x[1], ta, tb)),
        timed: Timed::All,
        results: vec![sampled(size, "y", &[m, n], &[(m, 16), (n, 16)])],
        flops: 2.0 * count(size),
        narrow: count(&[rows, depth]) + count(&[depth, columns]),
        others: count(&[rows, columns]),
    }
}

/// Returns the window and the side of its result.
fn window(side: usize, k: usize, stride: usize) -> Result<(Window, usize)> {
    let window = Window::square(k).stride(stride).padding(k / 2);
    let [out, _] = window.output([side; 2]).map_err(|e| Error::setting("window", e))?;
    Ok((window, out))
}

fn convolution(size: &[usize], of: Of) -> Result<Work> {
    let &[n, c, o, side, k, stride] = size else { unreachable!("the size has six numbers") };
    let (window, out) = window(side, k, stride)?;
    // Samples, channels, results, side, kernel, side of the result.
    let dims = [n, c, o, side, k, out];
    let (x, w, y) = ([0, 1, 3, 3], [2, 1, 4, 4], [0, 2, 5, 5]);
    let build: Build = Box::new(move |_, x| x[0].conv2d(&x[1], None, window, 1));
    let taps = count(&[c, k, k]);
    Ok(of_convolution(&dims, [&x, &w, &y], build, of, 2.0 * count(&[n, o, out, out]) * taps))
}

fn depthwise(size: &[usize], of: Of) -> Result<Work> {
    let &[n, c, side, k, stride] = size else { unreachable!("the size has five numbers") };
    let (window, out) = window(side, k, stride)?;
    // Samples, channels, one channel of the weight, side, kernel, side of the result.
    let dims = [n, c, 1, side, k, out];
    let (x, w, y) = ([0, 1, 3, 3], [1, 2, 4, 4], [0, 1, 5, 5]);
    let build: Build = Box::new(move |_, x| x[0].conv2d(&x[1], None, window, x[0].dim(1)));
    Ok(of_convolution(&dims, [&x, &w, &y], build, of, 2.0 * count(&[n, c, out, out, k, k])))
}

/// One of the three products of a convolution; all do the same arithmetic.
fn of_convolution(dims: &[usize], [x, w, y]: [&[usize; 4]; 3], build: Build, of: Of, flops: f64) -> Work {
    let numel = |of: &[usize; 4]| of.iter().map(|&dim| dims[dim] as f64).product::<f64>();
    let [image, weight, result] = [x, w, y].map(numel);
    let mut list = vec![("x", &x[..]), ("w", &w[..])];
    if of != Of::Result {
        list.push(("dy", &y[..]));
    }
    // Channels of the weight's result, which a depthwise convolution has in common with the image.
    let outer = w[0];
    let (timed, checked, narrow, others) = match of {
        Of::Result => (Timed::All, sampled(dims, "y", y, &[(0, 2), (outer, 8)]), image + weight, result),
        Of::Image => {
            let checked = sampled(dims, "x", x, &[(0, 2), (1, 8)]);
            (Timed::Training("conv2d_input"), checked, weight + result, image)
        }
        Of::Weight => {
            let checked = sampled(dims, "w", w, &[(outer, 8), (1, 8)]);
            (Timed::Training("conv2d_weight"), checked, image + result, weight)
        }
    };
    let dims = dims.to_vec();
    Work {
        dims,
        operands: operands(&list),
        labels: None,
        build,
        timed,
        results: vec![checked],
        flops,
        narrow,
        others,
    }
}

fn attention(size: &[usize], gradient: bool) -> Work {
    let &[batch, length, heads, head] = size else { unreachable!("the size has four numbers") };
    // Batch, length, heads, queries with keys and values, size of a head.
    let dims = [batch, length, heads, 3 * heads, head];
    let mut list = vec![("qkv", &[0, 1, 3, 4][..])];
    if gradient {
        list.push(("dy", &[0, 1, 2, 4]));
    }
    let of = if gradient { ("qkv", &list[0].1) } else { ("y", &&[0, 1, 2, 4][..]) };
    let mut checked = sampled(&dims, of.0, of.1, &[]);
    checked.take[0] = vec![batch - 1];
    checked.take[2] = vec![heads / 2];
    checked.take[3] = [0, 1, 2].map(|part| part * heads + heads / 2).to_vec();
    // A product of 2 d operations for each pair that the mask allows: two in the forward pass, five in the backward pass,
    // where the scores are computed again.
    let pairs = count(&[batch, heads, length]) * (length + 1) as f64 / 2.0;
    let (products, one) = (if gradient { 5.0 } else { 2.0 }, count(size));
    let sums = count(&[batch, length, heads]);
    Work {
        dims: dims.to_vec(),
        operands: operands(&list),
        labels: None,
        build: Box::new(|_, x| {
            let heads = x[0].dim(2) / 3;
            let options = Attention { causal: true, ..Attention::default() };
            x[0].self_attention(heads, heads, &options)
        }),
        timed: timed(gradient, "attention_grad"),
        results: vec![checked],
        flops: 2.0 * products * pairs * head as f64,
        narrow: if gradient { 4.0 * one } else { 3.0 * one },
        // The result and a logarithm for each row; backward, both are read and three gradients written.
        others: if gradient { 4.0 * one + sums } else { one + sums },
    }
}

fn softmax(size: &[usize], gradient: bool) -> Work {
    let list: &[(&str, &[usize])] = &[("x", &[0, 1]), ("dy", &[0, 1])];
    let n = count(size);
    Work {
        dims: size.to_vec(),
        operands: operands(&list[..if gradient { 2 } else { 1 }]),
        labels: None,
        build: Box::new(|_, x| x[0].softmax()),
        timed: timed(gradient, "softmax_grad"),
        results: vec![sampled(size, if gradient { "x" } else { "y" }, &[0, 1], &[(0, 8)])],
        // A maximum, a difference, an exponential, a sum, a product; backward two products, a sum, a difference.
        flops: if gradient { 4.0 * n } else { 5.0 * n },
        narrow: if gradient { 2.0 * n } else { n },
        others: n,
    }
}

/// The forward kernel is checked by the gradient, which reads the sums that it leaves.
fn cross_entropy(size: &[usize], gradient: bool) -> Work {
    let mut checked = sampled(size, "x", &[0, 1], &[(0, 8)]);
    // The loss is a mean over the rows.
    checked.factor = checked.take[0].len() as f64 / size[0] as f64;
    let (rows, n) = (size[0] as f64, count(size));
    Work {
        dims: size.to_vec(),
        operands: operands(&[("x", &[0, 1])]),
        labels: Some((0, size[1] as u32)),
        build: Box::new(|trace, x| {
            let labels = trace.labels("labels", [x[0].dim(0)], x[0].dim(1) as u32);
            x[0].cross_entropy(&labels)
        }),
        timed: Timed::Training(if gradient { "cross_entropy_grad" } else { "cross_entropy" }),
        results: vec![checked],
        // A maximum, a difference, an exponential, a sum; backward a difference, an exponential, two products.
        flops: 4.0 * n,
        narrow: n,
        // Labels and two sums of each row; forward its loss, backward the gradient.
        others: 3.0 * rows + if gradient { n } else { rows },
    }
}

fn layer_norm(size: &[usize], gradient: bool) -> Work {
    let list: &[(&str, &[usize])] = &[("x", &[0, 1]), ("weight", &[1]), ("bias", &[1]), ("dy", &[0, 1])];
    let results = if gradient {
        let parameter = |of| Checked { summed: Some(0), ..sampled(size, of, &[1], &[]) };
        vec![sampled(size, "x", &[0, 1], &[(0, 8)]), parameter("weight"), parameter("bias")]
    } else {
        vec![sampled(size, "y", &[0, 1], &[(0, 8)])]
    };
    let (row, column, n) = (size[0] as f64, size[1] as f64, count(size));
    Work {
        dims: size.to_vec(),
        operands: operands(&list[..if gradient { 4 } else { 3 }]),
        labels: None,
        build: Box::new(|_, x| x[0].layer_norm(&x[1], &x[2], 1e-5)),
        timed: timed(gradient, "row_norm_grad"),
        results,
        // Two sums, a difference, two products, a sum; backward about twice that.
        flops: if gradient { 14.0 * n } else { 7.0 * n },
        narrow: if gradient { 2.0 * n } else { n },
        // The two statistics of each row, and weight and bias or weight and two gradients.
        others: n + 2.0 * row + if gradient { 3.0 * column } else { 2.0 * column },
    }
}

fn batch_norm(size: &[usize], gradient: bool) -> Work {
    let list: &[(&str, &[usize])] =
        &[("x", &[0, 1, 2, 2]), ("gamma", &[1]), ("beta", &[1]), ("dy", &[0, 1, 2, 2])];
    let some = |of, dims: &[usize]| sampled(size, of, dims, &[(1, 4)]);
    let results = if gradient {
        vec![some("x", &[0, 1, 2, 2]), some("gamma", &[1]), some("beta", &[1])]
    } else {
        vec![some("y", &[0, 1, 2, 2])]
    };
    let (channels, n) = (size[1] as f64, count(&[size[0], size[1], size[2], size[2]]));
    Work {
        dims: size.to_vec(),
        operands: operands(&list[..if gradient { 4 } else { 3 }]),
        labels: None,
        build: Box::new(|_, x| x[0].batch_norm_train(&x[1], &x[2], 1e-5, None)),
        timed: timed(gradient, "batch_norm_grad"),
        results,
        flops: if gradient { 14.0 * n } else { 7.0 * n },
        narrow: if gradient { 2.0 * n } else { n },
        others: n + 5.0 * channels,
    }
}

/// The sum over the rows, which is a bias's gradient.
fn sum(size: &[usize]) -> Work {
    Work {
        dims: size.to_vec(),
        operands: operands(&[("x", &[0, 1])]),
        labels: None,
        build: Box::new(|_, x| x[0].sum(&[0])),
        timed: Timed::All,
        results: vec![sampled(size, "y", &[1], &[(1, 256)])],
        flops: count(size),
        narrow: count(size),
        others: size[1] as f64,
    }
}

fn elementwise(size: &[usize]) -> Work {
    // Two dimensions, because vectors are stored in 32 bits.
    let dims = [1, size[0]];
    let n = size[0] as f64;
    Work {
        dims: dims.to_vec(),
        operands: operands(&[("a", &[0, 1]), ("b", &[0, 1])]),
        labels: None,
        build: Box::new(|_, x| x[0].add(&x[1])),
        timed: Timed::All,
        results: vec![sampled(&dims, "y", &[0, 1], &[(1, 256)])],
        flops: n,
        narrow: 2.0 * n,
        others: n,
    }
}

fn update(size: &[usize]) -> Work {
    let n = size[0] as f64;
    Work {
        dims: size.to_vec(),
        operands: operands(&[("w", &[0]), ("gradient", &[0]), ("loss", &[])]),
        labels: None,
        build: Box::new(|_, x| x[0].clone()),
        timed: Timed::Update("adamw"),
        results: vec![sampled(size, "w", &[0], &[(0, 256)])],
        flops: 14.0 * n,
        // Reads weight, gradient and two moments, writes all but the gradient.
        narrow: 2.0 * n,
        others: 5.0 * n,
    }
}
