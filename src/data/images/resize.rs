//! Images in another size, as Pillow's `resize` with its bilinear filter, which torchvision uses for images of files: a
//! triangle as wide as the distance of two pixels of the result, so that all pixels of a larger image
//! count; in 22 bits of fraction, rounded to 8 bits after each of the two directions. The width is
//! resized first. Pillow resizes the height first in some cases, such as a height that shrinks while the width grows: levels
//! then differ by one.

use super::decode::{Pixels, check_size};

const FRACTION: u32 = 22;

/// What one pixel of the result is made of along one direction.
struct Weights {
    first: usize,
    factors: Vec<i32>,
}

/// Returns the weights of `to` pixels over `from`.
fn weights(from: usize, to: usize) -> Vec<Weights> {
    let scale = from as f64 / to as f64;
    let support = scale.max(1.0);
    let one = |x: usize| {
        let center = (x as f64 + 0.5) * scale;
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let triangle = |i: usize| (1.0 - ((i as f64 - center + 0.5) / support).abs()).max(0.0);
        let factors: Vec<f64> = (first..end).map(triangle).collect();
        let sum: f64 = factors.iter().sum();
        let fixed = |factor: &f64| (0.5 + factor / sum * f64::from(1 << FRACTION)) as i32;
        Weights { first, factors: factors.iter().map(fixed).collect() }
    };
    (0..to).map(one).collect()
}

const HALF: i32 = 1 << (FRACTION - 1);

fn rounded(sum: i32) -> u8 {
    (sum >> FRACTION).clamp(0, 255) as u8
}

/// Returns the image with this height and width, both at least 1; an error if it, or the image with this width alone,
/// has too many pixels.
pub(super) fn resize(image: Pixels, height: usize, width: usize) -> Result<Pixels, String> {
    let (from, most) = ([image.height, image.width], image.height.max(height));
    check_size(most, width)
        .map_err(|why| format!("resizing {} × {} pixels takes {why}", from[0], from[1]))?;
    let image = if image.width == width { image } else { across(&image, width) };
    Ok(if image.height == height { image } else { down(&image, height) })
}

fn across(image: &Pixels, width: usize) -> Pixels {
    let (channels, weights) = (image.channels, weights(image.width, width));
    let mut values = Vec::with_capacity(image.height * width * channels);
    for row in image.values.chunks_exact(image.width * channels) {
        for Weights { first, factors } in &weights {
            let source = &row[first * channels..];
            for c in 0..channels {
                let pixels = source[c..].iter().step_by(channels);
                let sum: i32 = pixels.zip(factors).map(|(pixel, factor)| i32::from(*pixel) * factor).sum();
                values.push(rounded(HALF + sum));
            }
        }
    }
    Pixels { height: image.height, width, channels, values }
}

fn down(image: &Pixels, height: usize) -> Pixels {
    let len = image.width * image.channels;
    let mut values = Vec::with_capacity(height * len);
    let mut sums = vec![0i32; len];
    for Weights { first, factors } in weights(image.height, height) {
        sums.fill(HALF);
        for (factor, row) in factors.iter().zip(image.values[first * len..].chunks_exact(len)) {
            sums.iter_mut().zip(row).for_each(|(sum, pixel)| *sum += i32::from(*pixel) * factor);
        }
        values.extend(sums.iter().map(|sum| rounded(*sum)));
    }
    Pixels { height, width: image.width, channels: image.channels, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[u8]) -> Pixels {
        Pixels { height: 1, width: values.len(), channels: 1, values: values.to_vec() }
    }

    #[test]
    fn constant_images_stay_and_weights_have_a_sum_of_one() {
        for (from, to) in [(7, 3), (3, 7), (100, 1), (1, 9), (640, 224)] {
            let image = Pixels { height: from, width: from, channels: 3, values: vec![201; from * from * 3] };
            assert!(
                resize(image, to, to).unwrap().values.iter().all(|value| *value == 201),
                "{from} to {to}"
            );
        }
    }

    #[test]
    fn rows_and_columns_are_resized_alike() {
        let image = row(&[0, 10, 200, 255, 3, 77, 90]);
        let column = Pixels { height: 7, width: 1, ..image.clone() };
        for to in [1, 3, 4, 13] {
            let resized = |image: &Pixels, h, w| resize(image.clone(), h, w).unwrap().values;
            assert_eq!(resized(&image, 1, to), resized(&column, to, 1));
        }
        // By hand: a pixel of the result is at 0.5, 1.5, .. of its two pixels; the triangle reaches over four.
        assert_eq!(resize(row(&[0, 0, 80, 80]), 1, 2).unwrap().values, [11, 69]);
    }
}
