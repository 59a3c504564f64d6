//! Prints what the libraries came to, side by side: `table FILE`, a file of lines as `run.sh` collects them. Of several runs
//! the best counts. Where the first losses do not agree it says so, and fails.

use std::collections::BTreeMap;

use compare_shared::Outcome;
use serde::Deserialize;

/// A line of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Run(Outcome),
    Build { built: String, build_cpu_s: f64 },
}

/// How far first losses may be apart: sums in another order, weights of 32 bits.
const AGREE: f32 = 1e-3;

fn main() {
    let path = std::env::args().nth(1).expect("a file of outcomes");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (mut best, mut builds) = (BTreeMap::<(String, String), Outcome>::new(), BTreeMap::new());
    for line in text.lines().filter(|line| line.starts_with('{')) {
        match serde_json::from_str(line).unwrap_or_else(|e| panic!("{path}: {e} in {line}")) {
            Line::Build { built, build_cpu_s } => drop(builds.insert(built, build_cpu_s)),
            Line::Run(new) => {
                let of =
                    best.entry((new.model.clone(), new.who.library.clone())).or_insert_with(|| new.clone());
                of.first_step_s = of.first_step_s.min(new.first_step_s);
                of.ms_per_step = of.ms_per_step.min(new.ms_per_step);
                of.cpu_ms_per_step = of.cpu_ms_per_step.zip(new.cpu_ms_per_step).map(|(a, b)| a.min(b));
            }
        }
    }
    println!(
        "| network | library | adapter | ms a step | CPU ms a step | s to the first loss | MB on the device | CPU s to build | first loss | last loss |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut apart = Vec::new();
    for ((model, library), run) in &best {
        let ours = best
            .get(&(model.clone(), "wgrad".to_owned()))
            .unwrap_or_else(|| panic!("no run of wgrad for {model}"));
        let ratio = |theirs: f64, ours: f64, digits: usize| match library.as_str() {
            "wgrad" => format!("{theirs:.digits$}"),
            _ => format!("{theirs:.digits$} (× {:.1})", theirs / ours),
        };
        let cpu =
            run.cpu_ms_per_step.zip(ours.cpu_ms_per_step).map_or("–".to_owned(), |(a, b)| ratio(a, b, 1));
        let built =
            builds.get(library).zip(builds.get("wgrad")).map_or("–".to_owned(), |(a, b)| ratio(*a, *b, 0));
        let (first, last) = (run.losses[0], run.losses.last().copied().unwrap_or(f32::NAN));
        println!(
            "| {model} | {library} {} | {} | {} | {cpu} | {} | {} | {built} | {first:.5} | {last:.5} |",
            run.who.version,
            run.who.adapter,
            ratio(run.ms_per_step, ours.ms_per_step, 1),
            ratio(run.first_step_s, ours.first_step_s, 2),
            ratio(run.device_bytes as f64 / 1e6, ours.device_bytes as f64 / 1e6, 1),
        );
        if (first - ours.losses[0]).abs() >= AGREE {
            let expected = ours.losses[0];
            apart.push(format!(
                "{model}: the first loss of {library} is {first}, of wgrad {expected}: not the same work"
            ));
        }
    }
    if !apart.is_empty() {
        println!("\n{}", apart.join("\n"));
        std::process::exit(1);
    }
}
