//! Reductions over any axes, in passes: a long one is split into parts, and the next pass reduces the parts.

use super::elementwise::{fused, six};
use super::grid::per_thread;
use super::kernel::Variants;
use super::split::threads_fill;
use super::{Kernel, Launch, Lowered, Operand, Site, and_in_place};
use crate::dtype::{DType, FrozenStorage};
use crate::graph::Reduction;
use crate::limits::AdapterClass;
use crate::shape::Shape;

const MODES: Variants = &[&[("MODE", 0.0)], &[("MODE", 1.0)], &[("MODE", 2.0)]];
const SQUARES: Variants = &[&[("MODE", 2.0)]];
static REDUCE: Kernel = Kernel::new("reduce", "reduce/reduce", &["STRIDED"], &[1, 2], 32, MODES);
/// On GPUs few outputs are reduced by workgroups: [`OUTPUTS`] of them by 16 threads each.
const GROUP: u32 = 128;
const OUTPUTS: u64 = 8;
const LANES: u64 = GROUP as u64 / OUTPUTS;
/// The most elements that they read, 4 MiB: of more, 32 neighbours are read together, and workgroups reduce their sums.
const FEW: u64 = 1 << 20;

static SUM_PARTS: Kernel = Kernel::new("sum_parts", "reduce/parts", &["STORE_VEC4"], &[2, 3], 64, &[&[]]);
static SUM_PARTS_EACH: Kernel = Kernel::new("sum_parts_each", "reduce/parts", &[], &[2, 3], 64, &[&[]]);
static SUM_PARTS_ON: Kernel =
    Kernel::new("sum_parts_on", "reduce/parts", &["STORE_VEC4", "SUM"], &[1, 2, 3], 64, &[&[]]);
static SUM_PARTS_EACH_ON: Kernel =
    Kernel::new("sum_parts_each_on", "reduce/parts", &["SUM"], &[1, 2, 3], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    let forms = [REDUCE.clone(), REDUCE.in_workgroups(GROUP)];
    let types =
        FrozenStorage::ALL.map(|storage| forms.each_ref().map(|kernel| reading(kernel, storage.dtype())));
    let parts = [SUM_PARTS.clone(), SUM_PARTS_EACH.clone()];
    let on = and_in_place(&[SUM_PARTS_ON.clone(), SUM_PARTS_EACH_ON.clone()]);
    [types.as_flattened(), &parts, &on].concat()
}

/// Returns the kernel for an operand of this element type. Other types than `f32` are for sums of squares.
fn reading(kernel: &Kernel, dtype: DType) -> Kernel {
    let narrow = match dtype {
        DType::F32 => return kernel.clone(),
        DType::Int8 => kernel.with("INT8").suffixed("int8"),
        DType::Int4 => kernel.with("INT4").suffixed("int4"),
        DType::Nf4 => kernel.with("NF4").suffixed("nf4"),
        half => kernel.holding(half),
    };
    Kernel { variants: SQUARES, ..narrow }
}

/// A dimension: its length and its stride, in elements.
type Dim = (u64, u64);

/// Kept and reduced dimensions, outermost first; adjacent dimensions of one kind are merged.
#[derive(Clone, Debug, PartialEq)]
struct Nest {
    keep: Vec<Dim>,
    reduce: Vec<Dim>,
}

fn count(dims: &[Dim]) -> u64 {
    dims.iter().map(|(len, _)| len).product()
}

impl Nest {
    fn new(shape: Shape, axes: u8) -> Self {
        let mut nest = Self { keep: Vec::new(), reduce: Vec::new() };
        let mut last = None;
        for (axis, (&len, stride)) in shape.dims().iter().zip(shape.strides()).enumerate() {
            if len == 1 {
                continue;
            }
            let reduced = axes >> axis & 1 == 1;
            let list = if reduced { &mut nest.reduce } else { &mut nest.keep };
            match list.last_mut() {
                Some(outer) if last == Some(reduced) => *outer = (outer.0 * len as u64, stride),
                _ => list.push((len as u64, stride)),
            }
            last = Some(reduced);
        }
        nest
    }
}

/// Maximum elements that one thread reduces: far below the 65,535 iterations at which lavapipe ends loops.
const MAX_LEN: u64 = 16_384;

/// Threads that keep a GPU's memory busy.
const GPU_THREADS: u64 = 1 << 17;

/// Returns whether workgroups reduce, and the number of parts of `cut` positions: enough to fill the adapter, but not so
/// many that the second pass costs as much.
fn split(outputs: u64, reduced: u64, cut: u64, class: AdapterClass) -> (bool, u64) {
    let few = cut >= 2 * LANES && outputs * reduced <= FEW && !threads_fill(class, outputs, REDUCE.workgroup);
    let (threads, smallest) = match class {
        AdapterClass::Cpu => (64, 256),
        _ if few => (GPU_THREADS / LANES, 128 * LANES),
        _ => (GPU_THREADS, 128),
    };
    let wanted = (threads / outputs.max(1)).min(reduced / smallest);
    (few, wanted.max(reduced.div_ceil(MAX_LEN)).clamp(1, cut.max(1)))
}

pub(super) fn reduce(site: &Site, kind: Reduction, axes: u8) -> Lowered {
    let (input, output) = (site.inputs[0].0, site.output());
    let divide_by = match kind {
        Reduction::Mean => input.numel() / output.numel(),
        Reduction::Sum | Reduction::Max | Reduction::SumSquares => 1,
    };
    let mut passes = Passes { site, kind, divide_by, lowered: Lowered::default() };
    passes.run(Nest::new(input, axes), Operand::Input(0));
    passes.lowered
}

/// Sums `parts` consecutive tensors of `len` elements into the output.
pub(super) fn sum_of_parts(site: &Site, from: Operand, parts: u64, len: u64, lowered: &mut Lowered) {
    let mut passes = Passes { site, kind: Reduction::Sum, divide_by: 1, lowered: std::mem::take(lowered) };
    passes.run(Nest { keep: vec![(len, 1)], reduce: vec![(parts, len)] }, from);
    *lowered = passes.lowered;
}

/// Returns the launch that sums `parts` consecutive tensors of `len` elements in order, and applies the node's
/// epilogue.
pub(super) fn sum_in_order(site: &Site, from: Operand, parts: u64, len: u64) -> Launch<Operand> {
    let memory = vec![from, Operand::Output(0)];
    fused::with_epilogue(site, in_order(site, [&SUM_PARTS, &SUM_PARTS_EACH], memory, [parts, len]))
}

/// Returns the launch of [`Op::SumParts`](crate::graph::Op::SumParts).
pub(super) fn sum_parts(site: &Site, part: Shape) -> Launch<Operand> {
    let sizes = [site.inputs[0].0.numel() / part.numel(), part.numel()];
    if site.inputs.len() == 1 {
        return sum_in_order(site, Operand::Input(0), sizes[0], sizes[1]);
    }
    let sum = site.in_place.is_none().then_some(Operand::Input(1));
    let memory = sum.into_iter().chain([Operand::Input(0), Operand::Output(0)]).collect();
    let kernels = [&SUM_PARTS_ON, &SUM_PARTS_EACH_ON].map(|kernel| site.variant(kernel));
    in_order(site, kernels.each_ref(), memory, sizes)
}

/// Returns the launch of a kernel that sums parts of some length, or of the second if vec4s are too few threads.
fn in_order(
    site: &Site,
    [of_quads, of_each]: [&Kernel; 2],
    memory: Vec<Operand>,
    [parts, len]: [u64; 2],
) -> Launch<Operand> {
    let vec4 = len.is_multiple_of(4) && threads_fill(site.limits.class, len / 4, of_quads.workgroup);
    let (kernel, threads) = if vec4 { (of_quads, len / 4) } else { (of_each, len) };
    per_thread(site, kernel, threads, memory, &[threads as u32, parts as u32])
}

struct Passes<'a> {
    site: &'a Site<'a>,
    kind: Reduction,
    divide_by: u64,
    lowered: Lowered,
}

impl Passes<'_> {
    fn run(&mut self, mut nest: Nest, from: Operand) {
        let outputs = count(&nest.keep);
        let innermost = nest.reduce.last().map_or(1, |(len, _)| *len);
        // On GPUs a few long outer lines would be a few threads, each with a long sum.
        let class = self.site.limits.class;
        let lines = outputs * count(&nest.reduce) / innermost.max(1);
        let few = !class.is_cpu() && lines < GPU_THREADS / 4 && innermost >= 256;
        if nest.reduce.len() > 2 || (nest.reduce.len() == 2 && (innermost > MAX_LEN || few)) {
            // The kernel supports two reduced dimensions: this pass reduces the innermost, the next one the
            // others.
            let inner = nest.reduce.pop().into_iter().collect();
            let others = count(&nest.reduce);
            let keep = [nest.keep, nest.reduce].concat();
            let to = self.scratch(outputs * others);
            self.reduce_all(&Nest { keep, reduce: inner }, from, to, false);
            self.kind = self.kind_of_sums();
            self.run(Nest { keep: vec![(outputs, others)], reduce: vec![(others, 1)] }, to);
        } else {
            self.reduce_all(&nest, from, Operand::Output(0), true);
        }
    }

    /// Reduces a nest of at most two reduced dimensions, in as many passes as its length needs.
    fn reduce_all(&mut self, nest: &Nest, from: Operand, to: Operand, divide: bool) {
        let (outputs, reduced) = (count(&nest.keep), count(&nest.reduce));
        let (outer, inner) = match nest.reduce[..] {
            [] => ((1, 0), (1, 0)),
            [inner] => ((1, 0), inner),
            [outer, inner] => (outer, inner),
            _ => unreachable!("`run` leaves at most two reduced dimensions"),
        };
        let cut = if outer.0 == 1 { inner.0 } else { outer.0 };
        let (few, wanted) = split(outputs, reduced, cut, self.site.limits.class);
        let part_len = cut.div_ceil(wanted);
        let parts = cut.div_ceil(part_len);
        let target = if parts == 1 { to } else { self.scratch(outputs * parts) };
        let scale = if parts == 1 && divide { 1.0 / self.divide_by as f64 } else { 1.0 };
        let lens: Vec<u64> = nest.keep.iter().map(|(len, _)| *len).collect();
        let strides: Vec<u64> = nest.keep.iter().map(|(_, stride)| *stride).collect();
        let mut params = vec![outputs as u32, parts as u32, part_len as u32];
        params.extend(six(&lens, 1));
        params.extend(six(&strides, 0));
        params.extend([outer.0, outer.1, inner.0, inner.1].map(|word| word as u32));
        params.push((scale as f32).to_bits());
        let jobs = outputs * parts;
        let (kernel, threads) = match few {
            true => (REDUCE.in_workgroups(GROUP), jobs.div_ceil(OUTPUTS) * u64::from(GROUP)),
            false => (REDUCE.clone(), jobs),
        };
        let dtype = if from == Operand::Input(0) { self.site.inputs[0].1 } else { DType::F32 };
        let memory = vec![from, target];
        let mut launch = per_thread(self.site, &reading(&kernel, dtype), threads, memory, &params);
        launch.constants = vec![("MODE", mode(self.kind))];
        self.lowered.launches.push(launch);
        if parts > 1 {
            self.kind = self.kind_of_sums();
            let again = Nest { keep: vec![(outputs, 1)], reduce: vec![(parts, outputs)] };
            self.reduce_all(&again, target, to, divide);
        }
    }

    /// Returns the kind of the passes after the first: squares are taken once and then summed.
    fn kind_of_sums(&self) -> Reduction {
        if self.kind == Reduction::SumSquares { Reduction::Sum } else { self.kind }
    }

    fn scratch(&mut self, elements: u64) -> Operand {
        self.lowered.workspace.push(elements * 4);
        Operand::Workspace(self.lowered.workspace.len() - 1)
    }
}

fn mode(kind: Reduction) -> f64 {
    match kind {
        Reduction::Sum | Reduction::Mean => 0.0,
        Reduction::Max => 1.0,
        Reduction::SumSquares => 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_dimensions_of_one_kind_are_merged() {
        let nest = |axes| Nest::new(Shape::from([2, 3, 4, 5]), axes);
        assert_eq!(nest(0b1100), Nest { keep: vec![(6, 20)], reduce: vec![(20, 1)] });
        assert_eq!(nest(0b0011), Nest { keep: vec![(20, 1)], reduce: vec![(6, 20)] });
        assert_eq!(nest(0b1101), Nest { keep: vec![(3, 20)], reduce: vec![(2, 60), (20, 1)] });
        assert_eq!(nest(0b1111), Nest { keep: vec![], reduce: vec![(120, 1)] });
    }

    #[test]
    fn no_thread_reduces_more_than_the_limit() {
        for class in [AdapterClass::Cpu, AdapterClass::Integrated, AdapterClass::Discrete] {
            for reduced in [1u64, 100, 16_384, 16_385, 1 << 27] {
                assert!(reduced.div_ceil(split(1, reduced, reduced, class).1) <= MAX_LEN);
            }
        }
    }
}
