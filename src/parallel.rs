//! Runs independent tasks on all cores. Which core runs a task does not affect any result.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, Scope};

/// Cores that no thread of [`map`] and [`both`] uses. Tasks may start tasks themselves: who finds a core starts a thread on it.
#[derive(Debug)]
struct Cores {
    /// Less than none for a while if another thread uses the core of one that waited for it.
    spare: Mutex<isize>,
    /// Notified when a core becomes spare, and when nobody has work for one any more.
    changed: Condvar,
}

/// A core that a thread uses, until this is dropped.
struct Core<'a>(&'a Cores);

/// The core of a thread that waits for others, which may use it until this is dropped.
struct Lent<'a>(&'a Cores);

impl Cores {
    /// With `spare` cores besides that of the calling thread.
    fn new(spare: usize) -> Self {
        Self { spare: Mutex::new(spare as isize), changed: Condvar::new() }
    }

    fn of_machine() -> &'static Self {
        static ALL: OnceLock<Cores> = OnceLock::new();
        ALL.get_or_init(|| Self::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get) - 1))
    }

    fn spare(&self) -> MutexGuard<'_, isize> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn take(&self) -> Option<Core<'_>> {
        // Pages have no threads, and their package is smaller without the code for them.
        if cfg!(target_family = "wasm") {
            return None;
        }
        self.take_of(&mut self.spare())
    }

    fn take_of(&self, spare: &mut isize) -> Option<Core<'_>> {
        if *spare <= 0 {
            return None;
        }
        *spare -= 1;
        Some(Core(self))
    }

    /// Waits for a core while there is work for it. Who takes the work away calls [`Cores::wake`].
    fn take_when_spare(&self, has_work: impl Fn() -> bool) -> Option<Core<'_>> {
        let mut spare = self.spare();
        while has_work() {
            if let Some(core) = self.take_of(&mut spare) {
                return Some(core);
            }
            spare = self.changed.wait(spare).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn give(&self) {
        *self.spare() += 1;
        self.changed.notify_all();
    }

    fn wake(&self) {
        // A thread that waits looks for work with the lock held.
        let _spare = self.spare();
        self.changed.notify_all();
    }

    fn lend(&self) -> Lent<'_> {
        self.give();
        Lent(self)
    }
}

impl Drop for Core<'_> {
    fn drop(&mut self) {
        self.0.give();
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.0.spare() -= 1;
    }
}

/// Calls `run` for each index below `tasks` on up to one thread per core, and returns the results by index.
/// Where no thread can be started, the calling thread runs all of them.
pub(crate) fn map<T: Send>(tasks: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    map_and_tell(tasks, run, |_| ())
}

/// [`map`], which calls `tell` on the calling thread with the number of results so far.
pub(crate) fn map_and_tell<T: Send>(
    tasks: usize,
    run: impl Fn(usize) -> T + Sync,
    tell: impl Fn(usize),
) -> Vec<T> {
    map_on(Cores::of_machine(), tasks, run, tell)
}

fn map_on<T: Send>(
    cores: &Cores,
    tasks: usize,
    run: impl Fn(usize) -> T + Sync,
    tell: impl Fn(usize),
) -> Vec<T> {
    let results = Mutex::new((0..tasks).map(|_| None).collect::<Vec<Option<T>>>());
    let one = |task: usize| {
        let result = run(task);
        results.lock().unwrap_or_else(PoisonError::into_inner)[task] = Some(result);
    };
    let [next, done] = [0, 0].map(AtomicUsize::new);
    Queue { cores, tasks, next, done, run: &one }.run(&tell);
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// Tasks for all threads that find a core. It is not generic, so that a program has its code once.
struct Queue<'a> {
    cores: &'a Cores,
    tasks: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    run: &'a (dyn Fn(usize) + Sync),
}

impl Queue<'_> {
    fn run(&self, tell: &dyn Fn(usize)) {
        let _lent = std::thread::scope(|scope| {
            self.work(scope, tell);
            self.cores.lend()
        });
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, tell: &dyn Fn(usize)) {
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= self.tasks {
                return;
            }
            // Before each task: another thread may have left its core since the last one.
            if task + 1 < self.tasks
                && let Some(core) = self.cores.take()
            {
                let help = move || {
                    let _core = core;
                    self.work(scope, &|_| ());
                };
                // Where no thread can be started, this one runs the tasks.
                let _ = Builder::new().spawn_scoped(scope, help);
            }
            (self.run)(task);
            tell(self.done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    }
}

/// Calls `here` on the calling thread, and `there` on another one as soon as a core is spare. If none is by the end of `here`, or no
/// thread can be started, the calling thread calls both.
pub(crate) fn both<A, B: Send>(here: impl FnOnce() -> A, there: impl FnOnce() -> B + Send) -> (A, B) {
    // See `Cores::take`.
    if cfg!(target_family = "wasm") {
        return (here(), there());
    }
    both_on(Cores::of_machine(), here, there)
}

fn both_on<A, B: Send>(cores: &Cores, here: impl FnOnce() -> A, there: impl FnOnce() -> B + Send) -> (A, B) {
    let there = Mutex::new(Some(there));
    let left = || there.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let core = cores.take();
        let on_core = || {
            let _core = core.or_else(|| cores.take_when_spare(|| left().is_some()))?;
            let there = left().take()?;
            Some(there())
        };
        let thread = Builder::new().spawn_scoped(scope, on_core).ok();
        let here = catch_unwind(AssertUnwindSafe(here));
        let there = left().take();
        cores.wake();
        let here = here.unwrap_or_else(|panic| resume_unwind(panic));
        if let Some(there) = there {
            return (here, there());
        }
        let _lent = cores.lend();
        let there = thread.and_then(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        (here, there.expect("the other thread calls what is not left"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(cores: &Cores) -> isize {
        *cores.spare()
    }

    #[test]
    fn both_results_are_returned_and_a_panic_is_passed_on() {
        assert_eq!(both(|| 1, || "two"), (1, "two"));
        for n in [0, 1, 2] {
            let cores = Cores::new(n);
            assert_eq!(both_on(&cores, || 1, || both_on(&cores, || 2, || 3)), (1, (2, 3)));
            let caught = std::panic::catch_unwind(|| both_on(&cores, || 1, || panic!("there")));
            assert_eq!(*caught.expect_err("it panics").downcast::<&str>().expect("a text"), "there");
            let caught = std::panic::catch_unwind(|| both_on(&cores, || panic!("here"), || 2));
            assert_eq!(*caught.expect_err("it panics").downcast::<&str>().expect("a text"), "here");
            assert_eq!(spare(&cores), n as isize);
        }
    }

    fn wait_until(reached: &dyn Fn() -> bool) -> bool {
        let start = std::time::Instant::now();
        while !reached() && start.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        reached()
    }

    #[test]
    fn what_waits_for_a_core_begins_when_one_becomes_spare() {
        let cores = Cores::new(1);
        let [begun, arrived] = [0, 0].map(AtomicUsize::new);
        let is_set = |flag: &AtomicUsize| wait_until(&|| flag.load(Ordering::Relaxed) == 1);
        // There is no core for `there` before the outer one leaves its core.
        let here = || {
            begun.store(1, Ordering::Relaxed);
            is_set(&arrived)
        };
        let there = || arrived.store(1, Ordering::Relaxed);
        let ((arrived_meanwhile, ()), begun) =
            both_on(&cores, || both_on(&cores, here, there), || is_set(&begun));
        assert!(arrived_meanwhile && begun);
        assert_eq!(spare(&cores), 1);
    }

    #[test]
    fn results_are_in_the_order_of_the_tasks_for_any_number_of_threads() {
        let squares: Vec<usize> = (0..100).map(|i| i * i).collect();
        for threads in [1, 2, 7, 200] {
            let cores = Cores::new(threads - 1);
            let most = std::cell::Cell::new(0);
            let note = |results: usize| most.set(results.max(most.get()));
            assert_eq!(map_on(&cores, 100, |i| i * i, note), squares);
            assert!(most.get() <= 100 && (threads > 1 || most.get() == 100));
            assert_eq!(spare(&cores), threads as isize - 1);
        }
        assert_eq!(map_on(&Cores::new(2), 0, |i| i, |_| ()), [0usize; 0]);
    }

    #[test]
    fn a_core_that_becomes_spare_helps_with_the_rest() {
        let cores = Cores::new(1);
        let [begun, arrived] = [0, 0].map(AtomicUsize::new);
        let task = |i: usize| match i {
            // It ends when the other thread has left its core.
            0 => {
                begun.store(1, Ordering::Relaxed);
                wait_until(&|| spare(&cores) == 1)
            }
            // These run at the same time.
            _ => {
                arrived.fetch_add(1, Ordering::Relaxed);
                wait_until(&|| arrived.load(Ordering::Relaxed) == 2)
            }
        };
        let there = || wait_until(&|| begun.load(Ordering::Relaxed) == 1);
        assert_eq!(both_on(&cores, || map_on(&cores, 3, task, |_| ()), there), (vec![true; 3], true));
        assert_eq!(spare(&cores), 1);
    }
}
