//! A data set of image files in folders.

mod augment;
mod decode;
mod folder;
mod resize;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

pub use augment::{Augment, RandomCrop};
use decode::Pixels;
use folder::Found;

use super::{Batch, Dataset};
use crate::error::{Error, Result};

/// Channels of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// Red, green and blue; gray images have the same value in each.
    #[default]
    Rgb,
    /// The luma of ITU-R BT.601.
    Gray,
}

/// How an image becomes one of the size of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crop {
    /// Height and width are changed to those of the samples, each by its own factor.
    #[default]
    Stretch,
    /// The shorter side is resized to this number of pixels, the longer one by the same factor, and the center is
    /// cut out: torchvision's `Resize(256)` and `CenterCrop(224)` are `Center(256)` for samples of 224 × 224.
    Center(usize),
}

/// What becomes of each image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageOptions {
    /// Height and width of the samples.
    pub size: [usize; 2],
    /// How images become that size.
    pub crop: Crop,
    /// Channels of the samples.
    pub channels: Channels,
    /// Subtracted from each channel of pixels in [0, 1]; for gray images the first one counts.
    pub mean: [f32; 3],
    /// Divides each channel afterwards.
    pub std: [f32; 3],
    /// Variation of the images that a [`Loader`](super::Loader) trains on; `None` trains on them as they are.
    pub augment: Option<Augment>,
}

impl ImageOptions {
    /// Samples of `size` × `size` RGB pixels in [-1, 1]: the image's center, the shorter side resized to `size`.
    pub const fn square(size: usize) -> Self {
        Self {
            size: [size, size],
            crop: Crop::Center(size),
            channels: Channels::Rgb,
            mean: [0.5; 3],
            std: [0.5; 3],
            augment: None,
        }
    }

    /// What torchvision's networks for ImageNet expect: 224 × 224 pixels of images whose shorter side is 256, with
    /// ImageNet's mean and standard deviation.
    pub const fn imagenet() -> Self {
        Self {
            crop: Crop::Center(256),
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            ..Self::square(224)
        }
    }

    const fn count(&self) -> usize {
        match self.channels {
            Channels::Rgb => 3,
            Channels::Gray => 1,
        }
    }

    fn check(&self) -> Result<()> {
        let [height, width] = self.size;
        let wrong = |message: String| Err(Error::setting("images", message));
        if height == 0 || width == 0 {
            return wrong(format!("samples of {height} × {width} pixels: both must be at least 1"));
        }
        match self.crop {
            Crop::Center(short) if short < height.max(width) => {
                return wrong(format!(
                    "`Crop::Center({short})` makes images smaller than the samples of {height} × {width} pixels; it \
                     must be at least {}",
                    height.max(width)
                ));
            }
            _ => {}
        }
        if self.mean.iter().any(|x| !x.is_finite()) || self.std.iter().any(|x| !x.is_finite() || *x <= 0.0) {
            let (mean, std) = (self.mean, self.std);
            return wrong(format!("mean {mean:?} and std {std:?}: numbers are needed, those of std above 0"));
        }
        self.augment.map_or(Ok(()), |augment| augment.check())
    }

    /// Returns the image in the size of the samples, as for evaluations.
    fn fit(&self, image: Pixels) -> Result<Pixels, String> {
        let [height, width] = self.size;
        match self.crop {
            Crop::Stretch => resize::resize(image, height, width),
            Crop::Center(short) => {
                let longer = |long: usize, side: usize| (short as f64 * long as f64 / side as f64) as usize;
                let (h, w) = (image.height, image.width);
                let (h, w) = if h < w { (short, longer(w, h)) } else { (longer(h, w), short) };
                let image = resize::resize(image, h, w)?;
                let middle = |all: usize, part: usize| ((all - part) as f64 / 2.0).round_ties_even() as isize;
                Ok(image.part(middle(h, height), middle(w, width), height, width))
            }
        }
    }

    /// Writes the image's normalized pixels, channels first.
    fn normalize(&self, image: &Pixels, values: &mut [f32]) {
        let channels = self.count();
        let planes = values.chunks_exact_mut(image.height * image.width);
        for (c, plane) in planes.enumerate() {
            let pixels = image.values[c..].iter().step_by(channels);
            for (value, pixel) in plane.iter_mut().zip(pixels) {
                *value = (f32::from(*pixel) / 255.0 - self.mean[c]) / self.std[c];
            }
        }
    }
}

/// Image files in one folder per class, as torchvision's `ImageFolder` reads them: `root/cat/1.png`, also in folders
/// inside of those. Inputs `x [samples, channels · height · width]`, channels first, and `y [samples]`, the classes,
/// which have the order of the names of their folders.
///
/// PNG and JPEG files are read when their batch is prepared, on as many threads as there are processors; none is
/// kept. An image, also a resized one, has at most 178,956,970 pixels, as in Pillow. Hidden files, and files whose
/// names do not end like an image's, are ignored.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    files: Vec<Found>,
    options: ImageOptions,
}

impl ImageFolder {
    /// Lists the files of a folder. No image is read.
    ///
    /// # Errors
    /// [`Error::Data`] for a folder that cannot be read, that has no folders of classes, for a class whose name is not
    /// UTF-8 or that has no images, and for images of a format that is not read; [`Error::Setting`] for options that do
    /// not fit together.
    pub fn open(root: impl AsRef<Path>, options: ImageOptions) -> Result<Self> {
        let classes = folder::classes(root.as_ref())?;
        Self::of(root.as_ref(), classes, true, options)
    }

    /// Lists the files of a folder whose classes are these, such as those of the training images: a class without
    /// a folder has no samples.
    ///
    /// # Errors
    /// As [`ImageFolder::open`]; for a folder that is not among the classes.
    pub fn open_with(root: impl AsRef<Path>, classes: &[String], options: ImageOptions) -> Result<Self> {
        let root = root.as_ref();
        if let Some(other) = folder::classes(root)?.iter().find(|found| !classes.contains(found)) {
            let message = format!("there is no class `{other}`; there are `{}`", classes.join("`, `"));
            return Err(Error::Data { what: root.display().to_string(), message });
        }
        Self::of(root, classes.to_vec(), false, options)
    }

    fn of(root: &Path, classes: Vec<String>, all: bool, options: ImageOptions) -> Result<Self> {
        options.check()?;
        let files = folder::files(root, &classes, all)?;
        Ok(Self { classes, files, options })
    }

    /// Returns the names of the classes, in the order of their ids.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns channels, height and width of a sample.
    pub fn shape(&self) -> [usize; 3] {
        let [height, width] = self.options.size;
        [self.options.count(), height, width]
    }

    /// Returns the number of values in one sample.
    pub fn sample_len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Returns the file of a sample; `None` if there are fewer.
    pub fn file(&self, sample: usize) -> Option<&Path> {
        self.files.get(sample).map(|found| found.path.as_path())
    }

    /// Reads the image of a sample, varied for an epoch if there is one.
    fn read(&self, sample: usize, epoch: Option<u64>, values: &mut [f32]) -> Result<()> {
        let options = &self.options;
        let path = &self.files[sample].path;
        let image = decode::rgb(path)?;
        let image = if options.channels == Channels::Gray { image.gray() } else { image };
        let image = match (options.augment, epoch) {
            (Some(augment), Some(epoch)) => augment.apply(image, options, epoch, sample as u64),
            _ => options.fit(image),
        };
        let image = image.map_err(|why| folder::wrong(path, why))?;
        options.normalize(&image, values);
        Ok(())
    }

    fn read_all(&self, samples: &[usize], epoch: Option<u64>) -> Result<Batch> {
        let len = self.sample_len();
        let mut x = vec![0.0; len * samples.len()];
        let jobs = Mutex::new(x.chunks_exact_mut(len).zip(samples).enumerate());
        let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        let work = || {
            loop {
                if failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                    return;
                }
                let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((i, (values, &sample))) = job else { return };
                if let Err(error) = self.read(sample, epoch, values) {
                    // Jobs are taken in order, so the first of those that fail is always among them.
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if failed.as_ref().is_none_or(|(other, _)| i < *other) {
                        *failed = Some((i, error));
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let others = std::thread::available_parallelism().map_or(1, usize::from).min(samples.len());
            for _ in 1..others {
                // Without a thread this one does the work.
                let _ = Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        if let Some((_, error)) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let y: Vec<u32> = samples.iter().map(|&sample| self.files[sample].class).collect();
        Ok(Batch::new(samples.len()).with("x", x).with("y", y))
    }
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        self.read_all(samples, None)
    }

    fn training_batch(&self, epoch: u64, samples: &[usize]) -> Result<Batch> {
        self.read_all(samples, Some(epoch))
    }
}

#[cfg(test)]
mod tests;
