//! Plans under a budget: the fastest configuration that fits is chosen, the largest batch is found, and the
//! figures of docs/fit.md match the plans.

use wgrad::Bytes;
use wgrad::compile::{self, Activations, Offload, Plan, PlanOptions, Recompute, TrainStep};
use wgrad::dtype::Precision;
use wgrad::graph::{Init, Params};
use wgrad::limits::{Card, Limits};
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::Optimizer;
use wgrad::report::{Request, Source};

fn optimizer(name: &str) -> Optimizer {
    Optimizer::named(name).expect("known")
}

/// Twelve equal layers on `batch` samples: most of the memory is saved activations, and optimizer state is a
/// substantial part.
fn deep(batch: usize) -> wgrad::Result<TrainStep> {
    layers(12, batch)
}

fn layers(count: usize, batch: usize) -> wgrad::Result<TrainStep> {
    let params = Params::new(0);
    let weights: Vec<_> =
        (0..count).map(|i| params.add(&format!("w{i}"), [128, 128], Init::fan_in(128))).collect();
    TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [batch, 128]);
        weights.iter().fold(x, |x, w| x.matmul(&trace.param(w)).tanh()).square().mean(&[])
    })
}

/// Returns every configuration of [`TrainStep::fit`] that keeps to the budget, with its modelled seconds.
fn ways(step: &TrainStep, options: &PlanOptions, budget: u64, limits: &Limits) -> Vec<(&'static str, f64)> {
    let (open, away) = (*options, PlanOptions { offload: Offload::OPTIMIZER, ..*options });
    let auto = |options: PlanOptions| PlanOptions {
        recompute: Recompute::Auto,
        budget: Some(Bytes(budget)),
        ..options
    };
    let all = [("recompute", auto(open)), ("offload", away), ("both", auto(away))];
    let planned =
        all.map(|(name, options)| (name, step.plan_over_budget(&options, limits).expect("planned")));
    let fits = |(_, plan): &(&str, Plan)| plan.footprint().total() <= budget;
    planned.into_iter().filter(fits).map(|(name, plan)| (name, plan.work.seconds())).collect()
}

#[test]
fn fit_takes_the_fastest_configuration_that_fits() {
    let limits = Limits::named("nvidia").expect("a preset");
    let step = deep(1024).expect("valid");
    let mut taken = Vec::new();
    // A host link so fast that moving is free, and one so slow that moving is the most expensive option.
    for host_bytes_per_s in [1e15, 1e8] {
        let card = Card { host_bytes_per_s, ..Card::default() };
        let options = PlanOptions { optimizer: optimizer("adamw"), card, ..PlanOptions::default() };
        let asked = step.plan(&options, &limits).expect("planned");
        let away = PlanOptions { offload: Offload::OPTIMIZER, ..options };
        let away = step.plan(&away, &limits).expect("planned").footprint().total();
        assert!(away < asked.footprint().total(), "state in the host's memory saves nothing");
        // Offloading fits, and so does recomputation.
        let budget = (away + asked.footprint().total()) / 2;
        let ways = ways(&step, &options, budget, &limits);
        assert!(ways.len() >= 2, "{ways:?}");
        let fitted = step.fit(&options, Bytes(budget), &limits).expect("it fits");
        let (fastest, seconds) = ways.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).expect("some");
        let found = fitted.plan.work.seconds();
        assert!((found / seconds - 1.0).abs() < 1e-9, "{:?} takes {found} s: {ways:?}", fitted.changes);
        let slower = found / asked.work.seconds() - 1.0;
        assert!((fitted.time_fraction - slower).abs() < 1e-9, "{} is {slower}", fitted.time_fraction);
        assert!(ways.iter().any(|way| way.1 > seconds * 1.001), "nothing could be chosen: {ways:?}");
        taken.push(fastest);
    }
    // Some state in host memory is enough.
    assert_eq!(taken, ["both", "recompute"]);
}

/// Between the budget that needs all state in host memory and the one that needs none, `Recompute::Auto` moves some, and takes less time
/// than with all or none there.
#[test]
fn auto_moves_as_much_state_as_the_budget_needs() {
    let limits = Limits::named("nvidia").expect("a preset");
    let step = deep(256).expect("valid");
    let kept = PlanOptions { optimizer: optimizer("adamw"), rebuild: false, ..PlanOptions::default() };
    let away = PlanOptions { offload: Offload::OPTIMIZER, ..kept };
    let [whole, all] = [kept, away].map(|options| step.plan(&options, &limits).expect("planned"));
    let moved = all.work.moved;
    assert_eq!((whole.state_away, all.state_away), (None, Some(1.0)));
    let mut shares = Vec::new();
    for percent in [99, 97, 94, 90, 86, 82, 78, 60] {
        let budget = whole.footprint().total() * percent / 100;
        let auto = |options: PlanOptions| {
            let budget = Some(Bytes(budget));
            let options = PlanOptions { recompute: Recompute::Auto, budget, ..options };
            (step.plan_over_budget(&options, &limits).expect("planned"), options)
        };
        let ((plan, options), (recomputed, _)) = (auto(away), auto(kept));
        let (work, share) = (plan.work, plan.state_away.expect("offloaded"));
        assert!(plan.footprint().total() <= budget, "{percent} %");
        let least = step.least_recomputation(&plan, &options, &limits).expect("a search").expect("one fits");
        assert!(least <= work.again_s * (1.0 + 1e-9), "{percent} %: {least} s of {} s", work.again_s);
        // Weights have the same size: a share moves as many bytes of theirs.
        assert!((work.moved as f64 / moved as f64 - (12.0 * share).ceil() / 12.0).abs() < 1e-9, "{share}");
        for other in [&recomputed, &all].into_iter().filter(|plan| plan.footprint().total() <= budget) {
            assert!(work.seconds() <= other.work.seconds() * (1.0 + 1e-9), "{percent} %: {share}");
        }
        shares.push(share);
    }
    assert!(shares.is_sorted(), "a larger budget moves more: {shares:?}");
    let some = shares.iter().filter(|share| **share > 0.0 && **share < 1.0).count();
    assert!(some >= 4, "{shares:?}");
}

#[test]
fn batch_is_split_into_the_fewest_parts_that_fit() {
    let limits = Limits::named("nvidia").expect("a preset");
    let options = PlanOptions { optimizer: optimizer("sgd"), ..PlanOptions::default() };
    let step = |batch| layers(4, batch);
    let whole = step(8192).expect("valid").plan(&options, &limits).expect("planned");
    for (percent, cut) in [(100, false), (70, true), (50, true)] {
        let budget = Bytes(whole.footprint().total() * percent / 100);
        let fitted = compile::fit(step, 8192, &options, budget, &limits).expect("it fits");
        let (changes, parts) = (fitted.changes.join(", "), fitted.options.accumulate);
        assert!(fitted.plan.footprint().total() <= budget.0, "{percent} %: {changes}");
        assert_eq!(parts > 1, cut, "{percent} %: {changes}");
        assert_eq!(changes.contains(&format!("accumulate {parts}")), cut, "{percent} %: {changes}");
        assert_eq!(fitted.exact, !cut, "{percent} %: {changes}");
        if cut {
            let fewer = PlanOptions { accumulate: parts / 2, ..options };
            let wider = step(8192 * 2 / parts as usize).expect("valid").fit(&fewer, budget, &limits);
            assert!(wider.is_err(), "{} parts fit {percent} %", parts / 2);
        }
    }
}

/// Parts of the batch are tried with state in host memory where parts alone are not enough.
#[test]
fn batch_is_split_and_state_offloaded_where_both_are_needed() {
    let limits = Limits::named("nvidia").expect("a preset");
    let options = PlanOptions { optimizer: optimizer("adamw"), ..PlanOptions::default() };
    let step = |batch| layers(4, batch);
    let both = PlanOptions { accumulate: 2, offload: Offload::OPTIMIZER, ..options };
    let budget = Bytes(step(512).expect("valid").plan(&both, &limits).expect("planned").footprint().total());
    let fitted = compile::fit(step, 1024, &options, budget, &limits).expect("it fits");
    let changes = fitted.changes.join(", ");
    assert!(changes.contains("accumulate 2") && changes.contains("offload"), "{changes}");
}

#[test]
fn over_budget_error_offers_exactly_the_options_that_fit() {
    let limits = Limits::named("nvidia").expect("a preset");
    let step = layers(4, 256).expect("valid");
    let open = PlanOptions { optimizer: optimizer("adamw"), ..PlanOptions::default() };
    let whole = step.plan(&open, &limits).expect("planned").footprint().total();
    let mut offered = Vec::new();
    for percent in [95, 75, 60, 50, 40, 20] {
        let options = PlanOptions { budget: Some(Bytes(whole * percent / 100)), ..open };
        let fits = |options: PlanOptions| step.plan(&options, &limits).is_ok();
        let text = step.plan(&options, &limits).expect_err("over its budget").to_string();
        let mut compare = |name: String, fits: bool| {
            assert_eq!(text.contains(&name), fits, "{percent} %, {name}: {text}");
            offered.extend(fits.then_some(name));
        };
        let recompute = Recompute::Auto;
        compare("`recompute: Recompute::Auto`".to_owned(), fits(PlanOptions { recompute, ..options }));
        let precision = Precision::F16;
        compare("`precision: Precision::F16`".to_owned(), fits(PlanOptions { precision, ..options }));
        let offload = Offload::OPTIMIZER;
        compare("`offload: Offload::OPTIMIZER`".to_owned(), fits(PlanOptions { offload, ..options }));
        for (name, optimizer) in options.optimizer.lighter() {
            let with = PlanOptions { optimizer, ..options };
            let both = !fits(with) && fits(PlanOptions { recompute, ..with });
            compare(format!("the optimizer `{name}`"), fits(with) || both);
            compare(format!("the optimizer `{name}` and `Recompute::Auto`"), both);
        }
        let none = text.contains("are not enough");
        assert_eq!(none, !text.contains("it fits with"), "{text}");
    }
    offered.sort_unstable();
    offered.dedup();
    assert!(offered.len() >= 6, "{offered:?}");
}

#[test]
fn max_batch_under_auto_is_the_last_that_fits() {
    let limits = Limits::named("nvidia").expect("a preset");
    let options = PlanOptions {
        recompute: Recompute::Auto,
        optimizer: optimizer("momentum"),
        ..PlanOptions::default()
    };
    let total = |batch: usize, options: &PlanOptions| {
        let plan = deep(batch).expect("valid").plan_over_budget(options, &limits).expect("planned");
        plan.footprint().total()
    };
    for whole in [200, 1000] {
        let budget = Bytes(total(whole, &PlanOptions { recompute: Recompute::Off, ..options }));
        let most = compile::max_batch(deep, &options, budget, &limits).expect("found");
        let options = PlanOptions { budget: Some(budget), ..options };
        assert!(total(most, &options) <= budget.0, "{most} samples are over the budget of {whole}");
        assert!(total(most + 1, &options) > budget.0, "{} samples would fit the budget of {whole}", most + 1);
        assert!(most > 2 * whole, "{most} samples computed again where {whole} are kept");
    }
}

// ---- the figures of docs/fit.md ---------------------------------------------------------------------------

const DOCUMENT: &str = include_str!("../../docs/fit.md");

/// Returns the cells of the rows of the table whose header starts with `head`.
fn table(head: &str) -> Vec<Vec<&'static str>> {
    let rows = DOCUMENT.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect();
    rows.map(cells).collect()
}

/// Returns a step, and the limits of an NVIDIA card.
fn traced(name: &str, batch: usize) -> (TrainStep, Limits) {
    let step = Model::named(name, 0).expect("known").train_step(batch).expect("valid");
    (step, Limits::named("nvidia").expect("a preset"))
}

/// Returns a plan for that card, over its budget or not.
fn planned(name: &str, batch: usize, options: &PlanOptions) -> Plan {
    let (step, limits) = traced(name, batch);
    step.plan_over_budget(options, &limits).expect("planned")
}

fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * share)
}

#[test]
fn offload_table_of_the_docs_matches_the_plans() {
    let rows = table("| `--offload` |");
    assert_eq!(rows.len(), 5);
    let most = |bytes| Offload { activations: Activations::Most(bytes), ..Offload::OFF };
    let ways = [
        Offload::OFF,
        Offload::OPTIMIZER,
        most(Bytes::gib(2)),
        Offload { activations: Activations::All, ..Offload::OFF },
        Offload { activations: Activations::All, ..Offload::OPTIMIZER },
    ];
    for (row, offload) in rows.iter().zip(ways) {
        let options = PlanOptions { optimizer: optimizer("adamw"), offload, ..PlanOptions::default() };
        let plan = planned("gpt2", 8, &options);
        let (footprint, work) = (plan.footprint(), plan.work);
        let mut found = vec![row[0].to_owned(), Bytes(footprint.total()).to_string()];
        let away = [
            Bytes(footprint.host).to_string(),
            Bytes(work.moved).to_string(),
            percent(work.moved_fraction(), 1),
        ];
        found.extend(away.map(|text| if offload == Offload::OFF { String::new() } else { text }));
        assert_eq!(&found, row);
        if offload == Offload::OPTIMIZER {
            let link = options.card.host_bytes_per_s / 50e9;
            let told = format!("it costs less: {} at 50 GB/s", percent(work.moved_fraction() * link, 1));
            assert!(DOCUMENT.contains(&told), "the text does not say: {told}");
        }
    }
}

/// The example shows the lines about the plan that `wgrad plan resnet50 --batch 184 --optimizer momentum
/// --limits nvidia` prints.
#[test]
fn printed_example_of_the_docs_matches_the_plan() {
    let plan =
        planned("resnet50", 184, &PlanOptions { optimizer: optimizer("momentum"), ..PlanOptions::default() });
    let (footprint, work) = (plan.footprint(), plan.work);
    let example = DOCUMENT.split("the end of it:").nth(1).expect("an example");
    let line = |label: &str| {
        let found = example.lines().find(|line| line.trim_start().starts_with(label));
        found.unwrap_or_else(|| panic!("no `{label}`")).trim_start()[label.len()..].trim()
    };
    let bytes = |label: &str| line(label).split("  ").next().map(str::to_owned);
    for (label, found) in [
        ("planned", plan.peak_bytes()),
        ("lower bound", plan.lower_bound_bytes()),
        ("arenas", footprint.persistent + footprint.step),
        ("staging", footprint.staging),
        ("transfer", footprint.transfer),
        ("uniforms", footprint.uniforms),
        ("total  ", footprint.total()),
    ] {
        assert_eq!(bytes(label), Some(Bytes(found).to_string()), "{label}");
    }
    let again = format!(
        "{} of the step's modelled time, {} of its arithmetic",
        percent(work.time_fraction(), 2),
        percent(work.flops_fraction(), 2)
    );
    assert_eq!(line("computed again"), again);
    // The same figure in the text.
    let told = format!("already counts {}", percent(work.time_fraction(), 1));
    assert!(DOCUMENT.contains(&told), "the text does not say: {told}");
}

/// Compares the chosen rows of the table of `Recompute::Auto` with plans, and returns their number.
fn compare_auto(chosen: impl Fn(&str) -> bool) -> usize {
    let rows: Vec<_> = table("| network | budget |").into_iter().filter(|row| chosen(row[0])).collect();
    for row in &rows {
        let words: Vec<&str> = row[0].split([' ', ',', '`']).filter(|word| !word.is_empty()).collect();
        let after = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
        let budget = row[1].trim_end_matches(|c: char| c.is_alphabetic()).parse::<f64>().expect("a number");
        let unit = if row[1].ends_with("GiB") { (1u64 << 30) as f64 } else { 1e9 };
        let options = PlanOptions {
            optimizer: optimizer(after("--optimizer").unwrap_or("momentum")),
            recompute: Recompute::Auto,
            accumulate: after("--accumulate").map_or(1, |parts| parts.parse().expect("a number")),
            budget: Some(Bytes((budget * unit) as u64)),
            ..PlanOptions::default()
        };
        let batch = words[1].parse::<usize>().expect("a batch") / options.accumulate as usize;
        let (step, limits) = traced(words[0], batch);
        let plan = step.plan(&options, &limits).expect("it fits");
        let least = step.least_recomputation(&plan, &options, &limits).expect("a search").expect("one fits");
        assert!(least <= plan.work.again_s * (1.0 + 1e-9), "{}: {least} s", row[0]);
        let total = format!("{:.3}", plan.footprint().total() as f64 / 1e9);
        let (time, least) = (percent(plan.work.time_fraction(), 1), percent(least / plan.work.step_s, 1));
        let flops = if row[5].is_empty() { String::new() } else { percent(plan.work.flops_fraction(), 1) };
        let found = [&total[..], &time, &least, &flops];
        if std::env::var("WGRAD_TABLES").as_deref() == Ok("write") {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fit.md");
            let line = |cells: &[&str]| format!("| {} |", cells.join(" | ")).replace("  ", " ");
            let [old, new] = [&row[2..6], &found].map(|cells| line(&[&row[..2], cells, &row[6..]].concat()));
            let text = std::fs::read_to_string(path).expect("the document").replace(&old, &new);
            std::fs::write(path, text).expect("it can be written");
        } else {
            assert_eq!(found, row[2..6], "{}", row[0]);
        }
    }
    rows.len()
}

#[test]
fn quickest_row_of_the_auto_table_matches_its_plan() {
    assert_eq!(compare_auto(|network| network.starts_with("vgg16")), 1);
}

#[test]
#[ignore = "plans for minutes: the rest of the table"]
fn auto_table_of_the_docs_matches_the_plans() {
    assert_eq!(compare_auto(|_| true), 10);
}

fn request(settings: &[(&str, &str)]) -> Request {
    let mut request = Request::default();
    settings.iter().for_each(|(name, value)| request.set(name, value).unwrap());
    request
}

/// Each batch would be a search of its own.
#[test]
fn largest_batch_under_auto_is_searched_for_when_asked() {
    let mlp = Source::Named("mlp");
    let asked = [("batch", "8"), ("limits", "nvidia"), ("optimizer", "sgd"), ("budget", "5MB")];
    let largest = |more: &[(&str, &str)]| {
        let answer = request(&[&asked[..], more].concat()).plan(&mlp).unwrap().answer;
        answer.fitting.unwrap().largest.map(|largest| largest.all)
    };
    let kept = largest(&[]).expect("without a flag");
    assert_eq!(largest(&[("recompute", "auto")]), None);
    let auto = largest(&[("recompute", "auto"), ("max_batch", "true")]).expect("asked for");
    assert!(auto >= kept && kept > 8, "{auto} and {kept}");
    let refused = request(&[("max_batch", "true")]).plan(&mlp).unwrap_err().to_string();
    assert!(refused.contains("largest batch") && refused.contains("set one"), "{refused}");
}

#[test]
fn longest_sequence_fits_and_64_more_tokens_do_not() {
    let limits = Limits::named("nvidia").expect("a preset");
    let of = |tokens: usize| {
        let sizes = ModelOptions { seq: Some(tokens), ..ModelOptions::default() };
        Model::with_options("gpt-nano", 0, &sizes)?.train_step(2)
    };
    for (recompute, precision) in [(Recompute::Off, Precision::F32), (Recompute::Sqrt, Precision::Bf16)] {
        let options = PlanOptions { recompute, precision, ..PlanOptions::default() };
        let total = |tokens| of(tokens).unwrap().plan(&options, &limits).unwrap().footprint().total();
        let budget = Bytes(total(500));
        let most = compile::max_seq(of, &options, budget, &limits).expect("found");
        assert_eq!(most, 448, "a multiple of 64");
        assert!(total(most) <= budget.0 && total(most + 64) > budget.0);
        assert_eq!(compile::max_seq(of, &options, Bytes(1), &limits).expect("found"), 0);
    }
    let asked = [("batch", "2"), ("limits", "nvidia"), ("optimizer", "adamw"), ("max_seq", "true")];
    let within = request(&[&asked[..], &[("budget", "20MB")]].concat());
    let found = within.plan(&Source::Named("gpt-nano")).unwrap().answer.fitting.unwrap().max_seq;
    assert_eq!(
        found,
        Some(compile::max_seq(of, &PlanOptions::default(), Bytes(20_000_000), &limits).unwrap())
    );
    let refused = |request: Request, model| request.plan(&Source::Named(model)).unwrap_err().to_string();
    assert!(refused(request(&asked), "gpt-nano").contains("set one"));
    assert!(refused(within, "mlp").contains("takes no sequences"));
}

/// Recomputation that is chosen for a budget weighs offloaded activations.
#[test]
fn budgets_are_answered_where_activations_are_offloaded() {
    let limits = Limits::named("nvidia").expect("a preset");
    let options =
        PlanOptions { offload: Offload::ACTIVATIONS, optimizer: optimizer("sgd"), ..PlanOptions::default() };
    let total = deep(4096).unwrap().plan(&options, &limits).unwrap().footprint().total();
    let tight = Bytes(total - total / 20);
    let levers = compile::levers(deep, 4096, &options, tight, &limits).expect("planned");
    assert!(levers.iter().any(|lever| lever.name == "accumulate 2"), "{levers:#?}");
    let fitted = compile::fit(deep, 4096, &options, tight, &limits).expect("it fits");
    assert!(fitted.plan.footprint().total() <= tight.0 && !fitted.changes.is_empty(), "{:?}", fitted.changes);
    let request =
        request(&[("batch", "512"), ("offload", "activations"), ("budget", "5MB"), ("limits", "nvidia")]);
    let answer = request.plan(&Source::Named("cnn")).expect("planned").answer;
    let fitting = answer.fitting.expect("within a budget");
    assert!(
        !fitting.fits && fitting.levers.iter().any(|lever| lever.name == "recompute auto"),
        "{fitting:#?}"
    );
}

/// Where recomputation alone does not fit, `fit` offloads activations as well, before it changes results.
#[test]
fn activations_are_offloaded_where_recomputation_is_not_enough() {
    let limits = Limits::named("nvidia").expect("a preset");
    let options = PlanOptions { optimizer: optimizer("sgd"), ..PlanOptions::default() };
    let of = |samples| Model::named("gpt-nano", 0).and_then(|model| model.train_step(samples));
    let step = of(64).expect("traced");
    let auto = |offload: Offload, budget: u64| {
        let budget = Some(Bytes(budget));
        let plan = step.plan_over_budget(
            &PlanOptions { recompute: Recompute::Auto, budget, offload, ..options },
            &limits,
        );
        plan.expect("planned").footprint().total()
    };
    let [kept, away] = [Offload::OFF, Offload::ACTIVATIONS].map(|offload| auto(offload, 1));
    assert!(away < kept, "{} and {}", Bytes(away), Bytes(kept));
    let fitted = compile::fit(of, 64, &options, Bytes(kept - 1), &limits).expect("it fits");
    assert!(fitted.plan.footprint().total() < kept && fitted.exact, "{:?}", fitted.changes);
    assert_eq!(fitted.changes, ["offload activations", "recompute auto"]);
}

/// A search that looks far ahead tries sizes that no tensor can have.
#[test]
fn sizes_that_cannot_be_traced_fit_no_budget() {
    let limits = Limits::named("nvidia").expect("a preset");
    let of = |batch: usize| {
        TrainStep::trace(&Params::new(0), |trace| {
            let x = trace.input("x", [batch]);
            let fits = if batch > 1000 { x.add(&trace.input("y", [1000])) } else { x };
            fits.square().mean(&[])
        })
    };
    assert!(matches!(of(1001), Err(wgrad::Error::Trace(_))));
    for recompute in [Recompute::Off, Recompute::Auto] {
        let options = PlanOptions { recompute, ..PlanOptions::default() };
        assert_eq!(compile::max_batch(of, &options, Bytes::gib(1), &limits).expect("found"), 1000);
    }
}
