//! Reads PyTorch's memory snapshots, which `torch.cuda.memory._dump_snapshot` writes, as segments and as a
//! [`Trace`].

use std::collections::BTreeMap;

use super::trace::Trace;
use crate::pickle::{Id, Pickle, PickleError, Value};

/// A snapshot that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file is not a pickle of plain data.
    #[error("not a pickle of plain data: {0}")]
    Pickle(#[from] PickleError),
    /// The data does not have the structure that PyTorch writes.
    #[error("{place}: {what}; expected what torch.cuda.memory._dump_snapshot writes")]
    Shape {
        /// Where in the data, for example `segments[3].total_size`.
        place: String,
        /// What is wrong there.
        what: String,
    },
}

/// The state of the allocator at the time of the dump, and the events before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Segments: ranges that the allocator had reserved.
    pub segments: Vec<Segment>,
    /// Events by device, oldest first. The allocator keeps a limited number of them.
    pub device_traces: Vec<Vec<Event>>,
}

/// A reserved range. Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Device of the segment; 0 if the snapshot does not specify it.
    pub device: usize,
    /// First address.
    pub address: u64,
    /// Its size.
    pub total_size: u64,
    /// The blocks that cover it.
    pub blocks: Vec<SegmentBlock>,
}

/// A part of a segment. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBlock {
    /// First address.
    pub address: u64,
    /// Its size, padded.
    pub size: u64,
    /// Requested size.
    pub requested_size: u64,
    /// Whether the block is allocated, or freed but still in use by the device.
    pub active: bool,
}

/// An allocation or a completed free; other events of the log are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it is an allocation (`alloc`) or a free (`free_completed`).
    pub alloc: bool,
    /// Its address.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
}

impl Snapshot {
    /// Reads a snapshot. Only data is read: a pickle that would import or call anything is refused.
    ///
    /// # Errors
    /// [`SnapshotError`], with the byte offset or the place in the data.
    pub fn read(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let pickle = Pickle::read(bytes)?;
        let root = Node { pickle: &pickle, id: pickle.root(), place: String::new() };
        let segments = root
            .field("segments")?
            .items()?
            .into_iter()
            .map(|node| segment(&node))
            .collect::<Result<_, _>>()?;
        let device_traces = match root.optional("device_traces") {
            Some(traces) => {
                traces.items()?.into_iter().map(|node| events(&node)).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        Ok(Self { segments, device_traces })
    }

    /// Returns the bytes of all segments of `device` at the time of the dump.
    pub fn reserved(&self, device: usize) -> u64 {
        self.segments
            .iter()
            .filter(|segment| segment.device == device)
            .map(|segment| segment.total_size)
            .sum()
    }

    /// Returns the allocations of `device` as a trace. Blocks allocated before its first event come first, by
    /// address: blocks that are freed in the trace, and blocks that are active at the dump and do not occur
    /// in it.
    ///
    /// # Errors
    /// [`SnapshotError::Shape`] if two live blocks have one address, or the sizes sum to more than 2^62
    /// bytes.
    pub fn trace(&self, device: usize) -> Result<Trace, SnapshotError> {
        let events = self.device_traces.get(device).map_or(&[][..], Vec::as_slice);
        let mut before = BTreeMap::new();
        let mut seen = BTreeMap::new();
        for event in events {
            if seen.insert(event.address, ()).is_none() && !event.alloc {
                before.insert(event.address, event.size);
            }
        }
        let segments = self.segments.iter().filter(|segment| segment.device == device);
        for block in segments.flat_map(|segment| &segment.blocks) {
            if block.active && !seen.contains_key(&block.address) {
                before.insert(block.address, block.requested_size);
            }
        }
        let before = before.into_iter().map(|(address, size)| Event { alloc: true, address, size });
        let (mut trace, mut live) = (Trace::default(), BTreeMap::new());
        for (i, event) in before.chain(events.iter().copied()).enumerate() {
            let Event { alloc, address, size } = event;
            if alloc {
                trace.alloc(&mut live, address, size, &format!("{address:#x}"))
            } else {
                trace.free(&mut live, address)
            }
            .map_err(|what| SnapshotError::Shape {
                place: format!("device_traces[{device}], step {i}"),
                what,
            })?;
        }
        trace
            .checked()
            .map_err(|what| SnapshotError::Shape { place: format!("device_traces[{device}]"), what })
    }
}

fn segment(node: &Node<'_>) -> Result<Segment, SnapshotError> {
    let address = node.field("address")?.number()?;
    let mut next = address;
    let mut blocks = Vec::new();
    for block in node.field("blocks")?.items()? {
        let size = block.field("size")?.number()?;
        // Snapshots of PyTorch before 2.1 omit values that can be computed.
        let address = block.optional("address").map_or(Ok(next), |node| node.number())?;
        let requested_size = block.optional("requested_size").map_or(Ok(size), |node| node.number())?;
        let active = block.field("state")?.text()?.starts_with("active");
        next = address.checked_add(size).ok_or_else(|| block.wrong("the block ends beyond 2^64"))?;
        blocks.push(SegmentBlock { address, size, requested_size, active });
    }
    let device = node.optional("device").map_or(Ok(0), |node| node.number())?;
    let device = usize::try_from(device).map_err(|_| node.wrong("a device number"))?;
    Ok(Segment { device, address, total_size: node.field("total_size")?.number()?, blocks })
}

fn events(node: &Node<'_>) -> Result<Vec<Event>, SnapshotError> {
    let mut events = Vec::new();
    for event in node.items()? {
        let alloc = match event.field("action")?.text()? {
            "alloc" => true,
            "free_completed" => false,
            _ => continue,
        };
        let (address, size) = (event.field("addr")?.number()?, event.field("size")?.number()?);
        events.push(Event { alloc, address, size });
    }
    Ok(events)
}

/// A value with its path in the data, for error messages.
struct Node<'a> {
    pickle: &'a Pickle,
    id: Id,
    place: String,
}

impl<'a> Node<'a> {
    fn wrong(&self, what: impl Into<String>) -> SnapshotError {
        let place = if self.place.is_empty() { "the whole".to_string() } else { self.place.clone() };
        SnapshotError::Shape { place, what: what.into() }
    }

    fn optional(&self, key: &str) -> Option<Self> {
        let id = self.pickle.get(self.id, key)?;
        let dot = if self.place.is_empty() { "" } else { "." };
        Some(Self { pickle: self.pickle, id, place: format!("{}{dot}{key}", self.place) })
    }

    fn field(&self, key: &str) -> Result<Self, SnapshotError> {
        self.optional(key).ok_or_else(|| self.wrong(format!("`{key}` is missing")))
    }

    fn items(&self) -> Result<Vec<Self>, SnapshotError> {
        let Value::List(items) = self.pickle.value(self.id) else {
            return Err(self.wrong("not a list"));
        };
        let node = |(i, &id)| Self { pickle: self.pickle, id, place: format!("{}[{i}]", self.place) };
        Ok(items.iter().enumerate().map(node).collect())
    }

    fn number(&self) -> Result<u64, SnapshotError> {
        let Value::Int(number) = *self.pickle.value(self.id) else {
            return Err(self.wrong("not an integer"));
        };
        u64::try_from(number).map_err(|_| self.wrong(format!("{number} is not within 0 and 2^64")))
    }

    fn text(&self) -> Result<&'a str, SnapshotError> {
        match self.pickle.value(self.id) {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong("not a string")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::trace::Step;

    /// Writes plain data as a protocol 2 pickle.
    #[derive(Default)]
    struct Writer(Vec<u8>);

    impl Writer {
        fn text(mut self, text: &str) -> Self {
            self.0.push(b'X');
            self.0.extend((text.len() as u32).to_le_bytes());
            self.0.extend(text.as_bytes());
            self
        }

        fn number(mut self, number: u64) -> Self {
            self.0.extend([0x8a, 9]);
            self.0.extend(number.to_le_bytes());
            self.0.push(0);
            self
        }

        fn raw(mut self, bytes: &[u8]) -> Self {
            self.0.extend(bytes);
            self
        }

        fn event(self, action: &str, address: u64, size: u64) -> Self {
            let start = self.raw(b"}(").text("action").text(action);
            start.text("addr").number(address).text("size").number(size).raw(b"u")
        }
    }

    /// Two blocks in one segment, one of them allocated before the log starts. The log also has the free of a
    /// third block.
    fn dump() -> Vec<u8> {
        let start = Writer::default().raw(b"\x80\x02}(").text("segments").raw(b"](}(");
        let segment = start
            .text("address")
            .number(1 << 40)
            .text("total_size")
            .number(2 << 20)
            .text("blocks")
            .raw(b"](");
        let block = |w: Writer, size, state| {
            w.raw(b"}(").text("size").number(size).text("state").text(state).raw(b"u")
        };
        let blocks = block(block(segment, 512, "active_allocated"), 1024, "active_allocated");
        let blocks = block(blocks, (2 << 20) - 1536, "inactive").raw(b"eue");
        let log = blocks.text("device_traces").raw(b"](](").event("segment_alloc", 1 << 40, 2 << 20);
        let log = log.event("alloc", (1 << 40) + 512, 1000).event("free_requested", 7, 100).event(
            "free_completed",
            7,
            100,
        );
        log.raw(b"eeu.").0
    }

    #[test]
    fn segments_and_trace() {
        let snapshot = Snapshot::read(&dump()).expect("well formed");
        assert_eq!(snapshot.reserved(0), 2 << 20);
        let addresses: Vec<u64> =
            snapshot.segments[0].blocks.iter().map(|block| block.address - (1 << 40)).collect();
        assert_eq!(addresses, [0, 512, 1536], "computed where the file leaves them out");
        let trace = snapshot.trace(0).expect("consistent");
        assert_eq!(trace.blocks, ["0x7", "0x10000000000", "0x10000000200"]);
        let expected = [
            Step::Alloc { id: 0, size: 100 },
            Step::Alloc { id: 1, size: 512 },
            Step::Alloc { id: 2, size: 1000 },
            Step::Free { id: 0 },
        ];
        assert_eq!(trace.steps, expected);
        assert_eq!(snapshot.trace(1).expect("no such device, no events").steps, []);
    }

    #[test]
    fn errors_name_their_place() {
        let cases = [
            (Writer::default().raw(b"\x80\x02}."), "the whole: `segments` is missing"),
            (Writer::default().raw(b"\x80\x02}(").text("segments").raw(b"Nu."), "segments: not a list"),
            (
                Writer::default().raw(b"\x80\x02}(").text("segments").raw(b"](}eu."),
                "segments[0]: `address` is missing",
            ),
        ];
        for (writer, part) in cases {
            let error = Snapshot::read(&writer.0).expect_err(part).to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn no_truncation_and_no_changed_byte_panics() {
        let good = dump();
        for end in 0..good.len() {
            assert!(Snapshot::read(&good[..end]).is_err(), "cut at {end}");
        }
        let mut errors = 0;
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bad = good.clone();
                bad[at] = byte;
                errors += u32::from(
                    Snapshot::read(&bad)
                        .and_then(|snapshot| snapshot.trace(0))
                        .map(|trace| trace.lower_bound())
                        .is_err(),
                );
            }
        }
        assert!(errors > 1000, "only {errors} of the damaged files were refused");
    }
}
