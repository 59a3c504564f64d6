//! 1,797 real handwritten digits.

use std::io::Read;

use wgrad::data::Table;

/// Returns the digits of the examples as a CSV file.
pub fn csv() -> String {
    let mut text = String::new();
    let file = include_bytes!("../../examples/data/digits.csv.gz");
    flate2::read::GzDecoder::new(&file[..]).read_to_string(&mut text).expect("a gzip file");
    text
}

/// Returns the digits of the examples, with pixels in [0, 1].
pub fn digits() -> Table {
    let text = csv();
    Table::from_csv("digits", &text, 64, 10).expect("a table").scaled(1.0 / 16.0)
}
