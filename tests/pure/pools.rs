//! Every strategy and every pool against a model that knows only the live blocks. `cargo test --release` runs
//! millions of operations, a debug build a fraction of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::support::problem_files::{committed_problems, csv_files, public_problems};
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_oneof, proptest};
use proptest::strategy::Strategy as _;
use wgrad::memory::replay::{Outcome, contenders, replay};
use wgrad::memory::trace::{Step, Trace};
use wgrad::memory::{
    AllocError, Allocation, Block, Fit, FreeList, Growth, Handle, Kind, Offsets, Pool, PoolOptions, Request,
    Span, Strategy,
};

const STEPS: usize = 500_000;

/// SplitMix64, so that a failure can be reproduced from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Log-uniform, so that small and large sizes both occur.
    fn size(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits);
        self.next() & ((1 << bits) - 1)
    }
}

/// Checks the invariants of any strategy from outside.
struct Model {
    kind: Kind,
    strategy: Box<dyn Strategy + Send>,
    pages: Vec<u64>,
    live: BTreeMap<(u32, u64), (u64, Handle)>,
    /// The keys of `live`, to choose from.
    order: Vec<(u32, u64)>,
    freed: Option<Handle>,
}

impl Model {
    fn new(kind: Kind, granule: u64, pages: &[u64]) -> Self {
        let mut strategy = kind.build(granule).expect("a power of two");
        for (number, &bytes) in pages.iter().enumerate() {
            strategy.add_page(number as u32, bytes, bytes).expect("a fresh page");
        }
        Self { kind, strategy, pages: pages.to_vec(), live: BTreeMap::new(), order: Vec::new(), freed: None }
    }

    fn alloc(&mut self, size: u64, align: u64) {
        let kind = self.kind;
        match self.strategy.alloc(size, align) {
            Ok(Allocation { span, handle }) => {
                let Span { page, offset, size: got } = span;
                assert!(
                    got >= size.max(1) && offset % align == 0,
                    "{kind:?}: {span:?} for {size} at {align}"
                );
                assert_eq!((offset | got) % self.strategy.granule(), 0, "{kind:?}: {span:?}");
                assert!(offset + got <= self.pages[page as usize], "{kind:?}: {span:?} leaves its page");
                if let Some((&(p, o), &(s, _))) = self.live.range(..=(page, offset)).next_back() {
                    assert!(p != page || o + s <= offset, "{kind:?}: {span:?} overlaps [{o}, {o} + {s})");
                }
                if let Some((&(p, o), _)) = self.live.range((page, offset)..).next() {
                    assert!(p != page || offset + got <= o, "{kind:?}: {span:?} overlaps {o}");
                }
                self.live.insert((page, offset), (got, handle));
                self.order.push((page, offset));
            }
            Err(AllocError::NoSpace { .. }) => self.check_refusal(size, align),
            Err(other) => panic!("{kind:?}: {other}"),
        }
    }

    /// A free list refuses only requests that fit in no hole. Bins may overlook holes that are less than 1/32
    /// too large, and for aligned requests holes that are less than the alignment too large.
    fn check_refusal(&self, size: u64, align: u64) {
        let slack = match self.kind {
            Kind::FreeList(_) => 0,
            Kind::Bins => {
                size / 32 + 2 * self.strategy.granule() + if align > 256 { align * 33 / 32 } else { 0 }
            }
            _ => return,
        };
        let Some(size) = size.max(1).checked_next_multiple_of(self.strategy.granule()) else { return };
        for hole in self.strategy.free_spans() {
            let start = hole.offset.next_multiple_of(align);
            let fits = start.saturating_add(size).saturating_add(slack) <= hole.offset + hole.size;
            assert!(!fits, "{:?} refused {size} at {align} although {hole:?} is free", self.kind);
        }
    }

    fn free(&mut self, pick: u64) {
        if self.order.is_empty() {
            return;
        }
        let key = self.order.swap_remove((pick % self.order.len() as u64) as usize);
        let (size, handle) = self.live.remove(&key).expect("in both");
        let span = self.strategy.free(handle).expect("live");
        assert_eq!(span, Span { page: key.0, offset: key.1, size }, "{:?}", self.kind);
        self.freed = Some(handle);
    }

    fn free_again(&mut self) {
        if let Some(handle) = self.freed {
            let again = self.strategy.free(handle);
            assert!(matches!(again, Err(AllocError::NotAllocated { .. })), "{:?}: {again:?}", self.kind);
        }
    }

    /// Holes and live blocks are disjoint and, except in a bump arena, cover every page.
    fn check(&self) {
        let (kind, holes) = (self.kind, self.strategy.free_spans());
        assert_eq!(self.strategy.live(), self.live.len(), "{kind:?}");
        assert_eq!(holes.iter().map(|hole| hole.size).sum::<u64>(), self.strategy.free_bytes(), "{kind:?}");
        let live = self.live.iter().map(|(&(page, offset), &(size, _))| (Span { page, offset, size }, false));
        let mut tiles: Vec<_> = holes.iter().map(|&hole| (hole, true)).chain(live).collect();
        tiles.sort_unstable();
        let mut ends = vec![0; self.pages.len()];
        let mut last_was_hole = false;
        for (tile, hole) in tiles {
            let end = &mut ends[tile.page as usize];
            if kind == Kind::Bump {
                assert!(tile.offset >= *end, "{kind:?}: {tile:?}");
            } else {
                assert_eq!(tile.offset, *end, "{kind:?}: gap or overlap before {tile:?}");
            }
            let merges = matches!(kind, Kind::FreeList(_) | Kind::Bins | Kind::Caching);
            assert!(
                !(merges && hole && last_was_hole && tile.offset > 0),
                "{kind:?}: {tile:?} was not merged"
            );
            *end = tile.offset + tile.size;
            last_was_hole = hole;
        }
        if kind != Kind::Bump {
            assert_eq!(ends, self.pages, "{kind:?}");
        }
    }

    /// After the last free no hole is split, and every page can be removed.
    fn finish(mut self) {
        self.check();
        let fresh = Self::new(self.kind, self.strategy.granule(), &self.pages).strategy.free_spans();
        while !self.order.is_empty() {
            self.free(0);
        }
        assert_eq!(self.strategy.free_spans(), fresh, "{:?}: not back to one hole per page", self.kind);
        for page in 0..self.pages.len() as u32 {
            self.strategy.remove_page(page).expect("idle");
        }
        assert_eq!((self.strategy.capacity(), self.strategy.free_bytes()), (0, 0));
    }
}

#[test]
fn strategies_match_the_model_over_long_random_runs() {
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let mut random = Random(seed as u64);
        let mut model = Model::new(kind, 512, &[1 << 22, 3 << 20, 1 << 20, (1 << 20) + 512]);
        for step in 0..STEPS {
            match random.below(100) {
                0..52 => model.alloc(random.size(20), 1 << random.below(10)),
                52..54 => model.alloc(random.size(18), 1 << (10 + random.below(7))),
                54..99 => model.free(random.next()),
                _ => model.free_again(),
            }
            if step % (STEPS / 100) == 0 {
                model.check();
            }
        }
        model.finish();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(u64, u32),
    Free(u64),
    FreeAgain,
}

fn op() -> impl proptest::strategy::Strategy<Value = Op> {
    let size = prop_oneof![0..20_000u64, Just(u64::MAX), Just(1 << 63), (0..64u32).prop_map(|b| 1 << b)];
    prop_oneof![
        5 => (size, 0..=16u32).prop_map(|(size, align)| Op::Alloc(size, align)),
        4 => any::<u64>().prop_map(Op::Free),
        1 => Just(Op::FreeAgain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]
    #[test]
    fn strategies_match_the_model_over_short_adversarial_runs(
        ops in prop::collection::vec(op(), 0..120),
        granule in 0..10u32,
        pages in prop::collection::vec(1..300u64, 1..4),
    ) {
        for kind in Kind::ALL {
            let granule = if kind == Kind::Caching { 512 } else { 1 << granule };
            let pages: Vec<u64> = pages.iter().map(|n| n * granule).collect();
            let mut model = Model::new(kind, granule, &pages);
            for op in &ops {
                match *op {
                    Op::Alloc(size, align) => model.alloc(size, 1 << align),
                    Op::Free(pick) => model.free(pick),
                    Op::FreeAgain => model.free_again(),
                }
                model.check();
            }
            model.finish();
        }
    }
}

#[test]
fn invalid_handles_pages_and_alignments_are_refused() {
    for kind in Kind::ALL {
        let [mut home, mut away] = [(); 2].map(|()| kind.build(512).expect("a power of two"));
        for strategy in [&mut home, &mut away] {
            strategy.add_page(7, 1 << 16, 1 << 16).expect("a fresh page");
        }
        let ours = home.alloc(100, 1);
        let Ok(Allocation { handle, .. }) = ours else {
            assert_eq!(
                kind,
                Kind::Caching,
                "only PyTorch's rules keep small blocks out of a page made for large ones"
            );
            continue;
        };
        away.alloc(100, 1).expect("room");
        assert!(matches!(away.free(handle), Err(AllocError::ForeignHandle { .. })), "{kind:?}");
        assert!(matches!(home.add_page(7, 512, 1), Err(AllocError::PageExists { page: 7 })), "{kind:?}");
        assert!(matches!(home.remove_page(7), Err(AllocError::PageInUse { page: 7 })), "{kind:?}");
        assert!(matches!(home.remove_page(8), Err(AllocError::UnknownPage { page: 8 })), "{kind:?}");
        assert!(matches!(home.add_page(8, 511, 1), Err(AllocError::BadPage { bytes: 511, .. })), "{kind:?}");
        assert!(matches!(home.add_page(8, u64::MAX, u64::MAX), Err(AllocError::BadPage { .. })), "{kind:?}");
        for align in [0, 3, u64::MAX] {
            assert_eq!(home.alloc(1, align), Err(AllocError::BadAlignment { align }), "{kind:?}");
        }
        assert!(matches!(home.alloc(u64::MAX, 1 << 63), Err(AllocError::NoSpace { .. })), "{kind:?}");
        assert_eq!((home.live(), away.live()), (1, 1), "{kind:?}: a refusal changed something");
    }
}

fn pools() -> Vec<(String, PoolOptions)> {
    let mut pools: Vec<_> = Kind::ALL
        .into_iter()
        .flat_map(|strategy| {
            [Growth::Fixed(1 << 20), Growth::Doubling(1 << 18), Growth::Exact, Growth::Segments].map(
                |growth| {
                    let options =
                        PoolOptions { strategy, growth, max_page: 4 << 20, ..PoolOptions::default() };
                    (format!("{} {growth:?}", strategy.name()), options)
                },
            )
        })
        .collect();
    let extra = PoolOptions { prealloc: 3 << 20, cap: Some(4 << 20), ..PoolOptions::default() };
    pools.push(("capped".into(), PoolOptions { strategy: Kind::FreeList(Fit::Best), ..extra }));
    pools.push(("one buffer per tensor".into(), PoolOptions::one_buffer_per_tensor()));
    pools.push(("pytorch capped".into(), PoolOptions { cap: Some(8 << 20), ..PoolOptions::pytorch() }));
    pools
}

#[test]
fn pool_statistics_add_up_over_long_runs() {
    for (seed, (name, options)) in pools().into_iter().enumerate() {
        let mut random = Random(seed as u64);
        let mut pool = Pool::new(options, Offsets).expect("valid options");
        let mut live: Vec<(Block, u64)> = Vec::new();
        let mut failures = 0;
        for step in 0..STEPS / 10 {
            match random.below(1000) {
                0..520 => {
                    let bytes = random.size(22);
                    match pool.alloc(Request::new(bytes, "t", "activation")) {
                        Ok(block) => live.push((block, bytes)),
                        Err(AllocError::OutOfMemory(_)) => failures += 1,
                        Err(other) => panic!("{name}: {other}"),
                    }
                }
                520..998 if !live.is_empty() => {
                    let (block, _) = live.swap_remove(random.below(live.len() as u64) as usize);
                    if step % 7 == 0 { pool.free_later(block) } else { pool.free(block) }.expect("live");
                }
                998 => pool.collect().expect("sound"),
                _ => {
                    pool.trim();
                }
            }
            let stats = pool.stats();
            let [requested, allocated, active, reserved] =
                [stats.requested, stats.allocated, stats.active, stats.reserved].map(|stat| stat.current);
            assert!(requested <= allocated && allocated <= active && active <= reserved, "{name}");
            if step % 100 == 0 {
                assert_eq!(allocated, live.iter().map(|(block, _)| block.size).sum::<u64>(), "{name}");
                assert_eq!(requested, live.iter().map(|(_, bytes)| bytes).sum::<u64>(), "{name}");
                assert_eq!(reserved, pool.pages().map(|page| page.bytes).sum::<u64>(), "{name}");
                let idle: u64 = pool.pages().filter(|page| page.blocks == 0).map(|page| page.bytes).sum();
                assert_eq!(active + stats.inactive_split.current + idle, reserved, "{name}");
                assert!(options.cap.is_none_or(|cap| reserved <= cap), "{name}: over its cap");
            }
        }
        assert_eq!(pool.stats().num_ooms, failures, "{name}");
        assert_eq!(options.cap.is_some(), failures > 0, "{name}: {failures} requests failed");
        live.drain(..).for_each(|(block, _)| pool.free(block).expect("live"));
        pool.collect().expect("sound");
        pool.trim();
        let stats = pool.stats();
        assert_eq!(
            [stats.requested.current, stats.active.current, stats.reserved.current],
            [0; 3],
            "{name}: leak"
        );
        assert_eq!((stats.inactive_split.current, stats.segments.current), (0, 0), "{name}");
        assert_eq!(stats.allocated.allocated, stats.allocated.freed, "{name}");
    }
}

/// Reads CSV traces; returns them with their names.
fn traces(files: Vec<PathBuf>) -> Vec<(String, Trace)> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("readable");
        // Drops the alignment column of wgrad's own files: pools align anyway.
        let four = |line: &str| line.split(',').take(4).collect::<Vec<_>>().join(",");
        let is_ours = text.starts_with("id,lower,upper,size,alignment");
        let text = if is_ours { text.lines().map(four).collect::<Vec<_>>().join("\n") } else { text };
        let name = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
        (name, Trace::parse(&text).expect("a trace of lifetimes"))
    };
    files.into_iter().map(read).collect()
}

fn outcome(trace: &Trace, name: &str) -> Outcome {
    let contender =
        contenders().into_iter().find(|contender| contender.name == name).expect("a known contender");
    replay(trace, contender, None).expect("valid settings")
}

/// Compares with PyTorch's own reserved bytes at the dump of each trace, in MiB, from the README next to the
/// traces.
#[test]
fn pytorch_mode_reserves_within_one_percent_of_pytorch() {
    let reported: [(&str, u64); 8] = [
        ("medium_ctx128_training", 6900),
        ("medium_ctx256_training", 8836),
        ("medium_ctx512_training", 12_074),
        ("medium_ctx1024_training", 24_012),
        ("medium_ctx128_inference", 1682),
        ("medium_ctx256_inference", 1778),
        ("medium_ctx512_inference", 1890),
        ("medium_ctx1024_inference", 3056),
    ];
    for (name, trace) in traces(public_problems("pytorch")) {
        let (_, mib) =
            reported.into_iter().find(|(known, _)| *known == name).expect("a figure for every trace");
        let error = outcome(&trace, "pytorch").peak_reserved as f64 / (mib << 20) as f64 - 1.0;
        assert!(error.abs() < 0.01, "{name}: off by {:.2} %", error * 100.0);
    }
}

#[test]
fn best_fit_in_one_page_stays_within_two_percent_of_the_bound() {
    let public = traces(public_problems("pytorch")).into_iter().chain(traces(public_problems("idealloc")));
    // wgrad's own steps have few and large buffers, so the gaps between them weigh more.
    let own = traces(csv_files(&committed_problems("")));
    let limits = [("best-fit", 1.02, 1.141), ("two-ended", 1.013, 1.139), ("bins", 1.026, 1.141)];
    for (ours, (name, trace)) in public.map(|trace| (false, trace)).chain(own.into_iter().map(|t| (true, t)))
    {
        for (strategy, of_public, of_own) in limits {
            let ratio = outcome(&trace, strategy).ratio;
            let limit = if ours { of_own } else { of_public };
            assert!(ratio <= limit, "{name}: {strategy} reserves {ratio:.4} of the lower bound");
        }
    }
}

#[test]
fn a_learned_step_needs_half_a_percent_over_the_bound_at_most() {
    let mut all = traces(csv_files(&committed_problems("")));
    for folder in ["idealloc", "pytorch"] {
        all.extend(traces(public_problems(folder)));
    }
    // Below a mebibyte the granule of 256 bytes is more than that.
    all.retain(|(_, trace)| trace.lower_bound() > 1 << 20);
    assert!(all.len() >= 3);
    for (name, trace) in all {
        let outcome = outcome(&trace, "learned-second-step");
        assert!(outcome.ratio <= 1.005 && outcome.failed == Some(0), "{name}: {outcome:?}");
    }
}

#[test]
fn learned_steps_that_deviate_match_the_model() {
    let mut model = Model::new(Kind::Learned, 512, &[1 << 22, 1 << 20]);
    for step in 0..40 {
        let (mut same, mut other) = (Random(7), Random(step));
        for _ in 0..300 {
            match same.below(100) {
                0..52 => model.alloc(same.size(16), 1 << same.below(10)),
                _ => model.free(same.next()),
            }
            match other.below(if step % 4 == 0 { 10 } else { 1000 }) {
                0 => model.alloc(other.size(16), 1),
                1 => model.free(other.next()),
                2 => model.free_again(),
                _ => {}
            }
            model.check();
        }
        // Some steps leave blocks to the next one.
        while model.order.len() > (step % 3) as usize * 20 {
            model.free(other.next());
        }
        model.strategy.end_step();
        model.check();
    }
    while !model.order.is_empty() {
        model.free(0);
    }
    model.check();
    assert_eq!(model.strategy.free_bytes(), (1 << 22) + (1 << 20));
    (0..2).for_each(|page| model.strategy.remove_page(page).expect("idle"));
    assert_eq!((model.strategy.capacity(), model.strategy.free_bytes()), (0, 0));
}

/// Returns the bytes of the smallest page, to 1/4096 of the bound, in which `two-ended` with these thresholds
/// serves the trace, divided by the bound.
fn two_ended(trace: &Trace, middle: (u64, u64)) -> f64 {
    let bound = trace.lower_bound();
    let serves = |bytes: u64| {
        let mut list = FreeList::two_ended(256, middle).expect("a power of two");
        list.add_page(0, bytes, bytes).expect("a fresh page");
        let mut live: Vec<Option<Handle>> = vec![None; trace.blocks.len()];
        trace.steps.iter().all(|step| match *step {
            Step::Alloc { id, size } => {
                live[id] = list.alloc(size, 256).ok().map(|block| block.handle);
                live[id].is_some()
            }
            Step::Free { id } => live[id].take().is_some_and(|handle| list.free(handle).is_ok()),
        })
    };
    let (mut short, mut enough) = (0, bound);
    while !serves(enough) {
        (short, enough) = (enough, enough + enough / 8);
    }
    while short > 0 && enough - short > bound / 4096 {
        let middle = short + (enough - short) / 2;
        if serves(middle) { enough = middle } else { short = middle }
    }
    enough as f64 / bound as f64
}

/// Prints, for each public trace, what `two-ended` reserves there with the thresholds that are best on all
/// other traces (by the worst ratio, then by the sum), and with those of the library.
#[test]
#[ignore = "a table, not a check"]
fn two_ended_judged_on_traces_its_thresholds_were_not_chosen_on() {
    let all: Vec<(String, Trace)> =
        ["idealloc", "pytorch"].into_iter().flat_map(|folder| traces(public_problems(folder))).collect();
    let grid: Vec<(u64, u64)> = [256, 512, 1024, 2048, 4096, 8192]
        .into_iter()
        .flat_map(|small| [10, 20, 40, 80, 160].map(|large| (small, large)))
        .collect();
    let ratios: Vec<Vec<f64>> =
        grid.iter().map(|&middle| all.iter().map(|(_, trace)| two_ended(trace, middle)).collect()).collect();
    println!("| trace | chosen on all, 1/2048 and 1/80 | chosen on the others | thresholds |");
    for (left_out, (name, trace)) in all.iter().enumerate() {
        let others = |row: &[f64]| {
            let others = || row.iter().enumerate().filter(|&(i, _)| i != left_out).map(|(_, ratio)| *ratio);
            (others().fold(0.0, f64::max), others().sum::<f64>())
        };
        let best = (0..grid.len())
            .min_by(|&a, &b| others(&ratios[a]).partial_cmp(&others(&ratios[b])).expect("numbers"));
        let best = best.expect("a grid");
        println!(
            "| {name} | {:.3} | {:.3} | 1/{} and 1/{} |",
            two_ended(trace, (2048, 80)),
            ratios[best][left_out],
            grid[best].0,
            grid[best].1
        );
    }
}
