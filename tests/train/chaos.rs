//! What a crash, a full disk and damaged files cost: runs are killed at random moments, files are cut and changed.
//! `WGRAD_CHAOS_SECONDS` sets how long each part goes on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::folder::{Folder, names};
use wgrad::data::{Loader, Table};
use wgrad::device::Device;
use wgrad::graph::Params;
use wgrad::nn::{Linear, Module};
use wgrad::train::{Checkpoint, Task, TrainOptions, Trainer};
use wgrad::{Error, random};

/// How long a part goes on.
fn seconds() -> Duration {
    let named = std::env::var("WGRAD_CHAOS_SECONDS").ok();
    Duration::from_secs(named.map_or(20, |seconds| seconds.parse().expect("a number")))
}

/// The first adapter: what is tested here is the host's.
fn device() -> Option<&'static Device> {
    support::devices().first()
}

fn trainer(device: &Device) -> Trainer {
    let params = Params::new(1);
    let (one, two) = (Linear::new(&params.scope("fc1"), 8, 64), Linear::new(&params.scope("fc2"), 64, 3));
    let x: Vec<f32> = support::noise(7, 8 * 30, -1.0, 1.0);
    let table = Table::new(8, 3, x, (0..30).map(|i| i % 3).collect()).expect("a table");
    let loader = Loader::new(Arc::new(table), 4).expect("not empty").shuffled(3);
    let task = Task::classifier(&params, 8, 3, |x| two.forward(&one.forward(x).relu()));
    Trainer::new(device, task, loader, &TrainOptions::default()).expect("it opens")
}

fn bits(trainer: &mut Trainer) -> Vec<u32> {
    let names = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"];
    let all = names.map(|name| trainer.session().parameter(name).expect("there"));
    all.concat().into_iter().map(f32::to_bits).collect()
}

const EPOCHS: u64 = 60;
/// The variable that tells a child process what to do, and where.
const ROLE: &str = "WGRAD_CHAOS_ROLE";

/// This program again, with only the test `victim`.
fn child(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    // As this program names it, which may have these tests in a module of its own.
    let (_, module) = module_path!().split_once("::").expect("a module of a program");
    command.args(["--exact", &format!("{module}::victim"), "--ignored", "--nocapture"]);
    command.env(ROLE, role).env("WGRAD_CHAOS_FOLDER", folder).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// What the child processes do; on its own it does nothing.
#[test]
#[ignore = "run by the tests of this file in a process of its own"]
fn victim() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = PathBuf::from(std::env::var_os("WGRAD_CHAOS_FOLDER").expect("a folder"));
    let path = folder.join("m.safetensors");
    let mut trainer = trainer(device().expect("an adapter"));
    if path.exists() {
        trainer.load(&path).expect("a file that a killed process left is whole");
    }
    let mut checkpoint = Checkpoint { path: path.clone(), last: 2, ..Checkpoint::default() };
    match &*role {
        "train" => {
            let done = trainer.session().steps() / 8;
            if done < EPOCHS {
                trainer.fit(EPOCHS - done, None, &mut [&mut checkpoint]).expect("it trains");
            }
        }
        "full disk" => {
            trainer.fit(1, None, &mut [&mut checkpoint]).expect("there is space for the first file");
            let saved = std::fs::read(&path).expect("saved");
            // As other programs would fill the disk.
            let mut size = 1 << 20;
            let mut filler = Vec::new();
            while size > 0 {
                let file = folder.join(format!("filler{}", filler.len()));
                if std::fs::write(&file, vec![1u8; size]).is_err() {
                    size /= 2;
                }
                filler.push(file);
            }
            let error = trainer.fit(1, None, &mut [&mut checkpoint]).expect_err("the disk is full");
            assert!(matches!(&error, Error::Weights { path: at, .. } if *at == path), "{error}");
            assert_eq!(std::fs::read(&path).expect("the old file"), saved);
            filler.iter().for_each(|file| drop(std::fs::remove_file(file)));
            assert_eq!(names(&folder), ["m.safetensors"], "nothing temporary is left");
            trainer.fit(1, None, &mut [&mut checkpoint]).expect("there is space again");
        }
        other => panic!("no role {other}"),
    }
}

/// A run that is killed again and again, each time at a random moment, and started again, ends with the bits of a
/// run that is left alone: a kill costs the steps since the last checkpoint, and nothing else. A run on the same
/// adapter at the same time notices nothing.
#[test]
fn killed_runs_end_with_the_same_bits() {
    let Some(device) = device() else { return };
    let mut through = trainer(device);
    through.fit(EPOCHS, None, &mut []).expect("it trains");
    let folder = Folder::new("chaos-kill");
    let path = folder.join("m.safetensors");
    let (start, mut kills, mut saved) = (Instant::now(), 0u64, 0u64);
    let mut beside = trainer(device);
    loop {
        let mut child = child("train", &folder).spawn().expect("a process");
        if start.elapsed() > seconds() {
            // The last one is left alone.
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            break;
        }
        let alive = Instant::now();
        while alive.elapsed() < Duration::from_millis(150 + random::mix(kills) % 700) {
            if beside.session().steps() < EPOCHS * 8 {
                beside.fit(1, None, &mut []).expect("it trains while others are killed");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().expect("killed, or ended before");
        child.wait().expect("it ended");
        kills += 1;
        if path.exists() {
            let mut after = trainer(device);
            after.load(&path).expect("the file is whole at any moment");
            assert!(after.session().steps() >= saved && after.session().steps().is_multiple_of(8));
            saved = after.session().steps();
        }
    }
    let mut end = trainer(device);
    end.load(&path).expect("the last file");
    assert_eq!(end.session().steps(), EPOCHS * 8);
    assert!(bits(&mut end) == bits(&mut through), "other bits after {kills} kills");
    assert_eq!(beside.session().steps(), EPOCHS * 8);
    assert!(bits(&mut beside) == bits(&mut through), "other bits beside {kills} killed runs");
    eprintln!("{kills} kills");
    let names = names(&folder);
    // A kill within a save leaves one temporary file, which the next save removes.
    assert_eq!(names, ["m.1.safetensors", "m.safetensors"]);
}

/// Files cut short, made longer, with bytes changed, in the header more often: they load or are refused with an
/// error; nothing panics, nothing is allocated for sizes that the file only claims, and a refused file changes nothing.
#[test]
fn damaged_files_are_refused_and_change_nothing() {
    let Some(device) = device() else { return };
    let folder = Folder::new("chaos-mutate");
    let path = folder.join("m.safetensors");
    let mut trainer = trainer(device);
    trainer.fit(1, None, &mut []).expect("it trains");
    trainer.save(&path).expect("saved");
    let (good, before, steps) =
        (std::fs::read(&path).expect("a file"), bits(&mut trainer), trainer.session().steps());
    let header = 8 + u64::from_le_bytes(good[..8].try_into().expect("eight bytes")) as usize;
    let (start, mut refused, mut files) = (Instant::now(), 0, 0u64);
    while start.elapsed() < seconds() / 2 {
        files += 1;
        let mut draws = (0..).map(|i| random::mix(files << 8 | i) as usize);
        let mut draw = |below: usize| draws.next().expect("endless") % below.max(1);
        let mut bytes = good.clone();
        for _ in 0..1 + draw(4) {
            match draw(5) {
                0 => bytes.truncate(draw(good.len())),
                1 => bytes.extend(vec![0x41; draw(100)]),
                2 if !bytes.is_empty() => {
                    let at = draw(bytes.len());
                    bytes[at] = draw(256) as u8;
                }
                _ if bytes.len() > header => {
                    let at = draw(header);
                    bytes[at] = match draw(3) {
                        0 => draw(256) as u8,
                        1 => b'0' + draw(10) as u8,
                        _ => bytes[at] ^ (1 << draw(8)),
                    };
                }
                _ => {}
            }
        }
        std::fs::write(&path, &bytes).expect("written");
        match trainer.load(&path) {
            Ok(()) => {
                std::fs::write(&path, &good).expect("written");
                trainer.load(&path).expect("the good file");
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, Error::Weights { .. } | Error::NotFinite { .. }), "{error}");
            }
        }
        if files.is_multiple_of(64) {
            assert!(bits(&mut trainer) == before && trainer.session().steps() == steps);
        }
    }
    eprintln!("{files} files, {refused} refused");
    assert!(refused > files / 2);
}

/// On a small file system of its own that is filled to the last byte.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_ends_a_run_with_an_error_and_keeps_its_checkpoint() {
    if device().is_none() {
        return;
    }
    let folder = Folder::new("chaos-full");
    let mount = format!("mount -t tmpfs -o size=2m none '{}' && exec \"$@\"", folder.display());
    let inner = child("full disk", &folder);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let allowed = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount, "sh", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !allowed {
        support::skip::skip("this system mounts no file system for a test: no full disk");
        return;
    }
    let output = command.output().expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A device that is destroyed in the middle of a run: a typed error, and the run continues on a new device from the last
/// checkpoint,
/// or from state that was held in host memory.
#[test]
fn lost_devices_are_an_error_and_the_run_continues_on_another() {
    let Some(first) = device() else { return };
    let folder = Folder::new("chaos-lost");
    let path = folder.join("m.safetensors");
    let own = Device::by_name(&first.adapter().selector()).expect("it opens again");
    let mut lost = trainer(&own);
    lost.fit(2, None, &mut [&mut Checkpoint { path: path.clone(), ..Checkpoint::default() }])
        .expect("it trains");
    let state = lost.session().state().expect("the device is there");
    own.wgpu_device().destroy();
    let error = lost.fit(1, None, &mut []).expect_err("the device is gone");
    assert!(matches!(error, Error::DeviceLost(_)), "{error:?}");
    let [mut from_file, mut from_memory, mut through] = [trainer(first), trainer(first), trainer(first)];
    from_file.load(&path).expect("the checkpoint");
    from_memory.session().set_state(&state).expect("the same model");
    assert_eq!(from_memory.session().state().expect("there"), state);
    assert_eq!((state.steps(), state.bytes().0), (16, 3 * 4 * (8 * 64 + 64 + 64 * 3 + 3)));
    for again in [&mut from_file, &mut from_memory] {
        again.fit(1, None, &mut []).expect("it trains");
    }
    through.fit(3, None, &mut []).expect("it trains");
    assert!(bits(&mut from_file) == bits(&mut through));
    assert!(bits(&mut from_memory) == bits(&mut through));
}
