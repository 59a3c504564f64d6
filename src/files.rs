//! Writing of files: whole or not at all.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file under a temporary name, in the folder of the file that it replaces when it is complete. Dropped
/// before, it is removed.
pub struct Replacement {
    target: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
    earlier: Vec<PathBuf>,
    committed: bool,
}

/// End of the temporary names, after the name of the file, the process and a number.
const SUFFIX: &str = ".partial";

impl Replacement {
    /// Creates the temporary file. A symbolic link is followed: what it refers to will be replaced. Removes
    /// temporary files for the same path that processes left which no longer run.
    ///
    /// # Errors
    /// If the folder does not exist or cannot be written, or if there is something other than a regular file
    /// at `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let target = followed(path)?;
        if target.exists() && !target.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a regular file"));
        }
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not the name of a file"));
        };
        remove_abandoned(folder(&target), name);
        // An earlier process with the same number, such as 1 in a container, may have left the first names.
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let mut temporary = prefix(name);
            temporary.push(format!("{}.{number}{SUFFIX}", std::process::id()));
            let temporary = folder(&target).join(temporary);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => {
                    let file = BufWriter::new(file?);
                    return Ok(Self { target, temporary, file, earlier: Vec::new(), committed: false });
                }
            }
        }
    }

    /// Keeps the files that this one and its predecessors replaced, the latest first: [`Replacement::commit`] moves each
    /// to the next name, and gives the replaced file the first.
    pub fn keep(&mut self, earlier: &[PathBuf]) {
        self.earlier = earlier.to_vec();
    }

    /// Replaces the file: afterwards it has the new contents, or after an error or a crash the old ones.
    ///
    /// # Errors
    /// Those of writing, such as a full disk.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        let file = self.file.get_ref();
        if let Ok(old) = std::fs::metadata(&self.target) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        self.move_earlier()?;
        std::fs::rename(&self.temporary, &self.target)?;
        self.committed = true;
        // The file is replaced; some file systems cannot synchronize a folder, and only Unix opens folders.
        if cfg!(unix) {
            let _ = File::open(folder(&self.target)).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }

    /// Moves the earlier files on by one. A crash here leaves whole files under their names, the replaced one under two.
    fn move_earlier(&self) -> io::Result<()> {
        let Some(first) = self.earlier.first() else { return Ok(()) };
        let (Some(name), Some(own)) = (self.target.file_name(), self.temporary.file_name()) else {
            return Ok(());
        };
        if !self.target.exists() {
            return Ok(());
        }
        // The path was a symbolic link: the target's folder was cleaned at first.
        if folder(first) != folder(&self.target) {
            remove_abandoned(folder(first), name);
        }
        let second = folder(first).join(own).with_extension(format!("earlier{SUFFIX}"));
        std::fs::hard_link(&self.target, &second)
            .or_else(|_| std::fs::copy(&self.target, &second).map(drop))?;
        let moved = self.earlier.windows(2).rev().filter(|pair| pair[0].exists());
        let mut names = moved.map(|pair| (&pair[0], &pair[1])).chain([(&second, first)]);
        let result = names.try_for_each(|(from, to)| std::fs::rename(from, to));
        // It is still there after an error, and where a crash left the file under both names: renaming one of two names of a
        // file to the other does nothing.
        let _ = std::fs::remove_file(&second);
        result
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.committed {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Replaces a file, as [`Replacement`].
///
/// # Errors
/// Those of [`Replacement::create`] and [`Replacement::commit`].
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = Replacement::create(path)?;
    file.write_all(contents)?;
    file.commit()
}

/// Checks that a file can be written, before the work whose result it will hold.
///
/// # Errors
/// Those of [`Replacement::create`].
pub fn check(path: &Path) -> io::Result<()> {
    Replacement::create(path).map(drop)
}

/// Returns the path without symbolic links; also that of a file that does not exist yet.
///
/// # Errors
/// For links that lead to themselves.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // As many links as Linux follows.
    for _ in 0..40 {
        match std::fs::read_link(&path) {
            Ok(to) => path = folder(&path).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn prefix(name: &std::ffi::OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    prefix
}

/// Removes the temporary files of processes that were killed. Only Linux tells which processes run.
fn remove_abandoned(folder: &Path, name: &std::ffi::OsStr) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let prefix = prefix(name);
    let Some(prefix) = prefix.to_str() else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let middle = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_suffix(SUFFIX));
        let process = middle.and_then(|middle| middle.split_once('.')?.0.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("wgrad-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = room("whole");
        let path = folder.join("a");
        write(&path, b"old").unwrap();
        let mut file = Replacement::create(&path).unwrap();
        file.write_all(b"half of the n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(file);
        assert_eq!((std::fs::read(&path).unwrap(), names(&folder)), (b"old".to_vec(), vec!["a".to_owned()]));
        write(&path, b"new").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), names(&folder)), (b"new".to_vec(), vec!["a".to_owned()]));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn replaced_files_are_kept_under_the_next_names() {
        let folder = room("kept");
        let [path, one, two] = ["a", "a.1", "a.2"].map(|name| folder.join(name));
        let read = || {
            names(&folder).iter().map(|name| std::fs::read(folder.join(name)).unwrap()).collect::<Vec<_>>()
        };
        let replace = |contents: &[u8]| {
            let mut file = Replacement::create(&path)?;
            file.keep(&[one.clone(), two.clone()]);
            file.write_all(contents)?;
            file.commit()
        };
        for contents in [b"0", b"1", b"2", b"3"] {
            replace(contents).unwrap();
        }
        assert_eq!(
            (names(&folder), read()),
            (
                ["a", "a.1", "a.2"].map(str::to_owned).to_vec(),
                vec![b"3".to_vec(), b"2".to_vec(), b"1".to_vec()]
            )
        );
        // What cannot be moved stays, and nothing temporary is left.
        std::fs::remove_file(&two).unwrap();
        std::fs::create_dir(&two).unwrap();
        assert!(replace(b"4").is_err());
        std::fs::remove_dir(&two).unwrap();
        assert_eq!(
            (names(&folder), read()),
            (["a", "a.1"].map(str::to_owned).to_vec(), vec![b"3".to_vec(), b"2".to_vec()])
        );
        // As a crash before the last renaming leaves it: one file under both names.
        std::fs::remove_file(&one).unwrap();
        std::fs::hard_link(&path, &one).unwrap();
        let mut file = Replacement::create(&path).unwrap();
        file.keep(std::slice::from_ref(&one));
        file.write_all(b"5").unwrap();
        file.commit().unwrap();
        assert_eq!(
            (names(&folder), read()),
            (["a", "a.1"].map(str::to_owned).to_vec(), vec![b"5".to_vec(), b"3".to_vec()])
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn savers_of_one_path_do_not_share_a_temporary_file() {
        let folder = room("shared");
        let path = folder.join("a");
        std::thread::scope(|scope| {
            for byte in 0..4u8 {
                let path = &path;
                scope.spawn(move || (0..50).for_each(|_| write(path, &[byte; 20_000]).unwrap()));
            }
            for _ in 0..200 {
                if let Ok(found) = std::fs::read(&path) {
                    assert!(found.len() == 20_000 && found.iter().all(|byte| *byte == found[0]));
                }
            }
        });
        assert_eq!(names(&folder), ["a"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn links_are_followed_and_only_regular_files_are_replaced() {
        let folder = room("links");
        let (file, link, dangling) = (folder.join("file"), folder.join("link"), folder.join("dangling"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::os::unix::fs::symlink("later", &dangling).unwrap();
        write(&link, b"new").unwrap();
        write(&dangling, b"new").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(std::fs::read(folder.join("later")).unwrap(), b"new");
        std::os::unix::fs::symlink("around", folder.join("around")).unwrap();
        for refused in [folder.clone(), "/dev/full".into(), folder.join("none/a"), folder.join("around")] {
            assert!(check(&refused).is_err() && write(&refused, b"x").is_err(), "{}", refused.display());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_left_by_an_earlier_process_of_the_same_number_are_skipped() {
        let folder = room("same");
        let process = std::process::id();
        for number in 0..1000 {
            std::fs::write(folder.join(format!(".a.{process}.{number}.partial")), "half").unwrap();
        }
        write(&folder.join("a"), b"whole").unwrap();
        assert_eq!(std::fs::read(folder.join("a")).unwrap(), b"whole");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn temporary_files_of_killed_processes_are_removed() {
        let folder = room("killed");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (dead, alive) = (child.id(), std::process::id());
        for (name, process) in [("a", dead), ("a", alive), ("b", dead)] {
            std::fs::write(folder.join(format!(".{name}.{process}.7.partial")), "half").unwrap();
        }
        write(&folder.join("a"), b"whole").unwrap();
        assert_eq!(
            names(&folder),
            [format!(".a.{alive}.7.partial"), format!(".b.{dead}.7.partial"), "a".into()]
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
