//! The remaining search budget. Work is counted, not timed, so that a result does not depend on the machine;
//! a wall-clock limit is optional.

use std::time::Duration;

use crate::time::Instant;

/// Units of work between two reads of the clock. One unit is roughly one memory access of the search, about a
/// nanosecond.
const WORK_PER_CLOCK_READ: u64 = 200_000;

/// Work that may still be spent.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    left: u64,
    deadline: Option<Instant>,
    until_clock_read: u64,
}

impl Budget {
    /// Creates a budget of `work` units that also ends when `limit` has passed from now.
    pub(super) fn new(work: u64, limit: Option<Duration>) -> Self {
        // A limit beyond what the clock can represent is the same as none.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        Self { left: work, deadline, until_clock_read: 0 }
    }

    /// Returns a budget of at most `work` units with the same deadline. Work spent from it is not deducted
    /// from this budget.
    pub(super) fn part(&self, work: u64) -> Self {
        Self { left: work.min(self.left), deadline: self.deadline, until_clock_read: 0 }
    }

    /// Returns an unlimited budget with the same deadline, for work that is useless unless it is finished.
    pub(super) fn without_end(&self) -> Self {
        Self { left: u64::MAX, ..self.clone() }
    }

    /// Spends `work` units; returns false once the budget or the time is used up.
    pub(super) fn spend(&mut self, work: u64) -> bool {
        if self.left < work {
            self.left = 0;
            return false;
        }
        self.left -= work;
        if let Some(deadline) = self.deadline {
            if self.until_clock_read <= work {
                self.until_clock_read = WORK_PER_CLOCK_READ;
                if Instant::now() >= deadline {
                    self.left = 0;
                    return false;
                }
            }
            self.until_clock_read -= work.min(self.until_clock_read);
        }
        true
    }

    /// Whether `work` units could be spent.
    pub(super) fn allows(&self, work: u64) -> bool {
        self.left >= work && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Returns the units left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_ends_by_work_and_by_time() {
        let mut budget = Budget::new(10, None);
        assert!(budget.spend(4) && budget.spend(6) && !budget.spend(1));
        let mut late = Budget::new(u64::MAX, Some(Duration::ZERO));
        assert!(!late.allows(1) && !late.spend(1) && late.left() == 0);
        assert!(Budget::new(u64::MAX, Some(Duration::MAX)).spend(1));
    }
}
