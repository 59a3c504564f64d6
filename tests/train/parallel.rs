//! Trainers on several ranks: order of samples, metrics and checkpoints of one device, bit for bit.

use std::path::Path;
use std::sync::Arc;

use super::resume::{StopAt, open};
use crate::support::devices;
use crate::support::digits::digits;
use crate::support::folder::{Folder, names};
use crate::support::ranks::on_ranks;
use wgrad::compile::{Parallel, PlanOptions, Shard};
use wgrad::data::{Loader, Subset};
use wgrad::device::Device;
use wgrad::exec::{LocalTransport, OnOom};
use wgrad::graph::{Params, Tensor};
use wgrad::nn::Linear;
use wgrad::train::{Callback, Checkpoint, Epoch, StepProgress, Task, TrainOptions, Trainer};
use wgrad::{Error, Result};

const PARTS: u32 = 4;

/// Four batches, the last one smaller: 100, 100, 100 and 40 samples.
fn loader(samples: usize) -> Loader {
    let (some, _) = digits().split(0.2, 0);
    Loader::new(Arc::new(Subset::evenly(Arc::new(some), samples)), 100).expect("a batch").shuffled(4)
}

fn trainer(device: &Device, loader: Loader, parallel: Parallel, on_oom: OnOom) -> Result<Trainer> {
    let plan = PlanOptions { accumulate: PARTS, parallel, ..PlanOptions::default() };
    open(device, loader, &TrainOptions { plan, on_oom, ..TrainOptions::default() })
}

/// Trains on each of some ranks, after loading `from`, and returns what each has in the end: the last epoch, and a hash of
/// its parameters.
fn train(
    device: &Device,
    (ranks, shard): (u32, Shard),
    epochs: u64,
    from: Option<&Path>,
    to: &Path,
) -> Vec<(Epoch, u64)> {
    let (_, test) = digits().split(0.9, 0);
    let one = |rank: u32, transport: LocalTransport| {
        let mut trainer =
            trainer(device, loader(340), Parallel { shard, ..Parallel::of(rank, ranks) }, OnOom::Fail)
                .expect("it opens");
        if ranks > 1 {
            trainer.set_transport(Box::new(transport)).expect("the ranks agree");
        }
        if let Some(from) = from {
            trainer.load(from).expect("a checkpoint");
        }
        let mut checkpoint = Checkpoint { path: to.to_owned(), last: 2, ..Checkpoint::default() };
        let end = trainer.fit(epochs, Some(&test), &mut [&mut checkpoint]).expect("it trains");
        (end, trainer.session().parameters_hash().expect("read"))
    };
    on_ranks(ranks, one)
}

#[test]
fn trainers_on_ranks_have_the_bits_of_one_and_go_on_on_other_numbers() {
    let device = &devices()[0];
    let folder = Folder::new("ranks");
    let one = folder.join("one.safetensors");
    let whole = train(device, (1, Shard::None), 3, None, &one).remove(0);
    let path = folder.join("two.safetensors");
    for end in train(device, (2, Shard::Parameters), 2, None, &path) {
        assert!(end.0.metric.is_some());
    }
    // Written once for each epoch, by one rank.
    let written: Vec<String> = names(&folder).into_iter().filter(|name| name.starts_with("two")).collect();
    assert_eq!(written, ["two.1.safetensors", "two.safetensors"]);
    let all = [(1, Shard::None), (2, Shard::None), (2, Shard::Optimizer), (4, Shard::Parameters)];
    for (i, ranks) in all.into_iter().enumerate() {
        let next = folder.join(format!("next{i}.safetensors"));
        for (end, hash) in train(device, ranks, 1, Some(&path), &next) {
            assert_eq!(
                (end.loss.to_bits(), end.metric, hash),
                (whole.0.loss.to_bits(), whole.0.metric, whole.1),
                "{ranks:?}"
            );
        }
        assert!(std::fs::read(&next).expect("written") == std::fs::read(&one).expect("written"), "{ranks:?}");
    }
}

/// The parameters are those of one device within rounding, in the same files, and evaluation runs on all ranks.
#[test]
fn trainers_compute_layers_together() {
    let device = &devices()[0];
    let folder = Folder::new("ranks-together");
    let (_, test) = digits().split(0.9, 0);
    let path = folder.join("two.safetensors");
    let run = |(ranks, tensor): (u32, u32), from: Option<&Path>, to: Option<&Path>| {
        on_ranks(ranks, |rank, transport: LocalTransport| {
            let parallel = Parallel { tensor, ..Parallel::of(rank, ranks) };
            let plan = PlanOptions { accumulate: PARTS, parallel, ..PlanOptions::default() };
            let params = Params::new(1);
            let [first, last] = [("fc1", 64, 16), ("fc2", 16, 10)]
                .map(|(name, inputs, outputs)| Linear::new(&params.scope(name), inputs, outputs));
            let net = |x: &Tensor| x.dropout(0.1).apply(&first).relu().apply(&last);
            let task = Task::classifier(&params, 64, 10, net);
            let options = TrainOptions { plan, ..TrainOptions::default() };
            let mut trainer = Trainer::new(device, task, loader(340), &options).expect("it opens");
            if ranks > 1 {
                trainer.set_transport(Box::new(transport)).expect("the ranks agree");
            }
            from.into_iter().for_each(|from| trainer.load(from).expect("a checkpoint"));
            let hash = trainer.session().parameters_hash().expect("read");
            let mut checkpoint = to.map(|to| Checkpoint { path: to.to_owned(), ..Checkpoint::default() });
            let mut callbacks: Vec<&mut dyn Callback> = Vec::new();
            callbacks.extend(checkpoint.as_mut().map(|checkpoint| checkpoint as &mut dyn Callback));
            let end = trainer.fit(1, Some(&test), &mut callbacks).expect("it trains");
            (end, hash, trainer.session().parameters_hash().expect("read"))
        })
    };
    let one = run((1, 1), None, None).remove(0);
    let two = run((2, 2), None, Some(&path));
    assert_eq!((two[0].0.loss.to_bits(), two[0].2), (two[1].0.loss.to_bits(), two[1].2));
    assert_eq!(two[0].1, one.1, "the same start");
    assert!((two[0].0.loss - one.0.loss).abs() < 1e-4, "{} and {}", two[0].0.loss, one.0.loss);
    let metric = |epoch: &Epoch| epoch.metric.expect("evaluated").value;
    assert!((metric(&two[0].0) - metric(&one.0)).abs() < 0.02);
    for ranks in [(1, 1), (2, 2), (2, 1)] {
        assert_eq!(run(ranks, Some(&path), None)[0].1, two[0].2, "{ranks:?}");
    }
}

/// Ends a rank in the middle of the second epoch.
struct Ends(bool);

impl Callback for Ends {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        match self.0 && progress.epoch == 1 && progress.step == 2 {
            true => Err(Error::NotReady("this rank ends here".to_owned())),
            false => Ok(()),
        }
    }
}

/// The last checkpoint goes on on fewer ranks, with the bits of a run that nothing has ended.
#[test]
fn a_run_that_lost_a_rank_goes_on_from_its_checkpoint() {
    let device = &devices()[0];
    let folder = Folder::new("ranks-lost");
    let whole = train(device, (1, Shard::None), 3, None, &folder.join("whole.safetensors")).remove(0);
    let path = folder.join("lost.safetensors");
    let errors = on_ranks(4, |rank, transport| {
        let parallel = Parallel { shard: Shard::Parameters, ..Parallel::of(rank, 4) };
        let mut trainer = trainer(device, loader(340), parallel, OnOom::Fail).expect("it opens");
        trainer.set_transport(Box::new(transport)).expect("the ranks agree");
        let mut checkpoint = Checkpoint { path: path.clone(), ..Checkpoint::default() };
        trainer.fit(3, None, &mut [&mut checkpoint, &mut Ends(rank == 2)]).expect_err("rank 2 ends")
    });
    for (rank, error) in errors.iter().enumerate() {
        let named = matches!(error, Error::Rank { rank: 2, .. });
        assert!(named != (rank == 2), "rank {rank}: {error}");
    }
    for ranks in [(1, Shard::None), (2, Shard::Optimizer)] {
        for (end, hash) in train(device, ranks, 2, Some(&path), &folder.join("next.safetensors")) {
            assert_eq!((end.loss.to_bits(), hash), (whole.0.loss.to_bits(), whole.1), "{ranks:?}");
        }
    }
}

/// A signal reaches ranks at different moments, or only one of them: all stop after the same step, and the checkpoint goes on.
#[test]
fn a_stop_of_one_rank_stops_all_after_the_same_step() {
    let device = &devices()[0];
    let folder = Folder::new("ranks-stop");
    let whole = train(device, (1, Shard::None), 2, None, &folder.join("whole.safetensors")).remove(0);
    let path = folder.join("stopped.safetensors");
    let errors = on_ranks(2, |rank, transport| {
        let parallel = Parallel { shard: Shard::Optimizer, ..Parallel::of(rank, 2) };
        let mut trainer = trainer(device, loader(340), parallel, OnOom::Fail).expect("it opens");
        trainer.set_transport(Box::new(transport)).expect("the ranks agree");
        let mut checkpoint = Checkpoint { path: path.clone(), every: 100, ..Checkpoint::default() };
        let mut stop = StopAt(if rank == 1 { 2 } else { u64::MAX }, trainer.stop());
        trainer.fit(2, None, &mut [&mut checkpoint, &mut stop]).expect_err("rank 1 stops")
    });
    assert!(errors.iter().all(|error| matches!(error, Error::Stopped { steps: 2 })), "{errors:?}");
    for ranks in [(1, Shard::None), (2, Shard::None)] {
        for (end, hash) in train(device, ranks, 2, Some(&path), &folder.join("next.safetensors")) {
            assert_eq!((end.loss.to_bits(), hash), (whole.0.loss.to_bits(), whole.1), "{ranks:?}");
        }
    }
}

/// All ranks say the same, whichever has other data.
#[test]
fn ranks_with_other_data_do_not_start() {
    let device = &devices()[0];
    let (other, _) = digits().split(0.2, 1);
    let other =
        Loader::new(Arc::new(Subset::evenly(Arc::new(other), 340)), 100).expect("a batch").shuffled(4);
    let cases = [
        (loader(240), "has samples 240, rank 0 has 340"),
        (loader(340).shuffled(5), "has an order of samples of seed 5, rank 0 has of seed 4"),
        (other, "has a first sample with the hash "),
    ];
    for (other, message) in cases {
        let errors = on_ranks(4, |rank, transport| {
            let loader = if rank == 2 { other.clone() } else { loader(340) };
            let parallel = Parallel::of(rank, 4);
            let mut trainer = trainer(device, loader, parallel, OnOom::Fail).expect("it opens");
            trainer.set_transport(Box::new(transport)).expect("the ranks agree");
            trainer.fit(1, None, &mut []).expect_err("rank 2 has other data").to_string()
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        assert!(errors[0].starts_with(&format!("rank 2: {message}")), "{message}: {}", errors[0]);
    }
}

/// Keeps the progress of the last step.
#[derive(Default)]
struct Last(Option<StepProgress>);

impl Callback for Last {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        self.0 = Some(*progress);
        Ok(())
    }
}

/// Bytes of the fullest rank, and the share of time that each waits for the others.
#[test]
fn progress_is_that_of_all_ranks() {
    let device = &devices()[0];
    let of = |ranks: u32| {
        on_ranks(ranks, |rank, transport| {
            let parallel = Parallel { shard: Shard::Parameters, ..Parallel::of(rank, ranks) };
            let mut trainer = trainer(device, loader(200), parallel, OnOom::Fail).expect("it opens");
            if ranks > 1 {
                trainer.set_transport(Box::new(transport)).expect("the ranks agree");
            }
            let mut last = Last::default();
            trainer.fit(2, None, &mut [&mut last]).expect("it trains");
            (trainer.session().device_bytes(), last.0.expect("steps"))
        })
    };
    let (bytes, alone) = of(1).remove(0);
    assert_eq!((alone.device_bytes, alone.waiting), (bytes, None));
    let all = of(2);
    let fullest = all.iter().map(|(bytes, _)| *bytes).max().expect("ranks");
    for (_, progress) in all {
        assert_eq!(progress.device_bytes, fullest);
        assert!(progress.waiting.is_some_and(|share| (0.0..=1.0).contains(&share)), "{progress:?}");
    }
}

#[test]
fn batches_that_cannot_be_cut_and_refits_of_one_rank_are_refused() {
    let device = &devices()[0];
    let error = |samples, ranks, on_oom| {
        trainer(device, loader(samples), Parallel::of(0, ranks), on_oom).err().expect("refused")
    };
    let uneven = error(350, 2, OnOom::Fail).to_string();
    assert!(
        uneven.contains("accumulate 4: it must divide the batch of 100 and the last one of 50"),
        "{uneven}"
    );
    let refit = error(340, 2, OnOom::Refit);
    assert!(matches!(&refit, Error::Setting { name, .. } if name == "on_oom"), "{refit}");
}
