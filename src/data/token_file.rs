//! Files of token ids.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// How a file holds token ids; all numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFormat {
    /// 16-bit ids and nothing else, as nanoGPT writes them.
    U16,
    /// 32-bit ids and nothing else.
    U32,
    /// llm.c's files: 256 numbers of 32 bits, of which the first are 20240520, 1 and the number of ids, before
    /// 16-bit ids; or 20240801, 7 and the number of ids, before 32-bit ids.
    LlmC,
}

/// Bytes of llm.c's header.
const HEADER: u64 = 256 * 4;
/// First number, version, and bytes of an id: `write_datafile` in llm.c's dev/data/data_common.py.
const LLM_C: [(u32, u32, usize); 2] = [(20_240_520, 1, 2), (20_240_801, 7, 4)];

/// A file of ids.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// Open, unless there are so many files that each is opened when it is read.
    file: Option<Mutex<File>>,
    /// Bytes before the first id, and of an id.
    start: u64,
    width: usize,
    len: usize,
}

impl TokenFile {
    pub(super) fn open(path: &Path, format: TokenFormat) -> Result<Self> {
        let wrong = |message: String| Error::Data { what: path.display().to_string(), message };
        let io = |error: std::io::Error| wrong(error.to_string());
        let mut file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let (start, width, announced) = match format {
            TokenFormat::U16 => (0, 2, None),
            TokenFormat::U32 => (0, 4, None),
            TokenFormat::LlmC => {
                let mut header = [0u32; 3];
                if bytes < HEADER {
                    return Err(wrong(format!("{bytes} bytes are too few for llm.c's header of {HEADER}")));
                }
                file.read_exact(bytemuck::cast_slice_mut(&mut header)).map_err(io)?;
                let [magic, version, count] = header.map(u32::from_le);
                let Some(&(_, _, width)) = LLM_C.iter().find(|known| (known.0, known.1) == (magic, version))
                else {
                    let message = format!(
                        "it begins with {magic} and {version}, llm.c's files with 20240520 and 1 or with 20240801 and 7; a \
                         file of ids without a header is `TokenFormat::U16` or `U32`"
                    );
                    return Err(wrong(message));
                };
                (HEADER, width, Some(count as usize))
            }
        };
        let ids = bytes - start;
        if !ids.is_multiple_of(width as u64) {
            return Err(wrong(format!("{ids} bytes of ids are not a multiple of {width}")));
        }
        let len = usize::try_from(ids / width as u64).map_err(|_| wrong(format!("{bytes} bytes")))?;
        if let Some(announced) = announced.filter(|announced| *announced != len) {
            return Err(wrong(format!(
                "its header announces {announced} ids, it has {len}: it is incomplete"
            )));
        }
        Ok(Self { path: path.to_owned(), file: Some(Mutex::new(file)), start, width, len })
    }

    fn closed(self) -> Self {
        Self { file: None, ..self }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the ids with these numbers, which are below [`TokenFile::len`].
    pub(super) fn read(&self, ids: Range<usize>) -> Result<Vec<u32>> {
        let mut bytes = vec![0; ids.len() * self.width];
        let at = self.start + ids.start as u64 * self.width as u64;
        let mut fill = |file: &mut File| {
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut bytes)
        };
        let filled = match &self.file {
            Some(file) => fill(&mut file.lock().unwrap_or_else(PoisonError::into_inner)),
            None => File::open(&self.path).and_then(|mut file| fill(&mut file)),
        };
        filled.map_err(|error| {
            let message = format!("tokens {} to {}: {error}", ids.start, ids.end);
            Error::Data { what: self.name(), message }
        })?;
        Ok(match self.width {
            2 => bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]]))).collect(),
            _ => bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        })
    }
}

/// Files of ids, one after the other.
#[derive(Debug)]
pub(super) struct Shards {
    files: Vec<TokenFile>,
    /// The number of the first id of each file, and the number of all.
    starts: Vec<usize>,
}

/// Most files that stay open.
const MOST_OPEN: usize = 128;

impl Shards {
    pub(super) fn open(paths: &[PathBuf], format: TokenFormat) -> Result<Self> {
        let (mut files, mut starts) = (Vec::with_capacity(paths.len()), vec![0usize]);
        for path in paths {
            let file = TokenFile::open(path, format)?;
            starts.push(starts[files.len()].saturating_add(file.len()));
            files.push(if paths.len() > MOST_OPEN { file.closed() } else { file });
        }
        Ok(Self { files, starts })
    }

    pub(super) fn len(&self) -> usize {
        self.starts[self.files.len()]
    }

    /// Returns the ids with these numbers, which are below [`Shards::len`], each below `vocabulary`.
    pub(super) fn read(
        &self,
        ids: Range<usize>,
        check: impl Fn(&str, usize, &[u32]) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let mut all = Vec::with_capacity(ids.len());
        let mut at = ids.start;
        while at < ids.end {
            // The last file that begins at or before this id; empty ones begin where the next one does.
            let i = self.starts.partition_point(|start| *start <= at) - 1;
            let (file, start) = (&self.files[i], self.starts[i]);
            let part = at - start..(ids.end - start).min(file.len());
            at = start + part.end;
            let first = part.start;
            let some = file.read(part)?;
            check(&file.name(), first, &some)?;
            all.extend(some);
        }
        Ok(all)
    }
}

/// The files that a path stands for: itself, the files of a folder, or those whose names match a last part with one `*`; in
/// the order of their names.
pub(super) fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let wrong = |message: String| Error::Data { what: path.display().to_string(), message };
    let pattern = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let (folder, pattern) = match pattern {
        _ if path.is_dir() => (path, "*".to_owned()),
        Some(pattern) if pattern.contains('*') && !path.exists() => {
            (path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")), pattern)
        }
        _ => return Ok(vec![path.to_owned()]),
    };
    let (start, end) = pattern.split_once('*').unwrap_or((&pattern, ""));
    let matches = |name: &str| name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| wrong(error.to_string()))? {
        let entry = entry.map_err(|error| wrong(error.to_string()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && matches(&name) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(wrong(format!("no file in `{}` is called `{pattern}`", folder.display()))),
        false => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Batch, Dataset, Loader, Tokens};
    use super::*;

    /// A file of one test, removed at its end.
    struct Written(PathBuf);

    impl Written {
        fn new(name: &str, parts: &[&[u8]]) -> Self {
            let path = std::env::temp_dir().join(format!("wgrad-{name}-{}.bin", std::process::id()));
            std::fs::write(&path, parts.concat()).unwrap();
            Self(path)
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn bytes_16(ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| (*id as u16).to_le_bytes()).collect()
    }

    fn bytes_32(ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    fn header(magic: u32, version: u32, count: u32) -> Vec<u8> {
        let mut words = vec![magic, version, count];
        words.resize(256, 0);
        bytes_32(&words)
    }

    #[test]
    fn files_hold_what_memory_holds_in_every_format() {
        let ids: Vec<u32> = (0..500).map(|i| i * 131 % 50_257).collect();
        let (short, long) = (bytes_16(&ids), bytes_32(&ids));
        let files = [
            (TokenFormat::U16, Written::new("u16", &[&short])),
            (TokenFormat::U32, Written::new("u32", &[&long])),
            (TokenFormat::LlmC, Written::new("gpt2", &[&header(20_240_520, 1, 500), &short])),
            (TokenFormat::LlmC, Written::new("llama3", &[&header(20_240_801, 7, 500), &long])),
        ];
        let memory = Tokens::new(ids, 50_257).unwrap();
        let epoch = |tokens: Tokens, first: usize| -> Vec<Batch> {
            let (_, end) = tokens.split(0.25);
            let loader = Loader::new(Arc::new(end.windows(20).unwrap()), 4).unwrap().shuffled(9);
            loader.batches_per_epoch(5).epoch(2, first).collect::<Result<_>>().unwrap()
        };
        let expected = epoch(memory, 0);
        for (format, file) in files {
            let tokens = Tokens::open(&file.0, format, 50_257).unwrap();
            assert_eq!(tokens.len(), 500, "{format:?}");
            assert_eq!(epoch(tokens.clone(), 0), expected, "{format:?}");
            assert_eq!(epoch(tokens, 2), expected[2..], "{format:?}");
        }
    }

    /// Parts of a stream in a folder of their own, with an empty one in between.
    fn folder(name: &str, ids: &[u32], cuts: &[usize]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("wgrad-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut start = 0;
        for (i, &end) in cuts.iter().chain(&[ids.len()]).enumerate() {
            std::fs::write(folder.join(format!("part_{i:03}.bin")), bytes_16(&ids[start..end])).unwrap();
            start = end;
        }
        folder
    }

    #[test]
    fn files_of_a_folder_are_one_stream_in_the_order_of_their_names() {
        let ids: Vec<u32> = (0..500).map(|i| i * 131 % 50_257).collect();
        let memory = Tokens::new(ids.clone(), 50_257).unwrap();
        // More files than stay open.
        let many: Vec<usize> = (1..=200).collect();
        for (name, cuts) in [("few", &[7, 7, 300][..]), ("many", &many)] {
            let folder = folder(name, &ids, cuts);
            std::fs::write(folder.join("notes.txt"), "not ids").unwrap();
            std::fs::write(folder.join(".hidden.bin"), "no").unwrap();
            let pattern = folder.join("part_*.bin");
            let listed: Vec<PathBuf> =
                (0..=cuts.len()).map(|i| folder.join(format!("part_{i:03}.bin"))).collect();
            let open = |path: &Path| Tokens::open(path, TokenFormat::U16, 50_257);
            assert!(open(&folder).unwrap_err().to_string().contains("notes.txt"), "7 bytes are no ids");
            std::fs::remove_file(folder.join("notes.txt")).unwrap();
            let streams = [
                open(&folder).unwrap(),
                open(&pattern).unwrap(),
                Tokens::open_shards(&listed, TokenFormat::U16, 50_257).unwrap(),
            ];
            for tokens in streams {
                assert_eq!(tokens.read(0..500).unwrap(), ids);
                let epoch = |tokens: &Tokens, first: usize| -> Vec<Batch> {
                    let windows = tokens.split(0.1).1.windows(20).unwrap();
                    let loader = Loader::new(Arc::new(windows), 4).unwrap().shuffled(9);
                    loader.batches_per_epoch(6).epoch(1, first).collect::<Result<_>>().unwrap()
                };
                assert_eq!(epoch(&tokens, 2), epoch(&memory, 2), "{name}: continued");
            }
            let none = open(&folder.join("other*.bin")).unwrap_err().to_string();
            assert!(none.ends_with("is called `other*.bin`"), "{none}");
            std::fs::remove_dir_all(folder).unwrap();
        }
        let none = Tokens::open_shards::<PathBuf>(&[], TokenFormat::U16, 9).unwrap();
        assert!(none.is_empty() && none.windows(1).is_err());
    }

    #[test]
    fn damaged_files_and_unknown_ids_are_named() {
        let open = |file: &Written, format| Tokens::open(&file.0, format, 100);
        let message = |file: &Written, format| {
            let text = open(file, format).unwrap_err().to_string();
            text.strip_prefix(&format!("{}: ", file.0.display())).expect("the file's name").to_owned()
        };
        let odd = Written::new("odd", &[&[1, 0, 2]]);
        assert_eq!(message(&odd, TokenFormat::U16), "3 bytes of ids are not a multiple of 2");
        assert_eq!(message(&odd, TokenFormat::LlmC), "3 bytes are too few for llm.c's header of 1024");
        let cut = Written::new("cut", &[&header(20_240_520, 1, 9), &[1, 0, 2, 0]]);
        assert_eq!(
            message(&cut, TokenFormat::LlmC),
            "its header announces 9 ids, it has 2: it is incomplete"
        );
        let other = Written::new("other", &[&header(20_240_520, 2, 0)]);
        assert!(
            message(&other, TokenFormat::LlmC).starts_with("it begins with 20240520 and 2, llm.c's files")
        );
        assert!(open(&Written::new("none", &[]), TokenFormat::U16).unwrap().windows(4).is_err());

        let large = Written::new("large", &[&bytes_16(&[1, 2, 3, 4, 5, 100, 7])]);
        let (_, end) = open(&large, TokenFormat::U16).unwrap().split(0.3);
        let windows = end.windows(2).unwrap();
        assert_eq!(windows.batch(&[0]).unwrap().u32("y"), [4, 5]);
        let error = windows.batch(&[0, 1]).unwrap_err().to_string();
        assert!(error.ends_with(".bin: token 5 is 100, the vocabulary has 100"), "{error}");
        // A file that shrinks while it is in use.
        File::options().write(true).open(&large.0).unwrap().set_len(6).unwrap();
        assert!(windows.batch(&[0]).unwrap_err().to_string().contains("tokens 2 to 5: "));
    }
}
