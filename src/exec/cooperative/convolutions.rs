//! Self-test of convolutions: forward, gradient of the image and gradient of the weight.

use std::panic::Location;

use super::exact::{Exact, Factor, numbers};
use crate::compile::Plan;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{ProgramId, Session};
use crate::graph::{Graph, Mode, Op, Params, Trace, Window};
use crate::limits::Limits;
use crate::shape::Shape;

/// A convolution of the self-test.
struct Case {
    image: [usize; 4],
    /// Channels of the result.
    channels: usize,
    groups: usize,
    window: Window,
    /// Whether the image is stored in 16 bits.
    half: bool,
}

/// Returns cases with stride, padding, dilation and groups; kernels of one element and of unequal sides;
/// sizes that are not multiples of any tile; and a weight whose gradient is summed in several parts.
fn cases() -> [Case; 6] {
    let sq = Window::square;
    let uneven = Window { kernel: [2, 5], stride: [3, 2], padding: [1, 2], dilation: [2, 1] };
    let case = |image, channels, groups, window, half| Case { image, channels, groups, window, half };
    [
        case([2, 19, 9, 11], 33, 1, sq(3).padding(1), false),
        case([1, 17, 13, 10], 18, 1, sq(3).padding(1).stride(2), true),
        case([2, 16, 14, 15], 23, 1, uneven, false),
        case([1, 40, 7, 8], 36, 2, sq(3).padding(2).dilation(2), true),
        case([3, 64, 5, 4], 130, 1, sq(1), false),
        case([2, 16, 17, 19], 17, 1, sq(2), true),
    ]
}

/// The case with an infinity and a NaN in its image. The image is stored in 32 bits, because 16-bit storage
/// does not hold infinities.
const NOT_FINITE: usize = 2;

/// A convolution relates three tensors: image, weight and result. Each is a sum of products of the other two.
const IMAGE: usize = 0;
const WEIGHT: usize = 1;
const RESULT: usize = 2;

/// Which tensor is computed from which two.
const PASSES: [(&str, usize, [usize; 2]); 3] = [
    ("forward", RESULT, [IMAGE, WEIGHT]),
    ("back to the image", IMAGE, [RESULT, WEIGHT]),
    ("back to the weight", WEIGHT, [IMAGE, RESULT]),
];

impl Case {
    fn shapes(&self) -> Result<[[usize; 4]; 3]> {
        let Self { image: [n, c, h, w], channels, groups, window, .. } = *self;
        let [rows, columns] = window.output([h, w]).map_err(|e| Error::setting("window", e))?;
        let [kh, kw] = window.kernel;
        Ok([[n, c, h, w], [channels, c / groups, kh, kw], [n, channels, rows, columns]])
    }

    /// Calls `body` for every product of two elements in the convolution, with the indices of the elements of
    /// image, weight and result that it involves.
    fn each(&self, mut body: impl FnMut([usize; 3])) -> Result<()> {
        let Window { kernel: [kh, kw], stride, padding, dilation } = self.window;
        let [[n, c, h, w], [o, kc, ..], [_, _, rows, columns]] = self.shapes()?;
        let meets = |axis: usize, out: usize, tap: usize, length: usize| {
            let at = (out * stride[axis] + tap * dilation[axis]).checked_sub(padding[axis]);
            at.filter(|at| *at < length)
        };
        for image in 0..n {
            for to in 0..o {
                let group = to / (o / self.groups);
                for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
                    for (r, s) in (0..kh).flat_map(|r| (0..kw).map(move |s| (r, s))) {
                        let (Some(iy), Some(ix)) = (meets(0, y, r, h), meets(1, x, s, w)) else { continue };
                        for from in 0..kc {
                            body([
                                ((image * c + group * kc + from) * h + iy) * w + ix,
                                ((to * kc + from) * kh + r) * kw + s,
                                ((image * o + to) * rows + y) * columns + x,
                            ]);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the image, the weight and the gradient of the result.
    fn tensors(&self, i: usize) -> Result<[Vec<f32>; 3]> {
        let shapes = self.shapes()?;
        let of = |tensor: usize| numbers(&format!("{i}.{tensor}"), shapes[tensor].iter().product());
        let mut tensors = [IMAGE, WEIGHT, RESULT].map(of);
        if i == NOT_FINITE {
            tensors[IMAGE][7] = f32::INFINITY;
            tensors[IMAGE][1500] = f32::NAN;
        }
        Ok(tensors)
    }
}

fn graph(cases: &[Case]) -> Result<Graph> {
    let params = Params::new(0);
    let shapes = cases.iter().map(Case::shapes).collect::<Result<Vec<_>>>()?;
    let name = |i: usize, pass: usize| format!("{i}.{}", PASSES[pass].0);
    Trace::record(&params, Mode::Eval, &name(0, 0), |trace| {
        let mut all = Vec::new();
        for (i, (case, shapes)) in cases.iter().zip(shapes).enumerate() {
            let input = |tensor: usize| trace.input(&format!("{i}.{tensor}"), Shape::from(shapes[tensor]));
            let [image, weight, result] = [IMAGE, WEIGHT, RESULT].map(input);
            let image = if case.half { image.cast(DType::F16) } else { image };
            let (window, groups, size) = (case.window, case.groups, [case.image[2], case.image[3]]);
            let to_image = Op::Conv2dInput { window, groups, size, then: None };
            let to_weight = Op::Conv2dWeight { window, groups, normed: None };
            let at = Location::caller();
            all.extend([
                image.conv2d(&weight, None, window, groups),
                result.one(to_image, &[&result, &weight], at),
                image.one(to_weight, &[&image, &result], at),
            ]);
        }
        for (place, tensor) in all.iter().enumerate().skip(1) {
            trace.output(&name(place / PASSES.len(), place % PASSES.len()), tensor);
        }
        all.swap_remove(0)
    })
}

/// Convolves on the device and compares each element with the sum in `f64`.
pub(super) fn test(device: &Device, limits: &Limits) -> Result<()> {
    let cases = cases();
    let mut session = Session::new(device, &Plan::of_graph(graph(&cases)?, None, limits)?)?;
    session.set_accept_non_finite(true);
    let tensors = cases.iter().enumerate().map(|(i, case)| case.tensors(i)).collect::<Result<Vec<_>>>()?;
    for (i, tensors) in tensors.iter().enumerate() {
        for (tensor, data) in tensors.iter().enumerate() {
            session.feed(&format!("{i}.{tensor}"), data)?;
        }
    }
    session.run(ProgramId(0))?;
    for (i, (case, tensors)) in cases.iter().zip(&tensors).enumerate() {
        for (pass, (name, ..)) in PASSES.iter().enumerate() {
            let results: Vec<f32> = session.output(ProgramId(0), &format!("{i}.{name}"))?;
            compare(case, pass, tensors, &results)?;
        }
    }
    Ok(())
}

fn compare(case: &Case, pass: usize, tensors: &[Vec<f32>; 3], results: &[f32]) -> Result<()> {
    let (name, to, from) = PASSES[pass];
    let [a, b] = from.map(|tensor| Factor::new(&tensors[tensor], [1, tensors[tensor].len()], false));
    let mut all = vec![Exact::default(); results.len()];
    case.each(|at| {
        let [i, j] = from.map(|tensor| at[tensor]);
        all[at[to]].add((a.exact[i], a.lost[i]), (b.exact[j], b.lost[j]));
    })?;
    let mut results = results.iter().zip(&all).enumerate();
    match results.find(|(_, (result, exact))| !exact.admits(**result)) {
        None => Ok(()),
        Some((place, (result, exact))) => Err(Error::Internal(format!(
            "a convolution {name} of {:?} to {} channels in {} groups by {:?}, element {place}: {result:e} instead of \
             {:e} ± {:.1e}",
            case.image,
            case.channels,
            case.groups,
            case.window,
            exact.sum,
            exact.bound()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::kernels::cooperative::BLOCKS;
    use crate::limits::{Cooperative, Products};

    /// The self-test runs the kernels that steps run: each pass of each case, in small and in large blocks.
    #[test]
    fn every_case_uses_cooperative_matrices() {
        for (side, lanes) in [(8, 8), (8, 32), (16, 32), (16, 64)] {
            let mut texts = std::collections::BTreeSet::new();
            for products in [Products::default(), Products::all(BLOCKS[0].name)] {
                let cooperative = Some(Cooperative { side, lanes });
                let limits = Limits::default().choosing(|kernels| {
                    (kernels.cooperative, kernels.products) = (cooperative, products);
                });
                let plan = Plan::of_graph(graph(&cases()).unwrap(), None, &limits).unwrap();
                let names = plan.program.launches.iter().map(|(launch, _)| launch.kernel.name.clone());
                let convolutions: Vec<_> = names.filter(|name| name.starts_with("conv")).collect();
                let others = convolutions.iter().filter(|name| !name.contains("cooperative"));
                assert_eq!(others.count(), 0, "{side} × {side}: {convolutions:?}");
                assert!(convolutions.len() >= 3 * cases().len() + 3 + 5, "phases, too: {convolutions:?}");
                texts.extend(convolutions);
            }
            assert_eq!(texts.len(), 4, "images in 32 and 16 bits: {texts:?}");
        }
    }

    fn computed(case: &Case, pass: usize, tensors: &[Vec<f32>; 3], round: fn(f32) -> f32) -> Vec<f32> {
        let (_, to, from) = PASSES[pass];
        let rounded = |x: &f32| f16::from_f32(*x).to_f32();
        let [a, b] = from.map(|tensor| tensors[tensor].iter().map(rounded).collect::<Vec<f32>>());
        let mut results = vec![0.0f32; tensors[to].len()];
        let add = |at: [usize; 3]| {
            let sum = &mut results[at[to]];
            *sum = round(*sum + a[at[from[0]]] * b[at[from[1]]]);
        };
        case.each(add).unwrap();
        results
    }

    #[test]
    fn self_test_accepts_32_bit_sums_and_rejects_errors() {
        for (i, case) in cases().iter().enumerate() {
            let tensors = case.tensors(i).unwrap();
            for (pass, (name, ..)) in PASSES.iter().enumerate() {
                let right = computed(case, pass, &tensors, |sum| sum);
                compare(case, pass, &tensors, &right).unwrap();
                let coarse = computed(case, pass, &tensors, |sum| half::bf16::from_f32(sum).to_f32());
                assert!(compare(case, pass, &tensors, &coarse).is_err(), "case {i}, {name}: sums of 8 bits");
                let mut wrong = right.clone();
                wrong.rotate_left(1);
                assert!(compare(case, pass, &tensors, &wrong).is_err(), "case {i}, {name}: moved");
                // An element that was left out.
                let largest = |a: &usize, b: &usize| right[*a].abs().total_cmp(&right[*b].abs());
                let finite = (0..right.len()).filter(|i| right[*i].is_finite());
                wrong.clone_from(&right);
                wrong[finite.max_by(largest).unwrap()] = 0.0;
                assert!(compare(case, pass, &tensors, &wrong).is_err(), "case {i}, {name}: left out");
            }
        }
    }
}
