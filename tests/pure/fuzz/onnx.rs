//! The body of the fuzz target `onnx`, which a plain test runs too.

use wgrad::graph::Params;
use wgrad::onnx::{Loss, Network, Sizes, export};

/// Reads the bytes as a network, traces it, and exports what fits and is small; returns whether it was exported.
pub fn run(bytes: &[u8]) -> bool {
    let Ok(network) = Network::from_bytes(bytes) else { return false };
    let sizes = Sizes { batch: network.fixed_batch().or(Some(2)), ..Sizes::default() };
    let loss = Loss::default();
    drop(network.train_step(&Params::new(0), &sizes, |trace, y| network.loss(&loss, trace, y)));
    let Ok(forward) = network.inference(&Params::new(0), &sizes) else { return false };
    let graph = forward.graph();
    if graph.values.iter().map(|value| value.shape.numel()).max().unwrap_or(0) > 1 << 16 {
        return false;
    }
    let elements = |name: &str| {
        let param = graph.parameters.iter().find(|param| param.name() == name);
        Ok(param.map_or_else(Vec::new, |param| param.initial(0..u64::MAX)))
    };
    let Ok(file) = export(&forward, elements) else { return false };
    let again = Network::from_bytes(&file).expect("our own form");
    let names = |network: &Network| network.outputs().into_iter().map(|port| port.name).collect::<Vec<_>>();
    assert_eq!(names(&again), graph.outputs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    again.inference(&Params::new(0), &Sizes::default()).expect("what fitted fits again");
    true
}
