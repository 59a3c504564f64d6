//! Convolutions, pools, norms over channels, resizing.

use super::{AttributeProto, Export, float, int, ints, text};
use crate::graph::{Activation, Averaging, Node, Op, Resample, Unary, Window};

fn sliding(window: &Window) -> Vec<AttributeProto> {
    vec![
        ints("kernel_shape", window.kernel),
        ints("strides", window.stride),
        ints("dilations", window.dilation),
        Export::pads(window.padding),
    ]
}

/// The axes of an image that a norm over channels averages.
const AROUND: [usize; 3] = [0, 2, 3];

impl Export<'_> {
    fn with_bias(&mut self, node: &Node) -> Vec<String> {
        (0..node.inputs.len()).map(|i| self.float(node, i)).collect()
    }

    pub(super) fn conv(&mut self, window: &Window, groups: usize, node: &Node) -> String {
        let operands = self.with_bias(node);
        let operands: Vec<&str> = operands.iter().map(|name| &name[..]).collect();
        let attributes = [sliding(window), vec![int("group", groups)]].concat();
        self.node("Conv", &operands, attributes)
    }

    pub(super) fn conv_transpose(
        &mut self,
        window: &Window,
        groups: usize,
        size: [usize; 2],
        node: &Node,
    ) -> String {
        let operands = self.with_bias(node);
        let operands: Vec<&str> = operands.iter().map(|name| &name[..]).collect();
        let small = self.value(node, 0).shape;
        // Rows and columns that no window covers.
        let extra = [0, 1].map(|i| {
            let Window { kernel, stride, padding, dilation } = window;
            let covered = (small.dims()[i + 2] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1;
            (size[i] + 2 * padding[i]).saturating_sub(covered)
        });
        let attributes =
            [sliding(window), vec![int("group", groups), ints("output_padding", extra)]].concat();
        self.node("ConvTranspose", &operands, attributes)
    }

    pub(super) fn max_pool(&mut self, window: &Window, node: &Node) -> String {
        let x = self.float(node, 0);
        self.node("MaxPool", &[&x], sliding(window))
    }

    pub(super) fn avg_pool(&mut self, over: &Averaging, node: &Node) -> String {
        let x = self.float(node, 0);
        let size = [2, 3].map(|axis| self.value(node, 0).shape.dims()[axis]);
        match over {
            Averaging::Window { window, count_padding } => self.averaged(&x, window, *count_padding),
            Averaging::Adaptive([1, 1]) => self.node("GlobalAveragePool", &[&x], Vec::new()),
            Averaging::Adaptive(bins) if size[0] % bins[0] == 0 && size[1] % bins[1] == 0 => {
                let kernel = [size[0] / bins[0], size[1] / bins[1]];
                self.averaged(&x, &Window::of(kernel).strides(kernel), false)
            }
            // Bins of different lengths: a product with the share of each row, and of each column, in its bin.
            Averaging::Adaptive(bins) => {
                let shares = [0, 1].map(|i| {
                    let (n, count) = (size[i], bins[i]);
                    let mut shares = vec![0.0; n * count];
                    for bin in 0..count {
                        let range = bin * n / count..((bin + 1) * n).div_ceil(count);
                        let share = 1.0 / range.len() as f32;
                        // Rows are summed from the left, columns from the right.
                        range.for_each(|at| {
                            shares[if i == 0 { bin * n + at } else { at * count + bin }] = share;
                        });
                    }
                    shares
                });
                let rows = self.array(&[bins[0], size[0]], &shares[0]);
                let columns = self.array(&[size[1], bins[1]], &shares[1]);
                let y = self.node("MatMul", &[&rows, &x], Vec::new());
                self.node("MatMul", &[&y, &columns], Vec::new())
            }
        }
    }

    fn averaged(&mut self, x: &str, window: &Window, count_padding: bool) -> String {
        let attributes = vec![
            ints("kernel_shape", window.kernel),
            ints("strides", window.stride),
            Self::pads(window.padding),
            int("count_include_pad", count_padding.into()),
        ];
        self.node("AveragePool", &[x], attributes)
    }

    /// Mean, 1/deviation and variance of each channel.
    pub(super) fn batch_stats(&mut self, eps: f32, node: &Node) -> Vec<String> {
        let (x, channels) = (self.float(node, 0), self.value(node, 0).shape.dims()[1]);
        let mean = self.reduced("ReduceMean", &x, &AROUND);
        let centred = self.node("Sub", &[&x, &mean], Vec::new());
        let squares = self.node("Mul", &[&centred, &centred], Vec::new());
        let var = self.reduced("ReduceMean", &squares, &AROUND);
        let sum = self.by_number("Add", &var, eps);
        let root = self.node("Sqrt", &[&sum], Vec::new());
        let inverse = self.node("Reciprocal", &[&root], Vec::new());
        [mean, inverse, var].iter().map(|name| self.reshape(name, &[channels])).collect()
    }

    pub(super) fn batch_norm(&mut self, activation: Activation, node: &Node) -> String {
        let channels = self.value(node, 1).shape.dims()[0];
        let [x, mean, inverse, gamma, beta] = [0, 1, 2, 3, 4].map(|i| self.float(node, i));
        let y = match self.variance(node) {
            Some((var, eps)) => {
                let operands = [&x[..], &gamma, &beta, &mean, &var];
                self.node("BatchNormalization", &operands, vec![float("epsilon", eps)])
            }
            None => {
                let [mean, inverse, gamma, beta] =
                    [mean, inverse, gamma, beta].map(|name| self.reshape(&name, &[channels, 1, 1]));
                let centred = self.node("Sub", &[&x, &mean], Vec::new());
                let normal = self.node("Mul", &[&centred, &inverse], Vec::new());
                let scaled = self.node("Mul", &[&normal, &gamma], Vec::new());
                self.node("Add", &[&scaled, &beta], Vec::new())
            }
        };
        match activation {
            Activation::None => y,
            Activation::Relu => self.node("Relu", &[&y], Vec::new()),
            Activation::Relu6 => self.clip(&y, 0.0, 6.0),
        }
    }

    /// Returns the variance and ε from which a norm's 1/deviation was computed by `1/√(var + ε)`.
    fn variance(&self, node: &Node) -> Option<(String, f32)> {
        let mut id = node.inputs[2];
        for f in [Unary::Recip, Unary::Sqrt] {
            let maker = self.makers.get(&id).filter(|maker| maker.op == Op::Unary(f))?;
            id = maker.inputs[0];
        }
        let maker = self.makers.get(&id)?;
        match maker.op {
            Op::Unary(Unary::Offset(eps)) => Some((self.operand(maker, 0), eps)),
            _ => None,
        }
    }

    pub(super) fn resample(&mut self, mode: Resample, size: [usize; 2], node: &Node) -> String {
        let (x, shape) = (self.float(node, 0), self.value(node, 0).shape);
        let sizes = self.lengths(&[shape.dims()[0], shape.dims()[1], size[0], size[1]]);
        let (mode, place) = match mode {
            Resample::Nearest => ("nearest", "asymmetric"),
            Resample::Bilinear => ("linear", "half_pixel"),
            Resample::BilinearCorners => ("linear", "align_corners"),
        };
        let attributes = vec![
            text("mode", mode),
            text("coordinate_transformation_mode", place),
            text("nearest_mode", "floor"),
        ];
        self.node("Resize", &[&x, "", "", &sizes], attributes)
    }
}
