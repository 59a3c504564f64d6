//! The dispatches of a plan with their modelled times on a card.

use super::Plan;
use crate::error::Result;
use crate::limits::{Card, Job};

/// A dispatch of a plan, and its modelled time.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLaunch {
    /// Name of the kernel, which includes that of the variant, such as `tiled64`.
    pub kernel: String,
    /// Values of its `override` constants other than 0, such as `transpose_b`.
    pub variant: String,
    /// The operation that it belongs to.
    pub op: &'static str,
    /// Path of the layer; empty outside any layer, and for updates of several parameters in one dispatch.
    pub layer: String,
    /// Arithmetic, traffic, workgroups and threads.
    pub job: Job,
    /// Workgroups per unit of the card, on average.
    pub waves: f64,
    /// Modelled time in seconds, with the tail of the last wave, the launch and the barrier.
    pub seconds: f64,
    /// The part of `seconds` in which the card could do this work at its full rates.
    pub full_rate_s: f64,
}

impl Plan {
    /// Returns the dispatches in order, each with its modelled time on `card`.
    ///
    /// # Errors
    /// None for a plan that was made by this crate: its operations were lowered before.
    pub fn launches(&self, card: &Card) -> Result<Vec<PlannedLaunch>> {
        let program = &self.program;
        let one = |((launch, position), job): (&(crate::kernels::Launch<_>, usize), Job)| {
            let node = &program.graph.nodes[program.order[*position]];
            let layer = if program.nodes_at(*position).nth(1).is_some() { "" } else { &*node.layer };
            PlannedLaunch {
                kernel: launch.kernel.name.clone().into_owned(),
                variant: variant(&launch.constants),
                op: node.op.name(),
                layer: layer.to_owned(),
                job,
                waves: card.waves(job.workgroups),
                seconds: card.seconds(&job),
                full_rate_s: card.roofline(&job),
            }
        };
        Ok(program.launches.iter().zip(program.jobs(&self.limits)?).map(one).collect())
    }
}

fn variant(constants: &[(&str, f64)]) -> String {
    let one = |(name, value): &(&str, f64)| match *value {
        0.0 => None,
        1.0 => Some(name.to_ascii_lowercase()),
        _ => Some(format!("{} {value}", name.to_ascii_lowercase())),
    };
    constants.iter().filter_map(one).collect::<Vec<_>>().join(", ")
}
