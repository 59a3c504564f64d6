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
