//! The input and the output of packing, as plain values.

/// A buffer that occupies `size` bytes while it is alive, on the half-open interval `[lower, upper)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Name for messages and CSV files; need not be unique.
    pub name: String,
    /// First instant at which the item is alive.
    pub lower: u64,
    /// First instant at which the item is no longer alive; greater than `lower`.
    pub upper: u64,
    /// Size in bytes.
    pub size: u64,
    /// Alignment of the offset in bytes; at least 1.
    pub alignment: u64,
    /// Required place, for an item that must not move.
    pub fixed: Option<Placement>,
    /// The arena that the item belongs to. Items of different arenas are never put in the same arena. An
    /// arena that would outgrow [`Problem::max_arena`] continues in further arenas, numbered after the
    /// highest one that an item names.
    pub arena: u32,
}

impl Item {
    /// Creates an item of `size` bytes alive on `[lower, upper)`, at any offset of arena 0.
    pub fn new(name: impl Into<String>, lower: u64, upper: u64, size: u64) -> Self {
        Self { name: name.into(), lower, upper, size, alignment: 1, fixed: None, arena: 0 }
    }

    /// Requires an offset that is a multiple of `alignment` bytes.
    pub fn aligned(mut self, alignment: u64) -> Self {
        self.alignment = alignment;
        self
    }

    /// Fixes the item at `offset` bytes in arena `arena`.
    pub fn fixed_at(mut self, arena: u32, offset: u64) -> Self {
        self.arena = arena;
        self.fixed = Some(Placement { arena, offset });
        self
    }

    /// Assigns the item to arena `arena`.
    pub fn in_arena(mut self, arena: u32) -> Self {
        self.arena = arena;
        self
    }
}

/// Items and the limits of the device they are packed for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The items to pack.
    pub items: Vec<Item>,
    /// Largest size of one item in bytes: the limit of one binding.
    pub max_item: Option<u64>,
    /// Largest size of one arena in bytes: the limit of one buffer.
    pub max_arena: Option<u64>,
}

impl Problem {
    /// Creates a problem without limits.
    pub fn new(items: Vec<Item>) -> Self {
        Self { items, max_item: None, max_arena: None }
    }
}

/// Where an item lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// Index into [`Solution::arenas`].
    pub arena: u32,
    /// Bytes from the arena's start.
    pub offset: u64,
}

/// A place for every item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// In the order of [`Problem::items`].
    pub placements: Vec<Placement>,
    /// Height of each arena in bytes; an arena that holds nothing has height 0.
    pub arenas: Vec<u64>,
}

impl Solution {
    /// Returns the sum of the heights of all arenas in bytes, saturating.
    pub fn height(&self) -> u64 {
        self.arenas.iter().fold(0, |sum, height| sum.saturating_add(*height))
    }
}
