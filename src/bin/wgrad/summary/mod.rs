//! `wgrad summary`: tables of what a bundle of `scripts/gpu_day.sh` measured. It is part of the program because a
//! machine with a driver may have nothing else to run.

mod roofline;
mod rows;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use wgrad::{Error, Result};

use roofline::Roofline;
use rows::{Group, digits, groups, parse, percent};

#[derive(clap::Args)]
pub struct Options {
    /// Results, a line of JSON each, as run.sh of a bundle writes them.
    results: PathBuf,
    /// What kernels are compared with: the card's floating-point operations and bytes of memory per second. By default
    /// the most that any product of the same format and any copy reached in these results.
    #[arg(long, value_name = "FLOPS,BYTES_PER_S")]
    roofline: Option<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let text = std::fs::read_to_string(&options.results)
        .map_err(|e| crate::files::unusable(&options.results, &e))?;
    let roofline = options.roofline.as_deref().map(rates).transpose()?;
    print!("{}", summary(&parse(&text)?, roofline));
    Ok(())
}

fn rates(text: &str) -> Result<[f64; 2]> {
    let rates: Option<Vec<f64>> = text.split(',').map(|rate| rate.trim().parse().ok()).collect();
    match rates.as_deref() {
        Some(&[flops, bytes]) if flops > 0.0 && bytes > 0.0 => Ok([flops, bytes]),
        _ => Err(Error::setting(
            "command line",
            format!("--roofline {text}: expected two rates, such as 67e12,4.8e12"),
        )),
    }
}

fn table(out: &mut String, header: &str, rows: impl Iterator<Item = Vec<String>>) {
    let columns = header.matches('|').count() + 1;
    let _ = writeln!(out, "| {header} |\n|{}", "---|".repeat(columns));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}

/// Returns the summary of all rows, in Markdown.
fn summary(rows: &[Value], roofline: Option<[f64; 2]>) -> String {
    let mut out = String::new();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or("–").to_owned();
    let adapters: Vec<String> = {
        let mut list: Vec<String> = rows
            .iter()
            .map(|row| format!("{}, driver {}", text(row, "adapter"), text(row, "driver")))
            .collect();
        list.dedup();
        list.sort();
        list.dedup();
        list
    };
    let _ =
        writeln!(out, "# {}\n", if adapters.is_empty() { "no rows".to_owned() } else { adapters.join("; ") });
    if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
        let failed = failed(rows).len();
        let _ = writeln!(
            out,
            "{} rows from {} to {}, {failed} failed. Rows of one command measured several times: the median, with the least \
             and the most.\n",
            rows.len(),
            text(first, "date"),
            text(last, "date")
        );
    }
    if adapters.len() > 1 {
        out.push_str("**These are rows of several adapters: times of different ones are mixed below.**\n\n");
    }
    let roofline = Roofline::of(rows, roofline);
    failures(&mut out, rows);
    machine(&mut out, rows);
    tests(&mut out, rows);
    training(&mut out, rows);
    kernels(&mut out, rows, &roofline);
    steps(&mut out, rows);
    recomputation(&mut out, rows);
    profiles(&mut out, rows, &roofline);
    out
}

/// Rows that failed, without those whose command succeeded later.
fn failed(rows: &[Value]) -> Vec<&Value> {
    let mended = |at: usize| {
        rows[at..].iter().any(|later| later["status"] == 0 && later["command"] == rows[at]["command"])
    };
    let failed = rows.iter().enumerate().filter(|(at, row)| row["status"] != 0 && !mended(*at));
    failed.map(|(_, row)| row).collect()
}

fn failures(out: &mut String, rows: &[Value]) {
    let failed = failed(rows);
    if failed.is_empty() {
        return;
    }
    out.push_str("## Failed\n\n");
    let cell = |row: &Value, name: &str| row[name].as_str().unwrap_or("–").to_owned();
    let line = |row: &&Value| {
        vec![cell(row, "step"), format!("`{}`", short(&cell(row, "command"))), cell(row, "error")]
    };
    table(out, "step | command | why", failed.iter().map(line));
}

fn machine(out: &mut String, rows: &[Value]) {
    let results: Vec<&Value> =
        rows.iter().filter(|row| row["step"] == "machine").map(|row| &row["result"]).collect();
    if results.is_empty() {
        return;
    }
    out.push_str("## Machine\n\n");
    // What was told last.
    for (name, value) in results
        .iter()
        .rev()
        .find_map(|result| result.as_object().filter(|o| o.contains_key("system")))
        .into_iter()
        .flatten()
    {
        let _ = writeln!(out, "- {name}: {}", value.as_str().unwrap_or("–"));
    }
    for adapter in results.iter().rev().find_map(|result| result.as_array()).into_iter().flatten() {
        let fact = |name: &str| adapter[name].as_str().unwrap_or("–");
        let matrices = match adapter["cooperative_side"].as_u64() {
            Some(side) => format!("cooperative matrices of {side} × {side}"),
            None => "no cooperative matrices".to_owned(),
        };
        let _ = writeln!(
            out,
            "- adapter {}: {}, {}, f16 {}, {matrices}; {}",
            fact("name"),
            fact("backend"),
            fact("kind"),
            fact("f16"),
            fact("reason")
        );
    }
    let mut notes: Vec<&str> = rows.iter().filter_map(|row| row["notes"].as_str()).collect();
    notes.sort_unstable();
    notes.dedup();
    for note in notes {
        let _ = writeln!(out, "- said: {note}");
    }
    out.push('\n');
}

fn tests(out: &mut String, rows: &[Value]) {
    let list = groups(rows, &["smoke", "tests"]);
    if list.is_empty() {
        return;
    }
    out.push_str("## Smoke and tests\n\n");
    let line = |group: &Group| {
        let last = group.rows.last().copied().unwrap_or(&Value::Null);
        let count = |name: &str| last["result"][name].as_u64();
        let told = match (count("passed"), count("tests")) {
            (Some(passed), Some(tests)) => {
                let names: Vec<&str> = last["result"]["names"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
                format!(
                    "{passed} of {tests} passed, {} ignored, {} failed{names}",
                    count("ignored").unwrap_or(0),
                    count("failed").unwrap_or(0)
                )
            }
            _ if last["result"]["loss_last"].is_number() => {
                format!("loss {} → {}", group.spread("loss_first", 1.0), group.spread("loss_last", 1.0))
            }
            _ => format!("error {}", group.spread("max_error", 1.0)),
        };
        let verdict = if last["status"] == 0 { "ok" } else { "FAILED" };
        vec![
            format!("`{}`", short(group.command)),
            verdict.to_owned(),
            told,
            format!("{} s", last["seconds"]),
        ]
    };
    table(out, "command | | what | time", list.iter().map(line));
}

/// A command without what all have in common.
fn short(command: &str) -> String {
    let words =
        command.split_whitespace().filter(|word| !["./wgrad", "--quiet", "-v", "--json"].contains(word));
    let mut shown = Vec::new();
    let mut skip = false;
    for word in words {
        let value = std::mem::replace(&mut skip, word == "--cache");
        if !value && word != "--cache" {
            shown.push(word);
        }
    }
    shown.join(" ")
}

fn training(out: &mut String, rows: &[Value]) {
    let list = groups(rows, &["train"]);
    if list.is_empty() {
        return;
    }
    out.push_str("## The same run again\n\n");
    let line = |group: &Group| {
        let hashes: Vec<&str> =
            group.rows.iter().filter_map(|row| row["result"]["parameters_hash"].as_str()).collect();
        let same = match &hashes[..] {
            [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|hash| hash == first) => {
                format!("same bits in {} runs, {first}", hashes.len())
            }
            [] | [_] => format!("**only {} run has ended**", hashes.len()),
            _ => format!("**other bits**: {}", hashes.join(", ")),
        };
        let falls = match (group.median("loss_first"), group.median("loss_last")) {
            (Some(first), Some(last)) if last < first => {
                format!("falls, {} → {}", digits(first), digits(last))
            }
            (Some(first), Some(last)) => format!("**does not fall**, {} → {}", digits(first), digits(last)),
            _ => "–".to_owned(),
        };
        vec![format!("`{}`", short(group.command)), same, falls]
    };
    table(out, "command | parameters | loss", list.iter().map(line));
}

/// What PyTorch's columns are of.
fn library(pytorch: &[Group]) -> String {
    match pytorch.iter().find(|group| group.fact("library").is_string()) {
        Some(group) => format!("{} on `{}`.", group.text("library"), group.text("device")),
        None => "PyTorch was not measured.".to_owned(),
    }
}

fn kernels(out: &mut String, rows: &[Value], roofline: &Roofline) {
    let pytorch = groups(rows, &["pytorch"]);
    for (step, title) in [("kernels", "Kernels"), ("sweep", "Tiles"), ("tune", "Tuned kernels")] {
        let list: Vec<Group> =
            groups(rows, &[step]).into_iter().filter(|group| group.fact("kernel").is_string()).collect();
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "## {title}\n\nRoofline {}. {} The error is the largest, as a part of the largest element, against f64, of as many \
             elements as the bracket says.\n",
            roofline.told(),
            library(&pytorch)
        );
        let line = |group: &Group| {
            let number = |name: &str| group.median(name).unwrap_or(0.0);
            let dtype = group.text("dtype");
            let share = roofline.share(dtype, number("flops"), number("bytes"), number("seconds"));
            let theirs = pytorch.iter().find(|other| {
                ["kernel", "size", "dtype"].iter().all(|name| other.fact(name) == group.fact(name))
            });
            let [theirs, ratio] = beside(theirs, "seconds", 1e3, number("seconds"));
            vec![
                group.text("kernel").to_owned(),
                group.size(),
                format!("{dtype} {}", group.options()).trim().to_owned(),
                group.spread("seconds", 1e3),
                group.spread("gflops", 1.0),
                group.spread("gbps", 1.0),
                share.map_or("–".to_owned(), percent),
                theirs,
                ratio,
                format!("{:.1e} ({})", number("max_error"), number("compared")),
                group.text("variant").to_owned(),
            ]
        };
        let header = "kernel | size | format | ms | GFLOP/s | GB/s | of roofline | PyTorch ms | × PyTorch | error | variant";
        table(out, header, list.iter().map(line));
    }
}

/// PyTorch's number, and ours as a multiple of it.
fn beside(theirs: Option<&Group>, name: &str, factor: f64, ours: f64) -> [String; 2] {
    match theirs.and_then(|group| group.median(name)) {
        Some(time) if time > 0.0 && ours > 0.0 => [digits(factor * time), format!("{:.2}", ours / time)],
        _ => ["–".to_owned(), "–".to_owned()],
    }
}

fn steps(out: &mut String, rows: &[Value]) {
    let pytorch = groups(rows, &["pytorch"]);
    let list: Vec<Group> = groups(rows, &["steps", "tune"])
        .into_iter()
        .filter(|group| group.fact("model").is_string())
        .collect();
    if list.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "## Training steps\n\nOne synthetic batch that stays on the device; no step waits for its loss. {} Eager mode, f32 without \
         TF32, f16 by autocast with a GradScaler.\n",
        library(&pytorch)
    );
    let line = |group: &Group| {
        let ours = group.median("ms_per_step").unwrap_or(0.0);
        let theirs = pytorch.iter().find(|other| {
            ["model", "batch", "precision"].iter().all(|name| other.fact(name) == group.fact(name))
                && (other.fact("seq") == group.fact("seq"))
        });
        let [theirs, ratio] = beside(theirs, "ms_per_step", 1.0, ours);
        vec![
            group.text("model").to_owned(),
            group.options(),
            group.spread("ms_per_step", 1.0),
            group.spread("cpu_ms_per_step", 1.0),
            group.spread("device_bytes", 1e-6),
            group.fact("dispatches").to_string(),
            group.spread("first_step_s", 1.0),
            format!("{} → {}", group.spread("loss_first", 1.0), group.spread("loss_last", 1.0)),
            theirs,
            ratio,
        ]
    };
    let header = "network | options | ms | CPU ms | MB | dispatches | s to the first loss | loss | PyTorch ms | × PyTorch";
    table(out, header, list.iter().map(line));
}

/// What recomputation costs: as modelled, and as measured beside the same network without it.
fn recomputation(out: &mut String, rows: &[Value]) {
    let list = groups(rows, &["recompute"]);
    let kept = |group: &Group| group.text("recompute") == "off";
    let line = |group: &Group| {
        let same = |other: &&Group| {
            let facts = ["model", "batch", "seq", "precision"];
            kept(other) && facts.iter().all(|name| other.fact(name) == group.fact(name))
        };
        let base = list.iter().find(same)?;
        // The plan without the option computes cheap results again, too.
        let work = |of: &Group| of.median("recompute_time_fraction").map(|again| 1.0 + again);
        let extra = |of: &dyn Fn(&Group) -> Option<f64>| Some(100.0 * (of(group)? / of(base)? - 1.0));
        let (modelled, measured) = (extra(&work)?, extra(&|of| of.median("ms_per_step"))?);
        Some(vec![
            group.text("model").to_owned(),
            group.text("recompute").to_owned(),
            base.spread("device_bytes", 1e-6),
            group.spread("device_bytes", 1e-6),
            base.spread("ms_per_step", 1.0),
            group.spread("ms_per_step", 1.0),
            format!("{modelled:.1}"),
            format!("{measured:.1}"),
            format!("{:+.1}", measured - modelled),
        ])
    };
    let lines: Vec<_> = list.iter().filter(|group| !kept(group)).filter_map(line).collect();
    if lines.is_empty() {
        return;
    }
    out.push_str("## Recomputation\n\n");
    let header = "network | recomputation | MB without | MB | ms without | ms | modelled extra % | measured extra % | points";
    table(out, header, lines.into_iter());
}

/// Kernels of a profiled step that are listed.
const TOP: usize = 10;

fn profiles(out: &mut String, rows: &[Value], roofline: &Roofline) {
    for group in groups(rows, &["steps"]) {
        let Some(kernels) = group.fact("kernels").as_array() else { continue };
        let _ = writeln!(
            out,
            "## `{} {}`: the kernels that take longest\n",
            group.text("model"),
            group.options()
        );
        let dtype = group.text("precision");
        let line = |kernel: &Value| {
            let number = |name: &str| kernel[name].as_f64().unwrap_or(0.0);
            let share = roofline.share(dtype, number("flops"), number("bytes"), number("total_ns") / 1e9);
            vec![
                kernel["kernel"].as_str().unwrap_or("–").to_owned(),
                kernel["calls"].to_string(),
                digits(number("total_ns") / 1e6),
                percent(number("share")),
                digits(number("gflop_per_s")),
                digits(number("gb_per_s")),
                share.map_or("–".to_owned(), percent),
            ]
        };
        table(
            out,
            "kernel | calls | ms | of the step | GFLOP/s | GB/s | of roofline",
            kernels.iter().take(TOP).map(line),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kind;
    use clap::Parser as _;

    fn row(step: &str, command: &str, status: i32, result: &str) -> String {
        format!(
            r#"{{"step":"{step}","adapter":"A","driver":"1","date":"2026-11-25T00:00:00Z","command":"{command}","status":{status},"seconds":1,"error":{},"notes":null,"result":{result}}}"#,
            if status == 0 { "null" } else { r#""it broke""# }
        )
    }

    fn matmul(command: &str, seconds: f64) -> String {
        let gflops = 2e9 / seconds / 1e9;
        let result = format!(
            r#"{{"kernel":"matmul","size":[1000,1000,1000],"dtype":"f32","variant":"tiled","seconds":{seconds},"gflops":{gflops},"gbps":12.0,"copy_gbps":1000.0,"flops":2e9,"bytes":12e6,"max_error":1e-7,"compared":256}}"#
        );
        row("kernels", command, 0, &result)
    }

    #[test]
    fn medians_rooflines_and_ratios_are_of_the_rows() {
        let command = "./wgrad --quiet -v bench matmul --size 1000 --cache results/cache --json";
        let theirs = r#"{"kernel":"matmul","size":[1000,1000,1000],"dtype":"f32","seconds":0.001}"#;
        let lines = [
            matmul(command, 0.004),
            matmul(command, 0.002),
            matmul(command, 0.003),
            row("pytorch", "matmul --size 1000", 0, theirs),
            row("sweep", "./wgrad bench x", 1, "null"),
        ];
        let rows = parse(&lines.join("\n")).expect("JSON");
        let text = summary(&rows, None);
        // The fastest product is the measured roofline: the median reaches two thirds of it, and takes three times PyTorch's
        // time.
        let wanted = "| matmul | 1000x1000x1000 | f32 | 3.00 (2.00 to 4.00) | 667 (500 to 1000) | 12.0 (12.0 to 12.0) | 67 % | 1.00 | 3.00 | 1.0e-7 (256) | tiled |";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("5 rows") && text.contains("1 failed"), "{text}");
        assert!(text.contains("| sweep | `bench x` | it broke |"), "{text}");
        let again = [&lines[..], &[row("sweep", "./wgrad bench x", 0, "null")]].concat();
        let text = summary(&parse(&again.join("\n")).expect("JSON"), None);
        assert!(text.contains("0 failed") && !text.contains("it broke"), "{text}");
        // A roofline of the data sheet: 2 GFLOP in 3 ms are a third of 2 TFLOP/s.
        let text = summary(&rows, Some([2e12, 1e12]));
        assert!(text.contains("| 33 % |") && text.contains("given: 2.00 TFLOP/s"), "{text}");
        let cut = parse(&lines.join("\n")[..60]).expect_err("it is cut off").to_string();
        assert!(cut.contains("line 1") && cut.contains("cut off"), "{cut}");
    }

    #[test]
    fn other_bits_and_a_rising_loss_are_told() {
        let run = |hash: &str, last: f64| {
            let result = format!(
                r#"{{"model":"mlp","parameters_hash":"{hash}","loss_first":2.0,"loss_last":{last}}}"#
            );
            row("train", "./wgrad bench mlp", 0, &result)
        };
        let of = |lines: &[String]| summary(&parse(&lines.join("\n")).expect("JSON"), None);
        let text = of(&[run("aa", 1.0), run("aa", 1.0)]);
        assert!(text.contains("same bits in 2 runs, aa | falls, 2.00 → 1.00"), "{text}");
        let text = of(&[run("aa", 3.0), run("ab", 3.0)]);
        assert!(text.contains("**other bits**: aa, ab | **does not fall**"), "{text}");
        assert!(of(&[run("aa", 1.0)]).contains("only 1 run"));
    }

    #[test]
    fn extra_time_of_recomputation_is_modelled_and_measured() {
        let run = |recompute: &str, ms: f64, again: f64| {
            let result = format!(
                r#"{{"model":"mlp","batch":8,"recompute":"{recompute}","ms_per_step":{ms},"recompute_time_fraction":{again},"device_bytes":2e6}}"#
            );
            row("recompute", &format!("./wgrad bench mlp --recompute {recompute}"), 0, &result)
        };
        let of = |lines: &[String]| summary(&parse(&lines.join("\n")).expect("JSON"), None);
        let text = of(&[run("off", 10.0, 0.25), run("sqrt", 13.0, 0.5)]);
        assert!(text.contains("| mlp | sqrt | 2.00 | 2.00 | 10.0 | 13.0 | 20.0 | 30.0 | +10.0 |"), "{text}");
        let text = of(&[run("sqrt", 13.0, 0.5)]);
        assert!(!text.contains("Recomputation"), "{text}");
    }

    /// Every row of a bundle is a command that the program takes, and run.sh runs every step that has rows.
    #[test]
    fn the_rows_of_a_bundle_are_commands() {
        let (list, script) = (
            include_str!("../../../../benches/day/rows.txt"),
            include_str!("../../../../benches/day/run.sh"),
        );
        let names = script.lines().find_map(|line| line.strip_prefix("names=(")).expect("the steps' names");
        let mut kinds = std::collections::BTreeSet::new();
        for line in list.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [scale, step, arguments @ ..] = &words[..] else { panic!("`{line}`") };
            // Step 5 runs the rows of recomputation as well.
            assert!(
                ["gpu", "small"].contains(scale) && (names.contains(step) || *step == "recompute"),
                "`{line}`"
            );
            if *step == "tests" {
                assert!(
                    ["kernels::", "session::", "train::"].iter().any(|of| arguments[0].starts_with(of)),
                    "{line}"
                );
                continue;
            }
            let command = [&["wgrad", "bench"], arguments].concat();
            let parsed = crate::Arguments::try_parse_from(&command)
                .unwrap_or_else(|error| panic!("`{line}`: {error}"));
            let crate::Command::Bench(_) = parsed.command else { panic!("`{line}`") };
            let after =
                |option: &str| arguments.iter().position(|word| *word == option).map(|at| arguments[at + 1]);
            match Kind::named(arguments[0]) {
                Some(kind) => {
                    kind.size(after("--size"), true).unwrap_or_else(|error| panic!("`{line}`: {error}"));
                    if *scale == "gpu" {
                        kinds.insert(kind.name);
                    }
                }
                None => assert!(wgrad::models::Model::NAMES.contains(&arguments[0]), "`{line}`"),
            }
        }
        let missing: Vec<_> = Kind::names().into_iter().filter(|name| !kinds.contains(name)).collect();
        assert!(missing.is_empty(), "no row measures {missing:?}");
    }
}
