//! The memory that PyTorch holds in a training step: `benches/results/pytorch_memory.json`, which
//! `benches/figures/pytorch_memory.py` writes.

use std::path::Path;

use serde_json::Value;

/// The peak of one network.
#[derive(Clone, Debug)]
pub struct Held {
    pub batch: usize,
    pub seq: Option<usize>,
    pub optimizer: String,
    pub parameters: u64,
    /// Bytes of all tensors alive at once, inputs included.
    pub peak_bytes: u64,
}

/// Returns the peak of a network by name; `attention` is `materialised` or `fused` for a transformer, `None`
/// for others.
pub fn held(network: &str, attention: Option<&str>) -> Held {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results/pytorch_memory.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let one = |row: &&Value| row["network"] == network && row["attention"].as_str() == attention;
    let rows: Vec<&Value> = all["networks"].as_array().expect("a list").iter().filter(one).collect();
    let [row] = rows[..] else {
        panic!("{}: {} rows for {network} {attention:?}", path.display(), rows.len())
    };
    let number = |field: &str| row[field].as_u64();
    Held {
        batch: number("batch").expect("a number") as usize,
        seq: number("seq").map(|seq| seq as usize),
        optimizer: row["optimizer"].as_str().expect("a name").to_owned(),
        parameters: number("parameters").expect("a number"),
        peak_bytes: number("peak_bytes").expect("a number"),
    }
}
