//! Replays of allocation traces and packings as JSON, and the files that traces are read from.

use std::path::Path;

use crate::error::{Error, Result};
use crate::json::Json;
use crate::memory::planner::{Effort, Options, Packing, Problem, solve};
use crate::memory::replay::{Contender, Outcome, contenders, replay};
use crate::memory::snapshot::Snapshot;
use crate::memory::trace::Trace;
use crate::time::Instant;

/// A trace in a file.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// The trace.
    pub trace: Trace,
    /// Bytes that PyTorch had reserved at the end; only in snapshots.
    pub reserved: Option<u64>,
}

impl TraceFile {
    /// Reads lifetimes (CSV `id,lower,upper,size`), an event log of this library, or a memory snapshot of PyTorch (pickle), of
    /// which `device` is the one to replay; the first by default.
    ///
    /// # Errors
    /// [`Error::Data`] for a file that is none of these, for a device without events, and for a device of a file without
    /// devices.
    pub fn read(path: &Path, device: Option<usize>) -> Result<Self> {
        let name = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&name, bytes, device),
            Err(error) => Err(Error::Data { what: name, message: error.to_string() }),
        }
    }

    /// Does what [`TraceFile::read`] does, with the content of a file of this name.
    ///
    /// # Errors
    /// As [`TraceFile::read`].
    pub fn parse(name: &str, bytes: Vec<u8>, device: Option<usize>) -> Result<Self> {
        let wrong = |message: String| Error::Data { what: name.to_owned(), message };
        // Binary pickles begin with the byte 0x80, which no UTF-8 text begins with.
        if bytes.first() == Some(&0x80) {
            let device = device.unwrap_or(0);
            let snapshot = Snapshot::read(&bytes).map_err(|error| wrong(error.to_string()))?;
            let trace = snapshot.trace(device).map_err(|error| wrong(error.to_string()))?;
            if trace.steps.is_empty() {
                let devices = snapshot.device_traces.len();
                return Err(wrong(format!(
                    "device {device} of {devices} has no blocks and no events; choose another device"
                )));
            }
            return Ok(Self { trace, reserved: Some(snapshot.reserved(device)) });
        }
        if let Some(device) = device {
            return Err(wrong(format!("device {device}: only snapshots have devices; leave it out")));
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| wrong(format!("neither a binary pickle nor text: {}", error.utf8_error())))?;
        Ok(Self { trace: Trace::parse(&text).map_err(|error| wrong(error.to_string()))?, reserved: None })
    }

    /// Runs the trace through a strategy; `capacity` limits its bytes.
    ///
    /// # Errors
    /// [`Error::Pool`] if the strategy cannot have this capacity, [`Error::Pack`] if the trace cannot be planned.
    pub fn replay(&self, contender: Contender, capacity: Option<u64>) -> Result<Outcome> {
        replay(&self.trace, contender, capacity)
    }

    /// Returns what `wgrad replay --json` prints of this file.
    pub fn json(&self, name: &str, outcomes: &[Outcome]) -> Json {
        let strategy = |o: &Outcome| {
            let times = o.ns_per_op.map_or(Json::Null, |time| {
                Json::object([("p50", time.p50.into()), ("p99", Json::from(time.p99))])
            });
            Json::object([
                ("strategy", Json::from(o.name)),
                ("peak_live", o.peak_live.into()),
                ("peak_reserved", o.peak_reserved.into()),
                ("ratio", o.ratio.into()),
                ("fragmentation", o.fragmentation.into()),
                ("padding", o.padding.into()),
                ("failed", o.failed.into()),
                ("native_allocations", o.native_allocations.into()),
                ("ns_per_op", times),
            ])
        };
        Json::object([
            ("file", name.into()),
            ("blocks", self.trace.blocks.len().into()),
            ("lower_bound_bytes", self.trace.lower_bound().into()),
            ("reported_reserved_bytes", self.reserved.into()),
            ("strategies", Json::List(outcomes.iter().map(strategy).collect())),
        ])
    }
}

/// Replays a file through the strategies of these names, as [`contenders_named`], and returns what `wgrad replay --json` prints of it.
///
/// # Errors
/// [`Error::Unknown`] for the names, [`Error::Setting`] for a capacity of 0; those of [`TraceFile::replay`].
pub fn replayed(file: &TraceFile, name: &str, strategies: &str, capacity: Option<u64>) -> Result<Json> {
    let chosen = contenders_named(strategies)?;
    if capacity == Some(0) {
        return Err(Error::setting("capacity", "capacity 0: it must be at least 1 byte"));
    }
    let outcomes = chosen.into_iter().map(|contender| file.replay(contender, capacity));
    Ok(file.json(name, &outcomes.collect::<Result<Vec<_>>>()?))
}

/// Returns the contenders with these names, separated by commas; `all` for all of them.
///
/// # Errors
/// [`Error::Unknown`] with the known names.
pub fn contenders_named(names: &str) -> Result<Vec<Contender>> {
    let all = contenders();
    if names == "all" {
        return Ok(all);
    }
    let find = |name: &str| {
        let known =
            || all.iter().map(|contender| contender.name.to_owned()).chain(["all".to_owned()]).collect();
        let found = all.iter().find(|contender| contender.name == name).copied();
        found.ok_or_else(|| Error::Unknown { kind: "strategy", name: name.to_owned(), known: known() })
    };
    names.split(',').map(find).collect()
}

/// Packs a problem with an effort by name. Returns the packing, and what `wgrad pack --json` prints.
///
/// # Errors
/// [`Error::Unknown`] with the known efforts; [`Error::Pack`] for a problem that cannot be packed.
pub fn pack(problem: &Problem, effort: &str, capacity: Option<u64>) -> Result<(Packing, Json)> {
    let named = Effort::named(effort);
    let effort = named.ok_or_else(|| Error::unknown("effort", effort, &Effort::NAMES))?;
    let start = Instant::now();
    let packing = solve(problem, &Options { effort, capacity, time_limit: None })?;
    let json = packing_json(problem, &packing, start.elapsed().as_secs_f64());
    Ok((packing, json))
}

/// Returns what `wgrad pack --json` prints of a packing that took this long.
pub fn packing_json(problem: &Problem, packing: &Packing, seconds: f64) -> Json {
    let certificate = &packing.certificate;
    Json::object([
        ("buffers", problem.items.len().into()),
        ("lower_bound", certificate.lower_bound.into()),
        ("height", certificate.height.into()),
        ("ratio", certificate.ratio().into()),
        ("optimal", certificate.optimal.into()),
        ("method", certificate.method.to_string().into()),
        ("seconds", Json::from(seconds)),
    ])
}
