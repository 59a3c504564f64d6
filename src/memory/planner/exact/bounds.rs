//! Bounds: whether the unplaced items can still fit below the capacity.

use super::search::Part;
use super::state::State;

impl State<'_> {
    /// Computes the ground of every slice of `part`, and checks that each slice can still hold its unplaced
    /// items.
    ///
    /// The unplaced items of a slice must not overlap, so the slice is a machine that runs them one at a
    /// time: an item's least offset is its release time, its size is its processing time, and the capacity is
    /// the deadline. For every release time r, r + (sizes of the items not released before r) is a lower
    /// bound for the end (Jackson 1955).
    pub(super) fn has_room(&mut self, part: Part) -> bool {
        let slices = part.first..part.last;
        let deadline = self.capacity + self.padding;
        self.ground[slices.clone()].fill(u64::MAX);
        let items = &self.parts[part.begin..part.end];
        for &item in items {
            let i = item as usize;
            let least = self.least[i];
            for ground in &mut self.ground[self.instance.span(i)] {
                *ground = least.min(*ground);
            }
        }
        let full = |&slice: &usize| self.rest[slice] > 0 && self.ground[slice] + self.rest[slice] > deadline;
        if let Some(slice) = slices.clone().find(full) {
            self.failures[slice] += 1;
            return false;
        }
        self.by_release.clear();
        self.by_release.extend(items.iter().map(|&item| (self.least[item as usize], item)));
        self.by_release.sort_unstable();
        let load = &mut self.scratch;
        load[slices].fill(0);
        for &(release, item) in self.by_release.iter().rev() {
            let i = item as usize;
            let room = deadline - release;
            let mut fullest = 0;
            for bytes in &mut load[self.instance.span(i)] {
                *bytes += self.padded[i];
                fullest = fullest.max(*bytes);
            }
            if fullest > room {
                let slice = self.instance.span(i).find(|&slice| load[slice] > room);
                slice.into_iter().for_each(|slice| self.failures[slice] += 1);
                return false;
            }
        }
        true
    }
}
