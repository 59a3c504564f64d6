//! The table of kernel variants for matrix products: what each requires of the adapter and the product, and
//! where it is preferred.

use crate::dtype::DType;
use crate::kernels::Kernel;
use crate::kernels::kernel::Variants;
use crate::kernels::lower::flag;
use crate::kernels::needs::Needs;
use crate::limits::{AdapterClass, Limits, ShapeClass};

/// Which operands are transposed.
const TRANSPOSES: Variants = &[
    &[("TRANSPOSE_A", 0.0), ("TRANSPOSE_B", 0.0)],
    &[("TRANSPOSE_A", 0.0), ("TRANSPOSE_B", 1.0)],
    &[("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 0.0)],
    &[("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 1.0)],
];

static ANY: Kernel = Kernel::new(
    "matmul_any",
    "matmul/any",
    &["STORE_LANES"],
    &[1, 2, 3],
    64,
    &[&[("LANES_N", 8.0), ("LANES_M", 8.0)], &[("LANES_N", 4.0), ("LANES_M", 2.0)]],
);
static CPU_ANY: Kernel =
    Kernel::new("matmul_cpu_any", "matmul/cpu_any", &["CPU", "STORE_LANES"], &[1, 2, 3], 8, &[&[]]);
static TILED64: Kernel =
    Kernel::new("matmul_tiled64", "tile/tile", &["MATMUL", "STORE_LANES"], &[1, 2, 3], 64, TRANSPOSES);
static TILED64_VEC4: Kernel = Kernel::new(
    "matmul_tiled64_vec4",
    "tile/tile",
    &["MATMUL", "OPERANDS_VEC4", "STORE_VEC4"],
    &[1, 2, 3],
    64,
    TRANSPOSES,
);
static TILED64_ROWS: Kernel = Kernel::new(
    "matmul_tiled64_rows",
    "tile/tile",
    &["MATMUL", "OPERANDS_VEC4", "STORE_LANES"],
    &[1, 2, 3],
    64,
    TRANSPOSES,
);
static CPU_NN: Kernel = Kernel::new(
    "matmul_cpu_nn",
    "matmul/cpu",
    &["CPU", "OPERANDS_VEC4", "STORE_VEC4"],
    &[1, 2, 3],
    8,
    &[&[]],
);
static CPU_NT: Kernel = Kernel::new(
    "matmul_cpu_nt",
    "matmul/cpu",
    &["CPU", "OPERANDS_VEC4", "STORE_VEC4", "B_COLUMNS"],
    &[1, 2, 3],
    8,
    &[&[]],
);
static CPU_TN: Kernel = Kernel::new(
    "matmul_cpu_tn",
    "matmul/cpu",
    &["CPU", "OPERANDS_VEC4", "STORE_VEC4", "TN"],
    &[1, 2, 3],
    8,
    &[&[]],
);
static CPU8_NN: Kernel = Kernel::new(
    "matmul_cpu8_nn",
    "matmul/cpu",
    &["CPU", "OPERANDS_VEC4", "STORE_VEC4", "LANES4"],
    &[1, 2, 3],
    8,
    &[&[]],
);
static CPU8_NT: Kernel = Kernel::new(
    "matmul_cpu8_nt",
    "matmul/cpu",
    &["CPU", "OPERANDS_VEC4", "STORE_VEC4", "LANES4", "B_COLUMNS"],
    &[1, 2, 3],
    8,
    &[&[]],
);
static CPU8_TN: Kernel = Kernel::new(
    "matmul_cpu8_tn",
    "matmul/cpu",
    &["CPU", "OPERANDS_VEC4", "STORE_VEC4", "LANES4", "TN"],
    &[1, 2, 3],
    8,
    &[&[]],
);

/// Returns the kernel for operands of these element types.
pub(in crate::kernels) fn reading(kernel: &Kernel, operands: [DType; 2]) -> Kernel {
    let defines = [["A_F16", "A_BF16"], ["B_F16", "B_BF16"]];
    let read = |kernel: Kernel, i: usize| match operands[i] {
        DType::F16 => kernel.with(defines[i][0]),
        DType::BF16 => kernel.with(defines[i][1]),
        DType::Int8 => kernel.with("B_INT8"),
        DType::Int4 => kernel.with("B_INT4"),
        DType::Nf4 => kernel.with("B_NF4"),
        DType::F32 | DType::U32 | DType::Uint8 | DType::Uint4 => kernel,
    };
    let kernel = (0..2).fold(kernel.clone(), read);
    match operands.map(DType::name) {
        ["f32", "f32"] => kernel,
        [a, b] if a == b => kernel.suffixed(a),
        [a, b] => kernel.suffixed(&format!("{a}_{b}")),
    }
}

/// Sizes of `C [batch, m, n] = op(A) op(B)`; k is the inner dimension.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of products.
    pub batch: u64,
    /// Rows of `C`.
    pub m: u64,
    /// Columns of `C`.
    pub n: u64,
    /// The inner dimension.
    pub k: u64,
}

impl Sizes {
    /// Returns the class that a product of these sizes belongs to.
    pub(in crate::kernels) fn product_class(&self) -> ShapeClass {
        ShapeClass::of_product(self.batch, [self.m, self.n, self.k])
    }
}

/// A product to compute: its sizes and the layout of its operands.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its sizes.
    pub sizes: Sizes,
    /// Transpose `A`.
    pub ta: bool,
    /// Transpose `B`.
    pub tb: bool,
    /// Whether rows of operands are pieces of longer rows, so that they are not contiguous in memory.
    pub apart: bool,
}

impl Case {
    /// Returns the matrices whose rows in memory are multiples of four long.
    fn vec4s(&self) -> Vec4s {
        let Sizes { m, n, k, .. } = self.sizes;
        let operands = [if self.ta { m } else { k }, if self.tb { k } else { n }];
        match operands.iter().all(|row| row.is_multiple_of(4)) {
            true if n.is_multiple_of(4) => Vec4s::All,
            true => Vec4s::Operands,
            false => Vec4s::None,
        }
    }
}

/// Matrices that are accessed as `vec4`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Vec4s {
    None,
    Operands,
    /// The result as well.
    All,
}

/// A kernel variant for products. All variants read operands of 16 and 32 bits and support epilogues.
pub struct Variant {
    /// Name for [`Products`](crate::limits::Products) and reports.
    pub name: &'static str,
    /// Kernels for `A B`, `A Bᵀ`, `Aᵀ B`, `Aᵀ Bᵀ`; `None` if not supported.
    kernels: [Option<&'static Kernel>; 4],
    /// Rows and columns of the result that one workgroup computes.
    pub(super) tile: (u64, u64),
    constants: &'static [(&'static str, f64)],
    /// Whether `override` constants of its kernel select what is transposed.
    transpose_by_constant: bool,
    /// The matrices whose rows in memory must be multiples of four long.
    vec4s: Vec4s,
    /// Whether rows in memory must be contiguous.
    contiguous_only: bool,
    /// Whether it computes pieces of the inner dimension, as on GPUs: [`split`].
    pub(super) splits: bool,
    needs: Needs,
    /// Whether it is preferred to the variants after it.
    preferred: fn(AdapterClass, &Sizes) -> bool,
}

/// With fewer columns most lanes of the kernels that share their loads are idle.
const NARROW: u64 = 24;
/// With at most this many rows most of a tile of 32 is wasted.
const LOW: u64 = 8;
/// With at most this many rows or columns most of a tile of 64 is wasted.
const SMALL: u64 = 16;
const fn all(kernel: &'static Kernel) -> [Option<&'static Kernel>; 4] {
    [Some(kernel); 4]
}

/// All variants. The first one that the class prefers and that can compute the product is selected.
pub static VARIANTS: [Variant; 8] = [
    // Lanes of a subgroup read 32 rows of A and share them by broadcast.
    Variant {
        name: "cpu32",
        kernels: [Some(&CPU_NN), Some(&CPU_NT), Some(&CPU_TN), None],
        tile: (32, 32),
        constants: &[],
        transpose_by_constant: false,
        vec4s: Vec4s::All,
        contiguous_only: true,
        splits: false,
        needs: Needs::SHARING,
        preferred: |class, sizes| class.is_cpu() && sizes.n >= NARROW && sizes.m > LOW,
    },
    // The same with 8 rows, for results with few rows and for smaller subgroups.
    Variant {
        name: "cpu8",
        kernels: [Some(&CPU8_NN), Some(&CPU8_NT), Some(&CPU8_TN), None],
        tile: (8, 32),
        constants: &[],
        transpose_by_constant: false,
        vec4s: Vec4s::All,
        contiguous_only: true,
        splits: false,
        needs: Needs { subgroup: 4, ..Needs::SHARING },
        preferred: |class, sizes| class.is_cpu() && sizes.n >= NARROW,
    },
    // The same for any sizes and strides.
    Variant {
        name: "cpu_any",
        kernels: all(&CPU_ANY),
        tile: (32, 16),
        constants: &[],
        transpose_by_constant: false,
        vec4s: Vec4s::None,
        contiguous_only: false,
        splits: false,
        needs: Needs::SHARING,
        preferred: |class, _| class.is_cpu(),
    },
    // No shared loads, few threads.
    Variant {
        name: "any8",
        kernels: all(&ANY),
        tile: (8, 16),
        constants: &[("LANES_N", 4.0), ("LANES_M", 2.0)],
        transpose_by_constant: false,
        vec4s: Vec4s::None,
        contiguous_only: false,
        splits: false,
        needs: Needs::NOTHING,
        preferred: |class, _| class.is_cpu(),
    },
    // Tiles of 64 x 64 in workgroup memory, of operands that are read in vec4.
    Variant {
        name: "tiled64_vec4",
        kernels: all(&TILED64_VEC4),
        tile: (64, 64),
        constants: &[],
        transpose_by_constant: true,
        vec4s: Vec4s::All,
        contiguous_only: true,
        splits: true,
        needs: Needs::TILE,
        preferred: |class, sizes| !class.is_cpu() && sizes.m.min(sizes.n) > SMALL,
    },
    // The same, but rows of the result may have any length: logits, if the vocabulary is not a multiple of four.
    Variant {
        name: "tiled64_rows",
        kernels: all(&TILED64_ROWS),
        tile: (64, 64),
        constants: &[],
        transpose_by_constant: true,
        vec4s: Vec4s::Operands,
        contiguous_only: true,
        splits: true,
        needs: Needs::TILE,
        preferred: |class, sizes| !class.is_cpu() && sizes.m.min(sizes.n) > SMALL,
    },
    // The same of any sizes.
    Variant {
        name: "tiled64",
        kernels: all(&TILED64),
        tile: (64, 64),
        constants: &[],
        transpose_by_constant: true,
        vec4s: Vec4s::None,
        contiguous_only: true,
        splits: true,
        needs: Needs::TILE,
        preferred: |class, sizes| !class.is_cpu() && sizes.m.min(sizes.n) > SMALL,
    },
    // No shared loads.
    Variant {
        name: "any32",
        kernels: all(&ANY),
        tile: (32, 32),
        constants: &[("LANES_N", 8.0), ("LANES_M", 8.0)],
        transpose_by_constant: false,
        vec4s: Vec4s::None,
        contiguous_only: false,
        splits: true,
        needs: Needs::NOTHING,
        preferred: |_, _| true,
    },
];

impl Variant {
    /// Returns the variant of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        VARIANTS.iter().find(|row| row.name == name)
    }

    /// Whether an adapter can run it, regardless of what its class prefers.
    pub fn runs_on(&self, limits: &Limits) -> bool {
        self.needs.met_by(limits)
    }

    /// Whether it can compute this product, on an adapter that can run it.
    pub fn computes(&self, case: &Case) -> bool {
        let together = !self.contiguous_only || !case.apart;
        self.of(case).is_some() && self.vec4s <= case.vec4s() && together
    }

    /// Returns all its kernels, for operands of 32 bits.
    pub fn kernels(&self) -> impl Iterator<Item = &'static Kernel> {
        self.kernels.into_iter().flatten()
    }

    fn of(&self, case: &Case) -> Option<&'static Kernel> {
        self.kernels[usize::from(case.ta) * 2 + usize::from(case.tb)]
    }

    /// Returns the kernel for a product that it can compute.
    pub(super) fn kernel(&self, case: &Case) -> &'static Kernel {
        self.of(case).expect("a row is chosen for what it computes")
    }

    pub(super) fn constants(&self, case: &Case) -> Vec<(&'static str, f64)> {
        let told = [("TRANSPOSE_A", flag(case.ta)), ("TRANSPOSE_B", flag(case.tb))];
        let told = told.into_iter().filter(|_| self.transpose_by_constant);
        self.constants.iter().copied().chain(told).collect()
    }
}

/// Returns the variant for a product: the one that the limits name if it can compute the product, else the
/// first preferred one that can.
pub fn choose(case: &Case, limits: &Limits) -> &'static Variant {
    let can =
        |row: &&Variant| row.runs_on(limits) && row.computes(case) && row.needs.ends(case.sizes.k, limits);
    let named = limits.kernels.products.of(case.sizes.product_class()).and_then(Variant::named).filter(can);
    let preferred = || VARIANTS.iter().filter(can).find(|row| (row.preferred)(limits.class, &case.sizes));
    // The last variant computes every product on every adapter.
    named.or_else(preferred).unwrap_or(&VARIANTS[VARIANTS.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Products;

    fn chosen(preset: &str, [m, n, k]: [u64; 3], transposes: (bool, bool)) -> &'static str {
        let sizes = Sizes { batch: 1, m, n, k };
        let case = Case { sizes, ta: transposes.0, tb: transposes.1, apart: false };
        choose(&case, &Limits::named(preset).expect("a preset")).name
    }

    #[test]
    fn each_adapter_class_has_its_preferred_rows() {
        let plain = (false, false);
        let large = [2048, 2048, 512];
        let of = |preset| chosen(preset, large, plain);
        assert_eq!(
            ["lavapipe", "swiftshader", "webgpu", "nvidia"].map(of),
            ["cpu32", "cpu8", "tiled64_vec4", "tiled64_vec4"]
        );
        assert_eq!(chosen("nvidia", [2304, 2048, 511], plain), "tiled64", "rows that are no vec4s");
        assert_eq!(chosen("nvidia", [512, 50_257, 768], (false, true)), "tiled64_rows");
        assert_eq!(chosen("nvidia", [2304, 2048, 511], (true, false)), "tiled64_vec4", "K is free");
        assert_eq!(chosen("nvidia", [2048, 10, 512], plain), "any32");
        assert_eq!(chosen("lavapipe", [8, 2048, 512], plain), "cpu8");
        assert_eq!(chosen("lavapipe", [2048, 2048, 512], (true, true)), "cpu_any");
        assert_eq!(chosen("swiftshader", [2048, 2046, 512], plain), "any8");
    }

    #[test]
    fn named_row_is_used_where_it_can_run() {
        let limits = |name| {
            Limits::named("lavapipe")
                .expect("a preset")
                .choosing(|kernels| kernels.products = Products::all(name))
        };
        let case =
            |k| Case { sizes: Sizes { batch: 1, m: 64, n: 64, k }, ta: false, tb: false, apart: false };
        assert_eq!(choose(&case(64), &limits("tiled64_vec4")).name, "tiled64_vec4");
        assert_eq!(choose(&case(63), &limits("tiled64_vec4")).name, "cpu_any");
        let small = Limits { max_workgroup_bytes: 4096, ..limits("tiled64_vec4") };
        assert_eq!(choose(&case(64), &small).name, "cpu32");
    }

    #[test]
    fn names_are_unique_and_the_last_row_computes_everything() {
        let names: std::collections::BTreeSet<_> = VARIANTS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), VARIANTS.len());
        let last = &VARIANTS[VARIANTS.len() - 1];
        let case = Case { sizes: Sizes { batch: 1, m: 1, n: 1, k: 1 }, ta: true, tb: true, apart: true };
        assert!(last.computes(&case) && last.needs.subgroup + last.needs.workgroup_bytes == 0);
        assert!((last.preferred)(AdapterClass::Cpu, &case.sizes));
    }
}
