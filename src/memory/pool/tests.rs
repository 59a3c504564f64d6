use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::memory::{Growth, Kind, Offsets, Stat};

const KIB: u64 = 1024;

fn options() -> PoolOptions {
    PoolOptions { growth: Growth::Fixed(16 * KIB), max_page: 64 * KIB, events: 100, ..PoolOptions::default() }
}

fn pool(options: PoolOptions) -> Pool<Offsets> {
    Pool::new(options, Offsets).expect("valid options")
}

fn take(pool: &mut Pool<Offsets>, kib: u64) -> Result<Block, AllocError> {
    pool.alloc(Request::new(kib * KIB, &format!("t{kib}"), "activation"))
}

#[test]
fn statistics_follow_the_definitions() {
    let mut pool = pool(options());
    let small = pool.alloc(Request::new(1000, "bias", "parameter")).expect("room");
    let large = take(&mut pool, 8).expect("room");
    let stats = *pool.stats();
    assert_eq!(stats.requested.current, 1000 + 8 * KIB);
    assert_eq!(stats.allocated.current, 9 * KIB);
    assert_eq!(stats.reserved.current, 16 * KIB);
    assert_eq!(stats.inactive_split.current, 7 * KIB);
    assert!((stats.fragmentation() - 7.0 / 16.0).abs() < 1e-12);

    pool.free_later(large).expect("live");
    let stats = *pool.stats();
    assert_eq!((stats.allocated.current, stats.active.current), (KIB, 9 * KIB), "still active");
    pool.collect().expect("sound");
    assert_eq!(pool.stats().active.current, KIB);
    pool.free(small).expect("live");
    let stats = *pool.stats();
    assert_eq!(stats.inactive_split.current, 0, "an idle page is not split");
    assert_eq!(stats.allocated, Stat { current: 0, peak: 9 * KIB, allocated: 9 * KIB, freed: 9 * KIB });
    assert_eq!(stats.segments.current, 1);
    assert_eq!(pool.trim(), 16 * KIB);
    assert_eq!((pool.stats().reserved.current, pool.stats().reserved.peak), (0, 16 * KIB));
}

#[test]
fn a_pool_refuses_double_frees_and_foreign_blocks() {
    let (mut a, mut b) = (pool(options()), pool(options()));
    let block = take(&mut a, 1).expect("room");
    take(&mut b, 1).expect("room");
    assert!(matches!(b.free(block), Err(AllocError::ForeignHandle { .. })));
    a.free(block).expect("live");
    assert!(matches!(a.free(block), Err(AllocError::NotAllocated { .. })));
    assert!(matches!(a.free_later(block), Err(AllocError::NotAllocated { .. })));
    assert_eq!((a.stats().allocations.current, b.stats().allocations.current), (0, 1));
}

#[test]
fn cap_error_names_the_tensor_and_suggests_a_fix() {
    let mut pool = pool(PoolOptions { cap: Some(40 * KIB), ..options() });
    let kept = take(&mut pool, 12).expect("first page");
    take(&mut pool, 12).expect("second page");
    assert_eq!(pool.stats().reserved.current, 32 * KIB);
    let error = take(&mut pool, 10).expect_err("8 KiB are left under the cap");
    let text = error.to_string();
    for part in [
        "`t10` (activation)",
        "10.0 KiB",
        "24.0 KiB are in use",
        "cap of 40.0 KiB",
        "raise the cap to 42.0 KiB",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    assert_eq!(pool.stats().num_ooms, 1);
    assert_eq!(pool.log().events().last().map(|e| (e.action, e.size)), Some((Action::Oom, 10 * KIB)));
    assert_eq!(take(&mut pool, 8).expect("a page of what is left").size, 8 * KIB);

    pool.free(kept).expect("live");
    take(&mut pool, 16).expect("the idle page serves");
    assert_eq!(pool.stats().num_alloc_retries, 0);
}

#[test]
fn idle_pages_are_released_before_a_request_fails() {
    let mut pool = pool(PoolOptions { cap: Some(40 * KIB), ..options() });
    let block = take(&mut pool, 12).expect("first page");
    pool.free(block).expect("live");
    take(&mut pool, 30).expect("fits once the idle page is gone");
    assert_eq!((pool.stats().num_alloc_retries, pool.stats().reserved.current), (1, 30 * KIB));
}

#[test]
fn no_page_is_larger_than_the_device_allows() {
    let mut pool = pool(PoolOptions { growth: Growth::Doubling(16 * KIB), ..options() });
    for _ in 0..12 {
        take(&mut pool, 16).expect("room");
    }
    let bytes: Vec<u64> = pool.pages().map(|page| page.bytes / KIB).collect();
    assert_eq!(bytes, [16, 16, 32, 64, 64]);
    let error = take(&mut pool, 65).expect_err("larger than a page");
    assert!(
        matches!(&error, AllocError::TooLarge { name, max_page: Bytes(65_536), .. } if &**name == "t65"),
        "{error}"
    );
    let overflow = pool.alloc(Request::new(u64::MAX, "huge", "activation"));
    assert!(matches!(overflow, Err(AllocError::TooLarge { .. })), "{overflow:?}");
}

#[test]
fn pages_belong_to_the_backing_and_drop_with_the_pool_page() {
    let created = RefCell::new(Vec::new());
    let alive = Rc::new(());
    let backing = |bytes: u64| {
        created.borrow_mut().push(bytes);
        if bytes > 20 * KIB { Err("device lost 20 KiB") } else { Ok(alive.clone()) }
    };
    let mut pool = Pool::new(PoolOptions { prealloc: 4 * KIB, ..options() }, backing).expect("4 KiB");
    let block = pool.alloc(Request::new(10 * KIB, "a", "x")).expect("16 KiB page");
    assert!(pool.page(block.page).is_some());
    assert_eq!(Rc::strong_count(&alive), 3);
    let error = pool.alloc(Request::new(21 * KIB, "b", "x")).expect_err("refused by the device").to_string();
    assert!(error.contains("device lost 20 KiB") && error.contains("`b`"), "{error}");
    assert_eq!(Rc::strong_count(&alive), 2, "the idle page was released in the attempt");
    assert_eq!(*created.borrow(), [4, 16, 21, 21].map(|k| k * KIB));
    pool.free(block).expect("live");
    pool.trim();
    assert_eq!((Rc::strong_count(&alive), pool.pages().count()), (1, 0));
}

#[test]
fn preallocation_is_split_by_the_largest_page_and_respects_the_cap() {
    let split = pool(PoolOptions { prealloc: 150 * KIB, ..options() });
    assert_eq!(split.pages().map(|page| page.bytes / KIB).collect::<Vec<_>>(), [64, 64, 22]);
    let over = PoolOptions { prealloc: 150 * KIB, cap: Some(100 * KIB), ..options() };
    assert!(matches!(Pool::new(over, Offsets), Err(AllocError::OutOfMemory(_))));
    let tiny = PoolOptions { max_page: 100, ..options() };
    assert!(matches!(Pool::new(tiny, Offsets), Err(AllocError::BadOption { option: "max_page", .. })));
}

#[test]
fn one_buffer_per_tensor_reserves_only_live_bytes() {
    let mut pool = pool(PoolOptions { events: 9, ..PoolOptions::one_buffer_per_tensor() });
    let blocks: Vec<Block> = [3, 1, 2].map(|kib| take(&mut pool, kib).expect("room")).to_vec();
    assert_eq!(pool.stats().reserved.current, 6 * KIB);
    pool.free(blocks[1]).expect("live");
    assert_eq!(pool.stats().reserved.current, 5 * KIB);
    assert_eq!(take(&mut pool, 4).expect("room").page, 1, "page numbers are used again");
}

#[test]
fn blocks_of_zero_bytes_are_distinct() {
    for strategy in Kind::ALL {
        let mut pool = pool(PoolOptions { strategy, ..options() });
        let [a, b] = [0, 0].map(|n| pool.alloc(Request::new(n, "empty", "x")).expect("room"));
        assert_ne!((a.page, a.offset), (b.page, b.offset), "{strategy:?}");
        pool.free(a).expect("live");
        pool.free(b).expect("live");
        assert_eq!(pool.stats().active.current, 0);
    }
}

#[test]
fn events_record_every_operation() {
    let mut pool = pool(options());
    let block = take(&mut pool, 1).expect("room");
    pool.free(block).expect("live");
    pool.trim();
    let story: Vec<_> =
        pool.log().events().map(|e| (e.t, e.action, e.size / KIB, e.name.to_string())).collect();
    let expected = [
        (0, Action::PageAlloc, 16, ""),
        (1, Action::Alloc, 1, "t1"),
        (2, Action::Free, 1, "t1"),
        (3, Action::PageFree, 16, ""),
    ];
    assert_eq!(story, expected.map(|(t, action, size, name)| (t, action, size, name.to_string())));
}

#[test]
fn an_alignment_larger_than_the_granule_holds_in_every_page() {
    for strategy in Kind::ALL {
        let mut pool =
            pool(PoolOptions { strategy, growth: Growth::Fixed(80 * KIB), max_page: 80 * KIB, ..options() });
        let first = take(&mut pool, 1).expect("room");
        for _ in 0..3 {
            let request = Request { align: 64 * KIB, ..Request::new(16 * KIB, "aligned", "x") };
            let block = pool.alloc(request).expect("offset 0 of a fresh page is aligned");
            assert_eq!(block.offset % (64 * KIB), 0, "{strategy:?}");
        }
        pool.free(first).expect("live");
        let bad = pool.alloc(Request { align: 3, ..Request::new(1, "odd", "x") });
        assert_eq!(bad, Err(AllocError::BadAlignment { align: 3 }), "{strategy:?}");
    }
}
