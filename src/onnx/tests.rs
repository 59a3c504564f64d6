//! Small files that ask for much memory.

use super::proto::{
    AttributeProto, DimensionProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto,
};
use super::*;

fn port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |&len: &i64| DimensionProto { dim_value: Some(len), ..DimensionProto::default() };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: 1, shape });
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type }) }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i, r#type: 2, ..AttributeProto::default() }
}

/// The error of a node of the input `x` and of tensors `t0`, `t1`.. with numbers 0, whose type is ONNX's.
fn error(op: &str, x: &[i64], tensors: &[(i32, &[i64])], attribute: Option<AttributeProto>) -> String {
    let initializer = tensors.iter().enumerate().map(|(i, (data_type, dims))| {
        let bytes = dims.iter().product::<i64>() as usize * if *data_type == 7 { 8 } else { 4 };
        let raw_data = vec![0u8; bytes].into();
        let (name, dims) = (format!("t{i}"), dims.to_vec());
        TensorProto { name, dims, data_type: *data_type, raw_data, ..TensorProto::default() }
    });
    let initializer: Vec<_> = initializer.collect();
    let names = initializer.iter().map(|tensor| tensor.name.clone());
    let node = NodeProto {
        input: std::iter::once("x".to_owned()).chain(names).collect(),
        output: vec!["y".to_owned()],
        op_type: op.to_owned(),
        attribute: attribute.into_iter().collect(),
        ..NodeProto::default()
    };
    let graph = GraphProto {
        node: vec![node],
        initializer,
        input: vec![port("x", x)],
        output: vec![port("y", &[])],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { version: 19, ..OperatorSetIdProto::default() };
    let model =
        ModelProto { ir_version: 9, graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() };
    let network = Network::from_bytes(&model.encode_to_vec()).expect("it is read");
    network.inference(&Params::new(0), &Sizes::default()).expect_err("it is refused").to_string()
}

#[test]
fn nodes_that_would_become_many_are_refused() {
    let weights: &[(i32, &[i64])] = &[(1, &[1, 1, 2]), (1, &[1, 1, 1])];
    let text = error("RNN", &[20_000, 3, 2], weights, None);
    assert!(text.contains("20000 steps: it is unrolled, and at most 16384 are"), "{text}");
    let text = error("SplitToSequence", &[1 << 20], &[], None);
    assert!(text.contains("1048576 parts of 1048576 along axis 0: at most 16384 are cut"), "{text}");
    let text = error("SplitToSequence", &[9], &[(7, &[16_385])], None);
    assert!(text.contains("16385 parts of 9 along axis 0"), "{text}");
    let text = error("Split", &[9], &[], Some(int("num_outputs", 1 << 40)));
    assert!(text.contains("1099511627776 parts of 9 along axis 0"), "{text}");
}

/// A network of these nodes, which read `ids` and tables of zeros.
fn network(nodes: &[(&str, &[&str], &str)], tables: &[(&str, [i64; 2])]) -> Result<Network> {
    let node = |(op, input, output): &(&str, &[&str], &str)| NodeProto {
        input: input.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![(*output).to_owned()],
        op_type: (*op).to_owned(),
        ..NodeProto::default()
    };
    let table = |(name, dims): &(&str, [i64; 2])| TensorProto {
        name: (*name).to_owned(),
        dims: dims.to_vec(),
        data_type: 1,
        raw_data: vec![0u8; dims.iter().product::<i64>() as usize * 4].into(),
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: nodes.iter().map(node).collect(),
        initializer: tables.iter().map(table).collect(),
        input: vec![port("ids", &[3])],
        output: vec![port("y", &[])],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { version: 19, ..OperatorSetIdProto::default() };
    let model =
        ModelProto { ir_version: 9, graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() };
    Network::from_bytes(&model.encode_to_vec())
}

#[test]
fn integers_below_0_count_from_the_end_of_tables() {
    let gather = ("Gather", &["t", "ids"][..], "y");
    let one = network(&[gather], &[("t", [7, 2])]).unwrap();
    let found = [0, 6, -1, -7, -8].map(|id| one.index("ids", id));
    assert_eq!(found, [Some(0), Some(6), Some(6), Some(0), None]);
    // What else reads them would see other numbers.
    let also = ("Neg", &["ids"][..], "z");
    let mixed = network(&[gather, also], &[("t", [7, 2])]).unwrap();
    assert_eq!([mixed.index("ids", 3), mixed.index("ids", -1)], [Some(3), None]);
    let other = ("Gather", &["u", "ids"][..], "z");
    let tables = |rows: i64| network(&[gather, other], &[("t", [7, 2]), ("u", [rows, 3])]).unwrap();
    assert_eq!([7, 8].map(|rows| tables(rows).index("ids", -2)), [Some(5), None]);
}

#[test]
fn names_that_are_given_twice_are_refused() {
    let nodes = [("Neg", &["ids"][..], "y"), ("Abs", &["ids"][..], "y")];
    for (nodes, tables) in
        [(&nodes[..], &[][..]), (&nodes[..1], &[("y", [1, 1])]), (&nodes[..1], &[("t", [1, 1]); 2])]
    {
        let error = network(nodes, tables).unwrap_err().to_string();
        assert!(error.ends_with("is stored or computed twice: each value has one name"), "{error}");
    }
}

#[test]
fn plans_need_no_elements_but_the_sizes_of_tensors_are_checked() {
    let nodes = [("Gather", &["t", "ids"][..], "y")];
    let network = network(&nodes, &[("t", [7, 2])]).unwrap().without_elements();
    let params = Params::new(0);
    network.inference(&params, &Sizes::default()).unwrap();
    assert_eq!(params.list()[0].initial(0..20), [0.0; 14]);
    let mut cut = network;
    let graph = cut.model.graph.as_mut().unwrap();
    graph.initializer[0].raw_data = vec![0u8; 20].into();
    let error = cut.inference(&Params::new(0), &Sizes::default()).unwrap_err().to_string();
    assert!(error.contains("tensor `t` [7, 2] has 20 bytes"), "{error}");
}
