//! Sequences of allocations and frees. Each ends in the state it began in, so that it can be repeated.

use wgrad::memory::trace::{Step, Trace};

/// One operation on block `id`; sizes in bytes.
#[derive(Clone, Copy)]
pub enum Op {
    Alloc { id: usize, size: u64 },
    Free { id: usize },
}

/// A sequence under a name.
pub struct Workload {
    pub name: String,
    /// Played once before the measurement.
    pub prologue: Vec<Op>,
    /// Played repeatedly.
    pub ops: Vec<Op>,
    /// Number of ids.
    pub blocks: usize,
    /// Maximum number of live blocks.
    pub live_at_most: usize,
    /// Maximum of live bytes: the lower bound of what must be reserved.
    #[allow(dead_code, reason = "each benchmark uses a part")]
    pub peak: u64,
    /// Bytes of the one page that strategies get: 16 times the peak, rounded up to a power of two.
    pub capacity: u64,
}

impl Workload {
    fn new(name: impl Into<String>, prologue: Vec<Op>, ops: Vec<Op>) -> Self {
        let id = |op: &Op| match *op {
            Op::Alloc { id, .. } | Op::Free { id } => id,
        };
        let blocks = prologue.iter().chain(&ops).map(|op| id(op) + 1).max().unwrap_or(0);
        let mut sizes = vec![None; blocks];
        let (mut live, mut count, mut peak, mut live_at_most) = (0u64, 0usize, 0, 0);
        for op in prologue.iter().chain(&ops).chain(&ops) {
            match *op {
                Op::Alloc { id, size } => {
                    assert!(sizes[id].replace(size).is_none(), "block {id} is allocated twice");
                    (live, count) = (live + size, count + 1);
                }
                Op::Free { id } => {
                    live -= sizes[id].take().expect("a freed block was alive");
                    count -= 1;
                }
            }
            (peak, live_at_most) = (peak.max(live), live_at_most.max(count));
        }
        let capacity = (peak * 16).next_power_of_two();
        Self { name: name.into(), prologue, ops, blocks, live_at_most, peak, capacity }
    }
}

/// Returns every workload: the synthetic ones, and the traces that `WGRAD_PROBLEMS` names.
pub fn all() -> Vec<Workload> {
    let mut all = vec![
        random("random-live-50", 100),
        random("random-live-500", 1000),
        random("random-live-5000", 10_000),
        random("random-live-10000", 20_000),
        rmm(),
        training_step(),
        sawtooth(),
        adversarial(),
    ];
    match std::env::var("WGRAD_PROBLEMS") {
        Ok(folder) => all.extend(traces(&folder)),
        Err(_) => eprintln!("SKIPPED: the traces; WGRAD_PROBLEMS does not name their folder"),
    }
    all
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Log-uniform from 256 bytes to 64 KiB.
    fn size(&mut self) -> u64 {
        let octave = 8 + self.next() % 8;
        (1 << octave) + self.next() % (1 << octave)
    }
}

/// Toggles random blocks between free and allocated; about half of the `blocks` are alive.
fn random(name: &str, blocks: usize) -> Workload {
    let mut random = Random(1);
    let mut alive = vec![false; blocks];
    let mut toggle = |id: usize, random: &mut Random| {
        alive[id] = !alive[id];
        if alive[id] { Op::Alloc { id, size: random.size() } } else { Op::Free { id } }
    };
    let prologue = (0..blocks).step_by(2).map(|id| toggle(id, &mut random)).collect();
    let mut ops: Vec<Op> = (0..200_000)
        .map(|_| {
            let id = random.below(blocks);
            toggle(id, &mut random)
        })
        .collect();
    let wrong: Vec<usize> = (0..blocks).filter(|&id| alive[id] != (id % 2 == 0)).collect();
    for id in wrong {
        ops.push(if id % 2 == 0 { Op::Alloc { id, size: random.size() } } else { Op::Free { id } });
    }
    Workload::new(name, prologue, ops)
}

/// RMM's `random_allocations`: 73 % allocations of uniform size until a cap is reached, then frees; all
/// blocks are freed at the end.
fn rmm() -> Workload {
    const CAP: u64 = 1 << 30;
    let mut random = Random(2);
    let (mut ops, mut live, mut bytes) = (Vec::new(), Vec::new(), 0);
    for id in 0..20_000 {
        while !live.is_empty() && (random.below(100) >= 73 || bytes > CAP) {
            let (id, size) = live.swap_remove(random.below(live.len()));
            bytes -= size;
            ops.push(Op::Free { id });
        }
        let size = 1 + random.next() % (2 << 20);
        bytes += size;
        live.push((id, size));
        ops.push(Op::Alloc { id, size });
    }
    ops.extend(live.into_iter().map(|(id, _)| Op::Free { id }));
    Workload::new("rmm-random-mix", Vec::new(), ops)
}

/// A step of a 24-layer network: activations live until the backward pass of their layer, temporaries are
/// freed at once.
fn training_step() -> Workload {
    const LAYERS: usize = 24;
    const KEPT: [u64; 6] = [4 << 20, 1 << 20, 4096, 8 << 20, 256 << 10, 1 << 20];
    let kept = |layer: usize, i: usize| LAYERS + layer * KEPT.len() + i;
    let temporary = LAYERS * (1 + KEPT.len());
    let prologue = (0..LAYERS).map(|id| Op::Alloc { id, size: 12 << 20 }).collect();
    let mut ops = Vec::new();
    for layer in 0..LAYERS {
        for (i, size) in KEPT.into_iter().enumerate() {
            ops.extend([Op::Alloc { id: temporary, size: size * 2 }, Op::Alloc { id: kept(layer, i), size }]);
            ops.push(Op::Free { id: temporary });
        }
    }
    for layer in (0..LAYERS).rev() {
        for (i, size) in KEPT.into_iter().enumerate().rev() {
            ops.extend([Op::Alloc { id: temporary, size }, Op::Alloc { id: temporary + 1, size: 12 << 20 }]);
            ops.extend([
                Op::Free { id: kept(layer, i) },
                Op::Free { id: temporary },
                Op::Free { id: temporary + 1 },
            ]);
        }
    }
    Workload::new("training-step", prologue, ops)
}

/// Allocates 1,000 blocks of growing size, then frees all of them, the oldest first.
fn sawtooth() -> Workload {
    let allocs = (0..1000).map(|id| Op::Alloc { id, size: 256 * (id as u64 + 1) });
    Workload::new("sawtooth", Vec::new(), allocs.chain((0..1000).map(|id| Op::Free { id })).collect())
}

/// Frees every second of 10,000 small blocks, then allocates blocks that fit in none of the holes.
fn adversarial() -> Workload {
    const SMALL: usize = 10_000;
    let mut ops: Vec<Op> =
        (0..SMALL).map(|id| Op::Alloc { id, size: 1024 + 256 * (id as u64 % 7) }).collect();
    ops.extend((0..SMALL).step_by(2).map(|id| Op::Free { id }));
    ops.extend((0..SMALL).map(|i| Op::Alloc { id: SMALL + i, size: 4096 + 256 * (i as u64 % 7) }));
    ops.extend((0..SMALL).skip(1).step_by(2).map(|id| Op::Free { id }));
    ops.extend((SMALL..2 * SMALL).map(|id| Op::Free { id }));
    Workload::new("adversarial", Vec::new(), ops)
}

fn traces(folder: &str) -> Vec<Workload> {
    let mut paths: Vec<_> = ["idealloc", "pytorch"]
        .iter()
        .filter_map(|name| std::fs::read_dir(std::path::Path::new(folder).join(name)).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).expect("readable");
            let trace = Trace::parse(&text).expect("a trace of lifetimes");
            let ops = trace.steps.iter().map(|step| match *step {
                Step::Alloc { id, size } => Op::Alloc { id, size },
                Step::Free { id } => Op::Free { id },
            });
            let name = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
            Workload::new(format!("trace-{name}"), Vec::new(), ops.collect())
        })
        .collect()
}
