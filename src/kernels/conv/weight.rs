//! The gradient of a convolution's weight: a long sum over all pixels, split into parts.

use super::choice::Choice;
use super::{Case, Pass, TERMS, activation_code, image};
use crate::graph::{Activation, Window};
use crate::kernels::{Launch, Lowered, Operand, Site, reduce};

/// `x, dy, terms? → dw`: partial sums over pixels, then the sum of the parts in order.
pub(in crate::kernels) fn weight(
    site: &Site,
    window: Window,
    groups: usize,
    normed: Option<Activation>,
) -> Lowered {
    let ([batch, c, h, w], [_, o, out_h, out_w]) = (image(site.inputs[0].0), image(site.inputs[1].0));
    let (m, kc) = (o / groups, c / groups);
    let columns = kc * window.taps();
    let total = (o * columns) as u64;
    let [groups, m, kc, columns, steps] = [groups, m, kc, columns, batch * out_h * out_w].map(|n| n as u64);
    let case = Case { pass: Pass::Weight, groups, m, kc, columns, steps, divisible: 0 };
    let way = Choice::of(site, &case, |variant| variant.weight(normed.is_some()));
    let (parts, part_len) = (way.tiling.parts(&case), way.tiling.part(&case));
    let (grid, tiles) = way.tiling.grid(&case, 1, &way.kernel, site.limits);
    let Window { kernel: size, stride, padding, dilation } = window;
    let mut params = vec![grid[0], tiles[0], tiles[1]];
    params.extend([groups, parts, part_len, m, kc, batch as u64, total].map(|n| n as u32));
    params.extend(
        [size, stride, padding, dilation, [h, w], [out_h, out_w]].as_flattened().iter().map(|&n| n as u32),
    );
    let to = if parts == 1 { Operand::Output(0) } else { Operand::Workspace(0) };
    let mut memory = vec![Operand::Input(0), Operand::Input(1), to];
    let constants = normed.map(activation_code).unwrap_or_default();
    let constants = [constants, way.constants].concat();
    memory.extend(normed.iter().flat_map(|_| TERMS));
    let launch = Launch { kernel: way.kernel, constants, memory, params, grid };
    if parts == 1 {
        return launch.into();
    }
    let mut lowered = Lowered { launches: vec![launch], workspace: vec![total * parts * 4] };
    reduce::sum_of_parts(site, to, parts, total, &mut lowered);
    lowered
}
