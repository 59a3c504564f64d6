//! Traces: sequences of allocations and frees, read from and written as a CSV of lifetimes or an event log.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::memory::event::{Action, AllocEvent};

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Block `id` is allocated.
    Alloc {
        /// Index into [`Trace::blocks`].
        id: usize,
        /// Bytes asked for.
        size: u64,
    },
    /// Block `id` is freed.
    Free {
        /// Index into [`Trace::blocks`].
        id: usize,
    },
}

/// A sequence of allocations and frees that any strategy can be run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The steps, in order. Every id is allocated once and freed at most once, after its allocation.
    pub steps: Vec<Step>,
    /// Names of the blocks, by id.
    pub blocks: Vec<String>,
}

/// Size and lifetime of a block of a trace. A step is a unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Step at which it is allocated.
    pub from: usize,
    /// Step at which it is freed; if it is never freed, the number of steps.
    pub until: usize,
    /// Bytes asked for.
    pub size: u64,
}

/// A trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ReadError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there and what was expected.
    pub what: String,
}

impl ReadError {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

const LIFETIMES: &str = "id,lower,upper,size";
const EVENTS: &str = "t,action,page,offset,size,requested,class,name";

impl Trace {
    /// Parses either of the two text formats; the first line identifies the format.
    ///
    /// # Errors
    /// [`ReadError`] with the line and what was expected there.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        match text.lines().next().map(str::trim_end) {
            Some(LIFETIMES) => Self::from_lifetimes(text),
            Some(EVENTS) => Self::from_event_log(text),
            _ => Err(ReadError::new(1, format!("expected the header `{LIFETIMES}` or `{EVENTS}`"))),
        }
    }

    /// Parses MiniMalloc's format: one row per block, which is live on the half-open interval [lower, upper).
    /// At equal times frees come before allocations, and rows keep their order.
    fn from_lifetimes(text: &str) -> Result<Self, ReadError> {
        let mut blocks = Vec::new();
        let mut events = Vec::new();
        for (line, row) in rows(text) {
            let fields: Vec<&str> = row.split(',').map(str::trim).collect();
            let [name, lower, upper, size] = fields[..] else {
                return Err(ReadError::new(line, format!("expected 4 fields, found {}", fields.len())));
            };
            let (lower, upper) = (number(line, "lower", lower)?, number(line, "upper", upper)?);
            let size = number(line, "size", size)?;
            if lower >= upper {
                return Err(ReadError::new(line, format!("lower {lower} is not below upper {upper}")));
            }
            let id = blocks.len();
            events.push((lower, 1, Step::Alloc { id, size }));
            events.push((upper, 0, Step::Free { id }));
            blocks.push(name.to_string());
        }
        events.sort_by_key(|&(time, kind, _)| (time, kind));
        let steps = events.into_iter().map(|(_, _, step)| step).collect();
        Self { steps, blocks }.checked().map_err(|what| ReadError::new(1, what))
    }

    /// Parses the format of [`write_events`].
    fn from_event_log(text: &str) -> Result<Self, ReadError> {
        let mut trace = Self::default();
        let mut live = BTreeMap::new();
        for (line, row) in rows(text) {
            let fields: Vec<&str> = row.splitn(8, ',').collect();
            let [_, action, page, offset, _, requested, _, name] = fields[..] else {
                return Err(ReadError::new(line, format!("expected 8 fields, found {}", fields.len())));
            };
            let action = Action::from_name(action)
                .ok_or_else(|| ReadError::new(line, format!("`{action}` is no action of an event log")))?;
            let place = (number(line, "page", page)?, number(line, "offset", offset)?);
            let size = number(line, "requested", requested)?;
            match action {
                Action::Alloc => trace.alloc(&mut live, place, size, name),
                Action::Free => trace.free(&mut live, place),
                Action::PageAlloc | Action::PageFree | Action::Oom => Ok(()),
            }
            .map_err(|what| ReadError::new(line, what))?;
        }
        trace.checked().map_err(|what| ReadError::new(1, what))
    }

    /// Adds an allocation at `place`, where no block may be live.
    pub(super) fn alloc<P: Ord + std::fmt::Debug>(
        &mut self,
        live: &mut BTreeMap<P, usize>,
        place: P,
        size: u64,
        name: &str,
    ) -> Result<(), String> {
        let id = self.blocks.len();
        let text = format!("{place:?}");
        if live.insert(place, id).is_some() {
            return Err(format!("{name} is allocated at {text}, where a block lives already"));
        }
        self.blocks.push(name.to_string());
        self.steps.push(Step::Alloc { id, size });
        Ok(())
    }

    /// Adds the free of the block at `place`.
    pub(super) fn free<P: Ord + std::fmt::Debug>(
        &mut self,
        live: &mut BTreeMap<P, usize>,
        place: P,
    ) -> Result<(), String> {
        let id =
            live.remove(&place).ok_or_else(|| format!("nothing lives at {place:?}; is the log complete?"))?;
        self.steps.push(Step::Free { id });
        Ok(())
    }

    /// Refuses a trace if its sizes sum to more than 2^62 bytes.
    pub(super) fn checked(self) -> Result<Self, String> {
        let size = |step: &Step| if let Step::Alloc { size, .. } = *step { u128::from(size) } else { 0 };
        if self.steps.iter().map(size).sum::<u128>() > 1 << 62 {
            return Err("all sizes together exceed 2^62 bytes".to_string());
        }
        Ok(self)
    }

    /// Returns the peak of live bytes: no strategy can reserve less.
    pub fn lower_bound(&self) -> u64 {
        let mut sizes = vec![0; self.blocks.len()];
        let (mut live, mut peak) = (0u64, 0);
        for step in &self.steps {
            match *step {
                Step::Alloc { id, size } => {
                    sizes[id] = size;
                    live += size;
                    peak = peak.max(live);
                }
                Step::Free { id } => live -= sizes[id],
            }
        }
        peak
    }

    /// Returns size and lifetime of each block, by id.
    pub fn lifetimes(&self) -> Vec<Lifetime> {
        let until = self.steps.len();
        let mut lifetimes = vec![Lifetime { from: 0, until, size: 0 }; self.blocks.len()];
        for (time, step) in self.steps.iter().enumerate() {
            match *step {
                Step::Alloc { id, size } => lifetimes[id] = Lifetime { from: time, until, size },
                Step::Free { id } => lifetimes[id].until = time,
            }
        }
        lifetimes
    }

    /// Returns the trace as `id,lower,upper,size`. A step is a unit of time, and a block that is never freed
    /// lives until the end.
    pub fn to_lifetimes(&self) -> String {
        let mut text = format!("{LIFETIMES}\n");
        for (id, Lifetime { from: lower, until: upper, size }) in self.lifetimes().into_iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{id},{lower},{upper},{size}");
        }
        text
    }
}

/// Writes events as text that [`Trace::parse`] reads: one line per event, with the name last, so that it may
/// contain commas. Commas in the class and line breaks in both labels become spaces.
pub fn write_events<'a>(events: impl IntoIterator<Item = &'a AllocEvent>) -> String {
    let mut text = format!("{EVENTS}\n");
    for event in events {
        let AllocEvent { t, action, page, offset, size, requested, name, class } = event;
        let class = class.replace([',', '\n', '\r'], " ");
        let name = name.replace(['\n', '\r'], " ");
        let _ = writeln!(text, "{t},{},{page},{offset},{size},{requested},{class},{name}", action.name());
    }
    text
}

/// Returns the non-empty lines after the header, with their line numbers.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().skip(1).map(|(i, row)| (i + 1, row)).filter(|(_, row)| !row.trim().is_empty())
}

fn number(line: usize, field: &str, text: &str) -> Result<u64, ReadError> {
    text.parse().map_err(|_| ReadError::new(line, format!("{field} `{text}` is no whole number of 64 bits")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Offsets, Pool, PoolOptions, Request};

    #[test]
    fn lifetimes_are_half_open_and_round_trip() {
        let text = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\r\n\nb3,0,9,1\n";
        let trace = Trace::parse(text).expect("valid");
        assert_eq!(trace.lower_bound(), 5, "b1 is gone when b2 comes");
        assert_eq!(trace.blocks, ["b1", "b2", "b3"]);
        assert_eq!(trace.steps[2..4], [Step::Free { id: 0 }, Step::Alloc { id: 1, size: 4 }]);
        let again = Trace::parse(&trace.to_lifetimes()).expect("valid");
        assert_eq!((again.lower_bound(), again.steps), (5, trace.steps));
    }

    #[test]
    fn errors_name_their_line() {
        let cases = [
            ("", 1, "expected the header"),
            ("id,lower,upper,size\n1,2,3", 2, "expected 4 fields, found 3"),
            ("id,lower,upper,size\na,0,1,1\nb,5,5,1", 3, "lower 5 is not below upper 5"),
            ("id,lower,upper,size\na,0,1,-1", 2, "size `-1`"),
            ("id,lower,upper,size\na,0,1,18446744073709551615", 1, "exceed 2^62"),
            (
                "t,action,page,offset,size,requested,class,name\n0,free,0,0,4,4,x,y",
                2,
                "nothing lives at (0, 0)",
            ),
            ("t,action,page,offset,size,requested,class,name\n0,jump,0,0,4,4,x,y", 2, "`jump` is no action"),
        ];
        for (text, line, part) in cases {
            let error = Trace::parse(text).expect_err(text);
            assert!(error.line == line && error.what.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_pool_is_recorded_and_replayed() {
        let mut pool =
            Pool::new(PoolOptions { events: 100, ..PoolOptions::default() }, Offsets).expect("valid");
        let names = ["fc1, weight", "line\nbreak"];
        let blocks = names.map(|name| pool.alloc(Request::new(1000, name, "a,b")).expect("room"));
        pool.free(blocks[0]).expect("live");
        pool.trim();
        let text = write_events(pool.log().events());
        let trace = Trace::parse(&text).expect("our own form");
        assert_eq!(trace.blocks, ["fc1, weight", "line break"]);
        let expected =
            [Step::Alloc { id: 0, size: 1000 }, Step::Alloc { id: 1, size: 1000 }, Step::Free { id: 0 }];
        assert_eq!(trace.steps, expected);
    }
}
