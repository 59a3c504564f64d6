//! Convolutions, pools, norms over channels, resizing.

use super::products::{group_norm, lp_normalization, mean_variance};
use super::{Call, Handler, Import, Results, Value, one};
use crate::graph::{Padding, Reduction, RunningStats, Tensor, Window};

pub(super) const OPS: &[(&str, Handler)] = &[
    ("AveragePool", average_pool),
    ("BatchNormalization", batch_norm),
    ("Conv", conv),
    ("ConvTranspose", conv_transpose),
    ("GlobalAveragePool", |i, c| global(i, c, Reduction::Mean)),
    ("GlobalMaxPool", |i, c| global(i, c, Reduction::Max)),
    ("GroupNormalization", |i, c| {
        let groups = c.int("num_groups", 1);
        group_norm(i, c, groups.max(0) as usize)
    }),
    ("InstanceNormalization", |i, c| {
        let channels = i.dims(&c.input(0))?.get(1).copied().unwrap_or(1);
        group_norm(i, c, channels)
    }),
    ("LRN", lrn),
    ("LpNormalization", lp_normalization),
    ("MaxPool", max_pool),
    ("MeanVarianceNormalization", mean_variance),
    ("Resize", resize),
    ("Upsample", resize),
];

/// A window over the dimensions after the second, as ONNX describes it.
struct Sliding {
    kernel: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    before: Vec<usize>,
    after: Vec<usize>,
}

fn positive(call: &Call, name: &str, count: usize) -> Result<Vec<usize>, String> {
    let list = call.ints(name).filter(|list| !list.is_empty()).unwrap_or_else(|| vec![1; count]);
    if list.len() != count {
        return Err(format!("{name} {list:?} for {count} dimensions"));
    }
    list.iter()
        .map(|&n| usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| format!("{name} {list:?}")))
        .collect()
}

impl Sliding {
    fn of(call: &Call, x: &Tensor, kernel: Vec<usize>) -> Result<Self, String> {
        let count = kernel.len();
        if !(1..=3).contains(&count) || x.shape().rank() != count + 2 {
            return Err(format!("a window {kernel:?} over {}", x.shape()));
        }
        let (stride, dilation) = (positive(call, "strides", count)?, positive(call, "dilations", count)?);
        let pads = call.ints("pads").filter(|pads| !pads.is_empty()).unwrap_or_else(|| vec![0; 2 * count]);
        let pads: Vec<usize> = pads.iter().filter_map(|&n| usize::try_from(n).ok()).collect();
        if pads.len() != 2 * count {
            return Err(format!("pads {pads:?} for {count} dimensions"));
        }
        let mut own =
            Self { kernel, stride, dilation, before: pads[..count].to_vec(), after: pads[count..].to_vec() };
        let auto = call.text("auto_pad", "NOTSET");
        if auto.starts_with("SAME") {
            for i in 0..count {
                let len = x.dim(i + 2);
                let reach = own.dilation[i] * (own.kernel[i] - 1) + 1;
                let total = ((len.div_ceil(own.stride[i]) - 1) * own.stride[i] + reach).saturating_sub(len);
                let less = total / 2;
                (own.before[i], own.after[i]) =
                    if auto == "SAME_LOWER" { (total - less, less) } else { (less, total - less) };
            }
        }
        Ok(own)
    }

    fn even(&self) -> bool {
        self.before == self.after
    }

    /// Whether a pool's window can pad by itself: by half of it at most.
    fn pads_a_pool(&self) -> bool {
        self.even() && self.before.iter().zip(&self.kernel).all(|(padding, taps)| 2 * padding <= *taps)
    }

    fn window<const N: usize>(&self, padding: bool) -> Window<N> {
        let of = |list: &[usize]| std::array::from_fn(|i| list.get(i).copied().unwrap_or(1));
        let paddings = if padding { of(&self.before) } else { [0; N] };
        Window::of(of(&self.kernel))
            .strides(of(&self.stride))
            .dilations(of(&self.dilation))
            .paddings(paddings)
    }

    /// Pads what the window itself does not.
    fn padded(&self, x: &Tensor, mode: Padding) -> Tensor {
        let pad = |x: Tensor, i: usize| x.pad_with(i + 2, self.before[i], self.after[i], mode);
        (0..self.kernel.len()).fold(x.clone(), pad)
    }

    /// With `ceil_mode`: more padding at the end, so that the last window is whole.
    fn reach_end(&mut self, x: &Tensor) {
        for i in 0..self.kernel.len() {
            let reach = self.dilation[i] * (self.kernel[i] - 1) + 1;
            let len = x.dim(i + 2) + self.before[i] + self.after[i];
            let Some(rest) = len.checked_sub(reach) else { continue };
            let mut steps = rest.div_ceil(self.stride[i]);
            // No window starts in the padding at the end.
            if steps * self.stride[i] >= x.dim(i + 2) + self.before[i] {
                steps -= 1;
            }
            self.after[i] += (steps * self.stride[i]).saturating_sub(rest);
        }
    }
}

fn kernel_of(x: &Tensor) -> Vec<usize> {
    x.shape().dims().iter().skip(2).copied().collect()
}

fn conv<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, weight) = (import.x(call, 0)?, import.x(call, 1)?);
    let bias = if call.has(2) { Some(import.x(call, 2)?) } else { None };
    let sliding = Sliding::of(call, &x, kernel_of(&weight))?;
    let groups = usize::try_from(call.int("group", 1)).unwrap_or(0);
    let even = sliding.even();
    let x = if even { x } else { sliding.padded(&x, Padding::Constant(0.0)) };
    let bias = bias.as_ref();
    one(match sliding.kernel.len() {
        1 => x.conv1d(&weight, bias, sliding.window(even), groups),
        2 => x.conv2d(&weight, bias, sliding.window(even), groups),
        _ => x.conv3d(&weight, bias, sliding.window(even), groups),
    })
}

fn conv_transpose<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, weight) = (import.x(call, 0)?, import.x(call, 1)?);
    let bias = if call.has(2) { Some(import.x(call, 2)?) } else { None };
    let auto = call.text("auto_pad", "NOTSET");
    if call.ints("output_shape").is_some() || auto.starts_with("SAME") {
        return Err("padding that is found from the output's shape".to_owned());
    }
    let sliding = Sliding::of(call, &x, kernel_of(&weight))?;
    let count = sliding.kernel.len();
    let groups = usize::try_from(call.int("group", 1)).unwrap_or(0);
    let extra = call.ints("output_padding").unwrap_or_else(|| vec![0; count]);
    let extra: Vec<usize> = extra.iter().filter_map(|&n| usize::try_from(n).ok()).collect();
    if extra.len() != count {
        return Err("output padding below 0".to_owned());
    }
    let even = sliding.even();
    let bias = bias.as_ref();
    let y = match count {
        1 => x.conv_transpose1d(&weight, bias, sliding.window(even), extra[0], groups),
        2 => x.conv_transpose2d(&weight, bias, sliding.window(even), [extra[0], extra[1]], groups),
        _ => x.conv_transpose3d(&weight, bias, sliding.window(even), [extra[0], extra[1], extra[2]], groups),
    };
    if even {
        return one(y);
    }
    // Uneven padding cuts off different lengths.
    let cut = |y: Tensor, i: usize| {
        let end = y.dim(i + 2).saturating_sub(sliding.after[i]);
        y.slice(i + 2, sliding.before[i].min(end)..end)
    };
    one((0..count).fold(y, cut))
}

fn max_pool<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let mut sliding =
        Sliding::of(call, &x, positive(call, "kernel_shape", x.shape().rank().saturating_sub(2))?)?;
    if call.int("ceil_mode", 0) != 0 {
        sliding.reach_end(&x);
    }
    let even = sliding.pads_a_pool();
    let x = if even { x } else { sliding.padded(&x, Padding::Constant(f32::NEG_INFINITY)) };
    one(match sliding.kernel.len() {
        1 => x.max_pool1d(sliding.window(even)),
        2 => x.max_pool2d(sliding.window(even)),
        _ => x.max_pool3d(sliding.window(even)),
    })
}

fn average_pool<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let kernel = positive(call, "kernel_shape", x.shape().rank().saturating_sub(2))?;
    let mut sliding = Sliding::of(call, &x, kernel)?;
    let counted = call.int("count_include_pad", 0) != 0;
    let declared = (sliding.before.clone(), sliding.after.clone());
    if call.int("ceil_mode", 0) != 0 {
        sliding.reach_end(&x);
    }
    let dilated = sliding.dilation.iter().any(|step| *step != 1);
    let mean = |x: &Tensor, padding: bool, counted: bool| match sliding.kernel.len() {
        // Pools have no dilation: a convolution of each channel with equal weights.
        _ if dilated => {
            let taps: usize = sliding.kernel.iter().product();
            let channels = x.dim(1);
            let ones = sliding.kernel.iter().enumerate();
            let ones =
                ones.fold(x.shape().with(0, channels).with(1, 1), |all, (i, len)| all.with(i + 2, *len));
            let weight = x.fill_like(ones, 1.0 / taps as f32);
            match sliding.kernel.len() {
                1 => x.conv1d(&weight, None, sliding.window(padding), channels),
                2 => x.conv2d(&weight, None, sliding.window(padding), channels),
                _ => x.conv3d(&weight, None, sliding.window(padding), channels),
            }
        }
        1 => x.avg_pool1d(sliding.window(padding), counted),
        2 => x.avg_pool2d(sliding.window(padding), counted),
        _ => x.avg_pool3d(sliding.window(padding), counted),
    };
    if sliding.pads_a_pool() && !dilated {
        return one(mean(&x, true, counted));
    }
    // The mean over the window, divided by the share of it that counts.
    let zeros = Padding::Constant(0.0);
    let mut ones = x.fill_like(x.shape().with(0, 1).with(1, 1), 1.0);
    for i in 0..sliding.kernel.len() {
        let (before, after) = (declared.0[i], declared.1[i]);
        let one = if counted { Padding::Constant(1.0) } else { zeros };
        ones = ones.pad_with(i + 2, before, after, one).pad(i + 2, 0, sliding.after[i] - after);
    }
    one(mean(&sliding.padded(&x, zeros), false, true).div(&mean(&ones, false, true)))
}

fn global<'a>(import: &mut Import<'a>, call: &Call<'a>, kind: Reduction) -> Results<'a> {
    let x = import.x(call, 0)?;
    let axes: Vec<usize> = (2..x.shape().rank()).collect();
    one(x.reduce_keep(kind, &axes))
}

fn batch_norm<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let (x, gamma, beta) = (import.x(call, 0)?, import.x(call, 1)?, import.x(call, 2)?);
    let (mean, var) = (import.untrained(&call.input(3))?, import.untrained(&call.input(4))?);
    let eps = call.float("epsilon", 1e-5);
    let image = x.as_channels_of_image();
    let stored = [3, 4].iter().all(|i| matches!(call.input(*i), Value::Weight(..)));
    let y = match import.training() && stored {
        true => {
            // ONNX's momentum is the share of the old statistics.
            let momentum = 1.0 - call.float("momentum", 0.9);
            let running = RunningStats { mean: &mean, var: &var, momentum };
            image.batch_norm_train(&gamma, &beta, eps, Some(&running))
        }
        false => image.batch_norm_eval(&gamma, &beta, &mean, &var, eps),
    };
    one(y.reshape(x.shape()))
}

fn lrn<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let size = usize::try_from(call.int("size", 1)).unwrap_or(0);
    if size % 2 == 0 {
        return Err(format!("a window of {size} channels: odd ones are computed"));
    }
    one(x.local_response_norm(
        size,
        call.float("alpha", 1e-4),
        call.float("beta", 0.75),
        call.float("bias", 1.0),
    ))
}

fn resize<'a>(import: &mut Import<'a>, call: &Call<'a>) -> Results<'a> {
    let x = import.x(call, 0)?;
    let dims = x.shape().dims().to_vec();
    let old = call.node.op_type == "Upsample";
    let scales = if old { 1 } else { 2 };
    let given = |i: usize| call.has(i) && import.dims(&call.input(i)).is_ok_and(|dims| dims != [0]);
    let size: Vec<usize> = if !old && given(3) {
        call.constant(import, 3)?.as_ints().iter().map(|&n| n.max(0) as usize).collect()
    } else {
        let factors = match call.floats("scales") {
            Some(factors) => factors.into_iter().map(f64::from).collect(),
            None => call.constant(import, scales)?.data,
        };
        dims.iter().zip(&factors).map(|(dim, factor)| (*dim as f64 * factor).floor() as usize).collect()
    };
    if dims.len() != 4 || size.len() != 4 || size[..2] != dims[..2] || call.ints("axes").is_some() {
        return Err(format!("of {dims:?} to {size:?}: rows and columns of [n, c, h, w] are resized"));
    }
    let to = [size[2], size[3]];
    let place = call.text("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" });
    let whole = to[0].is_multiple_of(dims[2].max(1)) && to[1].is_multiple_of(dims[3].max(1));
    match (&call.text("mode", "nearest")[..], &place[..]) {
        ("nearest", "asymmetric") if old || call.text("nearest_mode", "round_prefer_floor") == "floor" => {
            one(x.upsample_nearest(to))
        }
        // Between whole numbers of pixels all roundings agree.
        ("nearest", "half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric") if whole => {
            one(x.upsample_nearest(to))
        }
        ("linear", "half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric") => {
            one(x.upsample_bilinear(to, false))
        }
        ("linear", "align_corners") => one(x.upsample_bilinear(to, true)),
        ("cubic", "half_pixel" | "pytorch_half_pixel") => one(x.upsample_bicubic(to, false)),
        ("cubic", "align_corners") => one(x.upsample_bicubic(to, true)),
        (mode, place) => Err(format!("mode `{mode}` with `{place}` coordinates from {dims:?} to {size:?}")),
    }
}
