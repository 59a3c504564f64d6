//! Element-wise functions. A unary function saves what `Unary::saves` returns; a product saves its operands.

use std::panic::Location;

use super::Site;
use crate::graph::{Binary, Op, Saves, Tensor, Unary};

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

/// Saves both operands of a product or extremum, the divisor and the result of a quotient, and nothing for a
/// sum or difference.
pub(super) fn binary(site: &Site, f: Binary) -> Vec<Option<Tensor>> {
    let (dy, a, b) = (site.dy(), &site.inputs[0], &site.inputs[1]);
    let (da, db): (Option<Tensor>, Option<Tensor>) = match f {
        Binary::Add => (site.want(0, || dy.clone()), site.want(1, || dy.clone())),
        Binary::Sub => (site.want(0, || dy.clone()), site.want(1, || dy.neg())),
        Binary::Mul => (site.want(0, || dy.mul(b)), site.want(1, || dy.mul(a))),
        Binary::Div => {
            let over_b = dy.div(b);
            // d(a/b)/db = -(a/b)/b
            (site.want(0, || over_b.clone()), site.want(1, || over_b.mul(&site.outputs[0]).neg()))
        }
        Binary::Max => chosen(site, |a, b| b.greater(a)),
        Binary::Min => chosen(site, |a, b| a.greater(b)),
        Binary::BceLogits => {
            let slope = || a.one(Op::Binary(Binary::BceLogitsGrad), &[a, b], Location::caller());
            (site.want(0, || slope().mul(dy)), site.want(1, || dy.mul(a).neg()))
        }
        Binary::Equal | Binary::Greater | Binary::BceLogitsGrad => (None, None),
    };
    vec![da.map(|d| d.sum_to(a.shape())), db.map(|d| d.sum_to(b.shape()))]
}

/// The gradient goes to `b` where `b_wins`, else to `a`.
fn chosen(site: &Site, b_wins: impl Fn(&Tensor, &Tensor) -> Tensor) -> (Option<Tensor>, Option<Tensor>) {
    let mask = b_wins(&site.inputs[0], &site.inputs[1]);
    let to_b = mask.mul(site.dy());
    (site.want(0, || site.dy().sub(&to_b)), site.want(1, || to_b.clone()))
}

/// Applies the same mask, regenerated; nothing is saved.
pub(super) fn dropout(site: &Site, op: &Op) -> Tensor {
    site.dy().one(op.clone(), &[site.dy(), &site.inputs[1]], Location::caller())
}
