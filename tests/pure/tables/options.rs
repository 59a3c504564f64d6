//! The savings of fusion, 16 bits and the host's memory.

use wgrad::Bytes;
use wgrad::compile::{Activations, Offload, Plan, PlanOptions, Recompute};
use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::graph::Class;
use wgrad::limits::{CARDS, Card, Limits};
use wgrad::models::{Model, ModelOptions};
use wgrad::report;

use super::networks::{network, options, plan};
use super::{bytes, check, grouped, markdown, says, strings};

#[test]
fn fusion_table_matches_the_plans() {
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
        let [before, after] =
            [false, true].map(|fuse| plan(name, batch, None, &PlanOptions { fuse, ..fused }));
        let again = |plan: &Plan| format!("{:.1}", 100.0 * plan.work.time_fraction());
        vec![
            title.to_owned(),
            format!("{} → {}", bytes(before.peak_bytes()), bytes(after.peak_bytes())),
            [&before, &after].map(|plan| grouped(plan.program.launches.len())).join(" → "),
            format!("{} → {} %", again(&before), again(&after)),
        ]
    });
    let header = ["step", "arenas", "dispatches", "time of what runs twice"];
    check("docs/kernels.md", "fusion", &markdown(&strings(&header), rows));
}

#[test]
fn activation_precision_table_matches_the_plans() {
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

#[test]
fn activation_codes_table_matches_the_plans() {
    let steps = [
        ("resnet50", 184, "momentum"),
        ("mobilenet-v2", 272, "momentum"),
        ("densenet121", 84, "momentum"),
        ("unet", 11, "momentum"),
        ("vgg16", 176, "momentum"),
        ("gpt2", 8, "adamw"),
    ];
    let rows = steps.into_iter().map(|(name, batch, optimizer)| {
        let precisions = [Precision::F32, Precision::Bf16, Precision::Int8, Precision::Int4];
        let plans = precisions.map(|precision| {
            let options = PlanOptions { precision, ..options(optimizer) };
            (plan(name, batch, None, &options), options.card)
        });
        let time = |(plan, card): &(Plan, Card)| plan.wire_times(card).expect("a plan of ours").step_s;
        let each = plans.iter().map(|(plan, _)| {
            format!("{} of {}", bytes(report::kept_bytes(plan)), bytes(plan.footprint().total()))
        });
        let more = format!("{:+.1} %", 100.0 * (time(&plans[3]) / time(&plans[0]) - 1.0));
        [format!("{name}, {batch}")].into_iter().chain(each).chain([more]).collect()
    });
    let header = ["model, batch", "f32: kept, of all", "bf16", "int8", "int4", "modelled time, int4"];
    check("docs/precision.md", "codes", &markdown(&strings(&header), rows));
}

/// What `Recompute::Auto` chooses of the activations that may be in codes.
#[test]
fn activation_codes_under_a_budget_match_the_plans() {
    let budgets = [
        ("resnet50", 184, "momentum", 3.0),
        ("resnet50", 184, "momentum", 3.5),
        ("mobilenet-v2", 272, "momentum", 3.6),
        ("unet", 11, "momentum", 4.0),
    ];
    let rows = budgets.into_iter().map(|(name, batch, optimizer, gigabytes)| {
        let wide = options(optimizer);
        let budget = Bytes((gigabytes * 1e9) as u64);
        let all = PlanOptions { precision: Precision::Int4, ..wide };
        let auto = PlanOptions { recompute: Recompute::Auto, budget: Some(budget), ..all };
        let [wide, all, auto] = [wide, all, auto].map(|options| plan(name, batch, None, &options));
        let time = |plan: &Plan| plan.wire_times(&Card::default()).expect("a plan of ours").step_s;
        let more = |plan: &Plan| 100.0 * (time(plan) / time(&wide) - 1.0);
        assert!(more(&auto) <= 10.0, "{name}: {:.1} % more time", more(&auto));
        assert!(auto.footprint().total() <= budget.0, "{name}");
        assert_eq!([wide.coded, all.coded], [None, Some(1.0)], "{name}");
        // In 3 GB only all in codes fits without much recomputation.
        let faster = auto.coded < all.coded && auto.work.seconds() < all.work.seconds();
        assert_eq!(faster, gigabytes > 3.0, "{name} in {gigabytes} GB: {:?}", auto.coded);
        vec![
            format!("{name}, {batch}"),
            format!("{gigabytes:.1} GB"),
            bytes(auto.footprint().total()),
            format!("{:.1} %", 100.0 * auto.coded.expect("of int4")),
            format!("{:+.1} %", more(&auto)),
            format!("{:+.1} %", more(&all)),
        ]
    });
    let header =
        ["model, batch", "budget", "bytes", "in int4", "modelled time", "all in int4, without budget"];
    check("docs/precision.md", "codes under a budget", &markdown(&strings(&header), rows));
}

/// How much of the optimizer state `Recompute::Auto` moves.
#[test]
fn state_under_a_budget_matches_the_plans() {
    let budgets = [("gpt2", 8, 1024, 3.0), ("gpt2", 8, 1024, 2.3), ("llama-3.2-1b", 1, 2048, 16.0)];
    let limits = Limits::named("nvidia").expect("a preset");
    let rows = budgets.into_iter().map(|(name, batch, seq, gigabytes)| {
        let budget = Bytes((gigabytes * 1e9) as u64);
        let model = Model::with_options(name, 0, &ModelOptions { seq: Some(seq), ..ModelOptions::default() });
        let step = model.expect("a known model").train_step(batch).expect("a valid step");
        let plan = |offload| {
            let recompute = Recompute::Auto;
            let options = PlanOptions { recompute, budget: Some(budget), offload, ..options("adamw") };
            step.plan(&options, &limits)
        };
        let more = |plan: &Plan| plan.work.time_fraction() + plan.work.moved_fraction();
        let some = plan(Offload::OPTIMIZER).expect("it fits");
        let none = plan(Offload::OFF);
        let faster = none.as_ref().map_or(true, |none| more(&some) <= more(none) + 1e-9);
        assert!(faster, "{name} in {gigabytes} GB: {}", more(&some));
        let percent = |fraction: f64| format!("{:.1} %", 100.0 * fraction);
        vec![
            format!("{name}, {batch} × {}", grouped(seq)),
            format!("{gigabytes:.1} GB"),
            none.map_or_else(|_| "does not fit".to_owned(), |plan| percent(more(&plan))),
            percent(some.state_away.expect("offloaded")),
            percent(some.work.moved_fraction()),
            percent(some.work.time_fraction()),
        ]
    });
    let header = [
        "model, batch × tokens",
        "budget",
        "computed again with all state on the device",
        "state in host memory",
        "moved",
        "computed again",
    ];
    check("docs/fit.md", "state under a budget", &markdown(&strings(&header), rows));
}

#[test]
fn weight_precision_table_matches_the_plans() {
    let standard = options("adam8bit");
    let storages = [WeightStorage::F32, WeightStorage::Bf24, WeightStorage::Bf16(Rounding::Stochastic)];
    let half = PlanOptions { precision: Precision::F16, ..standard };
    let each = |options: PlanOptions| {
        storages.map(|weights| plan("gpt2", 8, Some(1024), &PlanOptions { weights, ..options }))
    };
    let parameters = |plan: &Plan| {
        let of = plan.class_bytes().into_iter().find(|(class, _)| *class == Class::Parameter);
        of.expect("parameters").1
    };
    let total = |plan: &Plan| plan.footprint().total();
    let row = |title: &str, plans: &[Plan; 3], of: &dyn Fn(&Plan) -> u64| {
        let [wide, more, narrow] = plans.each_ref().map(of);
        let less = format!("{} less", bytes(wide - narrow));
        vec![title.to_owned(), bytes(wide), bytes(more), bytes(narrow), less]
    };
    let (wide, both) = (each(standard), each(half));
    let rows = [
        row("parameters", &wide, &parameters),
        row("everything the session creates", &wide, &total),
        row("the same with `--precision f16`", &both, &total),
    ];
    check(
        "docs/precision.md",
        "weights",
        &markdown(&strings(&["", "weights f32", "weights bf24", "weights bf16", "from f32 to bf16"]), rows),
    );
}

#[test]
fn offload_table_matches_the_plans() {
    let optimizer = Offload { optimizer: true, ..Offload::OFF };
    let most = Activations::Most(Bytes(2 << 30));
    let ways = [
        ("off", Offload::OFF),
        ("optimizer", optimizer),
        ("activations:2GiB", Offload { activations: most, ..Offload::OFF }),
        ("activations", Offload { activations: Activations::All, ..Offload::OFF }),
        ("optimizer,activations", Offload { activations: Activations::All, ..optimizer }),
    ];
    let of = |offload| plan("gpt2", 8, Some(1024), &PlanOptions { offload, ..options("adamw") });
    let rows = ways.map(|(name, offload)| {
        let plan = of(offload);
        let Offload { optimizer, activations } = offload;
        let moves = optimizer || activations != Activations::Keep;
        let text = |text: String| if moves { text } else { String::new() };
        vec![
            name.to_owned(),
            Bytes(plan.footprint().total()).to_string(),
            text(Bytes(plan.footprint().host).to_string()),
            text(Bytes(plan.work.moved).to_string()),
            text(format!("{:.1} %", 100.0 * plan.work.moved_fraction())),
        ]
    });
    let header = ["`--offload`", "total", "host", "moved in a step", "modelled time of that"];
    check("docs/fit.md", "offload", &markdown(&strings(&header), rows));
    let card = Card { host_bytes_per_s: 50e9, ..Card::default() };
    let fast = plan("gpt2", 8, Some(1024), &PlanOptions { offload: optimizer, card, ..options("adamw") });
    says("docs/fit.md", &format!("less: {:.1} % at 50 GB/s", 100.0 * fast.work.moved_fraction()));
}

#[test]
fn card_table_matches_the_cards() {
    let rows = CARDS.map(|card| {
        vec![
            format!("`{}`", card.name),
            card.units.to_string(),
            format!("{:.1}", card.flops_per_s / 1e12),
            format!("{:.1}", card.matrix_flops_per_s / 1e12),
            format!("{:.0}", card.bytes_per_s / 1e9),
            format!("{:.0}", card.host_bytes_per_s / 1e9),
            Bytes(card.unit_shared_bytes.into()).to_string(),
            card.unit_threads.to_string(),
            format!("{:.1}", card.launch_s * 1e6),
            card.source.to_owned(),
        ]
    });
    let header = [
        "card",
        "units",
        "TFLOP/s f32",
        "f16 matrices",
        "GB/s",
        "host GB/s",
        "shared memory a unit",
        "threads a unit",
        "launch, µs",
        "source",
    ];
    check("docs/fit.md", "cards", &markdown(&strings(&header), rows));
}

/// Sentences of the documents that quote figures of single plans.
#[test]
fn sentences_quote_figures_of_the_plans() {
    let percent = |fraction: f64| format!("{:.2} %", 100.0 * fraction);
    let work = network("resnet50").default.work;
    let again = format!(
        "computed again {} of the step's modelled time, {} of its arithmetic",
        percent(work.time_fraction()),
        percent(work.flops_fraction())
    );
    says("docs/fit.md", &again);
    says("docs/out-of-memory.md", &again);
    let share = format!("already counts {:.1} %", 100.0 * work.time_fraction());
    says("docs/fit.md", &share);
    let lavapipe = Limits::named("lavapipe").expect("a preset");
    let step = Model::named("cnn", 0).expect("known").train_step(128).expect("valid");
    let [apart, merged] = [false, true].map(|fuse| {
        let plan = step.plan(&PlanOptions { fuse, ..options("adam") }, &lavapipe).expect("it fits");
        bytes(plan.peak_bytes())
    });
    says(
        "docs/kernels.md",
        &format!(
            "Planned for lavapipe, arenas of `cnn` take {apart} with nothing merged and {merged} by default."
        ),
    );
    let step = Model::named("resnet18", 0).expect("known").train_step(128).expect("valid");
    let nvidia = Limits::named("nvidia").expect("a preset");
    let savings = step.savings(&options("momentum"), &nvidia).expect("it fits");
    let planned = plan("resnet18", 128, None, &options("momentum")).peak_bytes();
    says("README.md", &format!("{} of tensors in {}", Bytes(savings.naive), Bytes(planned)));
    let activations = |seq| {
        let classes = plan("gpt2", 8, Some(seq), &options("adamw")).class_bytes();
        let scratch = |class| matches!(class, Class::Activation | Class::Workspace);
        classes.into_iter().filter(|(class, _)| scratch(*class)).map(|(_, bytes)| bytes).sum::<u64>()
    };
    let [short, middle, long] = [512, 1024, 4096].map(activations);
    let text = format!(
        "`gpt2` with 8 sequences: {} of activations at 512 tokens, {} at 1,024, {} at 4,096: {:.1} times as much for 8 times",
        bytes(short),
        bytes(middle),
        bytes(long),
        long as f64 / short as f64
    );
    says("docs/transformers.md", &text);
}
