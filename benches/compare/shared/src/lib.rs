//! The work that every library gets (one network, the same weights, one batch, Adam with a rate of 0.001) and
//! the outcome that each reports.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use wgrad::models::Model;
use wgrad::random;

#[path = "../../../../src/bin/wgrad/cpu_time.rs"]
mod cpu_time;

/// Samples of the batch.
pub const BATCH: usize = 128;
/// Classes of both networks.
pub const CLASSES: usize = 10;
/// Pixels of an image.
pub const PIXELS: usize = 28 * 28;
/// Adam's learning rate; everything else as in PyTorch.
pub const RATE: f32 = 1e-3;
/// Steps between the first and the timed ones.
const WARM_UP: u32 = 2;

/// The work of one run.
#[derive(Serialize)]
pub struct Work {
    /// `mlp` (784-512-512-10) or `cnn` (16 3×3, 32 3×3 with stride 2, linear), the networks of `wgrad bench`.
    pub model: String,
    /// Steps to time.
    pub steps: u32,
    /// Weights by name, row-major, in PyTorch's layout: `[out, in]`, `[out, in, height, width]`.
    pub weights: BTreeMap<String, Vec<f32>>,
    /// Images, `[128, 784]`, in [0, 1).
    pub x: Vec<f32>,
    /// Labels.
    pub y: Vec<u32>,
    /// Adam's learning rate.
    pub rate: f32,
}

impl Work {
    /// Reads the command line `mlp|cnn STEPS`.
    pub fn of_arguments() -> Self {
        let mut words = std::env::args().skip(1);
        let model = words.next().unwrap_or_else(|| "mlp".to_owned());
        let steps = words.next().map_or(20, |text| text.parse().expect("a number of steps"));
        let network = Model::named(&model, 0).expect("mlp or cnn");
        let mut weights = BTreeMap::new();
        for parameter in network.params().list() {
            let mut data = parameter.initial(0..parameter.shape().numel());
            // Some libraries have no convolution biases, so they start at zero.
            if parameter.name().starts_with("conv") && parameter.name().ends_with("bias") {
                data.fill(0.0);
            }
            weights.insert(parameter.name().to_owned(), data);
        }
        let (x, y) = (random::key(0, "bench x"), random::key(0, "bench y"));
        Self {
            model,
            steps,
            weights,
            x: (0..(BATCH * PIXELS) as u64).map(|i| random::uniform(x, i)).collect(),
            y: (0..BATCH as u64).map(|i| (random::bits(y, i) % CLASSES as u64) as u32).collect(),
            rate: RATE,
        }
    }

    /// Returns a weight by name.
    pub fn weight(&self, name: &str) -> Vec<f32> {
        self.weights.get(name).unwrap_or_else(|| panic!("no weight {name}")).clone()
    }

    /// Returns a weight `[rows, columns]` transposed to `[columns, rows]`.
    pub fn transposed(&self, name: &str, columns: usize) -> Vec<f32> {
        let data = self.weight(name);
        let rows = data.len() / columns;
        (0..data.len()).map(|i| data[(i % rows) * columns + i / rows]).collect()
    }

    /// Runs steps, each of which returns its loss, and prints the outcome. `start` is when the process began;
    /// `bytes` is called at the end.
    pub fn run(&self, who: &Who, start: Instant, mut step: impl FnMut() -> f32, bytes: impl FnOnce() -> u64) {
        let mut losses = vec![step()];
        let first_step_s = start.elapsed().as_secs_f64();
        losses.extend((0..WARM_UP).map(|_| step()));
        let (timed, cpu) = (Instant::now(), cpu_time::cpu_seconds());
        losses.extend((0..self.steps).map(|_| step()));
        let per_step = 1e3 / f64::from(self.steps);
        let cpu = cpu_time::cpu_seconds().zip(cpu).map(|(after, before)| (after - before) * per_step);
        let outcome = Outcome {
            who: who.clone(),
            model: self.model.clone(),
            first_step_s,
            ms_per_step: timed.elapsed().as_secs_f64() * per_step,
            cpu_ms_per_step: cpu,
            device_bytes: bytes(),
            losses,
        };
        println!("{}", serde_json::to_string(&outcome).expect("numbers and texts"));
    }
}

/// A library and where it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Who {
    /// The library.
    pub library: String,
    /// Its version.
    pub version: String,
    /// The adapter, by the name that the library gives it.
    pub adapter: String,
}

/// The outcome of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The library and where it ran.
    #[serde(flatten)]
    pub who: Who,
    /// The network.
    pub model: String,
    /// Seconds from the start of the process to the first loss.
    pub first_step_s: f64,
    /// Milliseconds per step.
    pub ms_per_step: f64,
    /// The same in CPU time of all threads.
    pub cpu_ms_per_step: Option<f64>,
    /// Bytes on the device, as the library counts them.
    pub device_bytes: u64,
    /// Losses of all steps.
    pub losses: Vec<f32>,
}
