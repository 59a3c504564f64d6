//! Files of golden values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors};

/// The tensors of a file: shape and elements. Class indices are stored as equal floating-point numbers.
pub type File = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Returns the path of a file in `tests/golden`.
pub fn path(name: &str) -> PathBuf {
    super::fixtures().join("tests/golden").join(name)
}

/// Reads a file in `tests/golden`.
pub fn read(name: &str) -> File {
    read_at(&path(name))
}

/// Reads any safetensors file.
pub fn read_at(path: &Path) -> File {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let number = |dtype: Dtype, bytes: &[u8]| {
        let bytes = bytes.try_into().expect("four bytes");
        match dtype {
            Dtype::F32 => f32::from_le_bytes(bytes),
            Dtype::I32 => i32::from_le_bytes(bytes) as f32,
            other => panic!("{other:?} in a golden file"),
        }
    };
    let one = |(name, view): (String, safetensors::tensor::TensorView)| {
        let data = view.data().chunks(4).map(|bytes| number(view.dtype(), bytes)).collect();
        (name, (view.shape().to_vec(), data))
    };
    file.tensors().into_iter().map(one).collect()
}

/// Widens the elements, for comparison with results in f64.
pub fn wide(data: &[f32]) -> Vec<f64> {
    data.iter().map(|&x| f64::from(x)).collect()
}

/// Converts the elements to class indices.
pub fn integers(data: &[f32]) -> Vec<u32> {
    data.iter().map(|&x| x as u32).collect()
}
