//! Writing of a safetensors file, tensor by tensor, so that a model is never in host memory as a whole. Names
//! and notes are sorted: the same parameters give the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Stored;
use crate::dtype::DType;
use crate::files::Replacement;

/// Tensors in the order of the file.
pub(super) type Shapes = [(String, Stored)];

/// Where a file is written to.
pub(crate) enum Destination<'a> {
    /// To a path; the files that this one and its predecessors replace are kept under these names, the latest first.
    Path(&'a Path, &'a [PathBuf]),
    Memory(&'a mut Vec<u8>),
}

impl<'a> Destination<'a> {
    /// Returns the path, for errors.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Path(path, _) => (*path).to_owned(),
            Self::Memory(_) => PathBuf::from("the file"),
        }
    }

    pub(super) fn open(self) -> io::Result<Open<'a>> {
        match self {
            Self::Path(path, earlier) => {
                let mut file = Replacement::create(path)?;
                file.keep(earlier);
                Ok(Open::Path(file))
            }
            Self::Memory(bytes) => Ok(Open::Memory(bytes)),
        }
    }
}

/// A file that is being written.
pub(super) enum Open<'a> {
    Path(Replacement),
    Memory(&'a mut Vec<u8>),
}

impl Open<'_> {
    pub(super) fn commit(self) -> io::Result<()> {
        match self {
            Self::Path(file) => file.commit(),
            Self::Memory(_) => Ok(()),
        }
    }
}

impl Write for Open<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Path(file) => file.write(bytes),
            Self::Memory(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Path(file) => file.flush(),
            Self::Memory(_) => Ok(()),
        }
    }
}

/// Returns the header of the file: its length, and as JSON the notes and the offsets of each tensor, under the names that
/// `name_in_file` returns.
pub(super) fn header(
    name_in_file: fn(&str) -> String,
    shapes: &Shapes,
    notes: &BTreeMap<String, String>,
) -> Vec<u8> {
    let pairs: Vec<String> =
        notes.iter().map(|(key, value)| format!("{}:{}", quoted(key), quoted(value))).collect();
    let mut json = format!("{{\"__metadata__\":{{{}}}", pairs.join(","));
    let mut offset = 0;
    for (name, stored) in shapes {
        let (shape, end) = (&stored.shape, offset + stored.bytes());
        let name = quoted(&name_in_file(name));
        let dtype = match stored.written {
            DType::U32 => "U32",
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            _ => "F32",
        };
        // Writing to a string cannot fail.
        let _ = write!(
            json,
            ",{name}:{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{offset},{end}]}}"
        );
        offset = end;
    }
    json.push('}');
    // Readers map the file: tensors should begin at multiples of eight bytes.
    let padded = json.len().next_multiple_of(8);
    [&(padded as u64).to_le_bytes(), json.as_bytes(), &vec![b' '; padded - json.len()]].concat()
}

/// Writes the elements of one tensor: the first `bytes` of these words.
pub(super) fn elements(file: &mut impl Write, words: &[u32], bytes: u64) -> io::Result<()> {
    let bytes = bytes as usize;
    if cfg!(target_endian = "little") {
        return file.write_all(&bytemuck::cast_slice(words)[..bytes]);
    }
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(bytes).collect();
    file.write_all(&all)
}

/// Returns `text` as a JSON string (RFC 8259).
fn quoted(text: &str) -> String {
    let mut result = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => result.extend(['\\', character]),
            '\0'..='\u{1f}' => {
                let _ = write!(result, "\\u{:04x}", character as u32);
            }
            _ => result.push(character),
        }
    }
    result + "\""
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::*;

    #[test]
    fn written_files_are_read_by_the_safetensors_crate() {
        let stored = |dtype, shape: &[usize]| Stored {
            dtype,
            written: dtype,
            shape: shape.to_vec(),
            state: false,
            finite: false,
            frozen: false,
        };
        let shapes = [
            ("a \"b\"\n\\".to_owned(), stored(DType::F32, &[2, 3])),
            ("scalar".to_owned(), stored(DType::U32, &[])),
            ("half".to_owned(), stored(DType::F16, &[3])),
        ];
        let all: String = (0..300).filter_map(char::from_u32).collect();
        let notes = BTreeMap::from([("x".to_owned(), "1".to_owned()), ("all".to_owned(), all)]);
        let mut file = header(str::to_owned, &shapes, &notes);
        assert_eq!(file.len() % 8, 0);
        elements(&mut file, &[0.0f32, 1.0, 2.0, 3.0, 4.0, -5.5].map(f32::to_bits), 24).unwrap();
        elements(&mut file, &[7], 4).unwrap();
        elements(&mut file, &DType::F16.pack(&[1.0, 2.0, -0.5]), 6).unwrap();
        let read = SafeTensors::deserialize(&file).unwrap();
        let tensor = read.tensor(&shapes[0].0).unwrap();
        assert_eq!((tensor.shape(), tensor.data().len()), (&[2, 3][..], 24));
        assert_eq!(tensor.data()[20..], (-5.5f32).to_le_bytes());
        let tensor = read.tensor("half").unwrap();
        assert_eq!((tensor.dtype(), tensor.data()), (Dtype::F16, &[0, 0x3c, 0, 0x40, 0, 0xb8][..]));
        let scalar = read.tensor("scalar").unwrap();
        assert_eq!((scalar.dtype(), scalar.data()), (Dtype::U32, &7u32.to_le_bytes()[..]));
        let (_, head) = SafeTensors::read_metadata(&file).unwrap();
        let found: BTreeMap<String, String> = head.metadata().clone().unwrap().into_iter().collect();
        assert_eq!(found, notes);
    }
}
