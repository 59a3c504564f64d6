//! No thread of a software adapter makes more than `MAX_LOOP_ITERATIONS` loop iterations, whatever the user's
//! shapes are: lavapipe ends loops there without an error. An interpreter counts the iterations of launches
//! with extreme shapes, and every kernel that has a loop must be among the launches.

mod count;
mod sites;
mod slice;
mod sources;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use count::Modules;
use sites::{Case, adapters, extremes, others, trained};
use sources::{Typed, rewritten};
use wgrad::error::Error;
use wgrad::graph::{Graph, Node, ValueId};
use wgrad::kernels::{Kernel, Launch};
use wgrad::kernels::{Lowered, Site, in_place_inputs, lower};
use wgrad::limits::{Limits, MAX_LOOP_ITERATIONS, Products};

/// Each kernel that was launched with its largest count, the cases that were refused, and the launches that
/// exceed the limit.
#[derive(Default)]
struct Seen {
    modules: Modules,
    kernels: BTreeMap<String, (Kernel, u64)>,
    refused: Vec<String>,
    wrong: Vec<String>,
}

impl Seen {
    /// Counts the launches of a node, with separate output memory and in place over each operand that it may
    /// overwrite.
    fn node(&mut self, name: &str, graph: &Graph, node: &Node, limits: &Limits) {
        let types = |ids: &[ValueId]| -> Vec<_> {
            ids.iter().map(|id| graph.value(*id)).map(|value| (value.shape, value.dtype)).collect()
        };
        let (inputs, outputs) = (types(&node.inputs), types(&node.outputs));
        let result = outputs.first().map(|(shape, _)| *shape);
        let places = result.map(|shape| in_place_inputs(&node.op, &inputs, shape)).unwrap_or_default();
        for in_place in std::iter::once(None).chain(places.into_iter().map(Some)) {
            let site = Site { op: &node.op, inputs: &inputs, outputs: &outputs, in_place, limits };
            self.site(name, &site);
        }
    }

    fn site(&mut self, name: &str, site: &Site) {
        let name = format!("{name}, {} for {}", site.op.name(), site.limits.name);
        match lower(site) {
            Ok(Lowered { launches, .. }) => {
                for launch in some_of(&launches) {
                    match self.modules.iterations(launch, MAX_LOOP_ITERATIONS) {
                        Ok(n) => {
                            let kernel = &launch.kernel;
                            let entry = self.kernels.entry(kernel.name.to_string());
                            let (_, most) = entry.or_insert_with(|| (kernel.clone(), 0));
                            *most = n.max(*most);
                        }
                        Err(e) => {
                            self.wrong
                                .push(format!("{name}, {}: {e}: {:?}", launch.kernel.name, launch.params));
                        }
                    }
                }
            }
            Err(Error::Unsupported { message: why, .. } | Error::TooManyElements(why)) => {
                self.refused.push(format!("{name}: {why}"))
            }
            Err(e) => self.wrong.push(format!("{name}: {e}")),
        }
    }

    fn cases(&mut self, cases: &[Case], adapters: &[Limits]) {
        for limits in adapters {
            let all = limits.kernels.products == Products::default();
            for Case { name, graph, .. } in cases.iter().filter(|case| all || case.product) {
                graph.nodes.iter().for_each(|node| self.node(name, graph, node, limits));
            }
        }
    }

    #[track_caller]
    fn assert_right(&self) {
        let few: Vec<&String> = self.wrong.iter().take(20).collect();
        assert!(self.wrong.is_empty(), "{} launches, the first of them: {few:#?}", self.wrong.len());
    }
}

/// Returns the first and last launch of each kernel and some between: work is split evenly over launches.
fn some_of<M>(launches: &[Launch<M>]) -> impl Iterator<Item = &Launch<M>> {
    let mut of: BTreeMap<&str, Vec<&Launch<M>>> = BTreeMap::new();
    for launch in launches {
        of.entry(&launch.kernel.name).or_default().push(launch);
    }
    of.into_values().flat_map(|all| {
        let (step, last) = (all.len().div_ceil(4), all.len() - 1);
        all.into_iter()
            .enumerate()
            .filter(move |(i, _)| i % step == 0 || *i == last)
            .map(|(_, launch)| launch)
    })
}

#[test]
fn loops_of_software_adapters_stay_within_the_iteration_limit() {
    let mut seen = Seen::default();
    seen.cases(&extremes(), &adapters(true));
    seen.assert_right();
    // The cases are extreme enough: some launches come near the limit, and work that cannot be split is
    // refused with a suggestion.
    let most = seen.kernels.values().map(|(_, n)| *n).max();
    assert!(most > Some(MAX_LOOP_ITERATIONS * 3 / 4), "at most {most:?} iterations");
    for op in ["matmul", "softmax", "layer_norm", "conv2d"] {
        let refused = seen.refused.iter().any(|why| why.contains(&format!(", {op} for")));
        assert!(refused, "no {op} was refused");
    }
}

/// A kernel with a loop and no launch here, or with a loop that its parameters do not bound, fails.
#[test]
fn every_loop_is_launched_and_bounded_by_parameters() {
    let mut seen = Seen::default();
    seen.cases(&others(), &adapters(true));
    seen.cases(&others(), &adapters(false));
    for limits in [adapters(true), adapters(false)].concat() {
        for Typed { op, inputs, outputs } in &rewritten() {
            seen.site("rewritten", &Site { op, inputs, outputs, in_place: None, limits: &limits });
        }
    }
    for (graph, limits) in trained() {
        graph.nodes.iter().for_each(|node| seen.node("a step", &graph, node, &limits));
    }
    seen.assert_right();
    // Kernels for other element types have the same loops.
    let launched: BTreeSet<Vec<String>> =
        seen.kernels.values().map(|(kernel, _)| loops(&kernel.source())).collect();
    let all = wgrad::kernels::all();
    let missing = all.iter().filter(|kernel| !launched.contains(&loops(&kernel.source())));
    let missing: Vec<&str> = missing.map(|kernel| &*kernel.name).collect();
    assert!(missing.is_empty(), "kernels with loops and without a launch in this test: {missing:?}");
    let launched: BTreeSet<&String> = launched.iter().flatten().collect();
    for family in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders")).expect("shaders") {
        for file in std::fs::read_dir(family.expect("a family").path()).expect("a family") {
            let path = file.expect("a file").path();
            for line in loops(&std::fs::read_to_string(&path).expect("text")) {
                assert!(
                    launched.contains(&line),
                    "{}: `{line}`: no launch in this test has it",
                    path.display()
                );
            }
        }
    }
}

/// Returns the lines that begin a loop.
fn loops(source: &str) -> Vec<String> {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let begins = |line: &&str| ["for (", "while (", "loop {"].iter().any(|word| line.starts_with(word));
    code.filter(begins).map(str::to_owned).collect()
}

/// The interpreter's counts match counts by hand.
#[test]
fn interpreter_matches_counts_by_hand() {
    let counted = |body: &str, params: Vec<u32>| {
        let text = format!(
            "struct Params {{ n: u32, m: u32 }}
             @group(0) @binding(0) var<uniform> p: Params;
             @group(0) @binding(1) var<storage, read_write> x: array<u32>;
             fn twice(n: u32) -> u32 {{ return n + n; }}
             fn inner(n: u32) {{ for (var i = 0u; i < n; i++) {{ x[i] = i; }} }}
             @compute @workgroup_size(8)
             fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {body} }}"
        );
        let mut kernel = Kernel::generated("counted", Vec::new(), text, vec![1]);
        kernel.workgroup = 8;
        let memory: Vec<()> = vec![()];
        let launch = Launch { kernel, constants: Vec::new(), memory, params, grid: [3, 1, 1] };
        Modules::default().iterations(&launch, 10_000)
    };
    let check = |body: &str, params: [u32; 2], wanted: u64| {
        assert_eq!(counted(body, params.to_vec()), Ok(wanted), "{body} with {params:?}");
    };
    // The iteration in which the condition fails counts as well.
    check("for (var i = 0u; i < p.n; i++) { x[i] = 1u; }", [100, 0], 101);
    check("for (var i = 0u; i < p.n; i += 3u) { x[i] += x[i + 1u]; }", [100, 0], 35);
    check("for (var i = p.n; i > 0u; i--) { x[i] = 1u; }", [100, 0], 101);
    check("for (var i = p.n; i > 0u; i /= 2u) { x[i] = 1u; }", [64, 0], 8);
    check("for (var i = 0u; i < p.n; i++) { for (var k = 0u; k < i; k++) { x[k] = i; } }", [10, 0], 11 + 55);
    check("for (var i = 0u; i < p.n; i++) { inner(twice(p.m)); }", [10, 5], 11 + 10 * 11);
    check(
        "var i = 0u; while (i < p.n) { let e = min(i + 7u, p.n); for (; i < e; i++) { x[i] = 0u; } }",
        [20, 0],
        4 + 23,
    );
    // A condition that memory decides ends no loop, and both of its branches are followed.
    check("for (var i = 0u; i < p.n; i++) { if (x[i] == 0u) { break; } }", [100, 0], 101);
    check("if (x[0] == 0u) { inner(p.n); } else { inner(p.m); }", [5, 50], 51);
    check("if (id.x >= p.n) { return; } inner(p.m);", [1, 9], 10);
    // The last thread of three workgroups of eight.
    check("inner(id.x);", [0, 0], 24);
    for unbounded in
        ["for (var i = 0u; i < x[0]; i++) { x[i] = 1u; }", "for (var i = 0u; i < p.n; i++) { x[i] = 1u; }"]
    {
        assert!(counted(unbounded, vec![20_000, 0]).is_err(), "{unbounded}");
    }
}
