//! A dispatch as plain data: kernel, constants, memory, parameters and grid.

use super::Kernel;
use crate::limits::JobKind;

/// One dispatch. `M` is the type of its memory: operands while lowering, regions in a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<M> {
    /// The kernel.
    pub kernel: Kernel,
    /// Values for its `override` constants.
    pub constants: Vec<(&'static str, f64)>,
    /// Memory of the kernel's slots, in their order.
    pub memory: Vec<M>,
    /// Words of the `Params` uniform.
    pub params: Vec<u32>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
}

impl<M> Launch<M> {
    fn constant(&self, name: &str) -> Option<u32> {
        self.constants.iter().find(|(known, _)| *known == name).map(|(_, value)| *value as u32)
    }

    /// Returns the number of workgroups.
    pub fn workgroups(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Returns the threads of a workgroup.
    pub fn threads(&self) -> u32 {
        let all = |names: &[&str]| names.iter().map(|name| self.constant(name)).product::<Option<u32>>();
        let cooperative = all(&["LANES", "GROUPS_N"]).map(|threads| 2 * threads);
        cooperative.or_else(|| all(&["LANES_N", "LANES_M"])).unwrap_or(self.kernel.workgroup)
    }

    /// Returns the bytes of memory that the threads of a workgroup share. Those in which a convolution by
    /// cooperative matrices notes its columns, at most 1/7 of the whole, are not counted.
    pub fn shared_bytes(&self) -> u32 {
        let documents = if self.kernel.is("DOCUMENTS") { 8 } else { 0 };
        match self.kernel.module {
            "tile/tile" => 8192,
            "attention/tiled" | "attention/tiled_dkv" => 15_616 + documents,
            "attention/cpu" | "attention/cpu_dkv" => documents,
            "attention/cached" if !self.kernel.is("JOIN") => 1796,
            "elementwise/mask" if self.kernel.is("WORKGROUP") => 256,
            "cooperative/main" => {
                let side = if self.kernel.is("SIDE8") { 8 } else { 16 };
                let of = |name, default| self.constant(name).unwrap_or(default);
                let [groups, rows, columns] = [of("GROUPS_N", 4), of("ROWS", 4), of("COLUMNS", 2)];
                2 * groups * side * side * 4 + (2 * rows + groups * columns) * side * 40 * 2
            }
            _ if self.kernel.is("WORKGROUP") || self.kernel.is("ENCODE") => 512,
            _ => 0,
        }
    }

    /// Returns what it computes.
    pub fn kind(&self) -> JobKind {
        let product = self.kernel.is("MATMUL");
        match self.kernel.module {
            "cooperative/main" if product => JobKind::MatrixProduct,
            "cooperative/main" => JobKind::MatrixConvolution,
            "tile/tile" if product => JobKind::Product,
            "matmul/any" | "matmul/cpu" | "matmul/cpu_any" => JobKind::Product,
            "tile/tile" | "conv/cpu" | "conv/weight_cpu" => JobKind::Convolution,
            "conv/direct" => JobKind::DirectConvolution,
            "attention/cpu" | "attention/cpu_dkv" | "attention/tiled" | "attention/tiled_dkv" => {
                JobKind::Attention
            }
            _ => JobKind::Elements,
        }
    }

    /// Returns the launch with its memory mapped by `to`.
    pub fn map<N>(self, to: impl FnMut(M) -> N) -> Launch<N> {
        let Self { kernel, constants, memory, params, grid } = self;
        Launch { kernel, constants, memory: memory.into_iter().map(to).collect(), params, grid }
    }
}

/// Maximum words of a `Params` uniform: one slot of 256 bytes.
pub const MAX_PARAMS: usize = 64;
