//! Requests to a pool, and the blocks and pages of a pool.

use std::sync::Arc;

use super::Handle;

/// A request for a block.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Bytes, before padding; 0 is allowed and occupies one granule.
    pub bytes: u64,
    /// Alignment of the offset in bytes, a power of two. An alignment below the granule is raised to the
    /// granule.
    pub align: u64,
    /// Name of the tensor, for errors, events and reports.
    pub name: &'a str,
    /// Class of the tensor, for example `activation`.
    pub class: &'a str,
}

impl<'a> Request<'a> {
    /// Returns a request of `bytes` for tensor `name` of class `class`, aligned to the granule.
    pub fn new(bytes: u64, name: &'a str, class: &'a str) -> Self {
        Self { bytes, align: 1, name, class }
    }
}

/// A block of a pool: its location, and the id that frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of its page; see [`Pool::page`](super::Pool::page).
    pub page: u32,
    /// First byte within the page.
    pub offset: u64,
    /// Bytes, padded.
    pub size: u64,
    /// Handle of the block; valid for one free.
    pub id: Handle,
}

/// A live block with its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The block.
    pub block: Block,
    /// Bytes asked for.
    pub requested: u64,
    /// Alignment asked for, in bytes.
    pub align: u64,
    /// Name of the tensor.
    pub name: Arc<str>,
    /// Class of the tensor.
    pub class: Arc<str>,
}

/// A page of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInfo {
    /// Its number. A later page may reuse it after this page is released.
    pub page: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Number of blocks in it, deferred ones included.
    pub blocks: usize,
}
