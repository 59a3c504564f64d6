//! Scheduling. Any order that respects the dependencies computes the same bits. The order with the lowest
//! peak is used: a gradient is consumed by its update at once, and a slice is made only when it is needed.

mod dependencies;
mod improve;

use std::collections::BTreeSet;

use crate::compile::analysis::{Effects, Live, Views, peak};
use crate::graph::{Graph, Node, Op, Phase};
use dependencies::Dependencies;

/// How the next ready operation is chosen.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// As given, but operations that do not grow memory come first, such as updates that consume a gradient.
    FreeFirst,
    /// The operation that grows memory least.
    GrowLeast,
}

/// Indices into `graph.nodes` in execution order. With `recomputes`, results of the forward pass may be recomputed for their
/// readers: then none of these is moved forward to free what it reads.
pub(super) fn schedule(graph: &Graph, views: &Views, recomputes: bool) -> Vec<usize> {
    let traced: Vec<usize> = (0..graph.nodes.len()).collect();
    let dependencies = Dependencies::of(graph, views);
    let effects = Effects::of(graph, views);
    let wanted = on_demand(graph, &dependencies);
    let stays = if recomputes { reads_results(graph, views) } else { vec![false; traced.len()] };
    let list = |rule, start: &[usize]| by_rule(&effects, &dependencies, (rule, &stays), start);
    // With it, ranks would compute and receive what grows memory last, and all that they send later would wait for it.
    let grow_least = graph.exchanges.is_empty().then(|| list(Rule::GrowLeast, &traced));
    let candidates = [
        Some(list(Rule::FreeFirst, &traced)),
        grow_least,
        Some(traced.clone()),
        Some(list(Rule::FreeFirst, &wanted)),
        Some(wanted),
    ];
    // Ties take the first candidate.
    let best = candidates.into_iter().flatten().min_by_key(|order| peak(&effects, order));
    late(graph, improve::improve(&effects, &dependencies, best.unwrap_or_default()))
}

/// The traced order, but each update of a parameter right after the last operation that it waits for. It does not depend on sizes.
pub(super) fn early_updates(graph: &Graph, views: &Views) -> Vec<usize> {
    let dependencies = Dependencies::of(graph, views);
    let place = |&n: &usize| match graph.nodes[n].op {
        Op::Update { .. } => (dependencies.before[n].iter().max().copied().unwrap_or(0), true),
        _ => (n, false),
    };
    let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
    order.sort_by_key(place);
    order
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
            let viewed = graph.nodes[m].inputs.first().and_then(|id| maker[id.index()]);
            for m in viewed.into_iter().chain([m]) {
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

/// Whether each operation after the forward pass reads a result of the forward pass.
fn reads_results(graph: &Graph, views: &Views) -> Vec<bool> {
    let roots = views.roots();
    let mut result = vec![false; graph.values.len()];
    for node in graph.nodes.iter().filter(|node| node.phase == Phase::Forward && !views.is_free(node)) {
        node.outputs.iter().for_each(|id| result[roots[id.index()].index()] = true);
    }
    let reads = |node: &Node| node.inputs.iter().any(|id| result[roots[id.index()].index()]);
    graph.nodes.iter().map(|node| node.phase != Phase::Forward && reads(node)).collect()
}

/// List scheduling; `start` is an order of all operations, and ties take the first of it. Those that stay where they are count as
/// if they grew memory.
fn by_rule(
    effects: &Effects,
    dependencies: &Dependencies,
    (rule, stays): (Rule, &[bool]),
    start: &[usize],
) -> Vec<usize> {
    let mut live = Live::new(effects);
    let mut waiting: Vec<usize> = dependencies.before.iter().map(<[usize]>::len).collect();
    let mut ready = Ready::new(start, stays);
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
struct Ready<'a> {
    stays: &'a [bool],
    /// The place of each operation in the order that the schedule starts from.
    place: Vec<usize>,
    growth: Vec<Option<i128>>,
    by_place: BTreeSet<(usize, usize)>,
    by_growth: BTreeSet<(i128, usize, usize)>,
}

impl<'a> Ready<'a> {
    fn new(start: &[usize], stays: &'a [bool]) -> Self {
        let mut place = vec![0; start.len()];
        start.iter().enumerate().for_each(|(position, &n)| place[n] = position);
        let growth = vec![None; start.len()];
        Self { stays, place, growth, by_place: BTreeSet::new(), by_growth: BTreeSet::new() }
    }

    fn insert(&mut self, n: usize, growth: i128) {
        let growth = if self.stays[n] { growth.max(1) } else { growth };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::passes::tests::differentiated;
    use crate::graph::{Init, Mode, Params, Tensor, Trace};

    /// The positions, in an order, of the nodes that compute values of these names.
    fn places<const N: usize>(graph: &Graph, order: &[usize], names: [&str; N]) -> [usize; N] {
        names.map(|name| {
            let computes = |n: &usize| graph.nodes[*n].outputs.iter().any(|id| graph.value(*id).name == name);
            order.iter().position(computes).unwrap_or_else(|| panic!("no `{name}`"))
        })
    }

    fn training(body: impl FnOnce(&Trace, &Params) -> Tensor) -> Graph {
        let params = Params::new(0);
        differentiated(
            Trace::record(&params, Mode::Train, "loss", |trace| body(trace, &params)).expect("valid"),
        )
    }

    /// On demand, the second part of a layer would run before the first part of the layer before.
    #[test]
    fn a_layer_waits_for_all_parts_of_the_one_before() {
        for in_parts in [false, true] {
            let graph = training(|trace, params| {
                let w = trace.param(&params.add("w", [64, 64], Init::fan_in(64)));
                let parts = ["a", "b"].map(|name| trace.input(name, [128, 64]).matmul(&w).tanh());
                let parts = [0, 1].map(|i| parts[i].clone().named(["first a", "first b"][i]));
                if in_parts {
                    trace.rows_of_one(&parts);
                }
                let results = [0, 1].map(|i| parts[i].matmul(&w).tanh().named(["second a", "second b"][i]));
                results[0].square().sum(&[]).add(&results[1].square().sum(&[]))
            });
            let order = on_demand(&graph, &Dependencies::of(&graph, &Views::of(&graph, false)));
            let [a, b, second_a, second_b] =
                places(&graph, &order, ["first a", "first b", "second a", "second b"]);
            assert_eq!(a.max(b) < second_a.min(second_b), in_parts, "{a} {b} {second_a} {second_b}");
        }
    }

    /// The gradient of a factor frees what it reads, so it comes first, unless that may not be in memory.
    #[test]
    fn readers_of_recomputed_results_stay_where_they_are() {
        let graph = training(|trace, params| {
            let factor = trace.param(&params.add("factor", [64], Init::Constant(0.5)));
            let w = trace.param(&params.add("w", [64, 64], Init::fan_in(64)));
            let part = |name: &str| trace.input(name, [128, 64]).matmul(&w).gelu().mul(&factor);
            part("a").add(&part("b")).sum(&[])
        });
        let views = Views::of(&graph, false);
        let (effects, dependencies) = (Effects::of(&graph, &views), Dependencies::of(&graph, &views));
        let (reads, traced) = (reads_results(&graph, &views), (0..graph.nodes.len()).collect::<Vec<_>>());
        let readers = |stays: &[bool]| -> Vec<usize> {
            let order = by_rule(&effects, &dependencies, (Rule::FreeFirst, stays), &traced);
            order.into_iter().filter(|&n| reads[n]).collect()
        };
        let [staying, free] = [&reads, &vec![false; reads.len()]].map(|stays| readers(stays));
        assert!(staying.len() > 2 && staying.is_sorted(), "{staying:?}");
        assert!(!free.is_sorted(), "{free:?}");
    }
}
