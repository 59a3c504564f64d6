//! The rules of the house, read from its source: which room may know which, how long a file may be, and that the
//! documents speak of files that exist.

use std::path::{Path, PathBuf};

use crate::support::skip::skip;

/// A file of `src`, with its path from there.
struct Source {
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn sources(folder: &str) -> Vec<Source> {
    let mut files = Vec::new();
    walk(&root().join(folder), &mut files);
    files.sort();
    let read = |path: PathBuf| Source {
        path: path
            .strip_prefix(root().join(folder))
            .expect("below it")
            .display()
            .to_string()
            .replace('\\', "/"),
        text: std::fs::read_to_string(&path).expect("UTF-8"),
    };
    files.into_iter().map(read).collect()
}

/// What a room may not import: other rooms, and crates.
struct Rule {
    room: &'static str,
    never: &'static [&'static str],
}

/// Rooms that know the device, and those that know them.
macro_rules! never {
    ($room:literal: $($name:literal)*) => {
        Rule { room: $room, never: &[$($name),*] }
    };
}

const RULES: &[Rule] = &[
    never!("units": "crate::" "wgpu"),
    never!("dtype": "crate::" "wgpu"),
    never!("shape": "crate::" "wgpu"),
    never!("json": "crate::" "wgpu"),
    never!("random": "crate::" "wgpu"),
    never!("progress": "crate::" "wgpu"),
    // The one error enum wraps those of the pure rooms.
    never!("error": "graph" "kernels" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("limits": "memory" "graph" "kernels" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("memory": "graph" "kernels" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("graph": "memory" "kernels" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("kernels": "memory" "graph" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("lower": "memory" "autodiff" "optim" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("autodiff": "memory" "kernels" "lower" "optim" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("compile": "memory" "kernels" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("optim": "memory" "kernels" "lower" "nn" "models" "plan" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("nn": "memory" "kernels" "lower" "plan" "models" "report" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("models": "memory" "kernels" "lower" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("plan": "nn" "models" "device" "exec" "check" "data" "train" "reference" "wgpu"),
    never!("report": "device" "exec" "data" "train" "wgpu"),
    never!("reference": "memory" "kernels" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "device" "exec" "data" "train" "wgpu"),
    never!("device": "memory" "graph" "kernels" "lower" "autodiff" "optim" "nn" "models" "plan" "report" "exec" "data" "train" "reference"),
    never!("check": "memory" "kernels" "lower" "nn" "models" "report" "data" "train" "wgpu"),
    never!("exec": "nn" "models" "data" "train" "report" "reference"),
    never!("data": "memory" "graph" "kernels" "lower" "autodiff" "optim" "nn" "plan" "device" "exec" "train" "reference" "wgpu"),
    never!("train": "memory" "kernels" "lower" "autodiff" "reference" "wgpu"),
];

/// Everything a text names below `crate::`, braces resolved one level deep: `crate::{graph::Op, plan}` names both.
fn rooms_named(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        let word = |text: &str| -> String {
            text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            Some(list) => found.extend(list.split(',').map(|item| word(item.trim()))),
            None => found.push(word(rest)),
        }
    }
    found
}

/// The code of a file: without comments, and without the tests at its end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // A module of tests in the same file is its end.
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn room_of(path: &str) -> &str {
    path.split('/').next().map_or(path, |first| first.strip_suffix(".rs").unwrap_or(first))
}

/// The offending lines of one file under one rule.
fn offences(source: &Source, rule: &Rule) -> Vec<String> {
    let mut list = Vec::new();
    for (number, line) in code(&source.text) {
        let named = rooms_named(line);
        for never in rule.never {
            let broken = match *never {
                "crate::" => line.contains("crate::"),
                "wgpu" => line.contains("wgpu::") || line.contains("pollster"),
                room => named.iter().any(|name| name == room),
            };
            if broken {
                list.push(format!(
                    "src/{}:{number}: {} may not know {never}: {}",
                    source.path,
                    rule.room,
                    line.trim()
                ));
            }
        }
    }
    list
}

#[test]
fn rooms_know_only_what_they_may() {
    let mut broken = Vec::new();
    for source in sources("src").into_iter().filter(|source| !source.path.ends_with("tests.rs")) {
        for rule in RULES.iter().filter(|rule| rule.room == room_of(&source.path)) {
            broken.extend(offences(&source, rule));
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_room_has_a_rule() {
    for source in sources("src") {
        let room = room_of(&source.path);
        let known = matches!(room, "lib" | "bin") || RULES.iter().any(|rule| rule.room == room);
        assert!(
            known,
            "src/{}: the table of tests/pure/house.rs has no rule for the room `{room}`",
            source.path
        );
    }
}

#[test]
fn the_rule_sees_what_breaks_it() {
    let rule = never!("graph": "plan" "wgpu");
    let offending = ["use crate::plan::Plan;", "use crate::{shape, plan};", "let b: wgpu::Buffer;"];
    for text in offending {
        let source = Source { path: "graph/x.rs".to_owned(), text: text.to_owned() };
        assert_eq!(offences(&source, &rule).len(), 1, "{text}");
    }
    for text in
        ["use crate::shape::Shape;", "// crate::plan", "\n#[cfg(test)]\nmod tests {\nuse crate::plan::Plan;"]
    {
        let source = Source { path: "graph/x.rs".to_owned(), text: text.to_owned() };
        assert!(offences(&source, &rule).is_empty(), "{text}");
    }
}

#[test]
fn no_file_is_longer_than_600_lines() {
    for folder in ["src", "tests", "examples", "benches"] {
        if !root().join(folder).is_dir() {
            continue;
        }
        for source in sources(folder) {
            let lines = source.text.lines().count();
            assert!(lines <= 600, "{folder}/{} has {lines} lines: two rooms", source.path);
        }
    }
}

/// Paths in backquotes in a document exist.
#[test]
fn documents_speak_of_files_that_exist() {
    let docs = std::fs::read_dir(root().join("docs")).expect("a folder of documents");
    let docs = docs.map(|entry| format!("docs/{}", entry.expect("an entry").file_name().display()));
    let documents = ["ARCHITECTURE.md", "README.md", "fuzz/README.md"].map(str::to_owned);
    for document in docs.filter(|name| name.ends_with(".md")).chain(documents) {
        let Ok(text) = std::fs::read_to_string(root().join(&document)) else {
            skip(&format!("there is no {document}"));
            continue;
        };
        for word in text.split('`').skip(1).step_by(2) {
            let folders = ["src/", "tests/", "shaders/", "scripts/", "examples/", "benches/", "docs/"];
            let is_path = folders.iter().any(|folder| word.starts_with(folder));
            if is_path && !word.contains([' ', '*', '{', '…']) {
                assert!(root().join(word).exists(), "{document} speaks of `{word}`, which does not exist");
            }
        }
    }
}

/// `unsafe` stands only where a comment says why it is sound, and only where pipelines are made.
#[test]
fn unsafe_has_a_reason() {
    for source in sources("src") {
        for (number, line) in code(&source.text).filter(|(_, line)| line.contains("unsafe ")) {
            let before: Vec<&str> = source.text.lines().take(number - 1).collect();
            let reason = before.iter().rev().take(4).any(|line| line.contains("SAFETY:"));
            assert!(reason, "src/{}:{number}: no SAFETY comment: {}", source.path, line.trim());
        }
    }
}

/// What is left out is said through one helper: the harness hides what tests print otherwise.
#[test]
fn skips_are_said_aloud() {
    for source in sources("tests") {
        let says = source.text.contains(concat!("eprintln!(\"", "SKIPPED"))
            || source.text.contains(concat!("println!(\"", "SKIPPED"));
        assert!(!says, "tests/{}: `support::skip::skip` says what is skipped", source.path);
    }
}

/// Each entry of the list of planted faults names lines that occur once in its file, or it tests nothing.
#[test]
fn faults_can_be_planted() {
    let list = std::fs::read_to_string(root().join("scripts/mutants/faults.txt")).expect("committed");
    let mut faults = 0;
    for entry in list.split("\n== ").skip(1) {
        let name = entry.lines().next().unwrap_or_default();
        let of = |start: &str| {
            entry.lines().skip(1).filter_map(|line| line.strip_prefix(start)).collect::<Vec<_>>()
        };
        let (file, test, old, new) = (of("file "), of("test "), of("-").join("\n"), of("+").join("\n"));
        assert!(file.len() == 1 && test.len() == 1 && old != new, "`{name}` is not complete");
        let text =
            std::fs::read_to_string(root().join(file[0])).unwrap_or_else(|e| panic!("{}: {e}", file[0]));
        assert_eq!(text.matches(&old).count(), 1, "`{name}`: its lines are not in {} once", file[0]);
        faults += 1;
    }
    assert!(faults >= 27, "only {faults} faults");
}
