//! SPIR-V as naga writes it, through `spirv-val`, the validator of Khronos's SPIR-V tools.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::folder::Folder;
use super::skip::skip;

/// Modules by their words, each with the name of a kernel that it is for.
pub type Modules = BTreeMap<Vec<u32>, String>;

/// Validates modules; reports a skip where there is no validator, and fails there if
/// `WGRAD_REQUIRE_SPIRV_VAL=1`.
pub fn validate(name: &str, modules: &Modules) {
    let version = Command::new("spirv-val").arg("--version").output();
    let Ok(version) = version else {
        let required = std::env::var_os("WGRAD_REQUIRE_SPIRV_VAL").is_some_and(|value| value == "1");
        assert!(!required, "WGRAD_REQUIRE_SPIRV_VAL: there is no `spirv-val` here");
        return skip("no spirv-val here; `scripts/setup.sh --spirv` installs it");
    };
    let folder = Folder::new(name);
    let modules: Vec<(&Vec<u32>, &String)> = modules.iter().collect();
    let (next, unknown, mistakes) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((words, name)) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = folder.join(format!("{:p}.spv", words.as_ptr()));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(&path, bytes).expect("written");
            // The second word is the version of SPIR-V.
            let environment = if words[1] == 0x0001_0000 { "vulkan1.0" } else { "vulkan1.1" };
            let output = Command::new("spirv-val")
                .args(["--target-env", environment])
                .arg(&path)
                .stdin(Stdio::null())
                .output()
                .expect("it ran before");
            std::fs::remove_file(&path).expect("it is there");
            let said = String::from_utf8_lossy(&output.stderr);
            if said.contains("Invalid capability operand") && name.contains("cooperative") {
                // Releases before 2023.4 do not know cooperative matrices.
                unknown.fetch_add(1, Ordering::Relaxed);
            } else if !output.status.success() {
                let mistake = format!("{name}: {}", said.lines().next().unwrap_or_default());
                mistakes.lock().expect("no panic").push(mistake);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    let mistakes = mistakes.into_inner().expect("no panic");
    assert!(mistakes.is_empty(), "{} modules:\n{}", mistakes.len(), mistakes.join("\n"));
    if unknown.into_inner() > 0 {
        let version = String::from_utf8_lossy(&version.stdout);
        let version = version.lines().next().unwrap_or_default();
        skip(&format!("{version} does not know cooperative matrices: their SPIR-V is not validated"));
    }
}
