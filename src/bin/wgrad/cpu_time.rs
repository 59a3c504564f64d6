//! CPU time of this process.

/// User and system time of all threads; `None` where the system does not tell. Threads that have ended do not count.
pub fn cpu_seconds() -> Option<f64> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let mut sum = 0.0;
    for thread in threads.flatten() {
        // The first of three numbers: nanoseconds on a CPU (Documentation/scheduler/sched-stats).
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        sum += text.split_whitespace().next()?.parse::<f64>().ok()?;
    }
    Some(sum / 1e9)
}
