//! Recurrent layers, unrolled over the steps of a sequence when they are traced.

use super::Module;
use super::unrolled::Unrolled;
use crate::graph::{Init, Param, Params, Tensor};

/// Most steps of a sequence, or parts of it, that are traced one by one: each is operations of its own.
pub(crate) const MAX_PARTS: usize = 1 << 14;

/// What a recurrent layer computes at each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cell {
    /// `h = tanh(W x + b + U h + c)` (Elman 1990), `torch.nn.RNN`.
    Rnn,
    /// The same with a ReLU, `torch.nn.RNN(nonlinearity='relu')`.
    ReluRnn,
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
            Self::Rnn | Self::ReluRnn => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }
}

/// Shape of a [`Recurrent`] network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecurrentConfig {
    /// What a step computes.
    pub cell: Cell,
    /// Layers above each other.
    pub layers: usize,
    /// Each layer also runs from the end to the start; both results are concatenated.
    pub bidirectional: bool,
    /// Whether there are `bias_ih` and `bias_hh`.
    pub bias: bool,
    /// Probability of dropout between layers, during training.
    pub dropout: f64,
}

impl Default for RecurrentConfig {
    /// PyTorch's: one layer of LSTM, forwards, with biases, without dropout.
    fn default() -> Self {
        Self { cell: Cell::Lstm, layers: 1, bidirectional: false, bias: true, dropout: 0.0 }
    }
}

/// The states of a recurrent network between two sequences, or after the last step of one.
#[derive(Clone, Debug)]
pub struct States {
    /// Hidden states `[layers · directions, b, h]`.
    pub hidden: Tensor,
    /// Memories of an LSTM `[layers · directions, b, h]`.
    pub memory: Option<Tensor>,
}

/// `torch.nn.LSTM`, `GRU` or `RNN` with `batch_first=True`: parameters `weight_ih_l0 [gates h, in]`,
/// `weight_hh_l0 [gates h, h]`, `bias_ih_l0`, `bias_hh_l0 [gates h]` and so on by layer, with `_reverse` for the other
/// direction; all uniform in ±1/√h.
///
/// The products with the inputs of all steps are one; each step is a product with the hidden state and one kernel for
/// the gates, backwards too.
#[derive(Clone, Debug)]
pub struct Recurrent {
    path: String,
    config: RecurrentConfig,
    hidden: usize,
    /// For each layer, one or two directions.
    weights: Vec<Vec<Weights>>,
}

/// The weights of one direction of a layer: W, U, and their biases.
#[derive(Clone, Debug)]
struct Weights {
    input: Param,
    back: Param,
    biases: Option<[Param; 2]>,
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
            let start = || Init::fan_in(hidden);
            Weights {
                input: params.add(&name("weight_ih"), [gates, width], start()),
                back: params.add(&name("weight_hh"), [gates, hidden], start()),
                biases: config
                    .bias
                    .then(|| ["bias_ih", "bias_hh"].map(|kind| params.add(&name(kind), [gates], start()))),
            }
        };
        let layer = |layer: usize| directions.iter().map(|direction| weights((layer, *direction))).collect();
        let weights = (0..config.layers).map(layer).collect();
        Self { path: params.path().to_owned(), config, hidden, weights }
    }

    /// `x [b, t, in] → [b, t, h]`, `[b, t, 2 h]` in both directions: the hidden states of the last layer, and the states
    /// of all layers after the last step. They begin at `from`, or as zeros: to continue a sequence, feed the states back
    /// as inputs of the next step.
    ///
    /// ```
    /// use wgrad::compile::Forward;
    /// use wgrad::graph::Params;
    /// use wgrad::nn::{Recurrent, RecurrentConfig, States};
    /// let params = Params::new(0);
    /// let lstm = Recurrent::new(&params.scope("lstm"), 16, 32, RecurrentConfig::default());
    /// let forward = Forward::trace(&params, "y", |trace| {
    ///     let [hidden, memory] = ["h", "c"].map(|name| trace.input(name, [1, 8, 32]));
    ///     let from = States { hidden, memory: Some(memory) };
    ///     let (y, states) = lstm.run(&trace.input("x", [8, 20, 16]), Some(&from));
    ///     trace.output("h'", &states.hidden);
    ///     trace.output("c'", &states.memory.expect("an LSTM has a memory"));
    ///     y
    /// })?;
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Mistakes
    /// States of another shape; a memory for another cell than an LSTM, or an LSTM's states without one; more than
    /// 16,384 steps.
    #[track_caller]
    pub fn run(&self, x: &Tensor, from: Option<&States>) -> (Tensor, States) {
        let memory = self.config.cell == Cell::Lstm;
        let none = |x: &Tensor| (x.clone(), States { hidden: x.clone(), memory: memory.then(|| x.clone()) });
        if let Err(message) = self.check(x, from) {
            return none(&x.mistake(message, x.shape()));
        }
        if x.id().is_none() {
            return none(x);
        }
        x.trace().clone().layer(&self.path, || {
            let mut y = x.permute(&[1, 0, 2]);
            let (mut hidden, mut memories) = (Vec::new(), Vec::new());
            for (layer, directions) in self.weights.iter().enumerate() {
                if layer > 0 {
                    y = y.dropout(self.config.dropout);
                }
                let mut both = Vec::new();
                for (weights, reverse) in directions.iter().zip([false, true]) {
                    let at = hidden.len();
                    let state = |all: Option<&Tensor>| match all {
                        Some(all) => all.slice(0, at..at + 1).squeeze(0),
                        None => x.fill_like([x.dim(0), self.hidden], 0.0),
                    };
                    let h = state(from.map(|from| &from.hidden));
                    let memory = state(from.and_then(|from| from.memory.as_ref()));
                    let (results, h, memory) = self.direction(&y, weights, reverse, h, memory);
                    both.push(results);
                    hidden.push(h);
                    memories.push(memory);
                }
                y = if both.len() == 1 { both.remove(0) } else { both[0].concat(&[&both[1]], 2) };
            }
            let joined = |parts: &[Tensor]| match parts {
                [] => y.clone(),
                parts => parts[0].stack(&parts[1..].iter().collect::<Vec<_>>(), 0),
            };
            let memory = (self.config.cell == Cell::Lstm).then(|| joined(&memories));
            (y.permute(&[1, 0, 2]), States { hidden: joined(&hidden), memory })
        })
    }

    fn check(&self, x: &Tensor, from: Option<&States>) -> Result<(), String> {
        if x.id().is_none() {
            return Ok(());
        }
        if x.shape().rank() != 3 || x.dim(1) == 0 {
            return Err(format!("a recurrent layer of {}: [batch, steps, inputs] is needed", x.shape()));
        }
        if x.dim(1) > MAX_PARTS {
            return Err(format!(
                "a recurrent layer of {} steps: it is unrolled, and at most {MAX_PARTS} are; cut the sequences into shorter \
                 ones",
                x.dim(1)
            ));
        }
        let Some(from) = from else { return Ok(()) };
        let wanted = [self.weights.iter().map(Vec::len).sum(), x.dim(0), self.hidden];
        let states = std::iter::once(&from.hidden).chain(&from.memory);
        if let Some(state) = states.clone().find(|state| state.shape().dims() != wanted) {
            return Err(format!("states {} of a recurrent layer whose states are {wanted:?}", state.shape()));
        }
        match from.memory.is_some() == (self.config.cell == Cell::Lstm) {
            true => Ok(()),
            false => Err("an LSTM has a memory beside its hidden state, and other layers do not".to_owned()),
        }
    }

    /// One direction of a layer: `x [t, b, in] → [t, b, h]`, and the last states.
    #[track_caller]
    fn direction(
        &self,
        x: &Tensor,
        weights: &Weights,
        reverse: bool,
        h: Tensor,
        memory: Tensor,
    ) -> (Tensor, Tensor, Tensor) {
        let [w, u] = [&weights.input, &weights.back].map(|param| x.trace().param(param));
        let biases = weights.biases.as_ref().map(|both| both.each_ref().map(|param| x.trace().param(param)));
        let product = x.matmul_transposed(&w, false, true);
        let inputs = biases.as_ref().map_or_else(|| product.clone(), |[b, _]| product.add(b));
        if inputs.id().is_none() {
            return (inputs, h, memory);
        }
        let unrolled = Unrolled {
            cell: self.config.cell,
            inputs: &inputs,
            back: (&u, biases.as_ref().map(|[_, c]| c)),
            activations: None,
            reset_after: true,
            reverse,
        };
        unrolled.run(h, memory)
    }
}

impl Module for Recurrent {
    /// [`Recurrent::run`] from zeros, without the states.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.run(x, None).0
    }
}
