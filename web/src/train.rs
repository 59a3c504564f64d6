//! Training on the GPU of whoever opens a page: the networks of the examples.
#![allow(
    clippy::await_holding_refcell_ref,
    reason = "a second call at the same time returns an error, by `try_borrow_mut`"
)]

use std::cell::{RefCell, RefMut};

use js_sys::{Array, Float32Array, Function, Object, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wgrad::check::{self, Options};
use wgrad::compile::PlanOptions;
use wgrad::data::{Characters, Dataset};
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Sampling, SaveOptions, read_notes_of};
use wgrad::graph::Params;
use wgrad::models::{GptConfig, Model};
use wgrad::report::Estimate;
use wgrad::train::{Callback, Epoch, StepProgress, Stop, Trainer};
use wgrad::{Error, Result};

use tasks::{DIGIT_IMAGES, Description, Prepared, TEXT_EPOCHS, TextOptions};

#[path = "../../examples/support/tasks.rs"]
mod tasks;

#[wasm_bindgen]
extern "C" {
    /// The options of `Training.open`, as types.d.ts has them.
    #[wasm_bindgen(typescript_type = "TrainSettings")]
    pub type TrainSettings;
    #[wasm_bindgen(typescript_type = "EpochReport | undefined")]
    pub type EpochReport;
    #[wasm_bindgen(typescript_type = "Checked")]
    pub type Checked;
    #[wasm_bindgen(typescript_type = "Guess[]")]
    pub type Guesses;
    #[wasm_bindgen(typescript_type = "(progress: StepReport) => void")]
    pub type Tell;
}

thread_local! {
    /// The GPU, which keeps its compiled kernels.
    static DEVICE: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// Returns the GPU, opened anew if it was lost.
async fn device() -> Result<Device> {
    let open = DEVICE.with_borrow(Clone::clone).filter(|device| device.poll().is_ok());
    match open {
        Some(device) => Ok(device),
        None => {
            let device = Device::new().await?;
            DEVICE.set(Some(device.clone()));
            Ok(device)
        }
    }
}

/// A run on the GPU.
#[wasm_bindgen]
pub struct Training {
    trainer: RefCell<Trainer>,
    stop: Stop,
    test: Box<dyn Dataset>,
    /// Samples of a forward pass.
    batch: usize,
    epochs: u64,
    steps_per_epoch: u64,
    /// The characters of a text that is learnt.
    description: Option<Description>,
    adapter: String,
}

#[wasm_bindgen]
impl Training {
    /// Opens the GPU and a session for `settings.task`: "digits" or "cnn_digits", for which `data` is the CSV file of the
    /// digits, or "char_gpt", for which it is any text. `file`, named `settings.file`, is a safetensors file that a run of the
    /// same settings has saved, here or in the example of that name: the run goes on from there.
    pub async fn open(
        settings: TrainSettings,
        data: String,
        file: Option<Vec<u8>>,
    ) -> std::result::Result<Training, JsError> {
        let settings = Settings(settings.into());
        let name = settings.text("file").unwrap_or_else(|| "the file".to_owned());
        let device = device().await?;
        let training = match settings.text("task").as_deref() {
            Some("digits") => {
                let model = Model::named("digits", 0)?;
                let (epochs, batch) = (settings.whole("epochs", 30)?, settings.whole("batch", 32)?);
                let plan = PlanOptions { optimizer: tasks::digits_optimizer(), ..PlanOptions::default() };
                let digits = tasks::read_digits(&data)?.split(0.8, 0);
                let prepared = tasks::digits(&model, digits, (epochs, batch as usize), plan)?;
                Self::start(&device, prepared, epochs, None).await?
            }
            Some("cnn_digits") => {
                let params = Params::new(0);
                let (epochs, batch) = (settings.whole("epochs", 12)?, settings.whole("batch", 64)?);
                let digits = tasks::read_digits(&data)?.split(0.8, 0);
                let prepared = tasks::residual(&params, DIGIT_IMAGES, digits, (epochs, batch as usize))?;
                Self::start(&device, prepared, epochs, None).await?
            }
            Some("char_gpt") => {
                let description = match &file {
                    Some(bytes) => Description::of(&name, &read_notes_of(&name, bytes)?)?,
                    None => settings.description(&data)?,
                };
                let options = TextOptions {
                    batch: settings.whole("batch", 4)? as usize,
                    steps: settings.whole("steps", 1000)?,
                    rate: settings.number("rate").unwrap_or(2e-3) as f32,
                    seed: 0,
                };
                let params = Params::new(options.seed);
                let tokens = description.characters.encode("the text", &data)?;
                let plan = PlanOptions::default();
                let config = description.config;
                let prepared = tasks::text(&params, &config, &tokens, (&options, plan))?;
                Self::start(&device, prepared, TEXT_EPOCHS, Some(description)).await?
            }
            task => {
                let message =
                    format!("task {}: known are digits, cnn_digits, char_gpt", task.unwrap_or_default());
                return Err(JsError::new(&message));
            }
        };
        if let Some(bytes) = file {
            training.trainer()?.load_bytes(&name, &bytes).await?;
        }
        Ok(training)
    }

    async fn start(
        device: &Device,
        prepared: Prepared<'_>,
        epochs: u64,
        description: Option<Description>,
    ) -> Result<Training> {
        let Prepared { task, loader, options, test } = prepared;
        let (batch, steps_per_epoch) = (loader.batch(), loader.batches() as u64);
        let trainer = Trainer::new(device, task, loader, &options).await?;
        let (stop, adapter) = (trainer.stop(), device.to_string());
        let trainer = RefCell::new(trainer);
        Ok(Self { trainer, stop, test, batch, epochs, steps_per_epoch, description, adapter })
    }

    /// The GPU, its limits, and how it computes with 16-bit numbers.
    #[wasm_bindgen(getter)]
    pub fn adapter(&self) -> String {
        self.adapter.clone()
    }

    /// Bytes of all buffers that the session has created on the GPU.
    #[wasm_bindgen(getter)]
    pub fn created(&self) -> std::result::Result<f64, JsError> {
        Ok(self.trainer()?.session().device_bytes() as f64)
    }

    /// The bytes that the plans of the session need, which were known before.
    #[wasm_bindgen(getter)]
    pub fn planned(&self) -> std::result::Result<f64, JsError> {
        Ok(self.trainer()?.session().footprint().total() as f64)
    }

    /// The table of bytes of the training step.
    #[wasm_bindgen(getter)]
    pub fn table(&self) -> std::result::Result<String, JsError> {
        let mut trainer = self.trainer()?;
        Ok(Estimate::of(trainer.session().plan(ProgramId(0))?).to_string())
    }

    /// Training steps made.
    #[wasm_bindgen(getter)]
    pub fn steps(&self) -> std::result::Result<f64, JsError> {
        Ok(self.trainer()?.session().steps() as f64)
    }

    /// Training steps of the whole run.
    #[wasm_bindgen(getter)]
    pub fn total(&self) -> f64 {
        (self.epochs * self.steps_per_epoch) as f64
    }

    /// Trains to the end of an epoch and evaluates; `tell` is called after each step. Returns `undefined` if the run was
    /// paused, or has made all its steps.
    pub async fn run(&self, tell: Tell) -> std::result::Result<EpochReport, JsError> {
        let mut trainer = self.trainer()?;
        if trainer.session().steps() >= self.epochs * self.steps_per_epoch {
            return Ok(JsValue::UNDEFINED.unchecked_into());
        }
        let mut tell = Telling { tell: JsValue::from(tell).unchecked_into(), epochs: self.epochs };
        match trainer.fit(1, Some(&*self.test), &mut [&mut tell]).await {
            Ok(Epoch { epoch, loss, metric }) => {
                let report = object(&[("epoch", epoch as f64), ("loss", f64::from(loss))]);
                if let Some(metric) = metric {
                    set(&report, metric.name, metric.value);
                }
                Ok(report.unchecked_into())
            }
            Err(Error::Stopped { .. }) => Ok(JsValue::UNDEFINED.unchecked_into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends `run` after its current step.
    pub fn pause(&self) {
        self.stop.request();
    }

    /// Returns a safetensors file with parameters, optimizer state and the number of steps: a run goes on from it, here or in
    /// the example of the same name.
    pub async fn save(&self) -> std::result::Result<Uint8Array, JsError> {
        let notes = self.description.as_ref().map(Description::notes).unwrap_or_default();
        let options = SaveOptions { notes, ..SaveOptions::training_state() };
        let bytes = self.trainer()?.save_bytes(&options).await?;
        Ok(Uint8Array::from(&bytes[..]))
    }

    /// Returns a hash of the bits of all parameters, as the examples and `wgrad bench` print it.
    #[wasm_bindgen(js_name = parametersHash)]
    pub async fn parameters_hash(&self) -> std::result::Result<String, JsError> {
        let hash = self.trainer()?.session().parameters_hash().await?;
        Ok(format!("{hash:016x}"))
    }

    /// Returns what the network takes some of the images that it never trains on for.
    pub async fn guesses(&self, count: usize) -> std::result::Result<Guesses, JsError> {
        let mut trainer = self.trainer()?;
        let images: Vec<usize> = (0..count.min(self.test.len())).collect();
        let list = Array::new();
        for images in images.chunks(self.batch) {
            let batch = self.test.batch(images)?;
            let logits = trainer.predict("logits", &batch).await?;
            let [classes, pixels] = [logits.len(), batch.f32("x").len()].map(|len| len / images.len());
            let images = logits.chunks(classes).zip(batch.f32("x").chunks(pixels));
            for ((logits, image), label) in images.zip(batch.u32("y")) {
                let guess = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
                let guess = guess.map_or(0, |(class, _)| class);
                let entry = object(&[("label", f64::from(*label)), ("guess", guess as f64)]);
                set(&entry, "pixels", Float32Array::from(image));
                list.push(&entry);
            }
        }
        Ok(list.unchecked_into())
    }

    /// Lets a network of characters write `length` characters after `prompt`; 0 as `temperature` takes the likeliest ones.
    pub async fn write(
        &self,
        prompt: String,
        length: usize,
        temperature: f32,
    ) -> std::result::Result<String, JsError> {
        let Some(Description { characters, .. }) = &self.description else {
            return Err(JsError::new("the network writes no text"));
        };
        let mut trainer = self.trainer()?;
        let program = trainer.program("next")?;
        let prompt = characters.encode("the prompt", &prompt)?;
        let mut ids = prompt.read(0..prompt.len())?;
        let sampling = Sampling { temperature, ..Sampling::default() };
        for _ in 0..length {
            let next = trainer.session().next_token(program, &ids, &sampling).await?;
            ids.push(next);
        }
        Ok(characters.decode(&ids))
    }

    fn trainer(&self) -> std::result::Result<RefMut<'_, Trainer>, JsError> {
        self.trainer
            .try_borrow_mut()
            .map_err(|_| JsError::new("the run is busy: pause it and wait for `run`"))
    }
}

/// Checks the GPU as `wgrad check` does: every operation alone, then `graphs` random networks with random options, all with their
/// gradients, against 64-bit arithmetic. The networks are those of this seed and the next ones.
#[wasm_bindgen]
pub async fn check(graphs: u32, seed: u32) -> std::result::Result<Checked, JsValue> {
    let device = device().await.map_err(JsError::from)?;
    let (graphs, seed) = (graphs.into(), seed.into());
    // Browsers compile slowly.
    let options = Options { graphs, seed, fuse_one_in: 6, ..Options::default() };
    let found = check::run(&device, &options).await.map_err(JsError::from)?;
    let report = object(&[
        ("operations", found.operations as f64),
        ("graphs", found.graphs as f64),
        ("worst_error", found.worst_error),
    ]);
    let failures: Array =
        found.failures.iter().map(|failure| JsValue::from(format!("{failure:?}"))).collect();
    set(&report, "failures", failures);
    set(&report, "adapter", device.to_string());
    Ok(report.unchecked_into())
}

/// Calls a function after each step.
struct Telling {
    tell: Function,
    epochs: u64,
}

impl Callback for Telling {
    fn on_step(&mut self, at: &StepProgress) -> Result<()> {
        let report = object(&[
            ("epoch", at.epoch as f64),
            ("epochs", self.epochs as f64),
            ("step", at.step as f64),
            ("steps", at.steps as f64),
            ("samples_per_s", at.samples_per_s),
        ]);
        if let Some(loss) = at.loss {
            set(&report, "loss", loss);
        }
        // What the callback throws concerns its writer alone.
        let _ = self.tell.call1(&JsValue::NULL, &report);
        Ok(())
    }
}

struct Settings(JsValue);

impl Settings {
    fn value(&self, name: &str) -> Option<JsValue> {
        let value = Reflect::get(&self.0, &name.into()).ok()?;
        (!value.is_undefined() && !value.is_null()).then_some(value)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.value(name)?.as_string()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.value(name)?.as_f64()
    }

    fn whole(&self, name: &'static str, default: u64) -> Result<u64> {
        match self.value(name) {
            None => Ok(default),
            Some(value) => match value.as_f64() {
                Some(number) if number >= 1.0 && number.fract() == 0.0 && number < 4e9 => Ok(number as u64),
                _ => {
                    let message = format!("{name} {value:?}: it must be a whole number of at least 1");
                    Err(Error::setting(name, message))
                }
            },
        }
    }

    /// The sizes of a network for a text.
    fn description(&self, text: &str) -> Result<Description> {
        let characters = Characters::of(text);
        let config = GptConfig {
            vocabulary: characters.len(),
            context: self.whole("context", 64)? as usize,
            layers: self.whole("layers", 4)? as usize,
            heads: self.whole("heads", 4)? as usize,
            width: self.whole("width", 128)? as usize,
            dropout: 0.0,
        };
        Ok(Description { config, characters })
    }
}

fn set(object: &Object, name: &str, value: impl Into<JsValue>) {
    // A plain object takes any property.
    let _ = Reflect::set(object, &name.into(), &value.into());
}

fn object(numbers: &[(&str, f64)]) -> Object {
    let object = Object::new();
    numbers.iter().for_each(|(name, number)| set(&object, name, *number));
    object
}
