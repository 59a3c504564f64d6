//! What kernels are compared with.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rows::digits;

/// What the device can do at most, in operations and bytes per second.
pub struct Roofline {
    given: Option<[f64; 2]>,
    /// The fastest product of each format.
    flops: BTreeMap<String, f64>,
    copy: f64,
}

impl Roofline {
    pub fn of(rows: &[Value], given: Option<[f64; 2]>) -> Self {
        let (mut flops, mut copy) = (BTreeMap::<String, f64>::new(), 0.0f64);
        for result in rows.iter().filter(|row| row["step"] != "pytorch").map(|row| &row["result"]) {
            copy = copy.max(1e9 * result["copy_gbps"].as_f64().unwrap_or(0.0));
            let product = result["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("matmul"));
            if let (true, Some(gflops)) = (product, result["gflops"].as_f64()) {
                let most = flops.entry(result["dtype"].as_str().unwrap_or("f32").to_owned()).or_default();
                *most = most.max(1e9 * gflops);
            }
        }
        Self { given, flops, copy }
    }

    pub fn rates(&self, dtype: &str) -> [f64; 2] {
        let measured = || self.flops.get(dtype).or_else(|| self.flops.get("f32")).copied().unwrap_or(0.0);
        self.given.unwrap_or_else(|| [measured(), self.copy])
    }

    /// The share of the roofline that work reached in some seconds; `None` if there is no roofline.
    pub fn share(&self, dtype: &str, flops: f64, bytes: f64, seconds: f64) -> Option<f64> {
        let [peak, bandwidth] = self.rates(dtype);
        if peak <= 0.0 || bandwidth <= 0.0 || seconds <= 0.0 {
            return None;
        }
        Some((flops / peak).max(bytes / bandwidth) / seconds)
    }

    pub fn told(&self) -> String {
        match self.given {
            Some([flops, bytes]) => {
                format!("given: {} TFLOP/s, {} GB/s", digits(flops / 1e12), digits(bytes / 1e9))
            }
            None => {
                let of = |(dtype, rate): (&String, &f64)| format!("{dtype} {} GFLOP/s", digits(rate / 1e9));
                let rates: Vec<String> = self.flops.iter().map(of).collect();
                format!(
                    "measured, the fastest products ({}) and copy ({} GB/s)",
                    rates.join(", "),
                    digits(self.copy / 1e9)
                )
            }
        }
    }
}
