//! The binned and the learned strategy allocate no heap memory once they are warm. This is a separate test program because it
//! counts every allocation of the process.
#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use wgrad::memory::{Kind, Offsets, Pool, PoolOptions, Request};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // While a thread exits, its counter no longer exists; nothing measured runs at that point.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// Returns a fixed random sequence of sizes and of blocks to free.
fn sequence() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1u64), |x| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
        .map(|x| x >> 33)
}

#[test]
fn warm_bins_allocate_no_heap_memory() {
    let run = |kind: Kind| {
        let mut strategy = kind.build(256).expect("a power of two");
        strategy.add_page(0, 1 << 32, 1).expect("a fresh page");
        let mut live = vec![None; 10_000];
        let mut round = || {
            for x in sequence().take(100_000) {
                match live[x as usize % 10_000].take() {
                    Some(handle) => drop(strategy.free(handle).expect("live")),
                    None => {
                        live[x as usize % 10_000] =
                            Some(strategy.alloc(x % 100_000, 256).expect("room").handle)
                    }
                }
            }
        };
        // The tables grow until they hold the maximum number of holes, which is reached within a few rounds.
        (0..8).for_each(|_| round());
        count(round)
    };
    assert_eq!(run(Kind::Bins), 0);
    assert!(run(Kind::Buddy) > 0, "the counter counts: a B-tree does take heap memory");
}

#[test]
fn warm_pool_allocates_no_heap_memory() {
    let mut pool = Pool::new(PoolOptions::default(), Offsets).expect("valid options");
    let names: Vec<String> = (0..100).map(|i| format!("layer{i}.weight")).collect();
    let mut live = Vec::with_capacity(100);
    let mut step = || {
        for name in &names {
            live.push(pool.alloc(Request::new(1000, name, "activation")).expect("room"));
        }
        live.drain(..).for_each(|block| pool.free(block).expect("live"));
    };
    assert!(count(&mut step) > 0);
    assert_eq!(count(step), 0, "names are known and the page is there");
}

#[test]
fn learned_steps_allocate_no_heap_memory() {
    let mut strategy = Kind::Learned.build(256).expect("a power of two");
    strategy.add_page(0, 1 << 24, 1).expect("a fresh page");
    let mut live = Vec::with_capacity(100);
    let mut step = || {
        for x in sequence().take(100) {
            live.push(strategy.alloc(x % 100_000, 256).expect("room").handle);
        }
        for handle in live.drain(..) {
            strategy.free(handle).expect("live");
        }
        strategy.end_step()
    };
    assert!(step().is_some(), "the first step is planned");
    step();
    assert_eq!(count(|| assert_eq!(step(), None, "nothing is planned again")), 0);
}
