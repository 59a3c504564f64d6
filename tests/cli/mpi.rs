//! Ranks in processes that `mpirun` starts, on the software adapters.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::json;
use super::support::devices;
use super::support::skip::skip;

const BENCH: [&str; 8] = of("mlp", "24");

const fn of<'a>(network: &'a str, batch: &'a str) -> [&'a str; 8] {
    ["--quiet", "bench", network, "--batch", batch, "--steps", "2", "--json"]
}

/// `mpirun`, more ranks than cores, by root too: what containers and two cores need. `None` where there is no MPI.
pub fn mpirun() -> Option<Command> {
    if !cfg!(feature = "mpi") {
        assert!(std::env::var_os("WGRAD_REQUIRE_MPI").is_none(), "built without the feature mpi");
        skip("runs of several processes: built without the feature mpi (scripts/setup.sh --mpi)");
        return None;
    }
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]);
    command.args(["--mca", "btl_vader_single_copy_mechanism", "none"]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// Returns the command that runs `wgrad bench` on groups of ranks: the size and the options of each group.
fn bench(base: [&str; 8], groups: &[(u32, &[&str])], adapter: &str) -> Option<Command> {
    let mut command = mpirun()?;
    for (i, (ranks, more)) in groups.iter().enumerate() {
        command.args((i > 0).then_some(":")).args(["-n", &ranks.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_wgrad")).args(base).args(["--adapter", adapter]).args(*more);
    }
    Some(command)
}

fn printed(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object, of rank 0")
}

#[test]
fn processes_have_the_bits_of_one_device() {
    let cases: [&[&str]; 4] = [
        &[],
        &["--clip-norm", "0.5", "--loss-scale", "--precision", "f16"],
        &["--shard", "optimizer", "--optimizer", "adamw"],
        &["--shard", "parameters", "--bucket", "64kB"],
    ];
    let cases = cases.map(|more| (BENCH, more));
    // They take long: on one adapter.
    let large: [([&str; 8], &[&str]); 2] = [
        (of("cnn", "4"), &["--shard", "optimizer"]),
        (of("gpt-nano", "4"), &["--shard", "parameters", "--clip-norm", "0.5"]),
    ];
    for (i, device) in devices().iter().enumerate() {
        let adapter = &device.adapter().name[..];
        for (base, more) in cases.into_iter().chain(large.into_iter().filter(|_| i == 0)) {
            let parts = [more, &["--parts", "4"]].concat();
            let one = json(&[&base[..], &parts, &["--adapter", adapter]].concat());
            for ranks in [2, 4] {
                let Some(mut command) = bench(base, &[(ranks, &parts)], adapter) else { return };
                let found = printed(&command.output().expect("mpirun starts"));
                assert_eq!(
                    found["parameters_hash"], one["parameters_hash"],
                    "{ranks} ranks, {base:?} {more:?}"
                );
                assert_eq!(found["loss_last"], one["loss_last"]);
                assert_eq!(found["ranks"], ranks);
                assert_eq!(found["device_bytes"], found["planned_bytes"]);
            }
        }
    }
}

/// Processes with different budgets share out the parts by them; a plan of the same says what each creates and sends.
#[test]
fn processes_share_out_parts_by_their_budgets() {
    let adapter = &devices()[0].adapter().name[..];
    let parts = ["--parts", "4", "--shares", "auto"];
    let [large, small] = ["48MB", "16MB"].map(|budget| [&parts[..], &["--budget", budget]].concat());
    let one = json(&[&BENCH[..], &["--parts", "4", "--adapter", adapter]].concat());
    for groups in [[(1, &large[..]), (1, &small[..])], [(1, &small[..]), (1, &large[..])]] {
        let Some(mut command) = bench(BENCH, &groups, adapter) else { return };
        let found = printed(&command.output().expect("mpirun starts"));
        assert_eq!(found["parameters_hash"], one["parameters_hash"]);
        assert_eq!(found["shares"], if groups[0].1 == large { "3,1" } else { "1,3" });
        assert_eq!(found["device_bytes"], found["planned_bytes"]);
    }
}

/// Four processes that compute layers together have the parameters of four threads.
#[test]
fn processes_compute_layers_together() {
    let adapter = &devices()[0].adapter().name[..];
    let together = ["--tensor", "4"];
    let threads = json(&[&BENCH[..], &together, &["--ranks", "4", "--adapter", adapter]].concat());
    let Some(mut command) = bench(BENCH, &[(4, &together)], adapter) else { return };
    let processes = printed(&command.output().expect("mpirun starts"));
    for found in [&threads, &processes] {
        assert_eq!(found["parameters_hash"], threads["parameters_hash"]);
        assert_eq!([&found["ranks"], &found["tensor"], &found["accumulate"]], [4, 4, 1]);
        assert_eq!(found["device_bytes"], found["planned_bytes"]);
    }
    let one = json(&[&BENCH[..], &["--adapter", adapter]].concat());
    let loss = |found: &Value| found["loss_last"].as_f64().expect("a number");
    assert!((loss(&threads) - loss(&one)).abs() < 1e-4 * loss(&one), "{} and {}", loss(&threads), loss(&one));
    assert!(threads["device_bytes"].as_u64() < one["device_bytes"].as_u64());
}

/// Runs processes that fail; returns what they say, and checks that they end soon.
fn failure(command: &mut Command) -> String {
    let start = Instant::now();
    let output = command.output().expect("mpirun starts");
    assert!(!output.status.success());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn ranks_that_differ_or_fail_end_all_with_one_error() {
    let adapter = devices()[0].adapter().name.clone();
    let parts = &["--parts", "3"][..];
    let cases: [(&[&str], &str); 3] = [
        (&["--parts", "3", "--optimizer", "sgd"], "rank 2: has plan "),
        (&["--parts", "3", "--device-budget", "1MB"], "rank 2: out of device memory"),
        (&["--parts", "6"], "rank 2: has plan "),
    ];
    for (other, error) in cases {
        let Some(mut command) = bench(BENCH, &[(2, parts), (1, other)], &adapter) else { return };
        let text = failure(&mut command);
        // mpirun ends the others with the first that has said it.
        // What mpirun prints itself may begin on the same line.
        let all: Vec<&str> = text.lines().filter(|line| line.starts_with("error: rank ")).collect();
        assert!(!all.is_empty() && all.iter().all(|line| line.contains(error)), "{error}: {text}");
    }
}

/// Returns the numbers of a process's children, in ascending order.
fn children(parent: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("Linux").flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // `number (name) state parent ..`
        let above = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if above == Some(&parent.to_string()) {
            found.push(number);
        }
    }
    found.sort_unstable();
    found.iter().map(u32::to_string).collect()
}

/// Starts a long run on three ranks and returns it with the process number of a rank, once it trains.
fn long_run(adapter: &str) -> Option<(Child, String)> {
    let mut command = mpirun()?;
    command.args(["-n", "3", env!("CARGO_BIN_EXE_wgrad"), "--quiet", "bench", "mlp", "--batch", "48"]);
    let mut child =
        command.args(["--steps", "1000000", "--adapter", adapter]).spawn().expect("mpirun starts");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        let all = children(child.id());
        if let [_, second, _] = &all[..] {
            // Until the first steps.
            std::thread::sleep(Duration::from_secs(6));
            return Some((child, second.clone()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let output = child.wait_with_output().expect("it ends");
    panic!("no three ranks start: {}", String::from_utf8_lossy(&output.stderr));
}

/// A rank that is killed or stopped ends all others in ten seconds, with an error that names it.
#[test]
fn a_dead_or_stopped_process_ends_all() {
    let adapter = devices()[0].adapter().name.clone();
    for (signal, errors) in
        [("-KILL", ["process rank ", "signal 9"]), ("-STOP", ["its process was silent", "rank "])]
    {
        let Some((mut child, process)) = long_run(&adapter) else { return };
        // The shell's own: there may be no program of this name.
        let sent = Command::new("sh").args(["-c", &format!("kill {signal} {process}")]).status().expect("sh");
        assert!(sent.success());
        let start = Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                break Some(status);
            }
            if start.elapsed() > Duration::from_secs(20) {
                break None;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        if ended.is_none() {
            let _ = child.kill();
        }
        let mut text = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut text).expect("UTF-8");
        assert!(ended.is_some_and(|status| !status.success()), "{signal}: {text}");
        assert!(errors.iter().all(|error| text.contains(error)), "{signal}: {text}");
    }
}
