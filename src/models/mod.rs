//! Networks that can be planned and trained by name.

mod densenet;
mod mlp;
mod mobilenet;
mod resnet;
mod small;
mod unet;
mod vgg;

pub use mlp::Mlp;
pub use resnet::ResNet;

use crate::error::{Error, Result};
use crate::graph::{Params, Tensor, Trace};
use crate::nn::Module;
use crate::plan::{Forward, TrainStep};
use crate::shape::Shape;

/// A network for images or vectors of a fixed length, with class indices as targets.
pub struct Model {
    /// Its name on the command line.
    pub name: &'static str,
    /// Length of one input.
    pub inputs: usize,
    /// Number of classes.
    pub classes: usize,
    /// Number of labels of one input: one, or one for each pixel.
    pub labels: usize,
    /// One input: `[length]`, or `[channels, rows, columns]`.
    sample: Vec<usize>,
    params: Params,
    network: Box<dyn Module>,
}

/// What can be changed about a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelOptions {
    /// Rows and columns of the image; `None` for the size in the model's paper.
    pub image: Option<[usize; 2]>,
    /// Number of classes; `None` for that of the model's paper.
    pub classes: Option<usize>,
}

/// Name, channels, rows, columns and classes of each network for images.
const IMAGES: [(&str, [usize; 3], usize); 8] = [
    ("cnn", [1, 28, 28], 10),
    ("lenet", [1, 28, 28], 10),
    ("resnet18", [3, 224, 224], 1000),
    ("resnet50", [3, 224, 224], 1000),
    ("vgg16", [3, 224, 224], 1000),
    ("mobilenet-v2", [3, 224, 224], 1000),
    ("densenet121", [3, 224, 224], 1000),
    ("unet", [3, 416, 608], 2),
];

impl Model {
    /// The names that [`Model::named`] knows.
    pub const NAMES: [&'static str; 10] = [
        "mlp",
        "digits",
        "cnn",
        "lenet",
        "resnet18",
        "resnet50",
        "vgg16",
        "mobilenet-v2",
        "densenet121",
        "unet",
    ];

    /// A network by name, with parameters that start from `seed`.
    ///
    /// - `mlp`: 784-512-512-10 with ReLU.
    /// - `digits`: 64-128-64-10 with ReLU, the network of `examples/digits`.
    /// - `cnn`: two convolutions and a linear layer on 1×28×28; `lenet`: LeNet-5.
    /// - `resnet18`, `resnet50`, `vgg16`, `mobilenet-v2`, `densenet121` on 3×224×224: torchvision's.
    /// - `unet`: two classes for each pixel of 3×416×608.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names.
    pub fn named(name: &str, seed: u64) -> Result<Self> {
        Self::with_options(name, seed, &ModelOptions::default())
    }

    /// [`Model::named`] for images of another size or other classes.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names; [`Error::Option`] for an image where a model takes none, or of size 0,
    /// or for 0 classes.
    pub fn with_options(name: &str, seed: u64, options: &ModelOptions) -> Result<Self> {
        if options.classes == Some(0) || options.image.is_some_and(|size| size.contains(&0)) {
            return Err(Error::Option(
                "0 classes or an image without pixels: both must be at least 1".to_owned(),
            ));
        }
        let params = Params::new(seed);
        if let Some(&(name, [c, h, w], classes)) = IMAGES.iter().find(|(other, ..)| *other == name) {
            let [h, w] = options.image.unwrap_or([h, w]);
            let classes = options.classes.unwrap_or(classes);
            let network: Box<dyn Module> = match name {
                "cnn" => Box::new(small::Cnn::new(&params, [c, h, w], classes)),
                "lenet" => Box::new(small::LeNet::new(&params, [c, h, w], classes)),
                "resnet18" => Box::new(ResNet::resnet18(&params, c, classes)),
                "resnet50" => Box::new(ResNet::resnet50(&params, c, classes)),
                "vgg16" => Box::new(vgg::Vgg::vgg16(&params, c, classes)),
                "mobilenet-v2" => Box::new(mobilenet::MobileNetV2::new(&params, c, classes)),
                "densenet121" => Box::new(densenet::DenseNet::densenet121(&params, c, classes)),
                _ => Box::new(unet::UNet::new(&params, c, classes)),
            };
            let labels = if name == "unet" { h * w } else { 1 };
            return Ok(Self {
                name,
                inputs: c * h * w,
                classes,
                labels,
                sample: vec![c, h, w],
                params,
                network,
            });
        }
        let (name, mut sizes) = match name {
            "mlp" => ("mlp", vec![784, 512, 512, 10]),
            "digits" => ("digits", vec![64, 128, 64, 10]),
            _ => {
                let known = Self::NAMES.map(str::to_owned).to_vec();
                return Err(Error::Unknown { kind: "model", name: name.to_owned(), known });
            }
        };
        if options.image.is_some() {
            return Err(Error::Option(format!("`{name}` takes vectors of {}, not images", sizes[0])));
        }
        if let (Some(classes), Some(last)) = (options.classes, sizes.last_mut()) {
            *last = classes;
        }
        let network = Box::new(Mlp::new(&params, &sizes));
        let classes = sizes.last().copied().unwrap_or_default();
        Ok(Self { name, inputs: sizes[0], classes, labels: 1, sample: vec![sizes[0]], params, network })
    }

    /// The parameters, on the host.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The shape of a batch of inputs.
    pub fn input_shape(&self, batch: usize) -> Shape {
        let dims = [&[batch], &self.sample[..]].concat();
        Shape::try_new(&dims).expect("at most four dimensions")
    }

    /// Logits `[batch · labels, classes]` of `x` of [`Model::input_shape`], or `[batch, inputs]`.
    pub fn logits(&self, x: &Tensor) -> Tensor {
        self.network.forward(&x.reshape(self.input_shape(x.dim(0))))
    }

    /// The loss of a batch: inputs `x` of [`Model::input_shape`] and labels `y [batch · labels]`, cross-entropy.
    pub fn loss(&self, trace: &Trace, batch: usize) -> Tensor {
        let x = trace.input("x", self.input_shape(batch));
        let y = trace.labels("y", [batch * self.labels], self.classes as u32);
        self.logits(&x).cross_entropy(&y)
    }

    /// A training step for `batch` samples.
    ///
    /// # Errors
    /// [`Error::Option`] for a batch of 0.
    pub fn train_step(&self, batch: usize) -> Result<TrainStep> {
        at_least_one(batch)?;
        TrainStep::trace(&self.params, |trace| self.loss(trace, batch))
    }

    /// A forward pass for `batch` samples: input `x`, output `logits`.
    ///
    /// # Errors
    /// [`Error::Option`] for a batch of 0.
    pub fn forward(&self, batch: usize) -> Result<Forward> {
        at_least_one(batch)?;
        Forward::trace(&self.params, "logits", |trace| {
            self.logits(&trace.input("x", self.input_shape(batch)))
        })
    }
}

fn at_least_one(batch: usize) -> Result<()> {
    if batch == 0 { Err(Error::Option("a batch of 0: it must be at least 1".to_owned())) } else { Ok(()) }
}
