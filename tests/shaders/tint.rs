//! Every kernel that a browser can run, through Tint, Chromium's compiler of WGSL: it knows rules that naga does
//! not, such as that of uniform control flow around barriers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use wgrad::kernels::Kernel;
use wgrad::limits::AdapterClass;

use super::browser::{WEBGPU_ON_SWIFTSHADER, answer, browser};
use super::every_kernel_there_is;
use super::folder::Folder;

/// Compiles every source and sends the mistakes.
const PAGE: &str = r#"<!DOCTYPE html><meta charset="utf-8">
<script type="application/json" id="sources">SOURCES</script>
<script>
const say = (what) => fetch("/said", { method: "POST", body: JSON.stringify(what) });
const compile = async () => {
  if (!navigator.gpu) return say({ failed: "no WebGPU" });
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) return say({ failed: "no adapter" });
  const device = await adapter.requestDevice();
  const sources = JSON.parse(document.getElementById("sources").textContent);
  const check = async ({ name, code }) => {
    const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
    const line = (m) => code.split("\n")[m.lineNum - 1];
    return messages.map((m) => `${name}: ${m.type}: ${m.message} in: ${line(m)}`);
  };
  const mistakes = (await Promise.all(sources.map(check))).flat();
  const { vendor, architecture } = adapter.info;
  return say({ adapter: `${vendor} ${architecture}`, sources: sources.length, mistakes });
};
compile().catch((error) => say({ failed: String(error) }));
</script>"#;

/// What browsers lack: wgpu does not map subgroups there, WGSL has no words of 64 bits and no matrices.
fn runs_in_a_browser(kernel: &Kernel) -> bool {
    let source = kernel.source();
    !["subgroup", "u64", "coop_mat"].iter().any(|word| source.contains(word))
}

/// Returns the source with its overrides as constants of these values, so that Tint knows what depends on them.
fn with_constants(source: &str, variant: &[(&str, f64)]) -> String {
    let declared = |line: &str| -> Option<String> {
        let (name, rest) = line.strip_prefix("override ")?.split_once(':')?;
        let (_, value) = variant.iter().find(|(known, _)| *known == name.trim())?;
        let kind = rest.split(['=', ';']).next()?.trim();
        let value = match kind {
            "bool" => (*value != 0.0).to_string(),
            kind => format!("{kind}({value})"),
        };
        Some(format!("const {name}: {kind} = {value};"))
    };
    let constant = |line: &str| match declared(line) {
        Some(declared) => declared,
        None if line.starts_with("override ") => line.replacen("override ", "const ", 1),
        None => line.to_owned(),
    };
    source.lines().map(constant).collect::<Vec<_>>().join("\n")
}

#[test]
fn tint_compiles_every_kernel_that_a_browser_can_run() {
    let Some(browser) = browser() else { return };
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let (mut kernels, mut variants) = (0, 0);
    for kernel in every_kernel_there_is().iter().filter(|kernel| runs_in_a_browser(kernel)) {
        kernels += 1;
        for variant in kernel.variants {
            variants += 1;
            // A browser's adapter may be a software adapter.
            for class in [AdapterClass::Integrated, AdapterClass::Cpu] {
                let source = with_constants(&kernel.source_for(class), variant);
                let left = source.lines().find(|line| line.contains("override ") && !line.starts_with("//"));
                assert_eq!(left, None, "{}", kernel.name);
                sources.insert(source, format!("{} with {variant:?}", kernel.name));
            }
        }
    }
    assert!(
        kernels >= 250 && variants >= 500,
        "only {kernels} kernels in {variants} variants run in a browser"
    );
    let list: Vec<Value> = sources.iter().map(|(code, name)| json!({ "name": name, "code": code })).collect();
    // In a script element, `<` may not stand as itself.
    let list = Value::Array(list).to_string().replace('<', "\\u003c");
    let profile = Folder::new("tint");
    let limit = Duration::from_secs(300);
    let text = answer(&browser, &PAGE.replace("SOURCES", &list), &profile, &WEBGPU_ON_SWIFTSHADER, limit);
    let said: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(said["adapter"], "google swiftshader", "{text}");
    let mistakes: Vec<&str> =
        said["mistakes"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(mistakes.is_empty(), "{} mistakes:\n{}", mistakes.len(), mistakes.join("\n"));
    assert_eq!(said["sources"], sources.len());
}
