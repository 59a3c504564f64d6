//! Recurrent layers, unrolled over the steps of a sequence when they are traced.

use super::Module;
use crate::graph::{Init, Param, Params, Tensor};

/// Most steps of a sequence, or parts of it, that are traced one by one: each is operations of its own.
pub(crate) const MAX_PARTS: usize = 1 << 14;

/// What a recurrent layer computes at each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cell {
    /// `h = tanh(W x + b + U h + c)` (Elman 1990), `torch.nn.RNN`.
    Rnn,
    /// Gated recurrent unit (Cho et al. 2014) in PyTorch's form, `torch.nn.GRU`.
    Gru,
    /// Long short-term memory (Hochreiter & Schmidhuber 1997), `torch.nn.LSTM`.
    #[default]
    Lstm,
}

impl Cell {
    /// Returns how many vectors of the hidden size a step computes.
    pub(crate) const fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }
}

/// Shape of a [`Recurrent`] network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentConfig {
    /// What a step computes.
    pub cell: Cell,
    /// Layers above each other.
    pub layers: usize,
    /// Each layer also runs from the end to the start; both results are concatenated.
    pub bidirectional: bool,
}

impl Default for RecurrentConfig {
    /// One layer of LSTM, forwards.
    fn default() -> Self {
        Self { cell: Cell::Lstm, layers: 1, bidirectional: false }
    }
}

/// `torch.nn.LSTM`, `GRU` or `RNN` with `batch_first=True`: parameters `weight_ih_l0 [gates h, in]`,
/// `weight_hh_l0 [gates h, h]`, `bias_ih_l0`, `bias_hh_l0 [gates h]` and so on by layer, with `_reverse` for the other
/// direction; all uniform in ±1/√h.
#[derive(Clone, Debug)]
pub struct Recurrent {
    path: String,
    config: RecurrentConfig,
    hidden: usize,
    /// For each layer, one or two directions.
    weights: Vec<Vec<[Param; 4]>>,
}

impl Recurrent {
    /// Registers the parameters at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, hidden: usize, config: RecurrentConfig) -> Self {
        let gates = config.cell.gates().saturating_mul(hidden);
        let directions: &[&str] = if config.bidirectional { &["", "_reverse"] } else { &[""] };
        let weights = |(layer, direction): (usize, &str)| {
            let width = if layer == 0 { inputs } else { hidden.saturating_mul(directions.len()) };
            let name = |kind: &str| format!("{kind}_l{layer}{direction}");
            [
                params.add(&name("weight_ih"), [gates, width], Init::fan_in(hidden)),
                params.add(&name("weight_hh"), [gates, hidden], Init::fan_in(hidden)),
                params.add(&name("bias_ih"), [gates], Init::fan_in(hidden)),
                params.add(&name("bias_hh"), [gates], Init::fan_in(hidden)),
            ]
        };
        let layer = |layer: usize| directions.iter().map(|direction| weights((layer, *direction))).collect();
        let weights = (0..config.layers).map(layer).collect();
        Self { path: params.path().to_owned(), config, hidden, weights }
    }

    /// One direction of a layer: `x [b, t, in] → [b, t, h]`. The products with the inputs of all steps are one.
    #[track_caller]
    fn direction(&self, x: &Tensor, weights: &[Param; 4], reverse: bool) -> Tensor {
        let [w, u, b, c] = weights.each_ref().map(|param| x.trace().param(param));
        let [batch, steps, size] = [x.dim(0), x.dim(1), self.hidden];
        let inputs = x.matmul_transposed(&w, false, true).add(&b);
        if inputs.id().is_none() || steps == 0 {
            return inputs;
        }
        let start = x.fill_like([batch, size], 0.0);
        let unrolled = Unrolled {
            cell: self.config.cell,
            inputs: &inputs,
            back: (&u, Some(&c)),
            gates: [0, 1, 2, 3],
            activations: [Tensor::sigmoid, Tensor::tanh, Tensor::tanh],
            reset_after: true,
            reverse,
        };
        let (results, ..) = unrolled.run(1, start.clone(), start);
        results[0].concat(&results[1..].iter().collect::<Vec<_>>(), 1)
    }
}

/// One direction of a layer with the products of its inputs computed.
pub(crate) struct Unrolled<'a> {
    pub(crate) cell: Cell,
    /// `W x + b` of all steps: gates along the last of three dimensions.
    pub(crate) inputs: &'a Tensor,
    /// `U [gates h, h]` and `c [gates h]`.
    pub(crate) back: (&'a Tensor, Option<&'a Tensor>),
    /// Where the gates lie: reset, update and new of a GRU; input, forget, cell and output of an LSTM.
    pub(crate) gates: [usize; 4],
    /// Of the gates, of what is new, and of the memory.
    pub(crate) activations: [fn(&Tensor) -> Tensor; 3],
    /// Whether a GRU resets the product with the hidden state, as PyTorch does, or the hidden state.
    pub(crate) reset_after: bool,
    /// From the last step to the first.
    pub(crate) reverse: bool,
}

impl Unrolled<'_> {
    /// Returns the hidden state of each step along `axis`, in the order of the inputs, with the axis of length 1; then the
    /// last hidden state and memory. All that `h` and `memory`, `[b, h]`, are at the start.
    #[track_caller]
    pub(crate) fn run(
        &self,
        axis: usize,
        mut h: Tensor,
        mut memory: Tensor,
    ) -> (Vec<Tensor>, Tensor, Tensor) {
        let (size, steps) = (h.dim(1), self.inputs.dim(axis));
        let [sigma, f, g] = self.activations;
        let (u, c) = self.back;
        let place = |i: usize| self.gates[i] * size..(self.gates[i] + 1) * size;
        let gate = |x: &Tensor, i: usize| x.slice(1, place(i));
        let biased = |x: Tensor, c: Option<Tensor>| c.map_or_else(|| x.clone(), |c| x.add(&c));
        let mut results: Vec<Tensor> = Vec::with_capacity(steps);
        let order: Vec<usize> = if self.reverse { (0..steps).rev().collect() } else { (0..steps).collect() };
        for step in order {
            let own = self.inputs.slice(axis, step..step + 1).squeeze(axis);
            h = match self.cell {
                Cell::Gru if !self.reset_after => {
                    let part = |h: &Tensor, i: usize| {
                        let product = h.matmul_transposed(&u.slice(0, place(i)), false, true);
                        gate(&own, i).add(&biased(product, c.map(|c| c.slice(0, place(i)))))
                    };
                    let [reset, update] = [0, 1].map(|i| sigma(&part(&h, i)));
                    let new = f(&part(&reset.mul(&h), 2));
                    new.add(&update.mul(&h.sub(&new)))
                }
                _ => {
                    let back = biased(h.matmul_transposed(u, false, true), c.cloned());
                    match self.cell {
                        Cell::Rnn => f(&own.add(&back)),
                        Cell::Gru => {
                            let [reset, update] = [0, 1].map(|i| sigma(&gate(&own, i).add(&gate(&back, i))));
                            let new = f(&gate(&own, 2).add(&reset.mul(&gate(&back, 2))));
                            new.add(&update.mul(&h.sub(&new)))
                        }
                        Cell::Lstm => {
                            let all = own.add(&back);
                            let [input, forget, output] = [0, 1, 3].map(|i| sigma(&gate(&all, i)));
                            memory = forget.mul(&memory).add(&input.mul(&f(&gate(&all, 2))));
                            output.mul(&g(&memory))
                        }
                    }
                }
            };
            results.push(h.unsqueeze(axis));
        }
        if self.reverse {
            results.reverse();
        }
        (results, h, memory)
    }
}

impl Module for Recurrent {
    /// `x [b, t, in] → [b, t, h]`, `[b, t, 2 h]` in both directions: the hidden states of the last layer. They start as
    /// zeros.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        if x.id().is_some() && x.shape().rank() != 3 {
            return x.mistake(
                format!("a recurrent layer of {}: [batch, steps, inputs] is needed", x.shape()),
                x.shape(),
            );
        }
        if x.id().is_some() && x.dim(1) > MAX_PARTS {
            let message = format!(
                "a recurrent layer of {} steps: it is unrolled, and at most {MAX_PARTS} are; cut the sequences into \
                 shorter ones",
                x.dim(1)
            );
            return x.mistake(message, x.shape());
        }
        x.trace().layer(&self.path, || {
            let layer = |x: Tensor, directions: &Vec<[Param; 4]>| {
                let both: Vec<Tensor> = directions
                    .iter()
                    .zip([false, true])
                    .map(|(weights, reverse)| self.direction(&x, weights, reverse))
                    .collect();
                if both.len() == 1 { both[0].clone() } else { both[0].concat(&[&both[1]], 2) }
            };
            self.weights.iter().fold(x.clone(), layer)
        })
    }
}
