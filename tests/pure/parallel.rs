//! Plans of several ranks: what each computes, holds and sends.

use wgrad::compile::{
    Offload, Parallel, Plan, PlanOptions, Recompute, Shard, Shares, TrainStep, fit, levers,
};
use wgrad::dtype::{Precision, WeightStorage};
use wgrad::graph::{Class, Params, Value};
use wgrad::limits::{Card, Limits};
use wgrad::models::{Model, ModelOptions};
use wgrad::nn::{Embedding, Linear};
use wgrad::optim::Optimizer;
use wgrad::report::kept;
use wgrad::{Bytes, Error};

const BUCKET: u64 = 1 << 20;

fn plan(model: &str, samples: usize, accumulate: u32, parallel: Parallel) -> Result<Plan, Error> {
    let step = Model::named(model, 0)?.train_step(samples)?;
    let limits = Limits::named("nvidia").expect("a preset");
    step.plan(&PlanOptions { accumulate, parallel, ..PlanOptions::default() }, &limits)
}

fn parallel(rank: u32, ranks: u32) -> Parallel {
    Parallel { bucket: Bytes(BUCKET), ..Parallel::of(rank, ranks) }
}

#[test]
fn one_rank_has_the_plan_of_one_device() {
    let [alone, one] = [Parallel::default(), parallel(0, 1)].map(|p| plan("cnn", 4, 4, p).expect("planned"));
    assert_eq!(alone.hash(), one.hash());
    assert!(one.graph().exchanges.is_empty());
}

/// All ranks have the same operations in the same memory; only the keys of random draws differ.
#[test]
fn all_ranks_need_the_same_bytes() {
    let plans: Vec<Plan> =
        (0..4).map(|rank| plan("cnn", 4, 8, parallel(rank, 4)).expect("planned")).collect();
    for plan in &plans {
        assert_eq!(plan.footprint(), plans[0].footprint());
        assert_eq!(plan.graph().exchanges, plans[0].graph().exchanges);
    }
}

/// A gradient leaves as soon as it is there: the device holds a bucket and its share of the sums, where one device
/// that accumulates holds the sums of all gradients.
#[test]
fn gradients_leave_the_device() {
    let [one, four] =
        [Parallel::default(), parallel(0, 4)].map(|p| plan("gpt-nano", 1, 8, p).expect("planned"));
    let (one, four) = (one.peak_bytes(), four.peak_bytes());
    assert!(four < one, "{} and {}", Bytes(four), Bytes(one));
}

/// 2 P (N - 1) / N words for P parameters, and the loss; with more parts, each is scattered by itself. The host holds
/// at most two buckets of each kind at once, sent and received.
#[test]
fn what_is_sent_is_known() {
    for (ranks, accumulate) in [(2, 2), (4, 4), (4, 8)] {
        let plan = plan("mlp", 8, accumulate, parallel(0, ranks)).expect("planned");
        let parameters: u64 = plan.graph().parameters.iter().map(|param| param.shape().numel()).sum();
        let rounds = u64::from(accumulate / ranks);
        let least = 4 * parameters * (rounds + 1) * u64::from(ranks - 1) / u64::from(ranks);
        let sent = plan.wire_bytes();
        assert!(sent >= least && sent <= least + least / 100, "{} for {}", Bytes(sent), Bytes(least));
        let largest = plan.graph().exchanges.iter().map(|exchange| 4 * exchange.received()).max();
        let (host, largest) = (plan.footprint().host, largest.expect("exchanges"));
        assert!(host <= 8 * largest, "{} in buckets of {}", Bytes(host), Bytes(largest));
    }
}

/// What the ranks send is added up by as many operations for hundreds of ranks as for two, statistics of batch norms included.
#[test]
fn operations_do_not_grow_with_the_ranks() {
    let operations = |ranks| {
        let plan = plan("resnet18", 2, ranks, Parallel::of(0, ranks)).expect("planned");
        let kind = |name: &str| plan.graph().nodes.iter().filter(|node| node.op.kind() == name).count();
        (plan.launches(&Card::named("h200").expect("known")).expect("lowered").len(), kind("running_stats"))
    };
    let [(two, norms), (many, as_many)] = [2, 512].map(operations);
    assert_eq!((norms, as_many), (20, 20));
    assert!(many < two + two / 4, "{two} dispatches of two ranks, {many} of 512");
}

/// A tied table's gradient leaves with that of the output layer, at the start of the backward pass: at its end, gradients of rows follow,
/// of which there are fewer.
#[test]
fn four_ranks_wait_little_for_gpt2() {
    let card = Card::named("h200").expect("known");
    let plan = plan("gpt2", 8, 4, Parallel::of(0, 4)).expect("planned");
    let exposed = plan.wire_times(&card).expect("modelled").exposed_fraction();
    assert!(exposed <= 0.1, "{exposed}");
}

/// Rows that are looked up are kept in place of the sum of the table's gradients, if these are no larger.
#[test]
fn lookups_of_few_rows_need_no_sum_of_the_whole_table() {
    let params = Params::new(0);
    let table = Embedding::new(&params, 10_000, 64);
    let step =
        TrainStep::trace(&params, |trace| trace.ids("x", [1000], 10_000).apply(&table).square().mean(&[]));
    let step = step.expect("valid");
    let limits = Limits::named("nvidia").expect("a preset");
    let peak = |accumulate: u32| {
        let options = PlanOptions { accumulate, ..PlanOptions::default() };
        step.plan(&options, &limits).expect("planned").peak_bytes()
    };
    let table = 4 * 64 * 10_000;
    let more = [2, 10, 11].map(|parts| peak(parts) - peak(1));
    assert!(more[0] < table / 2 && more[1] < table + table / 4, "{more:?}");
    assert!(more[2] > table - table / 8, "{more:?}");
}

fn sharded(rank: u32, ranks: u32, shard: Shard) -> Parallel {
    Parallel { shard, ..Parallel::of(rank, ranks) }
}

/// Each rank has 1/N of the optimizer state, and at most a hundredth more: padding, and the state of norms and biases. It sends what
/// it would send of gradients.
#[test]
fn sharded_state_is_that_of_one_device_divided_by_the_ranks() {
    let (ranks, networks) = ([2, 4, 8], [("gpt2", 1), ("resnet50", 2)]);
    for (ranks, (model, samples)) in ranks.into_iter().flat_map(|ranks| networks.map(|model| (ranks, model)))
    {
        let plan = |parallel| plan(model, samples, ranks, parallel).expect("planned");
        let state = |plan: &Plan| {
            let optimizer = plan.program.storages.iter().skip(plan.graph().parameters.len());
            optimizer.filter(|storage| storage.is_state()).map(|storage| storage.bytes).sum::<u64>()
        };
        let whole = plan(Parallel::of(0, ranks));
        let all = state(&whole);
        for rank in [0, ranks - 1] {
            let one = plan(sharded(rank, ranks, Shard::Optimizer));
            let own = state(&one);
            assert!(
                own <= all / u64::from(ranks) + all / 100,
                "{model} on {ranks}: {} of {}",
                Bytes(own),
                Bytes(all)
            );
            assert!(
                one.footprint().total() < whole.footprint().total() - (all - own) / 2,
                "{model} on {ranks}"
            );
            assert!(one.wire_bytes() <= whole.wire_bytes() + whole.wire_bytes() / 100);
            let ordered = |plan: &Plan| plan.graph().exchanges.clone();
            assert_eq!(
                ordered(&one),
                ordered(&plan(sharded(1, ranks, Shard::Optimizer))),
                "{model}, rank {rank} of {ranks}"
            );
        }
    }
}

/// Checks that copies of whole parameters are at most two buckets and a half at once, besides the largest parameter.
fn whole_only_while_they_are_read(plan: &Plan, bucket: Bytes) {
    let whole = |(_, value): &(_, &Value)| value.class == Class::Workspace && value.name.contains(".whole");
    let program = &plan.program;
    let spans = program.graph.ids().filter(whole).map(|(id, value)| {
        let (_, storage) = program.storage(id).expect("stored");
        (storage.first, storage.last, value.bytes())
    });
    let spans: Vec<(usize, usize, u64)> = spans.collect();
    let held = |at: usize| spans.iter().filter(move |span| span.0 <= at && at <= span.1).map(|span| span.2);
    let peak = (0..program.order.len()).map(|at| held(at).sum::<u64>()).max().expect("operations");
    let largest = spans.iter().map(|span| span.2).max().expect("copies");
    assert!(peak <= largest + 5 * bucket.0 / 2, "{} at once, the largest {}", Bytes(peak), Bytes(largest));
}

/// Repeated operations have their parameters gathered as others, and all ranks repeat the same ones and gather in one order,
/// also where ranks have shares of other sizes, or none.
#[test]
fn repeated_operations_gather_parameters_in_one_order_on_all_ranks() {
    let limits = Limits::named("nvidia").expect("a preset");
    for (name, samples, ranks, bucket) in
        [("gpt2", 1, 4, 8 << 20), ("cnn", 4, 3, 4096), ("digits", 4, 8, 4096)]
    {
        let step = Model::named(name, 0).expect("known").train_step(samples).expect("valid");
        let planned = |rank, recompute, budget| {
            let parallel = Parallel { bucket: Bytes(bucket), ..sharded(rank, ranks, Shard::Parameters) };
            let (accumulate, budget) = (ranks, Some(budget));
            let options = PlanOptions { accumulate, parallel, recompute, budget, ..PlanOptions::default() };
            step.plan_over_budget(&options, &limits).expect("planned")
        };
        let kept = planned(0, Recompute::Off, Bytes(u64::MAX));
        let budget = Bytes(kept.footprint().total() - kept.peak_bytes() / 5);
        for recompute in [Recompute::Every(1), Recompute::Sqrt, Recompute::Auto] {
            let first = planned(0, recompute, budget);
            if bucket > 4096 {
                whole_only_while_they_are_read(&first, Bytes(bucket));
                assert!(first.footprint().total() < kept.footprint().total(), "{name} {recompute:?}");
            }
            let repeated = |plan: &Plan| {
                let again = plan.graph().values.iter().filter(|value| value.again);
                again.map(|value| value.name.clone()).collect::<Vec<_>>()
            };
            for rank in [1, ranks - 1] {
                let other = planned(rank, recompute, budget);
                assert_eq!(other.graph().exchanges, first.graph().exchanges, "{name} {recompute:?} {rank}");
                assert_eq!(repeated(&other), repeated(&first), "{name} {recompute:?} {rank}");
            }
        }
    }
}

/// Each rank keeps 1/N of the parameters, and has at most two buckets and a half of them as a whole while it computes: the
/// largest layer of gpt2 is its embedding, a bucket by itself. They are sent three times where gradients and sums are sent twice.
#[test]
fn sharded_parameters_are_whole_only_while_they_are_read() {
    let bucket = Bytes(8 << 20);
    for ranks in [2, 4, 8] {
        let plan = |shard| {
            let parallel = Parallel { bucket, ..sharded(0, ranks, shard) };
            plan("gpt2", 1, ranks, parallel).expect("planned")
        };
        let [optimizer, parameters] = [Shard::Optimizer, Shard::Parameters].map(plan);
        let lasting = |plan: &Plan| plan.program.persistent_bytes();
        let all: u64 = optimizer.graph().parameters.iter().map(|param| 4 * param.shape().numel()).sum();
        let (kept, most) = (lasting(&optimizer) - lasting(&parameters), all - all / u64::from(ranks));
        assert!(kept <= most && kept >= most - all / 100, "{} of {}", Bytes(kept), Bytes(all));
        whole_only_while_they_are_read(&parameters, bucket);
        let sent = parameters.wire_bytes() as f64 / optimizer.wire_bytes() as f64;
        assert!((1.4..1.75).contains(&sent), "{sent}");
        let total = |plan: &Plan| plan.footprint().total();
        assert!(total(&parameters) < total(&optimizer), "{ranks}");
    }
}

/// With recomputation as without, gradients leave during the backward pass.
#[test]
fn recomputation_on_several_ranks_takes_less_memory() {
    let step = Model::named("gpt2", 0).and_then(|model| model.train_step(1)).expect("valid");
    let limits = Limits::named("nvidia").expect("a preset");
    for shard in [Shard::None, Shard::Optimizer, Shard::Parameters] {
        let peak = |recompute| {
            let parallel = sharded(0, 4, shard);
            let options = PlanOptions { accumulate: 4, parallel, recompute, ..PlanOptions::default() };
            step.plan(&options, &limits).expect("planned").peak_bytes()
        };
        let [kept, recomputed] = [Recompute::Off, Recompute::Every(1)].map(peak);
        assert!(recomputed < kept - kept / 8, "{shard:?}: {} and {}", Bytes(kept), Bytes(recomputed));
    }
}

/// With recomputation as without, the shares of gradients are not kept to the end of the step.
#[test]
fn sharded_updates_run_during_the_backward_pass() {
    let params = Params::new(0);
    let layers: Vec<Linear> = (0..16).map(|i| Linear::new(&params.scope(i), 512, 512)).collect();
    let step = TrainStep::trace(&params, |trace| {
        let x = layers.iter().fold(trace.input("x", [4, 512]), |x, layer| x.apply(layer).relu());
        x.square().mean(&[])
    });
    let step = step.expect("valid");
    let limits = Limits::named("nvidia").expect("a preset");
    for recompute in [Recompute::Off, Recompute::Every(1)] {
        let parallel = Parallel { bucket: Bytes(BUCKET), ..sharded(0, 2, Shard::Parameters) };
        let options = PlanOptions { accumulate: 2, parallel, recompute, ..PlanOptions::default() };
        let plan = step.plan(&options, &limits).expect("planned");
        let order: Vec<&str> = plan.program.order.iter().map(|&n| plan.graph().nodes[n].op.kind()).collect();
        let last = order.iter().rposition(|kind| *kind == "matmul").expect("products");
        let early = order[..last].iter().filter(|kind| **kind == "adamw").count();
        assert!(early >= layers.len() - 4, "{recompute:?}: {early} updates before the last product");
    }
}

#[test]
fn sharding_is_the_first_way_to_fit_a_budget() {
    let limits = Limits::named("nvidia").expect("a preset");
    let step = |samples| Model::named("gpt-nano", 0)?.train_step(samples);
    let options = PlanOptions { accumulate: 4, parallel: parallel(0, 4), ..PlanOptions::default() };
    let whole = step(1).and_then(|step| step.plan(&options, &limits)).expect("planned").footprint().total();
    let budget = Bytes(whole - whole / 50);
    let fitted = fit(step, 1, &options, budget, &limits).expect("it fits");
    assert_eq!(fitted.changes, ["shard optimizer"]);
    assert!(fitted.exact && fitted.plan.footprint().total() <= budget.0);
    let found = levers(step, 1, &options, budget, &limits).expect("planned");
    let shard = found.iter().find(|lever| lever.name == "shard optimizer").expect("a lever");
    assert_eq!(shard.saved_bytes, whole - fitted.plan.footprint().total());
    let more = found.iter().find(|lever| lever.name == "shard parameters").expect("a lever");
    // They cross the wire twice more.
    assert!(more.saved_bytes > shard.saved_bytes && more.time_fraction > shard.time_fraction);
    let error = step(1).and_then(|step| step.plan(&PlanOptions { budget: Some(budget), ..options }, &limits));
    assert!(error.expect_err("too much").to_string().contains("`parallel.shard: Shard::Optimizer`"));
}

/// Where parameters alone take most of what there is, their shares fit.
#[test]
fn parameters_are_sharded_where_nothing_else_fits() {
    let limits = Limits::named("nvidia").expect("a preset");
    let step = |samples| Model::named("mlp", 0)?.train_step(samples);
    let options = PlanOptions { accumulate: 8, parallel: parallel(0, 8), ..PlanOptions::default() };
    let planned = |shard| {
        let options = PlanOptions { parallel: sharded(0, 8, shard), ..options };
        step(1).and_then(|step| step.plan(&options, &limits)).expect("planned").footprint().total()
    };
    let budget = Bytes(planned(Shard::Parameters));
    let fitted = fit(step, 1, &options, budget, &limits).expect("it fits");
    assert_eq!(fitted.changes, ["shard parameters"]);
    assert!(fitted.exact && fitted.plan.footprint().total() <= budget.0);
}

#[test]
fn optimizers_that_update_rows_as_a_whole_are_not_sharded() {
    let step = Model::named("mlp", 0).expect("known").train_step(8).expect("valid");
    let limits = Limits::named("nvidia").expect("a preset");
    let shards = [Shard::Optimizer, Shard::Parameters];
    for (name, shard) in Optimizer::NAMES.into_iter().flat_map(|name| shards.map(|shard| (name, shard))) {
        let optimizer = Optimizer::named(name).expect("known");
        let options = PlanOptions {
            optimizer,
            accumulate: 2,
            parallel: sharded(0, 2, shard),
            ..PlanOptions::default()
        };
        match step.plan(&options, &limits) {
            Ok(_) => assert!(
                !["adafactor", "adam-mini", "muon", "apollo", "apollo-mini"].contains(&name),
                "{name}"
            ),
            Err(error) => {
                assert!(error.to_string().contains("as a whole, which ranks cannot share"), "{error}")
            }
        }
    }
}

/// In each round the ranks with parts left have one, in their order.
#[test]
fn shares_cut_the_batch_into_parts_of_all_ranks() {
    for (list, parts) in [(&[3, 1][..], 4), (&[1, 3], 8), (&[2, 5, 1], 8), (&[1, 1, 1], 6)] {
        let (shares, ranks) = (Shares::of(list).expect("shares"), list.len() as u32);
        let own = |rank| Parallel { shares, ..Parallel::of(rank, ranks) }.parts(parts);
        let mut all: Vec<u32> = (0..ranks).flat_map(own).collect();
        all.sort_unstable();
        assert_eq!(all, (0..parts).collect::<Vec<_>>(), "{shares}");
    }
    let own =
        |rank| Parallel { shares: Shares::of(&[1, 3]).expect("shares"), ..Parallel::of(rank, 2) }.parts(4);
    assert_eq!([own(0), own(1)], [vec![0], vec![1, 2, 3]]);
}

#[test]
fn shares_by_memory_give_each_part_to_the_rank_with_most_for_it() {
    let by = |sizes: &str, parts| Shares::named(sizes, parts).map(|shares| shares.to_string());
    assert_eq!(by("24GB,8GB", 4).expect("shared out"), "3,1");
    assert_eq!(by("24GB,8GB", 8).expect("shared out"), "6,2");
    assert_eq!(by("8GB, 24GB, 12GB", 11).expect("shared out"), "2,6,3");
    assert_eq!(by("24GB,1MB", 5).expect("shared out"), "4,1");
    assert_eq!(by("8GB,8GB", 4).expect("shared out"), "2,2");
    assert_eq!(by("3,1", 4).expect("given"), "3,1");
    assert_eq!(by("even", 4).expect("given"), "even");
    for (text, parts, why) in [
        ("24GB,8GB", 1, "1 parts for 2 ranks"),
        ("24GB,0B", 4, "rank 1 has no memory"),
        ("3,", 4, "such as 3,1 or 24GB,8GB"),
        ("auto", 4, "expected even, or for each rank"),
        ("3,0", 4, "a share of 0 for rank 1"),
        ("300,1", 301, "a share of 300 for rank 0"),
    ] {
        let error = by(text, parts).expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(Shares::of(&[1; 65]).expect_err("too many").to_string().contains("from 1 to 64 ranks"));
}

/// A rank with fewer parts sends as much less, and holds the inputs of its own.
#[test]
fn ranks_with_fewer_parts_send_and_hold_less() {
    let shares = Shares::of(&[3, 1]).expect("shares");
    for shard in [Shard::None, Shard::Optimizer] {
        let of = |rank| plan("mlp", 8, 4, Parallel { shares, shard, ..parallel(rank, 2) }).expect("planned");
        let plans = [of(0), of(1)];
        let even = plan("mlp", 8, 2, Parallel { shard, ..parallel(0, 2) }).expect("planned");
        let sent = |plan: &Plan| plan.wire_bytes() as f64;
        // A round of gradients and the sums or parameters that come back are as many words each.
        let [three, one] = [&plans[0], &plans[1]].map(|plan| sent(plan) / (sent(&even) / 2.0));
        assert!((three - 4.0).abs() < 0.02 && (one - 2.0).abs() < 0.02, "{shard:?}: {three} and {one}");
        let [more, less] = [&plans[0], &plans[1]].map(|plan| plan.footprint().total());
        assert!(less < more, "{shard:?}: {} and {}", Bytes(less), Bytes(more));
        assert_eq!(plans[0].graph().exchanges, plans[1].graph().exchanges);
    }
}

#[test]
fn shares_that_do_not_go_with_the_step_are_refused() {
    let shares = Shares::of(&[3, 1]).expect("shares");
    let error = |accumulate, parallel| plan("mlp", 8, accumulate, parallel).expect_err("refused").to_string();
    let uneven = Parallel { shares, ..parallel(0, 2) };
    assert!(error(6, uneven).contains("set `accumulate` to a multiple of their sum, such as 8"));
    assert!(error(4, Parallel { shares, ..parallel(0, 4) }).contains("are of 2 ranks, of 4 that there are"));
    let sharded = error(4, Parallel { shard: Shard::Parameters, ..uneven });
    assert!(sharded.contains("shard the optimizer's state alone"), "{sharded}");
}

fn together(rank: u32, ranks: u32) -> Parallel {
    Parallel { tensor: ranks, ..Parallel::of(rank, ranks) }
}

/// Weights of blocks, their state and what lies between their products are split; embeddings, norms and the residual stream
/// are on all ranks.
#[test]
fn ranks_that_compute_layers_together_hold_parts_of_them() {
    let blocks = |plan: &Plan| -> u64 {
        let graph = plan.graph();
        let own = |value: &&Value| value.class.is_persistent() && value.name.contains(".h.");
        graph.values.iter().filter(own).map(Value::bytes).sum()
    };
    let whole = plan("gpt2", 1, 1, Parallel::default()).expect("planned");
    for ranks in [2, 4] {
        let plans = [0, ranks - 1].map(|rank| plan("gpt2", 1, 1, together(rank, ranks)).expect("planned"));
        assert_eq!(plans[0].footprint(), plans[1].footprint());
        let share = blocks(&plans[0]) as f64 / blocks(&whole) as f64 * f64::from(ranks);
        assert!((1.0..1.01).contains(&share), "{share} of 1/{ranks} of the blocks");
        assert!(plans[0].footprint().total() < whole.footprint().total());
        // Two sums of the residual stream in each block and direction, each a scatter and a gather.
        assert_eq!(plans[0].graph().exchanges.len(), 12 * 2 * 2 * 2);
    }
}

/// Neither `fit` nor `levers` shards where layers are split, or parameters where shares differ, and `levers` tries no optimizer
/// that the ranks cannot share.
#[test]
fn what_does_not_go_together_is_no_way_to_fit() {
    let limits = Limits::named("nvidia").expect("a preset");
    let model = Model::named("gpt-nano", 0).expect("known");
    let trace = |samples: usize| model.train_step(samples);
    let uneven = Parallel { shares: Shares::of(&[3, 1]).expect("shares"), ..parallel(0, 2) };
    let sharded = sharded(0, 2, Shard::Optimizer);
    for (parallel, accumulate) in [(together(0, 2), 1), (uneven, 4), (sharded, 2)] {
        let options = PlanOptions { parallel, accumulate, ..PlanOptions::default() };
        let total =
            trace(8).and_then(|step| step.plan(&options, &limits)).expect("planned").footprint().total();
        let budget = Bytes(total / 2);
        let fitted = fit(trace, 8, &options, budget, &limits).expect("it fits");
        assert!(fitted.plan.footprint().total() <= budget.0 && !fitted.changes.is_empty());
        let found = levers(trace, 8, &options, budget, &limits).expect("planned");
        let tensor = parallel.tensor > 1;
        assert!(found.iter().any(|lever| lever.name.starts_with("optimizer ")));
        assert!(!tensor || found.iter().all(|lever| lever.name != "optimizer adam8bit"));
        let shards: Vec<&str> =
            found.iter().map(|lever| &lever.name[..]).filter(|name| name.starts_with("shard")).collect();
        match (tensor, parallel.shard) {
            (false, Shard::None) => assert_eq!(shards, ["shard optimizer"]),
            (false, _) => assert!(!shards.contains(&"shard optimizer"), "{shards:?}"),
            (true, _) => assert!(shards.is_empty(), "{shards:?}"),
        }
    }
}

/// Sums over ranks cannot be recomputed. Rules keep the results computed from them where these have no more bytes.
#[test]
fn recomputation_keeps_results_computed_from_sums_over_ranks() {
    let limits = Limits::named("nvidia").expect("a preset");
    let sizes = ModelOptions { seq: Some(256), ..ModelOptions::default() };
    let step = Model::with_options("llama-3.2-1b", 0, &sizes).and_then(|model| model.train_step(1));
    let step = step.expect("valid");
    let kept_of = |precision: Precision, offload: Offload| {
        let recompute = Recompute::Every(1);
        let options =
            PlanOptions { precision, offload, recompute, parallel: together(0, 2), ..PlanOptions::default() };
        kept(&step.plan(&options, &limits).expect("planned"))
    };
    for precision in [Precision::F32, Precision::Bf16] {
        for offload in [Offload::OFF, Offload::ACTIVATIONS] {
            let found = kept_of(precision, offload);
            // Of 16 blocks the last one is not recomputed.
            let sums = found.iter().find(|kept| kept.op == "receive").map_or(0, |kept| kept.tensors);
            assert!(sums <= 2, "{precision:?}, {offload:?}: {found:?}");
        }
    }
}

#[test]
fn ranks_that_cannot_compute_layers_together_are_refused() {
    let error = |model, parallel| plan(model, 4, 1, parallel).expect_err("refused").to_string();
    assert!(error("cnn", together(0, 2)).contains("no layer can be split over 2 ranks"));
    assert!(error("mlp", Parallel { tensor: 2, ..Parallel::of(0, 4) }).contains("tensor 2 of 4 ranks"));
    let options =
        PlanOptions { parallel: together(0, 2), weights: WeightStorage::Bf24, ..PlanOptions::default() };
    let step = Model::named("mlp", 0).and_then(|model| model.train_step(4)).expect("valid");
    let limits = Limits::named("nvidia").expect("a preset");
    let refused = step.plan(&options, &limits).expect_err("refused").to_string();
    assert!(refused.contains("weights in bf24"), "{refused}");
    let sharded = Parallel { shard: Shard::Optimizer, ..together(0, 2) };
    assert!(error("mlp", sharded).contains("with `shard`"));
    let shares = Shares::of(&[1, 1]).expect("shares");
    assert!(error("mlp", Parallel { shares, ..together(0, 2) }).contains("with `shares`"));
    let step = Model::named("mlp", 0).and_then(|model| model.train_step(4)).expect("traced");
    let limits = Limits::named("nvidia").expect("a preset");
    for name in Optimizer::NAMES {
        let optimizer = Optimizer::named(name).expect("known");
        let options = PlanOptions { optimizer, parallel: together(0, 2), ..PlanOptions::default() };
        let whole = ["adafactor", "adam-mini", "muon", "apollo", "apollo-mini", "adam8bit", "adam4bit"];
        let refused = whole.contains(&name);
        assert_eq!(step.plan(&options, &limits).is_err(), refused, "{name}");
    }
}

#[test]
fn ranks_that_do_not_divide_the_parts_are_refused() {
    let error = |accumulate, parallel| plan("mlp", 8, accumulate, parallel).expect_err("refused").to_string();
    assert!(error(6, parallel(0, 4)).contains("set `accumulate` to a multiple of the ranks, such as 8"));
    assert!(error(1, parallel(0, 2)).contains("such as 2"));
    assert!(error(4, parallel(2, 2)).contains("rank 2 of 2"));
    assert!(error(4, parallel(0, 0)).contains("rank 0 of 0"));
    assert!(error(0, Parallel::default()).contains("accumulate 0"));
}
