//! Small random networks: every kind of operation, values read late and twice, views of views.

use wgrad::compile::TrainStep;
use wgrad::graph::{Init, Params, Reduction, Tensor, Trace};
use wgrad::random;
use wgrad::shape::Shape;

/// Rows and columns of every tensor between two operations.
const ROWS: usize = 6;
const COLS: usize = 8;

struct Dice {
    key: u64,
    thrown: u64,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.thrown += 1;
        (random::bits(self.key, self.thrown) % n as u64) as usize
    }
}

/// Returns a training step of `nodes` random operations; the same for the same seed.
pub fn random_step(seed: u64, nodes: usize) -> TrainStep {
    let params = Params::new(seed);
    let step = TrainStep::trace(&params, |trace| build(&params, trace, seed, nodes));
    step.unwrap_or_else(|e| panic!("random graph {seed}: {e}"))
}

fn build(params: &Params, trace: &Trace, seed: u64, nodes: usize) -> Tensor {
    let mut dice = Dice { key: random::key(seed, "graph"), thrown: 0 };
    let added = |shape: Shape| {
        let name = format!("w{}", params.list().len());
        trace.param(&params.add(&name, shape, Init::Uniform(0.5)))
    };
    let weight = |shape: [usize; 2]| added(shape.into());
    let mut pool = vec![weight([ROWS, COLS])];
    for _ in 0..nodes {
        // Recent values are chosen more often than old ones, as in networks.
        let recent = pool.len().min(4);
        let x = if dice.below(4) > 0 {
            &pool[pool.len() - 1 - dice.below(recent)]
        } else {
            &pool[dice.below(pool.len())]
        };
        let other = &pool[dice.below(pool.len())];
        let axis = dice.below(2);
        let y = match dice.below(16) {
            0 | 1 => x.matmul(&weight([COLS, COLS])),
            2 => x.matmul_transposed(&weight([COLS, COLS]), false, true),
            3 => x.matmul_transposed(other, false, true).matmul(x),
            4 => x.add(other),
            5 => x.mul(other),
            6 => x.sub(&added([COLS].into())),
            7 => x.maximum(other),
            8 => x.gelu(),
            9 => x.relu(),
            10 => x.sigmoid().add(&x.tanh()),
            11 => x.softmax(),
            12 => x.reshape([COLS, ROWS]).permute(&[1, 0]).reshape([ROWS * COLS]).reshape([ROWS, COLS]),
            13 => x.slice(axis, 1..3).concat(&[&x.slice(axis, 2..x.dim(axis))], axis).tanh(),
            14 => x.dropout(0.25),
            _ => x.div(&other.reduce_keep(Reduction::SumSquares, &[axis]).offset(1.0)),
        };
        pool.push(y.scale(0.5));
        if dice.below(5) == 0 {
            trace.output(&format!("out{}", pool.len()), &pool[dice.below(pool.len())]);
        }
    }
    let last = pool.iter().rev().take(3).cloned().reduce(|sum, one| sum.add(&one)).expect("not empty");
    last.square().mean(&[])
}
