//! Metrics of each step, in files that other tools read.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::tensorboard::event;
use super::{Callback, Epoch, StepProgress, Trainer};
use crate::error::{Error, Result};
use crate::json::Json;

/// Writes loss, metric, speed and bytes after each step. A loss that has not arrived yet is left out.
pub struct Metrics {
    path: PathBuf,
    file: BufWriter<File>,
    format: Format,
    step: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Jsonl,
    Csv,
    TensorBoard,
}

const COLUMNS: &str = "step,epoch,loss,metric,samples_per_s,device_bytes";

impl Metrics {
    /// Creates a file of JSON Lines, one object per step.
    ///
    /// # Errors
    /// [`Error::Data`] if the file cannot be created.
    pub fn jsonl(path: impl AsRef<Path>) -> Result<Self> {
        Self::create(path.as_ref().to_owned(), Format::Jsonl, &[])
    }

    /// Creates a CSV file with a header line.
    ///
    /// # Errors
    /// [`Error::Data`] if the file cannot be created.
    pub fn csv(path: impl AsRef<Path>) -> Result<Self> {
        Self::create(path.as_ref().to_owned(), Format::Csv, format!("{COLUMNS}\n").as_bytes())
    }

    /// Creates a TensorBoard event file in `folder`, which is created if needed:
    /// `tensorboard --logdir FOLDER`.
    ///
    /// # Errors
    /// [`Error::Data`] if the folder or the file cannot be created.
    pub fn tensorboard(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
        let name = format!("events.out.tfevents.{:010.0}.wgrad.{}", now(), std::process::id());
        Self::create(folder.join(name), Format::TensorBoard, &event(now(), 0, &[]))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn create(path: PathBuf, format: Format, head: &[u8]) -> Result<Self> {
        let file = BufWriter::new(File::create(&path).map_err(|e| failed(&path, &e))?);
        let mut metrics = Self { path, file, format, step: 0 };
        metrics.write(head)?;
        Ok(metrics)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| failed(&self.path, &e))
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|e| failed(&self.path, &e))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::Data { what: path.display().to_string(), message: error.to_string() }
}

/// Returns the seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Callback for Metrics {
    fn on_step(&mut self, p: &StepProgress) -> Result<()> {
        self.step = p.epoch * p.steps as u64 + p.step as u64;
        let (loss, metric) = (p.loss.map(f64::from), p.metric.map(|metric| metric.value));
        let bytes = match self.format {
            Format::Jsonl => {
                let line = Json::object([
                    ("step", self.step.into()),
                    ("epoch", p.epoch.into()),
                    ("loss", loss.into()),
                    ("metric", metric.into()),
                    ("samples_per_s", p.samples_per_s.into()),
                    ("device_bytes", p.device_bytes.into()),
                ]);
                format!("{line}\n").into_bytes()
            }
            Format::Csv => {
                let cell = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
                let (loss, metric, speed) = (cell(loss), cell(metric), p.samples_per_s);
                format!("{},{},{loss},{metric},{speed},{}\n", self.step, p.epoch, p.device_bytes).into_bytes()
            }
            Format::TensorBoard => {
                let speed = ("train/samples_per_s", p.samples_per_s);
                let memory = ("memory/device_bytes", p.device_bytes as f64);
                let loss = loss.map(|loss| ("train/loss", loss));
                let scalars: Vec<_> = loss.into_iter().chain([speed, memory]).collect();
                event(now(), self.step, &scalars)
            }
        };
        self.write(&bytes)
    }

    fn on_epoch(&mut self, epoch: &Epoch, _trainer: &mut Trainer) -> Result<()> {
        if self.format == Format::TensorBoard {
            let loss = ("epoch/loss", f64::from(epoch.loss));
            let metric = epoch.metric.map(|metric| (format!("epoch/{}", metric.name), metric.value));
            let metric = metric.as_ref().map(|(tag, value)| (tag.as_str(), *value));
            let scalars: Vec<_> = [loss].into_iter().chain(metric).collect();
            self.write(&event(now(), self.step, &scalars))?;
        }
        self.flush()
    }

    fn on_end(&mut self) {
        if let Err(error) = self.flush() {
            log::error!("{error}");
        }
    }
}
