//! What every picture of a plan shows: rectangles, bands, and the bytes alive.

use super::tensors::{TensorReport, tensors};
use crate::graph::Phase;
use crate::plan::Plan;

/// A plan as rectangles: time runs from 0 to `end`, one operation a unit; addresses from 0 to `total` bytes, the arenas
/// on top of each other.
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

/// Operations that follow each other and have something in common.
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
        // Updates run wherever a gradient is ready: only those at the end make a part of their own.
        let last = nodes.iter().rposition(|node| node.phase != Phase::Update).unwrap_or(0);
        let phases = bands(nodes.iter().enumerate().map(|(i, node)| match node.phase {
            Phase::Update if i < last => "",
            phase => phase.name(),
        }));
        let layers = bands(nodes.iter().map(|node| match node.phase {
            Phase::Update => "",
            _ => node.layer.split('.').next().unwrap_or_default(),
        }));
        Self { plan, end, total: total.max(1), blocks, live, phases, layers }
    }

    /// Bytes alive at the fullest moment: no place for every tensor of this order of operations can need less.
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

/// Runs of equal names; an operation without a name belongs to the run before it.
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
    fn operations_outside_of_layers_join_the_band_before_them() {
        let found = bands(["", "a", "a", "", "b", "a"].into_iter());
        let named: Vec<_> = found.iter().map(|b| (b.name.as_str(), b.from, b.until)).collect();
        assert_eq!(named, [("", 0, 1), ("a", 1, 4), ("b", 4, 5), ("a", 5, 6)]);
    }
}
