//! Poisoning of memory before each step, which exposes kernels that read unwritten memory.

use super::ledger::Ledger;
use super::record::{self, Ready, encode};
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::kernels::fill_words;

/// A quiet NaN with bits that no arithmetic produces. It propagates to every result that depends on it.
pub(super) const POISON: u32 = 0x7fc0_dead;

/// Fills arenas with NaN.
pub(super) struct Poison {
    launches: Vec<Ready>,
}

impl Poison {
    /// Creates the dispatches that fill `arenas`. Their uniforms come on top of the planned bytes: poisoned
    /// runs are for debugging.
    pub(super) fn new(device: &Device, arenas: &[Buffer]) -> Result<Self> {
        let mut ledger = Ledger::new(device);
        let mut launches = Vec::new();
        let piece = device.limits().max_binding.min(64 << 20) / 256 * 256;
        for arena in arenas {
            let mut offset = 0;
            while offset < arena.size() {
                let bytes = piece.min(arena.size() - offset);
                launches.push(fill(device, &mut ledger, arena, offset, bytes)?);
                offset += bytes;
            }
        }
        Ok(Self { launches })
    }

    pub(super) fn record(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        encode(&mut pass, &self.launches);
    }
}

fn fill(
    device: &Device,
    ledger: &mut Ledger,
    arena: &wgpu::Buffer,
    offset: u64,
    bytes: u64,
) -> Result<Ready> {
    let launch = fill_words(bytes / 16, POISON, device.limits().max_workgroups);
    let uniforms = record::uniform_buffer(&[&launch.params], ledger)?;
    let group = record::group(device, &launch, &uniforms, 0, |()| (arena, offset, bytes));
    Ok(Ready { pipeline: record::pipeline(device, &launch)?, group, grid: launch.grid })
}
