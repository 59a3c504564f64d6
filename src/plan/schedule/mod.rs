//! The order of operations. Any order that respects the dependencies computes the same bits; the one with the lowest peak
//! is taken, so that a gradient is consumed by its update at once and a part is cut out of a whole only when it is needed.

mod dependencies;
mod improve;
mod live;

use std::collections::BTreeSet;

use crate::graph::Graph;
use crate::plan::views::Views;
use dependencies::Dependencies;
use live::{Effects, Live};

/// How the next of the operations that are ready is chosen.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// As traced, but what does not let memory grow comes first: a gradient waits for nothing that its update needs.
    FreeFirst,
    /// What lets memory grow least.
    GrowLeast,
}

/// Positions of `graph.nodes` in the order they run; with `reorder` off, as traced.
pub(super) fn schedule(graph: &Graph, views: &Views, reorder: bool) -> Vec<usize> {
    let traced: Vec<usize> = (0..graph.nodes.len()).collect();
    if !reorder {
        return traced;
    }
    let dependencies = Dependencies::of(graph, views);
    let effects = Effects::of(graph, views);
    let candidates = [Rule::FreeFirst, Rule::GrowLeast].map(|rule| by_rule(&effects, &dependencies, rule));
    // The first of equals: nearest to what was traced.
    let best = candidates.into_iter().chain([traced]).min_by_key(|order| live::peak(&effects, order));
    improve::improve(&effects, &dependencies, best.unwrap_or_default())
}

/// List scheduling.
fn by_rule(effects: &Effects, dependencies: &Dependencies, rule: Rule) -> Vec<usize> {
    let mut waiting: Vec<usize> = dependencies.before.iter().map(BTreeSet::len).collect();
    let mut ready: BTreeSet<usize> = (0..waiting.len()).filter(|&n| waiting[n] == 0).collect();
    let mut live = Live::new(effects);
    let mut order = Vec::with_capacity(waiting.len());
    while let Some(&first) = ready.iter().next() {
        let growths = ready.iter().map(|&n| (live.growth(n), n));
        let next = match rule {
            Rule::FreeFirst => growths.filter(|(growth, _)| *growth <= 0).min(),
            Rule::GrowLeast => growths.min(),
        };
        let next = next.map_or(first, |(_, n)| n);
        ready.remove(&next);
        live.run(next);
        order.push(next);
        for &after in &dependencies.after[next] {
            waiting[after] -= 1;
            if waiting[after] == 0 {
                ready.insert(after);
            }
        }
    }
    order
}
