//! The cost of each launch of a node, for modelled times.

use super::{Launch, Lowered, Operand, Site, conv};
use crate::dtype::DType;
use crate::graph::{Cost, Op};
use crate::limits::Job;
use crate::shape::Shape;

/// Returns the work of each launch. Together they have the cost of the operation (`Cost::of`), to which passes
/// over scratch are added.
///
/// Bytes of operands and results are divided in proportion to those that each launch binds. Arithmetic is
/// divided in proportion to the steps of convolutions and attention, and otherwise to threads, among launches
/// that read an operand; others, which sum parts, count one operation per element of scratch.
pub fn jobs(site: &Site, lowered: &Lowered) -> Vec<Job> {
    let launches = &lowered.launches;
    let cost = Cost::of(site.op, site.inputs, site.outputs);
    let bound: Vec<[u64; 2]> = launches.iter().map(|launch| bound(site, lowered, launch)).collect();
    let shares: Vec<u64> = launches.iter().map(|launch| share(site, launch)).collect();
    // What only works on scratch, or on nothing, has its operation's arithmetic to itself.
    let shares = if shares.iter().all(|share| *share == 0) { vec![1; shares.len()] } else { shares };
    let all_bound: u64 = bound.iter().map(|[own, _]| own).sum();
    let all_shares: u64 = shares.iter().sum();
    let part = |whole: u64, share: u64, all: u64| match all {
        0 => whole / launches.len().max(1) as u64,
        _ => (u128::from(whole) * u128::from(share) / u128::from(all)) as u64,
    };
    let of = |(launch, ([own, scratch], share)): (&Launch<Operand>, (&[u64; 2], &u64))| Job {
        flops: if *share == 0 { scratch / 4 } else { part(cost.flops, *share, all_shares) },
        bytes: part(cost.bytes, *own, all_bound) + scratch,
        kind: launch.kind(),
        workgroups: launch.workgroups(),
        threads: launch.threads(),
        shared_bytes: launch.shared_bytes(),
    };
    launches.iter().zip(bound.iter().zip(&shares)).map(of).collect()
}

/// Bytes of operands and results that a launch binds, and bytes of scratch.
fn bound(site: &Site, lowered: &Lowered, launch: &Launch<Operand>) -> [u64; 2] {
    let mut sums = [0, 0];
    for operand in &launch.memory {
        let typed = |of: &[(Shape, DType)], i: usize| {
            of.get(i).map_or(0, |(shape, dtype)| dtype.bytes(shape.numel()))
        };
        match *operand {
            Operand::Input(i) => sums[0] += typed(site.inputs, i),
            Operand::Output(i) => {
                sums[0] += typed(site.outputs, i);
                // It is read as the operand whose memory it is.
                sums[0] += site.in_place.filter(|_| i == 0).map_or(0, |input| typed(site.inputs, input));
            }
            Operand::Workspace(i) => sums[1] += lowered.workspace.get(i).copied().unwrap_or(0),
        }
    }
    sums
}

/// The arithmetic of a launch relative to that of the node's other launches.
fn share(site: &Site, launch: &Launch<Operand>) -> u64 {
    match (site.op, launch.kernel.module) {
        (_, "conv/pack" | "attention/means" | "reduce/parts") => 0,
        (Op::Conv2d { .. } | Op::Conv2dInput { .. }, _) => conv::pairs(&launch.params),
        // Products for each pair of a query and a key.
        (Op::AttentionGrad(_), "attention/tiled_dkv" | "attention/cpu_dkv") => 4,
        (Op::AttentionGrad(_), _) => 3,
        _ if launch.memory.iter().any(|operand| matches!(operand, Operand::Input(_))) => {
            launch.workgroups() * u64::from(launch.threads())
        }
        // In place, and without an operand.
        _ if launch.memory.iter().all(|operand| matches!(operand, Operand::Output(_))) => {
            launch.workgroups() * u64::from(launch.threads())
        }
        _ => 0,
    }
}
