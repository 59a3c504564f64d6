//! The gates of recurrent layers: what a step computes after its products.

use std::panic::Location;

use super::{Gates, Op, Tensor};

impl Tensor {
    /// The new hidden state and memory of an LSTM, `[rows, size]`: `self [rows, 4 size]` are the sums of both products
    /// and biases, gates in PyTorch's order; see [`Op::Gates`].
    #[track_caller]
    pub(crate) fn lstm_gates(&self, memory: &Tensor) -> [Tensor; 2] {
        let mut results = self.trace.emit(Op::Gates(Gates::Lstm), &[self, memory], Location::caller());
        let memory = results.pop().expect("two results");
        [results.swap_remove(0), memory]
    }

    /// The gradients of the operands of [`Tensor::lstm_gates`], whose second result is `now`.
    #[track_caller]
    pub(crate) fn lstm_gates_grad(
        &self,
        memory: &Tensor,
        now: &Tensor,
        dh: &Tensor,
        dnow: &Tensor,
    ) -> [Tensor; 2] {
        let inputs = [self, memory, now, dh, dnow];
        let mut results = self.trace.emit(Op::GatesGrad(Gates::Lstm), &inputs, Location::caller());
        let dmemory = results.pop().expect("two results");
        [results.swap_remove(0), dmemory]
    }

    /// The new hidden state of a GRU, `[rows, size]`: `self` and `back`, `[rows, 3 size]`, are the products with the
    /// input and with the hidden state `h`, each with its bias; see [`Op::Gates`].
    #[track_caller]
    pub(crate) fn gru_gates(&self, back: &Tensor, h: &Tensor) -> Tensor {
        self.one(Op::Gates(Gates::Gru), &[self, back, h], Location::caller())
    }

    /// The gradients of the operands of [`Tensor::gru_gates`].
    #[track_caller]
    pub(crate) fn gru_gates_grad(&self, back: &Tensor, h: &Tensor, dh: &Tensor) -> [Tensor; 3] {
        let inputs = [self, back, h, dh];
        let results = self.trace.emit(Op::GatesGrad(Gates::Gru), &inputs, Location::caller());
        results.try_into().expect("three results")
    }
}
