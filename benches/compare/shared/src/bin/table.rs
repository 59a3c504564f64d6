//! Prints the results of the libraries side by side: `table FILE...`. The files hold lines as `run.sh`
//! collects them, one file for each run of it. For each number the table gives the median and, in brackets,
//! the minimum and maximum; ratios are relative to the median of wgrad in the same file. Where a first loss
//! differs from wgrad's, the row says so and the program fails.

use std::collections::BTreeMap;

use compare_shared::Outcome;
use serde::Deserialize;

/// A line of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Run(Outcome),
    Build { built: String, build_cpu_s: f64 },
    About { commit: String },
}

/// Largest allowed difference between first losses: sums are taken in another order, and weights have 32
/// bits.
const AGREE: f32 = 1e-3;

/// The runs of one library on one network.
type Runs = BTreeMap<(String, String), Vec<Outcome>>;

fn main() {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    assert!(!paths.is_empty(), "table FILE...: files of outcomes");
    println!(
        "| network | library | commit, n | ms a step | CPU ms a step | s to the first loss | MB | first loss |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut apart = false;
    for path in &paths {
        apart |= print(path, &mut rows);
    }
    // Sorted by network; within a network the files keep their order.
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows.iter().for_each(|(_, row)| println!("{row}"));
    if apart {
        eprintln!("a first loss differs from wgrad's: not the same work");
        std::process::exit(1);
    }
}

/// Adds the rows of one file and returns whether a first loss differs.
fn print(path: &str, rows: &mut Vec<(String, String)>) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (mut runs, mut commit) = (Runs::new(), "?".to_owned());
    for line in text.lines().filter(|line| line.starts_with('{')) {
        match serde_json::from_str(line).unwrap_or_else(|e| panic!("{path}: {e} in {line}")) {
            Line::About { commit: of } => commit = of,
            Line::Build { built, build_cpu_s } => {
                eprintln!("{path}: building {built} took {build_cpu_s:.0} CPU seconds")
            }
            Line::Run(run) => runs.entry((run.model.clone(), run.who.library.clone())).or_default().push(run),
        }
    }
    let mut any = false;
    for ((model, library), theirs) in &runs {
        let ours = runs
            .get(&(model.clone(), "wgrad".to_owned()))
            .unwrap_or_else(|| panic!("{path}: no run of wgrad for {model}"));
        let own = library == "wgrad";
        let cell = |of: &dyn Fn(&Outcome) -> Option<f64>, digits: usize| {
            let all = |runs: &[Outcome]| spread(runs.iter().filter_map(of).collect());
            let (Some([least, middle, most]), Some([_, wgrad, _])) = (all(theirs), all(ours)) else {
                return "–".to_owned();
            };
            let range = if theirs.len() > 1 {
                format!(" ({least:.digits$} to {most:.digits$})")
            } else {
                String::new()
            };
            let ratio = if own { String::new() } else { format!(", × {:.2}", middle / wgrad) };
            format!("{middle:.digits$}{range}{ratio}")
        };
        let run = &theirs[0];
        let (first, expected) = (run.losses[0], ours[0].losses[0]);
        let differs = (first - expected).abs() >= AGREE;
        any |= differs;
        let check = if differs { format!(", **not {expected:.5}: check failed**") } else { String::new() };
        let row = format!(
            "| {model} | {library} {}, {} | {commit}, {} | {} | {} | {} | {:.1} | {first:.5}{check} |",
            run.who.version,
            run.who.adapter,
            theirs.len(),
            cell(&|run| Some(run.ms_per_step), 1),
            cell(&|run| run.cpu_ms_per_step, 1),
            cell(&|run| Some(run.first_step_s), 2),
            run.device_bytes as f64 / 1e6,
        );
        rows.push((model.clone(), row));
    }
    any
}

/// Returns the minimum, the median and the maximum.
fn spread(mut numbers: Vec<f64>) -> Option<[f64; 3]> {
    numbers.sort_by(f64::total_cmp);
    let n = numbers.len();
    let middle = numbers.get(n / 2)?;
    let median = if n % 2 == 1 { *middle } else { (numbers[n / 2 - 1] + middle) / 2.0 };
    Some([numbers[0], median, numbers[n - 1]])
}
