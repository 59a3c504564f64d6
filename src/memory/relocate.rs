//! Compaction between steps: which blocks to copy where, so that pages become empty and can be released.

use super::{AllocError, Backing, Block, Pool, Request};

/// One copy of a block's bytes to another block. The two blocks are always in different pages, so a GPU can
/// do it with one buffer-to-buffer copy and no scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Source of the copy.
    pub from: Block,
    /// Destination, which is already allocated under the same name.
    pub to: Block,
}

impl<B: Backing> Pool<B> {
    /// Plans a compaction: moves the blocks of whole pages into holes of other pages, starting with the pages
    /// that have the fewest live bytes. A page is moved only if it can be emptied completely. At most
    /// `budget` bytes are copied, and no page is created.
    ///
    /// The destinations are allocated when this returns. The caller copies each move's data, uses `to`
    /// instead of `from` afterwards, frees every `from`, and may then [`trim`](Pool::trim) the pages that
    /// became idle.
    ///
    /// # Errors
    /// None if the strategy is correct; errors of the strategy are propagated.
    pub fn relocate(&mut self, budget: u64) -> Result<Vec<Move>, AllocError> {
        let mut pages: Vec<(u64, u32)> = Vec::new();
        for info in self.pages() {
            let live: u64 =
                self.live().filter(|live| live.block.page == info.page).map(|live| live.block.size).sum();
            // A page with deferred blocks would not become idle.
            let deferred = info.blocks != self.live().filter(|live| live.block.page == info.page).count();
            if live > 0 && !deferred {
                pages.push((live, info.page));
            }
        }
        pages.sort_unstable();
        let (mut moves, mut left, mut emptied): (Vec<Move>, _, Vec<u32>) = (Vec::new(), budget, Vec::new());
        for (bytes, page) in pages {
            let filled = moves.iter().any(|done| done.to.page == page);
            if filled || bytes > left {
                continue;
            }
            emptied.push(page);
            match self.evacuate(page, &emptied)? {
                Some(found) => {
                    moves.extend(found);
                    left -= bytes;
                }
                None => {
                    emptied.pop();
                }
            }
        }
        Ok(moves)
    }

    /// Allocates a destination outside `emptied` for every block of `page`. If one block does not fit, frees
    /// the destinations and returns `None`.
    fn evacuate(&mut self, page: u32, emptied: &[u32]) -> Result<Option<Vec<Move>>, AllocError> {
        let mut blocks: Vec<_> = self.live().filter(|live| live.block.page == page).collect();
        blocks.sort_by_key(|live| std::cmp::Reverse(live.block.size));
        let (mut moves, mut blockers, mut complete) = (Vec::new(), Vec::new(), true);
        'blocks: for live in &blocks {
            let request =
                Request { bytes: live.requested, align: live.align, name: &live.name, class: &live.class };
            // The strategy chooses the hole. A hole in a page that is being emptied is kept allocated until
            // the end, so that the strategy offers another one.
            while let Some(to) = self.alloc_in_place(request)? {
                if emptied.contains(&to.page) {
                    blockers.push(to);
                } else {
                    moves.push(Move { from: live.block, to });
                    continue 'blocks;
                }
            }
            complete = false;
            break;
        }
        let undone = if complete { Vec::new() } else { moves.iter().map(|planned| planned.to).collect() };
        blockers.into_iter().chain(undone).try_for_each(|block| self.free(block))?;
        Ok(complete.then_some(moves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Fit, Growth, Kind, Offsets, PoolOptions};

    const KIB: u64 = 1024;

    /// Returns a pool of 16 KiB pages filled with 4 KiB blocks, of which only those with an index in `kept`
    /// are live.
    fn pool(strategy: Kind, kept: &[usize]) -> (Pool<Offsets>, Vec<Block>) {
        let options = PoolOptions { strategy, growth: Growth::Fixed(16 * KIB), ..PoolOptions::default() };
        let mut pool = Pool::new(options, Offsets).expect("valid options");
        let all: Vec<Block> = (0..12)
            .map(|i| pool.alloc(Request::new(4 * KIB, &format!("t{i}"), "x")).expect("room"))
            .collect();
        let (stay, go): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(i, _)| kept.contains(i));
        go.into_iter().for_each(|(_, block)| pool.free(block).expect("live"));
        (pool, stay.into_iter().map(|(_, block)| block).collect())
    }

    #[test]
    fn half_empty_pages_are_emptied_into_others() {
        for strategy in [Kind::Bins, Kind::FreeList(Fit::Best), Kind::FreeList(Fit::First), Kind::Buddy] {
            let (mut pool, live) = pool(strategy, &[0, 1, 5, 10]);
            let moves = pool.relocate(u64::MAX).expect("sound");
            assert!(
                moves.iter().all(|step| step.from.page != step.to.page && step.from.size == step.to.size)
            );
            assert!(moves.iter().all(|step| live.contains(&step.from)), "{strategy:?}: {moves:?}");
            assert!(
                (2..=3).contains(&moves.len()),
                "two pages of one or two blocks each: {strategy:?}: {moves:?}"
            );
            moves.iter().for_each(|step| pool.free(step.from).expect("live"));
            assert_eq!(pool.trim(), 32 * KIB, "{strategy:?}");
            let mut names: Vec<_> = pool.live().map(|live| live.name.to_string()).collect();
            names.sort();
            assert_eq!(names, ["t0", "t1", "t10", "t5"], "{strategy:?}");
            assert_eq!(pool.stats().segments.allocated, 3, "{strategy:?}: no page was created");
        }
    }

    #[test]
    fn nothing_moves_without_room_or_budget() {
        let (mut full, _) = pool(Kind::Bins, &[0, 1, 2, 4, 5, 6, 8, 9, 10]);
        let before = *full.stats();
        assert_eq!(full.relocate(u64::MAX).expect("sound"), [], "9 blocks need 3 pages of 4");
        assert_eq!(full.stats().active.current, before.active.current);
        assert_eq!((full.stats().segments, full.stats().num_ooms), (before.segments, 0));
        let (mut poor, _) = pool(Kind::Bins, &[0, 1, 5, 10]);
        assert_eq!(poor.relocate(4 * KIB).expect("sound").len(), 1, "one block of 4 KiB may be copied");
        assert_eq!(poor.relocate(4 * KIB - 1).expect("sound"), []);
    }

    #[test]
    fn pages_with_deferred_blocks_are_not_relocated() {
        let (mut pool, live) = pool(Kind::Bins, &[0, 5]);
        pool.free_later(live[1]).expect("live");
        let moves = pool.relocate(u64::MAX).expect("sound");
        assert_eq!(moves.iter().map(|step| step.from).collect::<Vec<_>>(), [live[0]]);
    }
}
