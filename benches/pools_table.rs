//! wgrad's strategies and the baselines in one table: the bytes that each reserves for every trace, relative
//! to the trace's lower bound, and the time of an operation.
//!
//! `cargo bench --bench pools_table [-- PART_OF_A_WORKLOAD'S_NAME]`; the traces are included where
//! `WGRAD_PROBLEMS` names the folder with them. The contenders run alternately, and the fastest of many
//! rounds counts, so that rows can be compared even where other work shares the machine. `benches/pools.rs`
//! has the distributions.

#[path = "pools/baselines.rs"]
mod baselines;
#[path = "pools/gpu_allocator.rs"]
mod gpu_allocator;
#[path = "pools/workloads.rs"]
mod workloads;

use std::time::Instant;

use wgrad::memory::{Bins, Fit, FreeList};

use baselines::{Contender, GRANULE, OffsetAllocator, Ours, RangeAlloc, Rlsf};
use gpu_allocator::GpuAllocator;
use workloads::{Op, Workload};

const ROUNDS: usize = 40;
/// Allocators with a linear search are left out above this number of live blocks.
const FEW: usize = 1000;

/// Runs `ops` until one fails, and returns whether all succeeded.
fn play(contender: &mut dyn Contender, ops: &[Op]) -> bool {
    ops.iter().all(|op| match *op {
        Op::Alloc { id, size } => contender.alloc(id, size),
        Op::Free { id } => {
            contender.free(id);
            true
        }
    })
}

type Make = fn(usize, u64) -> Box<dyn Contender>;

fn contenders() -> [(&'static str, Make); 6] {
    [
        ("bins", |blocks, bytes| Box::new(Ours::new(Bins::new(GRANULE).expect("valid"), blocks, bytes))),
        ("best-fit", |blocks, bytes| {
            Box::new(Ours::new(FreeList::new(GRANULE, Fit::Best).expect("valid"), blocks, bytes))
        }),
        ("offset-allocator", |blocks, bytes| Box::new(OffsetAllocator::new(blocks, bytes))),
        ("rlsf", |blocks, bytes| Box::new(Rlsf::new(blocks, bytes))),
        ("range-alloc", |blocks, bytes| Box::new(RangeAlloc::new(blocks, bytes))),
        ("gpu-allocator", |blocks, _| Box::new(GpuAllocator::new(blocks))),
    ]
}

fn times(workload: &Workload) {
    let mut players: Vec<_> = contenders()
        .into_iter()
        .map(|(name, make)| {
            let linear = matches!(name, "range-alloc" | "gpu-allocator");
            (workload.live_at_most <= FEW || !linear).then(|| make(workload.blocks, workload.capacity))
        })
        .collect();
    for player in players.iter_mut().flatten() {
        assert!(play(player.as_mut(), &workload.prologue), "{}: no room", workload.name);
    }
    let mut fastest = vec![f64::INFINITY; players.len()];
    for _ in 0..ROUNDS {
        for (player, best) in players.iter_mut().zip(&mut fastest) {
            let Some(player) = player else { continue };
            let start = Instant::now();
            assert!(play(player.as_mut(), &workload.ops), "{}: no room", workload.name);
            *best = best.min(start.elapsed().as_nanos() as f64 / workload.ops.len() as f64);
        }
    }
    let cells: Vec<String> =
        fastest.iter().map(|ns| if ns.is_finite() { format!("{ns:.0}") } else { "–".to_owned() }).collect();
    println!("| {} | {} |", workload.name, cells.join(" | "));
}

/// Returns the smallest page, to within 1/4096 of the bound, in which `make`'s allocator serves the whole
/// trace.
fn smallest_page(make: Make, workload: &Workload, bound: u64) -> u64 {
    let serves = |bytes: u64| play(make(workload.blocks, bytes).as_mut(), &workload.ops);
    let (mut short, mut enough) = (0, bound);
    while !serves(enough) {
        (short, enough) = (enough, enough + enough / 8);
    }
    while short > 0 && enough - short > bound / 4096 {
        let middle = short + (enough - short) / 2;
        if serves(middle) { enough = middle } else { short = middle }
    }
    enough
}

/// Returns the peak of the bytes that `gpu-allocator` reserves: it creates its memory blocks itself.
fn peak_reserved(workload: &Workload) -> u64 {
    let mut pool = GpuAllocator::new(workload.blocks);
    let mut peak = 0;
    for op in &workload.ops {
        assert!(play(&mut pool, &[*op]), "{}: no room", workload.name);
        peak = peak.max(pool.reserved());
    }
    peak
}

fn reserved(workload: &Workload) {
    let bound = workload.peak;
    let cells = contenders().map(|(name, make)| match name {
        "gpu-allocator" => peak_reserved(workload),
        _ => smallest_page(make, workload, bound),
    });
    let cells = cells.map(|bytes| format!("{:.3}", bytes as f64 / bound as f64));
    println!("| {} | {} |", workload.name, cells.join(" | "));
}

fn head(title: &str) {
    println!("\n| {title} | {} |", contenders().map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(contenders().len()));
}

fn main() {
    let part = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut workloads = workloads::all();
    workloads.retain(|workload| workload.name.contains(&part));
    head("reserved / lower bound");
    workloads.iter().filter(|workload| workload.name.starts_with("trace-")).for_each(reserved);
    head("ns per operation");
    workloads.iter().for_each(times);
}
