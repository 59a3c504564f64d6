//! DenseNet (Huang et al. 2017), with layers named and shaped as in torchvision.

use crate::graph::{Params, Tensor, Window};
use crate::nn::{BatchNorm2d, Conv2d, Linear, Module};

/// DenseNet-121: 7,978,856 parameters for 1,000 classes.
pub(super) struct DenseNet {
    conv0: Conv2d,
    norm0: BatchNorm2d,
    blocks: Vec<Vec<Dense>>,
    transitions: Vec<NormConv>,
    norm5: BatchNorm2d,
    classifier: Linear,
}

/// Batch norm, ReLU, convolution.
struct NormConv {
    norm: BatchNorm2d,
    conv: Conv2d,
}

/// A bottleneck. Its result is concatenated to all earlier channels of the block.
struct Dense {
    first: NormConv,
    second: NormConv,
}

const GROWTH: usize = 32;

impl NormConv {
    fn new(params: &Params, [norm, conv]: [&str; 2], [inputs, outputs]: [usize; 2], window: Window) -> Self {
        Self {
            norm: BatchNorm2d::new(&params.scope(norm), inputs),
            conv: Conv2d::without_bias(&params.scope(conv), inputs, outputs, window),
        }
    }
}

impl DenseNet {
    pub(super) fn densenet121(params: &Params, channels: usize, classes: usize) -> Self {
        let features = params.scope("features");
        let stem = Window::square(7).stride(2).padding(3);
        let conv0 = Conv2d::without_bias(&features.scope("conv0"), channels, 64, stem);
        let norm0 = BatchNorm2d::new(&features.scope("norm0"), 64);
        let (mut blocks, mut transitions, mut width) = (Vec::new(), Vec::new(), 64);
        let counts = [6, 12, 24, 16];
        for (i, count) in counts.into_iter().enumerate() {
            let scope = features.scope(format!("denseblock{}", i + 1));
            let dense = |j: usize| {
                let layer = scope.scope(format!("denselayer{}", j + 1));
                let (inputs, hidden) = (width + j * GROWTH, 4 * GROWTH);
                let three = Window::square(3).padding(1);
                Dense {
                    first: NormConv::new(&layer, ["norm1", "conv1"], [inputs, hidden], Window::square(1)),
                    second: NormConv::new(&layer, ["norm2", "conv2"], [hidden, GROWTH], three),
                }
            };
            blocks.push((0..count).map(dense).collect());
            width += count * GROWTH;
            if i + 1 < counts.len() {
                let scope = features.scope(format!("transition{}", i + 1));
                let one = Window::square(1);
                transitions.push(NormConv::new(&scope, ["norm", "conv"], [width, width / 2], one));
                width /= 2;
            }
        }
        let norm5 = BatchNorm2d::new(&features.scope("norm5"), width);
        let classifier = Linear::new(&params.scope("classifier"), width, classes);
        Self { conv0, norm0, blocks, transitions, norm5, classifier }
    }
}

impl Module for NormConv {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.apply(&self.norm).relu().apply(&self.conv)
    }
}

impl Module for DenseNet {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = x.apply(&self.conv0).apply(&self.norm0).relu();
        let mut x = x.max_pool2d(Window::square(3).stride(2).padding(1));
        for (i, block) in self.blocks.iter().enumerate() {
            let mut parts = vec![x.clone()];
            for dense in block {
                let new = x.apply(&dense.first).apply(&dense.second);
                parts.push(new);
                let others: Vec<&Tensor> = parts[1..].iter().collect();
                x = parts[0].concat(&others, 1);
            }
            if let Some(transition) = self.transitions.get(i) {
                x = x.apply(transition).avg_pool2d(Window::square(2).stride(2), true);
            }
        }
        let x = x.apply(&self.norm5).relu();
        x.adaptive_avg_pool2d([1, 1]).flatten(1).apply(&self.classifier)
    }
}
