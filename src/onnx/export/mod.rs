//! Writes forward passes as ONNX files.

mod elements;
mod images;
mod movement;
mod rows;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use prost::Message;
use prost::bytes::Bytes;

use super::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::compile::Forward;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Class, Graph, Node, Op, Value, ValueId};

/// The version of the operations in a file, and of the file format that came with it.
const OPSET: i64 = 18;
const FORMAT: i64 = 8;

/// Element types and kinds of attributes by their numbers in `onnx.proto`.
const FLOAT: i32 = 1;
const INT64: i32 = 7;
const FLOAT16: i32 = 10;
const BFLOAT16: i32 = 16;
const KIND_FLOAT: i32 = 1;
const KIND_INT: i32 = 2;
const KIND_STRING: i32 = 3;
const KIND_TENSOR: i32 = 4;
const KIND_INTS: i32 = 7;

/// The most bytes of a message of protocol buffers.
const LARGEST: u64 = i32::MAX as u64;

/// Returns a forward pass as an ONNX file (opset 18) that computes the same for inputs of the same shapes, the batch
/// included. `parameter` returns the elements of a parameter by its name, row-major, as
/// [`Session::parameter`](crate::exec::Session::parameter) does.
///
/// Parameters are initialisers under their names, inputs and outputs have the names that the model gives them, and
/// nodes those of their layers. Integers (`u32`) are INT64. Running statistics are not updated.
///
/// ```
/// use wgrad::compile::Forward;
/// use wgrad::graph::Params;
/// use wgrad::nn::{Linear, Module};
/// let params = Params::new(0);
/// let layer = Linear::new(&params.scope("fc"), 8, 2);
/// let forward = Forward::trace(&params, "y", |trace| layer.forward(&trace.input("x", [4, 8])))?;
/// // With the initial parameters; those of a session are `|name| session.parameter(name)`.
/// let initial = |name: &str| match name {
///     "fc.weight" => Ok(layer.weight.initial(0..16)),
///     _ => Ok(vec![0.0; 2]),
/// };
/// let file = wgrad::onnx::export(&forward, initial)?;
/// assert_eq!(wgrad::onnx::Network::from_bytes(&file)?.outputs()[0].name, "y");
/// # Ok::<(), wgrad::Error>(())
/// ```
///
/// # Errors
/// [`Error::Onnx`] for operations that ONNX has no counterpart for, all of them named; for names that an input and an
/// output share; for a parameter without the elements of its shape; and for more than the 2 GiB that a file can hold.
/// Those of `parameter`.
pub fn export(forward: &Forward, mut parameter: impl FnMut(&str) -> Result<Vec<f32>>) -> Result<Vec<u8>> {
    let graph = forward.graph();
    let mut export = Export::new(graph);
    export.check_names()?;
    export.check_size()?;
    export.nodes()?;
    let outputs = export.outputs();
    export.remove_unread(&outputs);
    let read: BTreeSet<&String> = export.nodes.iter().flat_map(|node| &node.input).collect();
    let mut initializer = Vec::new();
    for (_, value) in graph.ids().filter(|(_, value)| value.class == Class::Parameter) {
        if read.contains(&value.name) {
            let data = parameter(&value.name)?;
            if data.len() as u64 != value.shape.numel() {
                let message =
                    format!("parameter `{}` {} got {} elements", value.name, value.shape, data.len());
                return Err(wrong(message));
            }
            initializer.push(floats(&value.name, value.shape.dims(), &data));
        }
    }
    let input = graph.inputs().map(|(_, value)| port(&value.name, value)).collect();
    let output = graph.outputs.iter().map(|(name, id)| port(name, graph.value(*id))).collect();
    let graph = GraphProto { name: "wgrad".to_owned(), node: export.nodes, initializer, input, output };
    let model = ModelProto {
        ir_version: FORMAT,
        producer_name: "wgrad".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        functions: Vec::new(),
    };
    match model.encoded_len() as u64 {
        bytes if bytes > LARGEST => Err(too_large(bytes)),
        _ => Ok(model.encode_to_vec()),
    }
}

fn wrong(message: String) -> Error {
    Error::Onnx { file: "the file to write".to_owned(), message }
}

fn too_large(bytes: u64) -> Error {
    wrong(format!(
        "{bytes} bytes, more than the {LARGEST} that an ONNX file can hold; export the network in parts"
    ))
}

/// Returns the number of an element type. Integers are signed in most of ONNX's operations.
fn element_type(dtype: DType) -> i32 {
    match dtype {
        // Of fewer bits they are widened.
        DType::F32 | DType::Int8 | DType::Int4 | DType::Nf4 | DType::Uint8 | DType::Uint4 => FLOAT,
        DType::U32 => INT64,
        DType::F16 => FLOAT16,
        DType::BF16 => BFLOAT16,
    }
}

fn port(name: &str, value: &Value) -> ValueInfoProto {
    let dim = |dim: &usize| DimensionProto { dim_value: Some(*dim as i64), dim_param: None };
    let shape = TensorShapeProto { dim: value.shape.dims().iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: element_type(value.dtype), shape: Some(shape) };
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type: Some(tensor) }) }
}

fn floats(name: &str, dims: &[usize], data: &[f32]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.iter().map(|dim| *dim as i64).collect(),
        data_type: FLOAT,
        raw_data: data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ..TensorProto::default()
    }
}

fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type, ..AttributeProto::default() }
}

fn int(name: &str, i: usize) -> AttributeProto {
    AttributeProto { i: i as i64, ..attribute(name, KIND_INT) }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f, ..attribute(name, KIND_FLOAT) }
}

fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: s.as_bytes().to_vec(), ..attribute(name, KIND_STRING) }
}

fn ints(name: &str, list: impl IntoIterator<Item = usize>) -> AttributeProto {
    AttributeProto { ints: list.into_iter().map(|n| n as i64).collect(), ..attribute(name, KIND_INTS) }
}

/// What an operation becomes: the names of its results, or `None` if there is no counterpart.
type Mapped = Option<Vec<String>>;

/// The nodes of the file so far.
struct Export<'a> {
    graph: &'a Graph,
    /// Whether a value is an output or computed from.
    needed: Vec<bool>,
    /// The node that makes each value.
    makers: HashMap<ValueId, &'a Node>,
    /// Names in the file.
    names: HashMap<ValueId, String>,
    taken: BTreeSet<String>,
    counts: HashMap<String, usize>,
    nodes: Vec<NodeProto>,
    /// Names of constants, by type, dimensions and bytes.
    constants: HashMap<(i32, Vec<i64>, Bytes), String>,
    layer: &'a str,
}

impl<'a> Export<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut needed = vec![false; graph.values.len()];
        graph.outputs.iter().for_each(|(_, id)| needed[id.index()] = true);
        for node in graph.nodes.iter().rev() {
            if node.outputs.iter().any(|id| needed[id.index()]) {
                node.inputs.iter().for_each(|id| needed[id.index()] = true);
            }
        }
        let makers = graph.nodes.iter().flat_map(|node| node.outputs.iter().map(move |id| (*id, node)));
        let given = graph.ids().filter(|(_, value)| matches!(value.class, Class::Input | Class::Parameter));
        let names: HashMap<ValueId, String> = given.map(|(id, value)| (id, value.name.clone())).collect();
        let taken = names.values().chain(graph.outputs.iter().map(|(name, _)| name)).cloned().collect();
        Self {
            graph,
            needed,
            makers: makers.collect(),
            names,
            taken,
            counts: HashMap::new(),
            nodes: Vec::new(),
            constants: HashMap::new(),
            layer: "",
        }
    }

    /// Checks that everything has a name, and that no output has that of another tensor of the model.
    fn check_names(&self) -> Result<()> {
        if self.taken.contains("") {
            let message =
                "an input, a parameter or an output has no name, which ONNX takes for one that is left out";
            return Err(wrong(message.to_owned()));
        }
        let given: BTreeSet<&String> = self.names.values().collect();
        match self.graph.outputs.iter().find(|(name, _)| given.contains(name)) {
            Some((name, _)) => Err(wrong(format!(
                "output `{name}` has the name of an input or a parameter, which ONNX does not allow: trace it under another"
            ))),
            None => Ok(()),
        }
    }

    /// Checks the size before the parameters are asked for.
    fn check_size(&self) -> Result<()> {
        let parameters = self.graph.values.iter().filter(|value| value.class == Class::Parameter);
        match parameters.map(Value::bytes).sum::<u64>() {
            bytes if bytes > LARGEST => Err(too_large(bytes)),
            _ => Ok(()),
        }
    }

    /// Writes every operation that an output needs.
    fn nodes(&mut self) -> Result<()> {
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for node in &self.graph.nodes {
            let needed = node.outputs.iter().any(|id| self.needed[id.index()]);
            // What needs the result of a missing operation is not reported as well.
            if !needed || !node.inputs.iter().all(|id| self.names.contains_key(id)) {
                continue;
            }
            self.layer = &node.layer;
            match self.mapped(node) {
                Some(results) => self.names.extend(node.outputs.iter().copied().zip(results)),
                None => drop(missing.entry(node.op.name()).or_default().insert(&node.layer)),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let one = |(op, layers): (&&str, &BTreeSet<&str>)| {
            let named: Vec<&str> = layers.iter().copied().filter(|layer| !layer.is_empty()).take(3).collect();
            if named.is_empty() { (*op).to_owned() } else { format!("{op} (in {})", named.join(", ")) }
        };
        let list: Vec<String> = missing.iter().map(one).collect();
        Err(wrong(format!("there is no counterpart in ONNX for: {}", list.join(", "))))
    }

    fn mapped(&mut self, node: &Node) -> Mapped {
        // Results after the first are used in the backward pass.
        let first_only = |export: &Self| !node.outputs[1..].iter().any(|id| export.needed[id.index()]);
        let one = |name: String| Some(vec![name]);
        match &node.op {
            Op::Unary(f) => one(self.unary(*f, node)),
            Op::Binary(f) => self.binary(*f, node).map(|name| vec![name]),
            Op::Reduce { kind, axes } => one(self.reduce(*kind, *axes, node)),
            Op::MatMul { ta, tb, then: None } => one(self.matmul(*ta, *tb, node)),
            Op::Softmax { log } => {
                let op = if *log { "LogSoftmax" } else { "Softmax" };
                let x = self.float(node, 0);
                let last = node_rank(self.graph, node) - 1;
                one(self.node(op, &[&x], vec![int("axis", last)]))
            }
            Op::Attention(attend) if first_only(self) && attend.dropout == 0.0 && !attend.documents => {
                one(self.attention(attend, node))
            }
            Op::RowNorm { kind, eps } if first_only(self) => one(self.row_norm(*kind, *eps, node)),
            Op::Gates(gates) => Some(self.gates(*gates, node)),
            Op::Rotary { heads, rope, back } => one(self.rotary(*heads, rope, *back, node)),
            Op::Embedding => {
                let (table, rows) = (self.float(node, 0), self.value(node, 0).shape.dims()[0]);
                let ids = self.ids(node, 1, rows);
                one(self.node("Gather", &[&table, &ids], vec![int("axis", 0)]))
            }
            Op::Conv2d { window, groups, source: crate::graph::Source::Tensor, then: None } => {
                one(self.conv(window, *groups, node))
            }
            Op::Conv2dInput { window, groups, size, then: None } => {
                one(self.conv_transpose(window, *groups, *size, node))
            }
            Op::MaxPool2d(window) if first_only(self) => one(self.max_pool(window, node)),
            Op::AvgPool2d(over) => one(self.avg_pool(over, node)),
            Op::BatchStats { eps, .. } => Some(self.batch_stats(*eps, node)),
            Op::BatchNorm(activation) => one(self.batch_norm(*activation, node)),
            Op::Resample { mode, size } => one(self.resample(*mode, *size, node)),
            _ => self.movement(node).map(|name| vec![name]),
        }
    }

    fn value(&self, node: &Node, i: usize) -> &'a Value {
        self.graph.value(node.inputs[i])
    }

    /// Returns the name of an operand.
    fn operand(&self, node: &Node, i: usize) -> String {
        self.names.get(&node.inputs[i]).cloned().unwrap_or_default()
    }

    /// Returns the name of an operand as `f32`.
    fn float(&mut self, node: &Node, i: usize) -> String {
        let x = self.operand(node, i);
        if self.value(node, i).dtype.is_half() { self.cast(&x, FLOAT) } else { x }
    }

    /// Returns the name of an operand of indices below `len`: larger ones select the last element.
    fn ids(&mut self, node: &Node, i: usize, len: usize) -> String {
        let ids = self.operand(node, i);
        let mut from = node.inputs[i];
        while let Some(Node { op: Op::Reshape(_), inputs, .. }) = self.makers.get(&from) {
            from = inputs[0];
        }
        let below = match self.graph.value(from).indices {
            Some(crate::graph::Indices::Ids(below)) => below as usize <= len,
            _ => matches!(self.makers.get(&from), Some(Node { op: Op::ArgSort { .. }, .. })),
        };
        if below {
            return ids;
        }
        let last = self.int_list(&[], &[len as i64 - 1]);
        self.node("Min", &[&ids, &last], Vec::new())
    }

    /// Adds a node and returns the name of its first result.
    fn node(&mut self, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        self.node_of(op, inputs, attributes, 1).swap_remove(0)
    }

    /// Adds a node with `count` results and returns their names.
    fn node_of(
        &mut self,
        op: &str,
        inputs: &[&str],
        attribute: Vec<AttributeProto>,
        count: usize,
    ) -> Vec<String> {
        let path = if self.layer.is_empty() { op.to_owned() } else { format!("{}.{op}", self.layer) };
        let output: Vec<String> = (0..count).map(|_| self.fresh(&path)).collect();
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|name| (*name).to_owned()).collect(),
            output: output.clone(),
            name: output[0].clone(),
            op_type: op.to_owned(),
            attribute,
            domain: String::new(),
        });
        output
    }

    fn fresh(&mut self, path: &str) -> String {
        let count = self.counts.entry(path.to_owned()).or_default();
        loop {
            let name = if *count == 0 { path.to_owned() } else { format!("{path}.{count}") };
            *count += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    fn constant(&mut self, tensor: TensorProto) -> String {
        let key = (tensor.data_type, tensor.dims.clone(), tensor.raw_data.clone());
        if let Some(name) = self.constants.get(&key) {
            return name.clone();
        }
        let value = AttributeProto { t: Some(tensor), ..attribute("value", KIND_TENSOR) };
        let layer = std::mem::take(&mut self.layer);
        let name = self.node("Constant", &[], vec![value]);
        self.layer = layer;
        self.constants.insert(key, name.clone());
        name
    }

    fn int_list(&mut self, dims: &[usize], data: &[i64]) -> String {
        self.constant(TensorProto {
            dims: dims.iter().map(|dim| *dim as i64).collect(),
            data_type: INT64,
            raw_data: data.iter().flat_map(|n| n.to_le_bytes()).collect(),
            ..TensorProto::default()
        })
    }

    /// Returns a vector of lengths or axes.
    fn lengths(&mut self, list: &[usize]) -> String {
        let data: Vec<i64> = list.iter().map(|n| *n as i64).collect();
        self.int_list(&[list.len()], &data)
    }

    fn number(&mut self, x: f32) -> String {
        self.constant(floats("", &[], &[x]))
    }

    fn array(&mut self, dims: &[usize], data: &[f32]) -> String {
        self.constant(floats("", dims, data))
    }

    fn cast(&mut self, x: &str, to: i32) -> String {
        self.node("Cast", &[x], vec![int("to", to as usize)])
    }

    fn reshape(&mut self, x: &str, dims: &[usize]) -> String {
        let shape = self.lengths(dims);
        // Without it a 0 stands for the operand's length.
        let empty = dims.contains(&0).then(|| int("allowzero", 1));
        self.node("Reshape", &[x, &shape], empty.into_iter().collect())
    }

    fn permute(&mut self, x: &str, perm: &[usize]) -> String {
        self.node("Transpose", &[x], vec![ints("perm", perm.iter().copied())])
    }

    /// Gives the results the names of the outputs, which it returns.
    fn outputs(&mut self) -> BTreeSet<String> {
        let mut renamed: HashMap<String, String> = HashMap::new();
        for (name, id) in &self.graph.outputs {
            let own = self.names[id].clone();
            let computed =
                self.nodes.iter().any(|node| node.op_type != "Constant" && node.output.contains(&own));
            if computed && !renamed.contains_key(&own) {
                renamed.insert(own, name.clone());
            } else {
                let (input, output) = (vec![own], vec![name.clone()]);
                let op_type = "Identity".to_owned();
                self.nodes.push(NodeProto {
                    input,
                    output,
                    op_type,
                    name: name.clone(),
                    ..NodeProto::default()
                });
            }
        }
        for node in &mut self.nodes {
            for name in node.input.iter_mut().chain(&mut node.output) {
                if let Some(to) = renamed.get(name) {
                    name.clone_from(to);
                }
            }
        }
        self.graph.outputs.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Removes the nodes whose results nothing reads.
    fn remove_unread(&mut self, outputs: &BTreeSet<String>) {
        let mut read = outputs.clone();
        let mut kept = Vec::new();
        for node in std::mem::take(&mut self.nodes).into_iter().rev() {
            if node.output.iter().any(|name| read.contains(name)) {
                read.extend(node.input.iter().cloned());
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
    }
}

fn node_rank(graph: &Graph, node: &Node) -> usize {
    graph.value(node.outputs[0]).shape.rank()
}
