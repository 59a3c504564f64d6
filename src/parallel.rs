//! Runs independent tasks on all cores. Which core runs a task does not affect any result.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

thread_local! {
    /// Cores that this thread leaves to other tasks of [`both`].
    static BUSY: Cell<usize> = const { Cell::new(0) };
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
    map_on(spare_cores(), tasks, run, tell)
}

/// Cores that this thread may use.
fn spare_cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    cores.saturating_sub(BUSY.get()).max(1)
}

fn map_on<T: Send>(
    threads: usize,
    tasks: usize,
    run: impl Fn(usize) -> T + Sync,
    tell: impl Fn(usize),
) -> Vec<T> {
    let results = Mutex::new((0..tasks).map(|_| None).collect::<Vec<Option<T>>>());
    let one = |task: usize| {
        let result = run(task);
        results.lock().unwrap_or_else(PoisonError::into_inner)[task] = Some(result);
    };
    run_on(threads, tasks, &one, &tell);
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// Calls `run` for each index. It is not generic, so that a program has it once.
fn run_on(threads: usize, tasks: usize, run: &(dyn Fn(usize) + Sync), tell: &dyn Fn(usize)) {
    let [next, done] = [0, 0].map(AtomicUsize::new);
    let work = |tell: &dyn Fn(usize)| {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            run(task);
            tell(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(tasks) {
            if std::thread::Builder::new().spawn_scoped(scope, || work(&|_| ())).is_err() {
                break;
            }
        }
        work(tell);
    });
}

/// Calls `here` on the calling thread while another thread calls `there`, and leaves each a core. Where no core is spare or no
/// thread can be started, the calling thread calls both.
pub(crate) fn both<A, B: Send>(here: impl FnOnce() -> A, there: impl FnOnce() -> B + Send) -> (A, B) {
    both_on(spare_cores(), here, there)
}

fn both_on<A, B: Send>(threads: usize, here: impl FnOnce() -> A, there: impl FnOnce() -> B + Send) -> (A, B) {
    if threads < 2 {
        return (here(), there());
    }
    let busy = BUSY.get() + 1;
    let there = Mutex::new(Some(there));
    let run = || there.lock().unwrap_or_else(PoisonError::into_inner).take().expect("called once")();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || leaving(busy, run));
        match thread {
            Ok(thread) => {
                let here = leaving(busy, here);
                (here, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            }
            Err(_) => (here(), run()),
        }
    })
}

/// Calls `run`, which leaves this many cores to others.
fn leaving<R>(busy: usize, run: impl FnOnce() -> R) -> R {
    /// Restores the number, even after a panic.
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            BUSY.set(self.0);
        }
    }
    let _before = Before(BUSY.replace(busy));
    run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_results_are_returned_and_a_panic_is_passed_on() {
        assert_eq!(both(|| 1, || "two"), (1, "two"));
        let busy = || BUSY.get();
        assert_eq!(both_on(3, busy, || both_on(2, busy, busy)), (1, (2, 2)));
        assert_eq!(both_on(1, busy, busy), (0, 0));
        assert_eq!(BUSY.get(), 0);
        for threads in [1, 2] {
            let caught = std::panic::catch_unwind(|| both_on(threads, || 1, || panic!("there")));
            assert_eq!(*caught.expect_err("it panics").downcast::<&str>().expect("a text"), "there");
            let caught = std::panic::catch_unwind(|| both_on(threads, || panic!("here"), || 2));
            assert_eq!(*caught.expect_err("it panics").downcast::<&str>().expect("a text"), "here");
            assert_eq!(BUSY.get(), 0);
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_tasks_for_any_number_of_threads() {
        let squares: Vec<usize> = (0..100).map(|i| i * i).collect();
        for threads in [1, 2, 7, 200] {
            let most = std::cell::Cell::new(0);
            assert_eq!(map_on(threads, 100, |i| i * i, |so_far| most.set(so_far.max(most.get()))), squares);
            assert!(most.get() <= 100 && (threads > 1 || most.get() == 100));
        }
        assert_eq!(map_on(3, 0, |i| i, |_| ()), [0usize; 0]);
    }
}
