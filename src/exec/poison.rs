//! Memory poisoned before each step: a kernel that reads what nobody wrote shows.

use super::ledger::Ledger;
use super::record::{self, Ready, encode};
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::kernels::{Launch, table};

/// A quiet NaN, and nothing that arithmetic produces: it shows in every result that depends on it.
pub(super) const POISON: u32 = 0x7fc0_dead;

/// Fills arenas with NaN.
pub(super) struct Poison {
    launches: Vec<Ready>,
}

impl Poison {
    /// The uniforms of these dispatches come on top of what was planned: poisoned runs are for finding faults.
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
    let groups = (bytes / 16).div_ceil(u64::from(table::FILL.workgroup));
    let rows = groups.div_ceil(u64::from(device.limits().max_workgroups)).max(1);
    let grid = [groups.div_ceil(rows) as u32, rows as u32, 1];
    let params = vec![grid[0] * table::FILL.workgroup, (bytes / 16) as u32, POISON];
    let launch = Launch { kernel: &table::FILL, constants: Vec::new(), memory: vec![()], params, grid };
    let uniforms = record::uniform_buffer(&[&launch.params], ledger)?;
    let group = record::group(device, &launch, &uniforms, 0, |()| (arena, offset, bytes));
    Ok(Ready { pipeline: record::pipeline(device, &launch)?, group, grid })
}
