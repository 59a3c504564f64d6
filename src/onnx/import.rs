//! Records the nodes of an ONNX graph as operations of a trace; what is known beforehand is computed on the host.

use std::collections::HashMap;

use super::Network;
use super::constant::{Constant, check_size, dims_of, elements, floats, is_integer};
use super::ops;
use super::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto};
use crate::dtype::DType;
use crate::graph::{Init, Mode, Params, Tensor, Trace};
use crate::random;
use crate::shape::{MAX_RANK, Shape};

/// A value of the graph.
#[derive(Clone)]
pub(super) enum Value<'a> {
    /// Known elements.
    Constant(Constant),
    /// Floats of the file that become a parameter of this name where they are used.
    Weight(&'a str, &'a TensorProto),
    /// Computed by the step. Integers are `u32` or, once computed with, `f32`; booleans are 0 or 1.
    Tensor(Tensor),
    /// A sequence of values.
    List(Vec<Value<'a>>),
    /// An operand that a node leaves out.
    Absent,
}

/// A node with its operands.
pub(super) struct Call<'a> {
    pub(super) node: &'a NodeProto,
    pub(super) inputs: Vec<Value<'a>>,
    /// Attributes of the function that the node is part of, by name.
    outer: HashMap<&'a str, &'a AttributeProto>,
}

impl<'a> Call<'a> {
    fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        let own = self.node.attribute.iter().find(|attribute| attribute.name == name)?;
        if own.ref_attr_name.is_empty() { Some(own) } else { self.outer.get(&own.ref_attr_name[..]).copied() }
    }

    pub(super) fn int(&self, name: &str, otherwise: i64) -> i64 {
        self.attribute(name).map_or(otherwise, |attribute| attribute.i)
    }

    pub(super) fn float(&self, name: &str, otherwise: f32) -> f32 {
        self.attribute(name).map_or(otherwise, |attribute| attribute.f)
    }

    pub(super) fn text(&self, name: &str, otherwise: &str) -> String {
        let text = |attribute: &AttributeProto| String::from_utf8_lossy(&attribute.s).into_owned();
        self.attribute(name).map_or_else(|| otherwise.to_owned(), text)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.attribute(name).map_or(&[][..], |attribute| &attribute.strings);
        texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|attribute| attribute.ints.clone())
    }

    pub(super) fn floats(&self, name: &str) -> Option<Vec<f32>> {
        self.attribute(name).map(|attribute| attribute.floats.clone())
    }

    pub(super) fn tensor_attribute(&self, name: &str) -> Option<&'a TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }

    pub(super) fn graph(&self, name: &str) -> Option<&'a GraphProto> {
        self.attribute(name).and_then(|attribute| attribute.g.as_ref())
    }

    pub(super) fn input(&self, i: usize) -> Value<'a> {
        self.inputs.get(i).cloned().unwrap_or(Value::Absent)
    }

    pub(super) fn has(&self, i: usize) -> bool {
        !matches!(self.input(i), Value::Absent)
    }

    /// Returns an operand that has to be known.
    pub(super) fn constant(&self, import: &Import<'a>, i: usize) -> Result<Constant, String> {
        import.known(&self.input(i)).ok_or_else(|| format!("operand {i} has to be a constant"))
    }

    /// Returns integers that are an operand in later opsets and an attribute in earlier ones.
    pub(super) fn list(
        &self,
        import: &Import<'a>,
        i: usize,
        attribute: &str,
    ) -> Result<Option<Vec<i64>>, String> {
        if self.has(i) {
            self.constant(import, i).map(|c| Some(c.as_ints()))
        } else {
            Ok(self.ints(attribute))
        }
    }
}

/// Most elements of a weight that is computed with on the host.
const SMALL: usize = 4096;

/// The state of an import.
pub(super) struct Import<'a> {
    pub(super) network: &'a Network,
    pub(super) trace: &'a Trace,
    params: &'a Params,
    pub(super) opset: i64,
    values: HashMap<String, Value<'a>>,
    /// Functions and branches inside of each other.
    depth: usize,
}

impl<'a> Import<'a> {
    pub(super) fn new(network: &'a Network, trace: &'a Trace, params: &'a Params) -> Self {
        Self { network, trace, params, opset: network.opset, values: HashMap::new(), depth: 0 }
    }

    pub(super) fn set(&mut self, name: &str, value: Value<'a>) {
        self.values.insert(name.to_owned(), value);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.values.get(name)
    }

    /// Records all nodes of a graph.
    pub(super) fn graph(&mut self, graph: &'a GraphProto) -> Result<(), String> {
        for tensor in &graph.initializer {
            let value = self.stored(&tensor.name, tensor)?;
            self.set(&tensor.name, value);
        }
        self.nodes(&graph.node, &HashMap::new())
    }

    fn nodes(
        &mut self,
        nodes: &'a [NodeProto],
        outer: &HashMap<&'a str, &'a AttributeProto>,
    ) -> Result<(), String> {
        for node in nodes {
            let operand = |name: &String| match name.is_empty() {
                true => Ok(Value::Absent),
                false => self.values.get(name).cloned().ok_or_else(|| format!("there is no value `{name}`")),
            };
            let inputs: Result<Vec<Value>, String> = node.input.iter().map(operand).collect();
            let outcome = inputs.and_then(|inputs| {
                let call = Call { node, inputs, outer: outer.clone() };
                let trace = self.trace.clone();
                trace.layer(&label(node), || self.call(&call))
            });
            let results = outcome.map_err(|why| format!("{} `{}`: {why}", node.op_type, label(node)))?;
            for (name, value) in node.output.iter().zip(results) {
                self.set(name, value);
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &Call<'a>) -> Result<Vec<Value<'a>>, String> {
        let node = call.node;
        match ops::lookup(&node.domain, &node.op_type) {
            Some(op) => op(self, call),
            None => match self.network.function(node) {
                Some(function) => self.function(function, call),
                None => Err("not supported".to_owned()),
            },
        }
    }

    /// Records the nodes of a function with its own names.
    fn function(&mut self, function: &'a FunctionProto, call: &Call<'a>) -> Result<Vec<Value<'a>>, String> {
        let inputs = function.input.iter().enumerate().map(|(i, name)| (name.clone(), call.input(i)));
        let outside = std::mem::replace(&mut self.values, inputs.collect());
        let outer = call.node.attribute.iter().map(|attribute| (&attribute.name[..], attribute)).collect();
        let done = self.deeper(|import| import.nodes(&function.node, &outer));
        let inside = std::mem::replace(&mut self.values, outside);
        done?;
        let result = |name: &String| inside.get(name).cloned().ok_or_else(|| format!("no result `{name}`"));
        function.output.iter().map(result).collect()
    }

    /// Records a branch of a condition that is known; it sees the values around it.
    pub(super) fn branch(&mut self, graph: &'a GraphProto) -> Result<Vec<Value<'a>>, String> {
        self.deeper(|import| import.graph(graph))?;
        let result = |name: &str| self.get(name).cloned().ok_or_else(|| format!("no result `{name}`"));
        graph.output.iter().map(|output| result(&output.name)).collect()
    }

    fn deeper(&mut self, body: impl FnOnce(&mut Self) -> Result<(), String>) -> Result<(), String> {
        if self.depth == 32 {
            return Err("more than 32 functions inside of each other".to_owned());
        }
        self.depth += 1;
        let done = body(self);
        self.depth -= 1;
        done
    }

    /// Returns the tensor of a node whose result has this name: a weight where the file has those among its nodes.
    pub(super) fn constant_node(&self, name: &'a str, tensor: &'a TensorProto) -> Result<Value<'a>, String> {
        let array = tensor.dims.iter().any(|len| *len > 1);
        if array && self.depth == 0 && self.network.has_weights_in_constants() {
            return self.stored(name, tensor);
        }
        self.constant_of(tensor).map(Value::Constant)
    }

    /// Returns a tensor of the file as a value: floats may become parameters, integers are constants.
    fn stored(&self, name: &'a str, tensor: &'a TensorProto) -> Result<Value<'a>, String> {
        if is_integer(tensor.data_type)? || dims_of(tensor)?.is_empty() {
            return self.constant_of(tensor).map(Value::Constant);
        }
        Ok(Value::Weight(name, tensor))
    }

    pub(super) fn constant_of(&self, tensor: &TensorProto) -> Result<Constant, String> {
        let data = elements(tensor, self.network.folder())?;
        Ok(Constant { dims: dims_of(tensor)?, data, integer: is_integer(tensor.data_type)? })
    }

    /// Returns the elements, if they are known and few.
    pub(super) fn known(&self, value: &Value<'a>) -> Option<Constant> {
        match value {
            Value::Constant(constant) => Some(constant.clone()),
            Value::Weight(_, tensor) => {
                let few =
                    dims_of(tensor).ok()?.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim))? <= SMALL;
                if few { self.constant_of(tensor).ok() } else { None }
            }
            Value::Tensor(_) | Value::List(_) | Value::Absent => None,
        }
    }

    /// Returns the dimensions.
    pub(super) fn dims(&self, value: &Value<'a>) -> Result<Vec<usize>, String> {
        match value {
            Value::Constant(constant) => Ok(constant.dims.clone()),
            Value::Weight(_, tensor) => dims_of(tensor),
            Value::Tensor(tensor) => Ok(tensor.shape().dims().to_vec()),
            Value::List(list) => Err(sequence(list)),
            Value::Absent => Err("an operand is missing".to_owned()),
        }
    }

    /// Returns the value as numbers.
    pub(super) fn float(&mut self, value: &Value<'a>) -> Result<Tensor, String> {
        match value {
            Value::Tensor(tensor) => Ok(tensor.cast(DType::F32)),
            Value::Weight(name, tensor) => self.parameter(name, tensor, true),
            Value::Constant(constant) => self.buffer(constant),
            Value::List(list) => Err(sequence(list)),
            Value::Absent => Err("an operand is missing".to_owned()),
        }
    }

    /// Returns the value as indices.
    pub(super) fn indices(&mut self, value: &Value<'a>) -> Result<Tensor, String> {
        match value {
            Value::Tensor(tensor) => Ok(tensor.cast(DType::U32)),
            Value::Constant(constant) if constant.data.iter().any(|x| *x < 0.0 || *x >= 16_777_216.0) => {
                Err("indices below 0 or above 2^24".to_owned())
            }
            other => self.float(other).map(|x| x.cast(DType::U32)),
        }
    }

    /// Returns the operand as numbers.
    pub(super) fn x(&mut self, call: &Call<'a>, i: usize) -> Result<Tensor, String> {
        self.float(&call.input(i))
    }

    /// Returns a tensor of the file as a parameter, or as a buffer, under its name.
    pub(super) fn parameter(
        &mut self,
        name: &'a str,
        tensor: &TensorProto,
        trained: bool,
    ) -> Result<Tensor, String> {
        let shape = shape(&dims_of(tensor)?)?;
        let param = match self.params.find(name) {
            Some(param) if param.shape() == shape => param,
            Some(param) => {
                return Err(format!("parameter `{}` is registered as {}, not {shape}", name, param.shape()));
            }
            None => {
                let init = match self.network.elements {
                    true => Init::Data(floats(tensor, self.network.folder())?),
                    false => {
                        check_size(tensor, self.network.folder())?;
                        Init::Constant(0.0)
                    }
                };
                match trained {
                    true => self.params.add(name, shape, init),
                    false => self.params.add_buffer(name, shape, init),
                }
            }
        };
        Ok(self.trace.param(&param))
    }

    /// Returns a node's attribute as a parameter, under the names of the node's first result, which no other node has, and
    /// of the attribute.
    pub(super) fn attribute_parameter(
        &mut self,
        call: &Call<'a>,
        attribute: &str,
        dims: &[usize],
        data: Vec<f32>,
    ) -> Result<Tensor, String> {
        let (name, shape) =
            (format!("{}.{attribute}", call.node.output.first().ok_or("no result")?), shape(dims)?);
        let param = match self.params.find(&name) {
            Some(param) if param.shape() == shape => param,
            Some(param) => return Err(format!("parameter `{name}` is registered as {}", param.shape())),
            None => self.params.add(&name, shape, Init::Data(data.into())),
        };
        Ok(self.trace.param(&param))
    }

    /// Returns numbers that are not trained.
    pub(super) fn floats_of(&mut self, dims: &[usize], data: &[f32]) -> Result<Tensor, String> {
        let data = data.iter().map(|x| f64::from(*x)).collect();
        self.buffer(&Constant { dims: dims.to_vec(), data, integer: false })
    }

    /// Returns a value of the file that is not trained, such as running statistics.
    pub(super) fn untrained(&mut self, value: &Value<'a>) -> Result<Tensor, String> {
        if let Value::Weight(name, tensor) = value {
            self.parameter(name, tensor, false)
        } else {
            self.float(value)
        }
    }

    /// Returns known elements as a tensor.
    fn buffer(&mut self, constant: &Constant) -> Result<Tensor, String> {
        let shape = shape(&constant.dims)?;
        let first = constant.data.first().copied().unwrap_or(0.0);
        if constant.data.iter().all(|x| *x == first) {
            return Ok(self.trace.filled(shape, first as f32));
        }
        // Named by its contents: later traces over the same parameters find it.
        let start = random::key(0, &format!("{:?}", constant.dims));
        let hash = constant.data.iter().fold(start, |hash, x| random::bits(hash, x.to_bits()));
        let name = format!("constant.{hash:016x}");
        let param = self.params.find(&name).unwrap_or_else(|| {
            let data = constant.data.iter().map(|x| *x as f32).collect();
            self.params.add_buffer(&name, shape, Init::Data(data))
        });
        Ok(self.trace.param(&param))
    }

    pub(super) fn training(&self) -> bool {
        self.trace.mode() == Mode::Train
    }

    /// Returns the declared outputs.
    pub(super) fn outputs(&mut self, graph: &'a GraphProto) -> Result<Vec<(String, Tensor)>, String> {
        let mut outputs = Vec::new();
        for output in &graph.output {
            let value =
                self.get(&output.name).cloned().ok_or_else(|| format!("no output `{}`", output.name))?;
            outputs.push((output.name.clone(), self.float(&value)?));
        }
        Ok(outputs)
    }
}

fn sequence(list: &[Value]) -> String {
    format!("a tensor is needed, not a sequence of {}", list.len())
}

/// Returns a node's name, or its first result's.
pub(super) fn label(node: &NodeProto) -> String {
    let name = if node.name.is_empty() { node.output.first().map_or("", |name| name) } else { &node.name };
    name.trim_matches('/').replace('/', ".")
}

pub(super) fn shape(dims: &[usize]) -> Result<Shape, String> {
    Shape::try_new(dims).ok_or_else(|| format!("{dims:?}: more than {MAX_RANK} dimensions"))
}

/// Returns an axis that may count from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_start = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(from_start)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| format!("axis {axis} of {rank}"))
}

/// Records one kind of node.
pub(super) type Handler = for<'a> fn(&mut Import<'a>, &Call<'a>) -> Result<Vec<Value<'a>>, String>;
