//! VGG (Simonyan & Zisserman 2015), with layers named and shaped as in torchvision.

use crate::graph::{Params, Tensor, Window};
use crate::nn::{Conv2d, Linear, Module};

/// VGG-16: 138,357,544 parameters for 1,000 classes.
pub(super) struct Vgg {
    /// `None` is a max-pool.
    features: Vec<Option<Conv2d>>,
    classifier: [Linear; 3],
}

impl Vgg {
    pub(super) fn vgg16(params: &Params, channels: usize, classes: usize) -> Self {
        let mut features = Vec::new();
        let (mut inputs, mut number) = (channels, 0);
        for (width, count) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
            for _ in 0..count {
                let scope = params.scope(format!("features.{number}"));
                features.push(Some(Conv2d::new(&scope, inputs, width, Window::square(3).padding(1))));
                inputs = width;
                number += 2;
            }
            features.push(None);
            number += 1;
        }
        let linear =
            |i: usize, a: usize, b: usize| Linear::new(&params.scope(format!("classifier.{i}")), a, b);
        let classifier = [linear(0, 512 * 49, 4096), linear(3, 4096, 4096), linear(6, 4096, classes)];
        Self { features, classifier }
    }
}

impl Module for Vgg {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for layer in &self.features {
            x = match layer {
                Some(conv) => x.apply(conv).relu(),
                None => x.max_pool2d(Window::square(2).stride(2)),
            };
        }
        let [first, second, last] = &self.classifier;
        let x = x.adaptive_avg_pool2d([7, 7]).flatten(1);
        let x = x.apply(first).relu().dropout(0.5).apply(second).relu().dropout(0.5);
        x.apply(last)
    }
}
