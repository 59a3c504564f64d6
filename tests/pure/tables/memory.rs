//! Bytes created compared with what PyTorch holds, and modelled times.

use wgrad::compile::Plan;

use super::networks::{IMAGES, NAMES_OF_CARDS, Network, TRANSFORMERS, cards, modelled, network};
use super::{bytes, check, markdown, rounded, strings};

fn created(plan: &Plan) -> u64 {
    plan.footprint().total()
}

/// Formats the bytes that a session creates, with their ratio to PyTorch's.
fn bytes_with_ratios(network: &Network, plan: &Plan) -> String {
    let share = |held: u64| format!("{:.2}", created(plan) as f64 / held as f64);
    let of = [Some(&network.pytorch), network.pytorch_fused.as_ref()];
    let shares: Vec<String> = of.into_iter().flatten().map(|held| share(held.peak_bytes)).collect();
    format!("{} ({})", bytes(created(plan)), shares.join(", "))
}

fn memory_row(name: &'static str) -> Vec<String> {
    let network = network(name);
    let mut row = vec![network.title(), bytes(network.pytorch.peak_bytes)];
    row.extend(network.pytorch_fused.as_ref().map(|held| bytes(held.peak_bytes)));
    row.push(bytes_with_ratios(&network, &network.bare));
    row.push(bytes_with_ratios(&network, &network.default));
    row.push(match &network.fitted {
        Some((budget, plan)) => format!("{} within {}", bytes_with_ratios(&network, plan), bytes(budget.0)),
        None => "–".to_owned(),
    });
    row
}

const OURS: [&str; 3] = ["nothing computed again", "default", "under a budget"];

fn memory(networks: impl IntoIterator<Item = &'static str>, theirs: &[&str]) -> String {
    let header = [&["network"], theirs, &OURS].concat();
    markdown(&strings(&header), networks.into_iter().map(memory_row))
}

fn time_row(name: &'static str) -> Vec<String> {
    let network = network(name);
    let mut row = vec![network.title()];
    for (card, default) in cards().iter().zip(&network.on_cards) {
        let ms = |plan: &Plan| rounded(1e3 * modelled(plan, card));
        let again = 100.0 * default.work.time_fraction();
        let fitted = network.fitted.as_ref().map_or("–".to_owned(), |(_, plan)| ms(plan));
        row.push(format!("{} / {} ({again:.1} %) / {fitted}", ms(&network.bare), ms(default)));
    }
    row
}

fn time(networks: impl IntoIterator<Item = &'static str>) -> String {
    let header: Vec<String> = [String::from("network")]
        .into_iter()
        .chain(NAMES_OF_CARDS.iter().map(|(_, name)| format!("{name}, ms")))
        .collect();
    markdown(&header, networks.into_iter().map(time_row))
}

fn names(list: &[(&'static str, &str)]) -> Vec<&'static str> {
    list.iter().map(|(name, _)| *name).collect()
}

const ATTENTION: [&str; 2] = ["PyTorch, scores in memory", "PyTorch, fused attention"];

#[test]
fn tables_of_image_networks_match_the_plans() {
    check("docs/networks.md", "memory", &memory(names(&IMAGES), &["PyTorch"]));
    check("docs/networks.md", "time", &time(names(&IMAGES)));
}

#[test]
fn tables_of_transformers_match_the_plans() {
    check("docs/transformers.md", "memory", &memory(names(&TRANSFORMERS), &ATTENTION));
    check("docs/transformers.md", "time", &time(names(&TRANSFORMERS)));
}

/// One column for PyTorch, which also gives fused attention where there is any.
#[test]
fn memory_table_of_the_readme_matches_the_plans() {
    let networks =
        ["mlp", "cnn", "resnet50", "mobilenet-v2", "densenet121", "unet", "gpt2", "gpt2-medium", "bert-base"];
    let rows = networks.into_iter().map(|name| {
        let mut row = memory_row(name);
        if network(name).pytorch_fused.is_some() {
            let fused = row.remove(2);
            row[1] = format!("{}, fused {fused}", row[1]);
        }
        row
    });
    let header = [&["network", "PyTorch"], &OURS[..]].concat();
    check("README.md", "memory", &markdown(&strings(&header), rows));
}

/// Every plan of the tables is as small as its order of operations allows.
#[test]
fn plans_are_as_small_as_their_order_allows() {
    for (name, _) in IMAGES.iter().chain(&TRANSFORMERS) {
        let plan = &network(name).default;
        let height = plan.peak_bytes() as f64 / plan.lower_bound_bytes() as f64;
        assert!(height < 1.001, "{name}: {height:.4} of the lower bound");
        // docs/out-of-memory.md states this. The smallest transformer peaks in the pieces of its last product.
        let forward = plan.peak.at.contains("(forward)");
        assert!(!forward || *name == "gpt-nano", "{name}: {}", plan.peak.at);
    }
}

#[test]
fn peak_table_of_gpt2_matches_the_plan() {
    let network = network("gpt2");
    let rows = network.default.class_bytes().into_iter().filter(|(_, bytes)| *bytes > 0);
    let rows = rows.map(|(class, size)| vec![class.name().to_owned(), bytes(size)]);
    check("docs/transformers.md", "peak", &markdown(&strings(&["alive at the peak", ""]), rows));
}
