//! Row-major shapes of at most six dimensions, and NumPy's broadcasting rule.

use std::fmt;

/// The largest number of dimensions of a tensor.
pub const MAX_RANK: usize = 6;
/// The largest length of a dimension, and the largest number (a padding, a count of groups) from which the
/// length of a dimension is computed: kernels count in 32 bits, and products of two do not overflow 64.
pub const MAX_DIM: usize = i32::MAX as usize;
/// The largest number of elements of a tensor: a plan's bytes, which add up many, do not overflow 64 bits.
pub const MAX_NUMEL: u64 = 1 << 48;

/// Dimensions of a row-major tensor, outermost first. `[]` is a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: usize,
}

impl Shape {
    /// Creates a shape; `None` if there are more than [`MAX_RANK`] dimensions.
    pub fn try_new(dims: &[usize]) -> Option<Self> {
        if dims.len() > MAX_RANK {
            return None;
        }
        let mut own = [1; MAX_RANK];
        own[..dims.len()].copy_from_slice(dims);
        Some(Self { dims: own, rank: dims.len() })
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of elements; saturates at `u64::MAX`, which exceeds every limit.
    pub fn numel(&self) -> u64 {
        self.dims().iter().fold(1u64, |n, &d| n.saturating_mul(d as u64))
    }

    /// Checks the dimensions against [`MAX_DIM`] and the number of elements against [`MAX_NUMEL`].
    ///
    /// # Errors
    /// A sentence with the numbers.
    pub(crate) fn check_size(&self) -> Result<(), String> {
        if let Some(dim) = self.dims().iter().find(|dim| **dim > MAX_DIM) {
            return Err(format!("{self} is too large: a dimension of {dim}, at most {MAX_DIM} can be"));
        }
        if self.numel() > MAX_NUMEL {
            return Err(format!("{self} is too large: more than {MAX_NUMEL} elements"));
        }
        Ok(())
    }

    /// Returns a shape of as many dimensions, all of length 1.
    pub(crate) fn ones(&self) -> Self {
        Self { dims: [1; MAX_RANK], rank: self.rank }
    }

    /// Returns the length of the last dimension; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// Returns the first dimension and the product of all others: rows and columns of a weight as a matrix.
    pub(crate) fn as_matrix(&self) -> (usize, usize) {
        let (rows, others) =
            self.dims().split_first().map_or((1, &[][..]), |(first, others)| (*first, others));
        (rows, others.iter().product())
    }

    /// Returns the stride of each dimension, in elements.
    pub fn strides(&self) -> Vec<u64> {
        let mut strides = vec![1u64; self.rank];
        for axis in (1..self.rank).rev() {
            strides[axis - 1] = strides[axis] * self.dims[axis] as u64;
        }
        strides
    }

    /// Returns the shape that both broadcast to: trailing dimensions are equal or 1. `None` if they are not.
    pub fn broadcast(&self, other: &Self) -> Option<Self> {
        let rank = self.rank.max(other.rank);
        let mut dims = [1; MAX_RANK];
        for (axis, dim) in dims[..rank].iter_mut().enumerate() {
            let (a, b) = (self.aligned(rank, axis), other.aligned(rank, axis));
            *dim = match (a, b) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
        Some(Self { dims, rank })
    }

    /// Returns the strides to read `self` as if it had shape `target`: 0 where it is broadcast.
    pub(crate) fn broadcast_strides(&self, target: &Self) -> Vec<u64> {
        let own = self.strides();
        let missing = target.rank - self.rank;
        (0..target.rank)
            .map(|axis| match axis.checked_sub(missing) {
                Some(own_axis) if self.dims[own_axis] != 1 => own[own_axis],
                _ => 0,
            })
            .collect()
    }

    /// Returns the shape with `dims[axis]` replaced by `len`.
    pub fn with(&self, axis: usize, len: usize) -> Self {
        let mut shape = *self;
        shape.dims[axis] = len;
        shape
    }

    fn aligned(&self, rank: usize, axis: usize) -> usize {
        (axis + self.rank).checked_sub(rank).map_or(1, |own| self.dims[own])
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    /// Fails to compile for more than [`MAX_RANK`] dimensions.
    fn from(dims: [usize; N]) -> Self {
        const { assert!(N <= MAX_RANK, "a tensor has at most six dimensions") };
        let mut own = [1; MAX_RANK];
        own[..N].copy_from_slice(&dims);
        Self { dims: own, rank: N }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:?}", self.dims()))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        type Dims = &'static [usize];
        let cases: [(Dims, Dims, Option<Dims>); 6] = [
            (&[2, 3, 4], &[4], Some(&[2, 3, 4])),
            (&[2, 3, 4], &[3, 1], Some(&[2, 3, 4])),
            (&[], &[5], Some(&[5])),
            (&[1, 5], &[4, 1], Some(&[4, 5])),
            (&[0, 3], &[1], Some(&[0, 3])),
            (&[3], &[4], None),
        ];
        for (a, b, expected) in cases {
            let (a, b) = (Shape::try_new(a).unwrap(), Shape::try_new(b).unwrap());
            assert_eq!(a.broadcast(&b), expected.and_then(Shape::try_new), "{a} with {b}");
            assert_eq!(a.broadcast(&b), b.broadcast(&a));
        }
    }

    #[test]
    fn broadcast_dimensions_have_stride_zero() {
        let target = Shape::from([2, 3, 4]);
        assert_eq!(Shape::from([3, 1]).broadcast_strides(&target), [0, 1, 0]);
        assert_eq!(target.broadcast_strides(&target), [12, 4, 1]);
    }

    #[test]
    fn seven_dimensions_are_refused_and_counts_saturate() {
        assert_eq!(Shape::try_new(&[1; 7]), None);
        assert_eq!(Shape::from([usize::MAX, usize::MAX]).numel(), u64::MAX);
    }
}
