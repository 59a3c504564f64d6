//! `wgrad bench`.

use serde_json::Value;

use super::support::devices;
use super::{json, refusal, wgrad};

#[test]
fn bench_measures_kernels_and_matches_the_twin() {
    // All others: the program's own tests.
    let jobs = [("matmul", "65x33x129"), ("conv-dw", "2x3x5x9x3x2"), ("adamw", "1001")];
    for device in devices() {
        let name = &device.adapter().name;
        for (kernel, size) in jobs {
            let result = json(&["bench", kernel, "--size", size, "--adapter", name, "--json"]);
            for field in ["gflops", "gbps", "copy_gbps", "seconds"] {
                assert!(result[field].as_f64() > Some(0.0), "{field} in {result}");
            }
            assert!(result["variant"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
            assert!(result["max_error"].as_f64() < Some(1e-5), "{result}");
            assert!(result["compared"].as_u64() > Some(100), "{result}");
        }
    }
}

/// Whether the batch is on the device or fed in every step changes no bit.
#[test]
fn bench_of_a_network_is_the_same_fed_or_resident() {
    for device in devices() {
        let of = |more: &[&str]| {
            let fixed = ["bench", "mlp", "--batch", "8", "--steps", "3", "--json"];
            json(&[&fixed[..], &["--adapter", &device.adapter().name], more].concat())
        };
        let (resident, fed) = (of(&[]), of(&["--feed"]));
        assert_eq!([&resident["fed"], &fed["fed"]], [false, true]);
        assert!(resident["parameters_hash"].as_str().is_some_and(|hash| hash.len() == 16), "{resident}");
        assert!(resident["loss_last"].as_f64() < resident["loss_first"].as_f64(), "{resident}");
        for field in ["parameters_hash", "loss_first", "loss_last"] {
            assert_eq!(resident[field], fed[field], "{field}");
        }
        let other = of(&["--optimizer", "sgd"]);
        assert_ne!(other["parameters_hash"], resident["parameters_hash"], "the hash is of the parameters");
    }
}

/// Ranks in one process, which share the parts of a batch, have the parameters of one device.
#[test]
fn ranks_have_the_hash_of_one_device() {
    for device in devices() {
        let of = |more: &[&str]| {
            let fixed = ["bench", "mlp", "--batch", "8", "--steps", "2", "--json"];
            json(&[&fixed[..], &["--adapter", &device.adapter().name], more].concat())
        };
        let one = of(&["--accumulate", "4"]);
        for more in [&["--ranks", "2", "--parts", "4"][..], &["--ranks", "4"]] {
            let ranks = of(more);
            for field in ["parameters_hash", "loss_last"] {
                assert_eq!(ranks[field], one[field], "{more:?}: {field}");
            }
            assert_eq!(ranks["device_bytes"], ranks["planned_bytes"]);
            assert!(ranks["wire_bytes"].as_u64() > Some(0));
        }
        assert_eq!(one["wire_bytes"], 0);
    }
    let uneven = ["bench", "mlp", "--batch", "9", "--ranks", "2", "--parts", "3"];
    assert!(refusal(&uneven).contains("2 ranks, accumulate 3"));
}

/// A plan of ranks says what each holds and sends, and how long it waits.
#[test]
fn plan_of_ranks_says_what_is_sent() {
    let plan = json(&["plan", "mlp", "--batch", "64", "--ranks", "4", "--wire", "1e9", "--json"]);
    assert_eq!([&plan["ranks"], &plan["accumulate"]], [4, 4]);
    assert_eq!(plan["rank_bytes"], plan["device_bytes"]["total"]);
    let (sent, parameters) = (plan["wire_bytes"].as_f64(), plan["parameters"].as_f64());
    let (sent, parameters) = (sent.expect("a number"), parameters.expect("a number"));
    assert!((sent / (4.0 * parameters * 2.0 * 3.0 / 4.0) - 1.0).abs() < 0.01, "{sent} bytes");
    assert!((plan["wire_seconds"].as_f64().expect("a number") - sent / 1e9).abs() < 1e-9);
    assert!((0.0..=1.0).contains(&plan["exposed_fraction"].as_f64().expect("a number")));
    let text = wgrad(&["plan", "mlp", "--batch", "64", "--ranks", "4"]);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(text.contains("by each of 4 ranks") && text.contains("exposed  "), "{text}");
    assert!(refusal(&["plan", "mlp", "--ranks", "2", "--wire", "0"]).contains("--wire 0"));
}

/// 16-bit operands are read directly or through the casts of a plan; the twin's operands are rounded the same
/// way.
#[test]
fn bench_of_16_bit_operands_moves_fewer_bytes_and_matches_the_twin() {
    let jobs = [("softmax", "33x65", "softmax"), ("adamw", "1001", "adam")];
    for device in devices() {
        let name = &device.adapter().name;
        for (kernel, size, part) in jobs {
            let bench = |dtype| {
                json(&["bench", kernel, "--size", size, "--dtype", dtype, "--adapter", name, "--json"])
            };
            let bytes = |result: &Value| {
                let number = |field: &str| result[field].as_f64().expect("a number");
                number("gbps") * number("seconds")
            };
            let wide = bench("f32");
            for dtype in ["f16", "bf16"] {
                let result = bench(dtype);
                assert_eq!(result["dtype"], dtype);
                let variant = result["variant"].as_str().expect("text");
                assert!(variant.contains(part) && variant.contains(dtype), "{result}");
                assert!(bytes(&result) < 0.95 * bytes(&wide), "{result} and {wide}");
                // A 16-bit weight may round to the neighbour of the twin's weight.
                let allowed = if kernel == "adamw" { 1e-2 } else { 1e-5 };
                assert!(result["max_error"].as_f64() < Some(allowed), "{result}");
            }
        }
    }
    let text = refusal(&["bench", "matmul", "--size", "16", "--dtype", "f16"]);
    assert!(text.contains("operand `a` [16, 16] has 256 elements") && text.contains("1024"), "{text}");
    let text = refusal(&["bench", "matmul", "--dtype", "f8"]);
    assert!(text.contains("--dtype f8") && text.contains("f32, f16, bf16"), "{text}");
    let text = refusal(&["bench", "mlp", "--dtype", "f16"]);
    assert!(text.contains("--dtype belongs to a kernel") && text.contains("--weights"), "{text}");
}

#[test]
fn bench_variant_selects_the_kernel() {
    for device in devices() {
        let name = &device.adapter().name;
        for (kernel, size, variant) in
            [("matmul", "64", "matmul_tiled64"), ("conv", "2x5x3x7x3x1", "conv_tiled64")]
        {
            let bench =
                ["bench", kernel, "--size", size, "--variant", "tiled64", "--adapter", name, "--json"];
            let result = json(&bench);
            assert_eq!(result["variant"], variant);
            assert!(result["max_error"].as_f64() < Some(1e-5), "{result}");
        }
    }
    let text = refusal(&["bench", "matmul", "--variant", "tiled"]);
    assert!(text.contains("--variant tiled") && text.contains("tiled64, any32"), "{text}");
    let text = refusal(&["bench", "conv", "--variant", "any32"]);
    assert!(
        text.contains(
            "packed, packed4, tiled64, direct, cooperative, cooperative_wide, cooperative_small for `conv`"
        ),
        "{text}"
    );
    let text = refusal(&["bench", "softmax", "--variant", "any32"]);
    assert!(text.contains("`softmax`"), "{text}");
}

#[test]
fn bench_rejects_invalid_sizes() {
    let text = refusal(&["bench", "softmax", "--size", "12"]);
    assert!(text.contains("--size 12") && text.contains("rowsxcolumns"), "{text}");
    let text = refusal(&["bench", "matmul", "--size", "0"]);
    assert!(text.contains("at least 1"), "{text}");
    let text = refusal(&["bench", "mlp", "--size", "12"]);
    assert!(text.contains("--size belongs to a kernel") && text.contains("matmul"), "{text}");
}

/// The bytes that wgpu reserves are printed below the bytes created, where its allocator reports them.
#[test]
fn bench_reports_reserved_bytes() {
    for device in devices() {
        let name = &device.adapter().name;
        let bench = ["bench", "mlp", "--batch", "64", "--steps", "1", "--adapter", name];
        let result = json(&[&bench[..], &["--json"]].concat());
        let text = String::from_utf8_lossy(&wgrad(&bench).stdout).into_owned();
        match device.driver_memory() {
            Some(_) => {
                let [created, reserved] = ["device_bytes", "reserved_bytes"].map(|key| result[key].as_u64());
                let (created, reserved) = (created.expect("a number"), reserved.expect("a number"));
                assert!((created..2 * created).contains(&reserved), "{result}");
                let line = format!("{} reserved by wgpu", wgrad::Bytes(reserved));
                assert!(text.contains(&line), "`{line}` is not in {text}");
            }
            None => assert!(result["reserved_bytes"].is_null() && !text.contains("reserved"), "{text}"),
        }
    }
}

#[test]
fn bench_refits_when_memory_runs_out() {
    for device in devices() {
        let name = &device.adapter().name;
        let less =
            ["bench", "mlp", "--batch", "64", "--steps", "1", "--device-budget", "9MB", "--adapter", name];
        let refit = json(&[&less[..], &["--on-oom", "refit", "--json"]].concat());
        assert!(refit["device_bytes"].as_u64() <= Some(9_000_000), "{refit}");
        assert_eq!(refit["refit"]["changes"][0], "offload optimizer", "{refit}");
        assert_eq!(
            (&refit["refit"]["within_bytes"], &refit["refit"]["exact"]),
            (&9_000_000.into(), &true.into())
        );
        let plenty = ["bench", "mlp", "--batch", "64", "--steps", "1", "--adapter", name, "--json"];
        let plenty = json(&plenty);
        assert_eq!(plenty["refit"], Value::Null);
        assert_eq!(plenty["loss_last"], refit["loss_last"], "the same bits");
        let folder = std::env::temp_dir().display().to_string();
        let text = refusal(&[&less[..], &["--failures", &folder]].concat());
        assert!(text.contains("the device's budget is") && text.contains("OnOom::Refit"), "{text}");
    }
    let text = refusal(&["bench", "mlp", "--on-oom", "panic"]);
    assert!(text.contains("--on-oom panic"), "{text}");
}
