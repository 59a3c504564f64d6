//! Modelled steps on several devices.

use wgrad::compile::{Parallel, Plan, PlanOptions, Shard};
use wgrad::limits::Card;

use super::networks::{options, plan};
use super::{bytes, check, markdown, rounded, strings};

const RANKS: [u32; 4] = [1, 2, 8, 64];

/// Links, by the bytes per second of each rank.
const LINKS: [(&str, f64); 3] =
    [("100 Gb/s Ethernet", 12.5e9), ("PCIe 4.0", 24e9), ("400 Gb/s InfiniBand", 50e9)];

/// Samples of each rank, and tokens of each sample.
const NETWORKS: [(&str, usize, Option<usize>); 2] = [("gpt2", 8, Some(1024)), ("resnet50", 64, None)];

fn rows((name, samples, seq): (&str, usize, Option<usize>)) -> Vec<Vec<String>> {
    let card = Card::named("h200").expect("listed");
    let of = |ranks: u32, shard: Shard| {
        let base = PlanOptions { card, ..options("adamw") };
        plan(
            name,
            samples,
            seq,
            &PlanOptions {
                accumulate: ranks,
                parallel: Parallel { shard, ..Parallel::of(0, ranks) },
                ..base
            },
        )
    };
    let plans = RANKS.map(|ranks| of(ranks, Shard::None));
    let seconds = |plan: &Plan| plan.wire_times(&card).expect("lowered before").step_s;
    let alone = seconds(&plans[0]);
    let title = format!("{name}, {samples}{} a rank", seq.map_or(String::new(), |seq| format!(" × {seq}")));
    let mut rows = vec![vec![title, "bytes of a rank".to_owned()]];
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

#[test]
fn table_of_ranks_matches_the_plans() {
    let header = [&["network", ""][..], &["1 rank", "2", "8", "64"]].concat();
    check("docs/scale.md", "scale", &markdown(&strings(&header), NETWORKS.into_iter().flat_map(rows)));
}
