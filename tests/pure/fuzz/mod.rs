//! Runs the bodies of the fuzz targets on random and on mutated input for a short time. `fuzz/README.md` says
//! how to run them longer.

#[cfg(feature = "onnx")]
mod onnx;
mod pt;
mod strategies;
mod traces;

use std::time::{Duration, Instant};

use wgrad::random;

/// Calls `body` with a source of numbers until the time is over.
fn repeat_for_milliseconds(name: &str, mut body: impl FnMut(&mut dyn FnMut() -> usize)) {
    let milliseconds = std::env::var("WGRAD_FUZZ_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let (start, key) = (Instant::now(), random::key(0, name));
    let mut count = 0;
    while start.elapsed() < Duration::from_millis(milliseconds) {
        let mut number = || {
            count += 1;
            random::bits(key, count) as usize
        };
        body(&mut number);
    }
}

#[test]
fn strategies_are_consistent_on_random_operations() {
    repeat_for_milliseconds("strategies", |number| {
        let bytes: Vec<u8> = (0..2 + number() % 400).map(|_| number() as u8).collect();
        strategies::run(&bytes);
    });
}

const LIFETIMES: &[u8] = b"id,lower,upper,size\na,0,9,1024\nb,1,4,1024\nc,2,9,1024\nd,4,9,2048\n";
const EVENTS: &[u8] = b"t,action,page,offset,size,requested,class,name\n0,page_alloc,0,0,4096,4096,,\n\
    1,alloc,0,0,256,4,x,a\n2,alloc,0,256,256,256,x,b\n3,free,0,0,256,4,x,a\n4,oom,0,0,99,99,x,c\n";
/// `pickle.dumps({"segments": [{"address": 4096, "total_size": 512, "blocks": []}], "device_traces":
/// [[{"action": "alloc", "addr": 8192, "size": 300}, {"action": "free_completed", "addr": 8192, "size":
/// 300}]]}, protocol=2)`.
const SNAPSHOT: &[u8] = b"\x80\x02}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02}q\x03(X\x07\x00\x00\x00addressq\x04M\x00\x10X\x0a\x00\
    \x00\x00total_sizeq\x05M\x00\x02X\x06\x00\x00\x00blocksq\x06]q\x07uaX\x0d\x00\x00\x00device_tracesq\x08]q\
    \x09]q\x0a(}q\x0b(X\x06\x00\x00\x00actionq\x0cX\x05\x00\x00\x00allocq\x0dX\x04\x00\x00\x00addrq\x0eM\x00 X\
    \x04\x00\x00\x00sizeq\x0fM,\x01u}q\x10(h\x0cX\x0e\x00\x00\x00free_completedq\x11h\x0eM\x00 h\x0fM,\x01ueau\
    .";

#[test]
fn readers_accept_or_refuse_changed_snapshots_and_traces() {
    for seed in [LIFETIMES, EVENTS, SNAPSHOT] {
        assert!(traces::run(seed), "a seed that is not read leads nowhere");
    }
    repeat_for_milliseconds("traces", |number| {
        let mut bytes = [LIFETIMES, EVENTS, SNAPSHOT][number() % 3].to_vec();
        for _ in 0..1 + number() % 4 {
            let at = number() % bytes.len();
            match number() % 4 {
                0 => bytes[at] = number() as u8,
                1 => bytes[at] = b"0123456789,-\n.q}u"[number() % 17],
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, number() as u8),
            }
            if bytes.is_empty() {
                return;
            }
        }
        traces::run(&bytes);
    });
}

/// Every truncation, and random changes, with those of the pickle and of the directory as often as all others.
#[test]
fn pt_files_are_read_or_refused_after_any_change() {
    let golden = |name: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/state_dict_");
        std::fs::read(format!("{path}{name}.pt")).expect("committed")
    };
    let seeds = [golden("f32"), golden("views")];
    for seed in &seeds {
        assert_eq!(pt::run(seed), Some(8));
        (0..seed.len()).for_each(|end| assert_eq!(pt::run(&seed[..end]), None, "the first {end} bytes"));
    }
    repeat_for_milliseconds("pt", |number| {
        let mut bytes = seeds[number() % 2].clone();
        for _ in 0..1 + number() % 4 {
            let at = match number() % 3 {
                0 => number() % bytes.len(),
                1 => number() % 1200.min(bytes.len()),
                _ => bytes.len() - 1 - number() % 1200.min(bytes.len()),
            };
            match number() % 4 {
                0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][number() % 5],
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, number() as u8),
                _ => bytes[at] = number() as u8,
            }
        }
        pt::run(&bytes);
    });
}

/// The nodes are changed more often than the weights.
#[cfg(feature = "onnx")]
#[test]
fn onnx_files_are_read_or_refused_after_any_change() {
    let seeds = ["convolutions", "tokens", "nodes"].map(|name| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/onnx_");
        std::fs::read(format!("{path}{name}.onnx")).expect("committed")
    });
    // The last one, of many kinds of nodes, need only be traced.
    seeds[..2].iter().for_each(|seed| assert!(onnx::run(seed), "a seed that is not exported leads nowhere"));
    repeat_for_milliseconds("onnx", |number| {
        let mut bytes = seeds[number() % 3].clone();
        for _ in 0..1 + number() % 3 {
            let edge = 4096.min(bytes.len());
            let at = match number() % 3 {
                0 => number() % bytes.len(),
                1 => number() % edge,
                _ => bytes.len() - 1 - number() % edge,
            };
            bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff, number() as u8, bytes[at] ^ 1][number() % 8];
        }
        onnx::run(&bytes);
    });
}
