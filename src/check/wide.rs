//! Building blocks of random networks with tensors that are larger than all others: with small bindings they are split.

use super::draws::activation;
use super::network::{Maker, Sizes};
use crate::graph::{Attention, Tensor, Window};

/// How much wider values are inside.
const TIMES: usize = 4;

pub(super) fn wide_images(maker: &mut Maker) {
    let (x, Sizes { batch, channels, side, .. }) = (maker.image(), maker.sizes);
    let wide = TIMES * channels;
    let (grow, shrink) =
        (maker.weight([wide, channels, 1, 1], channels), maker.weight([channels, wide, 1, 1], wide));
    let mut y = x.conv2d(&grow, None, Window::square(1), 1);
    for _ in 0..3 {
        y = match maker.dice.below(8) {
            0 | 1 => {
                let normed = maker.batch_norm(&y);
                activation(maker, &normed)
            }
            2 => {
                let w = maker.weight([wide, 1, 3, 3], 9);
                y.conv2d(&w, None, Window::square(3).padding(1), wide)
            }
            3 => y.sub(&y.mean(&[0, 2, 3]).reshape([1, wide, 1, 1])),
            4 => y.concat(&[&y.tanh()], 1).slice(1, channels..channels + wide),
            5 => {
                let (gamma, beta) = (maker.weight([wide], 1).offset(1.0), maker.weight([wide], 1));
                y.permute(&[0, 2, 3, 1]).layer_norm(&gamma, &beta, 1e-5).permute(&[0, 3, 1, 2])
            }
            6 => y.max_pool2d(Window::square(3).padding(1)),
            _ => {
                let w = maker.weight([wide, 1, 1], 1);
                y.mul(&w).add(
                    &y.sum(&[1, 2, 3]).scale(0.01).reshape([batch, 1, 1, 1]).expand([batch, 1, side, side]),
                )
            }
        };
    }
    let narrow = y.conv2d(&shrink, None, Window::square(1), 1);
    if maker.dice.one_in(3) {
        maker.term(y.square().mean(&[]));
    }
    maker.keep(narrow);
}

pub(super) fn wide_sequences(maker: &mut Maker) {
    let (x, Sizes { batch, length, heads, head, .. }) = (maker.sequence(), maker.sizes);
    let (width, rows) = (heads * head, batch * length);
    let rows_of = |y: &Tensor, w: &Tensor| y.matmul_transposed(w, false, true);
    let x = x.reshape([rows, width]);
    let y = if maker.dice.one_in(2) {
        let [inner, outer] =
            [[TIMES * width, width], [width, TIMES * width]].map(|shape| maker.weight(shape, shape[1]));
        let wide = rows_of(&x, &inner);
        let y = match maker.dice.below(3) {
            0 => wide.softmax(),
            1 => wide.reshape([batch, length, TIMES * width]).gelu().reshape([rows, TIMES * width]),
            _ => activation(maker, &wide),
        };
        rows_of(&y, &outer)
    } else {
        let w = maker.weight([3 * width, width], width);
        let qkv = rows_of(&x, &w).reshape([batch, length, 3 * heads, head]);
        qkv.self_attention(heads, heads, &Attention::default())
    };
    maker.keep(y.reshape([batch, length, heads, head]));
}

/// A table of more elements than a piece of a parameter has.
pub(super) fn wide_tables(maker: &mut Maker) {
    let batch = maker.sizes.batch;
    let columns = maker.dice.of(&[16, 24, 64]);
    let rows = 20_000 / columns + 3;
    let table = maker.weight([rows, columns], columns);
    let x = table.embedding(&maker.ids([batch, 3], rows)).sum(&[1]);
    if maker.dice.one_in(2) {
        let chunks = maker.dice.below(batch) + 1;
        let labels = maker.labels_of(rows, [batch], true);
        maker.term(x.tanh().linear_cross_entropy(&table, &labels, chunks));
    } else {
        let found = x.matmul_transposed(&table, false, true).scale(4.0).softmax().matmul(&table);
        maker.term(found.sub(&x).square().mean(&[]));
    }
}
