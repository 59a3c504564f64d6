//! Chains of element functions: one kernel written for each, alone or behind a matrix product; in fours throughout.

use super::chain_text::{Layout, Writer};
use super::grid::{per_thread, quads};
use super::{Operand, Site};
use crate::dtype::DType;
use crate::graph::Chain;
use crate::kernels::{Draft, Kernel, Launch, Prelude, stores_fours};
use crate::shape::Shape;

/// A chain on its own.
pub(super) fn chain(site: &Site, chain: &Chain) -> Launch<Operand> {
    let operands: Vec<_> = (0..site.inputs.len()).map(|k| (Operand::Input(k), site.inputs[k])).collect();
    alone(site, chain, &operands, site.in_place)
}

/// The same over the result of a matrix product, which is in its place already.
pub(super) fn over_product(site: &Site, chain: &Chain) -> Launch<Operand> {
    let product = (Operand::Output(0), site.outputs[0]);
    let rest = (2..site.inputs.len()).map(|i| (Operand::Input(i), site.inputs[i]));
    let operands: Vec<_> = std::iter::once(product).chain(rest).collect();
    alone(site, chain, &operands, Some(0))
}

type Given = (Operand, (Shape, DType));

fn alone(site: &Site, chain: &Chain, operands: &[Given], in_place: Option<usize>) -> Launch<Operand> {
    let types: Vec<_> = operands.iter().map(|(_, given)| *given).collect();
    let writer = Writer::new(Layout::Alone, chain, &types, in_place);
    let mut memory = vec![Operand::Output(0)];
    let mut slots = vec![1];
    for (k, (operand, _)) in operands.iter().enumerate().filter(|(k, _)| in_place != Some(*k)) {
        slots.push(Layout::Alone.slot(k));
        memory.push(*operand);
    }
    let ending = if in_place.is_some() { "_in_place" } else { "" };
    let name = [chain.name().to_owned(), ending.to_owned()];
    let text = writer.text();
    let Writer { words, mut preludes, .. } = writer;
    preludes.insert(Prelude::Grid);
    let kernel = Draft { name, preludes, text, slots }.kernel();
    let count = quads(chain.shape().numel());
    let words: Vec<u32> = std::iter::once(count).chain(words).collect();
    per_thread(site, kernel, u64::from(count), memory, &words)
}

/// A matrix product that passes its results through a chain before it stores them. `launch` is the product by itself, and
/// operands of the chain behind the first are the node's from 2 on.
pub(super) fn behind_product(site: &Site, chain: &Chain, mut launch: Launch<Operand>) -> Launch<Operand> {
    let base: &'static Kernel = launch.kernel;
    let layout = if stores_fours(base) { Layout::Fours } else { Layout::Lanes };
    let product = (Operand::Output(0), (chain.shape(), DType::F32));
    let rest = (2..site.inputs.len()).map(|i| (Operand::Input(i), site.inputs[i]));
    let operands: Vec<Given> = std::iter::once(product).chain(rest).collect();
    let in_place = site.in_place.map(|input| input - 1);
    let types: Vec<_> = operands.iter().map(|(_, given)| *given).collect();
    let writer = Writer::new(layout, chain, &types, in_place);
    let mut slots = base.slots.to_vec();
    for (k, (operand, _)) in operands.iter().enumerate().skip(1).filter(|(k, _)| in_place != Some(*k)) {
        slots.push(layout.slot(k));
        launch.memory.push(*operand);
    }
    let behind = chain.name().trim_start_matches("matmul");
    let ending = if in_place.is_some() { "_in_place" } else { "" };
    let name = [format!("{}{behind}", base.name), ending.to_owned()];
    let text = writer.text();
    let Writer { words, preludes, .. } = writer;
    launch.kernel = Draft { name, preludes, text, slots }.behind(base);
    launch.params.resize(PRODUCT_WORDS, 0);
    launch.params.extend(words);
    launch
}

/// Words of `shaders/prelude/matmul_params.wgsl` in front of `rest`.
const PRODUCT_WORDS: usize = 16;
