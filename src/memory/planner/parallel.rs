//! Runs independent tasks on all cores. Which core runs a task does not affect any result.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `run` for each index below `tasks` on up to one thread per core, and returns the results by index.
/// Where no thread can be started, the calling thread runs all of them.
pub(super) fn map<T: Send>(tasks: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    map_on(cores, tasks, run)
}

fn map_on<T: Send>(threads: usize, tasks: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(tasks));
    let work = || {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            let result = run(task);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((task, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(tasks) {
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_unstable_by_key(|(task, _)| *task);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_tasks_for_any_number_of_threads() {
        let squares: Vec<usize> = (0..100).map(|i| i * i).collect();
        for threads in [1, 2, 7, 200] {
            assert_eq!(map_on(threads, 100, |i| i * i), squares);
        }
        assert_eq!(map_on(3, 0, |i| i), [0usize; 0]);
    }
}
