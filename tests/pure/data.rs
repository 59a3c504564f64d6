//! Data from files, against what the programs that wrote them read.

use crate::support::golden;

/// What torchvision makes of a folder: order, classes, resized and normalized pixels; those of PNG files bit for bit
/// where both directions are resized by the same factor. Where they are not, Pillow may resize the height first, and
/// levels differ by one for rounding. Decoders of JPEG differ in the last bits of pixels.
#[cfg(all(feature = "images", feature = "safetensors"))]
#[test]
fn image_folders_are_those_of_torchvision() {
    use wgrad::data::{Channels, Crop, Dataset, ImageFolder, ImageOptions};

    let file = golden::read("image_folder.safetensors");
    let text: String = file["files"].1.iter().map(|byte| char::from(*byte as u8)).collect();
    let names: Vec<&str> = text.lines().collect();
    let imagenet = ImageOptions::imagenet();
    let gray = ImageOptions { channels: Channels::Gray, mean: [0.5; 3], std: [0.25; 3], ..imagenet };
    let cases = [
        ("center", ImageOptions { size: [16, 19], crop: Crop::Center(20), ..imagenet }),
        ("stretch", ImageOptions { size: [13, 24], crop: Crop::Stretch, ..imagenet }),
        ("gray", ImageOptions { size: [16, 16], crop: Crop::Center(16), ..gray }),
    ];
    for (name, options) in cases {
        let root = golden::path("image_folder");
        let data = ImageFolder::open(&root, options).unwrap();
        assert_eq!(data.classes(), ["Dog", "bird", "cat"]);
        assert_eq!(data.len(), names.len());
        for (i, name) in names.iter().enumerate() {
            assert_eq!(data.file(i), Some(root.join(name).as_path()));
        }
        let batch = data.batch(&(0..data.len()).collect::<Vec<_>>()).unwrap();
        let labels: Vec<f32> = batch.u32("y").iter().map(|label| *label as f32).collect();
        assert_eq!(labels, file["y"].1);
        let (shape, expected) = &file[name];
        assert_eq!(shape[1..], data.shape());
        let len = data.sample_len();
        for (i, (found, expected)) in batch.f32("x").chunks(len).zip(expected.chunks(len)).enumerate() {
            let levels = match (name, names[i].ends_with(".jpg")) {
                (_, true) => 4.01,
                ("center", false) => 0.0,
                _ => 1.01,
            };
            let most = levels / 255.0 / options.std.into_iter().fold(1.0, f32::min);
            let far = found.iter().zip(expected).filter(|(a, b)| (*a - *b).abs() > most).count();
            assert_eq!(far, 0, "of {len} values of {name} {}", names[i]);
        }
    }
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::golden;
    use wgrad::data::{Batch, Columns, Dataset, Missing, Table};
    use wgrad::{Error, Result};

    fn read(columns: &Columns) -> Result<Table> {
        Table::read_parquet(golden::path("table.parquet"), columns)
    }

    fn all(table: &Table) -> Batch {
        table.batch(&(0..table.len()).collect::<Vec<_>>()).unwrap()
    }

    /// The columns of tests/golden/tables.py, in pieces, pages and row groups.
    #[test]
    fn columns_hold_what_pyarrow_wrote() {
        let inputs = ["f32", "i64", "u32", "half", "cents", "flag", "nested.x"];
        let table = read(&Columns::classes("name").inputs(inputs)).unwrap();
        assert_eq!((table.len(), table.class_names().join(" ")), (5000, "fir oak reed".to_owned()));
        let batch = all(&table);
        for (i, row) in batch.f32("x").chunks(inputs.len()).enumerate() {
            let j = (i % 97) as f32;
            let u32 = (u32::MAX - i as u32 % 97) as f32;
            let expected = [j / 8.0, j - 50.0, u32, (i % 7) as f32, j + 0.25, (i % 2) as f32, 3.0 * j];
            assert_eq!(row, expected, "row {i}");
            assert_eq!(batch.u32("y")[i], 2 - i as u32 % 3);
        }
        let integers = read(&Columns::classes("i64").inputs(["f32"])).unwrap();
        assert_eq!((integers.classes(), integers.class_names()[0].as_str()), (97, "-50"));
        let flags = read(&Columns::classes("flag").inputs(["f32"])).unwrap();
        assert_eq!(flags.class_names(), ["0", "1"]);
    }

    #[test]
    fn nulls_are_refused_skipped_or_replaced() {
        let columns = Columns::numbers(["half"]).inputs(["f64", "f32"]);
        let error = read(&columns).unwrap_err().to_string();
        assert!(error.contains("table.parquet: row 3, column `f64`: it has no value"), "{error}");
        let skipped = read(&columns.clone().missing(Missing::SkipRow)).unwrap();
        assert_eq!(skipped.len(), 4500);
        let (table, kept) = (all(&skipped), (0..5000).filter(|i| i % 10 != 3));
        for ((i, row), y) in kept.zip(table.f32("x").chunks(2)).zip(table.f32("y")) {
            let j = (i % 97) as f32;
            assert_eq!((row, *y), (&[-j / 4.0, j / 8.0][..], (i % 7) as f32), "row {i}");
        }
        let replaced = read(&columns.missing(Missing::Replace(7.0))).unwrap();
        assert_eq!(replaced.batch(&[3, 4993]).unwrap().f32("x"), [7.0, 0.375, 7.0, (4993 % 97) as f32 / 8.0]);
    }

    #[test]
    fn what_is_no_number_is_named() {
        let cases = [
            (Columns::numbers(["day"]), "column `day` holds dates or times"),
            (Columns::numbers(["list.list.element"]), "column `list.list.element` holds lists"),
            (Columns::numbers(["name"]), "row 0, column `name`: `reed` is not a number"),
            (Columns::numbers(["x"]), "there is no column `x`; there are `f32`, `f64`, "),
        ];
        for (columns, message) in cases {
            let error = read(&columns.inputs(["f32"])).unwrap_err();
            assert!(matches!(error, Error::Data { .. }) && error.to_string().contains(message), "{error}");
        }
    }

    /// The codec is another feature of the crate `parquet`.
    #[test]
    fn files_of_another_codec_are_errors_that_help() {
        let columns = Columns::numbers(["i64"]).inputs(["f32"]);
        match Table::read_parquet(golden::path("table_zstd.parquet"), &columns) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("zstd") && error.contains("in the app's Cargo.toml"), "{error}");
            }
            Ok(table) => assert_eq!(all(&table).f32("y"), [-50.0, -49.0]),
        }
        let text = Table::read_parquet(golden::path("tables.py"), &columns).unwrap_err();
        assert!(matches!(text, Error::Data { .. }), "{text}");
    }
}
