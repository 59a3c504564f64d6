//! Windows that slide over the last dimensions of `[n, c, ..]`.

/// Kernel size, stride, zero padding on both sides and dilation of a window over `N` dimensions: by default two, height
/// and width.
///
/// ```
/// use wgrad::graph::Window;
/// let window = Window::square(3).stride(2).padding(1);
/// assert_eq!(window.output([28, 28]), Ok([14, 14]));
/// let wide = Window::of([1, 7]).paddings([0, 3]);
/// assert_eq!(wide.output([28, 28]), Ok([28, 28]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window<const N: usize = 2> {
    /// Length of the kernel in each dimension.
    pub kernel: [usize; N],
    /// Steps from one output to the next.
    pub stride: [usize; N],
    /// Zeros before and after each dimension.
    pub padding: [usize; N],
    /// Steps from one tap to the next.
    pub dilation: [usize; N],
}

impl<const N: usize> Window<N> {
    /// A kernel of this size, stride 1, no padding, no dilation.
    pub const fn of(kernel: [usize; N]) -> Self {
        Self { kernel, stride: [1; N], padding: [0; N], dilation: [1; N] }
    }

    /// A kernel of `size` in each dimension.
    pub const fn square(size: usize) -> Self {
        Self::of([size; N])
    }

    /// The same window with this stride in all dimensions.
    #[must_use]
    pub const fn stride(self, stride: usize) -> Self {
        self.strides([stride; N])
    }

    /// The same window with a stride for each dimension.
    #[must_use]
    pub const fn strides(self, stride: [usize; N]) -> Self {
        Self { stride, ..self }
    }

    /// The same window with this padding on all sides.
    #[must_use]
    pub const fn padding(self, padding: usize) -> Self {
        self.paddings([padding; N])
    }

    /// The same window with a padding for each dimension, on both sides.
    #[must_use]
    pub const fn paddings(self, padding: [usize; N]) -> Self {
        Self { padding, ..self }
    }

    /// The same window with this dilation in all dimensions.
    #[must_use]
    pub const fn dilation(self, dilation: usize) -> Self {
        self.dilations([dilation; N])
    }

    /// The same window with a dilation for each dimension.
    #[must_use]
    pub const fn dilations(self, dilation: [usize; N]) -> Self {
        Self { dilation, ..self }
    }

    /// Returns the number of elements under the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().fold(1, |taps, &len| taps.saturating_mul(len))
    }

    /// Returns the lengths of the result for lengths `size`: `⌊(h + 2p - d(k - 1) - 1) / s⌋ + 1`.
    ///
    /// # Errors
    /// A sentence that names the mismatch.
    pub fn output(&self, size: [usize; N]) -> Result<[usize; N], String> {
        let Self { kernel, stride, padding, dilation } = *self;
        if [kernel, stride, dilation].iter().flatten().any(|&n| n == 0) {
            return Err(format!(
                "kernel {kernel:?}, stride {stride:?} and dilation {dilation:?} must be at least 1"
            ));
        }
        let mut output = [0; N];
        for axis in 0..N {
            let padded = size[axis].saturating_add(padding[axis].saturating_mul(2));
            let reach = dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
            if reach > padded || padded == usize::MAX {
                return Err(format!(
                    "a kernel of {kernel:?} with dilation {dilation:?} is larger than the image of {size:?} with \
                     padding {padding:?}"
                ));
            }
            output[axis] = (padded - reach) / stride[axis] + 1;
        }
        Ok(output)
    }

    /// The same window, where `M` is `N`: code that is generic in `N` calls code that is not.
    pub(super) fn over<const M: usize>(&self) -> Window<M> {
        let of = |values: [usize; N]| std::array::from_fn(|i| values.get(i).copied().unwrap_or(1));
        Window {
            kernel: of(self.kernel),
            stride: of(self.stride),
            padding: of(self.padding),
            dilation: of(self.dilation),
        }
    }

    /// The part of the window over the dimensions from `first` on, as a window over two; where there is only one, the
    /// first of the two has length 1.
    pub(super) fn plane(&self, first: usize) -> Window {
        let of = |values: [usize; N], missing: usize| match values[first..] {
            [a, b] => [a, b],
            [b] => [missing, b],
            _ => [missing; 2],
        };
        Window {
            kernel: of(self.kernel, 1),
            stride: of(self.stride, 1),
            padding: of(self.padding, 0),
            dilation: of(self.dilation, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_sizes_match_pytorch() {
        assert_eq!(Window::square(7).stride(2).padding(3).output([224, 224]), Ok([112, 112]));
        assert_eq!(Window::square(3).dilation(2).output([9, 8]), Ok([5, 4]));
        assert_eq!(Window::square(2).stride(2).output([7, 7]), Ok([3, 3]));
    }

    #[test]
    fn invalid_windows_are_errors() {
        let error = Window::square(5).padding(1).output([2, 9]).unwrap_err();
        assert!(error.contains("larger than the image of [2, 9]"), "{error}");
        assert!(Window::square(3).stride(0).output([9, 9]).is_err());
        assert_eq!(Window::of([2, 3, 5]).output([4, 4, 5]), Ok([3, 2, 1]));
    }
}
