//! Timestamps of dispatches: each dispatch runs in its own pass, between two timestamps of the device's
//! clock.

use super::ledger::{Ledger, Purpose};
use super::record::{self, Ready};
use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::maybe_async;

/// Dispatches that one query set can time; each needs two timestamps.
const CHUNK: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;

/// Query sets for a number of dispatches, and the buffers through which the timestamps are read back. They
/// exist for one run, in addition to the session's own buffers.
pub(super) struct Timers {
    sets: Vec<wgpu::QuerySet>,
    resolved: Buffer,
    download: Buffer,
    count: usize,
    period: f64,
}

impl Timers {
    /// # Errors
    /// [`Error::Unsupported`] where the adapter cannot time passes, or there is nothing to time.
    pub(super) fn new(device: &Device, count: usize) -> Result<Self> {
        let Some(period) = device.timestamp_period() else {
            let name = &device.adapter().name;
            return Err(Error::unsupported(
                name,
                format!("`{name}` has no timestamp queries, so kernels cannot be timed"),
            ));
        };
        if count == 0 {
            return Err(Error::NotReady("the plan has no dispatches to time".to_owned()));
        }
        let set = |first: usize| {
            device.wgpu_device().create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timers"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * (count - first).min(CHUNK) as u32,
            })
        };
        let sets = (0..count).step_by(CHUNK).map(set).collect();
        let bytes = 16 * count as u64;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = device.buffer("timestamps", bytes, usage, false, 0)?;
        let download = Ledger::new(device).create("timestamps read", bytes, Purpose::Download)?;
        Ok(Self { sets, resolved, download, count, period: f64::from(period) })
    }

    /// Encodes dispatches, each in its own pass; `first` is the number of the first one.
    pub(super) fn encode(&self, encoder: &mut wgpu::CommandEncoder, first: usize, launches: &[Ready]) {
        for (i, launch) in (first..).zip(launches) {
            let at = 2 * (i % CHUNK) as u32;
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: &self.sets[i / CHUNK],
                    beginning_of_pass_write_index: Some(at),
                    end_of_pass_write_index: Some(at + 1),
                }),
            });
            record::encode(&mut pass, [launch]);
        }
    }

    /// Encodes the copy of all timestamps, after the last dispatch.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        for (i, set) in self.sets.iter().enumerate() {
            let first = i * CHUNK;
            let queries = 2 * (self.count - first).min(CHUNK) as u32;
            encoder.resolve_query_set(set, 0..queries, &self.resolved, 16 * first as u64);
        }
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.download, 0, 16 * self.count as u64);
    }

    /// Returns start and end of each dispatch, in nanoseconds since the start of the first one. Waits for
    /// them.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::Device`].
    #[maybe_async]
    pub(super) async fn read(&self, device: &Device) -> Result<Vec<(f64, f64)>> {
        device.map(&self.download, wgpu::MapMode::Read, .., None).wait(device).await?;
        let view =
            self.download.get_mapped_range(..).map_err(|e| device.refused("to read timestamps", &e))?;
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&view);
        drop(view);
        self.download.unmap();
        let start = ticks.first().copied().unwrap_or(0);
        let ns = |tick: u64| tick.saturating_sub(start) as f64 * self.period;
        Ok(ticks.chunks_exact(2).map(|pair| (ns(pair[0]), ns(pair[1].max(pair[0])))).collect())
    }
}
