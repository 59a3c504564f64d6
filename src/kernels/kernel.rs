//! A kernel as a value: a WGSL module with conditions and generated source.

use std::borrow::Cow;
use std::sync::Arc;

use super::assemble::{GENERATED, assemble};
use crate::dtype::DType;
use crate::limits::AdapterClass;
use crate::random::mix;

/// The condition of kernels that a model wrote.
const CUSTOM: &str = "CUSTOM";

/// Sets of `override` constants.
pub(crate) type Variants = &'static [&'static [(&'static str, f64)]];

/// A compute shader with one entry point `main`. [`Kernel::source`] assembles its WGSL from `shaders/`.
/// Kernels with equal module, conditions and generated source have the same WGSL and the same digest, in
/// every process.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Name in reports and labels.
    pub name: Cow<'static, str>,
    /// Path of the file in `shaders/`, without extension.
    pub(super) module: &'static str,
    /// Names for which `#if` is true.
    pub(super) defines: Cow<'static, [&'static str]>,
    /// Source of the module `generated`.
    pub(super) generated: Option<Arc<str>>,
    /// Binding numbers of the storage buffers, all `read_write`. Binding 0 is the `Params` uniform.
    pub slots: Cow<'static, [u32]>,
    /// Threads per workgroup; if `override` constants set it, the maximum over all variants.
    pub workgroup: u32,
    /// Representative sets of the constants that the lowering uses; the shader tests compile each of them.
    pub variants: Variants,
}

impl Kernel {
    pub(crate) const fn new(
        name: &'static str,
        module: &'static str,
        defines: &'static [&'static str],
        slots: &'static [u32],
        workgroup: u32,
        variants: Variants,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            module,
            defines: Cow::Borrowed(defines),
            generated: None,
            slots: Cow::Borrowed(slots),
            workgroup,
            variants,
        }
    }

    /// Returns a kernel whose whole source is generated, with 64 threads per workgroup. The source may
    /// contain the directives of `src/kernels/assemble.rs`.
    pub fn generated(name: &str, defines: Vec<&'static str>, source: String, slots: Vec<u32>) -> Self {
        let kernel = Self::new("", GENERATED, &[], &[], 64, &[&[]]);
        Self { defines: defines.into(), slots: slots.into(), ..kernel }.named_by_content(name, source)
    }

    /// Returns a kernel that a model wrote. Its source is checked before it is compiled, and so are its accesses while it
    /// runs.
    pub(crate) fn custom(name: &str, source: String, slots: Vec<u32>, workgroup: u32) -> Self {
        let kernel = Self::new("", GENERATED, &[CUSTOM], &[], workgroup, &[&[]]);
        Self { slots: slots.into(), ..kernel }.named_by_content(name, source)
    }

    /// Whether a model wrote this kernel.
    #[cfg(feature = "gpu")]
    pub(crate) fn is_custom(&self) -> bool {
        self.is(CUSTOM)
    }

    /// Returns this product or convolution with the epilogue `source`: the function `store` and its
    /// declarations.
    pub(crate) fn with_epilogue(
        &self,
        name: &str,
        defines: Vec<&'static str>,
        source: String,
        slots: Vec<u32>,
    ) -> Self {
        let kernel = defines.into_iter().fold(self.with("EPILOGUE"), |kernel, define| kernel.with(define));
        Self { slots: slots.into(), ..kernel }.named_by_content(name, source)
    }

    fn named_by_content(self, name: &str, source: String) -> Self {
        let kernel = Self { generated: Some(source.into()), ..self };
        Self { name: format!("{name}.{:04x}", kernel.digest() & 0xffff).into(), ..kernel }
    }

    /// Returns this kernel with `#if define` true.
    pub(crate) fn with(&self, define: &'static str) -> Self {
        let mut kernel = self.clone();
        if !kernel.is(define) {
            kernel.defines.to_mut().push(define);
        }
        kernel
    }

    /// Returns this kernel under the name `NAME_suffix`.
    pub(crate) fn suffixed(self, suffix: &str) -> Self {
        Self { name: format!("{}_{suffix}", self.name).into(), ..self }
    }

    /// Returns this kernel with `vec4` accesses: four elements per step of a thread.
    pub(crate) fn in_vec4(&self) -> Self {
        self.with("VEC4").suffixed("vec4")
    }

    /// Types of a held operand.
    pub(crate) const HELD: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

    /// Returns this kernel reading its held operand (`shaders/common/held.wgsl`) in elements of this type.
    pub(crate) fn holding(&self, dtype: DType) -> Self {
        match dtype {
            DType::F16 => self.with("HELD_F16").suffixed("held_f16"),
            DType::BF16 => self.with("HELD_BF16").suffixed("held_bf16"),
            _ => self.clone(),
        }
    }

    /// Returns this kernel with its stored operands in elements of this type: `F16` or `BF16` holds.
    pub(crate) fn storing(&self, dtype: DType) -> Self {
        match dtype {
            DType::F16 => self.with("F16").suffixed("f16"),
            DType::BF16 => self.with("BF16").suffixed("bf16"),
            _ => self.clone(),
        }
    }

    /// Returns this kernel with a workgroup of `threads` threads for each job, instead of one thread.
    pub(crate) fn in_workgroups(&self, threads: u32) -> Self {
        Self { workgroup: threads, ..self.with("WORKGROUP").suffixed("wg") }
    }

    /// Returns this kernel with additional storage buffers.
    pub(crate) fn with_slots(mut self, slots: &[u32]) -> Self {
        self.slots.to_mut().extend_from_slice(slots);
        self
    }

    /// Returns this kernel with another module, which must have the same bindings and conditions.
    pub(crate) fn in_module(self, name: String, module: &'static str) -> Self {
        Self { name: name.into(), module, ..self }
    }

    /// Returns this kernel with its result written over its first operand. Both share one binding, because
    /// writable bindings must not overlap.
    pub(crate) fn in_place(&self) -> Self {
        let mut kernel = self.with("IN_PLACE").suffixed("in_place");
        kernel.slots.to_mut().retain(|slot| *slot != 1);
        kernel
    }

    /// Returns this kernel with 64-bit memory words if it accesses memory as `vec4`; otherwise unchanged.
    pub fn in_long_words(&self) -> Self {
        if !self.is("VEC4") {
            return self.clone();
        }
        let kernel = self.with("U64");
        match self.name.strip_suffix("_in_place") {
            Some(name) => Self { name: format!("{name}_u64_in_place").into(), ..kernel },
            None => kernel.suffixed("u64"),
        }
    }

    /// Whether `#if define` is true.
    pub(crate) fn is(&self, define: &str) -> bool {
        self.defines.contains(&define)
    }

    /// Returns the complete WGSL source, for GPUs.
    pub fn source(&self) -> String {
        assemble(self.module, &self.defines, self.generated.as_deref())
    }

    /// Returns the modules that the source is assembled from.
    pub fn modules(&self) -> Vec<&'static str> {
        super::assemble::modules_of(self.module, &self.defines, self.generated.as_deref())
    }

    /// Returns the source for a class of adapters. On CPU adapters `SOFTWARE` is true, and `main` first copies the
    /// uniforms to private variables: after a branch lavapipe reloads uniforms per lane, and in a loop in each
    /// iteration. Kernels with barriers are skipped, because the copy breaks the uniformity analysis. naga does
    /// not require uniform control flow for subgroup operations.
    pub fn source_for(&self, class: AdapterClass) -> String {
        if !class.is_cpu() {
            return self.source();
        }
        let source = self.with("SOFTWARE").source();
        if source.contains("Barrier();") { source } else { with_params_copied(&source) }
    }

    /// Returns a string that identifies the source: module, sorted conditions, generated source.
    pub(crate) fn key(&self) -> String {
        let mut defines = self.defines.to_vec();
        defines.sort_unstable();
        format!("{} {}\n{}", self.module, defines.join(" "), self.generated.as_deref().unwrap_or_default())
    }

    /// Returns a 64-bit hash of [`Kernel::key`], the same in every process.
    pub(crate) fn digest(&self) -> u64 {
        let add = |digest: u64, word: u64| mix(digest ^ word).wrapping_add(word);
        let key = self.key();
        key.as_bytes().chunks(8).fold(key.len() as u64, |digest, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            add(digest, u64::from_le_bytes(word))
        })
    }
}

const PARAMS: &str = "var<uniform> p: Params;";

fn with_params_copied(source: &str) -> String {
    let in_main = |at: usize| source[at..].find(") {").map(|open| at + open + 3);
    let Some(body) = source.find("fn main(").and_then(in_main) else { return source.to_owned() };
    let (head, body) = source.split_at(body);
    if !head.contains(PARAMS) {
        return source.to_owned();
    }
    let head = head.replace(PARAMS, "var<uniform> params: Params;\nvar<private> p: Params;");
    format!("{head}\n    p = params;{body}")
}
