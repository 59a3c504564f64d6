//! The figures in README.md, docs and benches/results that follow from plans and committed measurements.
//! Tables are between `<!-- table: NAME -->` and `<!-- end of table -->`; they are generated here and
//! compared with the documents, to the last printed digit. `scripts/tables.sh` rewrites them.

mod fine_tuning;
mod memory;
mod networks;
mod operations;
mod options;
mod plot;
mod scale;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

const END: &str = "<!-- end of table -->";

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Returns the text before, within and after a table; panics if the file has no table of this name, or more
/// than one.
fn parts<'a>(file: &str, text: &'a str, name: &str) -> [&'a str; 3] {
    let start = format!("<!-- table: {name} -->\n");
    assert_eq!(text.matches(&start).count(), 1, "{file}: tables `{name}`");
    let (before, rest) = text.split_once(&start).expect("it is there");
    let (table, after) = rest.split_once(END).unwrap_or_else(|| panic!("{file}: `{name}` has no end"));
    [before, table, after]
}

/// Checks that the table of this name in a file is `expected`, which ends in a line feed;
/// `WGRAD_TABLES=write` rewrites the table instead.
fn check(file: &str, name: &str, expected: &str) {
    let text = read(file);
    let [before, found, after] = parts(file, &text, name);
    let expected = format!("\n{expected}\n");
    if found == expected {
        return;
    }
    if std::env::var("WGRAD_TABLES").as_deref() == Ok("write") {
        // Writes to one file must not overlap: `scripts/tables.sh` runs the tests one after the other.
        let text = format!("{before}<!-- table: {name} -->\n{expected}{END}{after}");
        std::fs::write(path(file), text).unwrap_or_else(|e| panic!("{file}: {e}"));
        return;
    }
    let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    panic!("{file}, table `{name}` is stale: {differs:#?}\nscripts/tables.sh writes it anew: {expected}");
}

/// Returns a Markdown table.
fn markdown(header: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(header) + &format!("|{}\n", "---|".repeat(header.len()));
    for row in rows {
        assert_eq!(row.len(), header.len(), "{row:?}");
        text += &line(&row);
    }
    text
}

fn strings(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

/// Formats a number with three significant digits, or with all digits before the decimal point.
fn rounded(value: f64) -> String {
    let digits = [99.95, 9.995, 0.9995].iter().filter(|&&least| value < least).count();
    format!("{value:.digits$}")
}

/// Formats bytes in GB or MB.
fn bytes(bytes: u64) -> String {
    let (unit, name) = if bytes < 1_000_000_000 { (1e6, "MB") } else { (1e9, "GB") };
    format!("{} {name}", rounded(bytes as f64 / unit))
}

/// Formats a number with commas: `1,024`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let commas = |(i, digit): (usize, char)| {
        let comma = i > 0 && (digits.len() - i).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(commas).collect()
}

/// Each table of the documents is checked by a test of this program.
#[test]
fn every_table_has_a_test() {
    let known: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("README.md", &["memory"][..]),
        ("docs/benchmarks.md", &["speed"][..]),
        ("docs/networks.md", &["memory", "time"]),
        ("docs/transformers.md", &["memory", "time", "peak"]),
        ("docs/precision.md", &["activations", "codes", "codes under a budget", "weights"]),
        ("docs/fit.md", &["cards", "offload", "state under a budget"]),
        ("docs/kernels.md", &["fusion"]),
        ("docs/ops.md", &["operations"]),
        ("docs/scale.md", &["adapters", "together", "scale"]),
        ("docs/fine-tuning.md", &["bytes", "published", "tokens"]),
        ("benches/results/compare.md", &["speed"]),
    ]);
    let mut files: Vec<String> = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned()];
    for folder in ["docs", "benches/results", "benches"] {
        let entries = std::fs::read_dir(path(folder)).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        files.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")));
    }
    for file in files {
        let text = read(&file);
        let marks = text.split("<!-- table: ").skip(1);
        let found: Vec<&str> = marks.map(|rest| rest.split(" -->").next().expect("a name")).collect();
        let known = known.get(file.as_str()).copied().unwrap_or_default();
        assert_eq!(found, known, "{file}");
        assert_eq!(text.matches(END).count(), found.len(), "{file}: ends of tables");
    }
}

/// The times of docs/benchmarks.md are those of the results, row by row.
#[test]
fn readme_quotes_the_measured_times() {
    let results = read("benches/results/compare.md");
    let [_, table, _] = parts("benches/results/compare.md", &results, "speed");
    check(
        "docs/benchmarks.md",
        "speed",
        table.trim_start_matches('\n').strip_suffix('\n').expect("a line feed"),
    );
}

/// The table of times has the medians of the recorded runs, and no other rows.
#[test]
fn measured_times_are_the_medians_of_the_runs() {
    let results = read("benches/results/compare.md");
    let [_, table, _] = parts("benches/results/compare.md", &results, "speed");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let mut known = 0;
    for entry in std::fs::read_dir(path("benches/results/compare")).expect("a folder") {
        let file = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&file).expect("lines");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let (about, runs): (Vec<Value>, Vec<Value>) = lines.partition(|line| line["commit"].is_string());
        let text = |line: &Value, field: &str| line[field].as_str().expect("text").to_owned();
        let mut groups: BTreeMap<[String; 2], Vec<&Value>> = BTreeMap::new();
        for run in &runs {
            groups.entry(["model", "library"].map(|field| text(run, field))).or_default().push(run);
        }
        for ([model, library], runs) in groups {
            let median = |field: &str| {
                let mut all: Vec<f64> =
                    runs.iter().map(|run| run[field].as_f64().expect("a number")).collect();
                all.sort_by(f64::total_cmp);
                let (low, high) = ((all.len() - 1) / 2, all.len() / 2);
                f64::midpoint(all[low], all[high])
            };
            let [version, adapter] = ["version", "adapter"].map(|field| text(runs[0], field));
            let commit = text(&about[0], "commit");
            let start = format!("| {model} | {library} {version}, {adapter} | {commit}, {} |", runs.len());
            let row =
                rows.iter().find(|row| row.starts_with(&start)).unwrap_or_else(|| panic!("no row {start}"));
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for (cell, field, digits) in
                [(4, "ms_per_step", 1), (5, "cpu_ms_per_step", 1), (6, "first_step_s", 2)]
            {
                let expected = format!("{:.digits$}", median(field));
                assert_eq!(
                    cells[cell].split([' ', ',']).next(),
                    Some(expected.as_str()),
                    "{field} of {start}"
                );
            }
            known += 1;
        }
    }
    assert_eq!(rows.len(), known, "rows without a run");
}

/// Checks that a document contains a sentence that quotes a figure, up to white space.
fn says(file: &str, sentence: &str) {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&read(file)).contains(&words(sentence)), "{file} does not say: {sentence}");
}
