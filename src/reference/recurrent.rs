//! Gates of recurrent layers, from the formulas of PyTorch's documentation of `LSTM` and `GRU`.

use super::Array;
use crate::graph::{Gates, sigmoid};

/// The element of gate `k` that belongs to element `i` of `[rows, size]`.
fn gate(x: &Array, gates: Gates, size: usize, i: usize, k: usize) -> f64 {
    x.data[i / size * size * gates.count() + k * size + i % size]
}

fn size(x: &Array, gates: Gates) -> usize {
    x.shape.last() / gates.count()
}

/// Puts numbers of each gate, by elements of `[rows, size]`, into rows of gates.
fn rows<const N: usize>(size: usize, by_element: &[[f64; N]]) -> Vec<f64> {
    let of_row = |row: &[[f64; N]]| {
        (0..N).flat_map(|k| row.iter().map(move |x| x[k]).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    by_element.chunks(size).flat_map(of_row).collect()
}

pub(super) fn forward(inputs: &[Array], gates: Gates) -> Vec<Vec<f64>> {
    let (x, size) = (&inputs[0], size(&inputs[0], gates));
    match gates {
        Gates::Lstm => {
            let step = |(i, memory): (usize, &f64)| {
                let [input, forget, new, output] = [0, 1, 2, 3].map(|k| gate(x, gates, size, i, k));
                let memory = sigmoid(forget) * memory + sigmoid(input) * new.tanh();
                (sigmoid(output) * memory.tanh(), memory)
            };
            let (h, memory) = inputs[1].data.iter().enumerate().map(step).unzip();
            vec![h, memory]
        }
        Gates::Gru => {
            let step = |(i, h): (usize, &f64)| {
                let [own, back] = [x, &inputs[1]].map(|x| [0, 1, 2].map(|k| gate(x, gates, size, i, k)));
                let new = (own[2] + sigmoid(own[0] + back[0]) * back[2]).tanh();
                let update = sigmoid(own[1] + back[1]);
                (1.0 - update) * new + update * h
            };
            vec![inputs[2].data.iter().enumerate().map(step).collect()]
        }
    }
}

pub(super) fn gradient(inputs: &[Array], gates: Gates) -> Vec<Vec<f64>> {
    let (x, size) = (&inputs[0], size(&inputs[0], gates));
    let slope = |s: f64| s * (1.0 - s);
    let count = 0..inputs[2].data.len();
    match gates {
        Gates::Lstm => {
            let [memory, now, dy, dnow] = [1, 2, 3, 4].map(|i| inputs[i].data);
            let step = |i: usize| {
                let [a, b, c, d] = [0, 1, 2, 3].map(|k| gate(x, gates, size, i, k));
                let (input, forget, new, output) = (sigmoid(a), sigmoid(b), c.tanh(), sigmoid(d));
                let t = now[i].tanh();
                let all = dnow[i] + dy[i] * output * (1.0 - t * t);
                let dx = [
                    all * new * slope(input),
                    all * memory[i] * slope(forget),
                    all * input * (1.0 - new * new),
                    dy[i] * t * slope(output),
                ];
                (dx, all * forget)
            };
            let (dx, dmemory): (Vec<_>, Vec<f64>) = count.map(step).unzip();
            vec![rows(size, &dx), dmemory]
        }
        Gates::Gru => {
            let [h, dy] = [2, 3].map(|i| inputs[i].data);
            let step = |i: usize| {
                let [own, back] = [x, &inputs[1]].map(|x| [0, 1, 2].map(|k| gate(x, gates, size, i, k)));
                let [reset, update] = [0, 1].map(|k| sigmoid(own[k] + back[k]));
                let new = (own[2] + reset * back[2]).tanh();
                let dnew = dy[i] * (1.0 - update) * (1.0 - new * new);
                let dreset = dnew * back[2] * slope(reset);
                let dupdate = dy[i] * (h[i] - new) * slope(update);
                ([dreset, dupdate, dnew], ([dreset, dupdate, dnew * reset], dy[i] * update))
            };
            let (dx, (dback, dh)): (Vec<_>, (Vec<_>, Vec<f64>)) = count.map(step).unzip();
            vec![rows(size, &dx), rows(size, &dback), dh]
        }
    }
}
