//! No thread of a software adapter makes more than `MAX_LOOP_ITERATIONS` iterations of its loops, whatever a user's shapes: lavapipe
//! ends loops there without a word. Launches of extreme shapes are counted, iteration by iteration, by an interpreter of
//! their kernels; and every kernel that has a loop must be among them.

mod count;
mod sites;
mod slice;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use count::Modules;
use sites::{Extreme, extremes, presets};
use wgrad::kernels::{Kernel, Launch, table};
use wgrad::lower::{Site, in_place_inputs, lower};

const MAX: u64 = 65_535;

#[test]
fn look() {
    let begin = std::time::Instant::now();
    let mut modules = Modules::default();
    let mut covered: BTreeSet<&'static str> = BTreeSet::new();
    let mut worst: BTreeMap<(bool, &'static str), (u64, String)> = Default::default();
    let list = extremes();
    for limits in presets() {
        println!("{} after {:?}", limits.name, begin.elapsed());
        if !limits.class.is_cpu() && limits.name != "discrete" && limits.cooperative.is_none() { continue; }
        for Extreme { name, graph } in &list {
            let start = std::time::Instant::now();
            for node in &graph.nodes {
                let of = |ids: &[wgrad::graph::ValueId]| {
                    ids.iter().map(|id| { let v = graph.value(*id); (v.shape, v.dtype) }).collect::<Vec<_>>()
                };
                let (inputs, outputs) = (of(&node.inputs), of(&node.outputs));
                let places = outputs.first().map(|(shape, _)| in_place_inputs(&node.op, &inputs, *shape)).unwrap_or_default();
                for in_place in std::iter::once(None).chain(places.into_iter().map(Some)) {
                    let site = Site { op: &node.op, inputs: &inputs, outputs: &outputs, in_place, limits: &limits };
                    match lower(&site) {
                        Err(e) => println!("{} {name}: {e}", limits.name),
                        Ok(lowered) => for launch in some_launches(&lowered.launches) {
                            let most = if limits.class.is_cpu() { MAX } else { MAX };
                            let n = modules.iterations(launch, most);
                            covered.insert(launch.kernel.name);
                            let n = match n { Ok(n) => n, Err(e) => { println!("FAIL {} {name} {}: {e} {:?} {:?}", limits.name, launch.kernel.name, launch.params, launch.constants); u64::MAX } };
                            let entry = worst.entry((limits.class.is_cpu(), launch.kernel.name)).or_default();
                            if n > entry.0 { *entry = (n, format!("{} {name}", limits.name)); }
                        }
                    }
                }
            }
            if start.elapsed().as_secs_f64() > 1.0 { println!("{} {name}: {:?}", limits.name, start.elapsed()); }
        }
    }
    for (k, v) in &worst { println!("{k:?} {v:?}"); }
    let missing: Vec<&str> = table::ALL.iter().filter(|k: &&&'static Kernel| modules.loops(k) && !covered.contains(k.name)).map(|k| k.name).collect();
    println!("missing {missing:?}");
}

/// The first and last launch of each kernel and some between: what is cut into launches is cut evenly.
fn some_launches<M>(launches: &[Launch<M>]) -> impl Iterator<Item = &Launch<M>> {
    let mut of: BTreeMap<&str, Vec<&Launch<M>>> = BTreeMap::new();
    for launch in launches {
        of.entry(launch.kernel.name).or_default().push(launch);
    }
    of.into_values().flat_map(|all| {
        let (step, last) = (all.len().div_ceil(6), all.len() - 1);
        all.into_iter().enumerate().filter(move |(i, _)| i % step == 0 || *i == last).map(|(_, launch)| launch)
    })
}
