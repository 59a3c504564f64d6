//! The page that `scripts/web.sh` builds, in a browser: it plans what this library plans, and a person can use it.
//! `WGRAD_WEB` names the folder of the built page; without it, or without a browser, the tests report a skip.

use std::fs::{read, read_to_string};
use std::io::Write;
use std::path::PathBuf;

use crate::support::fixtures;
use crate::support::folder::Folder;
use crate::support::site::{run, site as built};
use serde_json::{Value, json};
use wgrad::memory::planner::read_problem;
use wgrad::models::Model;
use wgrad::onnx::Network;
use wgrad::report::{Request, Source, TraceFile, pack, replayed};

/// The built page, beside files that a person drops on it.
fn site(test: &str) -> Option<(PathBuf, Folder)> {
    let golden = fixtures().join("tests/golden");
    let files = [("onnx_convolutions.onnx", "network.onnx"), ("llama/qwen3/config.json", "config.json")];
    built(test, &files.map(|(file, name)| (golden.join(file), name)))
}

/// Settings of plans: other sizes, precisions, searches, adapters, ranks, and files.
fn questions() -> Vec<Value> {
    // Gradients of large vocabularies are larger than a binding.
    let step = |name: &&str| match name.ends_with(['b', 'm']) {
        true => json!({"model": name, "batch": 1, "lora": "", "frozen_weights": "bf16", "limits": "nvidia"}),
        false => {
            json!({"model": name, "batch": 4, "weights": "bf16", "optimizer": "sgd", "limits": "nvidia"})
        }
    };
    // Other sizes of networks that are there.
    let again =
        ["gpt2-", "qwen2.5-0", "qwen2.5-1", "qwen3-0", "qwen3-1", "qwen3-4", "llama-3.2-3b", "gemma-3-1b"];
    let names = Model::NAMES.iter().filter(|name| !again.iter().any(|again| name.starts_with(again)));
    let mut questions: Vec<Value> = names.map(step).collect();
    questions.extend([
        json!({"model": "resnet18", "batch": 16, "image": "96x64", "classes": 7, "precision": "f16", "loss_scale": true}),
        json!({"model": "cnn", "batch": 64, "budget": "3MB", "recompute": "auto", "limits": "webgpu"}),
        json!({"model": "lenet", "batch": 64, "budget": "2MB", "fit": true, "optimizer": "momentum"}),
        json!({"model": "gpt-nano", "batch": 6, "accumulate": 3, "weights": "bf16", "stochastic_rounding": true}),
        json!({"model": "smollm2-135m", "batch": 1, "seq": 64, "lora": "r=4", "frozen_weights": "nf4"}),
        json!({"model": "mlp", "batch": 64, "ranks": 4, "shard": "parameters", "clip_norm": 1.5, "fuse": false}),
        json!({"model": "vgg16", "batch": 8, "freeze": ["features.0.*", "features.2.*"], "offload": "optimizer"}),
        json!({"model": "network.onnx", "batch": 3, "budget": "1GB"}),
        json!({"model": "config.json", "batch": 2, "seq": 16, "rebuild": false}),
    ]);
    questions
}

/// What this library plans for settings as the page has them.
fn planned(question: &Value, folder: &Folder) -> Value {
    let (mut request, mut model) = (Request::default(), "");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (name, value) in question.as_object().unwrap() {
        match value {
            Value::String(value) if name == "model" => model = value,
            Value::Array(list) => list.iter().for_each(|value| request.set(name, &text(value)).unwrap()),
            value => request.set(name, &text(value)).unwrap(),
        }
    }
    let planned = match model {
        "network.onnx" => {
            let network = Network::read(folder.join(model)).unwrap().named(model).without_elements();
            request.plan(&Source::Onnx(&network))
        }
        "config.json" => request.plan(&Source::Config(model, &read(folder.join(model)).unwrap())),
        _ => request.plan(&Source::Named(model)),
    };
    serde_json::from_str(&planned.unwrap().json().to_string()).unwrap()
}

#[test]
fn browsers_plan_the_same_steps_to_the_bit() {
    let Some((browser, folder)) = site("web-same") else { return };
    let questions = questions();
    let script = "
const { default: init, models, plan } = await import('/wgrad_web.js');
await init();
const found = [], bytes = async name => new Uint8Array(await (await fetch(name)).arrayBuffer());
for (const question of QUESTIONS) {
  const file = /[.](onnx|json)$/.test(question.model) ? await bytes(question.model) : undefined;
  const made = plan(question, file);
  found.push(made.report());
  made.free();
}
const refused = [{ model: 'resnet5' }, { model: 'mlp', batch: 'x' }, { model: 'mlp', colour: 1 }, { batch: 1 },
  { model: 'mlp', batch: {} }, { model: 'resnet50', batch: 1000, limits: 'webgpu' }, { model: 'a.onnx' }, { model: 'resnet50', batch: 20000 }].map(question => {
  try { plan(question, question.model === 'a.onnx' ? new Uint8Array([1, 2]) : undefined); return 'accepted'; }
  catch (error) { return error instanceof Error ? error.message : 'a panic'; }
});
tell({ models: models(), found, refused });";
    let script = script.replace("QUESTIONS", &Value::from(questions.clone()).to_string());
    let said = run(&browser, &folder, &script);
    let found = said["found"].as_array().unwrap();
    assert_eq!(found.len(), questions.len());
    for (question, found) in questions.iter().zip(found) {
        let wanted = planned(question, &folder);
        for key in
            ["hash", "device_bytes", "savings", "classes", "levers", "cheapest", "max_batch", "step_seconds"]
        {
            assert_eq!(found[key], wanted[key], "{key} of {question}");
        }
        assert_eq!(found["tensors"].as_array().unwrap().len(), wanted["tensors"].as_array().unwrap().len());
    }
    let models = said["models"].as_array().unwrap();
    assert_eq!(models.len(), Model::NAMES.len());
    let takes = |name: &str| models.iter().find(|model| model["name"] == name).unwrap()["takes"].clone();
    assert_eq!([takes("mlp"), takes("unet"), takes("bert-base")], ["vectors", "images", "tokens"]);
    let reasons =
        ["resnet18", "batch x", "colour", "no model", "batch: expected", "allows at most", "ONNX", "32 bits"];
    for (said, reason) in said["refused"].as_array().unwrap().iter().zip(reasons) {
        assert!(said.as_str().unwrap().contains(reason), "{said}: no `{reason}`");
    }
}

/// Deep exact searches run on the stack that browsers give.
#[test]
fn browsers_pack_and_replay_as_this_library_does() {
    let Some((browser, folder)) = site("web-pack") else { return };
    // Lifetimes that overlap one another in a chain, so that the search descends through all of them.
    let row = |i: u64| format!("{i},{i},{},{}\n", i + 3 + i * 7 % 5, 256 * (1 + i * 31 % 17));
    let csv = format!("id,lower,upper,size\n{}", (0..900).map(row).collect::<String>());
    let script = "
const { default: init, pack, replay } = await import('/wgrad_web.js');
await init();
const csv = CSV, refuse = ask => { try { ask(); return 'accepted'; } catch (error) { return error.message; } };
tell({ packed: ['fast', 'balanced', 'exact'].map(effort => pack(csv, effort)), replayed: replay('trace.csv', new TextEncoder().encode(csv)),
  refused: [refuse(() => pack('id,lower\\n')), refuse(() => pack(csv, 'most')), refuse(() => replay('a', new Uint8Array([255])))] });";
    let said = run(&browser, &folder, &script.replace("CSV", &json!(csv).to_string()));
    let problem = read_problem(&csv).unwrap();
    for (effort, packed) in ["fast", "balanced", "exact"].into_iter().zip(said["packed"].as_array().unwrap())
    {
        let (packing, json) = pack(&problem, effort, None).unwrap();
        let json: Value = serde_json::from_str(&json.to_string()).unwrap();
        for key in ["buffers", "lower_bound", "height", "optimal", "method"] {
            assert_eq!(packed[key], json[key], "{key}, {effort}");
        }
        let offsets: Vec<u64> =
            packing.solution.placements.iter().map(|placement| placement.offset).collect();
        assert_eq!(packed["offsets"], json!(offsets), "{effort}");
    }
    let file = TraceFile::parse("trace.csv", csv.into_bytes(), None).unwrap();
    let wanted: Value =
        serde_json::from_str(&replayed(&file, "trace.csv", "all", None).unwrap().to_string()).unwrap();
    let peaks = |replayed: &Value| -> Vec<Value> {
        replayed["strategies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| json!([s["strategy"], s["peak_reserved"]]))
            .collect()
    };
    assert_eq!(peaks(&said["replayed"]), peaks(&wanted));
    for (said, reason) in said["refused"].as_array().unwrap().iter().zip(["line 1", "balanced", "neither"]) {
        assert!(said.as_str().unwrap().contains(reason), "{said}: no `{reason}`");
    }
}

const PERSON: &str = include_str!("person.js");

#[test]
fn a_person_plans_a_network_on_the_page() {
    let Some((browser, folder)) = site("web-person") else { return };
    let said = run(&browser, &folder, PERSON);
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned();
    assert!(text(&said["first"][0]).contains("resnet50, batch 32, adam"), "{}", said["first"]);
    assert!(said["first"][1].as_u64() > Some(20), "the picture has colours: {}", said["first"]);
    let plain = planned(&json!({"model": "cnn", "batch": 64}), &folder);
    assert_eq!((said["typed"].as_str(), &said["dragged"]), (Some("64"), &plain["peak_bytes"]));
    assert!(text(&said["over"][0]).contains("more than 3MB"), "{}", said["over"]);
    assert_eq!(said["over"][1], "over");
    assert_eq!(said["link"], "#model=cnn&batch=64&budget=3MB");

    let within = planned(&json!({"model": "cnn", "batch": 64, "budget": "3MB"}), &folder);
    let applied = said["applied"].as_array().unwrap();
    assert!(applied.len() >= within["levers"].as_array().unwrap().len() && applied.len() >= 5);
    for change in applied {
        let [change, promised, reached, fits] = [0, 1, 2, 3].map(|i| text(&change[i]));
        assert!(reached.starts_with(&promised), "{change}: {promised} promised, {reached} reached");
        assert_eq!(reached.contains("fits 3MB"), fits == "fits", "{change}: {reached}");
    }
    let [promised, reached] = [1, 2].map(|i| text(&said["frozen"][i]));
    assert!(reached.starts_with(&promised), "frozen weights: {promised} promised, {reached} reached");
    assert_eq!(said["recalled"], json!(["cnn", "64", "3MB"]));
    assert_eq!(said["mistake"], "accumulate 7: it must divide the batch of 64");
    assert_eq!(said["rows"].as_u64(), plain["tensors"].as_array().map(|list| list.len() as u64));
    assert_eq!(said["hidden"], json!([["network.onnx", true, true], ["config.json", false, true]]));
    assert!(text(&said["weights"]).contains("drop the config.json"), "{}", said["weights"]);
    assert_eq!(said["reset"], "#model=resnet50&batch=32");
    let cards: Vec<_> = wgrad::limits::CARDS.iter().map(|card| card.name).collect();
    assert_eq!(said["cards"], json!(cards));
    assert!(text(&said["table"]).contains("parameters"), "{}", said["table"]);
}

#[test]
fn the_page_is_small_and_asks_no_network_but_its_own_files() {
    let Some((_, folder)) = site("web-small") else { return };
    let wasm = read(folder.join("wgrad_web_bg.wasm")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&wasm).unwrap();
    let packed = packed.finish().unwrap().len();
    // With training, which is a third of it.
    assert!(packed <= 1_600_000, "{packed} bytes of wasm when compressed");
    for file in [
        "index.html",
        "app.js",
        "panics.js",
        "planner.js",
        "worker.js",
        "train.html",
        "train.js",
        "trainer.js",
        "app.css",
        "page.css",
        "main.js",
        "draw.js",
        "data.js",
    ] {
        let text = read_to_string(folder.join(file)).unwrap();
        assert!(!text.contains("http://") && !text.contains("https://"), "{file} names another host");
    }
}
