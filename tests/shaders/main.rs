//! Every kernel with every set of constants is parsed, validated with exactly the capabilities that it needs,
//! and translated for Vulkan, Metal and DirectX. No GPU is needed. Where they are there, other people's compilers
//! read the same kernels: Tint, in a browser, and the validator of SPIR-V.

#[path = "../support/browser.rs"]
mod browser;
#[path = "../support/folder.rs"]
#[allow(dead_code, reason = "it has more than is used here")]
mod folder;
mod loops;
#[path = "../support/skip.rs"]
mod skip;
mod spirv;
mod tint;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;

use naga::back::{hlsl, msl, pipeline_constants::process_overrides, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess};
use wgrad::compile::PlanOptions;
use wgrad::dtype::Precision;
use wgrad::kernels::{self, Kernel, Launch, MAX_PARAMS};
use wgrad::limits::{AdapterClass, Cooperative, Limits};
use wgrad::models::{Model, ModelOptions};

use spirv::Modules;

fn parse(kernel: &Kernel) -> Module {
    parse_source(kernel, &kernel.source())
}

fn parse_source(kernel: &Kernel, text: &str) -> Module {
    naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|e| panic!("{}: {}", kernel.name, e.emit_to_string(text)))
}

/// Returns the capabilities that the source needs: subgroup operations, conversions, `f16`, 64-bit words and
/// cooperative matrices.
fn capabilities(kernel: &Kernel) -> Capabilities {
    let source = kernel.source();
    // CPU adapters and browsers support this conversion; no kernel for a GPU relies on it.
    let needs = [
        ("subgroup", Capabilities::SUBGROUP),
        ("unpack2x16float", Capabilities::SHADER_FLOAT16_IN_FLOAT32),
        ("enable f16;", Capabilities::SHADER_FLOAT16),
        ("enable wgpu_cooperative_matrix;", Capabilities::COOPERATIVE_MATRIX),
        ("u64", Capabilities::SHADER_INT64),
    ];
    needs.into_iter().filter(|(word, _)| source.contains(word)).map(|(_, capability)| capability).collect()
}

fn check(kernel: &Kernel, module: &Module, capabilities: Capabilities) -> ModuleInfo {
    check_source(kernel, &kernel.source(), module, capabilities)
}

fn check_source(kernel: &Kernel, text: &str, module: &Module, capabilities: Capabilities) -> ModuleInfo {
    let checked = Validator::new(ValidationFlags::all(), capabilities).validate(module);
    checked.unwrap_or_else(|e| panic!("{}: {}", kernel.name, e.emit_to_string(text)))
}

/// Returns kernels that are generated for the fused chains of some networks.
fn generated_kernels() -> Vec<Kernel> {
    let known = kernels::all();
    let mut kernels: Vec<Kernel> = Vec::new();
    for (name, precision, side) in [
        ("resnet18", Precision::F32, None),
        ("resnet18", Precision::F16, Some(8)),
        ("resnet18", Precision::F16, Some(16)),
        ("mobilenet-v2", Precision::F16, None),
        ("gpt-nano", Precision::Bf16, None),
        ("llama-tiny", Precision::F32, None),
    ] {
        let cooperative = side.map(|side| Cooperative { side, lanes: 32 });
        let limits = Limits::default().choosing(|kernels| kernels.cooperative = cooperative);
        for image in [32, 40] {
            let image = matches!(name, "resnet18" | "mobilenet-v2").then_some([image; 2]);
            let options = ModelOptions { image, ..ModelOptions::default() };
            let step = Model::with_options(name, 0, &options).expect("a model").train_step(4).expect("valid");
            for rebuild in [false, true] {
                let options = PlanOptions { rebuild, precision, ..PlanOptions::default() };
                let plan = step.plan(&options, &limits).expect("planned");
                let used = plan.program.launches.iter().map(|(launch, _)| &launch.kernel);
                kernels.extend(used.filter(|kernel| !known.contains(kernel)).cloned());
            }
        }
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    kernels.dedup();
    assert!(kernels.len() >= 40, "only {} kernels were generated", kernels.len());
    kernels
}

/// Returns every kernel, also with words of 64 bits.
fn every_kernel_there_is() -> Vec<Kernel> {
    let mut kernels = kernels::all();
    assert!(kernels.len() >= 300, "only {} kernels", kernels.len());
    kernels.extend(generated_kernels());
    let long: Vec<Kernel> =
        kernels.iter().map(Kernel::in_long_words).filter(|kernel| !kernels.contains(kernel)).collect();
    assert!(long.len() >= 80, "only {} kernels in words of 64 bits", long.len());
    kernels.extend(long);
    kernels
}

fn every_kernel(body: impl Fn(&Kernel, &Module)) {
    every_kernel_there_is().iter().for_each(|kernel| body(kernel, &parse(kernel)));
}

#[test]
fn bindings_match_the_kernel_table() {
    every_kernel(|kernel, module| {
        let mut slots = BTreeSet::new();
        let mut shared = 0;
        for (_, global) in module.global_variables.iter() {
            let name = global.name.as_deref().unwrap_or_default();
            let size = module.types[global.ty].inner.size(module.to_ctx());
            match (&global.space, &global.binding) {
                (AddressSpace::Uniform, Some(place)) => {
                    assert_eq!((place.group, place.binding), (0, 0), "{}: uniform `{name}`", kernel.name);
                    assert!(size as usize <= 4 * MAX_PARAMS, "{}: {size} bytes of Params", kernel.name);
                }
                (AddressSpace::Storage { access }, Some(place)) => {
                    // One dispatch may not bind a buffer both read-only and writable.
                    let both = StorageAccess::LOAD | StorageAccess::STORE;
                    assert_eq!(*access, both, "{}: `{name}` is not read_write", kernel.name);
                    assert_eq!(place.group, 0, "{}: group of `{name}`", kernel.name);
                    assert!(slots.insert(place.binding), "{}: binding {} twice", kernel.name, place.binding);
                }
                (AddressSpace::WorkGroup, None) => shared += size,
                (AddressSpace::Private, None) => {}
                (space, binding) => panic!("{}: `{name}` in {space:?} at {binding:?}", kernel.name),
            }
        }
        let wanted: BTreeSet<u32> = kernel.slots.iter().copied().collect();
        assert_eq!(wanted.len(), kernel.slots.len(), "{}: a slot twice", kernel.name);
        assert_eq!(slots, wanted, "{}: slots", kernel.name);
        assert!(slots.len() <= 8, "{}: more storage buffers than every adapter has", kernel.name);
        assert!(shared <= 16 << 10, "{}: {shared} bytes of workgroup memory", kernel.name);
    });
}

#[test]
fn software_adapters_copy_parameters_first() {
    let (copied, modules) = (Cell::new(0), RefCell::new(Modules::new()));
    every_kernel(|kernel, _| {
        let text = kernel.source_for(AdapterClass::Cpu);
        let (uses, copies) = (text.contains("var<uniform>"), text.contains(") {\n    p = params;\n"));
        assert_eq!(copies, uses && !text.contains("Barrier();"), "{}: {text}", kernel.name);
        assert_eq!(kernel.source_for(AdapterClass::Discrete), kernel.source(), "{}", kernel.name);
        if copies {
            copied.set(copied.get() + 1);
            let module = parse_source(kernel, &text);
            let info = check_source(kernel, &text, &module, capabilities(kernel));
            for variant in kernel.variants {
                translates(kernel, &module, &info, variant, &mut modules.borrow_mut());
            }
        }
    });
    assert!(copied.get() >= 100, "{} copied", copied.get());
    spirv::validate("spirv-copied", &modules.into_inner());
}

#[test]
fn workgroup_sizes_match_the_kernel_table() {
    every_kernel(|kernel, module| {
        let info = check(kernel, module, capabilities(kernel));
        let mut most = 0;
        for variant in kernel.variants {
            let (module, _) = specialized(kernel, module, &info, variant);
            let [entry] = &module.entry_points[..] else { panic!("{}: not one entry point", kernel.name) };
            assert_eq!((entry.name.as_str(), entry.stage), ("main", ShaderStage::Compute), "{}", kernel.name);
            let threads: u32 = entry.workgroup_size.iter().product();
            // Grids of threads are folded by the table's number, so it may not exceed the number of threads.
            let decided = variant.iter().any(|(name, _)| name.starts_with("LANES"));
            assert!(decided || threads == kernel.workgroup, "{} with {variant:?}: {threads}", kernel.name);
            assert!(threads <= 256, "{}: more threads than every adapter has", kernel.name);
            let launch = Launch::<()> {
                kernel: kernel.clone(),
                constants: variant.to_vec(),
                memory: Vec::new(),
                params: Vec::new(),
                grid: [1; 3],
            };
            assert_eq!(launch.threads(), threads, "{} with {variant:?}", kernel.name);
            let shared: u32 = shared_bytes(&module);
            // Cooperative convolutions note columns beside their tiles.
            let least = if launch.kind().uses_matrices() { shared - shared / 7 } else { shared };
            let counted = launch.shared_bytes();
            assert!(
                (least..=shared).contains(&counted),
                "{} with {variant:?}: {counted}, {shared}",
                kernel.name
            );
            most = most.max(threads);
        }
        assert_eq!(most, kernel.workgroup, "{}: threads", kernel.name);
    });
}

fn shared_bytes(module: &Module) -> u32 {
    let shared = module.global_variables.iter().filter(|(_, global)| global.space == AddressSpace::WorkGroup);
    shared.map(|(_, global)| module.types[global.ty].inner.size(module.to_ctx())).sum()
}

fn specialized<'a>(
    kernel: &Kernel,
    module: &'a Module,
    info: &'a ModuleInfo,
    variant: &[(&str, f64)],
) -> (std::borrow::Cow<'a, Module>, std::borrow::Cow<'a, ModuleInfo>) {
    let known: BTreeSet<&str> = module.overrides.iter().filter_map(|(_, o)| o.name.as_deref()).collect();
    for (name, _) in variant {
        assert!(known.contains(name), "{} has no override `{name}`", kernel.name);
    }
    let constants = variant.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    process_overrides(module, info, Some((ShaderStage::Compute, "main")), &constants)
        .unwrap_or_else(|e| panic!("{} with {variant:?}: {e:?}", kernel.name))
}

/// Translates a variant for Vulkan, Metal and DirectX, where they support what the kernel needs. Adds the
/// SPIR-V to `modules`.
fn translates(
    kernel: &Kernel,
    module: &Module,
    info: &ModuleInfo,
    variant: &[(&str, f64)],
    modules: &mut Modules,
) {
    let entry = || Some((ShaderStage::Compute, "main".to_owned()));
    let needs = capabilities(kernel);
    let what = format!("{} with {variant:?}", kernel.name);
    let (module, info) = specialized(kernel, module, info, variant);
    let options = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".to_owned() };
    let version = if kernel.source().contains("subgroup") { (1, 3) } else { (1, 0) };
    let target = spv::Options { lang_version: version, ..spv::Options::default() };
    let words = spv::write_vec(&module, &info, &target, Some(&options))
        .unwrap_or_else(|e| panic!("{what} as SPIR-V: {e}"));
    assert_eq!(words[0], 0x0723_0203, "{what}: SPIR-V's magic number");
    modules.insert(words, what.clone());
    // Metal has only 8 × 8 cooperative matrices, and DirectX none that WGSL can express.
    let cooperates = needs.contains(Capabilities::COOPERATIVE_MATRIX);
    if !cooperates || kernel.source().contains("coop_mat8x8") {
        let options = msl::PipelineOptions { entry_point: entry(), ..msl::PipelineOptions::default() };
        let target =
            msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..msl::Options::default() };
        let (text, _) = msl::write_string(&module, &info, &target, &options)
            .unwrap_or_else(|e| panic!("{what} as Metal: {e}"));
        assert!(text.contains("kernel void"), "{what}: {text}");
    }
    if cooperates {
        return;
    }
    // FXC, which wgpu uses where there is no DXC, knows shader model 5.1: no waves and no words of 64 bits.
    let old = !needs.intersects(Capabilities::SUBGROUP | Capabilities::SHADER_INT64);
    for shader_model in [hlsl::ShaderModel::V6_0, hlsl::ShaderModel::V5_1] {
        if shader_model == hlsl::ShaderModel::V5_1 && !old {
            continue;
        }
        let options = hlsl::PipelineOptions { entry_point: entry() };
        let target = hlsl::Options { shader_model, ..hlsl::Options::default() };
        let mut text = String::new();
        hlsl::Writer::new(&mut text, &target, &options)
            .write(&module, &info, None)
            .unwrap_or_else(|e| panic!("{what} as HLSL for {shader_model:?}: {e}"));
        assert!(text.contains("numthreads"), "{what}: {text}");
        if shader_model == hlsl::ShaderModel::V5_1 {
            let is_newer = |word: &&str| {
                let kinds = ["int64_t", "uint64_t", "float16_t", "half", "Wave"];
                kinds.iter().any(|kind| match word.strip_prefix(kind) {
                    Some(rest) => *kind == "Wave" || ["", "2", "3", "4"].contains(&rest),
                    None => false,
                })
            };
            let newer = text.split(|c: char| !c.is_alphanumeric() && c != '_').find(is_newer);
            assert_eq!(newer, None, "{what}: not in shader model 5.1: {text}");
        }
    }
}

#[test]
fn every_variant_translates_for_every_backend() {
    let (variants, modules) = (Cell::new(0), RefCell::new(Modules::new()));
    every_kernel(|kernel, module| {
        let info = check(kernel, module, capabilities(kernel));
        assert!(!kernel.variants.is_empty(), "{} has no variant", kernel.name);
        for variant in kernel.variants {
            translates(kernel, module, &info, variant, &mut modules.borrow_mut());
        }
        variants.set(variants.get() + kernel.variants.len());
    });
    assert!(variants.get() >= 500, "only {} variants", variants.get());
    spirv::validate("spirv", &modules.into_inner());
}

#[test]
fn every_shader_file_is_used_and_neither_long_nor_tiny() {
    let shaders = Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let mut files = BTreeSet::new();
    for family in std::fs::read_dir(&shaders).expect("the folder of the shaders") {
        let family = family.expect("a folder").path();
        for file in std::fs::read_dir(&family).expect("a family") {
            let path = file.expect("a file").path();
            let name = path.strip_prefix(&shaders).expect("below it").with_extension("");
            let text = std::fs::read_to_string(&path).expect("text");
            let lines = text.lines().count();
            assert!((10..=200).contains(&lines), "{}: {lines} lines", path.display());
            assert!(text.starts_with("// "), "{}: no line that says what it computes", path.display());
            files.insert(name.display().to_string().replace('\\', "/"));
        }
    }
    assert!(files.len() <= 90, "{} files", files.len());
    let modules: BTreeSet<String> = kernels::modules().map(str::to_owned).collect();
    assert_eq!(files, modules, "the files, and the modules of src/kernels/assemble.rs");
    let used: BTreeSet<&str> = every_kernel_there_is().iter().flat_map(Kernel::modules).collect();
    let unused: Vec<&String> = modules.iter().filter(|name| !used.contains(&name[..])).collect();
    assert!(unused.is_empty(), "no kernel imports {unused:?}");
}

#[test]
fn kernel_names_are_unique() {
    // Names identify kernels in reports.
    let kernels = every_kernel_there_is();
    let names: BTreeSet<&str> = kernels.iter().map(|kernel| &*kernel.name).collect();
    assert_eq!(names.len(), kernels.len());
}
