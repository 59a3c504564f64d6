//! Size of the next page.

use crate::units::align_up;

const MIB: u64 = 1 << 20;

/// Rule for the size of a new page, which a pool creates when a block fits in no existing page. A page is
/// never smaller than the block, nor larger than the largest page that the pool may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Always this many bytes.
    Fixed(u64),
    /// This many bytes first; every later page is as large as all existing pages together.
    Doubling(u64),
    /// Exactly the bytes of the block.
    Exact,
    /// Segment sizes of PyTorch's caching allocator: 2 MiB for blocks up to 1 MiB, 20 MiB for blocks below 10
    /// MiB, and for larger blocks the block rounded up to a multiple of 2 MiB.
    Segments,
}

/// Blocks up to this many bytes live in small segments.
pub(super) const SMALL_BLOCK: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
const OWN_SEGMENT_FROM: u64 = 10 * MIB;

impl Growth {
    /// Returns the bytes of the next page, for a block of `block` bytes, with `reserved` bytes in existing
    /// pages.
    pub(crate) fn page_bytes(self, block: u64, reserved: u64) -> u64 {
        let wanted = match self {
            Self::Fixed(bytes) => bytes,
            Self::Doubling(first) => reserved.max(first),
            Self::Exact => block,
            Self::Segments if block <= SMALL_BLOCK => SMALL_SEGMENT,
            Self::Segments if block < OWN_SEGMENT_FROM => LARGE_SEGMENT,
            Self::Segments => align_up(block, SMALL_SEGMENT).unwrap_or(block),
        };
        wanted.max(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_follow_the_growth_policy() {
        let cases = [
            (Growth::Fixed(64), 10, 500, 64),
            (Growth::Fixed(64), 100, 0, 100),
            (Growth::Doubling(64), 10, 0, 64),
            (Growth::Doubling(64), 10, 192, 192),
            (Growth::Exact, 10, 192, 10),
            (Growth::Segments, MIB, 0, 2 * MIB),
            (Growth::Segments, MIB + 512, 0, 20 * MIB),
            (Growth::Segments, 10 * MIB, 0, 10 * MIB),
            (Growth::Segments, 11 * MIB, 0, 12 * MIB),
            (Growth::Segments, u64::MAX, 0, u64::MAX),
        ];
        for (growth, block, reserved, page) in cases {
            assert_eq!(growth.page_bytes(block, reserved), page, "{growth:?} {block} {reserved}");
        }
    }
}
