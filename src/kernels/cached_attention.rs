//! Attention of new tokens over a cache: a workgroup for each query of a head, or where these are few and the cache is long,
//! one for each part of its keys, whose results another kernel joins in order.

use super::grid::fold;
use super::split;
use super::{Kernel, Launch, Lowered, Operand, Site};
use crate::dtype::DType;
use crate::graph::Attend;

static ATTEND: Kernel =
    Kernel::new("cached_attention", "attention/cached", &[], &[1, 2, 3, 4, 5, 6, 7, 8], 64, &[&[]]);
static JOIN: Kernel =
    Kernel::new("cached_attention_join", "attention/cached", &["JOIN"], &[1, 2], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    Attend::CACHED.map(storing).into_iter().chain([JOIN.clone()]).collect()
}

/// Returns the kernel for caches of these elements.
fn storing(dtype: DType) -> Kernel {
    match dtype {
        DType::Uint8 => ATTEND.with("UINT8").with("ENCODE").suffixed("uint8"),
        float => ATTEND.storing(float),
    }
}

/// Keys that a workgroup takes at once.
const TILE: u64 = 64;
/// Most keys of a part on software adapters, whose loops are bounded: a tile takes at most 160 iterations.
const LONGEST: u64 = 16_384;

pub(super) fn cached_attention(site: &Site, attend: &Attend) -> Lowered {
    let dims = |i: usize| site.inputs[i].0.dims().to_vec();
    let (q, cache) = (dims(0), dims(Attend::CACHES[0]));
    let [batch, rows, heads, size] = q[..] else { unreachable!("attention is inferred for four dimensions") };
    let [pages, page, kv_heads, _] = cache[..] else { unreachable!("caches have four dimensions") };
    let table = dims(Attend::PAGES)[1];
    // The most keys that a query sees: those of all pages of a text and all new tokens, or its window.
    let keys = ((table * page + rows) as u64).min(u64::from(attend.band.before) + 1);
    let queries = (batch * rows * heads) as u64;
    let wanted = split::pieces(site.limits.class, (queries, ATTEND.workgroup), keys);
    let longest = if site.limits.class.is_cpu() { LONGEST } else { u64::MAX };
    let span = keys.div_ceil(wanted).next_multiple_of(TILE).min(longest);
    let parts = keys.div_ceil(span);
    let quads = size as u64 / 4;
    let launch = |kernel: Kernel, groups: u64, memory: Vec<Operand>| {
        let grid = fold(groups, site.limits.max_workgroups);
        let words = [parts, queries * parts, u64::from(grid[0]), heads as u64, kv_heads as u64];
        let [rows, page, table, pages] = [rows, page, table, pages].map(|n| n as u64);
        let lengths = [rows, page, table, pages, quads, u64::from(attend.band.before), span];
        let mut params: Vec<u32> = words.iter().chain(&lengths).map(|&word| word as u32).collect();
        params.extend([attend.scale, attend.cap].map(f32::to_bits));
        Launch { kernel, constants: Vec::new(), memory, params, grid }
    };
    let kernel = storing(site.inputs[Attend::CACHES[0]].1);
    let mut memory: Vec<Operand> = (0..7).map(Operand::Input).collect();
    if parts == 1 {
        memory.push(Operand::Output(0));
        return launch(kernel, queries, memory).into();
    }
    let scratch = Operand::Workspace(0);
    memory.push(scratch);
    let launches = vec![
        launch(kernel, queries * parts, memory),
        launch(JOIN.clone(), queries, vec![scratch, Operand::Output(0)]),
    ];
    Lowered { launches, workspace: vec![queries * parts * (quads + 1) * 16] }
}
