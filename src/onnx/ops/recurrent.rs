//! Recurrent layers, unrolled over the steps of their sequences.

use super::{Call, Handler, Import, Results, Value};
use crate::graph::Tensor;
use crate::nn::{Activation, Cell, MAX_PARTS, Unrolled};

pub(super) const OPS: &[(&str, Handler)] = &[
    ("GRU", |i, c| recurrent(i, c, Cell::Gru)),
    ("LSTM", |i, c| recurrent(i, c, Cell::Lstm)),
    ("RNN", |i, c| recurrent(i, c, Cell::Rnn)),
];

/// The cell of one direction, and its activations where they are not the cell's, in the order of
/// [`Unrolled::activations`].
fn activations(call: &Call, cell: Cell, direction: usize) -> Result<(Cell, Option<[Activation; 3]>), String> {
    let usual: &[&str] = match cell {
        Cell::Rnn | Cell::ReluRnn => &["Tanh"],
        Cell::Gru => &["Sigmoid", "Tanh"],
        Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
    };
    let given = call.texts("activations");
    let names: Vec<&str> = (0..usual.len())
        .map(|i| given.get(direction * usual.len() + i).map_or(usual[i], String::as_str))
        .collect();
    match (cell, &names[..]) {
        (Cell::Rnn, ["Relu"]) => return Ok((Cell::ReluRnn, None)),
        (_, names) if names == usual => return Ok((cell, None)),
        _ => {}
    }
    let known = |name: &&str| match *name {
        "Sigmoid" => Ok(Tensor::sigmoid as Activation),
        "Tanh" => Ok(Tensor::tanh as Activation),
        "Relu" => Ok(Tensor::relu as Activation),
        other => Err(format!("activation `{other}`: Sigmoid, Tanh and Relu are computed")),
    };
    let all = names.iter().map(known).collect::<Result<Vec<Activation>, String>>()?;
    // An RNN has no gates before what is new, and only an LSTM has a memory.
    let new = all.get(usize::from(all.len() > 1)).copied().unwrap_or(Tensor::tanh);
    Ok((cell, Some([all[0], new, all.last().copied().unwrap_or(Tensor::tanh)])))
}

/// `X [t, b, in]`, `W [directions, gates h, in]`, `R [directions, gates h, h]`, `B [directions, 2 gates h]`, and states
/// `[directions, b, h]`; with `layout` 1 the batch comes first.
fn recurrent<'a>(import: &mut Import<'a>, call: &Call<'a>, cell: Cell) -> Results<'a> {
    if call.has(7) || call.int("input_forget", 0) != 0 || call.floats("clip").is_some() {
        return Err("peepholes, clipped gates and forget gates of input gates are not computed".to_owned());
    }
    let (x, w, u) = (import.x(call, 0)?, import.x(call, 1)?, import.x(call, 2)?);
    let bias = if call.has(3) { Some(import.x(call, 3)?) } else { None };
    let shapes = [&x, &w, &u].map(Tensor::shape);
    if shapes.iter().any(|shape| shape.rank() != 3) {
        return Err(format!("{}, {} and {} need three dimensions", shapes[0], shapes[1], shapes[2]));
    }
    let ([directions, width, inputs], size) = ([0, 1, 2].map(|axis| w.dim(axis)), u.dim(2));
    let reversed: &[bool] = match &call.text("direction", "forward")[..] {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(format!("direction `{other}`")),
    };
    let first = call.int("layout", 0) != 0;
    let (steps, batch) = if first { (x.dim(1), x.dim(0)) } else { (x.dim(0), x.dim(1)) };
    let fits = reversed.len() == directions && directions == u.dim(0) && width == cell.gates() * size;
    if !fits || u.dim(1) != width || x.dim(2) != inputs || steps == 0 {
        return Err(format!("inputs {}, weights {} and {} do not fit", x.shape(), w.shape(), u.shape()));
    }
    if steps > MAX_PARTS {
        return Err(format!(
            "{steps} steps: it is unrolled, and at most {MAX_PARTS} are; give it shorter sequences"
        ));
    }
    if bias.as_ref().is_some_and(|b| b.shape().dims() != [directions, 2 * width]) {
        return Err(format!("a bias that is not [{directions}, {}]", 2 * width));
    }
    if call.has(4) && call.constant(import, 4)?.as_ints().iter().any(|len| *len != steps as i64) {
        return Err(format!("sequences shorter than the {steps} steps"));
    }
    // ONNX has the gates z r h, and i o f c; PyTorch r z n, and i f g o.
    let gates: &[usize] = match cell {
        Cell::Rnn | Cell::ReluRnn => &[],
        Cell::Gru => &[1, 0, 2],
        Cell::Lstm => &[0, 2, 3, 1],
    };
    let ordered = |x: Tensor| {
        let parts: Vec<Tensor> = gates.iter().map(|i| x.slice(0, i * size..(i + 1) * size)).collect();
        if parts.is_empty() { x } else { joined(&parts, 0) }
    };
    let x = if first { x.transpose(0, 1) } else { x };
    let axis = usize::from(first);
    let state = |import: &mut Import<'a>, i: usize, direction: usize| -> Result<Tensor, String> {
        if !call.has(i) {
            return Ok(x.fill_like([batch, size], 0.0));
        }
        let all = import.x(call, i)?;
        let wanted = if first { [batch, directions, size] } else { [directions, batch, size] };
        if all.shape().dims() != wanted {
            return Err(format!("an initial state {} that is not {wanted:?}", all.shape()));
        }
        Ok(all.slice(axis, direction..direction + 1).squeeze(axis))
    };
    let (mut outputs, mut last, mut memories) = (Vec::new(), Vec::new(), Vec::new());
    for (direction, &reverse) in reversed.iter().enumerate() {
        let own = |x: &Tensor| x.slice(0, direction..direction + 1).squeeze(0);
        let biases = bias.as_ref().map(|b| own(b).split(0, &[width, width]));
        let biases = biases.map(|both| both.into_iter().map(ordered).collect::<Vec<_>>());
        let product = x.matmul_transposed(&ordered(own(&w)), false, true);
        let inputs = biases.as_ref().map_or_else(|| product.clone(), |b| product.add(&b[0]));
        let (h, memory) = (state(import, 5, direction)?, state(import, 6, direction)?);
        let (cell, activations) = activations(call, cell, direction)?;
        let unrolled = Unrolled {
            cell,
            inputs: &inputs,
            back: (&ordered(own(&u)), biases.as_ref().map(|b| &b[1])),
            activations,
            reset_after: call.int("linear_before_reset", 0) != 0,
            reverse,
        };
        let (results, h, memory) = unrolled.run(h, memory);
        let results = if first { results.transpose(0, 1) } else { results };
        outputs.push(results.unsqueeze(if first { 2 } else { 1 }));
        last.push(h.unsqueeze(axis));
        memories.push(memory.unsqueeze(axis));
    }
    let outputs = joined(&outputs, if first { 2 } else { 1 });
    Ok([outputs, joined(&last, axis), joined(&memories, axis)].map(Value::Tensor).into())
}

fn joined(parts: &[Tensor], axis: usize) -> Tensor {
    if let [one] = parts {
        one.clone()
    } else {
        parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), axis)
    }
}
