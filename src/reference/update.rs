//! Optimizer updates, from the formulas of PyTorch's documentation.

use crate::graph::{MomentCodes, Update, largest};

/// Updates `memory`, the node's inputs in order: `w, g, scalars`, then the state. `factor` multiplies the rate.
pub(super) fn update(rule: &Update, factor: f32, memory: &mut [Vec<f64>]) {
    // The step scalars are words. Words 0 to 2, 6 and 8 hold the bits of an f32.
    let scalar = |i: usize| f64::from(f32::from_bits(memory[2][i] as u32));
    let factor = f64::from(factor);
    let (rate, bias1, sqrt_bias2, unscale) = (factor * scalar(0), scalar(1), scalar(2), scalar(6));
    let share = scalar(8);
    if memory[2][7] != 0.0 {
        return;
    }
    if let Update::Adafactor { eps, clip, weight_decay } = *rule {
        let rms = |sum: f64| (sum / memory[0].len() as f64).sqrt();
        let alpha = f64::from(eps).max(rms(memory[4][0])) * factor * sqrt_bias2;
        let limit = (rms(memory[3][0]) / f64::from(clip)).max(1.0);
        for i in 0..memory[0].len() {
            let kept = (1.0 - rate * f64::from(weight_decay)) * memory[0][i];
            memory[0][i] = kept - alpha / limit * memory[1][i];
        }
        return;
    }
    memory[1].iter_mut().for_each(|g| *g *= unscale);
    if let Update::AdamCodes { codes, beta1, beta2, eps, weight_decay } = *rule {
        let settings = [beta1, beta2, eps, weight_decay].map(f64::from);
        return adam_codes(codes, memory, settings, [rate, bias1, sqrt_bias2]);
    }
    for i in 0..memory[0].len() {
        let (w, g) = (memory[0][i], memory[1][i]);
        match *rule {
            Update::Sgd { weight_decay, corrected } => {
                let correction = if corrected { sqrt_bias2 / bias1 } else { 1.0 };
                memory[0][i] = w - rate * (correction * g + f64::from(weight_decay) * w);
            }
            Update::Momentum { momentum, weight_decay, nesterov } => {
                let momentum = f64::from(momentum);
                let g = g + f64::from(weight_decay) * w;
                let v = momentum * memory[3][i] + g;
                memory[3][i] = v;
                memory[0][i] = w - rate * if nesterov { g + momentum * v } else { v };
            }
            Update::Adam { beta1, beta2, eps, weight_decay, decoupled, amsgrad } => {
                let (beta1, beta2, decay) = (f64::from(beta1), f64::from(beta2), f64::from(weight_decay));
                let (w, g) = if decoupled { (w * (1.0 - rate * decay), g) } else { (w, g + decay * w) };
                let m = beta1 * memory[3][i] + (1.0 - beta1) * g;
                let v = beta2 * memory[4][i] + (1.0 - beta2) * g * g;
                (memory[3][i], memory[4][i]) = (m, v);
                let mut most = v;
                if amsgrad {
                    most = largest(memory[5][i], v);
                    memory[5][i] = most;
                }
                let plain = sqrt_bias2 == 0.0;
                let divisor = if plain { 1.0 } else { most.sqrt() / sqrt_bias2 + f64::from(eps) };
                memory[0][i] = w - rate * (m / bias1 + share * g) / divisor;
            }
            Update::RmsProp { keep, take, eps, momentum, weight_decay } => {
                let g = g + f64::from(weight_decay) * w;
                let s = f64::from(keep) * memory[3][i] + f64::from(take) * g * g;
                memory[3][i] = s;
                let mut u = g / (s.sqrt() + f64::from(eps));
                if momentum != 0.0 {
                    u += f64::from(momentum) * memory[4][i];
                    memory[4][i] = u;
                }
                memory[0][i] = w - rate / bias1 * u;
            }
            Update::Lion { beta1, beta2, weight_decay } => {
                let m = memory[3][i];
                let blend = |beta: f32| f64::from(beta) * m + (1.0 - f64::from(beta)) * g;
                let sign = if blend(beta1) == 0.0 { 0.0 } else { blend(beta1).signum() };
                memory[0][i] = (1.0 - rate * f64::from(weight_decay)) * w - rate * sign;
                memory[3][i] = blend(beta2);
            }
            Update::AdamMini { beta1, eps, weight_decay } => {
                let m = f64::from(beta1) * memory[3][i] + (1.0 - f64::from(beta1)) * g;
                memory[3][i] = m;
                let row = i * memory[4].len() / memory[0].len();
                let divisor = memory[4][row].sqrt() / sqrt_bias2 + f64::from(eps);
                memory[0][i] = (1.0 - rate * f64::from(weight_decay)) * w - rate * m / bias1 / divisor;
            }
            Update::Adafactor { .. } | Update::AdamCodes { .. } => unreachable!("handled above"),
        }
    }
}

/// `s, x, scalars` → `s`
pub(super) fn moving_average(memory: &mut [Vec<f64>], scale: f32, share: Option<f32>) {
    let share = f64::from(share.unwrap_or(f32::from_bits(memory[2][1] as u32)));
    if memory[2][7] == 0.0 {
        for i in 0..memory[0].len() {
            memory[0][i] += share * (f64::from(scale) * memory[1][i] - memory[0][i]);
        }
    }
}

/// Returns the numbers of bitsandbytes' `create_dynamic_map`, sorted: 256 for seven decades, 16 for three.
fn dynamic_map(signed: bool, decades: i32) -> Vec<f64> {
    let mut map = vec![0.0, 1.0];
    for decade in 0..decades {
        let parts = 1 << if signed { decade } else { decade + 1 };
        for part in 0..parts {
            let middle = 0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts);
            let number = 10f64.powi(decade + 1 - decades) * middle;
            map.push(number);
            if signed {
                map.push(-number);
            }
        }
    }
    map.sort_by(f64::total_cmp);
    map
}

fn nearest(map: &[f64], x: f64) -> u32 {
    let distance = |&i: &usize| (map[i] - x).abs();
    (0..map.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0) as u32
}

/// `memory`: `w, g, scalars`, then `m` and `v` as words of codes, then the largest magnitudes of both in each block.
fn adam_codes(
    codes: MomentCodes,
    memory: &mut [Vec<f64>],
    settings: [f64; 4],
    [rate, bias1, sqrt_bias2]: [f64; 3],
) {
    let [beta1, beta2, eps, decay] = settings;
    let maps = match codes {
        MomentCodes::Eight => [dynamic_map(true, 7), dynamic_map(false, 7)],
        MomentCodes::Four => [dynamic_map(true, 3), (1..=16).map(|i| f64::from(i) / 16.0).collect()],
    };
    let (n, block_len, bits) = (memory[0].len(), codes.block() as usize, codes.bits() as usize);
    let of_a_word = 32 / bits;
    for (block, start) in (0..n).step_by(block_len).enumerate() {
        let range = start..n.min(start + block_len);
        let old = |which: usize, i: usize| {
            let code =
                (memory[3 + which][i / of_a_word] as u32 >> (bits * (i % of_a_word))) & ((1 << bits) - 1);
            maps[which][code as usize] * memory[5][2 * block + which]
        };
        let g = |i: usize| memory[1][i];
        let first: Vec<f64> = range.clone().map(|i| beta1 * old(0, i) + (1.0 - beta1) * g(i)).collect();
        let second: Vec<f64> =
            range.clone().map(|i| beta2 * old(1, i) + (1.0 - beta2) * g(i) * g(i)).collect();
        for (k, i) in range.clone().enumerate() {
            let step = rate / bias1 * first[k] / (second[k].sqrt() / sqrt_bias2 + eps);
            memory[0][i] = (1.0 - rate * decay) * memory[0][i] - step;
        }
        for (which, moments) in [first, second].iter().enumerate() {
            let most = moments.iter().fold(0.0f64, |most, x| largest(most, x.abs()));
            memory[5][2 * block + which] = most;
            for (word, some) in moments.chunks(of_a_word).enumerate() {
                // Elements past the end of the tensor get the code of 0.
                let share = |j: usize| if most > 0.0 { some.get(j).map_or(0.0, |x| x / most) } else { 0.0 };
                let code = |j: usize| nearest(&maps[which], share(j)) << (bits * j);
                memory[3 + which][start / of_a_word + word] =
                    f64::from((0..of_a_word).map(code).sum::<u32>());
            }
        }
    }
}
