//! Connectionist temporal classification (Graves et al. 2006).

use std::panic::Location;

use super::Tensor;
use crate::dtype::DType;

/// Stands for the logarithm of 0: far below every log-probability, and far from overflow.
const NEVER: f32 = -1e30;

/// `ln Σ e^x` of tensors of one shape.
fn log_add(terms: &[Tensor]) -> Tensor {
    let most = terms.iter().cloned().reduce(|a, b| a.maximum(&b)).expect("some terms").detach();
    let sum = terms.iter().map(|x| x.sub(&most).exp()).reduce(|a, b| a.add(&b)).expect("some terms");
    sum.log().add(&most)
}

impl Tensor {
    /// CTC loss of log-probabilities `[t, n, classes]` with labels `u32 [n, s]`, of which the first
    /// `label_lengths[i]` of row `i` count, over the first `input_lengths[i]` steps; lengths are `u32 [n]`. Class `blank`
    /// is the blank. Each loss is divided by its number of labels, then averaged (`torch.nn.CTCLoss`). The recursion over
    /// the `t` steps is unrolled.
    #[track_caller]
    #[must_use]
    pub fn ctc(
        &self,
        labels: &Tensor,
        input_lengths: &Tensor,
        label_lengths: &Tensor,
        blank: usize,
    ) -> Tensor {
        let operands = [self, labels, input_lengths, label_lengths];
        if operands.iter().any(|x| x.id.is_none()) {
            return Tensor { id: None, ..self.clone() };
        }
        let (&[steps, n, classes], &[rows, s]) = (self.shape.dims(), labels.shape.dims()) else {
            let message =
                format!("ctc of {} with labels {}: [t, n, classes] and [n, s]", self.shape, labels.shape);
            return self.mistake(message, []);
        };
        let lengths = [input_lengths, label_lengths].iter().all(|x| x.shape == [n].into());
        if rows != n || !lengths || blank >= classes || steps == 0 || s == 0 {
            let message = format!("ctc of {} with labels {} and blank {blank}", self.shape, labels.shape);
            return self.mistake(message, []);
        }
        self.trace.called_at(Location::caller(), || {
            let states = 2 * s + 1;
            let never = self.fill_like([], NEVER);
            // Labels with blanks around them: blank, first, blank, second, …, blank.
            let own = labels.cast(DType::F32).unsqueeze(2);
            let blanks = self.fill_like([n, s, 1], blank as f32);
            let woven = blanks.concat(&[&own], 2).reshape([n, 2 * s]);
            let extended = woven.concat(&[&self.fill_like([n, 1], blank as f32)], 1);
            let ids = extended.cast(DType::U32).unsqueeze(0).expand([steps, n, states]);
            let emitted = self.gather(2, &ids);
            // A label may follow the one before it without a blank unless they are equal.
            let two_before =
                extended.slice(1, 0..states - 2).pad_with(1, 2, 0, super::Padding::Constant(blank as f32));
            let skips =
                extended.not_equal(&two_before).mul(&extended.not_equal(&self.fill_like([], blank as f32)));
            let shifted = |x: &Tensor, by: usize| {
                x.slice(1, 0..states - by).pad_with(1, by, 0, super::Padding::Constant(NEVER))
            };
            let lasts = input_lengths.cast(DType::F32).unsqueeze(1);
            let at = |t: usize| emitted.slice(0, t..t + 1).squeeze(0);
            let first = self.indices_like([1, states], 1).less(&self.fill_like([], 2.0));
            let mut alpha = first.where_cond(&at(0), &never);
            for t in 1..steps {
                let skipped = skips.where_cond(&shifted(&alpha, 2), &never);
                let next = log_add(&[alpha.clone(), shifted(&alpha, 1), skipped]).add(&at(t));
                let running = lasts.greater(&self.fill_like([], t as f32));
                alpha = running.where_cond(&next, &alpha);
            }
            let counts = label_lengths.cast(DType::F32).unsqueeze(1);
            let end = |back: f32| {
                let state = counts.scale(2.0).offset(-back);
                let known = state.greater_equal(&self.fill_like([], 0.0));
                known.where_cond(&alpha.gather(1, &state.relu().cast(DType::U32)), &never)
            };
            let losses = log_add(&[end(0.0), end(1.0)]).neg();
            losses.div(&counts.maximum(&self.fill_like([], 1.0))).mean(&[])
        })
    }
}
