//! Dispatches of a plan that run again and again, for measurements.

use super::{ProgramId, Session};
use crate::error::Result;

impl Session {
    /// Runs the dispatches `launches` of a plan `times` times in one submit; they are numbers of
    /// [`Program::launches`](crate::compile::Program), in order. Their operands are what the plan's last run left in
    /// memory, so run it before. A dispatch that overwrites its operand goes on from its own result: the time means
    /// something, the contents of step memory do not. Does not wait.
    ///
    /// # Errors
    /// As [`Session::run`].
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn repeat(&mut self, id: ProgramId, launches: &[usize], times: usize) -> Result<()> {
        self.plan(id)?;
        let device = &self.ledger.device;
        let mut encoder =
            device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.programs[id.0].record_again(&mut encoder, launches, times);
        device.submit(encoder).map(drop)
    }
}
