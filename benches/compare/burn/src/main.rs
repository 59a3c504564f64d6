//! Runs burn on the shared benchmark work.

use std::time::Instant;

use burn::module::Param;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use compare_shared::{BATCH, CLASSES, PIXELS, RATE, Who, Work};

fn linear(work: &Work, name: &str, inputs: usize, outputs: usize, device: &Device) -> Linear {
    let mut layer = LinearConfig::new(inputs, outputs).init(device);
    let weight = TensorData::new(work.transposed(&format!("{name}.weight"), inputs), [inputs, outputs]);
    layer.weight = Param::from_data(weight, device);
    layer.bias =
        Some(Param::from_data(TensorData::new(work.weight(&format!("{name}.bias")), [outputs]), device));
    layer
}

fn conv(work: &Work, name: &str, [inputs, outputs, stride]: [usize; 3], device: &Device) -> Conv2d {
    let config = Conv2dConfig::new([inputs, outputs], [3, 3]).with_stride([stride, stride]);
    let mut layer = config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device);
    let weight = TensorData::new(work.weight(&format!("{name}.weight")), [outputs, inputs, 3, 3]);
    layer.weight = Param::from_data(weight, device);
    layer.bias =
        Some(Param::from_data(TensorData::new(work.weight(&format!("{name}.bias")), [outputs]), device));
    layer
}

#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Mlp {
    fn new(work: &Work, device: &Device) -> Self {
        Self {
            fc1: linear(work, "fc1", PIXELS, 512, device),
            fc2: linear(work, "fc2", 512, 512, device),
            fc3: linear(work, "fc3", 512, CLASSES, device),
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let relu = Relu::new();
        self.fc3.forward(relu.forward(self.fc2.forward(relu.forward(self.fc1.forward(x)))))
    }
}

#[derive(Module, Debug)]
struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    fc: Linear,
}

impl Cnn {
    fn new(work: &Work, device: &Device) -> Self {
        Self {
            conv1: conv(work, "conv1", [1, 16, 1], device),
            conv2: conv(work, "conv2", [16, 32, 2], device),
            fc: linear(work, "fc", 32 * 14 * 14, CLASSES, device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let relu = Relu::new();
        let h = relu.forward(self.conv2.forward(relu.forward(self.conv1.forward(x))));
        self.fc.forward(h.flatten(1, 3))
    }
}

fn main() {
    let start = Instant::now();
    let work = Work::of_arguments();
    let device = Device::wgpu(burn::tensor::DeviceKind::Cpu).autodiff();
    let labels: Vec<i64> = work.y.iter().map(|&class| i64::from(class)).collect();
    let y = Tensor::<1, Int>::from_data(TensorData::new(labels, [BATCH]), &device);
    let loss = CrossEntropyLossConfig::new().init(&device);
    let who = Who {
        library: "burn".to_owned(),
        version: "0.22.1".to_owned(),
        adapter: "the CPU adapter, by wgpu".to_owned(),
    };
    let bytes = || device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved);
    macro_rules! train {
        ($model:expr, $x:expr) => {{
            let (mut model, x) = (Some($model), $x);
            let mut adam = AdamConfig::new().with_epsilon(1e-8).init();
            let step = || {
                let now = model.take().expect("it is put back after each step");
                let loss = loss.forward(now.forward(x.clone()), y.clone());
                let gradients = GradientsParams::from_grads(loss.clone().backward(), &now);
                model = Some(adam.step(f64::from(RATE), now, gradients));
                loss.into_scalar::<f32>()
            };
            work.run(&who, start, step, bytes)
        }};
    }
    let x = |shape: &[usize]| TensorData::new(work.x.clone(), shape.to_vec());
    match work.model.as_str() {
        "mlp" => train!(Mlp::new(&work, &device), Tensor::<2>::from_data(x(&[BATCH, PIXELS]), &device)),
        _ => train!(Cnn::new(&work, &device), Tensor::<4>::from_data(x(&[BATCH, 1, 28, 28]), &device)),
    }
}
