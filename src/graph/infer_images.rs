//! Shape inference for operations on images, `[n, c, h, w]`.

use super::infer::Type;
use super::op::{Averaging, Op, Source};
use super::window::Window;
use crate::dtype::DType;
use crate::shape::Shape;

/// Does what `infer::infer` does, for operations on images.
pub(super) fn infer(op: &Op, inputs: &[Type]) -> Result<Vec<Type>, String> {
    use DType::{F32, U32};
    let name = op.name();
    let floats = if matches!(op, Op::MaxPool2dGrad { .. }) { &inputs[1..] } else { inputs };
    let float = |(i, dtype): (usize, DType)| dtype == F32 || (dtype.is_half() && op.widens(i));
    let other = floats.iter().enumerate().find(|(i, (_, dtype))| !float((*i, *dtype)));
    if let Some((_, (shape, dtype))) = other {
        return Err(format!("{name} takes f32, got {dtype} {shape}"));
    }
    let image = |i: usize| match *inputs[i].0.dims() {
        [n, c, h, w] if n * c * h * w > 0 => Ok([n, c, h, w]),
        _ => Err(format!("{name} takes images [n, c, h, w] that are not empty, got {}", inputs[i].0)),
    };
    let named = |error: String| format!("{name} of {}: {error}", inputs[0].0);
    let channels = |range: std::ops::Range<usize>, c: usize| {
        range.map(|i| inputs[i].0).find(|s| *s != Shape::from([c])).map_or(Ok(()), |s| {
            Err(format!("{name} of {} takes [{c}] for each channel, got {s}", inputs[0].0))
        })
    };
    let one = |shape: [usize; 4]| Ok(vec![(Shape::from(shape), F32)]);
    match op {
        Op::Conv2d { window, groups, source, .. } => {
            let ([n, mut c, h, w], weight) = (image(0)?, kernel(name, inputs, *window)?);
            let (mut bias, mut end) = (2, inputs.len());
            match source {
                Source::Tensor => {}
                Source::Normed(_) => {
                    channels(2..6, c)?;
                    bias = 6;
                }
                Source::Joined => {
                    end -= 1;
                    let second = image(end)?;
                    if second != [n, second[1], h, w] {
                        return Err(named(format!("{} cannot be joined to it", inputs[end].0)));
                    }
                    c += second[1];
                }
            }
            let [o, per_group] = [weight[0], weight[1]];
            divides(name, *groups, [("input", c), ("output", o)])?;
            if per_group * groups != c {
                return Err(format!(
                    "{name}: {} has {c} channels, the weight {} with {groups} groups takes {}",
                    inputs[0].0,
                    inputs[1].0,
                    per_group * groups
                ));
            }
            channels(bias..end, o)?;
            let [h, w] = window.output([h, w]).map_err(named)?;
            one([n, o, h, w])
        }
        Op::Conv2dInput { window, groups, size, .. } => {
            let ([n, o, h, w], weight) = (image(0)?, kernel(name, inputs, *window)?);
            let c = weight[1] * groups;
            divides(name, *groups, [("input", o), ("output", c)])?;
            if weight[0] != o {
                return Err(format!("{name}: {} and weight {} do not match", inputs[0].0, inputs[1].0));
            }
            channels(2..inputs.len(), c)?;
            if window.output(*size).map_err(named)? != [h, w] {
                return Err(named(format!("a result of {size:?} does not belong to it")));
            }
            one([n, c, size[0], size[1]])
        }
        Op::Conv2dWeight { window, groups, .. } => {
            let ([n, c, h, w], dy) = (image(0)?, image(1)?);
            divides(name, *groups, [("input", c), ("output", dy[1])])?;
            channels(2..inputs.len(), c)?;
            let [h, w] = window.output([h, w]).map_err(named)?;
            if dy != [n, dy[1], h, w] {
                return Err(format!("{name}: {} and {} do not match", inputs[0].0, inputs[1].0));
            }
            one([dy[1], c / groups, window.kernel[0], window.kernel[1]])
        }
        Op::MaxPool2d(window) => {
            let [n, c, h, w] = image(0)?;
            let [h, w] = pooled(*window, [h, w]).map_err(named)?;
            if window.taps() > 255 {
                return Err(named(format!("a window of {:?}; at most 255 elements", window.kernel)));
            }
            let at = Shape::from([(n * c * h * w).div_ceil(4)]);
            Ok(vec![(Shape::from([n, c, h, w]), F32), (at, U32)])
        }
        Op::MaxPool2dGrad { size, .. } => {
            let [n, c, ..] = image(1)?;
            one([n, c, size[0], size[1]])
        }
        Op::AvgPool2d(over) => {
            let [n, c, h, w] = image(0)?;
            let [h, w] = match over {
                Averaging::Window { window, .. } if window.dilation != [1; 2] => {
                    return Err(named(format!(
                        "a window with dilation {:?}; averages take 1",
                        window.dilation
                    )));
                }
                Averaging::Window { window, .. } => pooled(*window, [h, w]).map_err(named)?,
                Averaging::Adaptive(size) if size.contains(&0) => {
                    return Err(named(format!("{size:?} bins; at least one")));
                }
                Averaging::Adaptive(size) => *size,
            };
            one([n, c, h, w])
        }
        Op::Resample { size, .. } if size.contains(&0) => Err(named(format!("to {size:?}"))),
        Op::AvgPool2dGrad { size, .. } | Op::Resample { size, .. } | Op::ResampleGrad { size, .. } => {
            let [n, c, ..] = image(0)?;
            one([n, c, size[0], size[1]])
        }
        Op::BatchStats { running, .. } => {
            channels(1..if running.is_some() { 3 } else { 1 }, image(0)?[1])?;
            Ok(vec![(Shape::from([image(0)?[1]]), F32); 3])
        }
        Op::BatchNorm(_) => {
            channels(1..5, image(0)?[1])?;
            Ok(vec![(inputs[0].0, F32)])
        }
        Op::BatchNormGrad { .. } => {
            channels(1..5, image(0)?[1])?;
            Ok(vec![inputs[5], inputs[3], inputs[4]])
        }
        Op::RunningStats(_) => {
            let c = inputs[0].0.numel() as usize;
            channels(0..2, c)?;
            match *inputs[2].0.dims() {
                [parts, of_each] if of_each == c && parts > 0 && inputs[3].0 == inputs[2].0 => {}
                _ => channels(2..4, c)?,
            }
            Ok(Vec::new())
        }
        _ => Err(format!("{name} is not known")),
    }
}

fn pooled(window: Window, size: [usize; 2]) -> Result<[usize; 2], String> {
    let Window { kernel, padding, .. } = window;
    if (0..2).any(|axis| padding[axis] * 2 > kernel[axis]) {
        return Err(format!("padding {padding:?} is more than half of the kernel {kernel:?}"));
    }
    window.output(size)
}

fn kernel(name: &str, inputs: &[Type], window: Window) -> Result<[usize; 4], String> {
    match *inputs[1].0.dims() {
        [o, c, h, w] if [h, w] == window.kernel && o * c > 0 => Ok([o, c, h, w]),
        _ => Err(format!(
            "{name}: the weight {} is not [out, in / groups, {}, {}]",
            inputs[1].0, window.kernel[0], window.kernel[1]
        )),
    }
}

fn divides(name: &str, groups: usize, channels: [(&str, usize); 2]) -> Result<(), String> {
    match channels.into_iter().find(|(_, c)| groups == 0 || c % groups != 0) {
        Some((side, c)) => Err(format!("{name}: {c} {side} channels are not divisible by {groups} groups")),
        None => Ok(()),
    }
}
