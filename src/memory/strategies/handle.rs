//! Handles of blocks. An allocator refuses the handles of another allocator, and each handle is valid for one
//! free.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::AllocError;

/// Identifies one live block of one allocator. Copyable; refused by [`free`](super::Strategy::free) once its
/// block is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(super) owner: Owner,
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Identity of one allocator. It is only compared, so its value does not affect any offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Owner(u32);

impl Owner {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A table of live values with a handle each; slots are reused, handles are not.
#[derive(Debug)]
pub(in crate::memory) struct Slots<T> {
    owner: Owner,
    entries: Vec<Entry<T>>,
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(in crate::memory) fn new() -> Self {
        Self { owner: Owner::new(), entries: Vec::new(), vacant: Vec::new() }
    }

    pub(in crate::memory) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    pub(in crate::memory) fn insert(&mut self, value: T) -> Handle {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[slot as usize];
        entry.value = Some(value);
        Handle { owner: self.owner, slot, generation: entry.generation }
    }

    fn index(&self, handle: Handle) -> Result<usize, AllocError> {
        if handle.owner != self.owner {
            return Err(AllocError::ForeignHandle { slot: handle.slot });
        }
        let index = handle.slot as usize;
        match self.entries.get(index) {
            Some(entry) if entry.generation == handle.generation && entry.value.is_some() => Ok(index),
            _ => Err(AllocError::NotAllocated { slot: handle.slot }),
        }
    }

    pub(in crate::memory) fn remove(&mut self, handle: Handle) -> Result<T, AllocError> {
        let index = self.index(handle)?;
        let entry = &mut self.entries[index];
        entry.generation = entry.generation.wrapping_add(1);
        self.vacant.push(handle.slot);
        entry.value.take().ok_or(AllocError::NotAllocated { slot: handle.slot })
    }

    /// Live values in slot order.
    pub(in crate::memory) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| {
            let handle = Handle { owner: self.owner, slot: slot as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (handle, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_valid_once_and_only_in_its_slots() {
        let (mut a, mut b) = (Slots::new(), Slots::new());
        let first = a.insert('x');
        assert_eq!(b.remove(first), Err(AllocError::ForeignHandle { slot: 0 }));
        assert_eq!(a.remove(first), Ok('x'));
        assert_eq!(a.remove(first), Err(AllocError::NotAllocated { slot: 0 }));

        let second = a.insert('y');
        assert_eq!(second.slot, first.slot, "the slot is reused");
        assert_eq!(a.remove(first), Err(AllocError::NotAllocated { slot: 0 }), "the handle is not");
        assert_eq!(a.iter().collect::<Vec<_>>(), [(second, &'y')]);
        b.insert('z');
        assert_eq!((a.len(), b.len()), (1, 1));
    }
}
