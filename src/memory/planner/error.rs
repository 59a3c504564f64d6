//! What can be wrong with a packing problem.

use super::validate::Violation;

/// Why a problem could not be read or packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// The lifetime is empty or runs backwards.
    #[error(
        "item {index} ({name}) is alive on [{lower}, {upper}), which is empty: give it an upper end above its lower end"
    )]
    EmptyLifetime {
        /// Position in the problem.
        index: usize,
        /// The item's name.
        name: String,
        /// Start of its lifetime.
        lower: u64,
        /// End of its lifetime.
        upper: u64,
    },
    /// The alignment is 0.
    #[error("item {index} ({name}) has alignment 0: use 1 for any offset")]
    ZeroAlignment {
        /// Position in the problem.
        index: usize,
        /// The item's name.
        name: String,
    },
    /// The item is larger than one binding or one arena may be.
    #[error(
        "item {index} ({name}) needs {size} bytes and one {what} holds at most {limit}: split it, or plan for a device with larger limits"
    )]
    ItemTooLarge {
        /// Position in the problem.
        index: usize,
        /// The item's name.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// What is too small: a binding or an arena.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// A fixed place is impossible: it is not aligned, it ends outside its arena, or it names another arena
    /// than the item.
    #[error("item {index} ({name}) is fixed at offset {offset} of arena {arena}, where it cannot be: {why}")]
    BadFixedPlace {
        /// Position in the problem.
        index: usize,
        /// The item's name.
        name: String,
        /// The arena asked for.
        arena: u32,
        /// The offset asked for, in bytes.
        offset: u64,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// Two fixed items are alive together and share bytes.
    #[error(
        "the fixed places of items {first} and {second} share bytes while both are alive: move one of them"
    )]
    FixedOverlap {
        /// Position of one in the problem.
        first: usize,
        /// Position of the other.
        second: usize,
    },
    /// Offsets would not fit 64 bits.
    #[error(
        "packing {items} items needs offsets beyond 2^64 - 1: check the sizes and alignments for a wrong unit"
    )]
    Overflow {
        /// Number of items.
        items: usize,
    },
    /// An item names an arena at or above the largest supported number of arenas.
    #[error(
        "item {index} ({name}) asks for arena {arena}; arenas are numbered from 0 and at most {limit} are kept"
    )]
    TooManyArenas {
        /// Position in the problem.
        index: usize,
        /// The item's name.
        name: String,
        /// The arena asked for.
        arena: u32,
        /// Number of arenas that are supported.
        limit: u32,
    },
    /// A line of a CSV file is invalid.
    #[error("line {line}: {message}")]
    Csv {
        /// Line of the file, from 1.
        line: usize,
        /// What is wrong with it and what was expected.
        message: String,
    },
    /// The solver produced a packing that the validator rejects: a defect of this library.
    #[error(
        "the packing broke a rule ({0}); this is a defect of the planner, please report the problem that caused it"
    )]
    Invalid(#[from] Violation),
}
