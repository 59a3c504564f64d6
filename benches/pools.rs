//! Time per operation of every strategy, compared with well-known allocators.
//!
//! `cargo bench --bench pools`; the traces are included where `WGRAD_PROBLEMS` names the folder with them.
//! Criterion's "elem/s" counts operations, so that 1 / elem/s is the time of one allocation or free.
//! `docs/pools.md` describes each baseline and the results.

#[path = "pools/baselines.rs"]
mod baselines;
#[path = "pools/workloads.rs"]
mod workloads;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wgrad::memory::{Bins, Buddy, Fit, FreeList, Kind, Offsets, Pool, PoolOptions, Request, SizeClasses};

use baselines::{Contender, GRANULE, OffsetAllocator, Ours, RangeAlloc, Rlsf};
use workloads::{Op, Workload};

/// Runs the workload once. `contender` still holds the blocks of the previous run.
fn play(contender: &mut impl Contender, ops: &[Op]) {
    for &op in ops {
        match op {
            Op::Alloc { id, size } => assert!(contender.alloc(id, size), "no room"),
            Op::Free { id } => contender.free(id),
        }
    }
}

fn bench(c: &mut Criterion, workload: &Workload) {
    let mut group = c.benchmark_group(&workload.name);
    group.throughput(Throughput::Elements(workload.ops.len() as u64));
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    macro_rules! run {
        ($name:expr, $contender:expr) => {
            let mut contender = $contender;
            play(&mut contender, &workload.prologue);
            group.bench_function(BenchmarkId::from_parameter($name), |b| {
                b.iter(|| play(black_box(&mut contender), black_box(&workload.ops)));
            });
        };
    }
    let (blocks, capacity) = (workload.blocks, workload.capacity);
    // Left out: `Whole` and PyTorch's rules need pages of several sizes, and a bump arena cannot free blocks
    // in an order other than a stack's.
    for fit in [Fit::First, Fit::Best, Fit::Worst, Fit::Next, Fit::Ends] {
        let list = FreeList::new(GRANULE, fit).expect("a power of two");
        run!(Kind::FreeList(fit).name(), Ours::new(list, blocks, capacity));
    }
    run!("bins", Ours::new(Bins::new(GRANULE).expect("a power of two"), blocks, capacity));
    run!("buddy", Ours::new(Buddy::new(GRANULE).expect("a power of two"), blocks, capacity));
    run!("size-classes", Ours::new(SizeClasses::new(GRANULE).expect("a power of two"), blocks, capacity));
    run!("offset-allocator", OffsetAllocator::new(blocks, capacity));
    run!("rlsf", Rlsf::new(blocks, capacity));
    if workload.live_at_most <= 1000 {
        run!("range-alloc", RangeAlloc::new(blocks, capacity));
    }
    for (name, options) in [
        ("pool-bins", PoolOptions { max_page: u64::MAX / 2, ..PoolOptions::default() }),
        ("pool-pytorch", PoolOptions::pytorch()),
    ] {
        run!(name, OurPool::new(options, blocks));
    }
    group.finish();
}

/// A pool with its statistics, names and classes.
struct OurPool {
    pool: Pool<Offsets>,
    blocks: Vec<Option<wgrad::memory::Block>>,
}

impl OurPool {
    fn new(options: PoolOptions, blocks: usize) -> Self {
        let pool = Pool::new(options, Offsets).expect("valid options");
        Self { pool, blocks: vec![None; blocks] }
    }
}

impl Contender for OurPool {
    fn alloc(&mut self, id: usize, size: u64) -> bool {
        self.blocks[id] = self.pool.alloc(Request::new(size, "layer.weight", "activation")).ok();
        self.blocks[id].is_some()
    }

    fn free(&mut self, id: usize) {
        if let Some(block) = self.blocks[id].take() {
            self.pool.free(block).expect("live");
        }
    }
}

fn all(c: &mut Criterion) {
    for workload in workloads::all() {
        bench(c, &workload);
    }
}

criterion_group!(pools, all);
criterion_main!(pools);
