//! Where a pool's pages come from: the one place at which real buffers enter.

use std::fmt::Display;

/// Creates the pages of a [`Pool`](super::Pool). The pool keeps each page and drops it when it releases it, so that a
/// page number without a buffer, or a buffer without a page number, cannot exist.
///
/// Any `FnMut(u64) -> Result<Page, impl Display>` is a backing: with wgpu, a closure that creates a buffer.
pub trait Backing {
    /// A page, for example a GPU buffer.
    type Page;

    /// Creates a page of `bytes`.
    ///
    /// # Errors
    /// What the device said. The pool then releases its idle pages and tries once more.
    fn create(&mut self, bytes: u64) -> Result<Self::Page, String>;
}

impl<F, P, E> Backing for F
where
    F: FnMut(u64) -> Result<P, E>,
    E: Display,
{
    type Page = P;

    fn create(&mut self, bytes: u64) -> Result<P, String> {
        self(bytes).map_err(|error| error.to_string())
    }
}

/// No buffers, only numbers: for simulations and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offsets;

impl Backing for Offsets {
    type Page = ();

    fn create(&mut self, _bytes: u64) -> Result<(), String> {
        Ok(())
    }
}
