//! Reading of a file of tensors, piece by piece: a model is never in host memory as a whole.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::{failed, shards};
use crate::dtype::DType;
use crate::error::Result;
use crate::pt::{self, Element, StoredTensor};

/// Bytes read at a time: a multiple of the size of every type that is read.
const PIECE: usize = 1 << 20;
/// The longest header that the format allows.
const LONGEST_HEADER: u64 = 100_000_000;

/// A tensor of a file.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Which of the files it lies in, and where its first element lies there.
    pub(super) start: (usize, u64),
    /// How its elements are arranged, if they do not lie one after the other.
    view: Option<StoredTensor>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.width()
    }

    /// Bytes of an element.
    fn width(&self) -> usize {
        self.dtype.bitsize() / 8
    }
}

/// Where a file is read from.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    Path(&'a Path),
    /// Its contents, and its name for errors.
    Memory(&'a Path, &'a [u8]),
}

impl<'a> Origin<'a> {
    pub(crate) fn path(self) -> &'a Path {
        match self {
            Self::Path(path) | Self::Memory(path, _) => path,
        }
    }
}

trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

type Parts<'a> = Vec<(PathBuf, Box<dyn ReadSeek + 'a>)>;

/// An open file of tensors that are within its length, or several that hold one model.
pub(super) struct File<'a> {
    path: PathBuf,
    parts: Parts<'a>,
    tensors: BTreeMap<String, Entry>,
    notes: BTreeMap<String, String>,
}

/// The first bytes of a zip file.
const ZIP: [u8; 4] = *b"PK\x03\x04";
/// The first bytes of what `torch.save` wrote before PyTorch 1.6: a pickle of protocol 2 that begins with a long number.
const PICKLE: [u8; 8] = *b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46";

impl<'a> File<'a> {
    /// Reads only the header, of a safetensors file or of a state dict in PyTorch's format; or those of all files of an
    /// index, or of the folder of a model ([`shards::files`]).
    pub(super) fn open(from: Origin<'a>) -> Result<Self> {
        let path = match from {
            Origin::Path(path) => path,
            Origin::Memory(path, bytes) => return Self::of(path, Cursor::new(bytes), bytes.len() as u64),
        };
        let files = shards::files(path)?;
        let mut all = Self {
            path: path.to_owned(),
            parts: Vec::new(),
            tensors: BTreeMap::new(),
            notes: BTreeMap::new(),
        };
        for (part, (path, listed)) in files.into_iter().enumerate() {
            let Self { parts, tensors, notes, .. } = Self::open_one(&path)?;
            if let Some(name) = listed.iter().find(|name| !tensors.contains_key(*name)) {
                return Err(failed(
                    &path,
                    &format!("the index has `{name}` in this file, and it is not there"),
                ));
            }
            all.parts.extend(parts);
            all.notes.extend(notes);
            for name in tensors.keys() {
                if let Some(Entry { start: (other, _), .. }) = all.tensors.get(name) {
                    let other = all.parts[*other].0.display();
                    return Err(failed(&path, &format!("`{name}` is in this file and in {other}")));
                }
            }
            let placed =
                |(name, entry): (String, Entry)| (name, Entry { start: (part, entry.start.1), ..entry });
            all.tensors.extend(tensors.into_iter().map(placed));
        }
        Ok(all)
    }

    fn open_one(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path).map_err(|e| failed(path, &e))?;
        let bytes = file.metadata().map_err(|e| failed(path, &e))?.len();
        Self::of(path, file, bytes)
    }

    fn of(path: &Path, mut file: impl Read + Seek + 'a, bytes: u64) -> Result<Self> {
        let damaged = |why: String| failed(path, &format!("damaged: {why}"));
        let Some(rest) = bytes.checked_sub(8) else {
            return Err(damaged(format!("{bytes} bytes are no safetensors file")));
        };
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|e| failed(path, &e))?;
        // The length of a header begins with these bytes, too, but those after them are then 0. In a zip file those are
        // a version and flags, of which PyTorch sets some.
        if length.starts_with(&ZIP) && length[4..] != [0; 4] {
            let tensors = pt::read(&mut file).map_err(|why| failed(path, &why))?;
            let tensors = tensors.into_iter().map(|(name, tensor)| (name, of_pytorch(tensor))).collect();
            let parts: Parts<'a> = vec![(path.to_owned(), Box::new(file))];
            return Ok(Self { path: path.to_owned(), parts, tensors, notes: BTreeMap::new() });
        }
        if length == PICKLE {
            let why = "a pickle in PyTorch's format from before 1.6; load it in PyTorch and save it again";
            return Err(failed(path, &why));
        }
        let length = u64::from_le_bytes(length);
        if length > rest.min(LONGEST_HEADER) {
            return Err(damaged(format!("a header of {length} bytes in a file of {bytes}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(|e| failed(path, &e))?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|e| damaged(e.to_string()))?;
        let start = 8 + length;
        let wanted = start + header.data_len() as u64;
        if wanted != bytes {
            return Err(damaged(format!("the header describes {wanted} bytes, the file has {bytes}")));
        }
        let entry = |(name, info): (String, &TensorInfo)| {
            let start = start + info.data_offsets.0 as u64;
            (name, Entry { dtype: info.dtype, shape: info.shape.clone(), start: (0, start), view: None })
        };
        let tensors = header.tensors().into_iter().map(entry).collect();
        let notes = header.metadata().clone().unwrap_or_default().into_iter().collect();
        let parts: Parts<'a> = vec![(path.to_owned(), Box::new(file))];
        Ok(Self { path: path.to_owned(), parts, tensors, notes })
    }

    /// Returns the path of the file, or of the index or folder of several.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the notes (metadata strings) in the header.
    pub(super) fn notes(&self) -> BTreeMap<String, String> {
        self.notes.clone()
    }

    /// Returns every tensor, by its name in the file.
    pub(super) fn tensors(&self) -> BTreeMap<String, Entry> {
        self.tensors.clone()
    }

    /// Returns the elements of a tensor as `held` stores them, rounded to nearest, ties to even, and the
    /// number of finite elements that became infinite. `u32` words are returned as their bits. The types must
    /// be [convertible](converts).
    pub(super) fn elements(&mut self, entry: &Entry, held: DType) -> Result<(Vec<f32>, u64)> {
        let (mut all, mut overflowed) = (Vec::with_capacity(entry.shape.iter().product()), 0);
        let exact = matches!((entry.dtype, held), (Dtype::F32, DType::F32) | (Dtype::U32, DType::U32));
        let width = entry.width();
        self.pieces(entry, |piece| {
            for element in piece.chunks_exact(width) {
                all.push(if exact {
                    f32::from_bits(u32::from_le_bytes(array(element)))
                } else {
                    let element = wide(entry.dtype, element);
                    let stored = nearest(element, held);
                    overflowed += u64::from(element.is_finite() && !stored.is_finite());
                    stored
                });
            }
        })?;
        Ok((all, overflowed))
    }

    /// Returns the first element of a floating-point tensor that is not finite as `held` stores it: its position,
    /// its value in the file, and as stored.
    pub(super) fn non_finite(&mut self, entry: &Entry, held: DType) -> Result<Option<(u64, f64, f32)>> {
        let (mut found, mut before) = (None, 0);
        let width = entry.width();
        self.pieces(entry, |piece| {
            if found.is_none() {
                let elements = piece.chunks_exact(width).map(|element| wide(entry.dtype, element));
                let mut stored = (before..).zip(elements).map(|(i, x)| (i, x, nearest(x, held)));
                found = stored.find(|(_, _, stored)| !stored.is_finite());
                before += (piece.len() / width) as u64;
            }
        })?;
        Ok(found)
    }

    /// Whether two tensors have the same type, shape and bytes.
    pub(super) fn equal(&mut self, a: &Entry, b: &Entry) -> Result<bool> {
        if (a.dtype, &a.shape) != (b.dtype, &b.shape) {
            return Ok(false);
        }
        if a.view.is_some() || b.view.is_some() {
            return Ok(self.gathered(a)? == self.gathered(b)?);
        }
        let (mut one, mut other) = (vec![0; PIECE.min(a.bytes())], vec![0; PIECE.min(a.bytes())]);
        for at in (0..a.bytes()).step_by(PIECE) {
            let n = PIECE.min(a.bytes() - at);
            self.read(a.start, at, &mut one[..n])?;
            self.read(b.start, at, &mut other[..n])?;
            if one[..n] != other[..n] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes all bytes of a tensor to `take`, in whole elements.
    fn pieces(&mut self, entry: &Entry, mut take: impl FnMut(&[u8])) -> Result<()> {
        if entry.view.is_some() {
            self.gathered(entry)?.chunks(PIECE).for_each(take);
            return Ok(());
        }
        let mut piece = vec![0; PIECE.min(entry.bytes())];
        for at in (0..entry.bytes()).step_by(PIECE) {
            let n = PIECE.min(entry.bytes() - at);
            self.read(entry.start, at, &mut piece[..n])?;
            take(&piece[..n]);
        }
        Ok(())
    }

    /// Returns all bytes of a tensor in row-major order. What the view leaves out is read as well.
    fn gathered(&mut self, entry: &Entry) -> Result<Vec<u8>> {
        let Some(view) = &entry.view else {
            let mut bytes = vec![0; entry.bytes()];
            self.read(entry.start, 0, &mut bytes)?;
            return Ok(bytes);
        };
        let width = entry.width();
        let mut span = vec![0; view.span() as usize * width];
        self.read(entry.start, 0, &mut span)?;
        let mut bytes = Vec::with_capacity(entry.bytes());
        view.positions(|at| bytes.extend_from_slice(&span[at * width..(at + 1) * width]));
        Ok(bytes)
    }

    /// Reads from `at` bytes past `start`.
    fn read(&mut self, (part, start): (usize, u64), at: usize, bytes: &mut [u8]) -> Result<()> {
        let (path, file) = &mut self.parts[part];
        let read = file.seek(SeekFrom::Start(start + at as u64));
        read.and_then(|_| file.read_exact(bytes)).map_err(|e| failed(path, &e))
    }
}

fn of_pytorch(tensor: StoredTensor) -> Entry {
    let dtype = match tensor.element {
        Element::F32 => Dtype::F32,
        Element::F64 => Dtype::F64,
        Element::F16 => Dtype::F16,
        Element::BF16 => Dtype::BF16,
        Element::I64 => Dtype::I64,
        Element::I32 => Dtype::I32,
        Element::I16 => Dtype::I16,
        Element::I8 => Dtype::I8,
        Element::U8 => Dtype::U8,
        Element::Bool => Dtype::BOOL,
    };
    let (shape, start) = (tensor.shape.clone(), (0, tensor.start));
    Entry { dtype, shape, start, view: (!tensor.is_contiguous()).then_some(tensor) }
}

/// Whether [`File::elements`] can convert the file's type to `held`.
pub(super) fn converts(file: Dtype, held: DType) -> bool {
    match held {
        DType::U32 => file == Dtype::U32,
        _ => {
            matches!(file, Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F64)
        }
    }
}

/// Widens an element of a floating-point type that [converts], exactly.
fn wide(dtype: Dtype, element: &[u8]) -> f64 {
    match dtype {
        Dtype::F16 => f16::from_le_bytes(array(element)).to_f64(),
        Dtype::BF16 => bf16::from_le_bytes(array(element)).to_f64(),
        Dtype::F64 => f64::from_le_bytes(array(element)),
        _ => f64::from(f32::from_le_bytes(array(element))),
    }
}

/// Rounds `x` to the nearest number of the type `held`, ties to even. Beyond the largest number it becomes
/// infinite.
fn nearest(x: f64, held: DType) -> f32 {
    match held {
        DType::F16 => f16::from_f32(to_odd(x)).to_f32(),
        DType::BF16 => bf16::from_f32(to_odd(x)).to_f32(),
        _ => x as f32,
    }
}

/// Rounds `x` to 24 bits, setting the last bit if bits are lost (rounding to odd). Rounding the result once
/// more, to 22 bits or fewer, gives the same as rounding `x` itself (Boldo & Melquiond 2008). Rounding to
/// nearest twice would not, near ties.
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if x.is_nan() || f64::from(near) == x {
        return near;
    }
    let toward_zero = near.to_bits() - u32::from(f64::from(near).abs() > x.abs());
    f32::from_bits(toward_zero | 1)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("pieces are cut into whole elements")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers of a 16-bit type, each with the values around the midpoint to its neighbour: they are
    /// rounded once, not twice.
    #[test]
    fn f64_is_rounded_once_to_the_nearest_16_bit_number() {
        let all = |held: DType| {
            let number = move |bits: u16| match held {
                DType::F16 => f16::from_bits(bits).to_f64(),
                _ => bf16::from_bits(bits).to_f64(),
            };
            (0..u16::MAX >> 1)
                .map(move |bits| (number(bits), number(bits + 1), bits))
                .filter(|p| p.1.is_finite())
        };
        for held in [DType::F16, DType::BF16] {
            let mut pairs = 0;
            for (low, high, bits) in all(held) {
                let middle = low + (high - low) / 2.0;
                let even = if bits % 2 == 0 { low } else { high };
                for (x, wanted) in [
                    (low, low),
                    (middle.next_down(), low),
                    (middle, even),
                    (middle.next_up(), high),
                    (middle * (1.0 + 1e-12), high),
                ] {
                    assert_eq!(
                        f64::from(nearest(x, held)),
                        wanted,
                        "{held}: {x:e} between {low:e} and {high:e}"
                    );
                    assert_eq!(f64::from(nearest(-x, held)), -wanted, "{held}: -{x:e}");
                }
                pairs += 1;
            }
            assert!(pairs > 31_000, "{held}: {pairs}");
            for x in [1e300, f64::INFINITY] {
                assert_eq!(nearest(x, held), f32::INFINITY);
                assert_eq!(nearest(-x, held), f32::NEG_INFINITY);
            }
            assert_eq!(nearest(1e-300, held).to_bits(), 0);
            assert_eq!(nearest(-1e-300, held).to_bits(), (-0f32).to_bits());
            assert!(nearest(f64::NAN, held).is_nan());
        }
        // Below 65,520 the nearest number is 65,504, the largest finite one.
        assert_eq!(nearest(65_519.999, DType::F16), 65_504.0);
        assert_eq!(nearest(65_520.0, DType::F16), f32::INFINITY);
        assert_eq!(nearest(0.1, DType::F32), 0.1);
    }
}
