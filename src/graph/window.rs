//! Windows that slide over the last two dimensions of `[n, c, h, w]`.

/// Kernel size, stride, zero padding on both sides and dilation of a window, each for height and width.
///
/// ```
/// use wgrad::graph::Window;
/// let window = Window::square(3).stride(2).padding(1);
/// assert_eq!(window.output([28, 28]), Ok([14, 14]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Steps from one output to the next.
    pub stride: [usize; 2],
    /// Rows above and below, columns left and right.
    pub padding: [usize; 2],
    /// Steps from one tap to the next.
    pub dilation: [usize; 2],
}

impl Window {
    /// A kernel of `size × size`, stride 1, no padding, no dilation.
    pub const fn square(size: usize) -> Self {
        Self { kernel: [size; 2], stride: [1; 2], padding: [0; 2], dilation: [1; 2] }
    }

    /// The same window with this stride in both dimensions.
    #[must_use]
    pub const fn stride(self, stride: usize) -> Self {
        Self { stride: [stride; 2], ..self }
    }

    /// The same window with this padding on all sides.
    #[must_use]
    pub const fn padding(self, padding: usize) -> Self {
        Self { padding: [padding; 2], ..self }
    }

    /// The same window with this dilation in both dimensions.
    #[must_use]
    pub const fn dilation(self, dilation: usize) -> Self {
        Self { dilation: [dilation; 2], ..self }
    }

    /// Returns the number of elements under the kernel.
    pub const fn taps(&self) -> usize {
        self.kernel[0].saturating_mul(self.kernel[1])
    }

    /// Returns rows and columns of the result for an image of `size`: `⌊(h + 2p - d(k - 1) - 1) / s⌋ + 1`.
    ///
    /// # Errors
    /// A sentence that names the mismatch.
    pub fn output(&self, size: [usize; 2]) -> Result<[usize; 2], String> {
        let Self { kernel, stride, padding, dilation } = *self;
        if [kernel, stride, dilation].iter().flatten().any(|&n| n == 0) {
            return Err(format!(
                "kernel {kernel:?}, stride {stride:?} and dilation {dilation:?} must be at least 1"
            ));
        }
        let mut output = [0; 2];
        for axis in 0..2 {
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
    }
}
