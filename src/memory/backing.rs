//! The source of a pool's pages. A pool obtains GPU buffers only through it.

use std::fmt::Display;

/// Creates the pages of a [`Pool`](super::Pool). The pool owns each page and drops it when it releases the
/// page number, so every page number has a buffer and every buffer has a page number.
///
/// Any `FnMut(u64) -> Result<Page, impl Display>` is a backing. For wgpu it is a closure that creates a
/// buffer.
pub trait Backing {
    /// A page, for example a GPU buffer.
    type Page;

    /// Creates a page of `bytes`.
    ///
    /// # Errors
    /// The message of the device. The pool then releases its idle pages and tries once more.
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

/// A backing without buffers, for simulations and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offsets;

impl Backing for Offsets {
    type Page = ();

    fn create(&mut self, _bytes: u64) -> Result<(), String> {
        Ok(())
    }
}
