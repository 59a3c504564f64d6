//! Random plan options: those that must not change results, and those with a known effect on results.

use std::collections::BTreeSet;

use super::dice::Dice;
use super::network::{Network, PARTS};
use crate::compile::{Activations, Offload, Parallel, PlanOptions, Recompute, Shard, Shares};
use crate::dtype::{Precision, Rounding, WeightStorage};
use crate::graph::{LossScale, Piece};
use crate::limits::{AdapterClass, Limits};
use crate::optim::{
    Adafactor, Adagrad, Adam, Adam4bit, Adam8bit, AdamMini, AdamW, Apollo, Clip, Lion, Muon, NAdam,
    Optimizer, RAdam, RmsProp, Sgd,
};
use crate::units::Bytes;

/// Bytes of the smallest piece of a parameter that is split.
const PIECE: u64 = 4 * Piece::ELEMENTS as u64;

/// No adapter has smaller bindings.
const SMALL_BINDING: u64 = 64 << 20;

/// Options with the limits that they are planned for.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub options: PlanOptions,
    pub limits: Limits,
    /// Ranks that compute the parts of the batch: with a part each, or with shares of their own.
    pub parallel: Parallel,
}

impl Settings {
    /// Draws every option independently.
    pub(super) fn random(dice: &mut Dice, own: &Limits, fuse_one_in: usize) -> Self {
        let precision = dice.of(&[
            Precision::F32,
            Precision::F32,
            Precision::F32,
            Precision::F16,
            Precision::Bf16,
            Precision::Int8,
            Precision::Int4,
        ]);
        let rounding = dice.of(&[Rounding::Nearest, Rounding::Stochastic]);
        let weights = dice.of(&[
            WeightStorage::F32,
            WeightStorage::F32,
            WeightStorage::F16(rounding),
            WeightStorage::Bf16(rounding),
            WeightStorage::Bf24,
        ]);
        let recompute = dice.of(&[
            Recompute::Off,
            Recompute::Off,
            Recompute::Every(2),
            Recompute::Sqrt,
            Recompute::Policy,
        ]);
        let activations = dice.of(&[Activations::Keep, Activations::Keep, Activations::All]);
        let options = PlanOptions {
            optimizer: optimizer(dice),
            clip: dice.of(&[Clip::Off, Clip::Off, Clip::Value(0.01), Clip::Norm(0.1)]),
            budget: None,
            reuse: !dice.one_in(8),
            guard: dice.one_in(8),
            rebuild: dice.one_in(2),
            fuse: dice.one_in(fuse_one_in),
            bit_masks: dice.one_in(4),
            precision,
            weights,
            recompute,
            accumulate: dice.of(&[1, 1, 2, PARTS as u32]),
            offload: Offload { optimizer: dice.one_in(4), activations },
            loss_scale: dice.one_in(3).then(|| LossScale { start: dice.of(&[1.0, 256.0]), interval: 2 }),
            ..PlanOptions::default()
        };
        let limits = limits(dice, own);
        let shards = options.optimizer.check_shards().is_ok();
        let shard = dice.of(&[Shard::None, Shard::Optimizer, Shard::Parameters]);
        let shard = if shards { shard } else { Shard::None };
        // Buckets so small that there are several.
        let parallel = Parallel { shard, bucket: Bytes(256), ..Parallel::of(0, options.accumulate) };
        let uneven = options.accumulate == PARTS as u32 && shard != Shard::Parameters && dice.one_in(2);
        let shares = dice.of(&[[2, 1], [1, 2]]);
        let parallel = match Shares::of(&shares).ok().filter(|_| uneven) {
            Some(shares) => Parallel { ranks: 2, shares, ..parallel },
            None => parallel,
        };
        Self { options, limits, parallel }
    }

    /// Makes bindings so small that the largest tensors must be split, if they can be and no operation draws at
    /// random: each part draws numbers of its own.
    pub(super) fn split(&mut self, network: &Network, dice: &mut Dice) {
        let graph = network.step.graph();
        if graph.draw_keys() > 0 {
            return;
        }
        let computed = graph.nodes.iter().flat_map(|node| &node.outputs).map(|id| graph.value(*id).bytes());
        let held = graph.parameters.iter().map(|param| 4 * param.shape().numel());
        let sizes: BTreeSet<u64> = computed.chain(held).chain([PIECE]).collect();
        // The largest is split, unless no smaller binding is enough.
        let smaller: Vec<u64> = sizes.into_iter().rev().skip(1).take(6).collect();
        if smaller.is_empty() {
            return;
        }
        let first = dice.below(smaller.len());
        for bytes in smaller[..=first].iter().rev() {
            let limits = Limits { max_binding: bytes.next_multiple_of(16), ..self.limits.clone() };
            let plan = |options| network.step.plan(options, &limits);
            if plan(&self.options).and(plan(&self.of_rank(0))).is_ok() {
                self.limits = limits;
                return;
            }
        }
    }

    /// Returns the options of one of the ranks.
    pub(super) fn of_rank(&self, rank: u32) -> PlanOptions {
        PlanOptions { parallel: Parallel { rank, ..self.parallel }, ..self.options }
    }

    /// Names the optimizer, the options that are not the default, and the class of the kernels.
    pub(super) fn name(&self) -> String {
        let (own, default) = (self.options, PlanOptions::default());
        let mut parts = vec![format!("{:?}", own.optimizer)];
        let mut add = |differs: bool, text: String| {
            if differs {
                parts.push(text);
            }
        };
        add(own.clip != default.clip, format!("clip {:?}", own.clip));
        add(!own.reuse, "no reuse".to_owned());
        add(own.guard, "guards".to_owned());
        add(!own.rebuild, "no rebuild".to_owned());
        add(!own.fuse, "no fuse".to_owned());
        add(own.bit_masks, "bit masks".to_owned());
        add(own.precision != default.precision, format!("activations {:?}", own.precision));
        add(own.weights != default.weights, format!("weights {:?}", own.weights));
        add(own.recompute != default.recompute, format!("recompute {:?}", own.recompute));
        add(own.accumulate > 1, format!("accumulate {}", own.accumulate));
        add(own.accumulate > 1 && self.parallel.shard != Shard::None, "sharded".to_owned());
        add(!self.parallel.shares.is_even(), format!("shares {}", self.parallel.shares));
        add(own.offload != default.offload, format!("{:?}", own.offload));
        add(own.loss_scale.is_some(), format!("{:?}", own.loss_scale));
        add(true, format!("kernels of {:?}", self.limits.class));
        let binding = self.limits.max_binding;
        add(binding < SMALL_BINDING, format!("bindings of {binding} bytes"));
        parts.join(", ")
    }
}

/// Selects the kernels of the adapter's class, or, for half of the draws on software adapters, those of
/// discrete GPUs.
fn limits(dice: &mut Dice, own: &Limits) -> Limits {
    if own.class.is_cpu() && dice.one_in(2) {
        let limits = own.choosing(|kernels| kernels.long_words = false);
        return Limits { class: AdapterClass::Discrete, ..limits };
    }
    own.clone()
}

/// Draws an optimizer with an update that is smooth enough to compare. With Adam's default ε, rounding errors
/// would determine the first step of a gradient of 0.
fn optimizer(dice: &mut Dice) -> Optimizer {
    let (lr, eps, weight_decay) = (0.01, 0.01, dice.of(&[0.0, 0.1]));
    match dice.below(16) {
        0 => Sgd { lr, weight_decay, ..Sgd::default() }.into(),
        1 | 2 => Sgd { lr, momentum: 0.5, weight_decay, nesterov: dice.one_in(2) }.into(),
        3 => Adam { lr, eps, weight_decay, amsgrad: dice.one_in(2), ..Adam::default() }.into(),
        4 => AdamW { lr, eps, weight_decay, amsgrad: dice.one_in(2), ..AdamW::default() }.into(),
        5 => Lion { lr, weight_decay, ..Lion::default() }.into(),
        6 => Adafactor { lr, weight_decay, ..Adafactor::default() }.into(),
        7 => NAdam { lr, eps, weight_decay, decoupled: dice.one_in(2), ..NAdam::default() }.into(),
        8 => RAdam { lr, eps, weight_decay, decoupled: dice.one_in(2), ..RAdam::default() }.into(),
        9 => RmsProp { lr, eps, weight_decay, momentum: dice.of(&[0.0, 0.5]), ..RmsProp::default() }.into(),
        10 => Adagrad { lr, eps, weight_decay, lr_decay: dice.of(&[0.0, 0.5]) }.into(),
        11 => AdamMini { lr, eps, weight_decay, ..AdamMini::default() }.into(),
        12 => {
            let (nesterov, match_rms) = (dice.one_in(2), dice.one_in(2));
            Muon { lr, eps, weight_decay, nesterov, match_rms, ..Muon::default() }.into()
        }
        13 => {
            let (rank, refresh, whole) = (dice.of(&[1, 3]), dice.of(&[1, 2]), dice.one_in(2));
            Apollo { lr, eps, weight_decay, rank, refresh, whole, ..Apollo::default() }.into()
        }
        14 => Adam4bit { lr, eps, weight_decay, ..Adam4bit::default() }.into(),
        _ => Adam8bit { lr, eps, weight_decay, ..Adam8bit::default() }.into(),
    }
}
