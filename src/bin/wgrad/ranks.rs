//! The ranks of a run: processes that `mpirun` started, or threads of this one.

use std::time::Duration;

#[cfg(feature = "mpi")]
use wgrad::exec::MpiTransport;
use wgrad::exec::{Transport, local, mpi_processes};
use wgrad::{Error, Result};

/// How long a rank waits for another, whose first step compiles pipelines.
const PATIENCE: Duration = Duration::from_secs(300);

/// A rank that runs in this process.
pub struct Rank {
    /// Its connection with the others.
    transport: Box<dyn Transport>,
    /// Its number among those of its machine.
    local: u32,
}

impl Rank {
    /// Calls `open` with the number of this rank among those of its machine, and its connection; an error ends all ranks. Returns
    /// the connection as well, for what was opened.
    pub fn open<T>(
        mut self,
        open: impl FnOnce(u32, &mut dyn Transport) -> Result<T>,
    ) -> Result<(T, Box<dyn Transport>)> {
        let number = self.transport.rank();
        let opened = open(self.local, &mut *self.transport);
        Ok((opened.map_err(|error| self.transport.fail(number, &error.to_string()))?, self.transport))
    }
}

/// Calls `run` for each rank of this process, in a thread each if there are several; without other ranks for `None`. Returns
/// what it returns for the first of them, or an error.
pub fn on_each<T: Send>(ranks: u32, run: impl Fn(Option<Rank>) -> Result<T> + Sync) -> Result<T> {
    let mut ranks = connect(ranks)?;
    if ranks.len() <= 1 {
        return run(ranks.pop());
    }
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || run(Some(rank)))).collect();
        let ended = |panic| std::panic::resume_unwind(panic);
        let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended));
        let mut results = results.collect::<Result<Vec<_>>>()?;
        Ok(results.swap_remove(0))
    })
}

/// Connects the ranks of this process: all, or with MPI one; none if there is one rank.
fn connect(ranks: u32) -> Result<Vec<Rank>> {
    match mpi_processes() {
        None if ranks <= 1 => Ok(Vec::new()),
        None => {
            let ranks = (0..).zip(local(ranks, PATIENCE));
            Ok(ranks.map(|(local, transport)| Rank { transport: Box::new(transport), local }).collect())
        }
        Some(started) if started != ranks => {
            let message =
                format!("--ranks {ranks}: mpirun started {started} processes; leave the option out");
            Err(Error::setting("command line", message))
        }
        Some(_) => join_world(),
    }
}

#[cfg(feature = "mpi")]
fn join_world() -> Result<Vec<Rank>> {
    let transport = MpiTransport::world(PATIENCE)?;
    let local = transport.local_rank();
    Ok(vec![Rank { transport: Box::new(transport), local }])
}

#[cfg(not(feature = "mpi"))]
fn join_world() -> Result<Vec<Rank>> {
    let message = "mpirun started this program, which was built without MPI: build it with `--features cli,mpi`, after \
                   `scripts/setup.sh --mpi`";
    Err(Error::setting("command line", message))
}
