//! Reports about a plan: the estimate, the list of tensors, the picture. No adapter is needed.

use wgrad::Bytes;
use wgrad::compile::{Plan, PlanOptions};
use wgrad::graph::Class;
use wgrad::limits::{Card, Job, Limits};
use wgrad::models::Model;
use wgrad::report::{Estimate, LargestBatch, Panel, kept, kept_bytes, launches, page, picture, tensors};

fn plan() -> Plan {
    let step = Model::named("mlp", 0).unwrap().train_step(128).unwrap();
    step.plan(&PlanOptions::default(), &Limits::default()).unwrap()
}

#[test]
fn the_estimate_shows_every_figure_of_the_plan() {
    let plan = plan();
    let text = Estimate::of(&plan).to_string();
    let figure = |name: &str, bytes: u64| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no line for {name} in\n{text}"));
        assert!(line.contains(&Bytes(bytes).to_string()), "{line}: not {}", Bytes(bytes));
    };
    for (class, bytes) in plan.class_bytes() {
        figure(class.name(), bytes);
    }
    figure("naive", plan.naive_bytes());
    figure("planned", plan.peak_bytes());
    figure("lower bound", plan.lower_bound_bytes());
    figure("total", plan.footprint().total());
    assert!(text.contains(&plan.peak.at));
    assert!(text.lines().all(|line| line.len() <= 110 && line.trim_end() == line), "{text}");
}

/// The printed reports match their snapshots. `INSTA_UPDATE=always cargo test --test pure reports` accepts
/// new ones.
#[test]
fn reports_match_their_snapshots() {
    let plan = plan();
    insta::assert_snapshot!("estimate", plan.estimate().with_batch(128));
    insta::assert_snapshot!("summary", plan.summary());
    let card = Card::named("h200").unwrap();
    insta::assert_snapshot!("launches", launches(&plan.launches(&card).unwrap(), &card));
    let step = Model::named("resnet18", 0).unwrap().train_step(8).unwrap();
    let plan = step.plan(&PlanOptions::default(), &Limits::default()).unwrap();
    insta::assert_snapshot!("summary_to_depth_1", plan.summary_to_depth(1));
    insta::assert_snapshot!("estimate_json", plan.estimate().with_batch(8).json());
}

#[test]
fn summary_adds_up_to_the_plan() {
    let step = Model::named("resnet18", 0).unwrap().train_step(8).unwrap();
    let plan = step.plan(&PlanOptions::default(), &Limits::default()).unwrap();
    let (all, coarse) = (plan.summary(), plan.summary_to_depth(1));
    assert!(all.layers.len() > 20 && coarse.layers.len() < 12);
    assert_eq!(all.total(), coarse.total());
    let total = all.total();
    assert_eq!(total.parameters, plan.graph().parameters.iter().map(|p| p.shape().numel()).sum::<u64>());
    assert_eq!(total.kept, kept(&plan).iter().map(|k| k.bytes).sum::<u64>());
    assert_eq!(total.forward_flops + total.backward_flops, plan.graph().total_cost().flops);
    let fc = all.layers.iter().find(|l| l.layer == "fc").unwrap();
    assert_eq!((fc.parameters, fc.output.unwrap().dims()), (513_000, &[8, 1000][..]));
    // 2 · 8 · 512 · 1000 for the product, and an addition for the bias.
    assert_eq!(fc.forward_flops, 2 * 8 * 512 * 1000 + 8 * 1000);
}

/// Launches have the arithmetic of their operations, and at least the traffic; the table fits a terminal.
#[test]
fn launches_add_up_to_the_plan() {
    let nvidia = Limits::named("nvidia").unwrap();
    let card = Card::named("h200").unwrap();
    for (name, batch) in
        [("resnet18", 8), ("mobilenet-v2", 4), ("unet", 1), ("gpt-nano", 4), ("llama-tiny", 1)]
    {
        let step = Model::named(name, 0).unwrap().train_step(batch).unwrap();
        for limits in [&nvidia, &Limits::named("lavapipe").unwrap()] {
            // Fused updates also update padding.
            let plan = step.plan(&PlanOptions { fuse: false, ..PlanOptions::default() }, limits).unwrap();
            let planned = plan.launches(&card).unwrap();
            let cost = plan.graph().total_cost();
            let [flops, bytes] = [|job: &Job| job.flops, |job: &Job| job.bytes]
                .map(|of| planned.iter().map(|launch| of(&launch.job)).sum::<u64>());
            let rounded = planned.len() as u64;
            assert!(
                flops + rounded >= cost.flops && flops <= cost.flops / 100 * 102,
                "{name}: {flops} of {cost:?}"
            );
            assert!(bytes + rounded >= cost.bytes && bytes <= 2 * cost.bytes, "{name}: {bytes} of {cost:?}");
            for launch in &planned {
                assert!(launch.seconds >= launch.full_rate_s + card.launch_s, "{name}: {launch:?}");
                assert_eq!(launch.waves, launch.job.workgroups as f64 / 132.0);
            }
            let text = launches(&planned, &card);
            let wide = text.lines().find(|line| line.chars().count() > 100 || line.trim_end() != *line);
            assert_eq!(wide, None, "{name}");
        }
    }
}

#[test]
fn headroom_is_a_share_of_the_card_memory() {
    let (plan, total) = (plan(), plan().footprint().total());
    assert_eq!(plan.estimate().card_bytes(), (total as f64 / 0.85).ceil() as u64);
    assert_eq!(plan.estimate().with_headroom(0.0).card_bytes(), total);
    assert!(plan.estimate().with_headroom(f64::NAN).to_string().contains("15 % free"));
    assert_eq!(plan.estimate().spared(Bytes(1000)), Bytes(850));
    let largest = LargestBatch { budget: Bytes::mib(1), all: 1, with_headroom: 0 };
    let text = plan.estimate().with_largest_batch(largest).to_string();
    let said = "Within 1.0 MiB a batch of 1 fits; with 15 % of it free, not even a batch of 1.";
    assert_eq!(text.lines().last(), Some(said));
    assert_eq!(plan.estimate().with_batch(128).per_sample_bytes(), Some(plan.footprint().step.div_ceil(128)));
}

#[test]
fn tensors_that_are_alive_together_never_overlap() {
    let plan = plan();
    let all = tensors(&plan);
    assert!(all.len() > 30);
    for (i, a) in all.iter().enumerate() {
        for b in &all[i + 1..] {
            let together = a.first <= b.last && b.first <= a.last;
            let apart = a.region.arena != b.region.arena
                || a.region.offset + a.bytes <= b.region.offset
                || b.region.offset + b.bytes <= a.region.offset;
            assert!(apart || !together, "{} and {} overlap", a.name, b.name);
        }
    }
    let alive = |position: usize| -> u64 {
        all.iter().filter(|t| t.first <= position && position <= t.last).map(|t| t.bytes).sum()
    };
    let fullest = (0..plan.program.order.len()).map(alive).max();
    assert_eq!(fullest, Some(plan.lower_bound_bytes()));
    let persistent = all.iter().filter(|t| t.class.is_persistent());
    assert_eq!(persistent.map(|t| t.bytes).sum::<u64>(), plan.layout.persistent_bytes());
}

#[test]
fn classes_at_the_peak_add_up_to_the_lower_bound() {
    let plan = plan();
    let sum: u64 = plan.class_bytes().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(sum, plan.lower_bound_bytes());
    assert_eq!(plan.peak_bytes(), plan.lower_bound_bytes());
    let of = |class| plan.class_bytes().iter().find(|(c, _)| *c == class).unwrap().1;
    assert_eq!(of(Class::Optimizer), 2 * of(Class::Parameter));
}

#[test]
fn picture_is_deterministic_and_names_large_tensors() {
    let draw = || picture(&[Panel { name: "planned", plan: &plan() }], "a < b & c");
    let (one, plan) = (draw(), plan());
    assert_eq!(one, draw());
    assert!(one.starts_with("<svg ") && one.ends_with("</svg>\n"));
    assert!(one.contains("a &lt; b &amp; c"));
    assert_eq!(one.matches("http").count(), one.matches("http://www.w3.org").count());
    // A pixel is 30 KiB: larger tensors have a title, smaller ones are part of a path.
    let large: Vec<_> = tensors(&plan).into_iter().filter(|t| t.bytes > 100 << 10).collect();
    assert!(large.len() > 5);
    for tensor in &large {
        let text = format!("<title>{}: {} f32, {}", tensor.name, tensor.shape, Bytes(tensor.bytes));
        assert!(one.contains(&text), "{} is missing", tensor.name);
    }
    assert_eq!(one.matches("<title>").count(), one.matches("</title>").count());
    assert!(one.contains(&plan.peak.at) && !one.contains("NaN") && !one.contains("inf\""));
}

#[test]
fn picture_and_page_of_two_plans_stay_below_400_kb() {
    let step = Model::named("resnet50", 0).unwrap().train_step(64).unwrap();
    let (options, limits) = (PlanOptions::default(), Limits::named("nvidia").unwrap());
    let (naive, planned) =
        (step.plan_naive(&options, &limits).unwrap(), step.plan(&options, &limits).unwrap());
    assert_eq!(naive.peak_bytes(), step.savings(&options, &limits).unwrap().naive);
    let panels = [Panel { name: "naive", plan: &naive }, Panel { name: "planned", plan: &planned }];
    let (svg, html) = (picture(&panels, "resnet50"), page(&panels, "resnet50"));
    assert!(svg.len() < 400_000 && html.len() < 400_000, "{} and {} bytes", svg.len(), html.len());
    for text in ["naive: ", "planned: ", "computed again", "layer3"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn picture_and_page_of_gpt2_stay_below_a_mebibyte() {
    let step = Model::named("gpt2", 0).unwrap().train_step(4).unwrap();
    let (options, limits) = (PlanOptions::default(), Limits::named("nvidia").unwrap());
    let (naive, planned) =
        (step.plan_naive(&options, &limits).unwrap(), step.plan(&options, &limits).unwrap());
    let panels = [Panel { name: "naive", plan: &naive }, Panel { name: "planned", plan: &planned }];
    let (svg, html) = (picture(&panels, "gpt2"), page(&panels, "gpt2"));
    assert!(svg.len() < 1 << 20 && html.len() < 1 << 20, "{} and {} bytes", svg.len(), html.len());
}

#[test]
fn recomputed_tensors_are_marked_and_tensors_have_their_layer() {
    let step = Model::named("resnet18", 0).unwrap().train_step(8).unwrap();
    let plan = step.plan(&PlanOptions::default(), &Limits::default()).unwrap();
    let all = tensors(&plan);
    assert!(all.iter().any(|t| t.again));
    assert!(all.iter().all(|t| t.again == t.name.contains(".again") || t.class == Class::Workspace));
    let of = |name: &str| all.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((of("fc.weight").layer.as_str(), of("fc.weight").op), ("fc", ""));
    assert_eq!(of("fc.weight.exp_avg").layer, "fc");
    assert_eq!((of("conv1.conv2d").layer.as_str(), of("conv1.conv2d").op), ("conv1", "conv2d"));
}

#[test]
fn saved_bytes_are_those_alive_at_once() {
    let limits = Limits::named("nvidia").unwrap();
    let plan = |model: &str, batch: usize, accumulate: u32| {
        let step = Model::named(model, 0).unwrap().train_step(batch).unwrap();
        step.plan(&PlanOptions { accumulate, ..PlanOptions::default() }, &limits).unwrap()
    };
    let (relu, cross_entropy) = (2 * 128 * 512 * 4, 128 * 10 * 4 + 2 * 512 + 256);
    assert_eq!(kept_bytes(&plan("mlp", 128, 1)), relu + cross_entropy);
    // The micro-batches of an accumulated step are saved one after the other.
    for model in ["cnn", "gpt-nano"] {
        let (one, four) = (plan(model, 8, 1), plan(model, 8, 4));
        let (once, parts) = (kept_bytes(&one), kept_bytes(&four));
        assert!(once > 0 && parts < once + once / 2, "{model}: {parts} in four parts, {once} in one");
        assert_eq!(four.summary().total().kept, parts, "{model}");
    }
    // So are the chunks of GPT-2's logits.
    let gpt2 = plan("gpt2", 4, 1);
    let step: u64 = gpt2.layout.step.iter().sum();
    assert!(kept_bytes(&gpt2) < step, "{} of {step}", kept_bytes(&gpt2));
    let logits = kept(&gpt2).into_iter().find(|kept| kept.op == "matmul").unwrap();
    assert!(logits.tensors < 16, "{logits:?}");
}
