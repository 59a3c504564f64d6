//! Reductions. Sum and mean save nothing; a sum of squares saves its input; max saves its input and output,
//! to locate the maximum.

use super::Site;
use crate::graph::{Reduction, Tensor};

/// `dx`, from `dy` with the reduced axes of length 1.
pub(super) fn reduce(site: &Site, kind: Reduction, axes: u8) -> Tensor {
    let (x, y, dy) = (&site.inputs[0], &site.outputs[0], site.dy());
    match kind {
        Reduction::Sum => dy.expand(x.shape()),
        Reduction::SumSquares => x.mul(&dy.scale(2.0)),
        Reduction::Mean => {
            let count = x.shape().numel() / y.shape().numel().max(1);
            dy.scale(1.0 / count as f32).expand(x.shape())
        }
        // Equal maxima share the gradient, as in torch.amax.
        Reduction::Max => {
            let mask = x.equal(y);
            let axes: Vec<usize> = (0..x.shape().rank()).filter(|axis| axes >> axis & 1 == 1).collect();
            let ties = mask.reduce_keep(Reduction::Sum, &axes);
            mask.mul(&dy.div(&ties))
        }
    }
}
