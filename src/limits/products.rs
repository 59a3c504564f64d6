//! Forced kernel variants of matrix products and convolutions, by the class of their shape.

/// Matrix products and convolutions of similar shape: what the fastest kernel depends on. A convolution counts as the
/// product that it is: result channels of a group × pixels, or for the gradient of weights result channels × taps and
/// channels, each a sum over the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShapeClass {
    /// A product with at most 64 rows or columns.
    ProductNarrow,
    /// A product with fewer than 2²⁰ elements, about two tiles of 64 × 64 for each unit of a large GPU.
    ProductFew,
    /// The same with an inner dimension of 2048 or more.
    ProductFewDeep,
    /// A product with more elements.
    ProductMany,
    /// As of products.
    ConvolutionNarrow,
    /// As of products.
    ConvolutionFew,
    /// As of products.
    ConvolutionFewDeep,
    /// As of products.
    ConvolutionMany,
}

impl ShapeClass {
    /// All classes.
    pub const ALL: [Self; 8] = [
        Self::ProductNarrow,
        Self::ProductFew,
        Self::ProductFewDeep,
        Self::ProductMany,
        Self::ConvolutionNarrow,
        Self::ConvolutionFew,
        Self::ConvolutionFewDeep,
        Self::ConvolutionMany,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProductNarrow => "product-narrow",
            Self::ProductFew => "product-few",
            Self::ProductFewDeep => "product-few-deep",
            Self::ProductMany => "product-many",
            Self::ConvolutionNarrow => "convolution-narrow",
            Self::ConvolutionFew => "convolution-few",
            Self::ConvolutionFewDeep => "convolution-few-deep",
            Self::ConvolutionMany => "convolution-many",
        }
    }

    /// Returns the class of `batch` products of sizes m, n and k.
    pub(crate) fn of_product(batch: u64, [m, n, k]: [u64; 3]) -> Self {
        match () {
            () if m.min(n) <= 64 => Self::ProductNarrow,
            () if batch * m * n >= 1 << 20 => Self::ProductMany,
            () if k >= 2048 => Self::ProductFewDeep,
            () => Self::ProductFew,
        }
    }

    /// Returns the class of a convolution of `groups` groups, as products of sizes m, n and k.
    pub(crate) fn of_convolution(groups: u64, sizes: [u64; 3]) -> Self {
        match Self::of_product(groups, sizes) {
            Self::ProductNarrow => Self::ConvolutionNarrow,
            Self::ProductFew => Self::ConvolutionFew,
            Self::ProductFewDeep => Self::ConvolutionFewDeep,
            _ => Self::ConvolutionMany,
        }
    }
}

/// A kernel variant for each class of shapes: the name of one of `matmul::VARIANTS`, `cooperative::BLOCKS` or, for
/// convolutions, `conv::VARIANTS`, where equal names in two tables mean the same tiles. Without a name, or with one
/// that cannot compute a product, the variant is selected by the adapter's class and the sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Products([Option<&'static str>; ShapeClass::ALL.len()]);

impl Products {
    /// Returns the same variant for every class.
    pub const fn all(name: &'static str) -> Self {
        Self([Some(name); ShapeClass::ALL.len()])
    }

    /// Returns the name for a class.
    pub const fn of(&self, class: ShapeClass) -> Option<&'static str> {
        self.0[class as usize]
    }

    /// Returns the same choices with another name for a class.
    #[must_use]
    pub const fn with(mut self, class: ShapeClass, name: Option<&'static str>) -> Self {
        self.0[class as usize] = name;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_place_of_its_own() {
        for (i, class) in ShapeClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, i, "{}", class.name());
            let one = Products::default().with(class, Some("tiled64"));
            let named = ShapeClass::ALL.into_iter().filter(|class| one.of(*class).is_some());
            assert_eq!(named.collect::<Vec<_>>(), [class]);
        }
        let all = ShapeClass::ALL.into_iter().fold(Products::default(), |all, c| all.with(c, Some("any32")));
        assert_eq!(all, Products::all("any32"));
    }

    #[test]
    fn classes_are_those_of_sizes() {
        use ShapeClass as C;
        for (batch, sizes, class) in [
            (1, [64, 4096, 4096], C::ProductNarrow),
            (1, [65, 4096, 2047], C::ProductFew),
            (1, [768, 768, 8192], C::ProductFewDeep),
            (96, [1024, 128, 64], C::ProductMany),
            (1, [1024, 1024, 1], C::ProductMany),
        ] {
            assert_eq!(C::of_product(batch, sizes), class, "{sizes:?}");
            let name = C::of_convolution(batch, sizes).name();
            assert_eq!(name, class.name().replace("product", "convolution"), "{sizes:?}");
        }
    }
}
