//! Building blocks of random networks from functions that are composed of others.

use super::draws::{any, keep_image};
use super::network::{Maker, Sizes};
use crate::dtype::DType;
use crate::graph::{Bag, CrossEntropy, Init, Padding, Reduce, Reduction, Tensor, Window};

/// The gates of a step of a recurrent layer.
pub(super) fn gates(maker: &mut Maker) {
    let (x, h, n) = (maker.matrix(), maker.matrix(), maker.sizes.width);
    if maker.dice.one_in(2) {
        let w = maker.weight([n, 4 * n], n);
        let [y, memory] = x.matmul(&w).lstm_gates(&h);
        let seen = match maker.dice.below(3) {
            0 => y,
            1 => memory,
            _ => y.add(&memory),
        };
        maker.keep(seen);
    } else {
        let [w, u] = [0; 2].map(|_| maker.weight([n, 3 * n], n));
        maker.keep(x.matmul(&w).gru_gates(&h.matmul(&u), &h));
    }
}

/// Statistics of random axes, which are subtracted.
pub(super) fn statistics(maker: &mut Maker) {
    let x = any(maker);
    let mut axes: Vec<usize> = (0..x.shape().rank()).filter(|_| maker.dice.one_in(2)).collect();
    if axes.is_empty() {
        axes.push(x.shape().rank() - 1);
    }
    let y = match maker.dice.below(7) {
        0 => x.min(&axes),
        1 => x.tanh().prod(&axes),
        2 => x.var(&axes, 0),
        3 => x.add(&x.indices_like(x.shape(), axes[0]).scale(0.3)).std(&axes, 0),
        4 => x.norm(2.0, &axes).scale(0.1),
        5 => x.abs().offset(0.1).norm(3.0, &axes).scale(0.1),
        _ => x.logsumexp(&axes),
    };
    let kept = axes.iter().fold(x.shape(), |shape, axis| shape.with(*axis, 1));
    maker.keep(x.sub(&y.reshape(kept)));
}

pub(super) fn activations(maker: &mut Maker) {
    let x = any(maker);
    let y = match maker.dice.below(5) {
        0 => x.selu(),
        1 => x.celu(0.7),
        2 => {
            let slope = maker.weight([x.shape().last()], 1);
            x.prelu(&slope)
        }
        3 => x.concat(&[&x.sin()], 1).glu(1),
        _ => x.concat(&[&x.scale(0.5)], 0).swiglu(0),
    };
    maker.keep(y);
}

pub(super) fn softmax_over(maker: &mut Maker) {
    let x = any(maker);
    let axis = maker.dice.below(x.shape().rank());
    let y = if maker.dice.one_in(2) { x.softmax_over(axis) } else { x.log_softmax_over(axis).scale(0.2) };
    maker.keep(y);
}

pub(super) fn arrangements(maker: &mut Maker) {
    let x = any(maker);
    let axis = maker.dice.below(x.shape().rank());
    let n = x.dim(axis);
    let y = match maker.dice.below(6) {
        0 => {
            let mode = maker.dice.of(&[
                Padding::Constant(0.5),
                Padding::Reflect,
                Padding::Replicate,
                Padding::Circular,
            ]);
            let most = if mode == Padding::Reflect { n - 1 } else { n };
            let [before, after] = [0; 2].map(|_| maker.dice.below(most.min(2) + 1));
            let start = maker.dice.below(before + after + 1);
            x.pad_with(axis, before, after, mode).slice(axis, start..start + n)
        }
        1 => x.tril(maker.dice.below(3) as isize - 1),
        2 => x.triu(maker.dice.below(3) as isize - 1),
        3 => {
            let mut times = vec![1; x.shape().rank()];
            times[axis] = 2;
            x.repeat(&times).slice(axis, 1..n + 1)
        }
        4 => {
            let parts = x.chunk(axis, 3);
            let others: Vec<Tensor> = parts[1..].iter().map(Tensor::tanh).collect();
            parts[0].concat(&others.iter().collect::<Vec<_>>(), axis)
        }
        _ => x.stack(&[&x.tanh(), &x.neg()], axis).mean(&[axis]),
    };
    maker.keep(y);
}

pub(super) fn einsum(maker: &mut Maker) {
    let (x, n) = (maker.matrix(), maker.sizes.width);
    let w = maker.weight([n, n], n);
    let y = match maker.dice.below(5) {
        0 => x.einsum("bi,ji->bj", &[&w]),
        1 => x.einsum("bi,ii->bi", &[&w]),
        2 => x.einsum("...i,...ij,j->...j", &[&w, &w.sum(&[0]).scale(0.1)]),
        3 => x.einsum("bi,bj->ij", &[&x.tanh()]).einsum("ij,bi->bj", &[&x]).scale(0.1),
        _ => x.einsum("bi,bi->b", &[&x.sin()]).scale(0.1).unsqueeze(1).add(&x),
    };
    maker.keep(y);
}

/// Convolutions, pools and norms over one and three dimensions, and pools with other windows.
pub(super) fn volumes(maker: &mut Maker) {
    let (x, Sizes { batch, channels, side, .. }) = (maker.image(), maker.sizes);
    let line = x.reshape([batch, channels, side * side]);
    let volume = x.reshape([batch, 1, channels, side, side]);
    let groups = maker.dice.of(&[1, 2]);
    let y = match maker.dice.below(10) {
        0 => {
            let w = maker.weight([2 * groups, channels / groups, 3], 3 * channels);
            line.conv1d(&w, None, Window::of([3]).stride(2).padding(1), groups)
        }
        1 => {
            let w = maker.weight([channels, 2, 3], 3 * channels);
            line.conv_transpose1d(&w, None, Window::of([3]).stride(2).padding(1), 1, groups)
        }
        2 => {
            let w = maker.weight([2, 1, 2, 3, 3], 18);
            volume.conv3d(&w, None, Window::of([2, 3, 3]).paddings([1, 1, 0]).strides([1, 2, 1]), 1)
        }
        3 => {
            let w = maker.weight([1, 2, 2, 2, 2], 8);
            volume.conv_transpose3d(&w, None, Window::of([2, 2, 2]).strides([2, 1, 1]), [0; 3], 1)
        }
        4 => x.max_pool2d_ceil(Window::square(3).stride(2).padding(1)),
        5 => x.avg_pool2d_ceil(Window::square(3).stride(2).padding(1), maker.dice.one_in(2)),
        6 => volume.avg_pool3d_ceil(Window::square(2).stride(2).paddings([0, 1, 1]), false),
        7 => volume.max_pool3d(Window::of([2, 2, 2]).paddings([0, 0, 1])),
        8 => line.adaptive_avg_pool1d(3),
        _ => x.adaptive_max_pool2d([3, 2]),
    };
    maker.keep_flat(&y);
}

pub(super) fn channels(maker: &mut Maker) {
    let (x, Sizes { channels, side, .. }) = (maker.image(), maker.sizes);
    let y = match maker.dice.below(4) {
        0 => {
            let [gamma, beta] = [0; 2].map(|_| maker.weight([channels], 1));
            x.instance_norm(&gamma.offset(1.0), &beta, 1e-3)
        }
        1 => x.local_response_norm(3, 0.5, 0.75, 1.0),
        2 => x.upsample_bicubic([side + 2, 4], maker.dice.one_in(2)),
        _ => x.upsample_nearest([2 * side; 2]).pixel_unshuffle(2).pixel_shuffle(2),
    };
    keep_image(maker, y);
}

/// Positions are those of numbers far from each other, which no rounding changes.
pub(super) fn positions(maker: &mut Maker) {
    let Sizes { batch, width, .. } = maker.sizes;
    let x = maker.matrix();
    let keys = maker.ids([batch, width], 1000).cast(DType::F32);
    let y = match maker.dice.below(3) {
        0 => {
            let (_, ids) = keys.topk(2, 1, maker.dice.one_in(2));
            x.add(&x.gather(1, &ids).reduce_keep(Reduction::Mean, &[1]))
        }
        1 => x.add(&x.gather(1, &keys.argmax(1).unsqueeze(1))),
        _ => x.mul(&keys.argmin(1).one_hot(width).scale(0.5)),
    };
    maker.keep(y);
}

pub(super) fn bags(maker: &mut Maker) {
    let Sizes { batch, width, length, .. } = maker.sizes;
    let table = maker.weight([5, width], 1);
    let ids = maker.ids([batch, length], 5);
    let bag = maker.dice.of(&[Bag::Sum, Bag::Mean, Bag::Max]);
    let padding = maker.dice.of(&[None, Some(2)]);
    maker.keep(table.embedding_bag(&ids, bag, padding));
}

pub(super) fn losses(maker: &mut Maker) {
    let (x, Sizes { batch, width, classes, .. }) = (maker.matrix(), maker.sizes);
    let target = maker.input(x.shape());
    let w = maker.weight([width, classes], width);
    let loss = match maker.dice.below(12) {
        0 => x.l1(&target),
        1 => x.huber(&target, 0.6),
        2 => x.smooth_l1(&target, 0.8),
        3 => x.hinge(&target.sign()),
        4 => x.log_softmax().kl_div(&target.softmax()),
        5 => x.cosine_similarity(&target, 1, 1e-6).mean(&[]),
        6 => {
            let ignored = maker.dice.one_in(2);
            let labels = maker.labels([batch], ignored);
            x.matmul(&w).log_softmax().nll(&labels)
        }
        7 => {
            let ignored = maker.dice.one_in(2);
            let labels = maker.labels([batch], ignored);
            let weight = maker.weight([classes], 1).abs().offset(0.2);
            let options = CrossEntropy { weight: Some(&weight), label_smoothing: 0.1, reduce: Reduce::None };
            x.matmul(&w).cross_entropy_with(&labels, &options).mean(&[])
        }
        8 | 9 => x.mse(&target),
        10 => x.bce_with_logits(&target.sigmoid()),
        _ => {
            let steps = x.matmul(&w).unsqueeze(0);
            let steps = steps.concat(&[&steps.scale(0.5), &steps.sin(), &steps.neg()], 0);
            let labels = maker.ids([batch, 2], classes - 1).cast(DType::F32).offset(1.0).cast(DType::U32);
            let whole = |n: f32| x.fill_like([batch], n).cast(DType::U32);
            steps.log_softmax().ctc(&labels, &whole(4.0), &whole(1.0), 0)
        }
    };
    maker.term(loss.scale(0.1));
}

/// An output in a parameter's memory, and a buffer that the forward pass reads.
pub(super) fn outputs(maker: &mut Maker) {
    let width = maker.sizes.width;
    let (w, fixed) = (maker.weight([2, width], 1), maker.parameter([width], Init::Uniform(0.5), false));
    maker.read(&w.reshape([2 * width]));
    let y = maker.matrix().add(&w.sum(&[0])).mul(&fixed);
    maker.keep(y);
}
