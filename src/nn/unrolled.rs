//! One direction of a recurrent layer, step by step, with a backward pass of its own: a product and a kernel for a step,
//! and one product for the gradient of the weights.

use super::Cell;
use crate::graph::Tensor;

/// A function of elements.
pub(crate) type Activation = fn(&Tensor) -> Tensor;

/// One direction of a layer with the products of its inputs computed.
pub(crate) struct Unrolled<'a> {
    pub(crate) cell: Cell,
    /// `W x + b` of all steps `[t, b, gates h]`, gates in PyTorch's order.
    pub(crate) inputs: &'a Tensor,
    /// `U [gates h, h]` and `c [gates h]`.
    pub(crate) back: (&'a Tensor, Option<&'a Tensor>),
    /// Of the gates, of what is new, and of the memory, where they are not the cell's.
    pub(crate) activations: Option<[Activation; 3]>,
    /// Whether a GRU resets the product with the hidden state, as PyTorch does, or the hidden state.
    pub(crate) reset_after: bool,
    /// From the last step to the first.
    pub(crate) reverse: bool,
}

/// What the forward pass of a step leaves for the backward pass. Rows are those of a batch.
struct Step {
    /// Position in the sequence.
    at: usize,
    /// What the gates are computed from: one or two tensors of as many columns.
    gates: Vec<Tensor>,
    /// Hidden state and memory before the step, and after it.
    before: [Tensor; 2],
    after: [Tensor; 2],
}

impl Unrolled<'_> {
    /// Returns the hidden states `[t, b, h]`, in the order of the inputs; then the last hidden state and the last memory,
    /// which layers without a memory return as they got it. All that `h` and `memory`, `[b, h]`, are at the start.
    #[track_caller]
    pub(crate) fn run(&self, h: Tensor, memory: Tensor) -> (Tensor, Tensor, Tensor) {
        if self.activations.is_some() || self.cell == Cell::Gru && !self.reset_after {
            return self.by_elements(h, memory);
        }
        let (batch, size, steps) = (h.dim(0), h.dim(1), self.inputs.dim(0));
        let lstm = self.cell == Cell::Lstm;
        let (u, c) = self.back;
        let inputs = match (self.cell, c) {
            (Cell::Gru, _) | (_, None) => self.inputs.clone(),
            // Biases of sums are added once for all steps.
            (_, Some(c)) => self.inputs.add(c),
        };
        let zero = || u.fill_like([u.dim(0)], 0.0);
        let c = if self.cell == Cell::Gru { c.cloned().unwrap_or_else(zero) } else { zero() };
        let flat = inputs.reshape([steps * batch, u.dim(0)]);
        let mut done: Vec<Step> = Vec::with_capacity(steps);
        let mut before = [h.clone(), memory.clone()];
        for at in self.order() {
            let own = flat.slice(0, at * batch..(at + 1) * batch);
            let product = before[0].matmul_transposed(u, false, true);
            let (gates, after) = match self.cell {
                Cell::Lstm => {
                    let x = product.add(&own);
                    let after = x.lstm_gates(&before[1]);
                    (vec![x], after)
                }
                Cell::Gru => {
                    let back = product.add(&c);
                    let after = [own.gru_gates(&back, &before[0]), before[1].clone()];
                    (vec![own, back], after)
                }
                Cell::Rnn | Cell::ReluRnn => {
                    let sum = product.add(&own);
                    let h = if self.cell == Cell::Rnn { sum.tanh() } else { sum.relu() };
                    (Vec::new(), [h, before[1].clone()])
                }
            };
            done.push(Step { at, gates, before, after: after.clone() });
            before = after;
        }
        // The last memory follows the hidden states: one result has one gradient.
        let mut parts: Vec<&Tensor> = done.iter().map(|step| &step.after[0]).collect();
        if self.reverse {
            parts.reverse();
        }
        let last = before[1].clone();
        if lstm {
            parts.push(&last);
        }
        let whole = parts[0].concat(&parts[1..], 0);
        let rows = steps * batch;
        let operands = [&inputs, u, &c, &h, &memory];
        let whole = whole.with_gradient(operands, |dy| {
            let [dx, du, dc, dh, dmemory] = self.backward(&done, dy, &whole, u);
            [dx.reshape(inputs.shape()), du, dc, dh, dmemory]
        });
        let results = if lstm { whole.slice(0, 0..rows) } else { whole.clone() };
        let last = if lstm { whole.slice(0, rows..rows + batch) } else { memory };
        let end = if self.reverse { 0 } else { rows - batch };
        let h = results.slice(0, end..end + batch);
        (results.reshape([steps, batch, size]), h, last)
    }

    fn order(&self) -> Vec<usize> {
        let steps = self.inputs.dim(0);
        if self.reverse { (0..steps).rev().collect() } else { (0..steps).collect() }
    }

    /// The gradients of the inputs `[t b, gates h]`, U, c, and of the first hidden state and memory.
    /// `whole` are the hidden states of all steps.
    fn backward(&self, done: &[Step], dy: &Tensor, whole: &Tensor, u: &Tensor) -> [Tensor; 5] {
        let batch = done[0].before[0].dim(0);
        let rows = done.len() * batch;
        let none = |like: &Tensor| like.fill_like(like.shape(), 0.0);
        let first = &done[0].before;
        let mut dmemory =
            if self.cell == Cell::Lstm { dy.slice(0, rows..rows + batch) } else { none(&first[1]) };
        // By position: gradients of the sums with W x, and with U h.
        let mut own: Vec<Option<Tensor>> = vec![None; done.len()];
        let mut back = own.clone();
        let mut dh: Option<Tensor> = None;
        for step in done.iter().rev() {
            let outer = dy.slice(0, step.at * batch..(step.at + 1) * batch);
            let d = dh.map_or_else(|| outer.clone(), |dh| dh.add(&outer));
            let [h, memory] = &step.before;
            let (dx, dback, direct) = match self.cell {
                Cell::Lstm => {
                    let [dx, before] = step.gates[0].lstm_gates_grad(memory, &step.after[1], &d, &dmemory);
                    dmemory = before;
                    (dx.clone(), dx, None)
                }
                Cell::Gru => {
                    let [dx, dback, dh] = step.gates[0].gru_gates_grad(&step.gates[1], h, &d);
                    (dx, dback, Some(dh))
                }
                Cell::Rnn | Cell::ReluRnn => {
                    let y = &step.after[0];
                    let dx = match self.cell {
                        Cell::Rnn => d.sub(&d.mul(&y.square())),
                        _ => d.masked(&y.greater(&y.fill_like([], 0.0))),
                    };
                    (dx.clone(), dx, None)
                }
            };
            let product = dback.matmul(u);
            dh = Some(direct.map_or_else(|| product.clone(), |direct| product.add(&direct)));
            own[step.at] = Some(dx);
            back[step.at] = Some(dback);
        }
        let joined = |parts: Vec<Option<Tensor>>| {
            let parts: Vec<Tensor> = parts.into_iter().flatten().collect();
            parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), 0)
        };
        let dx = joined(own);
        // Those of a GRU differ.
        let dback = if self.cell == Cell::Gru { joined(back) } else { dx.clone() };
        // The states before the steps are those after them, moved by one, and the first.
        let (early, late) = (0..rows - batch, batch..rows);
        let (first_rows, rest, before) = match self.reverse {
            false => (0..batch, late, early),
            true => (rows - batch..rows, early, late),
        };
        let mut du = dback.slice(0, first_rows).matmul_transposed(&first[0], true, false);
        if done.len() > 1 {
            let others = dback.slice(0, rest).matmul_transposed(&whole.slice(0, before), true, false);
            du = others.add(&du);
        }
        let dc = if self.cell == Cell::Gru { dback.sum(&[0]) } else { u.fill_like([u.dim(0)], 0.0) };
        [dx, du, dc, dh.expect("at least one step"), dmemory]
    }

    /// The same from small operations, whose gradients are theirs.
    #[track_caller]
    fn by_elements(&self, mut h: Tensor, mut memory: Tensor) -> (Tensor, Tensor, Tensor) {
        let size = h.dim(1);
        let [sigma, f, g] = self.activations.unwrap_or([Tensor::sigmoid, Tensor::tanh, Tensor::tanh]);
        let (u, c) = self.back;
        let place = |i: usize| i * size..(i + 1) * size;
        let gate = |x: &Tensor, i: usize| x.slice(1, place(i));
        let biased = |x: Tensor, c: Option<Tensor>| c.map_or_else(|| x.clone(), |c| x.add(&c));
        let mut results: Vec<Tensor> = Vec::with_capacity(self.inputs.dim(0));
        for step in self.order() {
            let own = self.inputs.slice(0, step..step + 1).squeeze(0);
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
                        Cell::Rnn | Cell::ReluRnn => f(&own.add(&back)),
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
            results.push(h.unsqueeze(0));
        }
        if self.reverse {
            results.reverse();
        }
        (results[0].concat(&results[1..].iter().collect::<Vec<_>>(), 0), h, memory)
    }
}
