//! The gradient of a convolution's weight: a long sum over all pixels, in parts.

use super::super::grid::fold;
use super::super::{Lowered, Operand, Site, reduce};
use super::{FEW_CHANNELS, SHARING_SUBGROUP, TERMS, activation_code, for_image, image};
use crate::graph::{Activation, Window};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;

/// Most pixels that one thread sums over: below the 65,535 turns at which lavapipe ends loops.
const MAX_PART: u64 = 32_768;

/// `x, dy, terms? → dw`: parts of the long sum over all pixels, then their sum in order.
pub(in crate::lower) fn weight(
    site: &Site,
    window: Window,
    groups: usize,
    normed: Option<Activation>,
) -> Lowered {
    let ([batch, c, h, w], [_, o, out_h, out_w]) = (image(site.inputs[0].0), image(site.inputs[1].0));
    let (m, kc) = (o / groups, c / groups);
    let columns = kc * window.taps();
    let (total, pixels) = ((o * columns) as u64, (batch * out_h * out_w) as u64);
    let wide = site.limits.min_subgroup >= SHARING_SUBGROUP;
    let (kernels, tile, wanted, smallest): (&'static [Kernel; 2], usize, u64, u64) = match site.limits.class {
        _ if groups > 1 && m.min(kc) < FEW_CHANNELS => (&table::CONV_WEIGHT_DIRECT, 1, 1 << 14, 64),
        AdapterClass::Cpu if wide => (&table::CONV_WEIGHT_CPU, 32, 32, 512),
        AdapterClass::Cpu => (&table::CONV_WEIGHT_DIRECT, 1, 1 << 10, 64),
        AdapterClass::Integrated | AdapterClass::Discrete => (&table::CONV_WEIGHT_TILED64, 64, 1 << 10, 256),
    };
    let kernel = for_image(site, &kernels[usize::from(normed.is_some())]);
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
    reduce::sum_of_parts(site, to, parts, total, &mut lowered);
    lowered
}
