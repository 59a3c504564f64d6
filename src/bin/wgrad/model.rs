//! Options that select the model, its inputs and its classes; shared by `plan` and `bench`.

use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::models::{Model, ModelOptions};
use wgrad::{Error, Result};

#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    #[arg(help = format!("Name of the model: {}", Model::NAMES.join(", ")))]
    pub model: String,
    /// Samples per step.
    #[arg(long, default_value_t = 128, allow_negative_numbers = true)]
    pub batch: usize,
    /// Rows and columns of an image, such as 224 or 416x608; the model's own by default.
    #[arg(long)]
    pub image: Option<String>,
    /// Number of classes; the model's own by default.
    #[arg(long, allow_negative_numbers = true)]
    pub classes: Option<usize>,
    /// Tokens in a sequence, and rows of a learned position table; the model's own by default.
    #[arg(long, allow_negative_numbers = true)]
    pub seq: Option<usize>,
    /// Format of activations saved for the backward pass: f32, f16 or bf16.
    #[arg(long, default_value = "f32")]
    pub precision: String,
    /// Storage format of matrices, tables and convolution kernels: f32, f16 or bf16.
    #[arg(long, default_value = "f32")]
    pub weights: String,
    /// Round 16-bit weights stochastically, so that small steps accumulate.
    #[arg(long)]
    pub stochastic_rounding: bool,
    /// Do not train the parameters whose path matches this, in which * stands for any characters, such as
    /// 'conv1.*'; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub freeze: Vec<String>,
    /// Fuse no operations: element-wise functions, norms applied by convolutions, and updates of norms and
    /// biases run one by one.
    #[arg(long, alias = "unfused")]
    pub no_fuse: bool,
}

impl Options {
    /// Returns the model and the size of its input as text: `gpt2 · batch 8 · 1024 tokens`.
    pub fn title(&self, model: &Model) -> String {
        let seq = model.seq().map_or(String::new(), |seq| format!(" · {seq} tokens"));
        format!("{} · batch {}{seq}", model.name, self.batch)
    }

    pub fn precision(&self) -> Result<Precision> {
        Precision::named(&self.precision).ok_or_else(|| Error::Unknown {
            kind: "precision",
            name: self.precision.clone(),
            known: Precision::ALL.map(|precision| precision.name().to_owned()).to_vec(),
        })
    }

    pub fn weights(&self) -> Result<WeightStorage> {
        let rounding = if self.stochastic_rounding { Rounding::Stochastic } else { Rounding::Nearest };
        if self.stochastic_rounding && self.weights == "f32" {
            let message = "--stochastic-rounding is for weights in 16 bits: add --weights bf16 or f16";
            return Err(Error::setting("command line", message.to_owned()));
        }
        WeightStorage::named(&self.weights, rounding).ok_or_else(|| Error::Unknown {
            kind: "weight storage",
            name: self.weights.clone(),
            known: WeightStorage::NAMES.map(str::to_owned).to_vec(),
        })
    }

    pub fn model(&self) -> Result<Model> {
        let image = self.image.as_deref().map(size).transpose()?;
        let options = ModelOptions { image, classes: self.classes, seq: self.seq };
        let model = Model::with_options(&self.model, 0, &options)?;
        self.freeze.iter().try_for_each(|pattern| model.params().freeze(pattern).map(drop))?;
        Ok(model)
    }
}

fn size(text: &str) -> Result<[usize; 2]> {
    let wrong =
        || Error::setting("command line", format!("--image {text}: expected a size such as 224 or 416x608"));
    let mut sides = text.split('x').map(str::parse::<usize>);
    let first = sides.next().and_then(std::result::Result::ok).ok_or_else(wrong)?;
    let second = sides.next().transpose().map_err(|_| wrong())?.unwrap_or(first);
    if sides.next().is_some() { Err(wrong()) } else { Ok([first, second]) }
}
