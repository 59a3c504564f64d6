//! Measures how long planning takes at each effort, for the committed problems in `benches/problems`, those
//! in the folder that `WGRAD_PROBLEMS` names, and one that is generated here.

use std::path::{Path, PathBuf};

use criterion::{Criterion, criterion_group, criterion_main};
use wgrad::memory::planner::{Effort, Item, Options, Problem, read_problem, solve};

/// Collects the CSV files below `folder`, at any depth.
fn csv_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            csv_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "csv") {
            found.push(path);
        }
    }
    found.sort();
}

/// Returns a synthetic training step: weights that live throughout, activations that live from forward to
/// backward, and short workspaces.
fn training_step(layers: u64) -> Problem {
    let end = 4 * layers;
    let mut items = Vec::new();
    for layer in 0..layers {
        let size = 4096 * (1 + layer * 7 % 13);
        items.push(Item::new(format!("weight {layer}"), 0, end, size));
        items.push(Item::new(format!("activation {layer}"), 2 * layer, end - 2 * layer, 3 * size));
        items.push(Item::new(format!("workspace {layer}"), 2 * layer, 2 * layer + 2, size / 2));
        items.push(Item::new(format!("gradient {layer}"), end - 2 * layer - 1, end - 2 * layer, 2 * size));
    }
    Problem::new(items.into_iter().map(|item| item.aligned(256)).collect())
}

fn planner(criterion: &mut Criterion) {
    let mut files = Vec::new();
    csv_files(Path::new("benches/problems"), &mut files);
    match std::env::var_os("WGRAD_PROBLEMS") {
        Some(folder) => csv_files(Path::new(&folder), &mut files),
        None => eprintln!("WGRAD_PROBLEMS is not set: the public problems are left out"),
    }
    let mut problems = vec![("training step of 2,500 layers".to_owned(), training_step(2500))];
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("readable");
        problems.push((name, read_problem(&text).expect("a problem")));
    }
    for (effort, name) in [(Effort::Fast, "fast"), (Effort::Balanced, "balanced")] {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        for (problem_name, problem) in &problems {
            let options = Options { effort, ..Options::default() };
            group.bench_function(problem_name, |bencher| {
                bencher.iter(|| solve(problem, &options).expect("packs"))
            });
        }
        group.finish();
    }
}

criterion_group!(benches, planner);
criterion_main!(benches);
