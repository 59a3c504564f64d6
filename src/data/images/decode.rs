//! PNG and JPEG files as rows of pixels.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::error::{Error, Result};

/// An image of 8 bits per channel, channels last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub values: Vec<u8>,
}

/// Largest height and width.
const MOST: usize = 1 << 15;
/// Most pixels of an image, of a file or resized: Pillow refuses larger ones, too.
const MOST_PIXELS: usize = 178_956_970;

/// Refuses a size before memory is taken for it: a small file can say any.
pub(super) fn check_size(height: usize, width: usize) -> Result<(), String> {
    match height.checked_mul(width) {
        Some(pixels) if pixels <= MOST_PIXELS => Ok(()),
        _ => Err(format!("{height} × {width} pixels: at most {MOST_PIXELS} in one image are read")),
    }
}

/// Reads a file as RGB: gray levels are repeated, an alpha channel is dropped, and of 16 bits the upper 8 are kept.
/// The file's first bytes say which format it has, not its name.
pub(super) fn rgb(path: &Path) -> Result<Pixels> {
    let wrong = |message: String| Error::Data { what: path.display().to_string(), message };
    let read = || {
        let mut bytes = Vec::new();
        BufReader::new(File::open(path)?).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = read().map_err(|error| wrong(error.to_string()))?;
    let decoded = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => png(&bytes),
        [0xff, 0xd8, ..] => jpeg(&bytes),
        [] => Err("the file is empty".to_owned()),
        other => Err(format!("neither PNG nor JPEG: it begins with {:02x?}", &other[..other.len().min(4)])),
    };
    decoded.map_err(wrong)
}

fn png(bytes: &[u8]) -> Result<Pixels, String> {
    let text = |error: png::DecodingError| error.to_string();
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(text)?;
    let size = reader.info().size();
    let (width, height) = (size.0 as usize, size.1 as usize);
    if width.max(height) > MOST {
        return Err(format!("{height} × {width} pixels: at most {MOST} in each direction are read"));
    }
    check_size(height, width)?;
    let len = reader.output_buffer_size().ok_or_else(|| format!("{height} × {width} pixels are too many"))?;
    let mut values = vec![0; len];
    reader.next_frame(&mut values).map_err(text)?;
    let channels = reader.output_color_type().0.samples();
    let values = match channels {
        3 => values,
        // Gray, gray with alpha, and colors with alpha.
        1 | 2 => values.chunks_exact(channels).flat_map(|pixel| [pixel[0]; 3]).collect(),
        _ => values.chunks_exact(channels).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
    };
    Ok(Pixels { height, width, channels: 3, values })
}

fn jpeg(bytes: &[u8]) -> Result<Pixels, String> {
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(MOST)
        .set_max_height(MOST)
        .set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions().ok_or("it has no size")?;
    check_size(height, width)?;
    let values = decoder.decode().map_err(|error| error.to_string())?;
    if decoder.output_colorspace() != Some(ColorSpace::RGB) || values.len() != 3 * width * height {
        return Err(format!("its colors cannot be read as RGB: {:?}", decoder.input_colorspace()));
    }
    Ok(Pixels { height, width, channels: 3, values })
}

impl Pixels {
    /// Returns the luma of an RGB image by ITU-R BT.601 in 16 bits of fraction, as Pillow computes mode `L`.
    pub(super) fn gray(self) -> Self {
        let luma = |p: &[u8]| {
            let sum = u32::from(p[0]) * 19_595 + u32::from(p[1]) * 38_470 + u32::from(p[2]) * 7_471;
            ((sum + 0x8000) >> 16) as u8
        };
        Self { channels: 1, values: self.values.chunks_exact(3).map(luma).collect(), ..self }
    }

    /// Returns a part; what lies outside of the image is black.
    pub(super) fn part(&self, top: isize, left: isize, height: usize, width: usize) -> Self {
        let channels = self.channels;
        let mut values = vec![0; height * width * channels];
        // Columns of the part that lie inside of the image.
        let from = (-left).clamp(0, width as isize) as usize;
        let to = (self.width as isize - left).clamp(from as isize, width as isize) as usize;
        for (y, row) in values.chunks_exact_mut(width * channels).enumerate() {
            let source = top + y as isize;
            if (0..self.height as isize).contains(&source) && from < to {
                let start = (source as usize * self.width + (left + from as isize) as usize) * channels;
                row[from * channels..to * channels]
                    .copy_from_slice(&self.values[start..start + (to - from) * channels]);
            }
        }
        Self { height, width, channels, values }
    }

    /// Reverses each row.
    pub(super) fn mirrored(mut self) -> Self {
        for row in self.values.chunks_exact_mut(self.width * self.channels) {
            for x in 0..self.width / 2 {
                for c in 0..self.channels {
                    row.swap(x * self.channels + c, (self.width - 1 - x) * self.channels + c);
                }
            }
        }
        self
    }
}
