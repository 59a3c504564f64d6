//! Convolutions as matrix products over gathered operands: no column buffer exists. The image's gradient is the same
//! kernel with other numbers, one launch for each phase of the stride.

use super::grid::{fold, per_thread};
use super::{Lowered, Operand, Site, chain};
use crate::graph::{Activation, Source, Window};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;
use crate::shape::Shape;

/// Which way pixels are related: forward, or back from results to the image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Back,
}

/// One axis of a launch; see `shaders/prelude/conv.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    count: usize,
    out: usize,
    phase: usize,
    step: usize,
    off: i64,
    tap_step: i64,
    taps: usize,
    first: usize,
    every: usize,
    src: usize,
    dst: usize,
}

impl Axis {
    /// The phases of axis `i`; those of a forward pass are one.
    fn phases(direction: Direction, window: Window, i: usize, src: usize, dst: usize) -> Vec<Self> {
        let Window { kernel, stride, padding, dilation } = window;
        let (k, s, p, d) = (kernel[i], stride[i], padding[i], dilation[i]);
        if direction == Direction::Forward {
            return vec![Self {
                count: dst,
                out: 1,
                phase: 0,
                step: s,
                off: -(p as i64),
                tap_step: d as i64,
                taps: k,
                first: 0,
                every: 1,
                src,
                dst,
            }];
        }
        let one = |phase: usize| {
            // Image row q s + phase meets tap r where phase + p - r d is a multiple of s.
            let meets = |r: &usize| (phase + p + (k * s - r) * d).is_multiple_of(s);
            let first = (0..k).find(meets);
            let every = first.and_then(|r| (r + 1..k).find(meets).map(|next| next - r)).unwrap_or(k);
            let taps = first.map_or(0, |r| (k - r).div_ceil(every));
            let first = first.unwrap_or(0);
            Self {
                count: (dst - phase).div_ceil(s),
                out: s,
                phase,
                step: 1,
                off: ((phase + p) as i64 - (first * d) as i64).div_euclid(s as i64),
                tap_step: -((every * d / s) as i64),
                taps,
                first,
                every,
                src,
                dst,
            }
        };
        (0..s.min(dst)).map(one).collect()
    }

    fn words(&self) -> [u32; 12] {
        let Self { count, out, phase, step, off, tap_step, taps, first, every, src, dst } = *self;
        let word = |n: usize| n as u32;
        [
            word(count),
            word(out),
            word(phase),
            word(step),
            off as i32 as u32,
            tap_step as i32 as u32,
            word(taps),
            word(first),
            word(every),
            word(src),
            word(dst),
            0,
        ]
    }
}

/// What all launches of one convolution have in common.
struct Sizes {
    batch: usize,
    groups: usize,
    m: usize,
    kc: usize,
    first: usize,
    taps: usize,
    kernel_w: usize,
    weight_m: usize,
    weight_c: usize,
}

/// Below this many channels in a group a tile would be mostly empty.
const FEW_CHANNELS: usize = 8;
/// Subgroups of this size or more share the weights that one lane has read.
const SHARING_SUBGROUP: u32 = 8;

/// What a batch norm that its reader applies has for each channel: the operands behind the first two.
const TERMS: [Operand; 4] = [Operand::Input(2), Operand::Input(3), Operand::Input(4), Operand::Input(5)];

fn activation_code(activation: Activation) -> Vec<(&'static str, f64)> {
    vec![("ACTIVATION", f64::from(super::images::code(activation)))]
}

/// What a convolution reads beside its source and weight: by position, and the variant of its kernel.
struct Operands {
    variant: usize,
    bias: Option<Operand>,
    rest: Vec<Operand>,
    constants: Vec<(&'static str, f64)>,
    /// Channels of the source, and of the first of two.
    channels: [usize; 2],
}

impl Operands {
    fn of(site: &Site, source: Source) -> Self {
        let [_, first, ..] = image(site.inputs[0].0);
        let count = site.op.own(site.inputs.len());
        let bias = |at: usize, end: usize| (at < end).then_some(Operand::Input(at));
        let plain =
            Self { variant: 0, bias: bias(2, count), rest: vec![], constants: vec![], channels: [first; 2] };
        match source {
            Source::Tensor => plain,
            Source::Normed(activation) => Self {
                variant: 1,
                bias: bias(2 + TERMS.len(), count),
                rest: TERMS.to_vec(),
                constants: activation_code(activation),
                ..plain
            },
            Source::Joined => {
                let [_, second, ..] = image(site.inputs[count - 1].0);
                Self {
                    variant: 2,
                    bias: bias(2, count - 1),
                    rest: vec![Operand::Input(count - 1)],
                    channels: [first + second, first],
                    ..plain
                }
            }
        }
    }
}

/// `src, w, terms?, bias?, second source?, operands of what follows? → dst`.
pub(super) fn conv(
    site: &Site,
    window: Window,
    groups: usize,
    source: Source,
    direction: Direction,
) -> Lowered {
    let operands = Operands::of(site, source);
    let ([batch, _, src_h, src_w], [_, dst_c, dst_h, dst_w]) =
        (image(site.inputs[0].0), image(site.output()));
    let [src_c, first] = operands.channels;
    let (m, kc, taps) = (dst_c / groups, src_c / groups, window.taps());
    let (weight_m, weight_c) = match direction {
        Direction::Forward => (kc * taps, taps),
        Direction::Back => (taps, m * taps),
    };
    let sizes = Sizes { batch, groups, m, kc, first, taps, kernel_w: window.kernel[1], weight_m, weight_c };
    let rows = Axis::phases(direction, window, 0, src_h, dst_h);
    let columns = Axis::phases(direction, window, 1, src_w, dst_w);
    let mut lowered = Lowered::default();
    let wide = site.limits.min_subgroup >= SHARING_SUBGROUP;
    let way = match site.limits.class {
        _ if groups > 1 && m.min(kc) < FEW_CHANNELS => Way::Direct,
        AdapterClass::Cpu if wide => Way::Packed,
        AdapterClass::Cpu => Way::Direct,
        AdapterClass::Integrated | AdapterClass::Discrete => Way::Tiled,
    };
    if way == Way::Packed {
        let (launch, bytes) = pack(site, &sizes, operands.bias);
        lowered.workspace.push(bytes);
        lowered.launches.push(launch);
    }
    for y in &rows {
        for x in &columns {
            let launch = phase(site, &sizes, way, &operands, [y, x]);
            lowered.launches.push(chain::behind(site, launch));
        }
    }
    lowered
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// CPU adapters: packed weights, register tiles.
    Packed,
    /// One thread for each element.
    Direct,
    /// GPUs: tiles in workgroup memory.
    Tiled,
}

/// The weights in the order in which `conv_cpu` reads them, in scratch.
fn pack(site: &Site, sizes: &Sizes, bias: Option<Operand>) -> (Launch<Operand>, u64) {
    let Sizes { groups, m, kc, taps, weight_m, weight_c, .. } = *sizes;
    let tiles_m = m.div_ceil(16);
    let weights = groups * tiles_m * taps * kc.div_ceil(4) * 16;
    let total = weights + groups * tiles_m * 16;
    let params = [weights, total, tiles_m, m, kc, taps, weight_m, weight_c].map(|n| n as u32);
    let mut memory = vec![Operand::Input(1), Operand::Workspace(0)];
    memory.extend(bias);
    let kernel = &table::CONV_PACK[usize::from(bias.is_some())];
    (per_thread(site, kernel, total as u64, memory, &params), total as u64 * 16)
}

fn phase(site: &Site, sizes: &Sizes, way: Way, operands: &Operands, [y, x]: [&Axis; 2]) -> Launch<Operand> {
    let pixels = (sizes.batch * y.count * x.count) as u64;
    let (tile_m, tile_n) = if way == Way::Tiled { (64, 64) } else { (16, 64) };
    let (tiles_m, tiles_n) = (sizes.m.div_ceil(tile_m) as u64, pixels.div_ceil(tile_n));
    let mut memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)];
    let Operands { variant, bias, rest, constants, .. } = operands;
    let biased = usize::from(bias.is_some());
    let kernel: &'static Kernel = match way {
        Way::Packed => &table::CONV_CPU[*variant],
        Way::Direct => &table::CONV_DIRECT[biased][*variant],
        Way::Tiled => &table::CONV_TILED[biased][*variant],
    };
    match way {
        Way::Packed => memory[1] = Operand::Workspace(0),
        _ => memory.extend(*bias),
    }
    memory.extend(rest);
    let workgroups = match way {
        Way::Direct => (pixels * (sizes.groups * sizes.m) as u64).div_ceil(u64::from(kernel.workgroup)),
        _ => tiles_m * tiles_n * sizes.groups as u64,
    };
    let grid = fold(workgroups, site.limits.max_workgroups);
    let along_x = if way == Way::Direct { u64::from(grid[0] * kernel.workgroup) } else { tiles_m };
    let mut params = vec![grid[0], along_x as u32, tiles_n as u32];
    let Sizes { batch, groups, m, kc, first, taps, kernel_w, weight_m, weight_c } = *sizes;
    params.extend([groups, m, kc, batch, kernel_w, taps, weight_m, weight_c, first].map(|n| n as u32));
    params.extend(y.words());
    params.extend(x.words());
    Launch { kernel, constants: constants.clone(), memory, params, grid }
}

/// Most pixels that one thread sums over: below the 65,535 turns at which lavapipe ends loops.
const MAX_PART: u64 = 32_768;

/// `x, dy, terms? → dw`: parts of the long sum over all pixels, then their sum in order.
pub(super) fn weight(site: &Site, window: Window, groups: usize, normed: Option<Activation>) -> Lowered {
    let ([batch, c, h, w], [_, o, out_h, out_w]) = (image(site.inputs[0].0), image(site.inputs[1].0));
    let (m, kc) = (o / groups, c / groups);
    let columns = kc * window.taps();
    let (total, pixels) = ((o * columns) as u64, (batch * out_h * out_w) as u64);
    let wide = site.limits.min_subgroup >= SHARING_SUBGROUP;
    let (kernels, tile, wanted, smallest): (&'static [Kernel; 2], usize, u64, u64) = match site.limits.class {
        _ if groups > 1 && m.min(kc) < FEW_CHANNELS => (&table::CONV_WEIGHT_DIRECT, 1, 1 << 14, 64),
        AdapterClass::Cpu if wide => (&table::CONV_WEIGHT_CPU, 32, 32, 512),
        AdapterClass::Cpu => (&table::CONV_WEIGHT_DIRECT, 1, 1 << 10, 64),
        AdapterClass::Integrated | AdapterClass::Discrete => (&table::CONV_WEIGHT_TILED, 64, 1 << 10, 256),
    };
    let kernel = &kernels[usize::from(normed.is_some())];
    let (tiles_m, tiles_n) = (m.div_ceil(tile) as u64, columns.div_ceil(tile) as u64);
    let tiles = tiles_m * tiles_n * groups as u64;
    let parts = wanted.div_ceil(tiles).min(pixels.div_ceil(smallest)).max(pixels.div_ceil(MAX_PART)).max(1);
    // The second pass is a reduction over parts, one thread for each element: few enough for one pass.
    let part_len = pixels.div_ceil(parts.min(256).max(pixels.div_ceil(MAX_PART)));
    let parts = pixels.div_ceil(part_len);
    let direct = tile == 1;
    let workgroups =
        if direct { (total * parts).div_ceil(u64::from(kernel.workgroup)) } else { tiles * parts };
    let grid = fold(workgroups, site.limits.max_workgroups);
    let first = if direct { u64::from(grid[0] * kernel.workgroup) } else { tiles_m };
    let Window { kernel: size, stride, padding, dilation } = window;
    let mut params =
        vec![grid[0], first as u32, tiles_n as u32, groups as u32, parts as u32, part_len as u32];
    params.extend([m, kc, batch, total as usize].map(|n| n as u32));
    params.extend(
        [size, stride, padding, dilation, [h, w], [out_h, out_w]].as_flattened().iter().map(|&n| n as u32),
    );
    let to = if parts == 1 { Operand::Output(0) } else { Operand::Workspace(0) };
    let mut memory = vec![Operand::Input(0), Operand::Input(1), to];
    let constants = normed.map(activation_code).unwrap_or_default();
    memory.extend(normed.iter().flat_map(|_| TERMS));
    let launch = Launch { kernel, constants, memory, params, grid };
    if parts == 1 {
        return launch.into();
    }
    let mut lowered = Lowered { launches: vec![launch], workspace: vec![total * parts * 4] };
    super::reduce::sum_of_parts(site, to, parts, total, &mut lowered);
    lowered
}

pub(super) fn image(shape: Shape) -> [usize; 4] {
    let dims = shape.dims();
    [dims[0], dims[1], dims[2], dims[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of result and image row that a window relates, by definition.
    fn by_definition(window: Window, image: usize, result: usize) -> Vec<(usize, usize, usize)> {
        let (s, p, d) = (window.stride[0], window.padding[0], window.dilation[0]);
        let mut list = Vec::new();
        for o in 0..result {
            for r in 0..window.kernel[0] {
                if let Some(i) = (o * s + r * d).checked_sub(p).filter(|i| *i < image) {
                    list.push((i, o, r));
                }
            }
        }
        list.sort_unstable();
        list
    }

    #[test]
    fn phases_visit_every_pair_once() {
        for kernel in 1..5 {
            for stride in 1..5 {
                for (padding, dilation) in [(0, 1), (1, 1), (2, 1), (1, 2), (2, 3), (0, 4)] {
                    let window = Window::square(kernel).stride(stride).padding(padding).dilation(dilation);
                    for image in 1..14 {
                        let Ok([result, _]) = window.output([image, image]) else { continue };
                        for direction in [Direction::Forward, Direction::Back] {
                            let (src, dst) = match direction {
                                Direction::Forward => (image, result),
                                Direction::Back => (result, image),
                            };
                            let mut list = Vec::new();
                            let mut written = vec![0; dst];
                            for axis in Axis::phases(direction, window, 0, src, dst) {
                                for q in 0..axis.count {
                                    let to = q * axis.out + axis.phase;
                                    written[to] += 1;
                                    for i in 0..axis.taps {
                                        let from =
                                            (q * axis.step) as i64 + axis.off + i as i64 * axis.tap_step;
                                        if !(0..src as i64).contains(&from) {
                                            continue;
                                        }
                                        let tap = axis.first + i * axis.every;
                                        list.push(match direction {
                                            Direction::Forward => (from as usize, to, tap),
                                            Direction::Back => (to, from as usize, tap),
                                        });
                                    }
                                }
                            }
                            list.sort_unstable();
                            assert_eq!(list, by_definition(window, image, result), "{window:?} {image}");
                            assert!(written.iter().all(|&n| n == 1), "{window:?} {image}");
                        }
                    }
                }
            }
        }
    }
}
