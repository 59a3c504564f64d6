//! Buffer creation for a session: every buffer is created through the ledger, which counts its bytes.

use crate::device::{Buffer, Device};
use crate::error::Result;
use wgpu::BufferUsages;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Tensors.
    Arena,
    /// `Params` of dispatches.
    Uniforms,
    /// Written by the host, copied by the device.
    Upload,
    /// Written by the device, read by the host.
    Download,
}

impl Purpose {
    fn usage(self) -> BufferUsages {
        match self {
            Self::Arena => BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            Self::Uniforms => BufferUsages::UNIFORM,
            Self::Upload => BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC,
            Self::Download => BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        }
    }
}

/// Creates buffers on a device and adds up their bytes.
#[derive(Clone)]
pub(super) struct Ledger {
    pub(super) device: Device,
    created: u64,
    buffers: usize,
}

impl Ledger {
    pub(super) fn new(device: &Device) -> Self {
        Self { device: device.clone(), created: 0, buffers: 0 }
    }

    /// Returns the bytes of all buffers created so far.
    pub(super) fn created(&self) -> u64 {
        self.created
    }

    /// Returns the number of buffers created so far.
    pub(super) fn buffers(&self) -> usize {
        self.buffers
    }

    /// Stops counting all buffers except these; the caller has dropped the others.
    pub(super) fn keep<'a>(&mut self, buffers: impl Iterator<Item = &'a Buffer>) {
        (self.created, self.buffers) = (0, 0);
        for buffer in buffers {
            self.created += buffer.size();
            self.buffers += 1;
        }
    }

    /// Creates a buffer of exactly `bytes`; uniform and upload buffers start mapped.
    pub(super) fn create(&mut self, label: &str, bytes: u64, purpose: Purpose) -> Result<Buffer> {
        let mapped = matches!(purpose, Purpose::Uniforms | Purpose::Upload);
        let buffer = self.device.buffer(label, bytes, purpose.usage(), mapped, self.created)?;
        self.created += bytes;
        self.buffers += 1;
        Ok(buffer)
    }
}
