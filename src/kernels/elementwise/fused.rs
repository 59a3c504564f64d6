//! Chains of elementwise functions: one generated kernel for each, alone or as the epilogue of a product or
//! convolution, four elements at a time.

use super::fused_wgsl::{Layout, Stores, Writer};
use crate::dtype::DType;
use crate::graph::{Arg, FusedElementwise, Op, Saves, Unary};
use crate::kernels::grid::{per_thread, quads};
use crate::kernels::{Kernel, Launch, Operand, Site};
use crate::shape::Shape;

/// Returns the launch of a chain by itself.
pub(in crate::kernels) fn fused(site: &Site, chain: &FusedElementwise) -> Launch<Operand> {
    let operands: Vec<_> = (0..site.inputs.len()).map(|k| (Operand::Input(k), site.inputs[k])).collect();
    alone(site, chain, &operands, site.in_place)
}

/// Returns the launch of an epilogue by itself, over the result of its operation, which is already in the
/// output.
pub(in crate::kernels) fn over_result(site: &Site, chain: &FusedElementwise) -> Launch<Operand> {
    alone(site, chain, &epilogue_operands(site), Some(0))
}

/// Returns the operands of an epilogue: the operation's result, then the node's inputs after the operation's
/// own.
fn epilogue_operands(site: &Site) -> Vec<Given> {
    let own = site.op.main_inputs(site.inputs.len());
    let others = (own..site.inputs.len()).map(|i| (Operand::Input(i), site.inputs[i]));
    std::iter::once((Operand::Output(0), site.outputs[0])).chain(others).collect()
}

type Given = (Operand, (Shape, DType));

fn alone(
    site: &Site,
    chain: &FusedElementwise,
    operands: &[Given],
    in_place: Option<usize>,
) -> Launch<Operand> {
    let types: Vec<_> = operands.iter().map(|(_, given)| *given).collect();
    let mut writer = Writer::new(Layout::Alone, chain, &types, in_place);
    let mut memory = vec![Operand::Output(0)];
    let mut slots = vec![1];
    for (k, (operand, _)) in operands.iter().enumerate().filter(|(k, _)| in_place != Some(*k)) {
        slots.push(Layout::Alone.slot(k));
        memory.push(*operand);
    }
    writer.import("common/grid");
    writer.import("common/elem");
    writer.define("VEC4");
    let source = writer.source();
    let Writer { words, defines, .. } = writer;
    let kernel = Kernel::generated(chain.name(), defines.into_iter().collect(), source, slots);
    let kernel = if in_place.is_some() { kernel.suffixed("in_place") } else { kernel };
    let count = quads(chain.shape().numel());
    let words: Vec<u32> = std::iter::once(count).chain(words).collect();
    per_thread(site, &kernel, u64::from(count), memory, &words)
}

/// Returns `launch`, the operation by itself, with the node's epilogue applied to its results before they are
/// stored; unchanged if the node has no epilogue.
pub(in crate::kernels) fn with_epilogue(site: &Site, mut launch: Launch<Operand>) -> Launch<Operand> {
    let Some(chain) = site.op.epilogue() else { return launch };
    let base = &launch.kernel;
    let own = site.op.main_inputs(site.inputs.len());
    let layout = Layout::Epilogue {
        stores: Stores::of(base),
        slots: base.slots.iter().max().map_or(1, |slot| slot + 1),
    };
    let operands = epilogue_operands(site);
    let in_place = site.in_place.map(|input| input + 1 - own);
    let types: Vec<_> = operands.iter().map(|(_, given)| *given).collect();
    let both = both_ways(chain, in_place).filter(|_| site.limits.class.is_cpu());
    let writer = match both {
        Some((f, back)) => Writer::both_ways(layout, f, back),
        None => Writer::new(layout, chain, &types, in_place),
    };
    let mut slots = base.slots.to_vec();
    for (k, (operand, _)) in operands.iter().enumerate().skip(1).filter(|(k, _)| in_place != Some(*k)) {
        slots.push(layout.slot(k));
        launch.memory.push(*operand);
    }
    let functions = match both {
        Some((f, _)) => format!("+{}", Op::Unary(f).name()),
        None => chain.name().find('+').map_or("", |at| &chain.name()[at..]).to_owned(),
    };
    let ending = match (both, in_place) {
        (Some(_), _) => Some("both_ways"),
        (None, Some(_)) => Some("in_place"),
        (None, None) => None,
    };
    let name = format!("{}{functions}", base.name);
    let source = writer.source();
    let Writer { words, defines, .. } = writer;
    let kernel = base.with_epilogue(&name, defines.into_iter().collect(), source, slots);
    launch.kernel = match ending {
        Some(ending) => kernel.suffixed(ending),
        None => kernel,
    };
    // The chain's words begin at a multiple of 16 bytes.
    launch.params.resize(launch.params.len().next_multiple_of(4), 0);
    launch.params.extend(words);
    launch
}

/// Returns the only function of a chain, and whether the chain is its gradient, written over the function's
/// saved result. One kernel serves both: on CPU adapters compiling a second kernel costs more than reading
/// and computing both for each element.
fn both_ways(chain: &FusedElementwise, in_place: Option<usize>) -> Option<(Unary, bool)> {
    let [link] = chain.links() else { return None };
    match (&link.op, &link.args[..], in_place) {
        (Op::Unary(f), [Arg::Operand(0)], None) if f.saves() == Saves::Output => Some((*f, false)),
        (Op::UnaryGrad(f), [Arg::Operand(1), Arg::Operand(0)], Some(1)) if f.saves() == Saves::Output => {
            Some((*f, true))
        }
        _ => None,
    }
}
