//! Index arithmetic of convolutions along one axis: which source pixels contribute to a result pixel, by
//! which taps.

use crate::graph::Window;

/// Direction of a convolution: forward, or back from results to the image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels) enum Direction {
    Forward,
    Back,
}

/// One axis of a launch; see `shaders/conv/conv.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) count: usize,
    out: usize,
    phase: usize,
    step: usize,
    off: i64,
    tap_step: i64,
    pub(super) taps: usize,
    first: usize,
    every: usize,
    src: usize,
    dst: usize,
}

impl Axis {
    /// Returns the phases of axis `i`; a forward pass has one.
    pub(super) fn phases(
        direction: Direction,
        window: Window,
        i: usize,
        src: usize,
        dst: usize,
    ) -> Vec<Self> {
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

    /// Returns the words for the kernels; of the y axis the last one is the number of pieces of the steps.
    pub(super) fn words(&self, pieces: u64) -> [u32; 12] {
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
            pieces as u32,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every triple of image row, result row and tap that a window relates, by definition.
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
