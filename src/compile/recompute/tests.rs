//! Compares the search's model with the programs built from it.

use super::*;
use crate::compile::{Activations, Offload, Parallel, PlanOptions, TrainStep};
use crate::graph::{Node, Params};
use crate::models::{Model, ModelOptions};
use crate::nn::Linear;
use crate::optim::Optimizer;
use cost_model::Slot;
use search::{Choices, Search};
use select::Layers;

fn small(name: &str) -> TrainStep {
    let image = (!matches!(name, "cnn" | "lenet" | "mlp")).then_some([64, 64]);
    let options = match name {
        "gpt-nano" => ModelOptions::default(),
        _ => ModelOptions { image, classes: Some(10), ..ModelOptions::default() },
    };
    let model = Model::with_options(name, 0, &options);
    model.expect("known").train_step(64).expect("valid")
}

fn planner(step: &TrainStep, limits: &Limits, fuse: bool) -> RecomputePlanner {
    planner_of(&PlanOptions { fuse, ..PlanOptions::default() }, step, limits)
}

fn planner_of(options: &PlanOptions, step: &TrainStep, limits: &Limits) -> RecomputePlanner {
    let (options, fuse) = (PlanOptions { rebuild: false, ..*options }, options.fuse);
    let graph = step.training_graph(&options, limits).expect("valid");
    let gathers = Gathers { buckets: Vec::new(), parallel: Parallel::default() };
    RecomputePlanner::new(graph, gathers, limits, &Card::default(), fuse).expect("valid")
}

#[test]
fn measured_peaks_and_times_match_the_programs() {
    let (mut lower, mut joined, mut again, mut copied) = (0, 0, 0, 0);
    for name in ["mlp", "cnn", "lenet", "resnet18", "mobilenet-v2", "unet", "vgg16"] {
        // Without and with copies to host memory.
        for (limits, which) in [
            ("nvidia", Activations::Keep),
            ("swiftshader", Activations::Keep),
            ("swiftshader", Activations::All),
        ] {
            let limits = Limits::named(limits).expect("a preset");
            // On this preset, convolutions are recomputed fused with their norm if neither result is kept.
            let mut planner = planner(&small(name), &limits, limits.name == "nvidia");
            planner.may_send_away(which, &Card::default()).expect("valid");
            let mut bare = planner.graph.clone();
            let pairs: usize = planner.model.works.iter().map(|work| work.joins.len()).sum();
            bare.nodes.truncate(bare.nodes.len() - pairs);
            // Gradients of some weights apply a norm again by themselves, in every program.
            let Work { step_s, again_s: own_s, .. } = work(&bare, &bare, &limits);
            let points = planner.points_within(u64::MAX);
            lower += usize::from(points.len() > 1);
            again += usize::from(points.last().is_some_and(|point| point.again_s > 0.01 * step_s));
            for point in points.iter().step_by(points.len().div_ceil(12)) {
                let program = planner.program(&point.retention, &limits).expect("it can be built");
                let bound = program.lower_bound(&limits).expect("a bound") - program.persistent_bytes();
                assert_eq!(bound, point.peak, "{name} for {}", limits.name);
                let again = work(&bare, &program.graph, &limits);
                let moved = again.moving(&program, &Card::default()).moved_s;
                copied += usize::from(moved > 0.0);
                let taken = again.again_s - own_s + moved;
                assert!(
                    (taken - point.again_s).abs() < 1e-9 * step_s,
                    "{name} for {}: {taken} and {}",
                    limits.name,
                    point.again_s
                );
                let both = |node: &&Node| node.op.name().starts_with("conv2d+batch_norm");
                joined += program.graph.nodes.iter().filter(both).count();
            }
        }
    }
    // In small networks, the gradient of the largest weight bounds the peak from below.
    assert!(lower >= 6, "only {lower} plans could be lowered");
    assert!(again >= 6, "only {again} plans take time to compute again");
    assert!(copied >= 6, "only {copied} plans copy results to host memory");
    assert!(joined >= 3, "only {joined} convolutions run again with their norm");
}

#[test]
fn every_rule_lowers_the_peak() {
    let limits = Limits::default();
    let planner = planner(&small("resnet18"), &limits, false);
    let peak = |how: Recompute| {
        let program =
            planner.program(&planner.by_rule(how).expect("valid"), &limits).expect("it can be built");
        program.lower_bound(&limits).expect("a bound")
    };
    let off = peak(Recompute::Off);
    let rules = [
        Recompute::Every(1),
        Recompute::Every(3),
        Recompute::Sqrt,
        Recompute::Policy,
        Recompute::Named(&["layer1.0"]),
    ];
    for rule in rules {
        assert!(peak(rule) < off, "{rule:?} saves nothing");
    }
    let error =
        planner.by_rule(Recompute::Named(&["layer9"])).map(|_| ()).expect_err("there is no such layer");
    assert!(error.to_string().contains("no layer `layer9`"), "{error}");
}

#[test]
fn parts_of_a_batch_are_searched_together() {
    let limits = Limits::named("nvidia").expect("a preset");
    let alone = PlanOptions { accumulate: 3, ..PlanOptions::default() };
    // The second rank's first part is another of the batch.
    let second = Parallel { ranks: 2, rank: 1, ..Parallel::default() };
    let second = PlanOptions { accumulate: 6, parallel: second, ..PlanOptions::default() };
    for (name, options) in [("resnet18", alone), ("mobilenet-v2", alone), ("mobilenet-v2", second)] {
        let step = small(name);
        let [one, three] =
            [PlanOptions::default(), options].map(|options| planner_of(&options, &step, &limits));
        let together = |planner: &RecomputePlanner| Choices::of(&planner.model).together;
        let (single, mut parts) = (together(&one), together(&three));
        // Each part has its own rows of the images.
        parts.retain(|slots| slots.len() > 1);
        assert_eq!(parts.len(), single.len(), "{name}");
        for slots in parts {
            let of = |&slot: &usize| {
                let Slot { bytes, producer, .. } = three.model.slots[slot];
                (bytes, three.graph.nodes[producer.expect("computed") as usize].op.name())
            };
            assert!(
                slots.len() == 3 && slots.iter().all(|slot| of(slot) == of(&slots[0])),
                "{name}: {slots:?}"
            );
        }
    }
}

/// A residual block is one layer.
#[test]
fn residual_blocks_are_layers() {
    let limits = Limits::default();
    let planner = planner(&small("resnet18"), &limits, false);
    let kept = |how: Recompute| {
        let retention = planner.by_rule(how).expect("valid");
        let slots = select::candidates(&planner.model);
        slots.iter().filter(|&&slot| retention[slot] == Retention::Save).count()
    };
    let all = select::candidates(&planner.model).len();
    let (one, two) = (kept(Recompute::Every(1)), kept(Recompute::Every(2)));
    // Kept are the outputs of blocks, and the last segment: one or two of the eight blocks.
    assert!(one.max(two) < all / 2 && one != two, "{one} and {two} of {all}");
    let layers = Layers::of(&planner.model, &planner.graph).expect("a chain");
    // The stem, eight blocks and the last product.
    assert_eq!(layers.stages.len(), 10);
}

fn work(bare: &Graph, graph: &Graph, limits: &Limits) -> Work {
    Work::repeated(bare, graph, limits, &Card::default()).expect("valid")
}

/// Every point of two networks; [`measured_peaks_and_times_match_the_programs`] takes some of more.
#[test]
fn measured_times_match_the_programs() {
    let limits = Limits::default();
    for name in ["resnet18", "mobilenet-v2"] {
        let planner = planner(&small(name), &limits, false);
        let points = planner.points_within(u64::MAX);
        let step_s = work(&planner.graph, &planner.graph, &limits).step_s;
        assert!(
            points.len() > 3 && points.last().expect("some").again_s > 0.01 * step_s,
            "{name}: {points:?}"
        );
        for point in points {
            let program = planner.program(&point.retention, &limits).expect("it can be built");
            let taken = work(&planner.graph, &program.graph, &limits).again_s;
            assert!((taken - point.again_s).abs() < 1e-9 * step_s, "{name}: {taken} and {}", point.again_s);
        }
    }
}

#[test]
fn fastest_point_that_fits_is_taken() {
    let limits = Limits::default();
    let planner = planner(&small("resnet18"), &limits, false);
    let points = planner.points_within(u64::MAX);
    let settings = Settings { reorder: true, in_place: true, reuse: true, ..Settings::default() };
    let total = |point: &Point| {
        let program = planner.program(&point.retention, &limits).expect("it can be built");
        Plan::lay_out(program, &limits, &settings).expect("planned").total()
    };
    let totals: Vec<u64> = points.iter().map(total).collect();
    for &budget in totals.iter().step_by(totals.len().div_ceil(6)) {
        let fits = points.iter().zip(&totals).filter(|(_, total)| **total <= budget);
        let least = fits.map(|(point, _)| point.again_s).fold(f64::INFINITY, f64::min);
        let plan = planner.cheapest(budget, &limits, &settings).expect("planned");
        let taken = work(&planner.graph, &plan.program.graph, &limits).again_s;
        assert!(taken <= least * (1.0 + 1e-9), "{budget} bytes: {taken} where {least} is enough");
    }
}

/// What a plan needs besides its tensors is counted to the byte, but for uniforms and the loss: points that cannot fit are left out,
/// and none that can.
#[test]
fn plans_take_as_many_bytes_as_their_points() {
    let limits = Limits::default();
    let optimizer = Optimizer::named("adamw").expect("known");
    let settings = Settings {
        reorder: true,
        in_place: true,
        reuse: true,
        packing: Effort::Fast,
        optimizer: Some(optimizer),
        ..Settings::default()
    };
    for (name, offload) in
        [("lenet", Offload::OFF), ("lenet", Offload::OPTIMIZER), ("resnet18", Offload::OPTIMIZER)]
    {
        let options = PlanOptions { offload, optimizer, fuse: false, ..PlanOptions::default() };
        let planner = planner_of(&options, &small(name), &limits);
        assert_eq!(planner.state_bytes() > 0, offload.optimizer);
        for Point { retention, peak, .. } in planner.points_within(u64::MAX).iter().step_by(7) {
            let least = planner.lay_out(retention, &limits, &settings).expect("planned").least();
            let counted = planner.around() + peak;
            assert!((counted..counted + (128 << 10)).contains(&least), "{name}: {least}, {counted} counted");
        }
    }
}

/// A choice whose fast packing ends far above its bound is packed with more effort where that can decide whether it fits.
#[test]
fn effort_is_spent_where_it_decides() {
    let limits = Limits::default();
    let planner = planner(&small("unet"), &limits, false);
    let settings = Settings { reorder: true, in_place: true, reuse: true, ..Settings::default() };
    let with = |retention: &[Retention], packing: Effort| {
        let settings = Settings { packing, ..settings.clone() };
        planner.lay_out(retention, &limits, &settings).expect("planned")
    };
    let points = planner.points_within(u64::MAX);
    let mut far =
        points.iter().step_by(4).map(|Point { retention, .. }| (retention, with(retention, Effort::Fast)));
    let (retention, fast) = far.find(|(_, fast)| !fast.is_near_bound()).expect("one is far from its bound");
    let (least, fast, full) = (fast.least(), fast.total(), with(retention, Effort::Balanced).total());
    assert!(least <= full && full < fast, "{least}, {full}, {fast} bytes");
    for (budget, bytes) in [(least - 1, fast), (fast, fast), (full, full), (least - 1, full)] {
        let total = planner.total(retention, budget, &limits, &settings).expect("planned");
        assert_eq!(total, bytes, "within {budget} bytes");
    }
    assert_eq!(planner.packed(retention, &limits, &settings).expect("planned").total(), full);
}

/// A budget gets the same points whatever was asked before, and a larger one none that are worse.
#[test]
fn points_depend_on_the_budget_alone() {
    let limits = Limits::default();
    let step = deep(40);
    let [asked, fresh] = [(); 2].map(|()| planner(&step, &limits, false));
    let all = fresh.points_within(u64::MAX);
    let budgets = [0, all[0].peak / 4, all[0].peak / 2].map(|room| asked.around() + room);
    let mut least: Vec<Point> = Vec::new();
    for points in budgets.map(|budget| asked.points_within(budget)).iter().chain([&all]) {
        for Point { peak, again_s, .. } in &least {
            let as_good = |point: &Point| point.peak <= *peak && point.again_s <= *again_s;
            assert!(points.iter().any(as_good), "{peak} bytes in {again_s} s are lost");
        }
        least.clone_from(points);
    }
    let key = |points: &[Point]| points.iter().map(|p| (p.retention.clone(), p.peak)).collect::<Vec<_>>();
    assert!(key(&asked.points_within(u64::MAX)) == key(&all), "the order of the questions matters");
}

/// Another choice for a few results at a time, measured by what it changes, is as if measured from the start.
#[test]
fn changes_are_measured_as_whole_scripts() {
    let (nvidia, swiftshader) = (Limits::named("nvidia"), Limits::named("swiftshader"));
    let whole = PlanOptions::default();
    let parts = PlanOptions { accumulate: 3, ..whole };
    let cases = [
        ("cnn", whole, Activations::Keep),
        ("resnet18", whole, Activations::All),
        ("mobilenet-v2", parts, Activations::Keep),
        ("densenet121", whole, Activations::Keep),
        ("unet", parts, Activations::All),
        ("gpt-nano", whole, Activations::All),
    ];
    let (mut kept, mut refused) = (0, 0);
    for (number, (name, options, which)) in cases.into_iter().enumerate() {
        let limits = [&nvidia, &swiftshader][number % 2].as_ref().expect("a preset");
        let mut planner = planner_of(&options, &small(name), limits);
        planner.may_send_away(which, &Card::default()).expect("valid");
        let (model, slots) = (&planner.model, select::candidates(&planner.model));
        let peak = Timeline::new(model, 0, &vec![Retention::Save; model.slots.len()]).now().peak;
        let target = peak * 6 / 10;
        let mut timeline = Timeline::new(model, target, &vec![Retention::Save; model.slots.len()]);
        let key = crate::random::key(number as u64, "choices");
        let mut drawn = 0;
        let mut draw = |below: usize| {
            drawn += 1;
            crate::random::bits(key, drawn) as usize % below
        };
        for round in 0..400 {
            // From one neighbour to groups, and now and then all are kept again.
            let most = [1, 4, 30][draw(3)];
            let (from, width) = (draw(slots.len()), 1 + draw(most));
            let mut choice = [
                Retention::Save,
                Retention::RecomputeOnce,
                Retention::RecomputeOnce,
                Retention::RecomputePerUse,
                Retention::Offload,
            ][draw(5)];
            let mut changed: Vec<usize> =
                slots[from..].iter().step_by(1 + draw(3)).take(width).copied().collect();
            if round % 80 == 79 {
                (changed, choice) = (slots.clone(), Retention::Save);
            }
            changed.retain(|&slot| choice != Retention::Offload || model.slots[slot].away_s.is_some());
            let mut retention = timeline.retention().to_vec();
            changed.iter().for_each(|&slot| retention[slot] = choice);
            let choices = &mut changed.iter().map(|&slot| (slot, choice));
            let found = timeline.measure(choices, u64::MAX, f64::INFINITY);
            let fresh = Timeline::new(model, target, &retention);
            let possible = fresh.steps() > 0;
            refused += usize::from(!possible);
            let measured = fresh.now();
            let wanted = possible.then_some((measured.excess, measured.again_s));
            assert_eq!(found.map(|found| (found.excess, found.again_s)), wanted, "{name}, round {round}");
            if possible && draw(3) > 0 {
                assert_eq!(timeline.keep(), measured, "{name}, round {round}");
                assert!(timeline.retention() == retention && timeline.steps() == fresh.steps());
                kept += 1;
            }
        }
    }
    assert!(kept > 1_000, "only {kept} changes were kept; {refused} could not be written");
}

/// A chain of equal layers with known optimal checkpoints: the search is never slower than they are.
#[test]
fn search_is_never_slower_than_optimal_checkpoints() {
    let limits = Limits::default();
    let planner = planner(&deep(40), &limits, false);
    let layers = Layers::of(&planner.model, &planner.graph).expect("a chain");
    let points = planner.points_within(u64::MAX);
    let most = points.iter().map(|point| point.peak).max().expect("some");
    let mut compared = 0;
    for part in 4..20 {
        let room = most * part / 20;
        let retention = layers.checkpoints(room, &vec![Retention::Save; planner.model.slots.len()]);
        if Writer::new(&planner.model).write(&retention).is_err() {
            continue;
        }
        let checkpoints = Timeline::new(&planner.model, 0, &retention).now();
        let fits = points.iter().filter(|point| point.peak <= checkpoints.peak);
        let Some(least) = fits.map(|point| point.again_s).min_by(f64::total_cmp) else { continue };
        let limit = checkpoints.again_s * (1.0 + 1e-9);
        assert!(least <= limit, "{} bytes: {least} s, checkpoints take {limit}", checkpoints.peak);
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} targets were compared");
}

/// Checkpoints of the chain reach lower peaks than dropping one result after another with as little work.
#[test]
fn checkpoints_of_the_chain_lower_the_peak() {
    let planner = planner(&deep(90), &Limits::default(), false);
    let layers = Layers::of(&planner.model, &planner.graph).expect("a chain");
    let choices = Choices::of(&planner.model);
    let most = Search::new(&planner.model, &choices, 0).now().peak;
    let least = |layers: Option<&Layers>| {
        let mut search = Search::new(&planner.model, &choices, most * 6 / 40);
        let points = search.run(layers, &[], &[], 60_000);
        points.iter().map(|point| point.peak).min().expect("some")
    };
    let (with, without) = (least(Some(&layers)), least(None));
    assert!(with * 100 < without * 90, "{with} bytes with the chain, {without} without");
}

/// Partial reset and re-search: at the higher target the greedy solution takes 0.0399 of the step's time.
#[test]
fn search_improves_greedy_choices() {
    let planner = planner(&small("resnet18"), &Limits::default(), false);
    let layers = Layers::of(&planner.model, &planner.graph);
    let choices = Choices::of(&planner.model);
    let step_s = work(&planner.graph, &planner.graph, &Limits::default()).step_s;
    let most = Search::new(&planner.model, &choices, 0).now().peak;
    for (part, reached) in [(24, 0.0372), (28, 0.0218)] {
        let target = most * part / 40;
        let points = Search::new(&planner.model, &choices, target).run(layers.as_ref(), &[], &[], 1_000_000);
        let low = points.iter().filter(|point| point.peak <= target);
        let share = low.map(|point| point.again_s).fold(f64::INFINITY, f64::min) / step_s;
        assert!(share <= 1.02 * reached, "{share:.4} of the step's time, where {reached} were reached");
    }
}

/// Each of the blocks computes two parts of its rows, one after the other, and passes both on.
fn deep_in_parts(blocks: usize) -> TrainStep {
    use crate::graph::{Init, Params, Tensor};
    let params = Params::new(0);
    let weight = |i: usize| params.add(&format!("blocks.{i}.weight"), [64, 64], Init::fan_in(64));
    let weights: Vec<_> = (0..blocks).map(weight).collect();
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [4096, 64]).scale(0.5);
        let mut parts: Vec<Tensor> = [0..2048, 2048..4096].map(|rows| x.slice(0, rows)).into();
        for (i, weight) in weights.iter().enumerate() {
            parts = trace.layer(&format!("blocks.{i}"), || {
                let weight = trace.param(weight);
                // Of both parts, as keys and values are.
                let all = parts[0].add(&parts[1]).square();
                parts.iter().map(|x| x.add(&x.matmul(&weight).tanh().mul(&all))).collect()
            });
            trace.rows_of_one(&parts);
        }
        parts[0].concat(&[&parts[1]], 0).square().mean(&[])
    });
    step.expect("valid")
}

#[test]
fn parts_of_a_tensor_are_passed_on_as_one() {
    let limits = Limits::default();
    let planner = planner(&deep_in_parts(12), &limits, false);
    let layers = Layers::of(&planner.model, &planner.graph).expect("a chain");
    assert!((11..=13).contains(&layers.stages.len()), "{} layers", layers.stages.len());
    let part = 2048 * 64 * 4;
    assert!(layers.stages[2..11].iter().all(|stage| stage.bytes == 2 * part), "{:?}", layers.stages);
    let retention = planner.by_rule(Recompute::Every(1)).expect("valid");
    for (slot, value) in planner.graph.values.iter().enumerate() {
        // Of blocks but the last, only what they pass on is kept.
        let inside = (0..10).any(|i| value.name.starts_with(&format!("blocks.{i}.")));
        if inside && planner.model.can_drop(slot) {
            let kept = retention[slot] == Retention::Save;
            assert_eq!(kept, value.rows_of > 0, "{}: {:?}", value.name, retention[slot]);
        }
    }
}

/// Equal layers with activations that make up most of their memory.
fn deep(layers: usize) -> TrainStep {
    use crate::graph::{Init, Params};
    let params = Params::new(0);
    let weights: Vec<_> =
        (0..layers).map(|i| params.add(&format!("w{i}"), [64, 64], Init::fan_in(64))).collect();
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [4096, 64]);
        let y = weights.iter().fold(x, |x, w| x.matmul(&trace.param(w)).tanh());
        y.square().mean(&[])
    });
    step.expect("valid")
}

#[test]
fn chunks_of_rows_are_alike_whatever_their_number_of_rows() {
    let params = Params::new(0);
    let linear = Linear::new(&params.scope("line"), 64, 64);
    // Chunks of 96, 96 and 64 rows.
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [256, 64]).apply(&linear);
        x.in_chunks(96, |x| x.apply(&linear).tanh().apply(&linear).square()).mean(&[])
    });
    let planner = planner(&step.expect("valid"), &Limits::default(), false);
    let tanh = |slots: &Vec<usize>| {
        slots.iter().all(|&slot| planner.graph.values[slot].name.starts_with("tanh")).then_some(slots.len())
    };
    let groups = select::alike(&planner.model, &planner.graph);
    assert_eq!(groups.iter().filter_map(tanh).collect::<Vec<_>>(), [3], "{groups:?}");
}

/// Every choice of which of the first results to keep, for small networks: none that fits takes less than the bound. Of a chain,
/// whose memory is short at one moment, the bound is near. None has a lower peak than the floor, and some choice has the floor's.
#[test]
fn no_choice_takes_less_than_its_lower_bound() {
    let limits = Limits::named("nvidia").expect("a preset");
    let of = |name: &str| if matches!(name, "deep" | "away") { deep(6) } else { small(name) };
    // Some copies are faster than recomputation.
    let card = Card { host_bytes_per_s: 100e9, ..Card::default() };
    let networks =
        [("deep", false), ("deep", true), ("mlp", false), ("cnn", true), ("lenet", false), ("away", false)];
    let mut reached = 0;
    for (name, fuse) in networks {
        let mut planner = planner(&of(name), &limits, fuse);
        if name == "away" {
            planner.may_send_away(Activations::All, &card).expect("valid");
        }
        let model = &planner.model;
        let mut slots = select::candidates(model);
        slots.truncate(12);
        let mut timeline = Timeline::new(model, 0, &vec![Retention::Save; model.slots.len()]);
        let mut found = Vec::new();
        for number in 0..2 << slots.len() {
            let mut retention = vec![Retention::Save; model.slots.len()];
            let again = [Retention::RecomputeOnce, Retention::RecomputePerUse][number & 1];
            let other = if name == "away" { Retention::Offload } else { again };
            for (i, &slot) in slots.iter().enumerate() {
                if number >> (i + 1) & 1 == 1 {
                    retention[slot] = if i % 2 == 0 { again } else { other };
                }
            }
            let measured = Timeline::new(model, 0, &retention).now();
            let mut changed = |most: u64, below_s: f64| {
                timeline.measure(&mut retention.iter().copied().enumerate(), most, below_s)
            };
            if Writer::new(model).write(&retention).is_err() {
                assert_eq!(changed(u64::MAX, f64::INFINITY), None);
                continue;
            }
            // A limit on the excess or the time changes nothing else.
            let timeline::Outcome { excess, again_s } =
                changed(measured.excess, f64::INFINITY).expect("possible");
            assert_eq!((excess, again_s), (measured.excess, measured.again_s));
            assert_eq!(changed(measured.excess - 1, f64::INFINITY), None);
            assert_eq!(changed(u64::MAX, measured.again_s), None);
            if number % 3 == 0 {
                changed(u64::MAX, f64::INFINITY);
                assert_eq!(timeline.keep(), measured);
            }
            found.push((measured.peak, measured.again_s));
        }
        assert!(certificate::least_seconds(model, 0).is_none(), "{name}");
        let peaks: std::collections::BTreeSet<u64> = found.iter().map(|(peak, _)| *peak).collect();
        let (floor, lowest) = (model.floor(), *peaks.first().expect("some"));
        assert!(floor <= lowest, "{name}: {lowest} bytes are below {floor}");
        reached += usize::from(floor == lowest);
        let mut nearest = 0.0_f64;
        for target in peaks {
            let fitting = found.iter().filter(|(peak, _)| *peak <= target);
            let best = fitting.map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
            let bound = certificate::least_seconds(model, target).expect("one fits");
            assert!(bound <= best * (1.0 + 1e-9), "{name} in {target}: {bound} and {best}");
            nearest = nearest.max(if best > 0.0 { bound / best } else { 0.0 });
        }
        assert!(name != "deep" || nearest > 0.6, "{name}: {nearest} of the best");
    }
    assert!(reached >= 1, "no choice needs as little as the floor");
}
