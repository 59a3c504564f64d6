//! Element-wise functions. Their derivatives are in the tables of `Unary` and `Binary`.

use std::panic::Location;

use super::Site;
use crate::graph::{Binary, Op, Pair, Saves, Tensor, Unary};

/// `dx = dy f'(·)`. Saves the output if it determines the derivative, else the input.
pub(super) fn unary(site: &Site, f: Unary) -> Tensor {
    let dy = site.dy();
    let saved = match f.saves() {
        Saves::Nothing => {
            return match f.slope(0.0) {
                1.0 => dy.clone(),
                -1.0 => dy.neg(),
                slope => dy.scale(slope as f32),
            };
        }
        Saves::Input => &site.inputs[0],
        Saves::Output => &site.outputs[0],
    };
    dy.one(Op::UnaryGrad(f), &[saved, dy], Location::caller())
}

/// The gradients of the table, summed to the operands' shapes.
pub(super) fn binary(site: &Site, f: Binary) -> Vec<Option<Tensor>> {
    let (a, b) = (&site.inputs[0], &site.inputs[1]);
    let wants = [site.wants[0], site.wants[1]];
    let pair = Pair { a, b, y: &site.outputs[0], dy: site.dy(), wants };
    let [da, db] = (f.function().gradient)(&pair);
    vec![da.map(|d| d.sum_to(a.shape())), db.map(|d| d.sum_to(b.shape()))]
}

/// Applies the same mask, regenerated; nothing is saved.
pub(super) fn dropout(site: &Site, op: &Op) -> Tensor {
    site.dy().one(op.clone(), &[site.dy(), &site.inputs[1]], Location::caller())
}
