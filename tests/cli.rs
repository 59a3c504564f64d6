//! The `wgrad` program as its users run it: what it prints, and what it says of mistakes.

mod support;

use std::process::{Command, Output};

use serde_json::Value;
use support::devices;

fn wgrad(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wgrad")).args(arguments).output().expect("the program starts")
}

/// What it prints as JSON; it must succeed.
fn json(arguments: &[&str]) -> Value {
    let output = wgrad(arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e} in\n{text}"))
}

/// What it says when it refuses.
fn refusal(arguments: &[&str]) -> String {
    let output = wgrad(arguments);
    assert!(!output.status.success(), "{arguments:?} was accepted");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_kernel_is_measured_and_right_on_every_adapter() {
    let jobs = [
        ("matmul", "65x33x129"),
        ("conv", "2x3x5x9x3x2"),
        ("softmax", "33x65"),
        ("layer-norm", "33x65"),
        ("attention", "2x33x3x16"),
        ("elementwise", "1001"),
        ("adamw", "1001"),
    ];
    for device in devices() {
        let name = &device.adapter().name;
        for (kernel, size) in jobs {
            let result = json(&["bench", kernel, "--size", size, "--adapter", name, "--json"]);
            for field in ["gflops", "gbps", "copy_gbps", "seconds"] {
                assert!(result[field].as_f64() > Some(0.0), "{field} in {result}");
            }
            assert!(result["variant"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
            assert!(result["max_error"].as_f64() < Some(1e-5), "{result}");
        }
    }
}

#[test]
fn a_kernels_mistaken_size_is_told() {
    let text = refusal(&["bench", "softmax", "--size", "12"]);
    assert!(text.contains("--size 12") && text.contains("rowsxcolumns"), "{text}");
    let text = refusal(&["bench", "matmul", "--size", "0"]);
    assert!(text.contains("at least 1"), "{text}");
    let text = refusal(&["bench", "mlp", "--size", "12"]);
    assert!(text.contains("--size belongs to a kernel") && text.contains("matmul"), "{text}");
}
