//! Local search. It moves operations with results that wait at the peak to after it, and operations that free
//! memory to before it.

use super::dependencies::Dependencies;
use crate::compile::analysis::{Effects, profile};

/// Maximum number of operations evaluated over all orders: a bound on time, the same on every machine.
const WORK: usize = 2_000_000;

/// The order, or one with a lower peak.
pub(super) fn improve(effects: &Effects, dependencies: &Dependencies, mut order: Vec<usize>) -> Vec<usize> {
    let mut tries = WORK / order.len().max(1);
    let mut best = score(&profile(effects, &order));
    'again: while tries > 0 {
        let heights = profile(effects, &order);
        let top = heights.iter().copied().max().unwrap_or(0);
        let Some(peak) = heights.iter().position(|&height| height == top) else { break };
        for (from, to) in moves(dependencies, &order, peak) {
            if tries == 0 {
                break;
            }
            tries -= 1;
            let candidate = shift(&order, from, to);
            let score = score(&profile(effects, &candidate));
            if score < best {
                best = score;
                order = candidate;
                continue 'again;
            }
        }
        break;
    }
    order
}

/// The peak first, then its duration.
fn score(heights: &[i128]) -> (i128, usize) {
    let top = heights.iter().copied().max().unwrap_or(0);
    (top, heights.iter().filter(|&&height| height == top).count())
}

/// Moves of one operation, from and to, that take it to the other side of the peak.
fn moves(dependencies: &Dependencies, order: &[usize], peak: usize) -> Vec<(usize, usize)> {
    let mut place = vec![0; order.len()];
    for (position, &n) in order.iter().enumerate() {
        place[n] = position;
    }
    let mut moved = Vec::new();
    for (position, &n) in order.iter().enumerate() {
        if position <= peak {
            let latest = dependencies.after[n].iter().map(|&after| place[after]).min().unwrap_or(order.len());
            if latest > peak + 1 {
                moved.push((position, latest - 1));
            }
        } else {
            let earliest = dependencies.before[n].iter().map(|&before| place[before] + 1).max().unwrap_or(0);
            if earliest <= peak {
                moved.push((position, earliest));
            }
        }
    }
    moved
}

/// The order with the operation at `from` moved to `to`.
fn shift(order: &[usize], from: usize, to: usize) -> Vec<usize> {
    let mut order = order.to_vec();
    let n = order.remove(from);
    order.insert(to, n);
    order
}
