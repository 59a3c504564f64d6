//! The memory estimate: the bytes that a step needs, by class, known before anything runs.

use std::fmt;

use super::kept::waiting;
use super::table::Table;
use super::tensors::{TensorReport, tensors};
use crate::compile::{Footprint, Plan, Savings};
use crate::graph::{CORRECTION, Class};
use crate::json::Json;
use crate::units::Bytes;

/// The share of a card's memory that should stay free for the driver, the desktop and other programs.
pub const HEADROOM: f64 = 0.15;

/// Number of largest tensors at the peak that are listed.
const LARGEST: usize = 5;

/// The memory that a plan needs, printed as a table.
#[derive(Clone, Debug)]
pub struct Estimate {
    classes: Vec<(Class, u64, String)>,
    naive: u64,
    lower_bound: u64,
    peak: u64,
    peak_at: String,
    largest: Vec<TensorReport>,
    footprint: Footprint,
    savings: Option<Savings>,
    batch: Option<usize>,
    largest_batch: Option<LargestBatch>,
    headroom: f64,
}

/// The largest batch within a budget, and the largest one that keeps the headroom free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestBatch {
    /// The budget.
    pub budget: Bytes,
    /// Samples if the step may use the whole budget, as found by [`max_batch`](crate::compile::max_batch()).
    pub all: usize,
    /// Samples, if the headroom stays free.
    pub with_headroom: usize,
}

impl Plan {
    /// Returns the estimate of the memory that the plan needs, by class.
    pub fn estimate(&self) -> Estimate {
        Estimate::of(self)
    }
}

impl Estimate {
    /// Returns the estimate of a plan.
    pub fn of(plan: &Plan) -> Self {
        let all = tensors(plan);
        let at = plan.peak.position;
        let mut largest: Vec<_> = all.iter().filter(|t| t.first <= at && at <= t.last).cloned().collect();
        largest.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.name.cmp(&b.name)));
        largest.truncate(LARGEST);
        let classes = plan.class_bytes().map(|(class, bytes)| (class, bytes, note(plan, class, &all)));
        Self {
            classes: classes.to_vec(),
            naive: plan.naive_bytes(),
            lower_bound: plan.lower_bound_bytes(),
            peak: plan.peak_bytes(),
            peak_at: plan.peak.at.clone(),
            largest,
            footprint: plan.footprint(),
            savings: None,
            batch: None,
            largest_batch: None,
            headroom: HEADROOM,
        }
    }

    /// Adds the bytes saved by each optimization.
    #[must_use]
    pub fn with_savings(self, savings: Savings) -> Self {
        Self { naive: savings.naive, savings: Some(savings), ..self }
    }

    /// Adds the share of the step's memory that each of its `batch` samples takes.
    #[must_use]
    pub fn with_batch(self, batch: usize) -> Self {
        Self { batch: Some(batch.max(1)), ..self }
    }

    /// Adds the largest batch within a budget. [`Estimate::spared`] gives the budget for the batch with
    /// headroom.
    #[must_use]
    pub fn with_largest_batch(self, largest: LargestBatch) -> Self {
        Self { largest_batch: Some(largest), ..self }
    }

    /// Returns the bytes of a budget that remain if the headroom stays free.
    pub fn spared(&self, budget: Bytes) -> Bytes {
        Bytes((budget.0 as f64 * (1.0 - self.headroom)) as u64)
    }

    /// Sets the share of the card that stays free; the default is [`HEADROOM`]. The share is clamped to 0 to
    /// 0.9; a share that is not finite sets the default.
    #[must_use]
    pub fn with_headroom(self, share: f64) -> Self {
        Self { headroom: if share.is_finite() { share.clamp(0.0, 0.9) } else { HEADROOM }, ..self }
    }

    /// Returns the bytes of memory that a card needs so that the headroom stays free.
    pub fn card_bytes(&self) -> u64 {
        (self.footprint.total() as f64 / (1.0 - self.headroom)).ceil() as u64
    }

    /// Returns the bytes of the step's memory per sample of the batch, if the batch is known.
    pub fn per_sample_bytes(&self) -> Option<u64> {
        self.batch.map(|batch| self.footprint.step.div_ceil(batch as u64))
    }

    /// Returns the estimate as JSON.
    pub fn json(&self) -> Json {
        let class = |(class, bytes, note): &(Class, u64, String)| {
            Json::object([
                ("class", class.name().into()),
                ("bytes", (*bytes).into()),
                ("share", self.share(*bytes).into()),
                ("note", note.as_str().into()),
            ])
        };
        let tensor = |t: &TensorReport| {
            let (name, class) = (t.name.as_str(), t.class.name());
            Json::object([("name", name.into()), ("class", class.into()), ("bytes", t.bytes.into())])
        };
        let own = &self.footprint;
        Json::object([
            ("peak_at", self.peak_at.as_str().into()),
            ("classes", Json::List(self.classes.iter().map(class).collect())),
            ("largest", Json::List(self.largest.iter().map(tensor).collect())),
            ("naive_bytes", self.naive.into()),
            ("planned_bytes", self.peak.into()),
            ("lower_bound_bytes", self.lower_bound.into()),
            ("device_bytes", own.total().into()),
            ("host_bytes", own.host.into()),
            ("per_sample_bytes", self.per_sample_bytes().into()),
            ("largest_batch", self.largest_batch.map_or(Json::Null, LargestBatch::json)),
            ("headroom", self.headroom.into()),
            ("card_bytes", self.card_bytes().into()),
        ])
    }

    fn share(&self, bytes: u64) -> f64 {
        let alive: u64 = self.classes.iter().map(|(_, bytes, _)| bytes).sum();
        bytes as f64 / alive.max(1) as f64
    }
}

impl LargestBatch {
    fn json(self) -> Json {
        Json::object([
            ("budget_bytes", self.budget.0.into()),
            ("batch", self.all.into()),
            ("batch_with_headroom", self.with_headroom.into()),
        ])
    }
}

/// Returns a note on the bytes of a class.
fn note(plan: &Plan, class: Class, all: &[TensorReport]) -> String {
    let of = || all.iter().filter(|t| t.class == class);
    match class {
        Class::Parameter | Class::Input => format!("{} tensors", of().count()),
        Class::Optimizer => {
            let corrections = of().any(|t| t.name.rsplit('.').next() == Some(CORRECTION));
            let own = plan.optimizer.map(|optimizer| optimizer.state_names()).unwrap_or_default();
            own.into_iter().chain(corrections.then_some(CORRECTION)).collect::<Vec<_>>().join(", ")
        }
        Class::Gradient => match of().map(|t| t.bytes).max() {
            Some(bytes) => format!("each gone after its update; the largest is {}", Bytes(bytes)),
            None => String::new(),
        },
        Class::Activation => {
            let at = plan.peak.position;
            let kept = waiting(plan).into_iter().filter(|kept| kept.from <= at && at <= kept.until);
            let kept: u64 = kept.map(|kept| kept.bytes).sum();
            let again = of().filter(|t| t.again && t.first <= at && at <= t.last).map(|t| t.bytes).sum();
            match (kept, again) {
                (0, 0) => String::new(),
                (kept, 0) => format!("{} kept for the backward pass", Bytes(kept)),
                (kept, again) => {
                    format!("{} kept for the backward pass, {} computed again", Bytes(kept), Bytes(again))
                }
            }
        }
        Class::Workspace => "scratch of the operation".to_owned(),
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, bytes: u64, note: &str) -> fmt::Result {
    let line = format!("  {name:<14}{:>12}  {note}", Bytes(bytes).to_string());
    writeln!(f, "{}", line.trim_end())
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "alive at the peak: {}", self.peak_at)?;
        for (class, bytes, note) in &self.classes {
            let share = 100.0 * self.share(*bytes);
            row(f, class.name(), *bytes, format!("{share:>5.1} %  {note}").trim_end())?;
        }
        writeln!(f, "\nlargest there")?;
        let mut table = Table::new(&[("tensor", true), ("shape", true), ("bytes", false), ("class", true)]);
        for t in &self.largest {
            table.row([t.name.clone(), t.shape.to_string(), Bytes(t.bytes).to_string(), t.class.to_string()]);
        }
        f.write_str(&table.lines())?;
        writeln!(f, "\narenas")?;
        row(f, "naive", self.naive, "every tensor alive for the whole step")?;
        if let Some(savings) = &self.savings {
            row(f, "by lifetimes", savings.lifetimes, "tensors that are not alive together share memory")?;
            row(f, "in place", savings.in_place, "and results take over their operand's memory")?;
            row(f, "views", savings.views, "and slices and joins are places in the whole's memory")?;
            row(f, "order", savings.order, "and operations run in the order with the lowest peak")?;
            row(f, "rebuild", savings.rebuild, "and cheap results are computed again in the backward pass")?;
            row(f, "fuse", savings.fuse, "and functions of single elements run as one operation")?;
        }
        let ratio = self.peak as f64 / self.lower_bound.max(1) as f64;
        row(f, "planned", self.peak, &format!("{ratio:.3} × the lower bound"))?;
        row(f, "lower bound", self.lower_bound, "the most that is alive at once")?;
        if let Some(bytes) = self.per_sample_bytes() {
            row(f, "per sample", bytes, "of what lives within the step, by the batch")?;
        }
        let own = &self.footprint;
        writeln!(f, "\ncreated on the device")?;
        row(f, "arenas", own.persistent + own.step, "")?;
        row(f, "staging", own.staging, "two buffers for each input")?;
        row(f, "transfer", own.transfer, "for reading and writing parameters")?;
        if own.host > 0 {
            let host = Bytes(own.host);
            row(
                f,
                "offload",
                own.offload,
                &format!("two buffers each way, for {host} in the host's memory"),
            )?;
        }
        row(f, "uniforms", own.uniforms, "")?;
        row(f, "readback", own.readback, "")?;
        row(f, "total", own.total(), "")?;
        let (share, card) = (100.0 * self.headroom, Bytes(self.card_bytes()));
        writeln!(
            f,
            "\nA card of {card} runs this and keeps {share:.0} % free for the driver and other programs."
        )?;
        if let Some(LargestBatch { budget, all, with_headroom }) = self.largest_batch {
            let batch = |n: usize| {
                if n == 0 { "not even a batch of 1".to_owned() } else { format!("a batch of {n}") }
            };
            let (all, less) = (batch(all), batch(with_headroom));
            writeln!(f, "Within {budget} {all} fits; with {share:.0} % of it free, {less}.")?;
        }
        Ok(())
    }
}
