//! Event log of a pool.

use std::collections::VecDeque;
use std::sync::Arc;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// A block was allocated.
    Alloc,
    /// The memory of a block became available.
    Free,
    /// A page was created.
    PageAlloc,
    /// A page was released.
    PageFree,
    /// A request failed for lack of memory; `size` is the requested size, padded.
    Oom,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 5] = [Self::Alloc, Self::Free, Self::PageAlloc, Self::PageFree, Self::Oom];

    /// Returns the name of the action in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::PageAlloc => "page_alloc",
            Self::PageFree => "page_free",
            Self::Oom => "oom",
        }
    }

    /// Returns the action with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocEvent {
    /// Sequence number of the event in its pool, from 0.
    pub t: u64,
    /// What happened.
    pub action: Action,
    /// Page number; 0 for `Oom`.
    pub page: u32,
    /// First byte within the page.
    pub offset: u64,
    /// Bytes of the block, padded, or of the page.
    pub size: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Name of the tensor; empty for pages.
    pub name: Arc<str>,
    /// Class of the tensor; empty for pages.
    pub class: Arc<str>,
}

/// The last events of a pool.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    events: VecDeque<AllocEvent>,
    limit: usize,
    next: u64,
}

impl EventLog {
    /// Creates a log that keeps the last `limit` events; with 0 it neither keeps nor counts events.
    pub fn new(limit: usize) -> Self {
        Self { events: VecDeque::new(), limit, next: 0 }
    }

    /// Iterates over the events in the log, oldest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &AllocEvent> {
        self.events.iter()
    }

    /// Returns how many events were dropped because of the limit. Only a log without dropped events can be
    /// replayed.
    pub fn dropped(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    pub(super) fn is_on(&self) -> bool {
        self.limit > 0
    }

    pub(super) fn push(&mut self, mut event: AllocEvent) {
        if !self.is_on() {
            return;
        }
        event.t = self.next;
        self.next += 1;
        if self.events.len() == self.limit {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_the_last_events_and_counts_the_dropped() {
        let mut log = EventLog::new(2);
        for size in 0..5 {
            let (name, class): (Arc<str>, Arc<str>) = ("x".into(), "activation".into());
            log.push(AllocEvent {
                t: 0,
                action: Action::Alloc,
                page: 0,
                offset: 0,
                size,
                requested: size,
                name,
                class,
            });
        }
        assert_eq!(log.events().map(|e| (e.t, e.size)).collect::<Vec<_>>(), [(3, 3), (4, 4)]);
        assert_eq!(log.dropped(), 3);
        assert_eq!(EventLog::new(0).dropped(), 0);
    }

    #[test]
    fn action_names_round_trip() {
        for action in Action::ALL {
            assert_eq!(Action::from_name(action.name()), Some(action));
        }
    }
}
