//! Modelled steps on several devices.

use wgrad::compile::{Parallel, Plan, PlanOptions, Recompute, Shard};
use wgrad::dtype::{FrozenStorage, Precision, Rounding, WeightStorage};
use wgrad::limits::Card;

use super::networks::{options, plan};
use super::{bytes, check, fine_tuning, markdown, rounded, strings};

const RANKS: [u32; 5] = [1, 2, 8, 64, 1024];

/// Links, by the bytes per second of each rank.
const LINKS: [(&str, f64); 3] =
    [("100 Gb/s Ethernet", 12.5e9), ("PCIe 4.0", 24e9), ("400 Gb/s InfiniBand", 50e9)];

/// Name, samples of each rank, and tokens of each sample; whether weights and activations are bf16 and every second layer is
/// recomputed.
type Network = (&'static str, usize, Option<usize>, bool);

const NETWORKS: [Network; 3] = [("gpt2", 8, Some(1024), false), ("resnet50", 64, None, false), LARGE];
const LARGE: Network = ("llama-3.1-8b", 2, Some(2048), true);

fn plan_of((name, samples, seq, lean): Network, accumulate: u32, parallel: Parallel) -> Plan {
    let card = Card::named("h200").expect("listed");
    let base = PlanOptions { card, accumulate, parallel, ..options("adamw") };
    let lean_options = PlanOptions {
        precision: Precision::Bf16,
        weights: WeightStorage::Bf16(Rounding::Stochastic),
        recompute: Recompute::Every(1),
        ..base
    };
    plan(name, samples, seq, if lean { &lean_options } else { &base })
}

/// Seconds of a modelled step.
fn seconds(plan: &Plan) -> f64 {
    plan.wire_times(&Card::named("h200").expect("listed")).expect("lowered before").step_s
}

fn title((name, samples, seq, lean): Network) -> String {
    let tokens = seq.map_or(String::new(), |seq| format!(" × {seq}"));
    format!("{name}, {samples}{tokens} a rank{}", if lean { ", bf16, `every:1`" } else { "" })
}

fn rows(network: Network) -> Vec<Vec<String>> {
    let of = |ranks: u32, shard: Shard| plan_of(network, ranks, Parallel { shard, ..Parallel::of(0, ranks) });
    let plans = RANKS.map(|ranks| of(ranks, Shard::None));
    let alone = seconds(&plans[0]);
    let mut rows = vec![vec![title(network), "bytes of a rank".to_owned()]];
    rows[0].extend(plans.iter().map(|plan| bytes(plan.footprint().total())));
    for (shard, title) in [(Shard::Optimizer, "optimizer sharded"), (Shard::Parameters, "parameters sharded")]
    {
        let sharded = RANKS.map(|ranks| of(ranks, shard));
        let of =
            |plan: &Plan| format!("{}, {} ms", bytes(plan.footprint().total()), rounded(1e3 * seconds(plan)));
        rows.push([vec![String::new(), title.to_owned()], sharded.iter().map(of).collect()].concat());
    }
    for (link, wire_bytes_per_s) in LINKS {
        let mut row = vec![String::new(), link.to_owned()];
        for plan in &plans {
            let parallel = Parallel { wire_bytes_per_s, ..plan.parallel };
            let step = seconds(&Plan { parallel, ..plan.clone() });
            row.push(format!("{} ms, {:.0} %", rounded(1e3 * step), 100.0 * alone / step));
        }
        rows.push(row);
    }
    rows
}

/// The networks of the table of layers that all ranks compute together, on the same samples.
const TOGETHER: [Network; 2] = [("gpt2-medium", 4, Some(1024), false), ("llama-3.2-1b", 2, Some(2048), true)];
const TOGETHER_RANKS: [u32; 4] = [1, 2, 4, 8];

fn rows_together(network: Network) -> Vec<Vec<String>> {
    let plans =
        TOGETHER_RANKS.map(|ranks| plan_of(network, 1, Parallel { tensor: ranks, ..Parallel::of(0, ranks) }));
    numbers_of(&title(network).replace(" a rank", ""), &plans)
}

/// Bytes, what is sent and the time of a step, for each of some plans.
fn numbers_of(name: &str, plans: &[Plan]) -> Vec<Vec<String>> {
    let row = |first: &str, what: &str, of: &dyn Fn(&Plan) -> String| {
        [vec![first.to_owned(), what.to_owned()], plans.iter().map(of).collect()].concat()
    };
    vec![
        row(name, "bytes of a rank", &|plan| bytes(plan.footprint().total())),
        row("", "sent in a step", &|plan| match plan.wire_bytes() {
            0 => "–".to_owned(),
            sent => bytes(sent),
        }),
        row("", "step", &|plan| format!("{} ms", rounded(1e3 * seconds(plan)))),
    ]
}

/// Adapters of all linear layers, on ranks that have their shares of the base.
fn rows_of_adapters(base: FrozenStorage) -> Vec<Vec<String>> {
    let (name, samples, seq, _) = LARGE;
    let step = (name, [samples, seq.expect("tokens")], 16, &["*"][..]);
    let plans = TOGETHER_RANKS.map(|ranks| {
        let options = PlanOptions {
            card: Card::named("h200").expect("listed"),
            accumulate: ranks,
            parallel: Parallel { shard: Shard::Parameters, ..Parallel::of(0, ranks) },
            recompute: Recompute::Every(1),
            ..PlanOptions::default()
        };
        fine_tuning::plan(step, Some((base, false)), options)
    });
    numbers_of(&format!("{name}, base in {}", base.name()), &plans)
}

fn header<const N: usize>(counts: [u32; N]) -> Vec<String> {
    let title = |ranks: u32| if ranks == 1 { "1 rank".to_owned() } else { ranks.to_string() };
    [strings(&["network", ""]), counts.map(title).to_vec()].concat()
}

#[test]
fn table_of_layers_of_several_ranks_matches_the_plans() {
    let rows = TOGETHER.into_iter().flat_map(rows_together);
    check("docs/scale.md", "together", &markdown(&header(TOGETHER_RANKS), rows));
}

#[test]
fn table_of_adapters_on_several_ranks_matches_the_plans() {
    let rows = [FrozenStorage::Bf16, FrozenStorage::Nf4].into_iter().flat_map(rows_of_adapters);
    check("docs/scale.md", "adapters", &markdown(&header(TOGETHER_RANKS), rows));
}

#[test]
fn table_of_ranks_matches_the_plans() {
    check("docs/scale.md", "scale", &markdown(&header(RANKS), NETWORKS.into_iter().flat_map(rows)));
}
