//! Profile of one run of a plan: the device time of each dispatch, as a table and as a trace.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::{ProgramId, Session};
use crate::compile::Plan;
use crate::error::Result;
use crate::graph::Class;
use crate::json::Json;
use crate::limits::Card;
use crate::maybe_async;
use crate::units::Bytes;

/// A dispatch and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSpan {
    /// Name of the kernel.
    pub kernel: Cow<'static, str>,
    /// Name of the operation.
    pub op: &'static str,
    /// Path of the layer; empty outside of layers and for fused updates of several parameters.
    pub layer: String,
    /// Phase of the step: `forward`, `backward` or `update`.
    pub phase: &'static str,
    /// Position in the order of operations.
    pub position: usize,
    /// Nanoseconds since the step's first dispatch began.
    pub start_ns: f64,
    /// Nanoseconds on the device.
    pub ns: f64,
    /// Bytes of the memory it binds: read, written or both.
    pub bytes: u64,
    /// Floating-point operations, as [`Plan::launches`] counts them: an operation's are divided among its dispatches.
    pub flops: u64,
}

/// All dispatches of one run of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Dispatches in the order they ran.
    pub spans: Vec<KernelSpan>,
    /// Live bytes at each position in the order of operations, for each of [`Class::ALL`].
    alive: Vec<[u64; 6]>,
}

/// Totals over all dispatches of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelTotal {
    /// Number of dispatches.
    pub calls: usize,
    /// Nanoseconds on the device.
    pub ns: f64,
    /// Bytes bound.
    pub bytes: u64,
    /// Floating-point operations.
    pub flops: u64,
}

impl Session {
    /// Runs a plan once, like [`Session::run`], with each dispatch in its own pass between two timestamps of
    /// the device. Results are the same. The step takes a little longer, and two small buffers exist during
    /// the run in addition to the session's own.
    ///
    /// # Errors
    /// As [`Session::run`]; [`Error::Unsupported`](crate::Error::Unsupported) on adapters without timestamp queries.
    #[maybe_async]
    pub async fn profile(&mut self, id: ProgramId) -> Result<Profile> {
        let plan = self.plan(id)?.clone();
        let times = self.run_timed(id).await?;
        Ok(Profile::of(&plan, &times))
    }
}

impl Profile {
    fn of(plan: &Plan, times: &[(f64, f64)]) -> Self {
        let program = &plan.program;
        // Which card it is decides over times alone.
        let planned = plan.launches(&Card::default()).expect("what a plan has was lowered for its limits");
        let mut spans: Vec<KernelSpan> = Vec::new();
        for (((launch, position), planned), (start, end)) in program.launches.iter().zip(planned).zip(times) {
            let node = &program.graph.nodes[program.order[*position]];
            let layer = if program.nodes_at(*position).nth(1).is_some() { "" } else { &*node.layer };
            spans.push(KernelSpan {
                kernel: launch.kernel.name.clone(),
                op: node.op.name(),
                layer: layer.to_owned(),
                phase: node.phase.name(),
                position: *position,
                start_ns: *start,
                ns: end - start,
                bytes: launch.memory.iter().map(|span| span.bytes).sum(),
                flops: planned.job.flops,
            });
        }
        Self { spans, alive: alive(plan) }
    }

    /// Returns the device time of all dispatches together, in nanoseconds.
    pub fn total_ns(&self) -> f64 {
        self.spans.iter().map(|span| span.ns).sum()
    }

    /// Returns the totals of each kernel, longest first.
    pub fn kernels(&self) -> Vec<(&str, KernelTotal)> {
        let mut by_name: BTreeMap<&str, KernelTotal> = BTreeMap::new();
        for span in &self.spans {
            let total = by_name.entry(&span.kernel).or_default();
            total.calls += 1;
            total.ns += span.ns;
            total.bytes += span.bytes;
            total.flops += span.flops;
        }
        let mut list: Vec<_> = by_name.into_iter().collect();
        list.sort_by(|a, b| b.1.ns.total_cmp(&a.1.ns));
        list
    }

    /// Returns the table of kernels as JSON.
    pub fn json(&self) -> Json {
        let row = |(name, k): &(&str, KernelTotal)| {
            Json::object([
                ("kernel", (*name).into()),
                ("calls", k.calls.into()),
                ("total_ns", k.ns.into()),
                ("share", (k.ns / self.total_ns().max(1.0)).into()),
                ("bytes", k.bytes.into()),
                ("flops", k.flops.into()),
                ("gb_per_s", rate(k.bytes, k.ns).into()),
                ("gflop_per_s", rate(k.flops, k.ns).into()),
            ])
        };
        Json::List(self.kernels().iter().map(row).collect())
    }

    /// Returns the step as a trace for <https://ui.perfetto.dev> or `chrome://tracing`: a span for each
    /// dispatch, and live bytes as counters.
    pub fn chrome_trace(&self) -> Json {
        let name = |kind: &str, name: &str| {
            Json::object([
                ("ph", "M".into()),
                ("name", kind.into()),
                ("pid", 1u64.into()),
                ("tid", 1u64.into()),
                ("args", Json::object([("name", Json::from(name))])),
            ])
        };
        let mut events = vec![name("process_name", "wgrad"), name("thread_name", "device")];
        let mut counted = None;
        for span in &self.spans {
            if counted != Some(span.position) {
                counted = Some(span.position);
                let classes = Class::ALL.iter().zip(&self.alive[span.position]);
                events.push(Json::object([
                    ("ph", "C".into()),
                    ("name", "bytes alive".into()),
                    ("pid", 1u64.into()),
                    ("ts", (span.start_ns / 1e3).into()),
                    ("args", Json::object(classes.map(|(class, bytes)| (class.name(), (*bytes).into())))),
                ]));
            }
            events.push(Json::object([
                ("ph", "X".into()),
                ("name", (&*span.kernel).into()),
                ("cat", span.phase.into()),
                ("pid", 1u64.into()),
                ("tid", 1u64.into()),
                ("ts", (span.start_ns / 1e3).into()),
                ("dur", (span.ns / 1e3).into()),
                (
                    "args",
                    Json::object([
                        ("op", span.op.into()),
                        ("layer", span.layer.as_str().into()),
                        ("bytes", span.bytes.into()),
                        ("flops", span.flops.into()),
                    ]),
                ),
            ]));
        }
        Json::object([("traceEvents", Json::List(events)), ("displayTimeUnit", "ms".into())])
    }
}

/// Returns a count per nanosecond, which is in units of 10⁹ per second.
fn rate(count: u64, ns: f64) -> f64 {
    if ns > 0.0 { count as f64 / ns } else { 0.0 }
}

/// Returns the live bytes of each class at each position.
fn alive(plan: &Plan) -> Vec<[u64; 6]> {
    let end = plan.program.order.len();
    let class_index = |class: Class| Class::ALL.iter().position(|other| *other == class).unwrap_or(0);
    let mut change = vec![[0i128; 6]; end + 2];
    for storage in &plan.program.storages {
        let (first, last) =
            if storage.persistent { (0, end) } else { (storage.first, storage.last.min(end)) };
        let starts = storage.tenants.iter().map(|(from, class)| ((*from).max(first), *class));
        let ends = storage.tenants.iter().skip(1).map(|(from, _)| *from).chain([last + 1]);
        for ((from, class), until) in starts.zip(ends) {
            change[from][class_index(class)] += i128::from(storage.bytes);
            change[until][class_index(class)] -= i128::from(storage.bytes);
        }
    }
    let mut now = [0i128; 6];
    let step = |delta: &[i128; 6]| {
        now.iter_mut().zip(delta).for_each(|(sum, delta)| *sum += delta);
        now.map(|bytes| u64::try_from(bytes).unwrap_or(0))
    };
    change[..=end].iter().map(step).collect()
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = self.kernels();
        let wide = kernels.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(6);
        writeln!(
            f,
            "  {:<wide$} {:>6} {:>11} {:>7} {:>11} {:>8} {:>9}",
            "kernel", "calls", "total ms", "share", "bytes", "GB/s", "GFLOP/s"
        )?;
        for (name, k) in &kernels {
            let share = 100.0 * k.ns / self.total_ns().max(1.0);
            let bytes = Bytes(k.bytes).to_string();
            let flops = if k.flops == 0 { "–".to_owned() } else { format!("{:.1}", rate(k.flops, k.ns)) };
            writeln!(
                f,
                "  {name:<wide$} {:>6} {:>11.3} {share:>5.1} % {bytes:>11} {:>8.2} {flops:>9}",
                k.calls,
                k.ns / 1e6,
                rate(k.bytes, k.ns)
            )?;
        }
        let total = self.total_ns() / 1e6;
        writeln!(f, "  {:<wide$} {:>6} {total:>11.3}", "total", self.spans.len())
    }
}
