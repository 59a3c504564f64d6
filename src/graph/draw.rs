//! Human-readable text of a graph: one line for each node.

use std::fmt;

use super::Graph;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let side = |ids: &[super::ValueId]| {
                let one = |id: &super::ValueId| {
                    let value = self.value(*id);
                    format!("{} {}", value.name, value.shape)
                };
                ids.iter().map(one).collect::<Vec<_>>().join(", ")
            };
            let (inputs, outputs) = (side(&node.inputs), side(&node.outputs));
            writeln!(f, "{:<8} {:<18} {inputs} → {outputs}", node.phase.name(), node.op.name())?;
        }
        Ok(())
    }
}
