//! Small networks for digits.

use crate::graph::{Params, Tensor, Window};
use crate::nn::{Conv2d, Linear, Module};

/// Two convolutions: 16 3×3, ReLU, 32 3×3 with stride 2, ReLU, linear.
pub(super) struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    fc: Linear,
}

impl Cnn {
    pub(super) fn new(params: &Params, [c, h, w]: [usize; 3], classes: usize) -> Self {
        let window = Window::square(3).padding(1);
        let pixels = h.div_ceil(2) * w.div_ceil(2);
        Self {
            conv1: Conv2d::new(&params.scope("conv1"), c, 16, window),
            conv2: Conv2d::new(&params.scope("conv2"), 16, 32, window.stride(2)),
            fc: Linear::new(&params.scope("fc"), 32 * pixels, classes),
        }
    }
}

impl Module for Cnn {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.apply(&self.conv1).relu().apply(&self.conv2).relu().flatten(1).apply(&self.fc)
    }
}

/// LeNet-5 (LeCun et al. 1998) with plain average pooling and a linear last layer: 61,706 parameters on
/// 28×28.
pub(super) struct LeNet {
    conv1: Conv2d,
    conv2: Conv2d,
    fc: [Linear; 3],
}

impl LeNet {
    pub(super) fn new(params: &Params, [c, h, w]: [usize; 3], classes: usize) -> Self {
        let pooled = |n: usize| (n / 2).saturating_sub(4) / 2;
        let linear = |i: usize, a: usize, b: usize| Linear::new(&params.scope(format!("fc{i}")), a, b);
        Self {
            conv1: Conv2d::new(&params.scope("conv1"), c, 6, Window::square(5).padding(2)),
            conv2: Conv2d::new(&params.scope("conv2"), 6, 16, Window::square(5)),
            fc: [linear(1, 16 * pooled(h) * pooled(w), 120), linear(2, 120, 84), linear(3, 84, classes)],
        }
    }
}

impl Module for LeNet {
    fn forward(&self, x: &Tensor) -> Tensor {
        let half = Window::square(2).stride(2);
        let x = x.apply(&self.conv1).tanh().avg_pool2d(half, true);
        let x = x.apply(&self.conv2).tanh().avg_pool2d(half, true).flatten(1);
        x.apply(&self.fc[0]).tanh().apply(&self.fc[1]).tanh().apply(&self.fc[2])
    }
}
