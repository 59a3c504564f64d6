//! Tests that every operation is drawn, and that differences are detected.

use std::collections::BTreeSet;

use super::dice::Dice;
use super::draws::DRAWS;
use super::measure::{Allowed, Moved};
use super::network::Network;
use super::outcome::starts;
use super::plans;
use super::reference::{Perturbation, Reference, SLOPE, Tensors};
use super::settings::Settings;
use crate::compile::Parallel;
use crate::compile::passes::split_layers;
use crate::graph::{Binary, Op, Unary};
use crate::limits::Limits;
use crate::optim::{Optimizer, Sgd};
use crate::reference::Twin;

/// Records an operation and those that it consists of.
fn note(op: &Op, seen: &mut BTreeSet<&'static str>) {
    seen.insert(op.kind());
    match op {
        Op::Unary(f) => drop(seen.insert(f.name())),
        Op::Binary(f) => drop(seen.insert(f.name())),
        Op::Fused(chain) => chain.links().iter().for_each(|link| note(&link.op, seen)),
        _ => {}
    }
    if let Some(then) = op.epilogue() {
        then.links().iter().for_each(|link| note(&link.op, seen));
    }
}

#[test]
fn random_networks_draw_every_operation() {
    let mut seen = BTreeSet::new();
    let own = Limits::named("lavapipe").unwrap_or_default();
    for seed in 0..160 {
        let network = Network::random(seed, 24).expect("draws are valid");
        let settings = Settings::random(&mut Dice::new(seed), &own, 2);
        let plan = |options| network.step.plan(&options, &settings.limits).expect("it can be planned");
        let (plan, rank) = (plan(settings.options), plan(settings.of_rank(0)));
        // Passes remove some operations and add others.
        let together = Parallel { tensor: 2, ..Parallel::of(1, 2) };
        let split = split_layers(network.step.graph().clone(), together, None).unwrap_or_default();
        let graphs = [network.step.graph(), plan.graph(), rank.graph(), &split];
        graphs.iter().flat_map(|graph| &graph.nodes).for_each(|node| note(&node.op, &mut seen));
    }
    let all = Op::KINDS.iter().chain(Unary::NAMES).chain(Binary::NAMES);
    // Forward passes alone have it: tests/kernels/cached_attention.rs draws it.
    seen.insert("cached_attention");
    let missing: BTreeSet<_> = all.filter(|name| !seen.contains(**name)).collect();
    assert!(missing.is_empty(), "never drawn: {missing:?}");
}

#[test]
fn wrong_values_are_detected_and_rounding_errors_are_not() {
    let tensors = |x: f64| Tensors::from([("w".to_owned(), vec![1.0, x, 1.0])]);
    let allowed = Allowed { floor: 4e-6, jump: 0.0 };
    // A relative change of the inputs changes the second number by ten times that relative amount.
    let error = |actual: &Tensors| {
        let mut moved = Moved::new(1e-6, |p: Perturbation| Ok([tensors(2.0 + 20.0 * p.size)]));
        moved.measured("", 0, actual, &tensors(2.0), &allowed).expect("no run fails").error
    };
    assert!(error(&tensors(2.0 + 3e-5)) < 1.0 && error(&tensors(2.0 + 0.5)) > 1.0);
    assert_eq!([error(&tensors(f64::NAN)), error(&Tensors::new())], [f64::INFINITY; 2]);
}

/// Each operation alone, then random networks. Needs no device, so that machines without one test all passes.
#[test]
fn gradients_of_plans_match_the_traced_graph() {
    let presets = Limits::NAMES.map(|name| Limits::named(name).expect("a preset"));
    let alone = DRAWS.iter().enumerate().map(|(i, (name, draw))| (*name, Network::of(*draw, i as u64)));
    let random = (0..24).map(|seed| ("random", Network::random(seed, 16)));
    let wide = (0..24).map(|seed| ("wide", Network::wide(seed, 3)));
    let mut split = 0;
    for (i, (name, network)) in alone.chain(random).chain(wide).enumerate() {
        let own = &presets[i % presets.len()];
        let mut settings = Settings::random(&mut Dice::new(i as u64), own, 2);
        let network = network.expect("draws are valid");
        settings.split(&network, &mut Dice::new(i as u64));
        split += usize::from(settings.limits.max_binding < own.max_binding);
        let found = plans::gradients(&network, &settings).expect("it can be planned");
        for difference in found {
            assert!(difference.error <= 1.0, "{i}, {name}, {}: {}", settings.name(), difference.what);
        }
    }
    assert!(split > 10, "{split} networks have tensors larger than a binding");
}

#[test]
fn gradients_of_traced_graphs_match_finite_differences() {
    let optimizer: Optimizer = Sgd::default().into();
    for seed in 0..10 {
        let network = Network::random(seed, 16).expect("draws are valid");
        let graph = network.step.graph();
        let starts = starts(graph, &Twin::new(graph)).expect("parameters have starts");
        let scalars = optimizer.scalars(0, 0.0, seed);
        let error = Reference::slope_error(&network, &starts, &scalars).expect("the twin runs");
        assert!(error < SLOPE, "seed {seed}: {error}");
    }
}
