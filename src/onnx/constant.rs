//! Tensors whose elements are known when the file is read: shapes, indices, small numbers.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::proto::TensorProto;

/// A tensor of numbers; integers are exact up to 2⁵³.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    pub(super) dims: Vec<usize>,
    pub(super) data: Vec<f64>,
    /// Integers or booleans: division truncates.
    pub(super) integer: bool,
}

/// Most elements of a constant that is computed from others.
const MAX_FOLDED: usize = 1 << 22;

impl Constant {
    /// A vector of integers.
    pub(super) fn ints(data: impl IntoIterator<Item = i64>) -> Self {
        let data: Vec<f64> = data.into_iter().map(|n| n as f64).collect();
        Self { dims: vec![data.len()], data, integer: true }
    }

    pub(super) fn scalar(value: f64, integer: bool) -> Self {
        Self { dims: Vec::new(), data: vec![value], integer }
    }

    /// Returns the elements as integers.
    pub(super) fn as_ints(&self) -> Vec<i64> {
        self.data.iter().map(|x| *x as i64).collect()
    }

    /// Returns the number, if there is one.
    pub(super) fn single(&self) -> Option<f64> {
        if let [x] = self.data[..] { Some(x) } else { None }
    }

    /// Applies `f` to each element.
    pub(super) fn map(&self, integer: bool, f: impl Fn(f64) -> f64) -> Self {
        Self { dims: self.dims.clone(), data: self.data.iter().map(|x| f(*x)).collect(), integer }
    }

    /// Applies `f` to pairs of elements; dimensions broadcast.
    pub(super) fn zip(
        &self,
        other: &Self,
        integer: bool,
        f: impl Fn(f64, f64) -> f64,
    ) -> Result<Self, String> {
        let dims = broadcast(&self.dims, &other.dims)?;
        let (a, b) = (self.expand(&dims)?, other.expand(&dims)?);
        let data = a.data.iter().zip(&b.data).map(|(x, y)| f(*x, *y)).collect();
        Ok(Self { dims, data, integer })
    }

    /// Repeats dimensions of length 1.
    pub(super) fn expand(&self, dims: &[usize]) -> Result<Self, String> {
        if self.dims == dims {
            return Ok(self.clone());
        }
        let missing = dims.len().checked_sub(self.dims.len()).ok_or("a constant has too many dimensions")?;
        let strides = strides(&self.dims);
        let walk: Vec<usize> = (0..dims.len())
            .map(|i| if i < missing || self.dims[i - missing] == 1 { 0 } else { strides[i - missing] })
            .collect();
        self.walked(dims, &walk, 0)
    }

    /// Reorders dimensions.
    pub(super) fn permute(&self, perm: &[usize]) -> Result<Self, String> {
        let strides = strides(&self.dims);
        let dims: Vec<usize> = perm.iter().map(|&axis| self.dims[axis]).collect();
        self.walked(&dims, &perm.iter().map(|&axis| strides[axis]).collect::<Vec<_>>(), 0)
    }

    /// Takes the elements at `places` along `axis`.
    pub(super) fn take(&self, axis: usize, places: &[usize]) -> Result<Self, String> {
        let (outer, along, inner) = around(&self.dims, axis);
        if let Some(place) = places.iter().find(|place| **place >= along) {
            return Err(format!("index {place} along an axis of {along}"));
        }
        let mut dims = self.dims.clone();
        dims[axis] = places.len();
        folded(&dims)?;
        let mut data = Vec::with_capacity(outer * places.len() * inner);
        for o in 0..outer {
            for place in places {
                let start = (o * along + place) * inner;
                data.extend_from_slice(&self.data[start..start + inner]);
            }
        }
        Ok(Self { dims, data, integer: self.integer })
    }

    /// Concatenates along `axis`.
    pub(super) fn concat(parts: &[Self], axis: usize) -> Result<Self, String> {
        let first = parts.first().ok_or("nothing to concatenate")?;
        let mut dims = first.dims.clone();
        let fits = |part: &Self| {
            part.dims.len() == dims.len()
                && part.dims.iter().zip(&dims).enumerate().all(|(i, (a, b))| i == axis || a == b)
        };
        if axis >= dims.len() || !parts.iter().all(fits) {
            return Err("constants that do not fit together".to_owned());
        }
        dims[axis] = parts.iter().map(|part| part.dims[axis]).sum();
        folded(&dims)?;
        let outer = product(&dims[..axis]);
        let mut data = Vec::new();
        for o in 0..outer {
            for part in parts {
                let len = part.data.len() / outer.max(1);
                data.extend_from_slice(&part.data[o * len..(o + 1) * len]);
            }
        }
        Ok(Self { dims, data, integer: parts.iter().all(|part| part.integer) })
    }

    fn walked(&self, dims: &[usize], walk: &[usize], start: usize) -> Result<Self, String> {
        let count = folded(dims)?;
        let mut data = Vec::with_capacity(count);
        let mut at = vec![0; dims.len()];
        for _ in 0..count {
            data.push(self.data[start + at.iter().zip(walk).map(|(i, s)| i * s).sum::<usize>()]);
            for axis in (0..dims.len()).rev() {
                at[axis] += 1;
                if at[axis] < dims[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
        Ok(Self { dims: dims.to_vec(), data, integer: self.integer })
    }
}

/// Returns the number of elements, unless there are too many to compute on the host.
pub(super) fn folded(dims: &[usize]) -> Result<usize, String> {
    let count = dims.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
    count
        .filter(|count| *count <= MAX_FOLDED)
        .ok_or_else(|| format!("a constant of shape {dims:?} is too large"))
}

/// Elements before, along and after an axis.
fn around(dims: &[usize], axis: usize) -> (usize, usize, usize) {
    (product(&dims[..axis]), dims[axis], product(&dims[axis + 1..]))
}

fn strides(dims: &[usize]) -> Vec<usize> {
    (0..dims.len()).map(|i| product(&dims[i + 1..])).collect()
}

/// Saturates where another dimension is 0, so that there are no elements.
fn product(dims: &[usize]) -> usize {
    dims.iter().fold(1, |n, dim| n.saturating_mul(*dim))
}

/// The shape of two broadcast shapes.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(format!("{a:?} and {b:?} do not broadcast")),
        })
        .collect()
}

/// Returns the dimensions of a tensor in the file.
pub(super) fn dims_of(tensor: &TensorProto) -> Result<Vec<usize>, String> {
    let dim =
        |&dim: &i64| usize::try_from(dim).map_err(|_| format!("tensor `{}`: dimension {dim}", tensor.name));
    tensor.dims.iter().map(dim).collect()
}

/// Whether ONNX's element type is an integer or boolean, or a float; an error for others.
pub(super) fn is_integer(data_type: i32) -> Result<bool, String> {
    match data_type {
        1 | 10 | 11 | 16 => Ok(false),
        2..=7 | 9 | 12 | 13 => Ok(true),
        _ => Err(format!("elements of ONNX's type {data_type}")),
    }
}

/// Bytes of an element in `raw_data`.
fn width(data_type: i32) -> usize {
    match data_type {
        2 | 3 | 9 => 1,
        4 | 5 | 10 | 16 => 2,
        7 | 11 | 13 => 8,
        _ => 4,
    }
}

/// Reads the elements of a tensor; `folder` is where external data may lie.
pub(super) fn elements(tensor: &TensorProto, folder: Option<&Path>) -> Result<Vec<f64>, String> {
    let dims = dims_of(tensor)?;
    let count = dims.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
    let count = count.ok_or_else(|| format!("tensor `{}` {dims:?} is too large", tensor.name))?;
    is_integer(tensor.data_type).map_err(|why| format!("tensor `{}`: {why}", tensor.name))?;
    let raw = raw_bytes(tensor, folder, count)?;
    let found: Vec<f64> = if !raw.is_empty() {
        from_bytes(tensor.data_type, &raw)
    } else {
        match tensor.data_type {
            10 => tensor.int32_data.iter().map(|bits| half::f16::from_bits(*bits as u16).to_f64()).collect(),
            16 => tensor.int32_data.iter().map(|bits| half::bf16::from_bits(*bits as u16).to_f64()).collect(),
            1 => tensor.float_data.iter().map(|x| f64::from(*x)).collect(),
            7 => tensor.int64_data.iter().map(|x| *x as f64).collect(),
            11 => tensor.double_data.clone(),
            12 | 13 => tensor.uint64_data.iter().map(|x| *x as f64).collect(),
            _ => tensor.int32_data.iter().map(|x| f64::from(*x)).collect(),
        }
    };
    if found.len() != count {
        return Err(format!("tensor `{}` {dims:?} has {} elements", tensor.name, found.len()));
    }
    Ok(found)
}

/// Reads the elements of a tensor as `f32`, which most weights are stored as.
pub(super) fn floats(tensor: &TensorProto, folder: Option<&Path>) -> Result<Arc<[f32]>, String> {
    if tensor.data_type == 1 {
        let dims = dims_of(tensor)?;
        if let Some(count) = dims.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim)) {
            let raw = raw_bytes(tensor, folder, count)?;
            if !raw.is_empty() {
                let float = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                return Ok(raw.chunks_exact(4).map(float).collect());
            }
        }
    }
    Ok(elements(tensor, folder)?.into_iter().map(|x| x as f32).collect())
}

/// Checks that a tensor has as many elements as its dimensions say, and reads as little of it as that takes.
pub(super) fn check_size(tensor: &TensorProto, folder: Option<&Path>) -> Result<(), String> {
    if tensor.data_location != 1 && tensor.raw_data.is_empty() {
        return elements(tensor, folder).map(|_| ());
    }
    let dims = dims_of(tensor)?;
    let count = dims.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
    let count = count.ok_or_else(|| format!("tensor `{}` {dims:?} is too large", tensor.name))?;
    match tensor.data_location {
        1 => external(tensor, folder, count.saturating_mul(width(tensor.data_type))).map(|_| ()),
        _ => raw_bytes(tensor, folder, count).map(|_| ()),
    }
}

/// The bytes of `count` elements, in the file or outside of it; none where they are stored as numbers.
fn raw_bytes<'t>(
    tensor: &'t TensorProto,
    folder: Option<&Path>,
    count: usize,
) -> Result<Cow<'t, [u8]>, String> {
    let bytes = count.saturating_mul(width(tensor.data_type));
    if tensor.data_location == 1 {
        return read_external(tensor, folder, bytes).map(Cow::Owned);
    }
    let raw = &tensor.raw_data[..];
    if !raw.is_empty() && raw.len() != bytes {
        return Err(format!("tensor `{}` {:?} has {} bytes", tensor.name, tensor.dims, raw.len()));
    }
    Ok(Cow::Borrowed(raw))
}

fn from_bytes(data_type: i32, raw: &[u8]) -> Vec<f64> {
    macro_rules! numbers {
        ($type:ty) => {
            raw.chunks_exact(size_of::<$type>())
                .map(|bytes| <$type>::from_le_bytes(bytes.try_into().unwrap_or_default()) as f64)
                .collect()
        };
    }
    match data_type {
        1 => numbers!(f32),
        2 | 9 => numbers!(u8),
        3 => numbers!(i8),
        4 => numbers!(u16),
        5 => numbers!(i16),
        6 => numbers!(i32),
        7 => numbers!(i64),
        11 => numbers!(f64),
        12 => numbers!(u32),
        13 => numbers!(u64),
        10 => raw.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f64()).collect(),
        _ => raw.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f64()).collect(),
    }
}

/// Reads the bytes of a tensor beside the file.
fn read_external(tensor: &TensorProto, folder: Option<&Path>, bytes: usize) -> Result<Vec<u8>, String> {
    use std::io::{Read, Seek, SeekFrom};
    let (mut file, offset) = external(tensor, folder, bytes)?;
    let mut data = vec![0; bytes];
    let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut data));
    read.map_err(|e| format!("external data of tensor `{}`: {e}", tensor.name))?;
    Ok(data)
}

/// The file beside the model with the bytes of a tensor, and where they begin; never outside of its folder.
fn external(
    tensor: &TensorProto,
    folder: Option<&Path>,
    bytes: usize,
) -> Result<(std::fs::File, u64), String> {
    let wrong = |why: &str| format!("external data of tensor `{}`: {why}", tensor.name);
    let entry =
        |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| &entry.value[..]);
    let folder = folder.ok_or_else(|| wrong("a model from memory has none"))?;
    let location = entry("location").ok_or_else(|| wrong("no location"))?;
    let path = folder.join(location);
    let inside = || Some(path.canonicalize().ok()?.starts_with(folder.canonicalize().ok()?));
    if Path::new(location).is_absolute() || inside() == Some(false) {
        return Err(wrong(&format!("`{location}` lies outside of the model's folder")));
    }
    let number = |key: &str| entry(key).map(str::parse::<u64>).transpose().map_err(|_| wrong(key));
    let offset = number("offset")?.unwrap_or(0);
    let file = std::fs::File::open(&path).map_err(|e| wrong(&format!("{}: {e}", path.display())))?;
    let whole = file.metadata().map_err(|e| wrong(&e.to_string()))?.len();
    if number("length")?.is_some_and(|length| length != bytes as u64)
        || offset.saturating_add(bytes as u64) > whole
    {
        return Err(wrong(&format!("{bytes} bytes at {offset} of `{location}`, which has {whole}")));
    }
    Ok((file, offset))
}
