//! Data movement by strided copies; padding fills the result with zeros first.

use super::elementwise::{dims_of, six};
use super::grid::{fold, per_thread, quads};
use super::{Kernel, Launch, Lowered, Operand, Site};
use crate::shape::Shape;

static COPY: Kernel = Kernel::new("copy", "movement/copy", &["STRIDED"], &[1, 2], 64, &[&[]]);
static FILL: Kernel = Kernel::new("fill", "movement/copy", &["FILL"], &[1], 64, &[&[]]);
static IOTA: Kernel = Kernel::new("iota", "movement/copy", &["IOTA"], &[1], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    vec![COPY.clone(), FILL.clone(), IOTA.clone()]
}

/// A strided copy of `dims` elements; offsets and strides in elements.
struct Move {
    from: Operand,
    from_offset: u64,
    from_strides: Vec<u64>,
    to_offset: u64,
    to_strides: Vec<u64>,
    dims: Shape,
}

fn moved(site: &Site, job: &Move) -> Launch<Operand> {
    let n = job.dims.numel();
    let mut params = vec![n as u32, job.from_offset as u32, job.to_offset as u32];
    params.extend(six(&dims_of(job.dims), 1));
    params.extend(six(&job.from_strides, 0));
    params.extend(six(&job.to_strides, 0));
    per_thread(site, &COPY, n, vec![job.from, Operand::Output(0)], &params)
}

fn whole(site: &Site, from: usize, from_strides: Vec<u64>, from_offset: u64) -> Launch<Operand> {
    let dims = site.output();
    let to_strides = dims.strides();
    moved(
        site,
        &Move { from: Operand::Input(from), from_offset, from_strides, to_offset: 0, to_strides, dims },
    )
}

/// Returns the copy of an input to the output.
pub(super) fn copy(site: &Site, input: usize) -> Launch<Operand> {
    // 16-bit elements are copied in pairs, as 32-bit words.
    let dtype = site.inputs[input].1;
    let words = dtype.bytes(site.output().numel()) / 4;
    let dims = if dtype.is_half() { Shape::from([words as usize]) } else { site.output() };
    let (from_strides, to_strides) = (dims.strides(), dims.strides());
    let from = Operand::Input(input);
    moved(site, &Move { from, from_offset: 0, from_strides, to_offset: 0, to_strides, dims })
}

pub(super) fn permute(site: &Site, perm: &[usize]) -> Launch<Operand> {
    let strides = site.inputs[0].0.strides();
    whole(site, 0, perm.iter().map(|&axis| strides[axis]).collect(), 0)
}

pub(super) fn expand(site: &Site) -> Launch<Operand> {
    whole(site, 0, site.inputs[0].0.broadcast_strides(&site.output()), 0)
}

pub(super) fn slice(site: &Site, axis: usize, start: usize) -> Launch<Operand> {
    let (shape, dtype) = site.inputs[0];
    let strides = shape.strides();
    let offset = start as u64 * strides[axis];
    if dtype.is_half() {
        // Shape inference checked that the slice consists of contiguous whole words.
        let dims = Shape::from([(site.output().numel() / 2) as usize]);
        let [from_strides, to_strides] = [dims.strides(), dims.strides()];
        let (from, from_offset) = (Operand::Input(0), offset / 2);
        return moved(site, &Move { from, from_offset, from_strides, to_offset: 0, to_strides, dims });
    }
    whole(site, 0, strides, offset)
}

/// Returns the copy of an input to the positions from `start` by `step` along `axis` of the output.
fn into_place(site: &Site, input: usize, axis: usize, start: usize, step: isize) -> Launch<Operand> {
    let part = site.inputs[input].0;
    let strides = site.output().strides();
    let job = Move {
        from: Operand::Input(input),
        from_offset: 0,
        from_strides: part.strides(),
        to_offset: start as u64 * strides[axis],
        to_strides: stepped(strides, axis, step),
        dims: part,
    };
    moved(site, &job)
}

/// Strides of a walk by `step` along `axis`. Kernels multiply in `u32`, where a negative stride wraps around.
fn stepped(mut strides: Vec<u64>, axis: usize, step: isize) -> Vec<u64> {
    strides[axis] = strides[axis].wrapping_mul(step as u64);
    strides
}

pub(super) fn stride(site: &Site, axis: usize, start: usize, step: isize) -> Launch<Operand> {
    let strides = site.inputs[0].0.strides();
    let offset = start as u64 * strides[axis];
    whole(site, 0, stepped(strides, axis, step), offset)
}

pub(super) fn place(site: &Site, axis: usize, start: usize, step: isize) -> Lowered {
    let mut launches = vec![fill(site, 0.0)];
    if site.inputs[0].0.numel() > 0 {
        launches.push(into_place(site, 0, axis, start, step));
    }
    Lowered { launches, workspace: Vec::new() }
}

/// Writes the index along `axis` to every element.
pub(super) fn iota(site: &Site, axis: usize) -> Launch<Operand> {
    let shape = site.output();
    let params = [shape.numel() as u32, shape.strides()[axis] as u32, shape.dims()[axis] as u32];
    per_thread(site, &IOTA, shape.numel(), vec![Operand::Output(0)], &params)
}

pub(super) fn concat(site: &Site, axis: usize) -> Lowered {
    let mut start = 0;
    let mut launches = Vec::new();
    for (i, (part, _)) in site.inputs.iter().enumerate() {
        if part.numel() > 0 {
            launches.push(into_place(site, i, axis, start, 1));
        }
        start += part.dims()[axis];
    }
    Lowered { launches, workspace: Vec::new() }
}

pub(super) fn fill(site: &Site, value: f32) -> Launch<Operand> {
    let count = quads(site.output().numel());
    fill_words(u64::from(count), value.to_bits(), site.limits.max_workgroups).map(|()| Operand::Output(0))
}

/// Writes `word` to every word of `quads` vec4s.
pub(crate) fn fill_words(quads: u64, word: u32, max_workgroups: u32) -> Launch<()> {
    let grid = fold(quads.div_ceil(u64::from(FILL.workgroup)), max_workgroups);
    let params = vec![grid[0] * FILL.workgroup, quads as u32, word];
    Launch { kernel: FILL.clone(), constants: Vec::new(), memory: vec![()], params, grid }
}
