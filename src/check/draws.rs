//! Building blocks of random networks: every operation that models can use, alone or in the patterns that
//! graph passes match.

use std::panic::Location;

use super::attention;
use super::composed;
use super::custom::custom_kernel;
use super::network::{Maker, Sizes};
use super::wide;
use crate::dtype::DType;
use crate::graph::{Binary, Domain, Op, Reduction, Results, Tensor, Unary, Window};

/// Adds one or a few operations to a network.
pub(super) type Draw = fn(&mut Maker);

/// Every draw, with a name for reports.
pub(super) const DRAWS: &[(&str, Draw)] = &[
    ("product", product),
    ("product of a batch", product_of_a_batch),
    ("linear", linear),
    ("function", function),
    ("function", function),
    ("functions", functions),
    ("functions", functions),
    ("slopes", slopes),
    ("power", power),
    ("binary", binary),
    ("binary", binary),
    ("quotient", quotient),
    ("comparison", comparison),
    ("reduction", reduction),
    ("reduction", reduction),
    ("maximum", maximum),
    ("softmax", softmax),
    ("entropy", entropy),
    ("views", views),
    ("slices", slices),
    ("padding", padding),
    ("steps", steps),
    ("indices", indices),
    ("sorted", sorted),
    ("detached", detached),
    ("custom kernel", custom_kernel),
    ("repeated", repeated),
    ("casts", casts),
    ("dropout", dropout),
    ("embedding", embedding),
    ("row norm", row_norm),
    ("rotary", attention::rotary),
    ("attention", attention::attention),
    ("self attention", attention::self_attention),
    ("cross-entropy", cross_entropy),
    ("tied head", tied_head),
    ("convolution", convolution),
    ("convolution", convolution),
    ("transposed convolution", transposed_convolution),
    ("joined convolution", joined_convolution),
    ("normed convolution", normed_convolution),
    ("batch norm", batch_norm),
    ("fixed batch norm", fixed_batch_norm),
    ("group norm", group_norm),
    ("max pool", max_pool),
    ("average pool", average_pool),
    ("resampling", resampling),
    ("outputs", composed::outputs),
    ("gates", composed::gates),
    ("statistics", composed::statistics),
    ("activations", composed::activations),
    ("softmax over an axis", composed::softmax_over),
    ("arrangements", composed::arrangements),
    ("einsum", composed::einsum),
    ("volumes", composed::volumes),
    ("channels", composed::channels),
    ("positions", composed::positions),
    ("bags", composed::bags),
    ("losses", composed::losses),
    ("wide images", wide::wide_images),
    ("wide sequences", wide::wide_sequences),
    ("wide tables", wide::wide_tables),
];

fn product(maker: &mut Maker) {
    let (x, n) = (maker.matrix(), maker.sizes.width);
    let w = maker.weight([n, n], n);
    let y = match maker.dice.below(3) {
        0 => x.matmul(&w),
        1 => x.matmul_transposed(&w, false, true),
        _ => x.matmul(&x.matmul_transposed(&w.matmul_transposed(&x, false, true), true, true).scale(0.1)),
    };
    maker.keep(y);
}

fn product_of_a_batch(maker: &mut Maker) {
    let (x, y) = (maker.sequence(), maker.sequence().tanh());
    // [b, h, s, d] and [b, h, d, s]
    let (x, y) = (x.permute(&[0, 2, 1, 3]), y.permute(&[0, 2, 3, 1]));
    let scores = x.matmul(&y).scale(0.2);
    let z = if maker.dice.one_in(2) {
        scores.matmul_transposed(&y, false, true)
    } else {
        scores.matmul(&y.slice(0, 0..1).permute(&[0, 1, 3, 2]))
    };
    maker.keep(z.permute(&[0, 2, 1, 3]));
}

fn linear(maker: &mut Maker) {
    let (x, n) = (maker.matrix(), maker.sizes.width);
    let inner = maker.dice.of(&[3, 8, 40]);
    let (w, b) = (maker.weight([inner, n], n), maker.weight([inner], n));
    let hidden = x.matmul_transposed(&w, false, true).add(&b);
    let hidden = activation(maker, &hidden);
    let w = maker.weight([inner, n], inner);
    maker.keep(hidden.matmul(&w));
}

pub(super) fn activation(maker: &mut Maker, x: &Tensor) -> Tensor {
    match maker.dice.below(9) {
        0 | 1 => x.relu(),
        2 => x.leaky_relu(0.1),
        3 => x.leaky_relu(-0.5),
        4 => x.sigmoid(),
        5 => x.gelu(),
        6 => x.gelu_tanh(),
        7 => x.silu(),
        _ => x.clamp(0.0, 6.0),
    }
}

pub(super) fn any(maker: &mut Maker) -> Tensor {
    match maker.dice.below(4) {
        0 => maker.image(),
        1 => maker.sequence(),
        _ => maker.matrix(),
    }
}

fn function(maker: &mut Maker) {
    let x = any(maker);
    let y = match maker.dice.below(6) {
        0 => x.neg(),
        1 => x.scale(0.7).offset(0.1),
        2 => x.tanh(),
        3 => x.clamp(-0.5, 0.8),
        _ => activation(maker, &x),
    };
    maker.keep(y);
}

/// Two functions of the table, whichever.
fn functions(maker: &mut Maker) {
    let mut x = any(maker);
    for _ in 0..2 {
        let f = maker.dice.of(Unary::EXAMPLES);
        // Where a function jumps at whole numbers, results that tend to one, as GELU's to 0, must not lie.
        if matches!(f, Unary::Floor | Unary::Ceil | Unary::Round | Unary::Sign) {
            x = x.offset(0.37);
        }
        x = match f.function().domain {
            Domain::Any => x,
            Domain::Bounded => x.tanh(),
            Domain::Positive => x.abs().offset(0.2),
        };
        x = x.apply_unary(f, Location::caller());
    }
    maker.keep(x);
}

/// Functions with results that only their gradients read. The gradients need only signs, and the tensors are
/// long enough to be saved as bit masks.
fn slopes(maker: &mut Maker) {
    let shape = [maker.sizes.batch, 640];
    let x = maker.weight(shape, 1).add(&maker.input(shape));
    let y = match maker.dice.below(3) {
        0 => x.relu(),
        1 => x.leaky_relu(0.1),
        _ => x.clamp(-0.5, 0.8),
    };
    maker.term(y.mean(&[]));
}

/// Functions with results or slopes that may be large.
fn power(maker: &mut Maker) {
    let x = any(maker);
    let y = match maker.dice.below(7) {
        0 => x.tanh().exp(),
        1 => x.abs().offset(0.2).log(),
        2 => x.square().offset(0.1).sqrt(),
        3 => x.tanh().square(),
        4 => x.sigmoid().offset(0.3).recip(),
        5 => x.abs().offset(0.2).pow(&x.sin()),
        _ => x.abs().tanh(),
    };
    maker.keep(y);
}

/// An operand that broadcasts to a matrix.
fn narrow(maker: &mut Maker) -> Tensor {
    let Sizes { batch, width, .. } = maker.sizes;
    match maker.dice.below(4) {
        0 => maker.weight([width], 1),
        1 => maker.weight([batch, 1], 1),
        2 => maker.weight([], 1),
        _ => maker.weight([1, width], 1),
    }
}

fn binary(maker: &mut Maker) {
    let image = maker.dice.one_in(3);
    let (x, y) = match (image, maker.dice.one_in(2)) {
        (true, true) => (maker.image(), maker.image()),
        (true, false) => (maker.image(), maker.weight([maker.sizes.channels, 1, 1], 1)),
        (false, true) => (maker.matrix(), maker.matrix()),
        (false, false) => (maker.matrix(), narrow(maker)),
    };
    let z = match maker.dice.below(5) {
        0 => x.add(&y),
        1 => x.sub(&y),
        2 => x.tanh().mul(&y),
        3 => x.maximum(&y),
        _ => x.minimum(&y),
    };
    maker.keep(z);
}

fn quotient(maker: &mut Maker) {
    let (x, y) = (maker.matrix(), maker.matrix());
    let z = match maker.dice.below(4) {
        0 => x.div(&y.abs().offset(0.5)),
        // Where the ReLU is 0, the denominator is the offset.
        1 => x.div(&y.relu().offset(0.05)).tanh(),
        // Frozen, the weight may be in 16 and fewer bits.
        2 => {
            let weight = maker.weight([x.dim(1), 128], 1);
            x.div(&weight.reduce_keep(Reduction::SumSquares, &[1]).reshape([x.dim(1)]).sqrt())
        }
        _ => x.div(&y.reduce_keep(Reduction::SumSquares, &[1]).offset(1.0)),
    };
    maker.keep(z);
}

fn comparison(maker: &mut Maker) {
    let (x, y) = (maker.matrix(), maker.matrix());
    let flags = Binary::METHODS.iter().filter(|f| f.function().results == Results::Flags);
    let f = maker.dice.of(&flags.copied().collect::<Vec<_>>());
    let [a, b] = if maker.dice.one_in(2) { [x.clone(), y.clone()] } else { [x.relu(), y.relu()] };
    let flags = a.one(Op::Binary(f), &[&a, &b], Location::caller());
    let z = match maker.dice.below(3) {
        0 => x.mul(&flags).add(&y),
        1 => flags.where_cond(&x.square(), &y),
        _ => x.masked_fill(&flags, 0.25),
    };
    maker.keep(z);
}

/// Reduces random axes of a random value and subtracts the result from the value.
fn reduction(maker: &mut Maker) {
    let x = any(maker);
    let kind = maker.dice.of(&[Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::SumSquares]);
    let axes: Vec<usize> = (0..x.shape().rank()).filter(|_| maker.dice.one_in(2)).collect();
    let scale = if matches!(kind, Reduction::Sum | Reduction::SumSquares) { 0.02 } else { 1.0 };
    let y = x.reduce_keep(kind, &axes).scale(scale);
    let y = if maker.dice.one_in(2) { y.expand(x.shape()) } else { y };
    maker.keep(x.sub(&y));
}

/// Maximum over values with ties and zeros, as in max pooling over time.
fn maximum(maker: &mut Maker) {
    let x = any(maker);
    let y = if maker.dice.one_in(2) { x.relu() } else { x.tanh() };
    let axis = maker.dice.below(x.shape().rank());
    let z = y.max(&[axis]);
    let term = z.square().mean(&[]);
    maker.term(term);
    maker.keep(y);
}

fn softmax(maker: &mut Maker) {
    let x = any(maker).scale(2.0);
    let y = if maker.dice.one_in(2) { x.softmax() } else { x.log_softmax().scale(0.2) };
    maker.keep(y);
}

/// `p log(p + ε)` of probabilities, some of them close to 0.
fn entropy(maker: &mut Maker) {
    let p = maker.matrix().scale(8.0).softmax();
    maker.term(p.mul(&p.offset(1e-9).log()).mean(&[]));
    maker.keep(p);
}

fn views(maker: &mut Maker) {
    let (x, Sizes { batch, width, .. }) = (maker.matrix(), maker.sizes);
    let y = match maker.dice.below(3) {
        0 => x.reshape([width, batch]).permute(&[1, 0]).reshape([batch * width]).reshape([batch, width]),
        1 => x.reshape([batch, 1, width]).permute(&[1, 2, 0]).reshape([width, batch]).transpose(0, 1).neg(),
        _ => x.tanh().reshape([batch * width]).exp().reshape([batch, width]).log(),
    };
    maker.keep(y);
}

fn slices(maker: &mut Maker) {
    let x = any(maker);
    let axis = maker.dice.below(x.shape().rank());
    let n = x.dim(axis);
    let cut = maker.dice.below(n + 1);
    let parts = [x.slice(axis, cut..n), x.slice(axis, 0..cut)];
    let y = match cut {
        _ if cut == 0 || cut == n => x.tanh(),
        _ if maker.dice.one_in(2) => parts[0].tanh().concat(&[&parts[1]], axis),
        _ => parts[1].concat(&[&parts[0].relu()], axis),
    };
    maker.keep(y);
}

fn padding(maker: &mut Maker) {
    let x = any(maker);
    let axis = maker.dice.below(x.shape().rank());
    let (before, after, n) = (maker.dice.below(3), maker.dice.below(3), x.dim(axis));
    let start = maker.dice.below(before + after + 1);
    maker.keep(x.pad(axis, before, after).add(&x.fill_like([], 0.25)).slice(axis, start..start + n));
}

/// Slices with steps, either direction, and elements placed apart from each other.
fn steps(maker: &mut Maker) {
    let x = any(maker);
    let axis = maker.dice.below(x.shape().rank());
    let n = x.dim(axis);
    let y = match maker.dice.below(4) {
        0 => x.tanh().flip(axis),
        1 => x.roll(axis, maker.dice.below(2 * n) as isize - n as isize),
        2 => {
            let apart = |start: usize, x: &Tensor| {
                let len = x.dim(axis);
                let op = Op::Place { axis, start, step: 2, len: 2 * len };
                x.one(op, &[x], Location::caller())
            };
            // Even and odd elements, woven together again.
            let cut = x.slice(axis, 0..n / 2 * 2);
            let [even, odd] = [0, 1].map(|start| cut.slice_step(axis, start..n / 2 * 2, 2));
            let woven = apart(0, &odd).add(&apart(1, &even));
            if n % 2 == 1 { woven.concat(&[&x.slice(axis, n - 1..n)], axis) } else { woven }
        }
        _ => x.cumsum(axis).scale(0.2),
    };
    maker.keep(y);
}

/// Elements by index, and sums of them.
fn indices(maker: &mut Maker) {
    let (x, Sizes { batch, width, .. }) = (maker.matrix(), maker.sizes);
    let y = match maker.dice.below(4) {
        0 => x.gather(1, &maker.ids([batch, width], width)),
        1 => {
            let some = x.index_select(1, &maker.ids([batch], width));
            x.add(&some.reduce_keep(Reduction::Mean, &[1]))
        }
        2 => x.tanh().scatter_add(1, &maker.ids([batch, width], width), &x),
        _ => {
            let shifted = x.indices_like([batch, width], 1).scale(0.1);
            x.add(&shifted.sin())
        }
    };
    maker.keep(y);
}

/// Sorted rows: the order is that of numbers far from each other, which no rounding changes.
fn sorted(maker: &mut Maker) {
    let Sizes { batch, width, .. } = maker.sizes;
    let keys = maker.ids([batch, width], 1000).cast(DType::F32);
    let order = keys.argsort(1, maker.dice.one_in(2));
    let y = maker.matrix().gather(1, &order);
    maker.keep(y);
}

fn detached(maker: &mut Maker) {
    let x = any(maker);
    maker.keep(x.sub(&x.tanh().detach().scale(0.5)));
}

fn repeated(maker: &mut Maker) {
    let Sizes { batch, width, channels, side, .. } = maker.sizes;
    let wide = if maker.dice.one_in(2) {
        maker.weight([width], 1).expand([batch, width])
    } else {
        maker.weight([batch, 1, side, 1], 1).expand([batch, channels, side, side])
    };
    maker.keep(wide.sigmoid());
}

fn casts(maker: &mut Maker) {
    let Sizes { batch, width, .. } = maker.sizes;
    let dtype = maker.dice.of(&[DType::F16, DType::BF16]);
    let x = maker.matrix();
    let y = match maker.dice.below(4) {
        0 => {
            let packed = x.cast(dtype);
            maker.read(&packed);
            packed.cast(DType::F32)
        }
        1 => maker.half([batch, width], dtype).cast(DType::F32).add(&x),
        2 => {
            let w = maker.weight([width, width], width);
            x.cast(dtype).matmul(&w)
        }
        _ => x.add(&maker.ids([batch, width], 4).cast(DType::F32).scale(0.1)),
    };
    maker.keep(y);
}

fn dropout(maker: &mut Maker) {
    let p = maker.dice.of(&[0.1, 0.5]);
    let y = any(maker).dropout(p);
    maker.keep(y);
}

fn embedding(maker: &mut Maker) {
    let Sizes { batch, width, length, .. } = maker.sizes;
    let rows = maker.dice.of(&[3, 50, 300]);
    let table = maker.weight([rows, width], 1);
    let ids = maker.ids([batch, length], rows);
    let y = table.embedding(&ids).mean(&[1]);
    let y = if maker.dice.one_in(2) { y.add(&table.slice(0, 0..1)) } else { y };
    maker.keep(y);
}

fn row_norm(maker: &mut Maker) {
    let x = any(maker);
    let d = x.shape().last();
    let (gamma, beta) = (maker.weight([d], 1).offset(1.0), maker.weight([d], 1));
    let y = if maker.dice.one_in(2) { x.layer_norm(&gamma, &beta, 1e-5) } else { x.rms_norm(&gamma, 1e-5) };
    maker.keep(y);
}

fn cross_entropy(maker: &mut Maker) {
    let (x, Sizes { batch, width, classes, .. }) = (maker.matrix(), maker.sizes);
    let w = maker.weight([width, classes], width);
    let ignored = maker.dice.one_in(2);
    let labels = maker.labels([batch], ignored);
    let large = maker.dice.of(&[1.0, 20.0]);
    maker.term(x.matmul(&w).scale(large).cross_entropy(&labels));
}

/// A table used both as an embedding and as the output weight, with logits computed in chunks.
fn tied_head(maker: &mut Maker) {
    let Sizes { batch, width, length, classes, .. } = maker.sizes;
    let table = maker.weight([classes, width], width);
    let x = table.embedding(&maker.ids([batch, length], classes)).reshape([batch * length, width]);
    let hidden = x.tanh();
    let ignored = maker.dice.one_in(2);
    let labels = maker.labels([batch, length], ignored).reshape([batch * length]);
    let chunks = maker.dice.below((batch * length).min(3)) + 1;
    maker.term(hidden.linear_cross_entropy(&table, &labels, chunks));
}

fn window(maker: &mut Maker, kernel: usize) -> Window {
    let (stride, dilation) = (maker.dice.of(&[1, 1, 2]), maker.dice.of(&[1, 1, 2]));
    Window { padding: [maker.dice.below(kernel), kernel / 2], ..Window::square(kernel) }
        .stride(stride)
        .dilation(dilation)
}

/// Keeps an image; one of another size is projected to a matrix.
pub(super) fn keep_image(maker: &mut Maker, y: Tensor) {
    let Sizes { channels, side, .. } = maker.sizes;
    if y.shape().rank() == 4 && y.shape().dims()[1..] == [channels, side, side] {
        maker.keep(y);
    } else {
        maker.keep_flat(&y);
    }
}

fn convolution(maker: &mut Maker) {
    let (x, c) = (maker.image(), maker.sizes.channels);
    let kernel = maker.dice.of(&[1, 2, 3, 3]);
    let groups = maker.dice.of(&[1, 1, 2, c]);
    let out = groups * maker.dice.of(&[1, 2, 3]);
    let w = maker.weight([out, c / groups, kernel, kernel], c / groups * kernel * kernel);
    let bias = maker.dice.one_in(2).then(|| maker.weight([out], 1));
    let window = window(maker, kernel);
    let y = x.conv2d(&w, bias.as_ref(), window, groups);
    let y = if maker.dice.one_in(2) { activation(maker, &y) } else { y };
    keep_image(maker, y);
}

fn transposed_convolution(maker: &mut Maker) {
    let (x, c) = (maker.image(), maker.sizes.channels);
    let kernel = maker.dice.of(&[2, 3]);
    let groups = maker.dice.of(&[1, 2]);
    let out = maker.dice.of(&[1, 2]);
    let w = maker.weight([c, out, kernel, kernel], c);
    let bias = maker.dice.one_in(2).then(|| maker.weight([out * groups], 1));
    let window = window(maker, kernel);
    let most = window.stride[0].max(window.dilation[0]);
    let extra = [maker.dice.below(most), maker.dice.below(most)];
    let y = x.conv_transpose2d(&w, bias.as_ref(), window, extra, groups);
    keep_image(maker, y);
}

fn joined_convolution(maker: &mut Maker) {
    let (x, y, c) = (maker.image(), maker.image(), maker.sizes.channels);
    let w = maker.weight([c, 2 * c, 3, 3], 18 * c);
    let z = x.relu().concat(&[&y], 1).conv2d(&w, None, Window::square(3).padding(1), 1);
    maker.keep(z);
}

/// Convolution, batch norm, activation and convolution, as in image networks: the results between the
/// convolutions need not be saved.
fn normed_convolution(maker: &mut Maker) {
    let (x, c) = (maker.image(), maker.sizes.channels);
    let w = maker.weight([c, c, 3, 3], 9 * c);
    let same = Window::square(3).padding(1);
    let y = x.conv2d(&w, None, same, 1);
    let y = maker.batch_norm(&y);
    let y = if maker.dice.one_in(2) { y.relu() } else { y.clamp(0.0, 6.0) };
    let w = maker.weight([c, c, 1, 1], c);
    let z = y.conv2d(&w, None, Window::square(1), 1);
    let z = if maker.dice.one_in(2) { z.add(&x) } else { z };
    maker.keep(z);
}

fn batch_norm(maker: &mut Maker) {
    let x = maker.image();
    let y = maker.batch_norm(&x);
    let y = if maker.dice.one_in(2) { activation(maker, &y) } else { y };
    maker.keep(y);
}

fn fixed_batch_norm(maker: &mut Maker) {
    let (x, c) = (maker.image(), maker.sizes.channels);
    let (gamma, beta) = (maker.weight([c], 1), maker.weight([c], 1));
    let [mean, var] = match maker.dice.one_in(2) {
        true => [maker.weight([c], 1), maker.weight([c], 1).square().offset(0.5)],
        false => maker.running(c),
    };
    maker.keep(x.batch_norm_eval(&gamma, &beta, &mean, &var, 1e-5).relu());
}

fn group_norm(maker: &mut Maker) {
    let (x, c) = (maker.image(), maker.sizes.channels);
    let (gamma, beta) = (maker.weight([c], 1), maker.weight([c], 1));
    let groups = maker.dice.of(&[1, 2, c]);
    maker.keep(x.group_norm(groups, &gamma, &beta, 1e-5));
}

fn max_pool(maker: &mut Maker) {
    let x = maker.image();
    let x = if maker.dice.one_in(2) { x.relu() } else { x };
    let kernel = maker.dice.of(&[2, 3]);
    let window = Window { padding: [maker.dice.below(kernel / 2 + 1); 2], ..window(maker, kernel) };
    let window =
        if kernel == 3 { Window::square(3).padding(1) } else { Window { dilation: [1; 2], ..window } };
    keep_image(maker, x.max_pool2d(window));
}

fn average_pool(maker: &mut Maker) {
    let x = maker.image();
    let kernel = maker.dice.of(&[2, 3]);
    let y = match maker.dice.below(3) {
        0 => x.adaptive_avg_pool2d([maker.dice.below(4) + 1, maker.dice.below(7) + 1]),
        1 => x.avg_pool2d(Window::square(3).padding(1), maker.dice.one_in(2)),
        _ => x.avg_pool2d(Window::square(kernel).stride(2).padding(1), maker.dice.one_in(2)),
    };
    keep_image(maker, y);
}

fn resampling(maker: &mut Maker) {
    let (x, side) = (maker.image(), maker.sizes.side);
    let size = [maker.dice.of(&[3, side, 2 * side]), maker.dice.of(&[1, side + 1, 11])];
    let y = match maker.dice.below(3) {
        0 => x.upsample_nearest(size),
        1 => x.upsample_bilinear(size, false),
        _ => x.upsample_bilinear(size, true),
    };
    let y = if maker.dice.one_in(2) { y.upsample_nearest([side; 2]) } else { y.zero_pad2d([1, 0], [0, 2]) };
    keep_image(maker, y);
}
