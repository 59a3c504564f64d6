//! What fusion and 16 bits buy.

use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::plan::{Plan, PlanOptions};
use wgrad::report;

use crate::networks::{options, plan};
use crate::{bytes, check, markdown, strings};

#[test]
fn fusion() {
    let standard = |optimizer| options(optimizer);
    let half = PlanOptions { precision: Precision::F16, ..standard("adamw") };
    let both = PlanOptions { weights: WeightStorage::Bf16(Rounding::Nearest), ..half };
    let steps = [
        ("resnet50, batch 184, momentum", "resnet50", 184, standard("momentum")),
        ("vgg16, batch 176, momentum", "vgg16", 176, standard("momentum")),
        ("unet, batch 11, momentum", "unet", 11, standard("momentum")),
        ("cnn, batch 128, Adam", "cnn", 128, standard("adam")),
        ("mobilenet-v2, batch 272, momentum", "mobilenet-v2", 272, standard("momentum")),
        ("gpt2, 8 × 1,024 tokens, AdamW", "gpt2", 8, standard("adamw")),
        ("the same with `--precision f16`", "gpt2", 8, half),
        ("the same with `--weights bf16` as well", "gpt2", 8, both),
        ("llama-tiny, batch 16, momentum", "llama-tiny", 16, standard("momentum")),
    ];
    let rows = steps.into_iter().map(|(title, name, batch, fused)| {
        let [before, after] = [false, true].map(|fuse| plan(name, batch, None, &PlanOptions { fuse, ..fused }));
        let again = |plan: &Plan| format!("{:.1}", 100.0 * plan.work.time_fraction());
        vec![
            title.to_owned(),
            format!("{} → {}", bytes(before.peak_bytes()), bytes(after.peak_bytes())),
            format!("{} → {}", before.program.launches.len(), after.program.launches.len()),
            format!("{} → {} %", again(&before), again(&after)),
        ]
    });
    let header = ["step", "arenas", "dispatches", "time of what runs twice"];
    check("docs/kernels.md", "fusion", &markdown(&strings(&header), rows));
}

#[test]
fn activations_in_16_bits() {
    let steps = [
        ("mlp", 128),
        ("cnn", 128),
        ("resnet18", 16),
        ("resnet50", 32),
        ("unet", 4),
        ("densenet121", 16),
        ("vgg16", 16),
    ];
    let rows = steps.into_iter().map(|(name, batch)| {
        let of = |precision| plan(name, batch, None, &PlanOptions { precision, ..options("adam") });
        let [wide, half] = [Precision::F32, Precision::F16].map(of);
        let kept = [&wide, &half].map(report::kept_bytes);
        vec![
            format!("{name}, {batch}"),
            bytes(kept[0]),
            bytes(kept[1]),
            format!("{:.3}", kept[1] as f64 / kept[0] as f64),
            bytes(wide.peak_bytes()),
            bytes(half.peak_bytes()),
        ]
    });
    let header = ["model, batch", "kept, f32", "kept, f16", "share", "peak, f32", "peak, f16"];
    check("docs/precision.md", "activations", &markdown(&strings(&header), rows));
}
