use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::data::{Loader, Subset};

/// A folder of one test, removed at its end.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wgrad-images-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Three classes with `count` images each.
    fn filled(name: &str, count: usize) -> Self {
        let root = Self::new(name);
        for class in ["a", "b", "c"] {
            (0..count).for_each(|i| root.write(&format!("{class}/{i}.png"), &gradient(i as u8, 12, 10)));
        }
        root
    }

    /// The error of opening the folder, after the path of the folder.
    fn refused(&self) -> String {
        let text = ImageFolder::open(&self.0, ImageOptions::square(8)).unwrap_err().to_string();
        text.replace(&self.0.display().to_string(), "root").replace('\\', "/")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn encoded(color: png::ColorType, height: u32, width: u32, values: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(values).unwrap();
    writer.finish().unwrap();
    bytes
}

fn gradient(start: u8, height: u32, width: u32) -> Vec<u8> {
    let values: Vec<u8> = (0..height * width * 3).map(|i| start.wrapping_add(i as u8)).collect();
    encoded(png::ColorType::Rgb, height, width, &values)
}

#[test]
fn gray_and_transparent_images_are_read_as_the_channels_asked_for() {
    let root = Root::new("channels");
    root.write("x/0.png", &encoded(png::ColorType::Grayscale, 1, 2, &[0, 255]));
    root.write("x/1.png", &encoded(png::ColorType::Rgba, 1, 2, &[255, 0, 0, 7, 0, 255, 0, 255]));
    root.write("x/2.png", &encoded(png::ColorType::GrayscaleAlpha, 1, 2, &[255, 9, 51, 0]));
    let of = |channels| {
        let plain = ImageOptions { mean: [0.0; 3], std: [1.0; 3], ..ImageOptions::square(1) };
        let options = ImageOptions { size: [1, 2], crop: Crop::Stretch, channels, ..plain };
        ImageFolder::open(&root.0, options).unwrap().batch(&[0, 1, 2]).unwrap()
    };
    let rgb = of(Channels::Rgb);
    let expected: [[f32; 6]; 3] =
        [[0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 0.2, 1.0, 0.2, 1.0, 0.2]];
    assert_eq!(rgb.f32("x"), expected.concat());
    let gray: Vec<f32> = [0u8, 255, 76, 150, 255, 51].iter().map(|x| f32::from(*x) / 255.0).collect();
    assert_eq!(of(Channels::Gray).f32("x"), gray);
}

#[test]
fn augmented_epochs_differ_and_continue_with_the_same_bits() {
    let root = Root::filled("augmented", 7);
    for crop in [RandomCrop::None, RandomCrop::Shifted(3), RandomCrop::Resized(0.3)] {
        let augment = Augment { seed: 5, flip: true, crop };
        let options = ImageOptions { augment: Some(augment), ..ImageOptions::square(8) };
        let data: Arc<dyn Dataset> = Arc::new(ImageFolder::open(&root.0, options).unwrap());
        let plain = ImageFolder::open(&root.0, ImageOptions::square(8)).unwrap();
        let all: Vec<usize> = (0..21).collect();
        // Evaluations see the images as they are.
        assert_eq!(data.batch(&all).unwrap(), plain.batch(&all).unwrap());
        let first = data.training_batch(0, &all).unwrap();
        assert_ne!(first, data.training_batch(1, &all).unwrap(), "{crop:?}");
        assert_ne!(first, plain.batch(&all).unwrap(), "{crop:?}");
        let one = data.training_batch(0, &[9]).unwrap();
        assert_eq!(one.f32("x"), &first.f32("x")[9 * 192..10 * 192]);

        let (train, _) = Subset::split(data, 0.8, 1);
        let loader = Loader::new(Arc::new(train), 4).unwrap().shuffled(2);
        let epoch = |n, first| loader.epoch(n, first).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(epoch(3, 2), epoch(3, 0)[2..]);
    }
}

#[test]
fn images_are_mirrored_shifted_and_cut() {
    let image = Pixels { height: 2, width: 3, channels: 1, values: vec![1, 2, 3, 4, 5, 6] };
    assert_eq!(image.clone().mirrored().values, [3, 2, 1, 6, 5, 4]);
    assert_eq!(image.part(1, 1, 1, 2).values, [5, 6]);
    assert_eq!(image.part(-1, 1, 2, 3).values, [0, 0, 0, 2, 3, 0]);
    assert_eq!(image.part(1, -2, 2, 3).values, [0, 0, 4, 0, 0, 0]);
    assert_eq!(image.part(5, -9, 1, 3).values, [0, 0, 0]);
    assert_eq!(image.part(0, 7, 1, 2).values, [0, 0]);
}

#[test]
fn folders_that_cannot_be_used_are_named() {
    let root = Root::new("refused");
    assert_eq!(
        root.refused(),
        "root: it has no folders; one folder for each class is needed, with its images"
    );
    root.write("cat/notes.txt", b"");
    root.write(".hidden/x.png", b"");
    assert_eq!(root.refused(), "root/cat: the class has no images: no file ends in .png, .jpg or .jpeg");
    root.write("cat/in/side/1.PNG", b"");
    root.write("dog/x.webp", b"");
    let message = "root/dog/x.webp: only PNG and JPEG images are read: convert it, or move it elsewhere";
    assert_eq!(root.refused(), message);
    assert!(ImageFolder::open(root.0.join("none"), ImageOptions::square(8)).is_err());
}

#[test]
fn classes_can_be_those_of_the_training_images() {
    let root = Root::filled("classes", 1);
    let open = |classes: &[&str]| {
        let classes: Vec<String> = classes.iter().map(|name| (*name).to_owned()).collect();
        ImageFolder::open_with(&root.0, &classes, ImageOptions::square(8))
    };
    let data = open(&["0", "c", "b", "a"]).unwrap();
    assert_eq!(data.batch(&[0, 1, 2]).unwrap().u32("y"), [1, 2, 3]);
    assert!(data.file(0).unwrap().ends_with("c/0.png") && data.file(3).is_none());
    assert!(open(&["a", "b"]).unwrap_err().to_string().contains("there is no class `c`; there are `a`, `b`"));
}

/// The first damaged image of a batch is named, however many threads read it.
#[test]
fn damaged_images_are_named() {
    let root = Root::filled("damaged", 9);
    let whole = gradient(0, 12, 10);
    let cases: [(&[u8], &str); 4] = [
        (&whole[..whole.len() / 2], ""),
        (b"", "the file is empty"),
        (b"GIF89a", "neither PNG nor JPEG: it begins with [47, 49, 46, 38]"),
        (&[0xff, 0xd8, 0xff, 0xe0, 0, 16], ""),
    ];
    let data = ImageFolder::open(&root.0, ImageOptions::square(8)).unwrap();
    root.write("c/8.png", b"");
    for (bytes, message) in cases {
        root.write("b/3.png", bytes);
        let error = data.batch(&(0..27).collect::<Vec<_>>()).unwrap_err().to_string().replace('\\', "/");
        assert!(error.contains("/b/3.png: ") && error.ends_with(message), "{error}");
        assert!(data.batch(&[11, 13]).is_ok());
    }
    std::fs::remove_file(root.0.join("b/3.png")).unwrap();
    assert!(data.batch(&[12]).unwrap_err().to_string().contains("3.png: "));
}

#[test]
fn options_that_do_not_fit_together_are_refused() {
    let square = ImageOptions::square(8);
    let random = |crop| ImageOptions { augment: Some(Augment { crop, ..Augment::default() }), ..square };
    let cases = [
        (ImageOptions { size: [0, 8], ..square }, "samples of 0 × 8 pixels"),
        (ImageOptions { size: [8, 9], ..square }, "it must be at least 9"),
        (ImageOptions { std: [1.0, 0.0, 1.0], ..square }, "those of std above 0"),
        (random(RandomCrop::Resized(0.0)), "above 0 and at most 1"),
        (random(RandomCrop::Shifted(1 << 20)), "at most 32768"),
    ];
    for (options, message) in cases {
        let error = options.check().unwrap_err();
        assert!(matches!(error, Error::Setting { .. }) && error.to_string().contains(message), "{error}");
    }
    assert!(ImageOptions::imagenet().check().is_ok());
}

/// A PNG or JPEG file of a few bytes can say that it has any size.
#[test]
fn images_of_too_many_pixels_are_refused() {
    let root = Root::new("large");
    let mut png = gradient(0, 1, 2);
    png[16..24].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]);
    let mut sum = flate2::Crc::new();
    sum.update(&png[12..29]);
    png[29..33].copy_from_slice(&sum.sum().to_be_bytes());
    root.write("x/0.png", &png);
    let frame = [0xff, 0xc0, 0, 11, 8, 0x40, 0, 0x40, 0, 1, 1, 0x11, 0];
    let jpeg = [&[0xff, 0xd8][..], &frame, &[0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]].concat();
    root.write("x/1.jpg", &jpeg);
    root.write("x/2.png", &gradient(0, 1, 32_768));
    let errors = |options: ImageOptions| {
        let data = ImageFolder::open(&root.0, options).unwrap();
        [0, 1, 2].map(|i| {
            let error = data.training_batch(0, &[i]).unwrap_err().to_string().replace('\\', "/");
            assert!(error.contains(&format!("/x/{i}.")), "{error}");
            error
        })
    };
    let [png, jpeg, resized] = errors(ImageOptions::square(256));
    assert!(png.ends_with("32768 × 32768 pixels: at most 178956970 in one image are read"), "{png}");
    assert!(jpeg.contains("16384 × 16384 pixels: at most"), "{jpeg}");
    assert!(resized.contains("resizing 1 × 32768 pixels takes 256 × 8388608 pixels: at most"), "{resized}");
    let augment = Some(Augment { flip: true, ..Augment::default() });
    assert_eq!(errors(ImageOptions { augment, ..ImageOptions::square(256) })[2], resized);
}

#[cfg(target_os = "linux")]
#[test]
fn folders_of_classes_need_names_in_utf_8() {
    use std::os::unix::ffi::OsStrExt;

    let root = Root::filled("utf8", 1);
    let folder = root.0.join(std::ffi::OsStr::from_bytes(b"d\xe9"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("0.png"), gradient(0, 12, 10)).unwrap();
    assert!(root.refused().contains("the folder of a class needs a name in UTF-8"), "{}", root.refused());
}
