//! Ranks in processes that `mpirun` or a cluster's scheduler started.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::mpi::Threading;
use ::mpi::point_to_point::{Message, Status};
use ::mpi::request::{Request, scope};
use ::mpi::topology::SimpleCommunicator;
use ::mpi::traits::{Communicator, Destination, Equivalence, Source};

use super::local::{Hub, LocalTransport, Lost};
use super::{Transport, mpi_processes};
use crate::error::{Error, Result};

/// Messages are sent in pieces of at most this many bytes: MPI counts them in 32 bits, and each piece is a sign of life on
/// a slow network.
const PIECE: usize = 1 << 20;

/// What a message of MPI is, as its tag. Messages between two ranks arrive in order whatever their tags.
const WHOLE: i32 = 0;
const BEGINNING: i32 = 1;
const FAILURE: i32 = 2;
const END: i32 = 3;
const HEARTBEAT: i32 = 4;

/// Longest pause of the thread that talks to MPI while nothing arrives. MPI has no way to wait without a busy loop, which
/// would take a core from a software adapter.
const PAUSE: Duration = Duration::from_micros(200);

/// Time between two signs of life to every other rank, and the silence after which a process counts as stopped.
const BEAT: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(6);

/// How long a rank that ends waits for the others to end, before it aborts them; less if one of them is silent.
const FAREWELL: Duration = Duration::from_secs(8);
const SHORT_FAREWELL: Duration = Duration::from_secs(1);

/// One rank of `MPI_COMM_WORLD`.
///
/// A thread of its own makes all calls of MPI, so that messages move while the rank's thread records commands or waits for
/// its device.
pub struct MpiTransport {
    inbox: LocalTransport,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    local_rank: u32,
}

/// What the thread shall do.
enum Order {
    Send { to: u32, tag: i32, bytes: Vec<u8> },
    End,
}

impl MpiTransport {
    /// Joins the world. A rank from which an expected message does not come for `patience` ends the run, and so does a
    /// process that is stopped for some seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] if this process has called MPI before.
    pub fn world(patience: Duration) -> Result<Self> {
        let (orders, received) = channel();
        let (ready, started) = channel();
        let thread = std::thread::spawn(move || {
            // Only this thread calls MPI.
            let Some((universe, _)) = ::mpi::initialize_with_threading(Threading::Funneled) else { return };
            let world = universe.world();
            let (rank, ranks) = (world.rank() as u32, world.size() as u32);
            let local_rank = world.split_shared(world.rank()).rank() as u32;
            let inbox = LocalTransport::alone(rank, ranks, patience);
            let (hub, beginnings) = (Arc::clone(&inbox.hub), vec![Vec::new(); ranks as usize]);
            if ready.send((inbox, local_rank)).is_ok() {
                let now = Instant::now();
                let heard = vec![Some(now); ranks as usize];
                let thread =
                    MpiThread { world: &world, hub, rank, beginnings, heard, beat: now, silent: None };
                thread.run(&received);
            }
            // Dropping the universe finalizes MPI.
        });
        match started.recv() {
            Ok((inbox, local_rank)) => Ok(Self { inbox, orders, thread: Some(thread), local_rank }),
            Err(_) => Err(Error::NotReady("MPI was initialized in this process before".to_owned())),
        }
    }

    /// Joins the world if `mpirun` started more than one process, [`MpiTransport::world`].
    ///
    /// # Errors
    /// As [`MpiTransport::world`].
    pub fn launched(patience: Duration) -> Result<Option<Self>> {
        mpi_processes().map(|_| Self::world(patience)).transpose()
    }

    /// Returns the number of this rank among those of its machine, for
    /// [`DeviceOptions::number`](crate::device::DeviceOptions).
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    fn order(&mut self, to: u32, tag: i32, bytes: Vec<u8>) {
        // The thread ends only after this transport.
        let _ = self.orders.send(Order::Send { to, tag, bytes });
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> u32 {
        self.inbox.rank()
    }

    fn ranks(&self) -> u32 {
        self.inbox.ranks()
    }

    fn send(&mut self, to: u32, message: &[u8]) -> Result<()> {
        self.inbox.hub.running()?;
        let mut pieces = message.chunks(PIECE).peekable();
        if pieces.peek().is_none() {
            self.order(to, WHOLE, Vec::new());
        }
        while let Some(piece) = pieces.next() {
            let tag = if pieces.peek().is_some() { BEGINNING } else { WHOLE };
            self.order(to, tag, piece.to_vec());
        }
        Ok(())
    }

    fn receive(&mut self, from: u32, message: &mut [u8]) -> Result<()> {
        self.inbox.wait(from, message).map_err(|lost| match lost {
            Lost::Run(error) => error,
            Lost::Rank(why) => self.fail(from, &why),
        })
    }

    fn fail(&mut self, rank: u32, message: &str) -> Error {
        let (error, first) = self.inbox.hub.fail(rank, message);
        if first {
            let bytes = [&rank.to_le_bytes()[..], message.as_bytes()].concat();
            let own = self.rank();
            for to in (0..self.ranks()).filter(|to| *to != own) {
                self.order(to, FAILURE, bytes.clone());
            }
        }
        error
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread that talks to MPI.
struct MpiThread<'a> {
    world: &'a SimpleCommunicator,
    hub: Arc<Hub>,
    rank: u32,
    /// The pieces of messages that have not arrived whole, by sender.
    beginnings: Vec<Vec<u8>>,
    /// When each rank was heard of last; `None` after its last message.
    heard: Vec<Option<Instant>>,
    /// When signs of life were sent last.
    beat: Instant,
    /// When a rank had been silent for too long.
    silent: Option<Instant>,
}

impl MpiThread<'_> {
    fn run(mut self, orders: &Receiver<Order>) {
        self.heard[self.rank as usize] = None;
        let others: Vec<u32> = (0..self.world.size() as u32).filter(|to| *to != self.rank).collect();
        let mut outgoing: Vec<(u32, i32, Vec<u8>)> = Vec::new();
        let mut end = false;
        while !end {
            self.watch();
            outgoing.extend(self.beats().into_iter().map(|to| (to, HEARTBEAT, Vec::new())));
            match orders.recv_timeout(if self.collect() { Duration::ZERO } else { PAUSE }) {
                Ok(Order::Send { to, tag, bytes }) => outgoing.push((to, tag, bytes)),
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => end = true,
                Err(RecvTimeoutError::Timeout) => {}
            }
            while let Ok(order) = orders.try_recv() {
                match order {
                    Order::Send { to, tag, bytes } => outgoing.push((to, tag, bytes)),
                    Order::End => end = true,
                }
            }
            if end {
                outgoing.extend(others.iter().map(|to| (*to, END, Vec::new())));
            }
            let sent = std::mem::take(&mut outgoing);
            self.send(&sent, end);
        }
        let start = Instant::now();
        while self.heard.iter().any(Option::is_some) {
            if !self.collect() {
                std::thread::sleep(PAUSE);
            }
            self.watch();
            if start.elapsed() > FAREWELL {
                self.abort();
            }
        }
    }

    /// Returns the ranks that a sign of life is due to.
    fn beats(&mut self) -> Vec<u32> {
        if self.beat.elapsed() < BEAT {
            return Vec::new();
        }
        self.beat = Instant::now();
        (0..).zip(&self.heard).filter(|(_, heard)| heard.is_some()).map(|(rank, _)| rank).collect()
    }

    /// Ends the run if a process has sent no sign of life, and after a while aborts it, since a process that is stopped
    /// cannot end.
    fn watch(&mut self) {
        // The rank that has been silent for longest: others may be silent because they wait for it.
        let heard = (0..).zip(&self.heard).filter_map(|(rank, heard)| Some(((*heard)?, rank)));
        let silent = heard.min().filter(|(heard, _)| heard.elapsed() > SILENCE);
        match (self.silent, silent) {
            (Some(since), _) if since.elapsed() > SHORT_FAREWELL => self.abort(),
            (None, Some((_, rank))) => {
                self.silent = Some(Instant::now());
                self.hub.fail(rank, &format!("its process was silent for {} s", SILENCE.as_secs()));
            }
            _ => {}
        }
    }

    /// Ends all processes.
    fn abort(&self) -> ! {
        match self.hub.running() {
            Err(error) => log::error!("{error}"),
            Ok(()) => log::error!("rank {}: other ranks do not end", self.rank),
        }
        self.world.abort(1)
    }

    /// Sends messages, and receives others meanwhile: two ranks that send each other more than MPI buffers would wait for
    /// each other.
    fn send(&mut self, messages: &[(u32, i32, Vec<u8>)], end: bool) {
        let (world, start) = (self.world, Instant::now());
        scope(|scope| {
            let mut requests: Vec<Request<'_, [u8], _>> = Vec::new();
            for (to, tag, bytes) in messages {
                let to = world.process_at_rank(*to as i32);
                requests.push(to.immediate_send_with_tag(scope, &bytes[..], *tag));
            }
            while !requests.is_empty() {
                requests = requests.into_iter().filter_map(|request| request.test().err()).collect();
                if !self.collect() && !requests.is_empty() {
                    std::thread::sleep(PAUSE / 4);
                }
                // A process that is stopped takes nothing any more.
                // Nothing follows the last message.
                for to in if end { Vec::new() } else { self.beats() } {
                    let to = world.process_at_rank(to as i32);
                    requests.push(to.immediate_send_with_tag(scope, &[][..], HEARTBEAT));
                }
                self.watch();
                if end && start.elapsed() > FAREWELL {
                    self.abort();
                }
            }
        });
    }

    /// Receives a message that has begun to arrive, without waiting for a process that was stopped meanwhile.
    fn receive(&mut self, message: Message, status: &Status) -> Vec<u8> {
        let mut bytes = vec![0; status.count(u8::equivalent_datatype()) as usize];
        scope(|scope| {
            let mut request = message.immediate_matched_receive_into(scope, &mut bytes[..]);
            while let Err(pending) = request.test() {
                request = pending;
                std::thread::sleep(PAUSE / 10);
                self.watch();
            }
        });
        bytes
    }

    /// Receives what has arrived. Returns whether there was anything.
    fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some((message, status)) = self.world.any_process().immediate_matched_probe() {
            any = true;
            let bytes = self.receive(message, &status);
            let from = status.source_rank() as u32;
            self.heard[from as usize] = Some(Instant::now());
            match status.tag() {
                HEARTBEAT => {}
                BEGINNING => self.beginnings[from as usize].extend(bytes),
                END => {
                    self.heard[from as usize] = None;
                    self.hub.end(from);
                }
                FAILURE if bytes.len() >= 4 => {
                    let (rank, text) = bytes.split_at(4);
                    let rank = rank.try_into().map_or(from, u32::from_le_bytes);
                    self.hub.fail(rank, &String::from_utf8_lossy(text));
                }
                _ => {
                    let beginning = std::mem::take(&mut self.beginnings[from as usize]);
                    let whole = if beginning.is_empty() { bytes } else { [beginning, bytes].concat() };
                    self.hub.deliver(from, self.rank, whole);
                }
            }
        }
        any
    }
}
