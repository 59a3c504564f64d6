//! MobileNetV2 (Sandler et al. 2018), with layers named and shaped as in torchvision.

use super::resnet::ConvNorm;
use crate::graph::{Params, Tensor, Window};
use crate::nn::{Linear, Module};

/// 3,504,872 parameters for 1,000 classes.
pub(super) struct MobileNetV2 {
    stem: ConvNorm,
    blocks: Vec<Inverted>,
    last: ConvNorm,
    classifier: Linear,
}

/// Inverted residual: expansion, depthwise convolution, projection; with a shortcut if the shapes allow it.
struct Inverted {
    expand: Option<ConvNorm>,
    depthwise: ConvNorm,
    project: ConvNorm,
    around: bool,
}

/// Expansion, channels, blocks and stride of each stage.
const STAGES: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];

impl MobileNetV2 {
    pub(super) fn new(params: &Params, channels: usize, classes: usize) -> Self {
        let features = params.scope("features");
        let three = Window::square(3).padding(1);
        let stem = ConvNorm::new(&features.scope(0), ["0", "1"], [channels, 32], three.stride(2), 1);
        let mut blocks: Vec<Inverted> = Vec::new();
        let mut inputs = 32;
        for (expansion, outputs, count, stride) in STAGES {
            for i in 0..count {
                let scope = features.scope(blocks.len() + 1).scope("conv");
                let stride = if i == 0 { stride } else { 1 };
                blocks.push(Inverted::new(&scope, [inputs, outputs], expansion, stride));
                inputs = outputs;
            }
        }
        let one = Window::square(1);
        let last = ConvNorm::new(&features.scope(blocks.len() + 1), ["0", "1"], [inputs, 1280], one, 1);
        Self { stem, blocks, last, classifier: Linear::new(&params.scope("classifier.1"), 1280, classes) }
    }
}

impl Inverted {
    fn new(params: &Params, [inputs, outputs]: [usize; 2], expansion: usize, stride: usize) -> Self {
        let (one, three) = (Window::square(1), Window::square(3).padding(1));
        let hidden = inputs * expansion;
        let expand =
            (expansion != 1).then(|| ConvNorm::new(&params.scope(0), ["0", "1"], [inputs, hidden], one, 1));
        let next = usize::from(expand.is_some());
        let depthwise =
            ConvNorm::new(&params.scope(next), ["0", "1"], [hidden, hidden], three.stride(stride), hidden);
        let names = [(next + 1).to_string(), (next + 2).to_string()];
        let project = ConvNorm::new(params, [&names[0], &names[1]], [hidden, outputs], one, 1);
        Self { expand, depthwise, project, around: stride == 1 && inputs == outputs }
    }
}

fn relu6(x: &Tensor) -> Tensor {
    x.clamp(0.0, 6.0)
}

impl Module for Inverted {
    fn forward(&self, x: &Tensor) -> Tensor {
        let hidden = match &self.expand {
            Some(expand) => relu6(&x.apply(expand)),
            None => x.clone(),
        };
        let y = relu6(&hidden.apply(&self.depthwise)).apply(&self.project);
        if self.around { y.add(x) } else { y }
    }
}

impl Module for MobileNetV2 {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = relu6(&x.apply(&self.stem));
        for block in &self.blocks {
            x = x.apply(block);
        }
        let x = relu6(&x.apply(&self.last));
        x.adaptive_avg_pool2d([1, 1]).flatten(1).dropout(0.2).apply(&self.classifier)
    }
}
