//! Random variation of images, determined by seed, epoch and sample.

use super::decode::Pixels;
use super::{ImageOptions, resize};
use crate::error::{Error, Result};
use crate::random;

/// How images vary from epoch to epoch. What a sample becomes in an epoch depends on the seed, the epoch and the
/// sample's index alone, so that a run that continues trains on the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Augment {
    /// Seed of all draws.
    pub seed: u64,
    /// Whether half of the images are mirrored, left to right.
    pub flip: bool,
    /// Which part of an image is seen.
    pub crop: RandomCrop,
}

/// Which part of an image is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RandomCrop {
    /// The same as in evaluations.
    #[default]
    None,
    /// That part, shifted by up to this number of pixels in each direction; what comes in is black: torchvision's
    /// `RandomCrop` with padding.
    Shifted(usize),
    /// A part of the image with this share of its area at least, and between 3/4 and 4/3 as wide as high, stretched to
    /// the size of the samples: torchvision's `RandomResizedCrop`, whose default is 0.08.
    Resized(f64),
}

/// Tries to draw a part that fits in the image.
const TRIES: u64 = 10;
/// Bounds of width over height.
const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];

impl Augment {
    pub(super) fn check(self) -> Result<()> {
        match self.crop {
            RandomCrop::Resized(share) if !(share > 0.0 && share <= 1.0) => {
                let message =
                    format!("`RandomCrop::Resized({share})`: the share must be above 0 and at most 1");
                Err(Error::setting("images", message))
            }
            RandomCrop::Shifted(pixels) if pixels > 1 << 15 => {
                Err(Error::setting("images", format!("`RandomCrop::Shifted({pixels})`: at most 32768")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the image of a sample in an epoch, in the size of the samples.
    pub(super) fn apply(
        self,
        image: Pixels,
        options: &ImageOptions,
        epoch: u64,
        sample: u64,
    ) -> Result<Pixels, String> {
        let key = random::key(self.seed ^ random::mix(epoch), "augment");
        let key = random::bits(key, sample);
        let [height, width] = options.size;
        let image = match self.crop {
            RandomCrop::None => options.fit(image)?,
            RandomCrop::Shifted(most) => {
                let draw = |index| below(key, index, 2 * most + 1) as isize - most as isize;
                options.fit(image)?.part(draw(1), draw(2), height, width)
            }
            RandomCrop::Resized(share) => {
                let [top, left, h, w] = part(key, share, image.height, image.width);
                resize::resize(image.part(top as isize, left as isize, h, w), height, width)?
            }
        };
        Ok(if self.flip && random::bits(key, 0) & 1 == 1 { image.mirrored() } else { image })
    }
}

/// Returns a number below `n`.
fn below(key: u64, index: u64, n: usize) -> usize {
    ((u128::from(random::bits(key, index)) * n as u128) >> 64) as usize
}

/// Draws top, left, height and width of a part with at least `share` of the area, by the rules of torchvision's
/// `RandomResizedCrop.get_params`.
fn part(key: u64, share: f64, height: usize, width: usize) -> [usize; 4] {
    for i in 0..TRIES {
        let uniform = |index| f64::from(random::uniform(key, 3 + 4 * i + index));
        let area = (height * width) as f64 * (share + (1.0 - share) * uniform(0));
        let [low, high] = RATIO.map(f64::ln);
        let ratio = (low + (high - low) * uniform(1)).exp();
        let (w, h) = ((area * ratio).sqrt().round() as usize, (area / ratio).sqrt().round() as usize);
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let draw = |index, n| below(key, 3 + 4 * i + index, n);
            return [draw(2, height - h + 1), draw(3, width - w + 1), h, w];
        }
    }
    // The center, as wide or high as the bounds allow.
    let ratio = width as f64 / height as f64;
    let (h, w) = if ratio < RATIO[0] {
        (((width as f64 / RATIO[0]).round() as usize).min(height), width)
    } else if ratio > RATIO[1] {
        (height, ((height as f64 * RATIO[1]).round() as usize).min(width))
    } else {
        (height, width)
    };
    [(height - h) / 2, (width - w) / 2, h, w]
}
