//! Exports a plan as a memory snapshot of one step, in the format of PyTorch's viewer.

use super::{Arena, Plan, Region, StorageId};
use crate::memory::{Action, Dump, DumpBlock, DumpSegment, Label};

impl Plan {
    /// The step as a snapshot for <https://pytorch.org/memory_viz>. Every arena is a segment. Every tensor is
    /// allocated where it is first written and freed after its last use. The segments hold the tensors alive
    /// after the step. `Dump::pickle` serializes the snapshot.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn dump(&self) -> Dump {
        let arenas: Vec<(Arena, u64)> = self.layout.arenas().collect();
        let page = |arena: Arena| arenas.iter().position(|(other, _)| *other == arena).unwrap_or(0) as u32;
        let end = self.program.order.len();
        let mut born = vec![Vec::new(); end + 1];
        let mut dead = vec![Vec::new(); end + 1];
        let mut segments: Vec<DumpSegment> = (0..)
            .zip(&arenas)
            .map(|(page, (_, size))| DumpSegment { page, size: *size, live: Vec::new() })
            .collect();
        for (i, storage) in self.program.storages.iter().enumerate() {
            let first = if storage.persistent { 0 } else { storage.first };
            born[first].push(i);
            let stays = storage.persistent || storage.last >= end;
            if !stays {
                dead[storage.last].push(i);
                continue;
            }
            for (Region { arena, offset }, size, requested) in self.parts(i) {
                let block = DumpBlock { offset, size, requested, label: self.label(i) };
                segments[page(arena) as usize].live.push(block);
            }
        }
        let mut dump = Dump::new(segments);
        for (number, (arena, bytes)) in (0..).zip(&arenas) {
            let label = Label { name: arena.to_string(), ..Label::default() };
            dump.event(Action::PageAlloc, (number, 0, *bytes), label);
        }
        for position in 0..=end {
            let groups = [(Action::Alloc, &born[position]), (Action::Free, &dead[position])];
            for (action, list) in groups {
                for &i in list {
                    for (Region { arena, offset }, _, requested) in self.parts(i) {
                        dump.event(action, (page(arena), offset, requested), self.label(i));
                    }
                }
            }
        }
        dump
    }

    /// The parts of a storage: one, unless it is larger than a buffer.
    fn parts(&self, storage: usize) -> impl Iterator<Item = (Region, u64, u64)> {
        self.layout.parts(&self.program, StorageId(storage as u32))
    }

    fn label(&self, storage: usize) -> Label {
        let of = &self.program.storages[storage];
        let layer = self.program.layer_of(storage);
        let class = of.class_at(of.first).name();
        let file = if layer.is_empty() { class.to_owned() } else { format!("{layer} ({class})") };
        Label { file, line: of.first as u64, name: of.name.clone() }
    }
}
