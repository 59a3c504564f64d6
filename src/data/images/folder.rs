//! The files of a folder per class.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// An image file.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub path: PathBuf,
    pub class: u32,
}

/// Ends of the names of images that can be read, and of those that cannot. Others are not images.
const READ: [&str; 3] = ["png", "jpg", "jpeg"];
const NOT_READ: [&str; 11] =
    ["avif", "bmp", "gif", "heic", "jxl", "pgm", "ppm", "qoi", "tif", "tiff", "webp"];
/// Folders inside of folders, beyond which links are taken to form a loop.
const DEPTH: usize = 32;

pub(super) fn wrong(path: &Path, message: impl Into<String>) -> Error {
    Error::Data { what: path.display().to_string(), message: message.into() }
}

/// Returns what is in a folder and whether each is a folder, sorted by name, without what is hidden. Links are
/// followed.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf, bool)>> {
    let io = |error: std::io::Error| wrong(folder, error.to_string());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            let folder = fs::metadata(&path).map_err(|error| wrong(&path, error.to_string()))?.is_dir();
            found.push((name, path, folder));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the names of the folders in a folder, sorted.
pub(super) fn classes(root: &Path) -> Result<Vec<String>> {
    let folders = entries(root)?.into_iter().filter(|(.., folder)| *folder);
    let name =
        |(name, path, _): (String, PathBuf, bool)| match path.file_name().and_then(|name| name.to_str()) {
            Some(_) => Ok(name),
            None => Err(wrong(&path, "the folder of a class needs a name in UTF-8: rename it")),
        };
    let names = folders.map(name).collect::<Result<Vec<_>>>()?;
    if names.is_empty() {
        return Err(wrong(root, "it has no folders; one folder for each class is needed, with its images"));
    }
    Ok(names)
}

/// Returns the images of all classes; in each class by folder, then by name. Without `all`, the folder of a class may be
/// missing.
pub(super) fn files(root: &Path, classes: &[String], all: bool) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for (class, name) in classes.iter().enumerate() {
        let folder = root.join(name);
        if !all && !folder.try_exists().map_err(|error| wrong(&folder, error.to_string()))? {
            continue;
        }
        let mut paths = Vec::new();
        collect(&folder, 0, &mut paths)?;
        if paths.is_empty() {
            return Err(wrong(&folder, "the class has no images: no file ends in .png, .jpg or .jpeg"));
        }
        // As torchvision sorts them: folders by their whole paths as text.
        paths.sort_by_cached_key(|path| {
            let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().as_encoded_bytes().to_vec();
            (text(path.parent().map(Path::as_os_str)), text(path.file_name()))
        });
        found.extend(paths.into_iter().map(|path| Found { path, class: class as u32 }));
    }
    Ok(found)
}

fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> Result<()> {
    if depth == DEPTH {
        return Err(wrong(folder, format!("folders are {DEPTH} deep: is there a link to a folder above?")));
    }
    for (_, path, is_folder) in entries(folder)? {
        if is_folder {
            collect(&path, depth + 1, paths)?;
            continue;
        }
        let end = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if NOT_READ.contains(&end.as_str()) {
            return Err(wrong(&path, "only PNG and JPEG images are read: convert it, or move it elsewhere"));
        }
        if READ.contains(&end.as_str()) {
            paths.push(path);
        }
    }
    Ok(())
}
