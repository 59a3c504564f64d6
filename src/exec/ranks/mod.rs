//! Runs on several devices: one session a rank, and a [`Transport`] between them.

mod agree;
mod exchanges;
#[cfg(not(target_family = "wasm"))]
mod local;
#[cfg(feature = "mpi")]
mod mpi;

use std::fmt;

#[cfg(not(target_family = "wasm"))]
use crate::compile::Shares;
#[cfg(not(target_family = "wasm"))]
use crate::device::Device;
use crate::error::{Error, Result};
#[cfg(not(target_family = "wasm"))]
use crate::units::Bytes;

pub(super) use exchanges::Exchanges;
#[cfg(not(target_family = "wasm"))]
pub use local::{LocalTransport, local};
#[cfg(feature = "mpi")]
pub use mpi::MpiTransport;

/// Moves bytes between the ranks of a run. [`local`] connects threads of one process, `MpiTransport`, with the feature
/// `mpi`, processes.
///
/// Messages from one rank to another arrive in the order in which they were sent.
pub trait Transport: Send {
    /// Returns the number of this rank.
    fn rank(&self) -> u32;

    /// Returns the number of ranks.
    fn ranks(&self) -> u32;

    /// Sends a message to another rank. Does not wait until it is received.
    ///
    /// # Errors
    /// [`Error::Rank`] if a rank has ended.
    fn send(&mut self, to: u32, message: &[u8]) -> Result<()>;

    /// Waits for the next message of another rank, which has the length of `message`.
    ///
    /// # Errors
    /// [`Error::Rank`] if a rank has ended, does not answer, or sends a message of another length.
    fn receive(&mut self, from: u32, message: &mut [u8]) -> Result<()>;

    /// Ends the run: calls of all ranks return an [`Error::Rank`] from now on, the one of the rank that ended first.
    /// Returns that error.
    fn fail(&mut self, rank: u32, message: &str) -> Error;
}

/// Returns the number of processes that `mpirun` started, if this is one of several: Open MPI, MPICH and their descendants
/// set it in the environment.
#[cfg(not(target_family = "wasm"))]
pub fn mpi_processes() -> Option<u32> {
    let names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).filter(|count| *count > 1)
}

/// Shares out the parts of a batch by the memory that each rank may use: its budget, or without one the memory of its
/// device's adapter. All ranks must call it, before they plan: each has the same
/// [`Parallel::shares`](crate::compile::Parallel::shares) then. Equal adapters with equal shares are [`Shares::EVEN`].
///
/// # Errors
/// [`Error::Setting`] on all ranks if an adapter does not tell its memory; [`Error::Rank`]; otherwise as
/// [`Shares::by_memory`].
#[cfg(not(target_family = "wasm"))]
pub fn shares_by_memory(
    transport: &mut dyn Transport,
    (device, budget): (&Device, Option<Bytes>),
    parts: u32,
) -> Result<Shares> {
    let of_adapter = || device.adapter_memory().and_then(|memory| memory.budget.or(memory.total)).map(Bytes);
    let own = budget.or_else(of_adapter).unwrap_or_default();
    let all = all_gather(transport, own.0, device.adapter().name.as_bytes())?;
    if let Some(rank) = all.iter().position(|(bytes, _)| *bytes == 0) {
        let message = format!("the adapter of rank {rank} does not tell its memory: set a budget for it");
        return Err(Error::setting("parallel.shares", message));
    }
    let memory: Vec<Bytes> = all.iter().map(|(bytes, _)| Bytes(*bytes)).collect();
    let shares = Shares::by_memory(&memory, parts)?;
    let counts = shares.counts(memory.len() as u32, parts)?;
    let equal = all.iter().all(|(_, adapter)| *adapter == all[0].1) && counts.iter().all(|n| *n == counts[0]);
    Ok(if equal { Shares::EVEN } else { shares })
}

/// Sends a number and bytes of any length to all ranks; returns those of each rank, this one's included.
pub(super) fn all_gather(
    transport: &mut dyn Transport,
    number: u64,
    bytes: &[u8],
) -> Result<Vec<(u64, Vec<u8>)>> {
    let (rank, ranks) = (transport.rank(), transport.ranks());
    for to in (0..ranks).filter(|to| *to != rank) {
        transport.send(to, bytemuck::bytes_of(&[number, bytes.len() as u64]))?;
        if !bytes.is_empty() {
            transport.send(to, bytes)?;
        }
    }
    let mut all = Vec::with_capacity(ranks as usize);
    for from in 0..ranks {
        if from == rank {
            all.push((number, bytes.to_vec()));
            continue;
        }
        let mut head = [0u64; 2];
        transport.receive(from, bytemuck::bytes_of_mut(&mut head))?;
        let mut other = vec![0; head[1] as usize];
        if !other.is_empty() {
            transport.receive(from, &mut other)?;
        }
        all.push((head[0], other));
    }
    Ok(all)
}

impl fmt::Debug for dyn Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.ranks())
    }
}
