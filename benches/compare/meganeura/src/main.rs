//! Runs meganeura on the shared benchmark work. Its convolutions have no biases.

use std::time::Instant;

use compare_shared::{BATCH, CLASSES, PIXELS, RATE, Who, Work};
use meganeura::{Graph, SessionConfig};

fn main() {
    let start = Instant::now();
    let work = Work::of_arguments();
    let mut graph = Graph::new();
    let labels = graph.input("labels", &[BATCH, CLASSES]);
    let mut weights: Vec<(String, Vec<f32>)> = Vec::new();
    let logits = if work.model == "mlp" {
        let mut h = graph.input("x", &[BATCH, PIXELS]);
        let sizes = [PIXELS, 512, 512, CLASSES];
        for (i, pair) in sizes.windows(2).enumerate() {
            let (weight, bias) = (format!("fc{}.weight", i + 1), format!("fc{}.bias", i + 1));
            let (w, b) = (graph.parameter(&weight, pair), graph.parameter(&bias, &pair[1..]));
            let product = graph.matmul(h, w);
            h = graph.bias_add(product, b);
            if i < 2 {
                h = graph.relu(h);
            }
            weights.push((weight.clone(), work.transposed(&weight, pair[0])));
            weights.push((bias.clone(), work.weight(&bias)));
        }
        h
    } else {
        let x = graph.input("x", &[BATCH * PIXELS]);
        let (first, second) =
            (graph.parameter("conv1.weight", &[16 * 9]), graph.parameter("conv2.weight", &[32 * 16 * 9]));
        let inner = 32 * 14 * 14;
        let (w, b) =
            (graph.parameter("fc.weight", &[inner, CLASSES]), graph.parameter("fc.bias", &[CLASSES]));
        for name in ["conv1.weight", "conv2.weight", "fc.bias"] {
            weights.push((name.to_owned(), work.weight(name)));
        }
        weights.push(("fc.weight".to_owned(), work.transposed("fc.weight", inner)));
        let h = graph.conv2d(x, first, BATCH as u32, 1, 28, 28, 16, 3, 3, 1, 1);
        let h = graph.relu(h);
        let h = graph.conv2d(h, second, BATCH as u32, 16, 28, 28, 32, 3, 3, 2, 1);
        let h = graph.relu(h);
        let h = graph.reshape(h, &[BATCH, inner]);
        let product = graph.matmul(h, w);
        graph.bias_add(product, b)
    };
    let loss = graph.cross_entropy_loss(logits, labels);
    graph.set_outputs(vec![loss]);
    let mut session = meganeura::build(&graph, SessionConfig::from_env()).0;
    for (name, data) in &weights {
        session.set_parameter(name, data);
    }
    session.set_adam(RATE, 0.9, 0.999, 1e-8);
    let mut one_hot = vec![0.0; BATCH * CLASSES];
    for (row, &class) in work.y.iter().enumerate() {
        one_hot[row * CLASSES + class as usize] = 1.0;
    }
    let who = Who {
        library: "meganeura".to_owned(),
        version: "0.3.0".to_owned(),
        adapter: session.device_information().device_name.clone(),
    };
    let session = std::cell::RefCell::new(session);
    let step = || {
        let mut session = session.borrow_mut();
        session.set_input("x", &work.x);
        session.set_input("labels", &one_hot);
        session.step();
        session.wait();
        session.read_loss()
    };
    work.run(&who, start, step, || session.borrow().memory_summary().total_allocated_bytes() as u64);
}
