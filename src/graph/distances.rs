//! Losses composed of elementwise functions, and the options of cross-entropy.

use super::{Indices, Op, Tensor};
use crate::dtype::DType;
use std::panic::Location;

/// How the losses of rows or elements become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduce {
    /// Their mean; of cross-entropy, by the weights of the labels that are not ignored.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay, one per row.
    None,
}

/// Options of [`Tensor::cross_entropy_with`].
#[derive(Clone, Debug, Default)]
pub struct CrossEntropy<'a> {
    /// A factor for each class, `[classes]`.
    pub weight: Option<&'a Tensor>,
    /// Share of the target that is spread over all classes, 0 to 1 (Szegedy et al. 2016).
    pub label_smoothing: f32,
    /// What is returned.
    pub reduce: Reduce,
}

impl Tensor {
    /// Cross-entropy of logits `[.., classes]` with class indices `[..]` and the options of
    /// `torch.nn.CrossEntropyLoss`; rows with the label [`IGNORE`](super::IGNORE) count nothing. Unlike
    /// [`Tensor::cross_entropy`] it keeps log-probabilities where labels are smoothed.
    #[track_caller]
    #[must_use]
    pub fn cross_entropy_with(&self, labels: &Tensor, options: &CrossEntropy) -> Tensor {
        let CrossEntropy { weight, label_smoothing, reduce } = options;
        let classes = self.shape.last();
        if self.id.is_none() || labels.id.is_none() {
            return Tensor { id: None, ..self.clone() };
        }
        let fits = self.shape.rank() == labels.shape.rank() + 1
            && self.shape.dims().starts_with(labels.shape.dims());
        if !fits
            || weight.is_some_and(|w| w.shape != [classes].into())
            || !(0.0..=1.0).contains(label_smoothing)
        {
            let message = format!(
                "cross_entropy of {} with labels {}, weight {:?} and label smoothing {label_smoothing}",
                self.shape,
                labels.shape,
                weight.map(|w| w.shape)
            );
            return self.mistake(message, []);
        }
        let rows = labels.shape.numel() as usize;
        self.trace.called_at(Location::caller(), || {
            let (logits, flat) = (self.reshape([rows, classes]), labels.reshape([rows]));
            if weight.is_none() && *label_smoothing == 0.0 && *reduce == Reduce::Mean {
                return logits.cross_entropy(&flat);
            }
            let (counted, ids) = flat.as_ids(classes);
            let shares = match weight {
                Some(weight) => weight.gather(0, &ids).masked(&counted),
                None => counted.clone(),
            };
            let mut losses = logits.one(Op::CrossEntropy, &[&logits, &flat], Location::caller());
            if weight.is_some() {
                losses = losses.mul(&shares);
            }
            if *label_smoothing > 0.0 {
                let logs = logits.log_softmax();
                let logs = weight.map_or_else(|| logs.clone(), |weight| logs.mul(weight));
                let spread = logs.sum(&[1]).neg().masked(&counted).scale(label_smoothing / classes as f32);
                losses = losses.scale(1.0 - label_smoothing).add(&spread);
            }
            match reduce {
                Reduce::Mean => losses.sum(&[]).div(&shares.sum(&[])),
                Reduce::Sum => losses.sum(&[]),
                Reduce::None => losses.reshape(labels.shape),
            }
        })
    }

    /// Negative log-likelihood of log-probabilities `[.., classes]` at class indices `[..]`: the mean of `-x[i, label]`
    /// over the rows with a label other than [`IGNORE`](super::IGNORE) (`torch.nn.NLLLoss`).
    #[track_caller]
    #[must_use]
    pub fn nll(&self, labels: &Tensor) -> Tensor {
        let classes = self.shape.last();
        self.check_labels("nll", labels, classes, Location::caller());
        if !matches!(labels.indices(), Some(Indices::Labels(_))) {
            let column = labels.unsqueeze(labels.shape.rank());
            return self.gather(self.shape.rank().saturating_sub(1), &column).mean(&[]).neg();
        }
        let (counted, ids) = labels.as_ids(classes);
        let column = ids.unsqueeze(labels.shape.rank());
        let taken = self.gather(self.shape.rank().saturating_sub(1), &column);
        let share = labels.one(Op::LabelShare, &[labels], Location::caller());
        taken.reshape(labels.shape).masked(&counted).sum(&[]).neg().mul(&share)
    }

    /// Whether each of these labels is a class, and the labels with 0 where it is not.
    #[track_caller]
    fn as_ids(&self, classes: usize) -> (Tensor, Tensor) {
        if classes > 1 << 24 {
            // They are compared as `f32`, which hold integers to 2²⁴.
            let message = format!("labels of {classes} classes: with weights or as scores, at most 2^24");
            self.trace.complain(message, Location::caller());
        }
        let labels = self.cast(DType::F32);
        let counted = labels.less(&self.fill_like([], classes as f32));
        let ids = labels.masked(&counted).cast(DType::U32);
        (counted, ids)
    }

    /// Kullback-Leibler divergence of the distribution with log-probabilities `self` from the one with probabilities
    /// `target`: `Σ t (ln t - x) / n` with `n` the length of the first axis (`reduction="batchmean"`).
    #[track_caller]
    #[must_use]
    pub fn kl_div(&self, target: &Tensor) -> Tensor {
        if self.shape != target.shape {
            return self.unequal("kl_div: log-probabilities", target);
        }
        let none = target.equal(&target.fill_like([], 0.0));
        let entropy = target.mul(&target.add(&none).log());
        entropy.sub(&target.mul(self)).sum(&[]).scale(1.0 / self.dim(0).max(1) as f32)
    }

    /// Mean absolute error over all elements; shapes equal.
    #[track_caller]
    #[must_use]
    pub fn l1(&self, target: &Tensor) -> Tensor {
        if self.shape != target.shape {
            return self.unequal("l1: predictions", target);
        }
        self.sub(target).abs().mean(&[])
    }

    /// Huber loss (1964), the mean over all elements of `d²/2` where `d = |x - t| < δ`, else `δ (d - δ/2)`.
    #[track_caller]
    #[must_use]
    pub fn huber(&self, target: &Tensor, delta: f32) -> Tensor {
        if self.shape != target.shape {
            return self.unequal("huber: predictions", target);
        }
        if delta.is_nan() || delta <= 0.0 {
            return self.mistake(format!("huber with delta {delta}: it must be above 0"), []);
        }
        let d = self.sub(target).abs();
        let near = d.minimum(&d.fill_like([], delta));
        near.mul(&d.sub(&near.scale(0.5))).mean(&[])
    }

    /// `torch.nn.SmoothL1Loss`: [`Tensor::huber`] divided by `beta` (Girshick 2015); with 0, [`Tensor::l1`].
    #[track_caller]
    #[must_use]
    pub fn smooth_l1(&self, target: &Tensor, beta: f32) -> Tensor {
        if beta == 0.0 {
            return self.l1(target);
        }
        self.huber(target, beta).scale(1.0 / beta)
    }

    /// Hinge loss: the mean of `max(0, 1 - t x)` for targets of 1 and -1; shapes equal.
    #[track_caller]
    #[must_use]
    pub fn hinge(&self, target: &Tensor) -> Tensor {
        if self.shape != target.shape {
            return self.unequal("hinge: scores", target);
        }
        self.mul(target).neg().offset(1.0).relu().mean(&[])
    }

    /// Cosine of the angle between vectors along `axis`, which is removed: `a·b / (max(|a|, ε) max(|b|, ε))`; shapes
    /// broadcast.
    #[track_caller]
    #[must_use]
    pub fn cosine_similarity(&self, other: &Tensor, axis: usize, eps: f32) -> Tensor {
        let length = |x: &Tensor| {
            let norm = x.norm(2.0, &[axis]);
            norm.maximum(&norm.fill_like([], eps))
        };
        self.mul(other).sum(&[axis]).div(&length(self)).div(&length(other))
    }

    /// `torch.nn.CosineEmbeddingLoss` of rows `[n, d]`: the mean of `1 - cos` where the target `[n]` is 1, of
    /// `max(0, cos - margin)` where it is -1.
    #[track_caller]
    #[must_use]
    pub fn cosine_embedding(&self, other: &Tensor, target: &Tensor, margin: f32) -> Tensor {
        let cos = self.cosine_similarity(other, self.shape.rank().saturating_sub(1), 1e-8);
        let alike = target.greater(&target.fill_like([], 0.0));
        alike.where_cond(&cos.neg().offset(1.0), &cos.offset(-margin).relu()).mean(&[])
    }
}
