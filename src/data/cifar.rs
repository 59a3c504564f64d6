//! CIFAR-10's binary files (Krizhevsky 2009): rows of a class byte and 3×32×32 pixel bytes, channels first.

use std::path::Path;

use super::Table;
use crate::error::{Error, Result};

const PIXELS: usize = 3 * 32 * 32;
const CLASSES: u8 = 10;
/// Part of the error message for users who do not have the files.
const HINT: &str = "expected the folder `cifar-10-batches-bin` of cifar-10-binary.tar.gz from \
                    https://www.cs.toronto.edu/~kriz/cifar.html, with data_batch_1.bin to data_batch_5.bin and test_batch.bin";

/// Reads the training and test images of CIFAR-10's binary version, with pixels in [-1, 1].
///
/// # Errors
/// [`Error::Data`] with the file that is missing or damaged, and where to get the files.
pub fn cifar10(directory: &Path) -> Result<(Table, Table)> {
    let mut samples = Vec::new();
    let mut labels = Vec::new();
    for i in 1..=5 {
        read(&directory.join(format!("data_batch_{i}.bin")), &mut samples, &mut labels)?;
    }
    let train = Table::new(PIXELS, usize::from(CLASSES), samples, labels)?;
    let (mut samples, mut labels) = (Vec::new(), Vec::new());
    read(&directory.join("test_batch.bin"), &mut samples, &mut labels)?;
    Ok((train, Table::new(PIXELS, usize::from(CLASSES), samples, labels)?))
}

fn read(path: &Path, samples: &mut Vec<f32>, labels: &mut Vec<u32>) -> Result<()> {
    let wrong = |message: String| Error::Data { what: path.display().to_string(), message };
    let bytes = std::fs::read(path).map_err(|e| wrong(format!("{e}; {HINT}")))?;
    if bytes.is_empty() || bytes.len() % (PIXELS + 1) != 0 {
        return Err(wrong(format!("{} bytes are not rows of {}; {HINT}", bytes.len(), PIXELS + 1)));
    }
    for (row, image) in bytes.chunks(PIXELS + 1).enumerate() {
        if image[0] >= CLASSES {
            return Err(wrong(format!("image {row} has class {}, there are {CLASSES}", image[0])));
        }
        labels.push(u32::from(image[0]));
        samples.extend(image[1..].iter().map(|&pixel| f32::from(pixel) / 127.5 - 1.0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    #[test]
    fn images_are_read_and_damaged_files_are_errors() {
        let directory = std::env::temp_dir().join(format!("wgrad-cifar-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let message = cifar10(&directory).unwrap_err().to_string();
        assert!(message.contains("data_batch_1.bin") && message.contains("cs.toronto.edu"), "{message}");
        let row = |class: u8| [vec![class], vec![255; PIXELS]].concat();
        for i in 1..=5 {
            std::fs::write(directory.join(format!("data_batch_{i}.bin")), row(i)).unwrap();
        }
        std::fs::write(directory.join("test_batch.bin"), row(11)).unwrap();
        assert!(cifar10(&directory).unwrap_err().to_string().contains("image 0 has class 11"));
        std::fs::write(directory.join("test_batch.bin"), &row(1)[1..]).unwrap();
        assert!(cifar10(&directory).unwrap_err().to_string().contains("3072 bytes are not rows of 3073"));
        std::fs::write(directory.join("test_batch.bin"), row(9)).unwrap();
        let (train, test) = cifar10(&directory).unwrap();
        let image = train.batch(&[4]).unwrap();
        assert_eq!((train.len(), image.u32("y"), test.len()), (5, &[5][..], 1));
        assert_eq!(image.f32("x"), [1.0; PIXELS]);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
