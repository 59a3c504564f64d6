//! Runs on several devices: one session a rank, and a [`Transport`] between them.

mod agree;
mod exchanges;
mod local;
#[cfg(feature = "mpi")]
mod mpi;

use std::fmt;

use crate::error::{Error, Result};

pub(super) use exchanges::Exchanges;
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
pub fn mpi_processes() -> Option<u32> {
    let names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).filter(|count| *count > 1)
}

/// Returns what each rank has of a tensor: its first element and the elements from there on.
pub(super) fn gather(transport: &mut dyn Transport, start: u64, own: &[f32]) -> Result<Vec<(u64, Vec<f32>)>> {
    let (rank, ranks) = (transport.rank(), transport.ranks());
    for to in (0..ranks).filter(|to| *to != rank) {
        transport.send(to, bytemuck::bytes_of(&[start, own.len() as u64]))?;
        transport.send(to, bytemuck::cast_slice(own))?;
    }
    let mut all = Vec::with_capacity(ranks as usize);
    for from in 0..ranks {
        if from == rank {
            all.push((start, own.to_vec()));
            continue;
        }
        let mut place = [0u64; 2];
        transport.receive(from, bytemuck::bytes_of_mut(&mut place))?;
        let mut part = vec![0.0; place[1] as usize];
        transport.receive(from, bytemuck::cast_slice_mut(&mut part))?;
        all.push((place[0], part));
    }
    Ok(all)
}

impl fmt::Debug for dyn Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.ranks())
    }
}
