//! The files of a model that is cut into several, as Hugging Face writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::{failed, read_json};
use crate::error::Result;

/// What a folder of a model may have, the first that is there.
const NAMES: [&str; 4] = [
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
];

/// Returns the files that `path` stands for, each with the tensors that an index says are there: the files of an index
/// (`*.index.json`), those of a folder with an index or with one file, or the file itself.
///
/// # Errors
/// [`Error::Weights`](crate::Error::Weights) for a folder without such a file, or an index that cannot be read or names files
/// elsewhere.
pub(super) fn files(path: &Path) -> Result<Vec<(PathBuf, BTreeSet<String>)>> {
    if path.is_dir() {
        return match NAMES.iter().map(|name| path.join(name)).find(|path| path.is_file()) {
            Some(found) => files(&found),
            None => {
                Err(failed(path, &format!("a folder without weights: it has none of {}", NAMES.join(", "))))
            }
        };
    }
    match path.to_str() {
        Some(name) if name.ends_with(".index.json") => of_index(path),
        _ => Ok(vec![(path.to_owned(), BTreeSet::new())]),
    }
}

fn of_index(path: &Path) -> Result<Vec<(PathBuf, BTreeSet<String>)>> {
    let index = read_json(path)?;
    let Some(map) = index.get("weight_map").and_then(serde_json::Value::as_object) else {
        return Err(failed(path, &"an index of files has an object `weight_map`"));
    };
    let mut files: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (tensor, file) in map {
        let Some(file) = file.as_str() else {
            return Err(failed(path, &format!("`{tensor}` is in no file, but in {file}")));
        };
        // A file beside the index, wherever the index came from.
        let parts: Vec<Component> = Path::new(file).components().collect();
        if !matches!(parts[..], [Component::Normal(_)]) {
            return Err(failed(
                path,
                &format!("`{tensor}` is in `{file}`, which is no file beside the index"),
            ));
        }
        files.entry(file).or_default().insert(tensor.clone());
    }
    if files.is_empty() {
        return Err(failed(path, &"the index has no tensors"));
    }
    let beside = |(file, tensors): (&str, BTreeSet<String>)| (path.with_file_name(file), tensors);
    Ok(files.into_iter().map(beside).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_name_files_beside_them() {
        let folder = std::env::temp_dir().join(format!("wgrad-shards-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("created");
        assert!(files(&folder).unwrap_err().to_string().contains("a folder without weights"));
        let index = folder.join("model.safetensors.index.json");
        let with = |text: &str| {
            std::fs::write(&index, text).expect("written");
            files(&folder)
        };
        let found =
            with(r#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}"#);
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let wanted = [("1.safetensors", names(&["a", "c"])), ("2.safetensors", names(&["b"]))];
        assert_eq!(found.unwrap(), wanted.map(|(file, tensors)| (folder.join(file), tensors)));
        for (text, part) in [
            ("{", "damaged"),
            ("{}", "`weight_map`"),
            (r#"{"weight_map": {}}"#, "no tensors"),
            (r#"{"weight_map": {"a": 3}}"#, "`a` is in no file"),
            (r#"{"weight_map": {"a": "../b"}}"#, "no file beside the index"),
            (r#"{"weight_map": {"a": "/b"}}"#, "no file beside the index"),
        ] {
            let error = with(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
