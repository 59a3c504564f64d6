//! Several devices in threads of this process: the bits of one.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::networks::{BATCH, STEPS, network, optimizer, run_parts, train};
use crate::support::ranks::{PATIENCE, on_ranks};
use crate::support::{devices, on_each, own_devices};
use wgrad::compile::{Offload, Parallel, Plan, PlanOptions, Recompute, Shard, Shares, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::{DType, FrozenStorage, Precision, Rounding, WeightStorage};
use wgrad::exec::{Debug, Eager, Session, SessionState, local};
use wgrad::graph::LossScale;
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::optim::{Adam4bit, Adam8bit, Clip, Sgd};
use wgrad::{Bytes, Error};

type State = Vec<(String, Vec<f32>)>;

fn options() -> PlanOptions {
    PlanOptions { optimizer: optimizer(), ..PlanOptions::default() }
}

/// Small buckets, so that there are several.
fn parallel(rank: u32, ranks: u32) -> Parallel {
    Parallel { bucket: Bytes(4 << 10), ..Parallel::of(rank, ranks) }
}

fn plan(device: &Device, step: &TrainStep, options: &PlanOptions, parallel: Parallel) -> Plan {
    step.plan(&PlanOptions { parallel, ..*options }, device.limits()).expect("planned")
}

fn assert_equals_one_device(device: &Device, name: &str, options: &PlanOptions, ranks: &[u32]) {
    let ways = [Shard::None, Shard::Optimizer, Shard::Parameters];
    let all = ranks.iter().flat_map(|&ranks| ways.map(|shard| Parallel { shard, ..parallel(0, ranks) }));
    let all = all.filter(|parallel| parallel.ranks > 1 || parallel.shard == Shard::None);
    assert_all_equal_one_device(device, name, options, &all.collect::<Vec<_>>());
}

/// Each of the ways to run the step on several ranks has the losses, parameters and state of one device.
fn assert_all_equal_one_device(device: &Device, name: &str, options: &PlanOptions, ways: &[Parallel]) {
    let step = network(name, BATCH);
    let whole = step.plan(options, device.limits()).expect("planned");
    let wanted = run_parts(device, &whole, options.accumulate, None);
    for way in ways {
        let (ranks, shard, shares) = (way.ranks, way.shard, way.shares);
        let all: Vec<State> = on_ranks(ranks, |rank, transport| {
            let plan = plan(device, &step, options, Parallel { rank, ..*way });
            assert!(ranks == 1 || plan.graph().exchanges.len() > 4, "several buckets");
            run_parts(device, &plan, options.accumulate, Some(transport))
        });
        for (rank, found) in all.iter().enumerate() {
            assert_eq!(wanted.len(), found.len());
            for ((a, wanted), (b, found)) in wanted.iter().zip(found) {
                assert_eq!(a, b);
                let what = format!("{name}, rank {rank} of {ranks}, {shard:?}, {shares:?}: {a}");
                assert_same_bits(&what, wanted, found);
            }
        }
    }
}

/// Exchanges move words, whatever the adapter: cases that take long run on one adapter each, in rotation.
fn on_one(case: usize, body: impl Fn(&Device)) {
    let all = devices();
    on_each(all.get(case % all.len().max(1)).map_or(&[], std::slice::from_ref), body);
}

/// The same network on ranks that compute these numbers of parts.
fn with_shares(shares: &[u32]) -> [Parallel; 2] {
    let shares_of_all = Shares::of(shares).expect("shares");
    [Shard::None, Shard::Optimizer].map(|shard| Parallel {
        shard,
        shares: shares_of_all,
        ..parallel(0, shares.len() as u32)
    })
}

#[test]
fn shares_of_their_own_have_the_bits_of_one() {
    let options = PlanOptions { accumulate: 6, ..options() };
    on_each(devices(), |device| {
        for shares in [&[5, 1][..], &[1, 2], &[1, 3, 2]] {
            assert_all_equal_one_device(device, "mlp", &options, &with_shares(shares));
        }
    });
    let codes = PlanOptions { accumulate: 4, precision: Precision::Int8, ..options };
    on_one(0, |device| assert_all_equal_one_device(device, "gpt", &codes, &with_shares(&[1, 3])));
    let half = PlanOptions {
        clip: Clip::Norm(0.5),
        loss_scale: Some(LossScale::default()),
        precision: Precision::F16,
        ..codes
    };
    on_one(1, |device| assert_all_equal_one_device(device, "cnn", &half, &with_shares(&[3, 1])));
}

/// Adapters of different kinds round differently, so that only ranks with shares of their own may have them.
#[test]
fn ranks_with_shares_of_their_own_may_have_different_adapters() {
    let [first, .., last] = devices() else { return eprintln!("skipped: there is one adapter") };
    let (step, options) = (network("mlp", BATCH), PlanOptions { accumulate: 3, ..options() });
    let whole = run_parts(first, &step.plan(&options, first.limits()).expect("planned"), 3, None);
    for way in with_shares(&[2, 1]) {
        let all: Vec<State> = on_ranks(2, |rank, transport| {
            let device = if rank == 0 { first } else { last };
            run_parts(device, &plan(device, &step, &options, Parallel { rank, ..way }), 3, Some(transport))
        });
        for ((name, wanted), found) in all.iter().flat_map(|all| whole.iter().zip(all)) {
            let shard = way.shard;
            let wanted: Vec<f64> = wanted.iter().map(|x| f64::from(*x)).collect();
            assert_close(&format!("{shard:?}: {name}"), &found.1, &wanted, Near { rel: 1e-4, abs: 1e-5 });
        }
    }
    let options = PlanOptions { accumulate: 2, ..options };
    let outcomes = on_ranks(2, |rank, transport| {
        let device = if rank == 0 { first } else { last };
        let mut session =
            Session::new(device, &plan(device, &step, &options, parallel(rank, 2))).expect("it opens");
        session.set_transport(Box::new(transport))
    });
    let error = same_error(outcomes);
    assert!(
        error.starts_with("rank 1: has adapter ") && error.contains("take `Parallel::shares`"),
        "{error}"
    );
}

#[test]
fn two_four_and_eight_ranks_have_the_bits_of_one() {
    on_each(devices(), |device| {
        let options = PlanOptions { accumulate: 8, ..options() };
        assert_equals_one_device(device, "mlp", &options, &[1, 2, 4, 8]);
    });
}

#[test]
fn parts_that_are_no_power_of_two_have_the_bits_of_one() {
    on_each(devices(), |device| {
        let options = PlanOptions { accumulate: 6, ..options() };
        assert_equals_one_device(device, "mlp", &options, &[2, 3, 6]);
    });
}

#[test]
fn running_statistics_are_those_of_one_device() {
    on_each(devices(), |device| {
        let options = PlanOptions { accumulate: 8, ..options() };
        assert_equals_one_device(device, "cnn", &options, &[2, 4, 8]);
    });
}

#[test]
fn clipping_loss_scale_and_fewer_bits_have_the_bits_of_one() {
    let half = PlanOptions {
        accumulate: 4,
        clip: Clip::Norm(0.5),
        loss_scale: Some(LossScale::default()),
        precision: Precision::F16,
        ..options()
    };
    on_each(devices(), |device| assert_equals_one_device(device, "cnn", &half, &[2, 4]));
    // Each part of the batch has draws of its own, whichever rank computes it.
    let codes = PlanOptions { precision: Precision::Int4, loss_scale: None, ..half };
    on_one(1, |device| assert_equals_one_device(device, "cnn", &codes, &[2, 4]));
}

/// Gradients of rows that are looked up are exchanged in place of gradients of tables.
#[test]
fn lookups_have_the_bits_of_one() {
    let clipped = PlanOptions { accumulate: 4, clip: Clip::Norm(0.5), ..options() };
    let half = PlanOptions {
        clip: Clip::Off,
        loss_scale: Some(LossScale::default()),
        precision: Precision::F16,
        weights: WeightStorage::Bf16(Rounding::Stochastic),
        ..clipped
    };
    on_each(devices(), |device| {
        let options = PlanOptions { accumulate: 8, ..options() };
        assert_equals_one_device(device, "tables", &options, &[2, 8]);
        let [whole, parts] = [(8 * BATCH, 1), (BATCH, 8)].map(|(samples, accumulate)| {
            let options = PlanOptions { accumulate, ..options };
            let plan = network("tables", samples).plan(&options, device.limits()).expect("planned");
            run_parts(device, &plan, accumulate, None)
        });
        for ((name, whole), (_, parts)) in whole.iter().zip(&parts) {
            let whole: Vec<f64> = whole.iter().map(|x| f64::from(*x)).collect();
            assert_close(name, parts, &whole, Near { rel: 1e-4, abs: 1e-5 });
        }
    });
    on_one(0, |device| assert_equals_one_device(device, "tables", &clipped, &[2, 4]));
    on_one(1, |device| assert_equals_one_device(device, "tables", &half, &[2]));
    on_one(0, |device| assert_all_equal_one_device(device, "tables", &clipped, &with_shares(&[3, 1])));
}

#[test]
fn recomputation_has_the_bits_of_one() {
    on_each(devices(), |device| {
        let options = PlanOptions { accumulate: 2, recompute: Recompute::Every(1), ..options() };
        assert_equals_one_device(device, "resnet", &options, &[2]);
    });
}

#[test]
fn transformers_with_dropout_have_the_bits_of_one() {
    let options = PlanOptions { accumulate: 4, clip: Clip::Norm(1.0), ..options() };
    on_each(devices(), |device| assert_equals_one_device(device, "gpt", &options, &[2, 4]));
    let eight = PlanOptions { accumulate: 8, ..options };
    on_each(devices(), |device| assert_equals_one_device(device, "gpt", &eight, &[8]));
    let half = PlanOptions { precision: Precision::Bf16, recompute: Recompute::Sqrt, ..options };
    on_one(0, |device| assert_equals_one_device(device, "gpt", &half, &[2]));
    let codes = PlanOptions { precision: Precision::Int8, ..half };
    on_one(1, |device| assert_equals_one_device(device, "gpt", &codes, &[2]));
}

/// The state of blocks, of weights in 16 bits rounded by chance, in the host's memory; steps that are skipped because a
/// gradient overflows, which not every rank sees.
#[test]
fn sharded_state_of_every_kind_has_the_bits_of_one() {
    let half = WeightStorage::Bf16(Rounding::Stochastic);
    let blocks =
        PlanOptions { optimizer: Adam8bit::default().into(), weights: half, accumulate: 4, ..options() };
    let away = PlanOptions { offload: Offload { optimizer: true, ..Offload::OFF }, ..blocks };
    let overflow = LossScale { start: 2f32.powi(24), interval: 2 };
    let skipped = PlanOptions { loss_scale: Some(overflow), precision: Precision::F16, ..blocks };
    let four = PlanOptions { optimizer: Adam4bit::default().into(), ..blocks };
    let corrected = PlanOptions { weights: WeightStorage::Bf24, ..away };
    for (case, options) in [blocks, away, skipped, four, corrected].iter().enumerate() {
        on_one(case, |device| assert_equals_one_device(device, "wide", options, &[2, 4]));
    }
}

/// Adapters of weights that are not trained, in each format of these: each rank has a share of them.
#[test]
fn sharded_frozen_parameters_have_the_bits_of_one() {
    let options = PlanOptions { accumulate: 4, clip: Clip::Norm(1.0), ..options() };
    let half = PlanOptions { precision: Precision::Bf16, recompute: Recompute::Every(1), ..options };
    for (case, storage) in FrozenStorage::ALL.into_iter().enumerate() {
        let kind = if case % 2 == 0 { "lora" } else { "dora" };
        let name = format!("{kind} {}", storage.name());
        let (options, ranks) = if storage == FrozenStorage::Nf4 { (&half, 4) } else { (&options, 2) };
        let way = Parallel { shard: Shard::Parameters, ..parallel(0, ranks) };
        on_one(case, |device| {
            let plan = plan(device, &network(&name, BATCH), options, way);
            let mut sharded = plan.graph().sharded.iter();
            assert!(sharded.any(|bucket| bucket.dtype == storage.dtype()), "{name}");
            assert_all_equal_one_device(device, &name, options, &[way]);
        });
    }
}

/// Three of four ranks have no element of the one weight to update.
#[test]
fn a_rank_without_gradients_checks_for_overflow_with_the_others() {
    let options = PlanOptions { accumulate: 4, loss_scale: Some(LossScale::default()), ..options() };
    let (device, step) = (&devices()[0], network("one weight", BATCH));
    let whole = step.plan(&options, device.limits()).expect("planned");
    let wanted = run_parts(device, &whole, options.accumulate, None);
    for shard in [Shard::Optimizer, Shard::Parameters] {
        let all = on_ranks(4, |rank, transport| {
            let plan = plan(device, &step, &options, Parallel { shard, ..parallel(rank, 4) });
            run_parts(device, &plan, options.accumulate, Some(transport))
        });
        assert!(all.iter().all(|found| *found == wanted), "{shard:?}");
    }
}

/// What a run on four ranks made goes on on two, and on one device, with the same bits.
#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    on_each(devices(), |device| {
        let (step, options) = (network("cnn", BATCH), PlanOptions { accumulate: 4, ..options() });
        let goes_on =
            |state: Option<&SessionState>, (ranks, shard): (u32, Shard), steps: std::ops::Range<u64>| {
                let mut all = on_ranks(ranks, |rank, transport| {
                    let plan = plan(device, &step, &options, Parallel { shard, ..parallel(rank, ranks) });
                    let mut session = Session::new(device, &plan).expect("it opens");
                    if let Some(state) = state {
                        session.set_state(state).expect("the same model");
                    }
                    session.set_transport(Box::new(transport)).expect("the ranks agree");
                    train(&mut session, &plan, options.accumulate, steps.clone());
                    session.state().expect("read")
                });
                assert!(all.iter().all(|state| *state == all[0]), "{ranks} ranks");
                all.remove(0)
            };
        let whole = goes_on(None, (1, Shard::None), 0..STEPS as u64);
        for shard in [Shard::None, Shard::Optimizer, Shard::Parameters] {
            let four = goes_on(None, (4, shard), 0..2);
            for ranks in [(1, Shard::None), (2, Shard::None), (2, Shard::Optimizer), (2, Shard::Parameters)] {
                assert_eq!(goes_on(Some(&four), ranks, 2..STEPS as u64), whole, "{shard:?}, on {ranks:?}");
            }
        }
    });
}

/// Returns the errors of two ranks, which must be the same.
fn same_error(outcomes: Vec<Result<(), Error>>) -> String {
    let errors: Vec<Error> = outcomes.into_iter().map(|outcome| outcome.expect_err("it ends")).collect();
    assert!(errors.iter().all(|error| matches!(error, Error::Rank { .. })), "{errors:?}");
    assert!(errors.iter().all(|error| error.to_string() == errors[0].to_string()), "{errors:?}");
    errors[0].to_string()
}

#[test]
fn ranks_that_differ_do_not_start() {
    let device = &devices()[0];
    let options = PlanOptions { accumulate: 3, ..options() };
    let ends = |what: &str, open: &(dyn Fn(u32) -> Session + Sync)| {
        let outcomes = on_ranks(3, |rank, transport| open(rank).set_transport(Box::new(transport)));
        let error = same_error(outcomes);
        assert!(error.starts_with(&format!("rank 2: has {what} ")), "{error}");
        assert!(error.contains("rank 0 has"), "{error}");
    };
    let open = |name: &str, options: &PlanOptions, rank: u32| {
        let plan = plan(device, &network(name, BATCH), options, parallel(rank, 3));
        Session::new(device, &plan).expect("it opens")
    };
    ends("steps", &|rank| {
        let mut session = open("mlp", &options, rank);
        session.set_steps(u64::from(rank == 2));
        session
    });
    ends("parameters", &|rank| {
        let mut session = open("mlp", &options, rank);
        if rank == 2 {
            let name = session.plan(wgrad::exec::ProgramId(0)).expect("there").graph().parameters[0]
                .name()
                .to_owned();
            let mut data = session.parameter(&name).expect("there");
            data[0] += 1.0;
            session.set_parameter(&name, &data).expect("of that size");
        }
        session
    });
    ends("seed", &|rank| {
        let step = Model::named("mlp", u64::from(rank == 2)).and_then(|model| model.train_step(1));
        Session::new(device, &plan(device, &step.expect("valid"), &options, parallel(rank, 3)))
            .expect("it opens")
    });
    ends("plan", &|rank| open(if rank == 2 { "cnn" } else { "mlp" }, &options, rank));
    let other = PlanOptions { optimizer: Sgd { lr: 0.5, momentum: 0.9, ..Sgd::default() }.into(), ..options };
    ends("plan", &|rank| open("mlp", if rank == 2 { &other } else { &options }, rank));
}

#[test]
fn a_rank_that_ends_in_the_middle_ends_all() {
    let device = &devices()[0];
    let options = PlanOptions { accumulate: 3, ..options() };
    let step = network("mlp", BATCH);
    let trained = std::sync::Barrier::new(3);
    let outcomes = on_ranks(3, |rank, transport| {
        let plan = plan(device, &step, &options, parallel(rank, 3));
        let mut session = Session::new(device, &plan).expect("it opens");
        session.set_transport(Box::new(transport)).expect("the ranks agree");
        train(&mut session, &plan, 3, 0..2);
        // A rank that fails ends the others at once, even with what they have yet to receive.
        trained.wait();
        if rank == 1 {
            return None;
        }
        // The inputs are those of the step before.
        Some(session.step().and_then(|()| session.step()))
    });
    let error = same_error(outcomes.into_iter().flatten().collect());
    assert!(error.starts_with("rank 1: ended before the others"), "{error}");
}

#[test]
fn an_error_of_one_rank_is_that_of_all() {
    let options = PlanOptions { accumulate: 2, ..options() };
    let step = network("mlp", BATCH);
    let opened: Vec<Device> = [own_devices(), own_devices()].map(|mut devices| devices.remove(0)).into();
    let outcomes = on_ranks(2, |rank, transport| {
        let device = &opened[rank as usize];
        let plan = plan(device, &step, &options, parallel(rank, 2));
        let mut session = Session::new(device, &plan).expect("it opens");
        session.set_transport(Box::new(transport)).expect("the ranks agree");
        train(&mut session, &plan, 2, 0..1);
        if rank == 1 {
            device.wgpu_device().destroy();
        }
        session.step()
    });
    let error = same_error(outcomes);
    assert!(error.starts_with("rank 1: the device was lost"), "{error}");
}

/// If the loss becomes NaN, all ranks stop with the same error, which names the rank whose samples caused it.
#[test]
fn a_loss_that_is_not_finite_names_its_rank() {
    let (device, step) = (&devices()[0], network("mlp", BATCH));
    for (shares, wrong) in [([1, 1, 1], Some(1)), ([1, 1, 1], None), ([2, 1, 1], Some(2))] {
        let parts = shares.iter().sum();
        let options = PlanOptions { accumulate: parts, ..options() };
        let outcomes = on_ranks(3, |rank, transport| {
            let shares = Shares::of(&shares).expect("shares");
            let plan = plan(device, &step, &options, Parallel { shares, ..parallel(rank, 3) });
            let mut session = Session::new(device, &plan).expect("it opens");
            session.set_accept_non_finite(true);
            session.set_transport(Box::new(transport)).expect("the ranks agree");
            train(&mut session, &plan, parts, 0..1);
            let input =
                plan.graph().inputs().find(|(_, value)| value.dtype == DType::F32 && value.indices.is_none());
            let (_, input) = input.expect("images");
            let wrong = wrong.is_none_or(|wrong| wrong == rank);
            let value = if wrong { f32::NAN } else { 0.5 };
            session.feed(&input.name, &vec![value; input.shape.numel() as usize]).expect("accepted");
            session.step().and_then(|()| session.loss()).expect_err("NaN")
        });
        let error = same_error(outcomes.into_iter().map(Err).collect());
        let rank = wrong.unwrap_or(0);
        assert!(error.starts_with(&format!("rank {rank}: the loss became NaN at step 1")), "{error}");
        assert_eq!(error.contains(&format!(", on the samples of rank {rank};")), wrong.is_some(), "{error}");
    }
}

#[test]
fn an_evaluation_beside_sharded_parameters_has_their_shares() {
    let device = &devices()[0];
    let model = Model::named("mlp", 0).expect("known");
    let forward = model.forward(8).and_then(|forward| forward.plan(device.limits())).expect("planned");
    let shard = Shard::Parameters;
    let options = PlanOptions { accumulate: 2, parallel: Parallel { shard, ..parallel(1, 2) }, ..options() };
    let train = model.train_step(8).and_then(|step| step.plan(&options, device.limits())).expect("planned");
    let error = Session::with_plans(device, &[&train, &forward], Debug::default()).err().expect("refused");
    assert!(matches!(&error, Error::PlanMismatch(why) if why.contains("Forward::plan_beside")), "{error}");
    let forward =
        model.forward(8).and_then(|forward| forward.plan_beside(&train, WeightStorage::F32, device.limits()));
    Session::with_plans(device, &[&train, &forward.expect("planned")], Debug::default())
        .expect("the same shares");
}

#[test]
fn plans_of_ranks_are_refused_where_they_cannot_run() {
    let device = &devices()[0];
    let options = PlanOptions { accumulate: 2, ..options() };
    let plan = plan(device, &network("mlp", BATCH), &options, parallel(1, 2));
    let error = Eager::new(device, &plan, PoolOptions::default()).err().expect("refused");
    assert!(matches!(error, Error::PlanMismatch(_)), "{error}");
    let mut session = Session::new(device, &plan).expect("it opens");
    for (_, input) in plan.graph().inputs().filter(|(_, value)| value.name != wgrad::graph::STEP_SCALARS) {
        let zeros = vec![0; input.shape.numel() as usize];
        match input.indices {
            Some(_) => session.feed(&input.name, &zeros).expect("valid"),
            None => session.feed(&input.name, &vec![0.0; zeros.len()]).expect("valid"),
        }
    }
    let error = session.step().expect_err("it has no transport");
    assert!(matches!(&error, Error::NotReady(message) if message.contains("set_transport")), "{error}");
    let mut others = local(2, PATIENCE);
    let error = session.set_transport(Box::new(others.remove(0))).expect_err("the plan of another rank");
    assert!(
        error.to_string().contains("the plan is for rank 1 of 2, the transport is rank 0 of 2"),
        "{error}"
    );
}
