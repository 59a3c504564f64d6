//! Finds the tensors of a `.pt` file, a state dict as `torch.save` has written it since PyTorch 1.6: a zip file with
//! a pickle that describes the tensors, and a record of bytes for each storage. Nothing in it is executed.

mod zip;

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::ops::Range;

use crate::pickle::{Id, Pickle, Value};
use zip::{Archive, read_range};

/// Types of elements, by the class of PyTorch's storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `torch.float32`
    F32,
    /// `torch.float64`
    F64,
    /// `torch.float16`
    F16,
    /// `torch.bfloat16`
    BF16,
    /// `torch.int64`
    I64,
    /// `torch.int32`
    I32,
    /// `torch.int16`
    I16,
    /// `torch.int8`
    I8,
    /// `torch.uint8`
    U8,
    /// `torch.bool`
    Bool,
}

impl Element {
    /// Returns the bytes of an element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    fn of_storage(class: &str) -> Option<Self> {
        STORAGES.iter().find(|(name, _)| *name == class).map(|(_, element)| *element)
    }
}

const STORAGES: [(&str, Element); 10] = [
    ("torch.FloatStorage", Element::F32),
    ("torch.DoubleStorage", Element::F64),
    ("torch.HalfStorage", Element::F16),
    ("torch.BFloat16Storage", Element::BF16),
    ("torch.LongStorage", Element::I64),
    ("torch.IntStorage", Element::I32),
    ("torch.ShortStorage", Element::I16),
    ("torch.CharStorage", Element::I8),
    ("torch.ByteStorage", Element::U8),
    ("torch.BoolStorage", Element::Bool),
];

/// Functions that rebuild a tensor: of a storage, offset, shape and strides; and of another tensor.
const TENSOR: &str = "torch._utils._rebuild_tensor_v2";
const PARAMETERS: [&str; 2] =
    ["torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"];

/// Other names that checkpoints have beside their tensors.
const OTHERS: [&str; 11] = [
    "collections.OrderedDict",
    "torch.Size",
    "torch.device",
    "torch.float32",
    "torch.float64",
    "torch.float16",
    "torch.bfloat16",
    "torch.int64",
    "torch.int32",
    "torch.uint8",
    "torch.bool",
];

/// Keys under which checkpoints keep the state dict of their model.
const WRAPPERS: [&str; 4] = ["state_dict", "model_state_dict", "model", "module"];

/// Longest chain of parameters, and of dicts around the state dict.
const DEPTH: usize = 4;

/// A tensor of a file; its elements are within the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// Type of the elements, little-endian.
    pub element: Element,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements from one index to the next, for each dimension; 0 for those of length 1.
    pub strides: Vec<usize>,
    /// Where the first element lies in the file.
    pub start: u64,
}

impl StoredTensor {
    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&dim| dim as u64).product()
    }

    /// Returns the elements from the first one to the last one in memory, those between them included.
    pub fn span(&self) -> u64 {
        match self.elements() {
            0 => 0,
            _ => {
                self.shape.iter().zip(&self.strides).map(|(d, s)| (d - 1) as u64 * *s as u64).sum::<u64>() + 1
            }
        }
    }

    /// Whether the elements lie one after the other, in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut next = 1;
        self.elements() == 0
            || self.shape.iter().zip(&self.strides).rev().all(|(&dim, &stride)| {
                let fits = dim == 1 || stride == next;
                next *= dim;
                fits
            })
    }

    /// Passes the position of each element, in elements from the first one, in row-major order.
    pub fn positions(&self, mut take: impl FnMut(usize)) {
        let mut index = vec![0; self.shape.len()];
        let mut at = 0;
        for _ in 0..self.elements() {
            take(at);
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                at += self.strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                at -= self.strides[axis] * self.shape[axis];
                index[axis] = 0;
            }
        }
    }
}

/// Returns the tensors of the state dict in a file, by name. It may lie in a dict under `state_dict`,
/// `model_state_dict`, `model` or `module`; entries that are no tensors are left out. Takes memory in proportion to
/// the pickle in the file.
///
/// # Errors
/// A sentence: the file is damaged, is no state dict, or its pickle imports a name that is not known.
pub fn read(file: &mut (impl Read + Seek)) -> Result<BTreeMap<String, StoredTensor>, String> {
    let archive = Archive::open(file)?;
    // All records are in a folder whose name is that of the file when it was saved.
    let folder = archive.names().find_map(|name| name.strip_suffix("data.pkl"));
    let folder = folder.filter(|folder| folder.is_empty() || folder.ends_with('/'));
    let folder =
        folder.ok_or("a zip file without the record `data.pkl` that `torch.save` writes")?.to_owned();
    let bytes = |file: &mut _, name: &str, range: Range<u64>| {
        read_range(file, range.clone(), range.end).map_err(|why| format!("the record `{name}`: {why}"))
    };
    let order = format!("{folder}byteorder");
    if archive.names().any(|name| name == order) {
        let range = archive.range(file, &order)?;
        if range.end - range.start != 6 || bytes(file, &order, range)? != b"little" {
            return Err("saved by a big-endian machine; only little-endian files are read".to_owned());
        }
    }
    let name = format!("{folder}data.pkl");
    let range = archive.range(file, &name)?;
    let pickle = bytes(file, &name, range)?;
    let names = STORAGES.map(|(name, _)| name);
    let names: Vec<&str> = [&names[..], &OTHERS, &PARAMETERS, &[TENSOR]].concat();
    let pickle = Pickle::read_with(&pickle, &names).map_err(|e| format!("the record `{name}`: {e}"))?;
    let reader = Reader { pickle: &pickle, archive: &archive, folder: &folder };
    let dict = reader.state_dict()?;
    let mut tensors = BTreeMap::new();
    for (name, id) in reader.entries(dict) {
        if let Some(operands) = reader.tensor(id) {
            let tensor = reader.stored(file, operands).map_err(|why| format!("tensor `{name}`: {why}"))?;
            tensors.insert(name.to_owned(), tensor);
        }
    }
    Ok(tensors)
}

struct Reader<'a> {
    pickle: &'a Pickle,
    archive: &'a Archive,
    folder: &'a str,
}

impl<'a> Reader<'a> {
    /// Returns the entries of a dict whose keys are texts.
    fn entries(&self, dict: Id) -> impl Iterator<Item = (&'a str, Id)> + use<'a> {
        let pickle = self.pickle;
        let entries = if let Value::Dict(entries) = pickle.value(dict) { &entries[..] } else { &[] };
        entries.iter().filter_map(move |(key, value)| match pickle.value(*key) {
            Value::Text(key) => Some((&key[..], *value)),
            _ => None,
        })
    }

    /// Returns the operands from which a tensor is rebuilt, if the value is one.
    fn tensor(&self, mut id: Id) -> Option<&'a [Id]> {
        for _ in 0..DEPTH {
            let Value::Call(name, operands) = self.pickle.value(id) else { return None };
            let Value::List(operands) = self.pickle.value(*operands) else { return None };
            if name == TENSOR {
                return Some(operands);
            }
            id = *operands.first().filter(|_| PARAMETERS.contains(&&name[..]))?;
        }
        None
    }

    fn has_tensors(&self, dict: Id) -> bool {
        self.entries(dict).any(|(_, id)| self.tensor(id).is_some())
    }

    /// Returns the dict of tensors, by itself or in a dict around it.
    fn state_dict(&self) -> Result<Id, String> {
        let root = self.pickle.root();
        let mut dict = root;
        for _ in 0..DEPTH {
            let inner = WRAPPERS.iter().filter_map(|key| self.pickle.get(dict, key));
            let inner = inner.filter(|id| matches!(self.pickle.value(*id), Value::Dict(_)));
            match inner.into_iter().next() {
                Some(inner) => dict = inner,
                None => break,
            }
        }
        if self.has_tensors(dict) {
            return Ok(dict);
        }
        let keys: Vec<String> = self.entries(root).take(8).map(|(key, _)| format!("`{key}`")).collect();
        let found = match (self.pickle.value(root), keys.len()) {
            (Value::Dict(_), 1..) => format!("a dict with {}", keys.join(", ")),
            (Value::Dict(_), _) => "an empty dict".to_owned(),
            _ => "something that is no dict".to_owned(),
        };
        Err(format!(
            "no state dict is in it, nor under {}, but {found}; save one with `torch.save(model.state_dict(), …)`",
            WRAPPERS.map(|key| format!("`{key}`")).join(", ")
        ))
    }

    fn list(&self, id: Id) -> Option<&'a [Id]> {
        if let Value::List(items) = self.pickle.value(id) { Some(items) } else { None }
    }

    /// Returns a tuple of lengths.
    fn lengths(&self, id: Id) -> Option<Vec<usize>> {
        let length = |id: &Id| match self.pickle.value(*id) {
            Value::Int(length) => usize::try_from(*length).ok(),
            _ => None,
        };
        self.list(id)?.iter().map(length).collect()
    }

    /// Returns the tensor rebuilt from `storage, offset, shape, strides, ..`.
    fn stored(&self, file: &mut (impl Read + Seek), operands: &[Id]) -> Result<StoredTensor, String> {
        let wrong = || "not described as PyTorch describes one".to_owned();
        let [storage, offset, shape, strides, ..] = *operands else { return Err(wrong()) };
        let Value::External(description) = *self.pickle.value(storage) else { return Err(wrong()) };
        // "storage", its class, the name of its record, the device and the number of elements.
        let [_, class, key, ..] = *self.list(description).ok_or_else(wrong)? else { return Err(wrong()) };
        let (Value::Name(class), Value::Text(key)) = (self.pickle.value(class), self.pickle.value(key))
        else {
            return Err(wrong());
        };
        let element = Element::of_storage(class).ok_or_else(|| format!("a storage of class `{class}`"))?;
        let Value::Int(offset) = *self.pickle.value(offset) else { return Err(wrong()) };
        let (Some(shape), Some(strides)) = (self.lengths(shape), self.lengths(strides)) else {
            return Err(wrong());
        };
        if shape.len() != strides.len() {
            return Err(wrong());
        }
        let record = self.archive.range(file, &format!("{}data/{key}", self.folder))?;
        let held = (record.end - record.start) / element.bytes();
        let count = shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim as u64));
        let count = count.ok_or_else(|| format!("a shape of {shape:?}"))?;
        let last =
            shape.iter().zip(&strides).try_fold(u64::try_from(offset).unwrap_or(u64::MAX), |at, (d, s)| {
                at.checked_add((d.saturating_sub(1) as u64).checked_mul(*s as u64)?)
            });
        if count > 0 && last.is_none_or(|last| last >= held) {
            return Err(format!(
                "{shape:?} from element {offset} with strides {strides:?} is not within its storage of {held} elements"
            ));
        }
        if count > held {
            return Err(format!(
                "{shape:?} repeats the elements of its storage of {held}; save it with `.contiguous()`"
            ));
        }
        // Of a single index PyTorch keeps any number.
        let strides =
            shape.iter().zip(strides).map(|(&dim, stride)| if dim > 1 { stride } else { 0 }).collect();
        let start = if count == 0 { record.start } else { record.start + offset as u64 * element.bytes() };
        Ok(StoredTensor { element, shape, strides, start })
    }
}
