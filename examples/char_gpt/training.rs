//! The training loop: steps on random windows, with an evaluation at regular intervals.

use std::time::{Duration, Instant};

use wgrad::Result;
use wgrad::data::{TokenBatch, Tokens, Windows};
use wgrad::exec::{ProgramId, Session};
use wgrad::train::{Callback, Epoch, ProgressLine, StepProgress};

const TRAIN: ProgramId = ProgramId(0);
const EVALUATE: ProgramId = ProgramId(2);
/// How often the network is evaluated.
const EPOCHS: u64 = 8;
/// Batches of an evaluation, always the same ones.
const EVALUATION: usize = 8;

/// A session with three plans: a training step, any other plan, and the loss without dropout. The first and
/// the third have the inputs `x` and `y`.
pub struct Training {
    pub session: Session,
    /// Windows in a batch.
    pub batch: usize,
    /// Total number of steps.
    pub steps: u64,
    /// Steps made before this run.
    pub done: u64,
}

/// The result of an evaluation.
pub struct Evaluated {
    /// Steps made.
    pub step: u64,
    /// Mean loss on the held-out text.
    pub loss: f32,
}

impl Training {
    /// Trains, and calls `look` after each evaluation.
    pub fn run(
        &mut self,
        tokens: &Tokens,
        held_out: &Tokens,
        windows: Windows,
        progress: &mut ProgressLine,
        mut look: impl FnMut(Evaluated, &mut Session) -> Result<()>,
    ) -> Result<()> {
        let mut batches = tokens.windows(windows, self.done)?;
        let (mut spent, left) = (Duration::ZERO, self.steps - self.done);
        for epoch in 0..EPOCHS {
            let [first, last] = [epoch, epoch + 1].map(|part| self.done + left * part / EPOCHS);
            if first == last {
                continue;
            }
            let (start, mut losses) = (Instant::now(), Vec::new());
            for (step, batch) in (first..last).zip(&mut batches) {
                self.feed(TRAIN, &batch)?;
                self.session.step()?;
                losses.extend(self.session.losses()?.into_iter().map(|(_, loss)| loss));
                let made = step + 1 - self.done;
                let per_step = (spent + start.elapsed()).as_secs_f64() / made as f64;
                progress.on_step(&StepProgress {
                    epoch,
                    epochs: EPOCHS,
                    step: (step + 1 - first) as usize,
                    steps: (last - first) as usize,
                    loss: losses.last().copied(),
                    accuracy: None,
                    samples_per_s: self.batch as f64 / per_step,
                    eta: Duration::from_secs_f64(per_step * (left - made) as f64),
                    device_bytes: self.session.device_bytes(),
                })?;
            }
            // Losses that have not been read back yet.
            self.session.loss()?;
            losses.extend(self.session.losses()?.into_iter().map(|(_, loss)| loss));
            spent += start.elapsed();
            let loss = losses.iter().sum::<f32>() / losses.len().max(1) as f32;
            progress.on_epoch(&Epoch { epoch, loss, accuracy: None }, &mut self.session)?;
            let loss = self.evaluate(held_out, windows)?;
            look(Evaluated { step: last, loss }, &mut self.session)?;
        }
        progress.on_end();
        Ok(())
    }

    fn evaluate(&mut self, held_out: &Tokens, windows: Windows) -> Result<f32> {
        let mut sum = 0.0;
        for batch in held_out.windows(windows, 0)?.take(EVALUATION) {
            self.feed(EVALUATE, &batch)?;
            self.session.run(EVALUATE)?;
            sum += self.session.output::<f32>(EVALUATE, "loss")?[0];
        }
        Ok(sum / EVALUATION as f32)
    }

    fn feed(&mut self, program: ProgramId, batch: &TokenBatch) -> Result<()> {
        self.session.feed_to(program, "x", &batch.x)?;
        self.session.feed_to(program, "y", &batch.y)
    }
}
