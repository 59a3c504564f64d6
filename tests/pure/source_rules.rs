//! Rules for the source files: which module may import which, the length of a file, and that documents refer
//! to existing files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::support::skip::skip;

/// A file of `src`, with its path from there.
pub struct Source {
    pub path: String,
    pub text: String,
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

/// Returns the files below a folder, sorted.
pub fn sources(folder: &str) -> Vec<Source> {
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

/// What a module may import: a row of the table in ARCHITECTURE.md.
struct Rule {
    modules: Vec<String>,
    imports: Vec<String>,
}

/// The table of modules in ARCHITECTURE.md: names in backquotes, in the first cell of a row and in the last.
fn rules() -> Vec<Rule> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there");
    let table = text.split("\n## Modules\n").nth(1).expect("a section on modules");
    let table = table.split("\n## ").next().unwrap_or(table);
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let rule = |line: &str| {
        let cells: Vec<&str> = line.split('|').collect();
        Rule { modules: names(cells[1]), imports: names(cells[3]) }
    };
    rows.map(rule).collect()
}

/// Returns every module that a line names below `crate::`, braces resolved one level deep:
/// `crate::{graph::Op, plan}` names both.
fn modules_named(line: &str) -> Vec<String> {
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

/// Returns the numbered lines of code of a file, without comments and without the tests at its end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // A `tests` module is at the end of its file.
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn module_of(path: &str) -> &str {
    path.split('/').next().map_or(path, |first| first.strip_suffix(".rs").unwrap_or(first))
}

/// The modules and crates that a file imports, with the first line that names each.
fn imports(source: &Source) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (number, line) in code(&source.text) {
        let mut named = modules_named(line);
        if line.contains("wgpu::") || line.contains("pollster") {
            named.push("wgpu".to_owned());
        }
        let at = format!("src/{}:{number}: {}", source.path, line.trim());
        for name in named {
            found.entry(name).or_insert_with(|| at.clone());
        }
    }
    found
}

#[test]
fn modules_import_what_the_table_says() {
    let rules = rules();
    let known: BTreeSet<&str> =
        rules.iter().flat_map(|rule| &rule.modules).map(String::as_str).chain(["wgpu"]).collect();
    let mut wrong = Vec::new();
    for rule in &rules {
        let mut unused: BTreeSet<&String> = rule.imports.iter().collect();
        for source in sources("src").iter().filter(|source| !source.path.ends_with("tests.rs")) {
            let module = module_of(&source.path);
            if !rule.modules.iter().any(|name| name == module) {
                continue;
            }
            for (name, at) in imports(source).iter().filter(|(name, _)| known.contains(&name[..])) {
                unused.remove(name);
                if name != module && !rule.imports.contains(name) {
                    wrong.push(format!("{at}: `{module}` may not import `{name}`"));
                }
            }
        }
        wrong.extend(unused.iter().map(|name| format!("{:?} do not import `{name}`", rule.modules)));
    }
    assert!(wrong.is_empty(), "against the table of ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_is_in_the_table() {
    let rules = rules();
    for source in sources("src") {
        let module = module_of(&source.path);
        let known =
            matches!(module, "lib" | "bin") || rules.iter().any(|r| r.modules.iter().any(|m| m == module));
        assert!(known, "src/{}: the table of ARCHITECTURE.md does not have `{module}`", source.path);
    }
}

#[test]
fn imports_of_a_file_are_found() {
    let of = |text: &str| {
        let source = Source { path: "graph/x.rs".to_owned(), text: text.to_owned() };
        imports(&source).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(of("use crate::compile::Plan;"), ["compile"]);
    assert_eq!(of("use crate::{shape, plan};"), ["plan", "shape"]);
    assert_eq!(of("let b: wgpu::Buffer;"), ["wgpu"]);
    let none = ["// crate::compile", "\n#[cfg(test)]\nmod tests {\nuse crate::compile::Plan;"];
    assert!(none.iter().all(|text| of(text).is_empty()));
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
fn documents_refer_to_existing_files() {
    let docs = std::fs::read_dir(root().join("docs")).expect("a folder of documents");
    let docs = docs.map(|entry| format!("docs/{}", entry.expect("an entry").file_name().display()));
    let documents = ["ARCHITECTURE.md", "README.md", "fuzz/README.md", "python/README.md"].map(str::to_owned);
    for document in docs.filter(|name| name.ends_with(".md")).chain(documents) {
        let Ok(text) = std::fs::read_to_string(root().join(&document)) else {
            skip(&format!("there is no {document}"));
            continue;
        };
        for word in text.split('`').skip(1).step_by(2) {
            let folders =
                ["src/", "tests/", "shaders/", "scripts/", "examples/", "benches/", "docs/", "python/"];
            let is_path = folders.iter().any(|folder| word.starts_with(folder));
            if is_path && !word.contains([' ', '*', '{', '…']) {
                assert!(root().join(word).exists(), "{document} speaks of `{word}`, which does not exist");
            }
        }
    }
}

/// `unsafe` has a comment above it that says why it is sound.
#[test]
fn unsafe_has_a_safety_comment() {
    for source in sources("src") {
        for (number, line) in code(&source.text).filter(|(_, line)| line.contains("unsafe ")) {
            let before: Vec<&str> = source.text.lines().take(number - 1).collect();
            let reason = before.iter().rev().take(4).any(|line| line.contains("SAFETY:"));
            assert!(reason, "src/{}:{number}: no SAFETY comment: {}", source.path, line.trim());
        }
    }
}

/// Skipped checks are reported through one helper: the harness hides what passing tests print otherwise.
#[test]
fn skips_are_reported_through_the_helper() {
    for source in sources("tests") {
        let says = source.text.contains(concat!("eprintln!(\"", "SKIPPED"))
            || source.text.contains(concat!("println!(\"", "SKIPPED"));
        assert!(!says, "tests/{}: `support::skip::skip` says what is skipped", source.path);
    }
}

/// Each entry of the list of planted faults names lines that occur exactly once in its file; otherwise it
/// tests nothing.
#[test]
fn planted_faults_match_their_files_once() {
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
