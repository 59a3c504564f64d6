//! Optimizer updates, as PyTorch's documentation writes them.

use crate::graph::Update;

/// Changes `memory`, the node's inputs in their order: `w, g, scalars`, then the state.
pub(super) fn update(rule: &Update, memory: &mut [Vec<f64>]) {
    // The step's scalars are words; the first three hold f32 bits.
    let scalar = |i: usize| f64::from(f32::from_bits(memory[2][i] as u32));
    let (rate, bias1, sqrt_bias2) = (scalar(0), scalar(1), scalar(2));
    for i in 0..memory[0].len() {
        let (w, g) = (memory[0][i], memory[1][i]);
        match *rule {
            Update::Sgd { weight_decay } => memory[0][i] = w - rate * (g + f64::from(weight_decay) * w),
            Update::Momentum { momentum, weight_decay, nesterov } => {
                let momentum = f64::from(momentum);
                let g = g + f64::from(weight_decay) * w;
                let v = momentum * memory[3][i] + g;
                memory[3][i] = v;
                memory[0][i] = w - rate * if nesterov { g + momentum * v } else { v };
            }
            Update::Adam { beta1, beta2, eps, weight_decay, decoupled } => {
                let (beta1, beta2, decay) = (f64::from(beta1), f64::from(beta2), f64::from(weight_decay));
                let (w, g) = if decoupled { (w * (1.0 - rate * decay), g) } else { (w, g + decay * w) };
                let m = beta1 * memory[3][i] + (1.0 - beta1) * g;
                let v = beta2 * memory[4][i] + (1.0 - beta2) * g * g;
                (memory[3][i], memory[4][i]) = (m, v);
                memory[0][i] = w - rate / bias1 * m / (v.sqrt() / sqrt_bias2 + f64::from(eps));
            }
        }
    }
}
