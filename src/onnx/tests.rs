//! Small files that ask for much memory.

use super::proto::{
    AttributeProto, DimensionProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto,
};
use super::*;
use crate::reference::Twin;

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
    let reshaped = ("Reshape", &["ids", "shape"][..], "same");
    let through = network(&[reshaped, ("Gather", &["t", "same"][..], "y")], &[("t", [7, 2])]).unwrap();
    assert_eq!([through.index("ids", -1), through.index("shape", -1)], [Some(6), None]);
    // What else reads them would see other numbers.
    let also = ("Neg", &["ids"][..], "z");
    let mixed = network(&[gather, also], &[("t", [7, 2])]).unwrap();
    assert_eq!([mixed.index("ids", 3), mixed.index("ids", -1)], [Some(3), None]);
    let other = ("Gather", &["u", "ids"][..], "z");
    let tables = |rows: i64| network(&[gather, other], &[("t", [7, 2]), ("u", [rows, 3])]).unwrap();
    assert_eq!([7, 8].map(|rows| tables(rows).index("ids", -2)), [Some(5), None]);
    // A result of the network is read by whoever runs it.
    let result = ("Cast", &["ids"][..], "y");
    let read = network(&[("Gather", &["t", "ids"][..], "z"), result], &[("t", [7, 2])]).unwrap();
    assert_eq!(read.index("ids", -1), None);
}

#[test]
fn names_that_are_given_twice_are_refused() {
    let nodes = [("Neg", &["ids"][..], "y"), ("Abs", &["ids"][..], "y")];
    for (nodes, tables) in [
        (&nodes[..], &[][..]),
        (&nodes[..1], &[("y", [1, 1])]),
        (&nodes[..1], &[("t", [1, 1]); 2]),
        (&[("Cast", &["ids"][..], "ids")], &[]),
    ] {
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

fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), s: s.into(), r#type: 3, ..AttributeProto::default() }
}

fn floats(name: &str, floats: &[f32]) -> AttributeProto {
    AttributeProto { name: name.to_owned(), floats: floats.to_vec(), r#type: 6, ..AttributeProto::default() }
}

/// Returns a network of nodes of `ai.onnx.ml`: `x` is scaled, divided by its norm and classified with these labels.
fn classifier(labels: &[i64]) -> Network {
    let node = |op_type: &str, input: &str, output: &[&str], attribute: Vec<AttributeProto>| NodeProto {
        input: vec![input.to_owned()],
        output: output.iter().map(|name| (*name).to_owned()).collect(),
        op_type: op_type.to_owned(),
        domain: "ai.onnx.ml".to_owned(),
        attribute,
        ..NodeProto::default()
    };
    let labels = AttributeProto { ints: labels.to_vec(), r#type: 7, ..floats("classlabels_ints", &[]) };
    let scaled = vec![floats("offset", &[1.0, 2.0, 3.0]), floats("scale", &[2.0, 1.0, 0.5])];
    let weights = vec![
        floats("coefficients", &[1.0, 0.0, -1.0, 0.5, 0.5, 0.5]),
        floats("intercepts", &[0.25, -0.25]),
        labels,
        text("post_transform", "SOFTMAX"),
    ];
    let graph = GraphProto {
        node: vec![
            node("Scaler", "x", &["scaled"], scaled),
            node("Normalizer", "scaled", &["rows"], vec![text("norm", "L2")]),
            node("LinearClassifier", "rows", &["label", "p"], weights),
        ],
        input: vec![port("x", &[2, 3])],
        output: vec![port("label", &[2]), port("p", &[2, 2])],
        ..GraphProto::default()
    };
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
    let opset_import = vec![opset("", 17), opset("ai.onnx.ml", 3)];
    let model = ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() };
    Network::from_bytes(&model.encode_to_vec()).expect("it is read")
}

/// The numbers are those of onnxruntime 1.32 for the same file.
#[test]
fn classifiers_of_scikit_learn_match_onnxruntime() {
    let forward = classifier(&[7, 4]).inference(&Params::new(0), &Sizes::default()).unwrap();
    let mut twin = Twin::new(forward.graph());
    twin.set("x", &[2.0, 2.0, 3.0, 1.0, 4.0, 9.0]).unwrap();
    twin.run().unwrap();
    assert_eq!(twin.output("label").unwrap(), [7.0, 4.0]);
    let wanted = [0.7310586, 0.26894143, 0.26397192, 0.73602813];
    let found = twin.output("p").unwrap();
    assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6), "{found:?}");

    let refused = |labels: &[i64]| classifier(labels).inference(&Params::new(0), &Sizes::default());
    for (labels, wanted) in [
        (&[7][..], "1 integers as labels of 2 scores"),
        (&[16_777_217, 5], "label 16777217: results are of 32 bits"),
    ] {
        let error = refused(labels).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
