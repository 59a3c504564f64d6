//! Scheduling. Any order that respects the dependencies computes the same bits. The order with the lowest
//! peak is used: a gradient is consumed by its update at once, and a slice is made only when it is needed.

mod dependencies;
mod improve;

use std::collections::BTreeSet;

use crate::compile::analysis::{Effects, Live, Views, peak};
use crate::graph::{Graph, Op, Phase};
use dependencies::Dependencies;

/// How the next ready operation is chosen.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// As given, but operations that do not grow memory come first, such as updates that consume a gradient.
    FreeFirst,
    /// The operation that grows memory least.
    GrowLeast,
}

/// Indices into `graph.nodes` in execution order; with `reorder` off, as traced.
pub(super) fn schedule(graph: &Graph, views: &Views, reorder: bool) -> Vec<usize> {
    let traced: Vec<usize> = (0..graph.nodes.len()).collect();
    if !reorder {
        return traced;
    }
    let dependencies = Dependencies::of(graph, views);
    let effects = Effects::of(graph, views);
    let wanted = on_demand(graph, &dependencies);
    let list = |rule, start: &[usize]| by_rule(&effects, &dependencies, rule, start);
    let candidates = [
        list(Rule::FreeFirst, &traced),
        list(Rule::GrowLeast, &traced),
        traced,
        list(Rule::FreeFirst, &wanted),
        wanted,
    ];
    // Ties take the first candidate.
    let best = candidates.into_iter().min_by_key(|order| peak(&effects, order));
    late(graph, improve::improve(&effects, &dependencies, best.unwrap_or_default()))
}

/// Moves casts of weights to right before their readers: updates of the weights wait for these readers.
fn late(graph: &Graph, order: Vec<usize>) -> Vec<usize> {
    let mut maker: Vec<Option<usize>> = vec![None; graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        let from = node.inputs.first().map(|id| id.index());
        let passes = match node.op {
            Op::Cast(_) => from.is_some_and(|from| graph.values[from].class.is_persistent()),
            Op::Reshape(_) => from.is_some_and(|from| maker[from].is_some()),
            _ => false,
        };
        if passes {
            maker[node.outputs[0].index()] = Some(n);
        }
    }
    let mut waits = vec![false; graph.nodes.len()];
    maker.iter().flatten().for_each(|&n| waits[n] = true);
    let (all, rest): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|&n| waits[n]);
    if all.is_empty() {
        return rest;
    }
    let mut late = Vec::with_capacity(all.len() + rest.len());
    for n in rest {
        for m in graph.nodes[n].inputs.iter().filter_map(|id| maker[id.index()]) {
            // A view comes after the value that it views.
            let behind = graph.nodes[m].inputs.first().and_then(|id| maker[id.index()]);
            for m in behind.into_iter().chain([m]) {
                if std::mem::replace(&mut waits[m], false) {
                    late.push(m);
                }
            }
        }
        late.push(n);
    }
    late.extend(all.into_iter().filter(|&m| waits[m]));
    late
}

/// The backward pass and the updates as traced; forward operations run only when they are needed. If a part
/// of the loss can be differentiated before the next part is computed, as in
/// [`Tensor::linear_cross_entropy`], this order does so.
///
/// [`Tensor::linear_cross_entropy`]: crate::graph::Tensor::linear_cross_entropy
fn on_demand(graph: &Graph, dependencies: &Dependencies) -> Vec<usize> {
    let count = graph.nodes.len();
    let later = (0..count).filter(|&n| graph.nodes[n].phase != Phase::Forward);
    let mut seen = vec![false; count];
    let mut order = Vec::with_capacity(count);
    for wanted in later.chain(0..count) {
        let mut stack = vec![(wanted, false)];
        while let Some((n, complete)) = stack.pop() {
            if complete {
                order.push(n);
            } else if !std::mem::replace(&mut seen[n], true) {
                stack.push((n, true));
                stack.extend(dependencies.before[n].iter().rev().map(|&before| (before, false)));
            }
        }
    }
    order
}

/// List scheduling; `start` is an order of all operations, and ties take the first of it.
fn by_rule(effects: &Effects, dependencies: &Dependencies, rule: Rule, start: &[usize]) -> Vec<usize> {
    let mut live = Live::new(effects);
    let mut waiting: Vec<usize> = dependencies.before.iter().map(<[usize]>::len).collect();
    let mut ready = Ready::new(start);
    for n in (0..waiting.len()).filter(|&n| waiting[n] == 0) {
        ready.insert(n, live.growth(n));
    }
    let mut order = Vec::with_capacity(waiting.len());
    while let Some(next) = ready.pop(rule) {
        live.run(next, |live, last| ready.update(last, live.growth(last)));
        order.push(next);
        for &after in &dependencies.after[next] {
            waiting[after] -= 1;
            if waiting[after] == 0 {
                ready.insert(after, live.growth(after));
            }
        }
    }
    order
}

/// The operations whose operands are computed. With the parts of an accumulated step there are thousands, so
/// none is looked for one by one.
struct Ready {
    /// The place of each operation in the order that the schedule starts from.
    place: Vec<usize>,
    growth: Vec<Option<i128>>,
    by_place: BTreeSet<(usize, usize)>,
    by_growth: BTreeSet<(i128, usize, usize)>,
}

impl Ready {
    fn new(start: &[usize]) -> Self {
        let mut place = vec![0; start.len()];
        start.iter().enumerate().for_each(|(position, &n)| place[n] = position);
        let growth = vec![None; start.len()];
        Self { place, growth, by_place: BTreeSet::new(), by_growth: BTreeSet::new() }
    }

    fn insert(&mut self, n: usize, growth: i128) {
        self.growth[n] = Some(growth);
        self.by_place.insert((self.place[n], n));
        self.by_growth.insert((growth, self.place[n], n));
    }

    /// Takes a new growth into account, if the operation is ready.
    fn update(&mut self, n: usize, growth: i128) {
        if self.remove(n) {
            self.insert(n, growth);
        }
    }

    fn remove(&mut self, n: usize) -> bool {
        let Some(growth) = self.growth[n].take() else { return false };
        self.by_place.remove(&(self.place[n], n));
        self.by_growth.remove(&(growth, self.place[n], n))
    }

    fn pop(&mut self, rule: Rule) -> Option<usize> {
        let least = self.by_growth.first().filter(|(growth, ..)| match rule {
            Rule::FreeFirst => *growth <= 0,
            Rule::GrowLeast => true,
        });
        let next = least.map(|&(_, _, n)| n).or_else(|| self.by_place.first().map(|&(_, n)| n))?;
        self.remove(next);
        Some(next)
    }
}
