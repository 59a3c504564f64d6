//! Finds the records of a zip file that are stored as they are, which is how PyTorch writes them (PKWARE's
//! APPNOTE.TXT 6.3, with the 64-bit fields). Compressed records are refused: nothing is ever unpacked, so a file
//! cannot become larger than it is.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

/// A record as the directory at the end of the file describes it.
struct Record {
    /// Where its header begins.
    header: u64,
    /// Its length; stored records have only one.
    bytes: u64,
    stored: bool,
}

/// The directory of a zip file.
pub(super) struct Archive {
    records: BTreeMap<String, Record>,
    bytes: u64,
}

/// Signatures of a record's header, an entry of the directory, the directory's end, and the locator and end with
/// 64-bit fields.
const HEADER: u32 = 0x0403_4b50;
const ENTRY: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;

/// Bytes of the directory's end without its comment, of which there are at most [`u16::MAX`].
const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;

/// Reads the little-endian number of `N` ≤ 8 bytes at `at`; 0 past the end.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + N).unwrap_or_default();
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn signed(bytes: &[u8], at: usize, signature: u32) -> bool {
    number::<4>(bytes, at) == u64::from(signature)
}

/// Reads `range` of a file of `bytes` bytes.
pub(super) fn read_range(
    file: &mut (impl Read + Seek),
    range: Range<u64>,
    bytes: u64,
) -> Result<Vec<u8>, String> {
    if range.start > range.end || range.end > bytes {
        return Err(format!("bytes {} to {} of a file of {bytes}", range.start, range.end));
    }
    let length = usize::try_from(range.end - range.start).map_err(|e| e.to_string())?;
    let mut data = vec![0; length];
    file.seek(SeekFrom::Start(range.start))
        .and_then(|_| file.read_exact(&mut data))
        .map_err(|e| e.to_string())?;
    Ok(data)
}

impl Archive {
    /// Reads the directory.
    pub(super) fn open(file: &mut (impl Read + Seek)) -> Result<Self, String> {
        let bytes = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
        let tail_at = bytes.saturating_sub((END_BYTES + LOCATOR_BYTES + usize::from(u16::MAX)) as u64);
        let tail = read_range(file, tail_at..bytes, bytes)?;
        let ends = |at: usize| {
            signed(&tail, at, END) && at + END_BYTES + number::<2>(&tail, at + 20) as usize == tail.len()
        };
        let end = (0..(tail.len() + 1).saturating_sub(END_BYTES)).rev().find(|at| ends(*at));
        let end = end.ok_or("the zip file has no directory at its end: it is cut off")?;
        let (mut count, mut length, mut start) =
            (number::<2>(&tail, end + 10), number::<4>(&tail, end + 12), number::<4>(&tail, end + 16));
        if let Some(locator) = end.checked_sub(LOCATOR_BYTES).filter(|at| signed(&tail, *at, LOCATOR_64)) {
            let at = number::<8>(&tail, locator + 8);
            let end = read_range(file, at..at.saturating_add(56), bytes)?;
            if !signed(&end, 0, END_64) {
                return Err("the zip file's directory has no end where it should be".to_owned());
            }
            (count, length, start) = (number::<8>(&end, 32), number::<8>(&end, 40), number::<8>(&end, 48));
        }
        let directory = read_range(file, start..start.saturating_add(length), bytes)?;
        let (mut records, mut at) = (BTreeMap::new(), 0);
        for i in 0..count {
            if !signed(&directory, at, ENTRY) {
                return Err(format!("record {i} of {count} is missing in the zip file's directory"));
            }
            let lengths = [28, 30, 32].map(|place| number::<2>(&directory, at + place) as usize);
            let name_at = at + 46;
            let extra_at = name_at + lengths[0];
            at = extra_at + lengths[1] + lengths[2];
            let (Some(name), Some(extra)) =
                (directory.get(name_at..extra_at), directory.get(extra_at..extra_at + lengths[1]))
            else {
                return Err(format!("record {i} of {count} is cut off in the zip file's directory"));
            };
            let entry = &directory[name_at - 46..name_at];
            let mut wide = wide_fields(extra);
            let mut field = |place: usize| match number::<4>(entry, place) {
                0xffff_ffff => wide.next().unwrap_or(u64::MAX),
                narrow => narrow,
            };
            // In the order in which 64-bit fields follow each other.
            let (bytes, packed, header) = (field(24), field(20), field(42));
            let stored = number::<2>(entry, 10) == 0 && number::<2>(entry, 8) & 1 == 0 && packed == bytes;
            records.insert(String::from_utf8_lossy(name).into_owned(), Record { header, bytes, stored });
        }
        Ok(Self { records, bytes })
    }

    /// Returns the names of all records.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.records.keys().map(|name| &name[..])
    }

    /// Returns where the bytes of a record lie in the file.
    pub(super) fn range(&self, file: &mut (impl Read + Seek), name: &str) -> Result<Range<u64>, String> {
        let record = self.records.get(name).ok_or_else(|| format!("the record `{name}` is missing"))?;
        if !record.stored {
            return Err(format!(
                "the record `{name}` is compressed or encrypted; `torch.save` stores it as it is"
            ));
        }
        let header = read_range(file, record.header..record.header.saturating_add(30), self.bytes)?;
        if !signed(&header, 0, HEADER) {
            return Err(format!("the record `{name}` has no header where it should be"));
        }
        let start = record.header + 30 + number::<2>(&header, 26) + number::<2>(&header, 28);
        match start.checked_add(record.bytes).filter(|end| *end <= self.bytes) {
            Some(end) => Ok(start..end),
            None => Err(format!(
                "the record `{name}` of {} bytes does not fit in the file of {}",
                record.bytes, self.bytes
            )),
        }
    }
}

/// Returns the 64-bit fields of an entry, which stand in for those that 32 bits do not hold.
fn wide_fields(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut at = 0;
    let mut found: &[u8] = &[];
    while at + 4 <= extra.len() {
        let (id, length) = (number::<2>(extra, at), number::<2>(extra, at + 2) as usize);
        if id == 1 {
            found = extra.get(at + 4..at + 4 + length).unwrap_or_default();
        }
        at += 4 + length;
    }
    found.chunks_exact(8).map(|bytes| number::<8>(bytes, 0))
}
