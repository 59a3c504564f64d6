//! Values that change from step to step: the step count and the learning rate.

use super::feed::Feeds;
use crate::compile::Plan;
use crate::device::Device;
use crate::error::Result;
use crate::graph::STEP_SCALARS;
use crate::maybe_async;
use crate::optim::Schedule;

/// Step count, schedule and learning rate of a training run.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Training steps made.
    pub(super) steps: u64,
    /// Factor of the learning rate.
    pub(super) schedule: Schedule,
    /// Replaces the optimizer's learning rate.
    pub(super) learning_rate: Option<f32>,
    /// Another factor of the learning rate, which does not depend on the step.
    pub(super) rate_factor: Option<f32>,
}

impl Clock {
    /// Feeds the step scalars if the plan has them as an input.
    #[maybe_async]
    pub(super) async fn feed(&self, device: &Device, plan: &Plan, feeds: &mut Feeds) -> Result<()> {
        if !plan.graph().inputs().any(|(_, value)| value.name == STEP_SCALARS) {
            return Ok(());
        }
        let optimizer = plan.optimizer.unwrap_or_default();
        let rate = self.learning_rate.unwrap_or(optimizer.learning_rate()) * self.rate_factor.unwrap_or(1.0);
        let rate = rate * self.schedule.factor(self.steps);
        let scalars = optimizer.scalars(self.steps, rate, plan.seed);
        let words: &[u32] = bytemuck::cast_slice(std::slice::from_ref(&scalars));
        feeds.feed(device, plan.graph(), STEP_SCALARS, words, true).await
    }
}
