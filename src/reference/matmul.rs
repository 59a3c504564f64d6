//! Matrix products with three loops.

use super::Array;
use crate::graph::matmul_shape;
use crate::shape::Shape;

pub(super) fn matmul(a: Array, b: Array, ta: bool, tb: bool) -> Vec<f64> {
    let out = matmul_shape(a.shape, b.shape, ta, tb).expect("a product was traced");
    let rank = out.rank();
    let (m, n) = (out.dims()[rank - 2], out.dims()[rank - 1]);
    let a_cols = a.shape.last();
    let b_cols = b.shape.last();
    let k = if ta { a.shape.dims()[a.shape.rank() - 2] } else { a_cols };
    let batches = Shape::try_new(&out.dims()[..rank - 2]).expect("fewer dimensions than the result");
    let starts = |x: &Array| {
        let dims = &x.shape.dims()[..x.shape.rank() - 2];
        let own = Shape::try_new(dims).expect("fewer dimensions than the operand");
        super::offsets(batches.dims(), &own.broadcast_strides(&batches))
    };
    let (a_starts, b_starts) = (starts(&a), starts(&b));
    let mut c = vec![0.0; out.numel() as usize];
    for batch in 0..batches.numel() as usize {
        let (a0, b0) = (a_starts[batch] * m * k, b_starts[batch] * k * n);
        for i in 0..m {
            let row = &mut c[(batch * m + i) * n..][..n];
            for p in 0..k {
                let left = a.data[a0 + if ta { p * a_cols + i } else { i * a_cols + p }];
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum += left * b.data[b0 + if tb { j * b_cols + p } else { p * b_cols + j }];
                }
            }
        }
    }
    c
}
