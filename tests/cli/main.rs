//! The `wgrad` program as its users run it: its output and its error messages. Cargo builds the program for
//! this test alone, with the feature `cli`, which the other tests do not need.

mod bench;
mod finetune;
mod mpi;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::devices;
use support::folder::Folder;
use wgrad::compile::PlanOptions;
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::limits::Limits;
use wgrad::models::Model;
use wgrad::optim::Adam;
use wgrad::report::{Request, Source};

fn wgrad(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wgrad")).args(arguments).output().expect("the program starts")
}

/// Returns what the program prints as JSON; it must succeed.
fn json(arguments: &[&str]) -> Value {
    let output = wgrad(arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e} in\n{text}"))
}

/// Returns what the program prints on standard error; it must fail.
fn refusal(arguments: &[&str]) -> String {
    let output = wgrad(arguments);
    assert!(!output.status.success(), "{arguments:?} was accepted");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The list says in words why cooperative matrices are used or not, gives memory only where it is known, and names
/// each adapter as `--adapter` and `WGRAD_ADAPTER` take it.
#[test]
fn adapters_are_listed_with_reasons_and_found_by_backend() {
    let list = json(&["adapters", "--json"]);
    let list = list.as_array().expect("a list");
    assert_eq!(list.len(), Device::list().len());
    for adapter in list {
        let verdict = adapter["cooperative_verdict"].as_str().expect("words");
        let offered = !adapter["cooperative_side"].is_null();
        assert!(verdict.starts_with("not used: ") || (offered && verdict.contains("used")), "{verdict}");
        let (total, budget) = (adapter["memory_bytes"].as_u64(), adapter["memory_budget_bytes"].as_u64());
        if adapter["backend"] == "vulkan" {
            assert!(total > Some(1 << 28), "Vulkan has heaps: {adapter}");
        }
        assert!(total.is_none() || budget <= total, "{adapter}");
        assert_eq!(budget.is_some(), adapter["memory_used_bytes"].is_u64(), "{adapter}");
    }
    let text = String::from_utf8(wgrad(&["adapters"]).stdout).expect("text");
    let Some(device) = devices().first() else { return };
    let adapter = device.adapter();
    assert!(text.lines().any(|line| line == adapter.selector()), "{text}");
    let bench = ["bench", "elementwise", "--size", "100", "--json"];
    let found = |name: &str| json(&[&bench[..], &["--adapter", name]].concat())["adapter"].clone();
    assert_eq!(found(&adapter.selector()), adapter.name);
    let other = if adapter.backend == "metal" { "vulkan:" } else { "metal:" };
    let error = refusal(&[&bench[..], &["--adapter", &format!("{other}{}", adapter.name)]].concat());
    assert!(error.contains("there is no adapter") && error.contains(&adapter.selector()), "{error}");
    let by_variable =
        Command::new(env!("CARGO_BIN_EXE_wgrad")).args(bench).env("WGRAD_ADAPTER", "voodoo").output();
    let said = String::from_utf8_lossy(&by_variable.expect("the program starts").stderr).into_owned();
    assert!(said.contains("there is no adapter `voodoo`"), "{said}");
}

#[test]
fn verbose_shows_what_was_decided() {
    let Some(device) = devices().last() else { return };
    let bench = ["bench", "matmul", "--size", "64", "--tune", "0.05", "--adapter", &device.adapter().name];
    let said = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said(wgrad(&bench)).contains("tuned"));
    let text = said(wgrad(&[&["-v"][..], &bench].concat()));
    assert!(text.contains("info: ") && text.contains("tuned with"), "{text}");
}

/// Runs the program, reads 16 bytes and closes the pipe, as `head` does. Returns whether it succeeded, and
/// its standard error.
fn read_a_little(arguments: &[&str]) -> (bool, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wgrad"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut few = [0; 16];
    let mut out = child.stdout.take().expect("it is piped");
    out.read_exact(&mut few).expect("it prints something");
    drop(out);
    let output = child.wait_with_output().expect("it ends");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What Python and browsers ask for by name is what the program plans.
#[test]
fn requests_by_name_are_plans_of_the_program() {
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("digits", &[]),
        (
            "resnet18",
            &[
                ("batch", "8"),
                ("image", "64x96"),
                ("precision", "f16"),
                ("loss_scale", "true"),
                ("fuse", "false"),
            ],
        ),
        (
            "cnn",
            &[
                ("batch", "64"),
                ("budget", "3MB"),
                ("recompute", "auto"),
                ("bit_masks", "true"),
                ("optimizer", "muon"),
            ],
        ),
        (
            "mlp",
            &[
                ("ranks", "4"),
                ("shard", "parameters"),
                ("clip_norm", "2"),
                ("rebuild", "false"),
                ("card", "m2-max"),
            ],
        ),
        (
            "smollm2-135m",
            &[("batch", "1"), ("seq", "32"), ("lora", "r=2"), ("frozen_weights", "int8"), ("limits", "arc")],
        ),
    ];
    for (model, settings) in cases {
        let mut request = Request::default();
        let mut arguments = vec!["plan".to_owned(), model.to_owned(), "--json".to_owned()];
        for (name, value) in settings {
            request.set(name, value).unwrap();
            let flag = name.replace('_', "-");
            match *value {
                "true" => arguments.push(format!("--{flag}")),
                "false" => arguments.push(format!("--no-{flag}")),
                value => arguments.extend([format!("--{flag}"), value.to_owned()]),
            }
        }
        let planned = request.plan(&Source::Named(model)).unwrap();
        let output = wgrad(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), planned.json().to_string(), "{model}");
    }
}

#[test]
fn plan_passes_lists_every_pass_with_its_effect() {
    let arguments = ["plan", "cnn", "--batch", "16", "--passes"];
    let output = wgrad(&arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("recompute_cheap") && text.contains("same bits"),
        "{text}"
    );
    let passes = json(&[&arguments[..], &["--json"]].concat());
    let passes = passes.as_array().expect("a list");
    assert_eq!(text.lines().count(), passes.len() + 1, "{text}");
    let half = passes.iter().find(|pass| pass["name"] == "store_activations").expect("there");
    assert_eq!((&half["ran"], &half["exact"]), (&Value::Bool(false), &Value::Bool(false)), "{half}");
    let [first, last] = [&passes[0], &passes[passes.len() - 1]].map(|pass| pass["bytes"].as_u64());
    assert!(last < first, "{text}");
}

#[test]
fn ops_lists_the_table_of_operations() {
    let rows = json(&["ops", "--json"]);
    let rows = rows.as_array().expect("a list");
    assert_eq!(rows.len(), wgrad::report::operations().len());
    let clamp = rows.iter().find(|row| row["wgrad"] == "x.clamp(lo, hi)").expect("an entry");
    assert_eq!(clamp["pytorch"], serde_json::json!(["torch.clamp", "F.hardtanh"]));
    assert_eq!(clamp["gradient"], true);
    let text = String::from_utf8(wgrad(&["ops"]).stdout).expect("UTF-8");
    assert!(text.starts_with("elementwise\n") && text.contains("nn.LSTM"), "{text}");
}

#[test]
fn folders_of_hugging_face_are_planned_by_their_config() {
    let folder = support::golden::path("llama/qwen2");
    let folder = folder.to_str().expect("UTF-8");
    let plan = json(&["plan", folder, "--batch", "2", "--seq", "17", "--json"]);
    assert_eq!((plan["seq"].as_u64(), plan["parameters"].as_u64()), (Some(17), Some(15_808)), "{plan}");
    let above = support::golden::path("llama");
    let said = refusal(&["plan", above.to_str().expect("UTF-8")]);
    assert!(said.contains("config.json"), "{said}");
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    // The output is larger than a pipe's buffer.
    for arguments in [&["plan", "resnet18", "--json"][..], &["plan", "resnet50", "--summary"]] {
        assert_eq!(read_a_little(arguments), (true, String::new()), "{arguments:?}");
    }
    let full = Path::new("/dev/full");
    if full.exists() {
        let full = std::fs::File::create(full).expect("it is there");
        let mut command = Command::new(env!("CARGO_BIN_EXE_wgrad"));
        let output = command.args(["plan", "mlp"]).stdout(full).output().expect("the program starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.starts_with("error: standard output: "), "{text}");
    }
}

#[test]
fn plan_over_its_budget_writes_a_failure_report() {
    let folder = Folder::new("cli-failures");
    let path = folder.display().to_string();
    let text = refusal(&["bench", "mlp", "--budget", "1MB", "--failures", &path]);
    let file = text.lines().find_map(|line| line.strip_prefix("what is known of this failure is in "));
    let file = Path::new(file.unwrap_or_else(|| panic!("no file is named in {text}")));
    assert!(file.starts_with(&*folder) && file.with_extension("pickle").exists(), "{text}");
    let known: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(known["error"].as_str().is_some_and(|error| text.contains(error)), "{known} and {text}");
    assert!(known["estimate"]["planned_bytes"].as_u64() > Some(1_000_000), "{known}");
    // A mistake in the arguments needs no report.
    assert!(!refusal(&["bench", "mlp", "--steps", "0"]).contains("what is known"));
}

#[test]
fn no_progress_is_printed_to_a_pipe() {
    let long = ["plan", "resnet18", "--batch", "32", "--budget", "450MB", "--recompute", "auto"];
    let output = wgrad(&long);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    assert_eq!(wgrad(&[&long[..], &["--quiet"]].concat()).stdout, output.stdout);
}

/// Recomputation and fusion can be turned off, each alone, and the output shows it.
#[test]
fn recomputation_and_fusion_can_be_turned_off() {
    let plan = |more: &[&str]| {
        json(&[&["plan", "resnet18", "--batch", "8", "--optimizer", "momentum", "--json"][..], more].concat())
    };
    let total = |plan: &Value| plan["device_bytes"]["total"].as_u64().expect("a number");
    let again = |plan: &Value| plan["recompute_time_fraction"].as_f64().expect("a number");
    let default = plan(&[]);
    let (kept, apart) = (plan(&["--no-rebuild"]), plan(&["--no-rebuild", "--no-fuse"]));
    let told = |plan: &Value| [plan["rebuild"].as_bool(), plan["fused"].as_bool()].map(Option::unwrap);
    assert_eq!([&default, &kept, &apart].map(told), [[true, true], [false, true], [false, false]]);
    assert!(again(&default) > 0.0 && total(&default) < total(&kept), "{} {}", total(&default), total(&kept));
    assert_eq!(again(&apart), 0.0, "nothing is merged, so nothing is computed twice");
    assert!(again(&kept) < again(&default), "{} and {}", again(&kept), again(&default));
    assert!(total(&kept) <= total(&apart), "{} and {}", total(&kept), total(&apart));
    let old = plan(&["--no-rebuild", "--unfused"]);
    assert_eq!(old["hash"], apart["hash"], "--unfused goes on to work");
}

/// Names of fused operations are as long as what they are made of.
#[test]
fn columns_of_kept_results_are_aligned() {
    let output = wgrad(&["plan", "gpt2", "--batch", "1", "--seq", "64", "--limits", "nvidia"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().skip_while(|line| *line != "kept for the backward pass").skip(1);
    let columns: Vec<usize> = rows.map_while(|line| line.find("  of ")).collect();
    assert!(text.contains("  matmul+add+dropout+add  "), "{text}");
    assert!(columns.len() > 3 && columns.iter().all(|at| *at == columns[0]), "{columns:?} in\n{text}");
}

#[test]
fn frozen_parameters_need_fewer_bytes_and_unknown_patterns_are_refused() {
    let plan = ["plan", "resnet18", "--batch", "2", "--json"];
    let all = json(&plan);
    let some = json(&[&plan[..], &["--freeze", "conv1.*", "--freeze", "layer1.*"]].concat());
    assert_eq!(some["freeze"], serde_json::json!(["conv1.*", "layer1.*"]));
    assert_eq!(some["parameters"], all["parameters"]);
    assert!(some["peak_bytes"].as_u64() < all["peak_bytes"].as_u64(), "{some}");
    assert!(
        refusal(&["plan", "mlp", "--freeze", "conv1.*"])
            .contains("no parameter like `conv1.*`; known: fc1.weight")
    );
    assert!(refusal(&["bench", "matmul", "--freeze", "*"]).contains("--freeze belongs to a network"));
}

/// Returns the label before the numbers of a printed line, which identifies the same line of another run.
fn label(line: &str) -> &str {
    let text = line.trim_start();
    let end = text.find("  ").into_iter().chain(text.find(": ")).min();
    &text[..end.unwrap_or(text.len())]
}

/// The documents show the output of `wgrad plan`: its lines, in order, with `…` for lines left out. `scripts/tables.sh` rewrites
/// them, unless their order changes.
#[test]
fn documents_show_the_printed_plans() {
    let write = std::env::var("WGRAD_TABLES").as_deref() == Ok("write");
    let mut shown = 0;
    // A plan under a budget takes seconds: once for all documents.
    let mut outputs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in ["docs/out-of-memory.md", "docs/fit.md", "docs/scale.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).expect("a document");
        let (mut fresh, mut printed): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("$ wgrad plan ") {
                let run = || {
                    let arguments: Vec<&str> =
                        ["plan"].into_iter().chain(command.split_whitespace()).collect();
                    let output = wgrad(&arguments);
                    let both = [output.stdout, output.stderr].concat();
                    String::from_utf8_lossy(&both).lines().map(|line| line.trim_end().to_owned()).collect()
                };
                printed = outputs.entry(command.to_owned()).or_insert_with(run).clone();
                shown += 1;
            } else if line.starts_with("```") || line.starts_with("$ ") {
                printed.clear();
            } else if !printed.is_empty() && line != "…" && !line.is_empty() {
                let same =
                    |printed: &String| if write { label(printed) == label(line) } else { printed == line };
                let at = printed.iter().position(same).unwrap_or_else(|| {
                    panic!(
                        "{file}: not printed, or not in this order: {line}\nprinted:\n{}",
                        printed.join("\n")
                    )
                });
                fresh.push(printed[at].clone());
                printed.drain(..=at);
                continue;
            }
            fresh.push(line.to_owned());
        }
        if write {
            std::fs::write(&path, fresh.join("\n") + "\n").expect("it can be written");
        }
    }
    assert!(shown >= 10, "{shown} blocks: are they written in another way?");
}

#[test]
fn offloaded_bytes_are_counted_and_invalid_options_rejected() {
    let plan = |offload: &str| json(&["plan", "mlp", "--batch", "64", "--offload", offload, "--json"]);
    let (off, optimizer, both) = (plan("off"), plan("optimizer"), plan("optimizer,activations:1MB"));
    let total = |plan: &Value| plan["device_bytes"]["total"].as_u64().expect("a number");
    assert!(off["host_bytes"] == 0 && off["moved_bytes"] == 0);
    assert!(total(&optimizer) < total(&off), "{} and {}", total(&optimizer), total(&off));
    let host = optimizer["host_bytes"].as_u64().expect("a number");
    assert_eq!(optimizer["moved_bytes"], 2 * host);
    assert!(both["host_bytes"].as_u64() > Some(host));
    assert!(optimizer["device_bytes"]["offload"].as_u64() > Some(0));
    // Twice the rate takes half the time.
    let fast = ["--offload", "optimizer", "--card", "rtx3060,host-bytes=48e9", "--json"];
    let fast = json(&[&["plan", "mlp", "--batch", "64"][..], &fast].concat());
    let share = |plan: &Value| plan["moved_time_fraction"].as_f64().expect("a number");
    assert!((share(&optimizer) / share(&fast) - 2.0).abs() < 1e-9);
    for offload in ["everything", "optimizer,optimizer", "activations:", "off,optimizer", ""] {
        let text = refusal(&["plan", "mlp", "--offload", offload]);
        assert!(text.contains("offload") && text.contains("activations:SIZE"), "{offload}: {text}");
    }
    let text = refusal(&["plan", "resnet18", "--batch", "2", "--offload", "activations:layer1.0+layer9"]);
    assert!(text.contains("`layer9`") && text.contains("layer1.1.conv1"), "{text}");
    let text = refusal(&["plan", "mlp", "--card", "rtx3060,speed=4"]);
    assert!(text.contains("--card rtx3060,speed=4") && text.contains("host-bytes=50e9"), "{text}");
}

/// `--launches` lists what `dispatches` counts; a faster card takes less time.
#[test]
fn launches_are_listed_with_their_modelled_times() {
    let plan = ["plan", "resnet18", "--batch", "8", "--limits", "nvidia"];
    let of = |more: &[&str]| json(&[&plan[..], more].concat());
    let listed = of(&["--launches", "--card", "h200", "--json"]);
    let launches = listed["launches"].as_array().expect("a list");
    assert_eq!(listed["dispatches"], of(&["--json"])["dispatches"]);
    assert_eq!(listed["dispatches"].as_u64(), Some(launches.len() as u64));
    let mut sum = 0.0;
    for launch in launches {
        let keys: Vec<&String> = launch.as_object().expect("an object").keys().collect();
        let known =
            ["kernel", "op", "layer", "workgroups", "threads", "flops", "bytes", "waves", "modelled_us"];
        assert_eq!(keys, known);
        assert!(launch["workgroups"].as_u64() > Some(0) && launch["threads"].as_u64() > Some(0), "{launch}");
        sum += launch["modelled_us"].as_f64().expect("a number");
    }
    let ms = |listed: &Value| listed["modelled_ms"].as_f64().expect("a number");
    assert!((sum / 1e3 / ms(&listed) - 1.0).abs() < 1e-9, "{sum} and {}", ms(&listed));
    assert!(launches.iter().any(|launch| launch["op"] == "conv2d" && launch["layer"] == "layer1.0.conv1"));
    let slow = of(&["--launches", "--card", "steam-deck", "--json"]);
    assert!(ms(&slow) > 10.0 * ms(&listed), "{} and {}", ms(&slow), ms(&listed));
    let text = String::from_utf8_lossy(&wgrad(&[&plan[..], &["--launches"]].concat()).stdout).into_owned();
    for part in ["modelled on rtx3060", "dispatches in order", "by kernel", "most time lost"] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let text = refusal(&["plan", "mlp", "--launches", "--card", "voodoo"]);
    assert!(text.contains("voodoo") && text.contains("arc-b580"), "{text}");
}

#[test]
fn unsearched_packing_is_not_reported_as_proved() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/problems/known/gap-0.csv");
    let said = |more: &[&str]| {
        let output = wgrad(&[&["pack", file], more].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // 4 bytes are alive at every instant, and no packing takes fewer than 5.
    let hurried = said(&["--time-limit", "0"]);
    assert!(hurried.contains("lower bound  4 ") && hurried.contains("not proved"), "{hurried}");
    let searched = said(&["--effort", "exact"]);
    assert!(searched.contains("lower bound  5 ") && searched.contains("yes, proved"), "{searched}");
}

/// A plan does not depend on what its process planned before.
#[test]
fn plan_hashes_are_the_same_in_every_process() {
    let plan = |precision, fuse| {
        let step = Model::named("cnn", 0).expect("there").train_step(128).expect("valid");
        let options =
            PlanOptions { precision, fuse, optimizer: Adam::default().into(), ..PlanOptions::default() };
        step.plan(&options, &Limits::named("discrete").expect("a preset")).expect("it fits").hash()
    };
    let arguments = ["plan", "cnn", "--limits", "discrete", "--precision"];
    let other = |more: &[&str]| json(&[&arguments[..], more, &["--json"]].concat())["hash"].clone();
    // In another order than that of the processes, each of which plans once.
    for (precision, more) in
        [(Precision::Bf16, ["bf16"]), (Precision::F32, ["f32"]), (Precision::F16, ["f16"])]
    {
        plan(precision, false);
        assert_eq!(other(&more), format!("{:016x}", plan(precision, true)), "{more:?}");
    }
}

#[test]
fn plan_over_its_budget_is_an_error_on_standard_error() {
    let text = refusal(&["plan", "mlp", "--budget", "1MB"]);
    assert!(text.starts_with("error: the step needs ") && text.contains("the budget is 976.6 KiB"), "{text}");
    // Negative numbers are values, not options.
    let text = refusal(&["plan", "mlp", "--batch", "-1"]);
    assert!(text.contains("invalid value '-1' for '--batch <BATCH>'"), "{text}");
}

/// Eight processes open one cache at a time, some of them twice; all train, and the cache stays whole.
#[test]
fn processes_share_a_cache() {
    let folder = Folder::new("cli-cache");
    let path = folder.display().to_string();
    let arguments = ["bench", "mlp", "--batch", "8", "--steps", "2", "--json", "--cache", &path];
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wgrad"));
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let all: Vec<_> = (0..8).map(|_| start()).collect();
    let losses: Vec<Value> = all
        .into_iter()
        .map(|process| {
            let output = process.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["loss_last"].clone()
        })
        .collect();
    assert!(losses.iter().all(|loss| *loss == losses[0]), "{losses:?}");
    let files: Vec<_> =
        std::fs::read_dir(&*folder).expect("a cache").map(|file| file.unwrap().path()).collect();
    assert!(files.iter().all(|file| file.extension().is_none_or(|name| name != "partial")), "{files:?}");
    assert_eq!(json(&arguments)["loss_last"], losses[0]);
    // A cache that cannot be written is a warning.
    let output = wgrad(&["bench", "mlp", "--batch", "8", "--steps", "1", "--cache", "/dev/null/cache"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.contains("warning: /dev/null/cache"), "{text}");
}

/// What `run` computes with a model and trained parameters, it computes with the exported file.
#[test]
fn exported_files_compute_what_the_model_computes() {
    use safetensors::{Dtype, serialize, tensor::TensorView};

    let folder = Folder::new("export");
    let at = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let [inputs, weights, exported] = [at("in.safetensors"), at("w.safetensors"), at("digits.onnx")];
    let bytes = |numbers: Vec<f32>| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let write = |path: &str, tensors: &[(String, Vec<usize>, Vec<u8>)]| {
        let views = tensors.iter().map(|(name, shape, bytes)| {
            (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("of this shape"))
        });
        std::fs::write(path, serialize(views, None).expect("valid")).expect("written");
    };
    let x = ("x".to_owned(), vec![2, 64], bytes(support::noise(1, 128, 0.0, 1.0)));
    write(&inputs, &[x, ("labels".to_owned(), vec![2], bytes(vec![3.0, 7.0]))]);
    let model = Model::named("digits", 5).expect("known");
    let of = |param: &wgrad::graph::Param| {
        (param.name().to_owned(), param.shape().dims().to_vec(), bytes(param.initial(0..u64::MAX)))
    };
    write(&weights, &model.params().list().iter().map(of).collect::<Vec<_>>());
    for device in devices() {
        let adapter = &device.adapter().name;
        let printed = std::cell::RefCell::default();
        let outputs = |name: &str, arguments: &[&str]| {
            let outputs = at(name);
            let fixed = ["--inputs", &inputs, "--outputs", &outputs, "--adapter", adapter];
            let done = wgrad(&[&["run"], arguments, &fixed].concat());
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            printed.replace(String::from_utf8_lossy(&done.stdout).into_owned());
            support::golden::read_at(Path::new(&outputs))["logits"].clone()
        };
        let initial = outputs("initial", &["digits"]);
        let trained = outputs("trained", &["digits", "--load", &weights]);
        assert!(initial.0 == [2, 10] && initial != trained);
        let given = ["--batch", "2", "--load", &weights, "--output", &exported, "--adapter", adapter];
        let done = wgrad(&[&["export", "digits"][..], &given].concat());
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && text.contains("output logits [2, 10]"), "{text}");
        let found = outputs("exported", &[&exported]);
        assert_eq!(found.0, trained.0);
        let apart = found.1.iter().zip(&trained.1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-5, "{apart}");
        // Two steps of training lower the loss and change the outputs.
        assert_ne!(outputs("steps", &[&exported, "--train", "2", "--lr", "0.05"]), found);
        let losses: Vec<f32> =
            printed.take().lines().filter_map(|line| line.split_once(": loss ")?.1.parse().ok()).collect();
        assert!(losses.len() == 2 && losses[1] < losses[0], "{losses:?}");
        // The file takes parameters of its own names.
        assert_eq!(outputs("loaded", &[&exported, "--load", &weights]), found);
    }
    let text = refusal(&["export", "digits", "--dim", "x.0=3", "--output", &exported]);
    assert!(text.contains("--dim belongs to ONNX files"), "{text}");
    let text = refusal(&["run", &exported, "--dim", "x.0=2", "--inputs", &inputs, "--outputs", &at("none")]);
    assert!(text.contains("--dim x.0: `run` takes lengths from the tensors in --inputs"), "{text}");
    let text = refusal(&["export", &exported, "--batch", "0", "--output", &at("none")]);
    assert!(text.contains("a batch of 0: it must be at least 1"), "{text}");
    let text = refusal(&["run", "digits", "--inputs", &weights, "--outputs", &at("none")]);
    assert!(text.contains("`x`"), "{text}");
}
