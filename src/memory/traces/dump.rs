//! Writes PyTorch's memory snapshots, which <https://pytorch.org/memory_viz> and `torch.cuda._memory_viz`
//! open.
//!
//! The viewer supports few pickle opcodes, so only these are written: numbers of 1, 4 and 8 bytes, strings,
//! lists, dicts.

use crate::memory::event::{Action, AllocEvent};

/// Label of a block, written as its Python stack frame: the viewer shows `filename:line:name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Layer or class.
    pub file: String,
    /// Position in the order of operations, or number of the event.
    pub line: u64,
    /// Name of the tensor.
    pub name: String,
}

/// A block that is live at the time of the dump. Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpBlock {
    /// First byte within its segment.
    pub offset: u64,
    /// Its size, padded.
    pub size: u64,
    /// Requested size.
    pub requested: u64,
    /// Its label.
    pub label: Label,
}

/// A reserved range, in practice a buffer. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpSegment {
    /// Its number, by which events refer to it.
    pub page: u32,
    /// Its size.
    pub size: u64,
    /// Its live blocks, in any order.
    pub live: Vec<DumpBlock>,
}

/// An event of a block or a segment.
#[derive(Clone, Debug)]
struct Event {
    action: Action,
    page: u32,
    offset: u64,
    size: u64,
    label: Label,
}

/// A snapshot to be written: the segments at the time of the dump, and the events before it.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    segments: Vec<DumpSegment>,
    events: Vec<Event>,
}

/// Returns the address of `offset` in `page`. Pages are 2^40 bytes apart, so that each has its own address
/// range.
fn address(page: u32, offset: u64) -> u64 {
    ((u64::from(page) + 1) << 40) + offset
}

impl Dump {
    /// Creates a snapshot of these segments, without a history.
    pub fn new(segments: Vec<DumpSegment>) -> Self {
        Self { segments, events: Vec::new() }
    }

    /// Appends an event that happened before the dump.
    pub fn event(&mut self, action: Action, (page, offset, size): (u32, u64, u64), label: Label) {
        self.events.push(Event { action, page, offset, size, label });
    }

    /// Appends an event of a pool.
    pub(in crate::memory) fn pool_event(&mut self, event: &AllocEvent) {
        let label = Label { file: event.class.to_string(), line: event.t, name: event.name.to_string() };
        let size = if event.action == Action::Alloc || event.action == Action::Free {
            event.requested
        } else {
            event.size
        };
        self.event(event.action, (event.page, event.offset, size), label);
    }

    /// Returns the snapshot as a pickle file.
    pub fn pickle(&self) -> Vec<u8> {
        let mut out = Writer(vec![0x80, 2]);
        out.dict(|out| {
            out.key("segments");
            out.list(|out| self.segments.iter().for_each(|segment| out.segment(segment)));
            out.key("device_traces");
            out.list(|out| {
                out.list(|out| self.events.iter().enumerate().for_each(|(t, event)| out.event(t, event)))
            });
        });
        out.0.push(b'.');
        out.0
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn list(&mut self, items: impl FnOnce(&mut Self)) {
        self.0.extend(b"](");
        items(self);
        self.0.push(b'e');
    }

    fn dict(&mut self, entries: impl FnOnce(&mut Self)) {
        self.0.extend(b"}(");
        entries(self);
        self.0.push(b'u');
    }

    fn key(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.key(text);
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        match i32::try_from(number) {
            Ok(small) => {
                self.0.push(b'J');
                self.0.extend(small.to_le_bytes());
            }
            Err(_) => {
                self.0.extend([0x8a, 8]);
                self.0.extend(number.min(i64::MAX as u64).to_le_bytes());
            }
        }
    }

    fn frames(&mut self, label: Option<&Label>) {
        self.key("frames");
        self.list(|out| {
            if let Some(label) = label {
                out.dict(|out| {
                    out.text("filename", &label.file);
                    out.number("line", label.line);
                    out.text("name", &label.name);
                });
            }
        });
    }

    fn segment(&mut self, segment: &DumpSegment) {
        let mut live: Vec<&DumpBlock> = segment.live.iter().collect();
        live.sort_by_key(|block| block.offset);
        let allocated = live.iter().map(|block| block.size).sum();
        self.dict(|out| {
            out.number("device", 0);
            out.number("address", address(segment.page, 0));
            out.number("total_size", segment.size);
            out.number("allocated_size", allocated);
            out.number("active_size", allocated);
            out.number("requested_size", live.iter().map(|block| block.requested).sum());
            out.number("stream", 0);
            out.text("segment_type", "large");
            out.frames(None);
            out.key("blocks");
            out.list(|out| {
                let mut end = 0;
                for block in live {
                    out.hole(segment.page, end, block.offset);
                    out.block((segment.page, block.offset), block.size, block.requested, Some(&block.label));
                    end = block.offset + block.size;
                }
                out.hole(segment.page, end, segment.size);
            });
        });
    }

    fn hole(&mut self, page: u32, from: u64, until: u64) {
        if until > from {
            self.block((page, from), until - from, 0, None);
        }
    }

    fn block(&mut self, (page, offset): (u32, u64), size: u64, requested: u64, label: Option<&Label>) {
        self.dict(|out| {
            out.number("address", address(page, offset));
            out.number("size", size);
            out.number("requested_size", requested);
            out.text("state", if label.is_some() { "active_allocated" } else { "inactive" });
            out.frames(label);
        });
    }

    /// Writes an event. A free is written as both requested and completed, because no stream delays it.
    fn event(&mut self, t: usize, event: &Event) {
        let actions: &[&str] = match event.action {
            Action::Alloc => &["alloc"],
            Action::Free => &["free_requested", "free_completed"],
            Action::PageAlloc => &["segment_alloc"],
            Action::PageFree => &["segment_free"],
            Action::Oom => &["oom"],
        };
        for action in actions {
            self.dict(|out| {
                out.text("action", action);
                out.number(
                    if event.action == Action::Oom { "device_free" } else { "addr" },
                    match event.action {
                        Action::Oom => 0,
                        _ => address(event.page, event.offset),
                    },
                );
                out.number("size", event.size);
                out.number("stream", 0);
                out.number("time_us", t as u64);
                out.frames(Some(&event.label));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::snapshot::Snapshot;

    #[test]
    fn written_dumps_are_read_back() {
        let label = |name: &str| Label { file: "fc1".to_owned(), line: 3, name: name.to_owned() };
        let block = |offset, size| DumpBlock { offset, size, requested: size - 6, label: label("w") };
        let live = vec![block(1 << 33, 512), block(256, 256)];
        let mut dump = Dump::new(vec![DumpSegment { page: 1, size: 1 << 34, live }]);
        dump.event(Action::PageAlloc, (1, 0, 1 << 34), Label::default());
        dump.event(Action::Alloc, (1, 256, 250), label("w"));
        dump.event(Action::Alloc, (1, 1024, 9), label("gone"));
        dump.event(Action::Free, (1, 1024, 9), label("gone"));
        dump.event(Action::Alloc, (1, 1 << 33, 506), label("w"));
        let read = Snapshot::read(&dump.pickle()).expect("our own form");
        let segment = &read.segments[0];
        assert_eq!((segment.address, segment.total_size), (2 << 40, 1 << 34));
        let blocks: Vec<_> =
            segment.blocks.iter().map(|b| (b.address - (2 << 40), b.size, b.active)).collect();
        let last = (1 << 33) + 512;
        let expected = [
            (0, 256, false),
            (256, 256, true),
            (512, (1 << 33) - 512, false),
            (1 << 33, 512, true),
            (last, (1 << 34) - last, false),
        ];
        assert_eq!(blocks, expected);
        let events: Vec<_> =
            read.device_traces[0].iter().map(|e| (e.alloc, e.address - (2 << 40), e.size)).collect();
        assert_eq!(events, [(true, 256, 250), (true, 1024, 9), (false, 1024, 9), (true, 1 << 33, 506)]);
        assert_eq!(read.trace(0).expect("a history that fits").blocks.len(), 3);
    }
}
