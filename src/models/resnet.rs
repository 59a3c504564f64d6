//! Residual networks (He et al. 2016), with layers named and shaped as in torchvision.

use crate::graph::{Params, Tensor, Window};
use crate::nn::{BatchNorm2d, Conv2d, Linear, Module};

/// A convolution without bias and its batch norm.
pub(super) struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm2d,
}

impl ConvNorm {
    pub(super) fn new(
        params: &Params,
        [conv, norm]: [&str; 2],
        [inputs, outputs]: [usize; 2],
        window: Window,
        groups: usize,
    ) -> Self {
        Self {
            conv: Conv2d::grouped(&params.scope(conv), inputs, outputs, window, groups),
            norm: BatchNorm2d::new(&params.scope(norm), outputs),
        }
    }
}

impl Module for ConvNorm {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.apply(&self.conv).apply(&self.norm)
    }
}

/// Convolutions with ReLU between them, and a shortcut.
struct Block {
    convs: Vec<ConvNorm>,
    around: Option<ConvNorm>,
}

/// A residual network.
pub struct ResNet {
    stem: ConvNorm,
    /// Whether the stem halves the image twice, as for photographs; else it keeps the image's size.
    halving: bool,
    blocks: Vec<Block>,
    fc: Linear,
}

impl ResNet {
    /// 18 layers: basic blocks, two in each of four stages; 11,689,512 parameters for 1,000 classes.
    pub fn resnet18(params: &Params, channels: usize, classes: usize) -> Self {
        let stem = ConvNorm::new(
            params,
            ["conv1", "bn1"],
            [channels, 64],
            Window::square(7).stride(2).padding(3),
            1,
        );
        Self::with_stages(params, stem, true, &[(64, 2), (128, 2), (256, 2), (512, 2)], false, classes)
    }

    /// 50 layers: bottlenecks, the stride in the 3×3 convolution; 25,557,032 parameters for 1,000 classes.
    pub fn resnet50(params: &Params, channels: usize, classes: usize) -> Self {
        let stem = ConvNorm::new(
            params,
            ["conv1", "bn1"],
            [channels, 64],
            Window::square(7).stride(2).padding(3),
            1,
        );
        Self::with_stages(params, stem, true, &[(64, 3), (128, 4), (256, 6), (512, 3)], true, classes)
    }

    /// For small images: a 3×3 stem, then basic blocks. `stages` are widths and numbers of blocks; each stage
    /// but the first halves the image.
    pub fn small(params: &Params, channels: usize, stages: &[(usize, usize)], classes: usize) -> Self {
        let width = stages.first().map_or(channels, |stage| stage.0);
        let window = Window::square(3).padding(1);
        let stem = ConvNorm::new(params, ["conv1", "bn1"], [channels, width], window, 1);
        Self::with_stages(params, stem, false, stages, false, classes)
    }

    fn with_stages(
        params: &Params,
        stem: ConvNorm,
        halving: bool,
        stages: &[(usize, usize)],
        bottleneck: bool,
        classes: usize,
    ) -> Self {
        let mut blocks = Vec::new();
        let mut inputs = stages.first().map_or(1, |stage| stage.0);
        for (i, &(width, count)) in stages.iter().enumerate() {
            for j in 0..count {
                let stride = if i > 0 && j == 0 { 2 } else { 1 };
                let scope = params.scope(format!("layer{}.{j}", i + 1));
                let block = Block::new(&scope, inputs, width, stride, bottleneck);
                inputs = if bottleneck { 4 * width } else { width };
                blocks.push(block);
            }
        }
        Self { stem, halving, blocks, fc: Linear::new(&params.scope("fc"), inputs, classes) }
    }
}

impl Block {
    fn new(params: &Params, inputs: usize, width: usize, stride: usize, bottleneck: bool) -> Self {
        let (one, three) = (Window::square(1), Window::square(3).padding(1));
        let shapes = if bottleneck {
            vec![(inputs, width, one), (width, width, three.stride(stride)), (width, 4 * width, one)]
        } else {
            vec![(inputs, width, three.stride(stride)), (width, width, three)]
        };
        let outputs = shapes.last().map_or(inputs, |shape| shape.1);
        let conv = |(i, (a, b, window)): (usize, (usize, usize, Window))| {
            ConvNorm::new(params, [&format!("conv{}", i + 1), &format!("bn{}", i + 1)], [a, b], window, 1)
        };
        let convs = shapes.into_iter().enumerate().map(conv).collect();
        let around = (stride != 1 || inputs != outputs).then(|| {
            ConvNorm::new(&params.scope("downsample"), ["0", "1"], [inputs, outputs], one.stride(stride), 1)
        });
        Self { convs, around }
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut y = x.clone();
        for (i, conv) in self.convs.iter().enumerate() {
            y = if i == 0 { y } else { y.relu() }.apply(conv);
        }
        match &self.around {
            Some(around) => y.add(&x.apply(around)).relu(),
            None => y.add(x).relu(),
        }
    }
}

impl Module for ResNet {
    /// `x [n, c, h, w] → logits [n, classes]`
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.apply(&self.stem).relu();
        if self.halving {
            x = x.max_pool2d(Window::square(3).stride(2).padding(1));
        }
        for block in &self.blocks {
            x = x.apply(block);
        }
        x.adaptive_avg_pool2d([1, 1]).flatten(1).apply(&self.fc)
    }
}
