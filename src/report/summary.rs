//! Summarizes a plan layer by layer: output, parameters, saved bytes and cost.

use std::collections::BTreeMap;
use std::fmt;

use super::kept::most_waiting;
use super::table::Table;
use super::tensors::tensors;
use crate::compile::Plan;
use crate::graph::{Class, Node, Phase};
use crate::json::Json;
use crate::shape::Shape;
use crate::units::{Bytes, Count};

/// One layer of a [`Summary`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerSummary {
    /// Path of the layer; empty for operations outside of any.
    pub layer: String,
    /// Shape of its last result in the forward pass; `None` if it has none there, or for operations outside
    /// of layers.
    pub output: Option<Shape>,
    /// Number of elements in its parameters, trained or not.
    pub parameters: u64,
    /// Bytes of its results saved for the backward pass, at the position where these bytes are largest in
    /// total: see [`kept`](super::kept()).
    pub kept: u64,
    /// Bytes of its results that are recomputed in the backward pass instead of being saved.
    pub recomputed: u64,
    /// Floating-point operations of its forward pass, by [`Graph::cost`](crate::graph::Graph::cost).
    pub forward_flops: u64,
    /// Floating-point operations of its backward pass and updates, recomputation included.
    pub backward_flops: u64,
}

/// Every layer in the order of the forward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The layers.
    pub layers: Vec<LayerSummary>,
}

impl Plan {
    /// Returns the output shape, parameters, saved bytes, recomputed bytes and floating-point operations of
    /// each layer.
    pub fn summary(&self) -> Summary {
        Summary::of(self, usize::MAX)
    }

    /// Returns the summary with layers grouped by the first `depth` components of their paths: with 1,
    /// `layer1.0.conv1` and `layer1.1.conv2` count as `layer1`.
    pub fn summary_to_depth(&self, depth: usize) -> Summary {
        Summary::of(self, depth)
    }
}

struct Builder {
    depth: usize,
    rows: Vec<LayerSummary>,
    of: BTreeMap<String, usize>,
}

impl Builder {
    fn row(&mut self, layer: &str) -> &mut LayerSummary {
        let layer: Vec<&str> = layer.split('.').take(self.depth.max(1)).collect();
        let layer = layer.join(".");
        let i = *self.of.entry(layer.clone()).or_insert_with(|| {
            self.rows.push(LayerSummary { layer, ..LayerSummary::default() });
            self.rows.len() - 1
        });
        &mut self.rows[i]
    }
}

impl Summary {
    fn of(plan: &Plan, depth: usize) -> Self {
        let graph = plan.graph();
        let mut builder = Builder { depth, rows: Vec::new(), of: BTreeMap::new() };
        let in_order = || plan.program.order.iter().map(|&n| &graph.nodes[n]);
        let forward = |node: &&Node| node.phase == Phase::Forward;
        for node in in_order().filter(forward).chain(in_order().filter(|node| !forward(node))) {
            let flops = graph.cost(node).flops;
            let row = builder.row(&node.layer);
            if node.phase == Phase::Forward {
                row.forward_flops += flops;
                if !node.layer.is_empty() {
                    row.output = node.outputs.first().map(|id| graph.value(*id).shape).or(row.output);
                }
            } else {
                row.backward_flops += flops;
            }
        }
        for parameter in &graph.parameters {
            let layer = parameter.name().rsplit_once('.').map_or("", |(layer, _)| layer);
            builder.row(layer).parameters += parameter.shape().numel();
        }
        for kept in most_waiting(plan) {
            builder.row(&kept.node.layer).kept += kept.bytes;
        }
        for tensor in tensors(plan).iter().filter(|t| t.again && t.class != Class::Workspace) {
            builder.row(&tensor.layer).recomputed += tensor.bytes;
        }
        Self { layers: builder.rows }
    }

    /// Returns the sum of all layers.
    pub fn total(&self) -> LayerSummary {
        self.layers.iter().fold(LayerSummary { layer: "total".to_owned(), ..Default::default() }, |sum, l| {
            LayerSummary {
                parameters: sum.parameters + l.parameters,
                kept: sum.kept + l.kept,
                recomputed: sum.recomputed + l.recomputed,
                forward_flops: sum.forward_flops + l.forward_flops,
                backward_flops: sum.backward_flops + l.backward_flops,
                ..sum
            }
        })
    }

    /// Returns the summary as JSON.
    pub fn json(&self) -> Json {
        let one = |l: &LayerSummary| {
            let dims = l.output.map(|shape| Json::list(shape.dims().iter().copied()));
            Json::object([
                ("layer", l.layer.as_str().into()),
                ("output", dims.unwrap_or(Json::Null)),
                ("parameters", l.parameters.into()),
                ("kept_bytes", l.kept.into()),
                ("recomputed_bytes", l.recomputed.into()),
                ("forward_flops", l.forward_flops.into()),
                ("backward_flops", l.backward_flops.into()),
            ])
        };
        Json::object([
            ("layers", Json::List(self.layers.iter().map(one).collect())),
            ("total", one(&self.total())),
        ])
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = ["output", "parameters", "kept", "computed again", "FLOPs forward", "backward"];
        let columns: Vec<_> = columns.iter().map(|name| (*name, *name == "output")).collect();
        let mut table = Table::new(&[&[("layer", true)], &columns[..]].concat());
        let number = |n: u64, text: String| if n == 0 { "–".to_owned() } else { text };
        for l in self.layers.iter().chain([&self.total()]) {
            let layer = if l.layer.is_empty() { "(outside of layers)" } else { &l.layer };
            table.row([
                layer.to_owned(),
                l.output.map_or(String::new(), |shape| shape.to_string()),
                number(l.parameters, Count(l.parameters).to_string()),
                number(l.kept, Bytes(l.kept).to_string()),
                number(l.recomputed, Bytes(l.recomputed).to_string()),
                number(l.forward_flops, Count(l.forward_flops).to_string()),
                number(l.backward_flops, Count(l.backward_flops).to_string()),
            ]);
        }
        f.write_str(&table.lines())
    }
}
