//! Image operations from their definitions: loops over every pair of result and window element.

use super::Array;
use crate::graph::{Averaging, Resample, Window};

/// Returns the index of a position in `[n, c, h, w]`.
fn at(dims: [usize; 4], [n, c, y, x]: [usize; 4]) -> usize {
    ((n * dims[1] + c) * dims[2] + y) * dims[3] + x
}

pub(super) fn dims(x: Array) -> [usize; 4] {
    let dims = x.shape.dims();
    [dims[0], dims[1], dims[2], dims[3]]
}

fn each(dims: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let [n, c, h, w] = dims;
    (0..n * c * h * w).map(move |i| [i / (c * h * w), i / (h * w) % c, i / w % h, i % w])
}

/// Returns the row or column of the image under tap `tap` of result `o`; `None` in the padding.
fn source(window: Window, axis: usize, o: usize, tap: usize, size: usize) -> Option<usize> {
    let i = o * window.stride[axis] + tap * window.dilation[axis];
    i.checked_sub(window.padding[axis]).filter(|i| *i < size)
}

/// Calls `visit(image position, weight position, result position)` for every product of a convolution.
fn products(
    image: [usize; 4],
    result: [usize; 4],
    window: Window,
    groups: usize,
    mut visit: impl FnMut(usize, usize, usize),
) {
    let (c, m) = (image[1] / groups, result[1] / groups);
    let weight = [result[1], c, window.kernel[0], window.kernel[1]];
    for o in each(result) {
        let to = at(result, o);
        for (ky, kx) in (0..weight[2]).flat_map(|ky| (0..weight[3]).map(move |kx| (ky, kx))) {
            let (Some(y), Some(x)) =
                (source(window, 0, o[2], ky, image[2]), source(window, 1, o[3], kx, image[3]))
            else {
                continue;
            };
            let from = at(image, [o[0], o[1] / m * c, y, x]);
            let tap = at(weight, [o[1], 0, ky, kx]);
            for channel in 0..c {
                visit(from + channel * image[2] * image[3], tap + channel * weight[2] * weight[3], to);
            }
        }
    }
}

fn with_bias(y: &mut [f64], dims: [usize; 4], bias: Option<Array>) {
    if let Some(bias) = bias {
        for position in each(dims) {
            y[at(dims, position)] += bias.data[position[1]];
        }
    }
}

pub(super) fn conv2d(
    x: Array,
    w: Array,
    bias: Option<Array>,
    window: Window,
    groups: usize,
    to: [usize; 4],
) -> Vec<f64> {
    let mut y = vec![0.0; to.iter().product()];
    products(dims(x), to, window, groups, |i, k, o| y[o] += x.data[i] * w.data[k]);
    with_bias(&mut y, to, bias);
    y
}

pub(super) fn conv2d_input(
    y: Array,
    w: Array,
    bias: Option<Array>,
    window: Window,
    groups: usize,
    to: [usize; 4],
) -> Vec<f64> {
    let mut x = vec![0.0; to.iter().product()];
    products(to, dims(y), window, groups, |i, k, o| x[i] += y.data[o] * w.data[k]);
    with_bias(&mut x, to, bias);
    x
}

pub(super) fn conv2d_weight(x: Array, dy: Array, window: Window, groups: usize, to: [usize; 4]) -> Vec<f64> {
    let mut w = vec![0.0; to.iter().product()];
    products(dims(x), dims(dy), window, groups, |i, k, o| w[k] += x.data[i] * dy.data[o]);
    w
}

/// Returns the maxima and the position of each in its window, packed as on the device.
pub(super) fn max_pool2d(x: Array, window: Window, to: [usize; 4]) -> Vec<Vec<f64>> {
    let from = dims(x);
    let mut y = vec![0.0; to.iter().product()];
    let mut taps = vec![0.0; y.len().div_ceil(4)];
    for o in each(to) {
        let mut best: Option<(f64, usize)> = None;
        for r in 0..window.kernel[0] {
            for s in 0..window.kernel[1] {
                let (row, column) =
                    (source(window, 0, o[2], r, from[2]), source(window, 1, o[3], s, from[3]));
                let (Some(row), Some(column)) = (row, column) else { continue };
                let v = x.data[at(from, [o[0], o[1], row, column])];
                if best.is_none_or(|(most, _)| v > most || v.is_nan()) {
                    best = Some((v, r * window.kernel[1] + s));
                }
            }
        }
        let (v, tap) = best.unwrap_or((0.0, 255));
        let i = at(to, o);
        y[i] = v;
        taps[i / 4] += (tap << (8 * (i % 4))) as f64;
    }
    vec![y, taps]
}

pub(super) fn max_pool2d_grad(taps: Array, dy: Array, window: Window, to: [usize; 4]) -> Vec<f64> {
    let from = dims(dy);
    let mut dx = vec![0.0; to.iter().product()];
    for o in each(from) {
        let i = at(from, o);
        let tap = taps.data[i / 4] as usize >> (8 * (i % 4)) & 255;
        let row = source(window, 0, o[2], tap / window.kernel[1], to[2]);
        let column = source(window, 1, o[3], tap % window.kernel[1], to[3]);
        if let (Some(row), Some(column)) = (row, column) {
            dx[at(to, [o[0], o[1], row, column])] += dy.data[i];
        }
    }
    dx
}

/// Returns the first row of a bin, the row after its last, and its factor of the divisor.
fn bin(over: Averaging, axis: usize, o: usize, image: usize, result: usize) -> (usize, usize, usize) {
    match over {
        Averaging::Adaptive(_) => {
            let (start, end) = (o * image / result, ((o + 1) * image).div_ceil(result));
            (start, end, end - start)
        }
        Averaging::Window { window, count_padding } => {
            let p = window.padding[axis];
            let from = o * window.stride[axis];
            let to = (from + window.kernel[axis]).min(image + 2 * p);
            let (start, end) = (from.max(p) - p, (to.max(p) - p).min(image));
            (start, end, if count_padding { to - from } else { end - start })
        }
    }
}

/// Calls `visit(image position, result position, weight)` for every image element of every result.
fn averages(
    over: Averaging,
    image: [usize; 4],
    result: [usize; 4],
    mut visit: impl FnMut(usize, usize, f64),
) {
    for o in each(result) {
        let rows = bin(over, 0, o[2], image[2], result[2]);
        let columns = bin(over, 1, o[3], image[3], result[3]);
        for row in rows.0..rows.1 {
            for column in columns.0..columns.1 {
                visit(at(image, [o[0], o[1], row, column]), at(result, o), 1.0 / (rows.2 * columns.2) as f64);
            }
        }
    }
}

pub(super) fn avg_pool2d(x: Array, over: Averaging, to: [usize; 4]) -> Vec<f64> {
    let mut y = vec![0.0; to.iter().product()];
    averages(over, dims(x), to, |i, o, share| y[o] += share * x.data[i]);
    y
}

pub(super) fn avg_pool2d_grad(dy: Array, over: Averaging, to: [usize; 4]) -> Vec<f64> {
    let mut dx = vec![0.0; to.iter().product()];
    averages(over, to, dims(dy), |i, o, share| dx[i] += share * dy.data[o]);
    dx
}

/// Returns the two source pixels of result pixel `o`, and the weight of the second.
fn neighbours(mode: Resample, o: usize, image: usize, result: usize) -> (usize, usize, f64) {
    let (h, r) = (image as f64, result as f64);
    let place = match mode {
        Resample::Nearest => return (o * image / result, 0, 0.0),
        Resample::Bilinear => ((o as f64 + 0.5) * h / r - 0.5).max(0.0),
        Resample::BilinearCorners if result == 1 => 0.0,
        // Multiplies before it divides, so that integer positions are exact.
        Resample::BilinearCorners => o as f64 * (h - 1.0) / (r - 1.0),
    };
    let low = (place as usize).min(image - 1);
    (low, (low + 1).min(image - 1), place - low as f64)
}

/// Calls `visit(image position, result position, weight)` for every image element of every result.
fn readings(mode: Resample, image: [usize; 4], result: [usize; 4], mut visit: impl FnMut(usize, usize, f64)) {
    for o in each(result) {
        let rows = neighbours(mode, o[2], image[2], result[2]);
        let columns = neighbours(mode, o[3], image[3], result[3]);
        for (row, row_share) in [(rows.0, 1.0 - rows.2), (rows.1, rows.2)] {
            for (column, share) in [(columns.0, 1.0 - columns.2), (columns.1, columns.2)] {
                // Skips pixels that nearest-neighbour sampling does not read: zero times infinity is NaN.
                if mode != Resample::Nearest || row_share * share != 0.0 {
                    visit(at(image, [o[0], o[1], row, column]), at(result, o), row_share * share);
                }
            }
        }
    }
}

pub(super) fn resample(x: Array, mode: Resample, to: [usize; 4]) -> Vec<f64> {
    let mut y = vec![0.0; to.iter().product()];
    readings(mode, dims(x), to, |i, o, share| y[o] += share * x.data[i]);
    y
}

pub(super) fn resample_grad(dy: Array, mode: Resample, to: [usize; 4]) -> Vec<f64> {
    let mut dx = vec![0.0; to.iter().product()];
    readings(mode, to, dims(dy), |i, o, share| {
        // A source pixel with weight 0 gets no gradient instead of 0 · NaN.
        if share != 0.0 {
            dx[i] += share * dy.data[o];
        }
    });
    dx
}
