//! The memory estimate: what a step will need, class by class, before anything runs.

use std::fmt;

use crate::graph::Class;
use crate::plan::{Footprint, Plan, Savings};
use crate::units::Bytes;

/// What a plan needs, as a table for people.
#[derive(Clone, Debug)]
pub struct Estimate {
    classes: Vec<(Class, u64)>,
    naive: u64,
    lower_bound: u64,
    peak: u64,
    peak_at: String,
    footprint: Footprint,
    savings: Option<Savings>,
}

impl Estimate {
    /// The estimate of a plan.
    pub fn of(plan: &Plan) -> Self {
        Self {
            classes: plan.class_bytes().to_vec(),
            naive: plan.naive_bytes(),
            lower_bound: plan.lower_bound_bytes(),
            peak: plan.peak_bytes(),
            peak_at: plan.peak.at.clone(),
            footprint: plan.footprint(),
            savings: None,
        }
    }

    /// Adds what each way of saving memory bought.
    #[must_use]
    pub fn with_savings(self, savings: Savings) -> Self {
        Self { savings: Some(savings), ..self }
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, bytes: u64, note: &str) -> fmt::Result {
    let line = format!("  {name:<14}{:>12}  {note}", Bytes(bytes).to_string());
    writeln!(f, "{}", line.trim_end())
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alive: u64 = self.classes.iter().map(|(_, bytes)| bytes).sum();
        writeln!(f, "alive at the peak: {}", self.peak_at)?;
        for (class, bytes) in &self.classes {
            let share = 100.0 * *bytes as f64 / alive.max(1) as f64;
            row(f, class.name(), *bytes, &format!("{share:>5.1} %"))?;
        }
        writeln!(f, "\narenas")?;
        row(f, "naive", self.naive, "every tensor alive for the whole step")?;
        if let Some(savings) = &self.savings {
            row(f, "by lifetimes", savings.lifetimes, "tensors that are not alive together share memory")?;
            row(f, "in place", savings.in_place, "and results take over their operand's memory")?;
            row(f, "views", savings.views, "and slices and joins are places in the whole's memory")?;
            row(f, "order", savings.order, "and operations run in the order with the lowest peak")?;
            row(f, "rebuild", savings.rebuild, "and cheap results are computed again in the backward pass")?;
        }
        let ratio = self.peak as f64 / self.lower_bound.max(1) as f64;
        row(f, "planned", self.peak, &format!("{ratio:.3} × the lower bound"))?;
        row(f, "lower bound", self.lower_bound, "the most that is alive at once")?;
        let own = &self.footprint;
        writeln!(f, "\ncreated on the device")?;
        row(f, "arenas", own.persistent + own.step, "")?;
        row(f, "staging", own.staging, "two buffers for each input")?;
        row(f, "transfer", own.transfer, "for reading and writing parameters")?;
        row(f, "uniforms", own.uniforms, "")?;
        row(f, "readback", own.readback, "")?;
        row(f, "total", own.total(), "")
    }
}
