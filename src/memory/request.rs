//! What goes into a pool and what comes out: requests, blocks, pages.

use std::sync::Arc;

use super::Handle;

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Bytes, before padding; 0 is allowed and takes one granule.
    pub bytes: u64,
    /// Alignment of the offset in bytes, a power of two; the granule is always respected.
    pub align: u64,
    /// Name of the tensor, for errors, events and reports.
    pub name: &'a str,
    /// Class of the tensor, for example `activation`.
    pub class: &'a str,
}

impl<'a> Request<'a> {
    /// `bytes` for tensor `name` of `class`, aligned to the granule.
    pub fn new(bytes: u64, name: &'a str, class: &'a str) -> Self {
        Self { bytes, align: 1, name, class }
    }
}

/// A block of a pool: where it lies, and the id with which it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of its page; see [`Pool::page`](super::Pool::page).
    pub page: u32,
    /// First byte within the page.
    pub offset: u64,
    /// Bytes, padded.
    pub size: u64,
    /// Good for one free.
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
    /// Its number, which a later page may have again after this one was released.
    pub page: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Number of blocks in it, deferred ones included.
    pub blocks: usize,
}
