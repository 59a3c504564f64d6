//! The contents of every picture of a plan: rectangles, bands, and the bytes alive.

use std::collections::BTreeSet;

use super::tensors::{TensorReport, tensors};
use crate::compile::Plan;
use crate::graph::Phase;

/// A plan as rectangles. Time runs from 0 to `end`, one unit per operation. Addresses run from 0 to `total`
/// bytes, with the arenas stacked.
pub(super) struct Scene<'a> {
    pub(super) plan: &'a Plan,
    pub(super) end: usize,
    pub(super) total: u64,
    pub(super) blocks: Vec<Block>,
    /// Bytes alive at each operation.
    pub(super) live: Vec<u64>,
    pub(super) phases: Vec<Band>,
    pub(super) layers: Vec<Band>,
}

/// A tensor and its rectangle: `from..until` by `address..address + bytes`.
pub(super) struct Block {
    pub(super) tensor: TensorReport,
    pub(super) from: usize,
    pub(super) until: usize,
    pub(super) address: u64,
}

/// Consecutive operations of the same phase or layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) name: String,
    pub(super) from: usize,
    pub(super) until: usize,
}

impl<'a> Scene<'a> {
    pub(super) fn of(plan: &'a Plan) -> Self {
        let end = plan.program.order.len().max(1);
        let mut total = 0;
        let bases: Vec<_> = plan
            .layout
            .arenas()
            .map(|(arena, bytes)| {
                total += bytes;
                (arena, total - bytes)
            })
            .collect();
        let block = |tensor: TensorReport| {
            let base = bases.iter().find(|(arena, _)| *arena == tensor.region.arena).map_or(0, |(_, at)| *at);
            let address = base + tensor.region.offset;
            Block { from: tensor.first.min(end), until: (tensor.last + 1).min(end), address, tensor }
        };
        let blocks: Vec<Block> = tensors(plan).into_iter().map(block).collect();
        let live = live(&blocks, end);
        let nodes: Vec<_> = plan.program.order.iter().map(|&n| &plan.program.graph.nodes[n]).collect();
        // Updates run wherever a gradient is ready: only those at the end form a band of their own.
        let last = nodes.iter().rposition(|node| node.phase != Phase::Update).unwrap_or(0);
        let phases = bands(nodes.iter().enumerate().map(|(i, node)| match node.phase {
            Phase::Update if i < last => "",
            phase => phase.name(),
        }));
        let depth = depth(nodes.iter().map(|node| &*node.layer));
        let layers = bands(nodes.iter().map(|node| match node.phase {
            Phase::Update => "",
            _ => part(&node.layer, depth),
        }));
        Self { plan, end, total: total.max(1), blocks, live, phases, layers }
    }

    /// Returns the bytes alive at the peak: a lower bound for every packing with this order of operations.
    pub(super) fn peak_live(&self) -> u64 {
        self.live.iter().copied().max().unwrap_or(0)
    }
}

fn live(blocks: &[Block], end: usize) -> Vec<u64> {
    let mut change = vec![0i128; end + 1];
    for block in blocks {
        change[block.from] += i128::from(block.tensor.bytes);
        change[block.until] -= i128::from(block.tensor.bytes);
    }
    let running = |sum: &mut i128, delta: &i128| {
        *sum += delta;
        Some(u64::try_from(*sum).unwrap_or(0))
    };
    change[..end].iter().scan(0, running).collect()
}

/// Number of layers that a picture has room to name.
const ENOUGH: usize = 6;

/// Returns the range of path components to show as layer names: it starts after the prefix that all paths
/// share, and ends where it distinguishes enough layers.
fn depth<'s>(layers: impl Iterator<Item = &'s str>) -> (usize, usize) {
    let paths: BTreeSet<Vec<&str>> =
        layers.filter(|l| !l.is_empty()).map(|l| l.split('.').collect()).collect();
    let count =
        |depth: usize| paths.iter().map(|path| &path[..path.len().min(depth)]).collect::<BTreeSet<_>>().len();
    let deepest = paths.iter().map(Vec::len).max().unwrap_or(1);
    let common = (1..deepest).take_while(|&depth| count(depth) == 1).count();
    let most = count(deepest).min(ENOUGH);
    let end = (common + 1..deepest).find(|&depth| count(depth) >= most).unwrap_or(deepest);
    (common, end)
}

/// Returns components `from..until` of a path, as far as it has them.
fn part(layer: &str, (from, until): (usize, usize)) -> &str {
    let cut = |text: &str, parts: usize| text.match_indices('.').nth(parts).map_or(text.len(), |(at, _)| at);
    let end = cut(layer, until.saturating_sub(1));
    let start = if from == 0 { 0 } else { (cut(layer, from - 1) + 1).min(end) };
    &layer[start..end]
}

/// Groups consecutive equal names into bands; an operation without a name belongs to the band before it.
fn bands<'s>(names: impl Iterator<Item = &'s str>) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for (position, name) in names.enumerate() {
        match bands.last_mut() {
            Some(last) if name.is_empty() || last.name == name => last.until = position + 1,
            _ => bands.push(Band { name: name.to_owned(), from: position, until: position + 1 }),
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_named_where_they_differ() {
        let flat = [
            "conv1",
            "layer1.0.conv1",
            "layer1.1.conv1",
            "layer2.0.conv1",
            "layer3.0.conv1",
            "layer4.0.conv1",
            "fc",
        ];
        assert_eq!(depth(flat.into_iter()), (0, 1));
        let blocks = [
            "",
            "gpt.wte",
            "gpt.h.0.mlp",
            "gpt.h.0.attn",
            "gpt.h.1.mlp",
            "gpt.h.2.mlp",
            "gpt.h.3.mlp",
            "gpt.ln",
        ];
        assert_eq!(depth(blocks.into_iter()), (1, 3));
        let parts = blocks.map(|layer| part(layer, (1, 3)));
        assert_eq!(parts, ["", "wte", "h.0", "h.0", "h.1", "h.2", "h.3", "ln"]);
        assert_eq!(depth(["fc1", "fc2"].into_iter()), (0, 1));
        assert_eq!((depth([""].into_iter()), part("", (0, 1)), part("a", (1, 2))), ((0, 1), "", ""));
    }

    #[test]
    fn operations_outside_of_layers_join_the_band_before_them() {
        let found = bands(["", "a", "a", "", "b", "a"].into_iter());
        let named: Vec<_> = found.iter().map(|b| (b.name.as_str(), b.from, b.until)).collect();
        assert_eq!(named, [("", 0, 1), ("a", 1, 4), ("b", 4, 5), ("a", 5, 6)]);
    }
}
