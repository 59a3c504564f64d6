//! A weight file is never in the host's memory as a whole. This is a separate test program because it counts
//! the bytes of every allocation.
#![cfg(feature = "safetensors")]
#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use safetensors::tensor::{Dtype, TensorView};
use support::{devices, on_each};
use wgrad::compile::Forward;
use wgrad::exec::{Session, read_notes};
use wgrad::graph::{Init, Params};

/// A global allocator that counts the heap bytes that this thread holds, and their peak since [`peak_of`]
/// began.
struct Counting;

thread_local! {
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn count(bytes: i64) {
    // While a thread exits, its counter no longer exists; nothing measured runs at that point.
    let _ = HELD.try_with(|held| {
        let (now, peak) = held.get();
        held.set((now + bytes, peak.max(now + bytes)));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the peak of the heap bytes that `work` adds on this thread.
fn peak_of(work: impl FnOnce()) -> u64 {
    let (before, _) = HELD.get();
    HELD.set((before, before));
    work();
    (HELD.get().1 - before).max(0) as u64
}

/// 32 tensors of 1 MiB as `f32`, in a file of 32 MiB and one of 64 MiB: only one tensor and one piece of the
/// file are in memory at a time.
#[test]
fn loading_a_file_holds_one_tensor_at_a_time() {
    const ONE: usize = 1 << 20;
    let names: Vec<String> = (0..32).map(|i| format!("w{i}")).collect();
    let params = Params::new(0);
    let all: Vec<_> = names.iter().map(|name| params.add(name, [512, 512], Init::Constant(0.0))).collect();
    let forward = Forward::trace(&params, "sum", |trace| {
        let sums = all.iter().map(|w| trace.param(w).sum(&[]));
        sums.reduce(|a, b| a.add(&b)).expect("some")
    });
    let forward = forward.expect("valid");
    let path = std::env::temp_dir().join(format!("wgrad-files-heap-{}.safetensors", std::process::id()));
    on_each(devices(), |device| {
        let plan = forward.plan(device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        for dtype in [Dtype::F32, Dtype::F64] {
            let data = (0..names.len()).map(|i| match dtype {
                Dtype::F64 => (i as f64 + 0.5).to_le_bytes().repeat(ONE / 4),
                _ => (i as f32 + 0.5).to_le_bytes().repeat(ONE / 4),
            });
            let data: Vec<Vec<u8>> = data.collect();
            let views = names.iter().zip(&data).map(|(name, bytes)| {
                (name, TensorView::new(dtype, vec![512, 512], bytes).expect("shape and data agree"))
            });
            safetensors::serialize_to_file(views, None, &path).expect("written");
            let peak = peak_of(|| session.load(&path).expect("it fits"));
            println!("{dtype:?}: {peak} bytes at most");
            assert!(peak < 3 * ONE as u64, "{dtype:?}: {peak} bytes");
            for (i, name) in names.iter().enumerate() {
                let values = session.parameter(name).expect("there");
                assert!(values.iter().all(|x| *x == i as f32 + 0.5), "{dtype:?}: {name}");
            }
        }
        let peak = peak_of(|| drop(read_notes(&path).expect("there")));
        assert!(peak < ONE as u64 / 4, "{peak} bytes for notes");
    });
    std::fs::remove_file(&path).expect("it is there");
}
