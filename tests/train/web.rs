//! Training in a browser: the same networks, data, bits and files as natively, on the same adapter.

use std::fs::{read_to_string, write};

use crate::support::devices;
use crate::support::digits::csv;
use crate::support::folder::Folder;
use crate::support::site::{run, site};
use crate::support::skip::skip;
use crate::support::tasks::{self, DIGIT_IMAGES, Description, Prepared, TextOptions};
use serde_json::{Value, json};
use wgrad::compile::PlanOptions;
use wgrad::data::Characters;
use wgrad::device::{Device, descriptor};
use wgrad::exec::SaveOptions;
use wgrad::graph::Params;
use wgrad::models::{GptConfig, Model};
use wgrad::train::Trainer;
use wgrad::wgpu;

/// The runs, as the page has them, of 20 steps or more, and the number of images that they have.
fn settings() -> [(Value, usize); 3] {
    let text = json!({"task": "char_gpt", "batch": 2, "steps": 24, "context": 16, "layers": 2, "heads": 2, "width": 32});
    [
        (json!({"task": "digits", "batch": 144, "epochs": 2}), 1797),
        (json!({"task": "cnn_digits", "batch": 18, "epochs": 2}), 225),
        (text, 0),
    ]
}

/// The data of the runs.
struct Data {
    digits: String,
    text: String,
}

impl Data {
    fn of(folder: &Folder) -> Self {
        Self { digits: csv(), text: read_to_string(folder.join("text.txt")).unwrap() }
    }

    /// Trains natively for some epochs, from a file or from the start.
    fn train(
        &self,
        device: &Device,
        settings: &Value,
        images: usize,
        (file, epochs): (Option<&[u8]>, usize),
    ) -> Run {
        let number = |name: &str| settings[name].as_u64().unwrap();
        let (mut options, batch) = (SaveOptions::training_state(), number("batch") as usize);
        let (model, params) = (Model::named("digits", 0).unwrap(), Params::new(0));
        let lines: String = self.digits.lines().take(images).flat_map(|line| [line, "\n"]).collect();
        let digits = || tasks::read_digits(&lines).unwrap().split(0.8, 0);
        let description;
        let prepared = match settings["task"].as_str().unwrap() {
            "digits" => {
                let plan = PlanOptions { optimizer: tasks::digits_optimizer(), ..PlanOptions::default() };
                tasks::digits(&model, digits(), (number("epochs"), batch), plan)
            }
            "cnn_digits" => tasks::residual(&params, DIGIT_IMAGES, digits(), (number("epochs"), batch)),
            _ => {
                let characters = Characters::of(&self.text);
                let [context, layers, heads, width] =
                    ["context", "layers", "heads", "width"].map(|name| number(name) as usize);
                let config =
                    GptConfig { vocabulary: characters.len(), context, layers, heads, width, dropout: 0.0 };
                description = Description { config, characters };
                options.notes = description.notes();
                let tokens = description.characters.encode("the text", &self.text).unwrap();
                let text = TextOptions { batch, steps: number("steps"), rate: 2e-3, seed: 0 };
                tasks::text(&params, &description.config, &tokens, (&text, PlanOptions::default()))
            }
        };
        let Prepared { task, loader, options: train, test } = prepared.unwrap();
        let mut trainer = Trainer::new(device, task, loader, &train).unwrap();
        if let Some(file) = file {
            trainer.load_bytes("a file", file).unwrap();
        }
        let losses = (0..epochs).map(|_| trainer.fit(1, Some(&*test), &mut []).unwrap().loss).collect();
        Run {
            losses,
            created: trainer.session().device_bytes(),
            steps: trainer.session().steps(),
            hash: format!("{:016x}", trainer.session().parameters_hash().unwrap()),
            file: trainer.save_bytes(&options).unwrap(),
        }
    }
}

struct Run {
    /// Of each epoch.
    losses: Vec<f32>,
    created: u64,
    steps: u64,
    hash: String,
    file: Vec<u8>,
}

/// Opens an adapter again, with no more than browsers have.
fn as_in_browsers(device: &Device) -> Device {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let all = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    let found = all.into_iter().find(|adapter| adapter.get_info().name == device.adapter().name).unwrap();
    let mut descriptor = descriptor(&found);
    descriptor.required_features = wgpu::Features::empty();
    let (device, queue) = pollster::block_on(found.request_device(&descriptor)).unwrap();
    Device::from_wgpu(device, queue)
}

/// SwiftShader, which Chromium brings along; native programs run on the same library.
fn swiftshader() -> Option<&'static Device> {
    let found = devices().iter().find(|device| device.adapter().name.contains("SwiftShader"));
    if found.is_none() {
        skip("no SwiftShader here, on which browsers and native programs compute the same bits");
    }
    found
}

/// Trains to the end, again from what it saved after the first epoch, and from what a native run saved then.
const SCRIPT: &str = r#"
const { default: init, Training } = await import("/wgrad_web.js");
await init();
const packed = (await fetch("digits.csv.gz")).body.pipeThrough(new DecompressionStream("gzip"));
const digits = await new Response(packed).text(), text = await (await fetch("text.txt")).text(), said = [];
for (const [i, [settings, images]] of SETTINGS.entries()) {
  const data = images ? digits.split("\n").slice(0, images).join("\n") : text;
  const open = file => Training.open({ ...settings, file: "a file" }, data, file);
  const finish = async (run, losses) => {
    for (;;) {
      const epoch = await run.run(() => {});
      if (!epoch) return { losses, hash: await run.parametersHash() };
      losses.push(epoch.loss);
    }
  };
  const run = await open(), epoch = await run.run(() => {}), saved = await run.save(), whole = await finish(run, [epoch.loss]);
  const native = new Uint8Array(await (await fetch(`native${i}.safetensors`)).arrayBuffer());
  said.push({ whole, created: run.created, planned: run.planned, steps: [run.steps, run.total], saved: [...saved],
    again: await finish(await open(saved), [epoch.loss]), native: await finish(await open(native), [epoch.loss]) });
}
tell(said);"#;

fn bytes(list: &Value) -> Vec<u8> {
    list.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect()
}

#[test]
fn browsers_train_as_native_programs_do_to_the_bit() {
    let Some((browser, folder)) = site("web-train", &[]) else { return };
    let Some(device) = swiftshader().map(as_in_browsers) else { return };
    let (data, settings) = (Data::of(&folder), settings());
    let halves =
        settings.each_ref().map(|(settings, images)| data.train(&device, settings, *images, (None, 1)));
    for (i, half) in halves.iter().enumerate() {
        write(folder.join(format!("native{i}.safetensors")), &half.file).unwrap();
    }
    let said = run(&browser, &folder, &SCRIPT.replace("SETTINGS", &json!(settings).to_string()));
    for (((settings, images), half), said) in settings.iter().zip(&halves).zip(said.as_array().unwrap()) {
        let (task, saved) = (&settings["task"], bytes(&said["saved"]));
        let epochs = said["whole"]["losses"].as_array().unwrap().len();
        let rest = data.train(&device, settings, *images, (Some(&saved), epochs - 1));
        let losses = [&half.losses[..], &rest.losses].concat();
        for run in ["whole", "again", "native"] {
            // Losses are f32. serde_json may parse a number one unit in the last place of an f64 away.
            let found = said[run]["losses"].as_array().unwrap().iter();
            let found: Vec<f32> = found.map(|loss| loss.as_f64().unwrap() as f32).collect();
            assert_eq!(found, losses, "{task}, {run}");
            assert_eq!(said[run]["hash"], rest.hash, "{task}, {run}");
        }
        assert!(saved == half.file, "{task}: other files");
        assert_eq!(said["created"], said["planned"], "{task}");
        assert_eq!(said["created"].as_u64(), Some(rest.created), "{task}");
        assert_eq!(said["steps"], json!([rest.steps, rest.steps]), "{task}");
    }
}

#[test]
fn operations_in_a_browser_match_the_twin() {
    let Some((browser, folder)) = site("web-check", &[]) else { return };
    let script = r#"
const { default: init, check } = await import("/wgrad_web.js");
await init();
tell(await check(1, 7));"#;
    let said = run(&browser, &folder, script);
    assert_eq!(said["failures"], json!([]), "{said}");
    assert!(said["operations"].as_u64() > Some(50) && said["graphs"] == 1, "{said}");
    assert!(said["adapter"].as_str().unwrap().contains("webgpu"), "{said}");
}

const PERSON: &str = include_str!("person.js");

#[test]
fn a_person_trains_on_the_page() {
    let Some((browser, folder)) = site("web-train-page", &[]) else { return };
    let Some(device) = swiftshader().map(as_in_browsers) else { return };
    let said = run(&browser, &folder, PERSON);
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned();
    // It had an epoch of 45 steps, and was paused within the next ones.
    let words = text(&said["paused"]);
    let steps: u64 = words.split(' ').nth(3).and_then(|word| word.parse().ok()).expect("a number of steps");
    assert!((45..540).contains(&steps) && words == format!("Paused after step {steps} of 540."), "{words}");
    let kept = format!("A run is kept in this browser, up to step {steps}.");
    assert_eq!(said["kept"], json!([kept, "12", "digits"]));
    assert_eq!(said["done"], "Done: 540 steps.");
    assert_eq!(said["longer"], "Done: 585 steps.");

    let images = said["images"].as_array().unwrap();
    assert_eq!(images.len(), 40);
    let wrong = images.iter().filter(|caption| text(caption).contains("not")).count();
    assert!(wrong < 15, "{images:?}");
    let facts = &said["facts"];
    assert_eq!(facts["planned"], facts["created"]);
    assert!(text(&facts["gpu"]).contains("swiftshader"), "{facts}");
    assert!(text(&facts["speed"]).ends_with(" samples/s"), "{facts}");
    let accuracy = text(&facts["measured"]).replace("accuracy ", "").replace(" %", "");
    assert!(accuracy.parse::<f64>().unwrap() > 90.0, "{facts}");
    assert!(text(&said["table"]).contains("parameters"), "{}", said["table"]);
    assert!(said["colours"].as_u64() > Some(2), "the curve is drawn");
    assert!(text(&said["damaged"]).starts_with("damaged.safetensors: damaged:"), "{}", said["damaged"]);
    assert!(text(&said["lost"]).starts_with("the device was lost"), "{}", said["lost"]);
    assert!(text(&said["again"][0]).ends_with(" of 2,700."), "{}", said["again"]);
    assert_eq!(said["again"][1], facts["created"]);
    assert_eq!(said["short"][0], "char_gpt");
    assert!(text(&said["short"][1]).contains("64"), "{}", said["short"]);

    // A native program goes on from the file, and had it trained alone, it would have the same bits.
    let data = Data::of(&folder);
    let settings = |epochs: u64| json!({"task": "digits", "batch": 32, "epochs": epochs});
    let through = data.train(&device, &settings(12), usize::MAX, (None, 12));
    assert!(bytes(&said["file"]) == through.file, "a run that was interrupted has other bits");
}
