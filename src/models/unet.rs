//! U-Net (Ronneberger et al. 2015) with padded convolutions and batch norm, the variant in memory papers.

use crate::graph::{Params, Tensor, Window};
use crate::nn::{BatchNorm2d, Conv2d, ConvTranspose2d, Module};

/// A U-Net that classifies each pixel.
pub(super) struct UNet {
    down: Vec<Double>,
    up: Vec<(ConvTranspose2d, Double)>,
    last: Conv2d,
}

/// Convolution, batch norm, ReLU, twice.
struct Double([(Conv2d, BatchNorm2d); 2]);

const WIDTHS: [usize; 5] = [64, 128, 256, 512, 1024];

impl Double {
    fn new(params: &Params, inputs: usize, outputs: usize) -> Self {
        let one = |i: usize, inputs: usize| {
            let conv = Conv2d::new(&params.scope(i), inputs, outputs, Window::square(3).padding(1));
            (conv, BatchNorm2d::new(&params.scope(i + 1), outputs))
        };
        Self([one(0, inputs), one(3, outputs)])
    }
}

impl Module for Double {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.0.iter().fold(x.clone(), |x, (conv, norm)| x.apply(conv).apply(norm).relu())
    }
}

impl UNet {
    pub(super) fn new(params: &Params, channels: usize, classes: usize) -> Self {
        let inputs = |i: usize| if i == 0 { channels } else { WIDTHS[i - 1] };
        let down =
            (0..5).map(|i| Double::new(&params.scope(format!("down{i}")), inputs(i), WIDTHS[i])).collect();
        let up = |i: usize| {
            let (from, to) = (WIDTHS[i + 1], WIDTHS[i]);
            let scope = params.scope(format!("up{i}"));
            let grow = ConvTranspose2d::new(&scope.scope("grow"), from, to, Window::square(2).stride(2));
            (grow, Double::new(&scope, from, to))
        };
        let up = (0..4).rev().map(up).collect();
        Self { down, up, last: Conv2d::new(&params.scope("last"), WIDTHS[0], classes, Window::square(1)) }
    }
}

impl Module for UNet {
    /// `x [n, c, h, w] → logits [n h w, classes]`
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut skips = Vec::new();
        let mut x = x.clone();
        for (i, double) in self.down.iter().enumerate() {
            if i > 0 {
                x = x.max_pool2d(Window::square(2).stride(2));
            }
            x = x.apply(double);
            skips.push(x.clone());
        }
        skips.pop();
        for (grow, double) in &self.up {
            let Some(skip) = skips.pop() else { break };
            x = skip.concat(&[&x.apply(grow)], 1).apply(double);
        }
        let y = x.apply(&self.last).permute(&[0, 2, 3, 1]);
        let (rows, classes) = (y.dim(0) * y.dim(1) * y.dim(2), y.dim(3));
        y.reshape([rows, classes])
    }
}
