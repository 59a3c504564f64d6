//! Networks from ONNX files, to plan and to train: opsets 7 to 25 as PyTorch, Keras and scikit-learn export them. And
//! [`export`], which writes one.
//!
//! Floating-point initialisers become parameters under their names; those of running statistics are buffers. Shapes and
//! indices are computed when the network is traced.

mod constant;
mod export;
mod import;
mod ops;
mod proto;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use prost::Message;
use prost::bytes::Bytes;

use crate::compile::{Forward, TrainStep};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Params, Tensor, Trace};
use crate::shape::Shape;
pub use export::export;
use import::{Import, Value};
use proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

/// A dimension of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Always this long.
    Fixed(usize),
    /// Given when the network is traced, by name; the name may be empty.
    Named(String),
}

/// An input or output of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name in the file.
    pub name: String,
    /// Its dimensions.
    pub dims: Vec<Dimension>,
    /// Whether its elements are integers or booleans.
    pub integer: bool,
    /// For an input of integers that select rows of a table: the number of rows.
    pub below: Option<usize>,
}

/// Lengths of the dimensions that a file leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The first dimension of inputs.
    pub batch: Option<usize>,
    /// Other dimensions, by the file's name of them or as `INPUT.AXIS`.
    pub named: BTreeMap<String, usize>,
}

/// The loss that a network from a file is trained with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Cross-entropy where the first output has two dimensions, at least two of them classes, or three and the network
    /// takes integers; else the mean squared error.
    #[default]
    Auto,
    /// Cross-entropy of the first output, its last dimension classes, with class indices.
    CrossEntropy,
    /// Mean squared error of the first output.
    Mse,
    /// This output, one number.
    Output(String),
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("output:")) {
            ("auto", _) => Ok(Self::Auto),
            ("cross-entropy", _) => Ok(Self::CrossEntropy),
            ("mse", _) => Ok(Self::Mse),
            (_, Some(name)) => Ok(Self::Output(name.to_owned())),
            _ => Err(format!("`{text}`: expected auto, cross-entropy, mse or output:NAME")),
        }
    }
}

/// A network in an ONNX file.
///
/// ```no_run
/// use wgrad::graph::Params;
/// use wgrad::onnx::{Network, Sizes};
/// let network = Network::read("model.onnx")?;
/// let params = Params::new(0);
/// let sizes = Sizes { batch: Some(8), ..Sizes::default() };
/// let step = network.train_step(&params, &sizes, |trace, outputs| {
///     let labels = trace.labels("labels", [8], 10);
///     outputs[0].1.cross_entropy(&labels)
/// })?;
/// # Ok::<(), wgrad::Error>(())
/// ```
#[derive(Debug)]
pub struct Network {
    model: ModelProto,
    folder: Option<PathBuf>,
    name: String,
    opset: i64,
    /// Whether the elements of parameters are read.
    elements: bool,
}

/// The opsets whose nodes are read.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=25;

impl Network {
    /// Reads a file. Tensors outside of it are read when they are needed, from its folder only.
    ///
    /// # Errors
    /// [`Error::Onnx`] for a file that cannot be read, that is not ONNX, that has no graph, or with nodes that are not
    /// supported: all of them are named.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|e| Error::Onnx { file: path.display().to_string(), message: e.to_string() })?;
        let folder =
            path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        Self::decode(bytes.into(), &path.display().to_string(), folder.map(Path::to_owned))
    }

    /// Reads a file in memory, which has all of its tensors.
    ///
    /// # Errors
    /// Those of [`Network::read`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::decode(Bytes::copy_from_slice(bytes), "the model", None)
    }

    /// Leaves the elements of parameters in their files, of which only the sizes are checked: parameters start as zeros.
    /// Enough for plans, and much less to read.
    #[must_use]
    pub fn without_elements(self) -> Self {
        Self { elements: false, ..self }
    }

    fn decode(bytes: Bytes, name: &str, folder: Option<PathBuf>) -> Result<Self> {
        let wrong = |message: String| Error::Onnx { file: name.to_owned(), message };
        let model = ModelProto::decode(bytes).map_err(|e| wrong(format!("not an ONNX file: {e}")))?;
        let opset = model.opset_import.iter().find(|set| matches!(&set.domain[..], "" | "ai.onnx"));
        let opset = opset.map_or(1, |set| set.version);
        let network = Self { model, folder, name: name.to_owned(), opset, elements: true };
        if network.model.graph.as_ref().is_none_or(|graph| graph.node.is_empty()) {
            return Err(wrong("it has no graph".to_owned()));
        }
        if !OPSETS.contains(&opset) {
            let (first, last) = (OPSETS.start(), OPSETS.end());
            return Err(wrong(format!(
                "opset {opset}; {first} to {last} are read: export it again with one of those"
            )));
        }
        let missing = network.missing();
        if !missing.is_empty() {
            let list: Vec<String> = missing
                .iter()
                .map(|(op, nodes)| format!("{op} ({}, such as `{}`)", nodes.len(), nodes[0]))
                .collect();
            return Err(wrong(format!(
                "{} not supported: {}; supported are {}",
                if list.len() == 1 { "an operation is" } else { "some operations are" },
                list.join(", "),
                ops::names().join(", ")
            )));
        }
        if let Some(name) = network.computed_twice() {
            return Err(wrong(format!("`{name}` is stored or computed twice: each value has one name")));
        }
        Ok(network)
    }

    /// A name of the graph that two nodes or initialisers give, or a node and an input. Inputs may have a stored value.
    fn computed_twice(&self) -> Option<&str> {
        let graph = self.graph();
        let stored = graph.initializer.iter().map(|tensor| &tensor.name);
        let computed = || graph.node.iter().flat_map(|node| &node.output);
        let mut seen = BTreeSet::new();
        let twice = stored.chain(computed()).find(|name| !name.is_empty() && !seen.insert(*name));
        let inputs: BTreeSet<&String> = graph.input.iter().map(|input| &input.name).collect();
        twice.or_else(|| computed().find(|name| inputs.contains(name))).map(|name| &name[..])
    }

    /// Calls the network by another name than that of its file.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what has to be fed.
    pub fn inputs(&self) -> Vec<Port> {
        let graph = self.graph();
        let stored: BTreeSet<&str> = graph.initializer.iter().map(|tensor| &tensor.name[..]).collect();
        let fed = graph.input.iter().filter(|input| !stored.contains(&input.name[..]));
        fed.map(|input| Port { below: self.rows_of_table(&input.name), ..port(input) }).collect()
    }

    /// Returns what is computed; dimensions are those that the file declares.
    pub fn outputs(&self) -> Vec<Port> {
        self.graph().output.iter().map(port).collect()
    }

    /// Returns the number of rows that the file fixes for its first input.
    pub fn fixed_batch(&self) -> Option<usize> {
        self.inputs().iter().find_map(|input| match input.dims.first() {
            Some(Dimension::Fixed(batch)) => Some(*batch),
            _ => None,
        })
    }

    /// Records the network: declares its inputs and returns its outputs, in the file's order.
    ///
    /// # Errors
    /// [`Error::Onnx`] for open dimensions without a size, and for nodes that do not fit their operands.
    pub fn forward(&self, params: &Params, trace: &Trace, sizes: &Sizes) -> Result<Vec<(String, Tensor)>> {
        let mut import = Import::new(self, trace, params);
        for input in self.inputs() {
            let dims = self.resolved(&input, sizes)?;
            let shape =
                import::shape(&dims).map_err(|why| self.wrong(format!("input `{}`: {why}", input.name)))?;
            let tensor = match input.integer {
                true => match input.below {
                    Some(below) => trace.ids(&input.name, shape, below as u32),
                    None => trace.input_of(DType::U32, &input.name, shape),
                },
                false => trace.input(&input.name, shape),
            };
            import.set(&input.name, Value::Tensor(tensor));
        }
        let graph = self.graph();
        import.graph(graph).and_then(|()| import.outputs(graph)).map_err(|why| self.wrong(why))
    }

    /// Traces a training step whose loss is a function of the outputs.
    ///
    /// # Errors
    /// Those of [`Network::forward`]; [`Error::Trace`] for mistakes of shape.
    pub fn train_step(
        &self,
        params: &Params,
        sizes: &Sizes,
        loss: impl FnOnce(&Trace, &[(String, Tensor)]) -> Tensor,
    ) -> Result<TrainStep> {
        let mut failed = None;
        let step = TrainStep::trace(params, |trace| match self.forward(params, trace, sizes) {
            Ok(outputs) => loss(trace, &outputs),
            Err(error) => {
                failed = Some(error);
                trace.input("unused", [])
            }
        });
        failed.map_or(step, Err)
    }

    /// Traces a forward pass. All outputs can be read by their names.
    ///
    /// # Errors
    /// Those of [`Network::train_step`].
    pub fn inference(&self, params: &Params, sizes: &Sizes) -> Result<Forward> {
        let mut failed = None;
        let first = self.outputs().first().map_or_else(String::new, |port| port.name.clone());
        let forward = Forward::trace(params, &first, |trace| match self.forward(params, trace, sizes) {
            Ok(outputs) => {
                outputs[1..].iter().for_each(|(name, tensor)| trace.output(name, tensor));
                outputs[0].1.clone()
            }
            Err(error) => {
                failed = Some(error);
                trace.input("unused", [])
            }
        });
        failed.map_or(forward, Err)
    }

    /// Returns a loss of the outputs. Cross-entropy declares the input `labels`, the outputs' dimensions without the last;
    /// the mean squared error declares `target`.
    pub fn loss(&self, loss: &Loss, trace: &Trace, outputs: &[(String, Tensor)]) -> Tensor {
        let Some((_, y)) = outputs.first() else { return trace.input("target", []) };
        let tokens = self.inputs().iter().any(|input| input.integer);
        let classes = y.shape().dims().last().copied().unwrap_or(1);
        match (loss, y.shape().rank()) {
            (Loss::Output(name), _) => match outputs.iter().find(|(other, _)| other == name) {
                Some((_, y)) if y.shape().numel() == 1 => y.reshape([]),
                Some((_, y)) => y.mistake(format!("output `{name}` {} is not one number", y.shape()), []),
                None => {
                    let known: Vec<&str> = outputs.iter().map(|(name, _)| &name[..]).collect();
                    y.mistake(format!("there is no output `{name}`; known: {}", known.join(", ")), [])
                }
            },
            (Loss::CrossEntropy, rank) | (Loss::Auto, rank @ 2) | (Loss::Auto, rank @ 3)
                if *loss == Loss::CrossEntropy || (classes > 1 && (rank == 2 || tokens)) =>
            {
                let shape = y.shape();
                let rows = Shape::try_new(&shape.dims()[..rank.saturating_sub(1)])
                    .expect("fewer dimensions than the output's");
                y.cross_entropy(&trace.labels("labels", rows, classes as u32))
            }
            _ => y.mse(&trace.input("target", y.shape())),
        }
    }

    fn graph(&self) -> &GraphProto {
        self.model.graph.as_ref().expect("`decode` checks that there is one")
    }

    /// Whether the weights are constants among the nodes, as Paddle's exporter writes them: no initialiser is an array of
    /// floats.
    fn has_weights_in_constants(&self) -> bool {
        let array = |tensor: &proto::TensorProto| {
            constant::is_integer(tensor.data_type) == Ok(false) && tensor.dims.iter().any(|len| *len > 1)
        };
        !self.graph().initializer.iter().any(array)
    }

    fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn function(&self, node: &NodeProto) -> Option<&proto::FunctionProto> {
        self.model.functions.iter().find(|f| f.name == node.op_type && f.domain == node.domain)
    }

    fn wrong(&self, message: String) -> Error {
        Error::Onnx { file: self.name.clone(), message }
    }

    fn resolved(&self, input: &Port, sizes: &Sizes) -> Result<Vec<usize>> {
        let dim = |(axis, dim): (usize, &Dimension)| {
            let own = format!("{}.{axis}", input.name);
            let given = |name: &str| sizes.named.get(&own).or_else(|| sizes.named.get(name)).copied();
            match dim {
                Dimension::Fixed(len) => match sizes.batch {
                    Some(batch) if axis == 0 && batch != *len && input.dims.len() > 1 => Err(self.wrong(format!(
                        "input `{}` has {len} rows in the file, not {batch}: export it with a dynamic first dimension",
                        input.name
                    ))),
                    _ => Ok(*len),
                },
                Dimension::Named(name) => {
                    let batch = if axis == 0 { sizes.batch } else { None };
                    given(name).or(batch).ok_or_else(|| {
                        let named =
                            if name.is_empty() { String::new() } else { format!(", or all called `{name}`") };
                        self.wrong(format!(
                            "dimension {axis} of input `{}` is open: give `{own}` a length{named}",
                            input.name
                        ))
                    })
                }
            }
        };
        input.dims.iter().enumerate().map(dim).collect()
    }

    /// The names of the values that hold the integers of an input, its own first: exporters cast and reshape them on the way.
    fn same_integers<'a>(&'a self, input: &'a str) -> BTreeSet<&'a str> {
        let mut names = BTreeSet::from([input]);
        for node in self.graph().node.iter().filter(|node| KEEP_INTEGERS.contains(&&node.op_type[..])) {
            if node.input.first().is_some_and(|read| names.contains(&read[..])) {
                names.extend(node.output.iter().map(|output| &output[..]));
            }
        }
        names
    }

    /// The rows of the table whose rows, along the first dimension, a node selects by one of the values `ids`; `None` if it does
    /// something else.
    fn selected_rows(&self, node: &NodeProto, ids: &BTreeSet<&str>) -> Option<i64> {
        let [table, own] = &node.input[..] else { return None };
        let first = node.attribute.iter().all(|attribute| attribute.name != "axis" || attribute.i == 0);
        if node.op_type != "Gather" || !first || !ids.contains(&own[..]) {
            return None;
        }
        let table = self.graph().initializer.iter().find(|tensor| tensor.name == *table)?;
        table.dims.first().copied()
    }

    /// Returns the rows of the smallest table whose rows the input selects.
    fn rows_of_table(&self, input: &str) -> Option<usize> {
        let ids = self.same_integers(input);
        let rows = self.graph().node.iter().filter_map(|node| self.selected_rows(node, &ids));
        rows.filter_map(|rows| u32::try_from(rows).ok()).map(|rows| rows as usize).min()
    }

    /// Returns the index that an integer of an input stands for: below 0 it counts from the end, where all that reads the
    /// input are Gather nodes along the first dimension of tables with equally many rows, and no node has a graph of its own.
    /// `None` where there is no such index.
    pub fn index(&self, input: &str, integer: i64) -> Option<u32> {
        if integer >= 0 {
            return u32::try_from(integer).ok();
        }
        let (graph, ids) = (self.graph(), self.same_integers(input));
        let captures = |node: &NodeProto| node.attribute.iter().any(|own| own.g.is_some());
        if graph.output.iter().any(|output| ids.contains(&output.name[..])) || graph.node.iter().any(captures)
        {
            return None;
        }
        let mut rows: Option<i64> = None;
        for node in graph.node.iter().filter(|node| node.input.iter().any(|read| ids.contains(&read[..]))) {
            // Not as a shape, for example.
            let keeps = node.output.iter().any(|output| ids.contains(&output[..]))
                && !node.input[1..].iter().any(|read| ids.contains(&read[..]));
            if keeps {
                continue;
            }
            let own = self.selected_rows(node, &ids)?;
            if *rows.get_or_insert(own) != own {
                return None;
            }
        }
        u32::try_from(rows?.checked_add(integer)?).ok()
    }

    /// Returns the operations that are not supported, with the names of their nodes.
    fn missing(&self) -> BTreeMap<String, Vec<String>> {
        let mut missing = BTreeMap::new();
        self.missing_of(&self.graph().node, &mut missing);
        self.model.functions.iter().for_each(|function| self.missing_of(&function.node, &mut missing));
        missing
    }

    fn missing_of(&self, nodes: &[NodeProto], missing: &mut BTreeMap<String, Vec<String>>) {
        for node in nodes {
            if ops::lookup(&node.domain, &node.op_type).is_none() && self.function(node).is_none() {
                let domain = if node.domain.is_empty() { String::new() } else { format!("{}.", node.domain) };
                missing.entry(format!("{domain}{}", node.op_type)).or_default().push(import::label(node));
            }
            let inside = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
            inside.for_each(|graph| self.missing_of(&graph.node, missing));
        }
    }
}

/// Operations whose result has the elements of the first operand.
const KEEP_INTEGERS: [&str; 6] = ["Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

fn port(info: &ValueInfoProto) -> Port {
    let tensor = info.r#type.as_ref().and_then(|r#type| r#type.tensor_type.as_ref());
    let dims = tensor.and_then(|tensor| tensor.shape.as_ref()).map_or(Vec::new(), |shape| {
        let dim = |dim: &proto::DimensionProto| match (dim.dim_value, &dim.dim_param) {
            (Some(len), _) if len > 0 => Dimension::Fixed(len as usize),
            (_, name) => Dimension::Named(name.clone().unwrap_or_default()),
        };
        shape.dim.iter().map(dim).collect()
    });
    let integer = tensor.is_some_and(|tensor| constant::is_integer(tensor.elem_type) == Ok(true));
    Port { name: info.name.clone(), dims, integer, below: None }
}

#[cfg(test)]
mod tests;
