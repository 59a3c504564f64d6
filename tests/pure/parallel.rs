//! Plans of several ranks: what each computes, holds and sends.

use wgrad::compile::{Parallel, Plan, PlanOptions};
use wgrad::limits::Limits;
use wgrad::models::Model;
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

#[test]
fn ranks_that_do_not_divide_the_parts_are_refused() {
    let error = |accumulate, parallel| plan("mlp", 8, accumulate, parallel).expect_err("refused").to_string();
    assert!(error(6, parallel(0, 4)).contains("set `accumulate` to a multiple of the ranks, such as 8"));
    assert!(error(1, parallel(0, 2)).contains("such as 2"));
    assert!(error(4, parallel(2, 2)).contains("rank 2 of 2"));
    assert!(error(4, parallel(0, 0)).contains("rank 0 of 0"));
    assert!(error(0, Parallel::default()).contains("accumulate 0"));
}
