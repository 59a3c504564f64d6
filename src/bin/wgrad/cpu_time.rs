//! CPU time of this process, for `wgrad bench` and the benchmarks.

/// Returns the user and system time of all running threads; `None` if the system does not report it.
pub fn cpu_seconds() -> Option<f64> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    // The first of three numbers: nanoseconds spent on a CPU (Documentation/scheduler/sched-stats).
    let one = |path: std::path::PathBuf| -> Option<f64> {
        std::fs::read_to_string(path.join("schedstat")).ok()?.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some(threads.flatten().filter_map(|thread| one(thread.path())).sum::<f64>() / 1e9)
}
