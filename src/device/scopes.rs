//! Error scopes: what a call of wgpu was refused for.

use super::{Device, maybe_async};
use crate::error::{Error, Result};

/// An error scope whose answer was not awaited yet.
#[cfg(target_family = "wasm")]
pub(super) struct Pending {
    answer: std::pin::Pin<Box<dyn Future<Output = Option<wgpu::Error>> + Send>>,
    explain: Explain,
}

/// What an error of wgpu is to the caller.
#[cfg(target_family = "wasm")]
type Explain = Box<dyn FnOnce(&Device, &wgpu::Error) -> Error + Send>;

impl Device {
    /// Ends an error scope. Browsers answer later, so what was created is used meanwhile and [`Device::settle`] returns the
    /// error.
    ///
    /// # Errors
    /// What `explain` makes of the error that the scope caught.
    pub(super) fn end(
        &self,
        scope: wgpu::ErrorScopeGuard,
        explain: impl FnOnce(&Self, &wgpu::Error) -> Error + Send + 'static,
    ) -> Result<()> {
        #[cfg(target_family = "wasm")]
        {
            let pending = Pending { answer: Box::pin(scope.pop()), explain: Box::new(explain) };
            super::lock(&self.shared.scopes).push(pending);
            Ok(())
        }
        #[cfg(not(target_family = "wasm"))]
        match pollster::block_on(scope.pop()) {
            None => Ok(()),
            Some(error) => Err(explain(self, &error)),
        }
    }

    /// Waits for the answers to all that was created.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Device`]: the first of them.
    #[maybe_async]
    pub(crate) async fn settle(&self) -> Result<()> {
        #[cfg(target_family = "wasm")]
        {
            let scopes = std::mem::take(&mut *super::lock(&self.shared.scopes));
            let mut first = Ok(());
            for Pending { answer, explain } in scopes {
                if let (Some(error), Ok(())) = (answer.await, &first) {
                    first = Err(explain(self, &error));
                }
            }
            first?;
        }
        self.alive()
    }
}
