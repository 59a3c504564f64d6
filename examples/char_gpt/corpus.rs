//! The text to learn from.

use std::path::{Path, PathBuf};

use wgrad::{Error, Result};

/// The folder of the crate's sources when this example was built.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// Returns the text of a file, or of this crate's own source files.
pub fn read(file: Option<&str>) -> Result<String> {
    match file {
        Some(file) => text(Path::new(file)),
        None => own_sources(),
    }
}

/// Returns all source files in the order of their names, without lines that have non-ASCII characters: most
/// of those characters are too rare to be learnt.
fn own_sources() -> Result<String> {
    let mut files = Vec::new();
    list(Path::new(SOURCES), &mut files)?;
    files.sort();
    let mut all = String::new();
    for file in files {
        all.extend(text(&file)?.lines().filter(|line| line.is_ascii()).flat_map(|line| [line, "\n"]));
    }
    Ok(all)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let wrong = |e: std::io::Error| Error::Data {
        what: folder.display().to_string(),
        message: format!("{e}; give a text of your own with --text FILE"),
    };
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    let wrong = |message: String| Error::Data { what: path.display().to_string(), message };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    if text.is_empty() { Err(wrong("it is empty".to_owned())) } else { Ok(text) }
}
