//! Attention: three passes over tiles of scores, each split into dispatches within lavapipe's loop limit.

use super::grid::{fold, per_thread};
use super::kernel::Variants;
use super::{Kernel, Launch, Lowered, Operand, Site};
use crate::graph::{Attend, AttendSizes, Band, Op};
use crate::limits::{AdapterClass, Limits};

static MEANS: Kernel = Kernel::new("attention_means", "attention/means", &[], &[1, 2, 3, 4], 64, &[&[]]);
/// With the documents of the rows, so that the gradients need no operand more.
static MEANS_WITHIN: Kernel =
    Kernel::new("attention_means_within", "attention/means", &["DOCUMENTS"], &[1, 2, 3, 4, 5], 64, &[&[]]);

/// Kernels of attention and of its gradient. Kernels of one pass have the same bindings.
struct Passes {
    /// Suffix of kernel names.
    name: &'static str,
    /// Module of the forward pass and of the gradient of queries.
    rows: &'static str,
    /// Module of the gradients of keys and values.
    columns: &'static str,
    defines: &'static [&'static str],
    workgroup: u32,
    /// Most chunks of 16 vec4 of a head that the results of rows, and of columns, keep in registers.
    chunks: [u64; 2],
}

static CPU8: Passes = Passes {
    name: "cpu8",
    rows: "attention/cpu",
    columns: "attention/cpu_dkv",
    defines: &[],
    workgroup: 8,
    chunks: [0, 0],
};
/// For subgroups of four.
static CPU4: Passes = Passes {
    name: "cpu4",
    rows: "attention/cpu",
    columns: "attention/cpu_dkv",
    defines: &["LANES4"],
    workgroup: 8,
    chunks: [0, 0],
};
static TILED: Passes = Passes {
    name: "tiled",
    rows: "attention/tiled",
    columns: "attention/tiled_dkv",
    defines: &[],
    workgroup: 64,
    chunks: [2, 1],
};

/// By the chunks of 16 vec4 of a head that are kept in registers.
const TILED_ROWS: Variants = &[&[("CHUNKS", 0.0)], &[("CHUNKS", 1.0)], &[("CHUNKS", 2.0)]];
/// The gradients of keys and values take twice as many registers.
const TILED_COLUMNS: Variants = &[TILED_ROWS[0], TILED_ROWS[1]];

/// What a kernel computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    /// The gradient of the queries.
    Dq,
    /// The gradients of keys and values.
    Dkv,
}

impl Passes {
    /// Returns the constants of a pass over heads of `quads` vec4.
    fn constants(&self, pass: Pass, quads: u64) -> Vec<(&'static str, f64)> {
        let most = self.chunks[usize::from(pass == Pass::Dkv)];
        let chunks = quads.div_ceil(16);
        let chunks = (most > 0).then_some(("CHUNKS", if chunks <= most { chunks as f64 } else { 0.0 }));
        chunks.into_iter().collect()
    }

    /// Returns the kernel of a pass; `packed`: queries, keys and values are one tensor, and so are their
    /// gradients; `capped`: scores are; `within`: queries see keys of their own documents alone.
    fn kernel(&self, pass: Pass, [packed, dropout, capped, within]: [bool; 4]) -> Kernel {
        let (rows, columns): (Variants, Variants) =
            if self.chunks == [0, 0] { (&[&[]], &[&[]]) } else { (TILED_ROWS, TILED_COLUMNS) };
        let (kernel, module) = match pass {
            Pass::Forward => (Kernel::new("attention", "", &["FORWARD"], &[4, 5], 0, rows), self.rows),
            Pass::Dq => (Kernel::new("attention_dq", "", &["DQ"], &[4, 5, 6], 0, rows), self.rows),
            Pass::Dkv => (Kernel::new("attention_dkv", "", &["DKV"], &[4, 5, 6], 0, columns), self.columns),
        };
        let mut slots = if packed { vec![1] } else { vec![1, 2, 3] };
        slots.extend_from_slice(&kernel.slots);
        if pass == Pass::Dkv && !packed {
            slots.push(7);
        }
        let kernel = if packed { kernel.with("PACKED").suffixed("packed") } else { kernel };
        let kernel = if dropout { kernel.with("ATTENTION_DROPOUT").suffixed("dropout") } else { kernel };
        // Not an `override`: drivers compile what it leaves out.
        let kernel = if capped { kernel.with("CAPPED").suffixed("capped") } else { kernel };
        let kernel = if within { kernel.with("DOCUMENTS").suffixed("within") } else { kernel };
        if within && pass == Pass::Forward {
            slots.push(6);
        }
        if dropout {
            slots.push(8);
        }
        let kernel = self.defines.iter().fold(kernel, |kernel, define| kernel.with(define));
        let kernel = Kernel { slots: slots.into(), workgroup: self.workgroup, ..kernel };
        let name = format!("{}_{}", kernel.name, self.name);
        kernel.in_module(name, module)
    }
}

pub(super) fn kernels() -> Vec<Kernel> {
    let mut kernels = vec![MEANS.clone(), MEANS_WITHIN.clone()];
    for passes in [&CPU8, &CPU4, &TILED] {
        for pass in [Pass::Forward, Pass::Dq, Pass::Dkv] {
            let of = |i: u32| passes.kernel(pass, [1, 2, 4, 8].map(|bit| i & bit > 0));
            kernels.extend((0..16).map(of));
        }
    }
    kernels
}

/// How the kernels of an adapter divide the work.
struct Family {
    passes: &'static Passes,
    /// Rows that a workgroup computes: queries, in `Dkv` keys.
    own: usize,
    /// Rows of the other side (keys, in `Dkv` queries) per iteration.
    others: usize,
    /// Iterations of a kernel's inner loops per vec4 of a head.
    steps: u64,
}

fn family(limits: &Limits) -> Family {
    match (limits.class, limits.min_subgroup) {
        (AdapterClass::Cpu, 8..) => Family { passes: &CPU8, own: 32, others: 32, steps: 1 },
        (AdapterClass::Cpu, 4..) => Family { passes: &CPU4, own: 32, others: 16, steps: 1 },
        _ => Family { passes: &TILED, own: 64, others: 32, steps: 6 },
    }
}

/// Maximum loop iterations of a thread in one dispatch: lavapipe ends loops after 65,535. The first dispatch of
/// a pass visits, for every query of a workgroup, a key that it sees: these begin within the first three tiles.
const MAX_ITERATIONS: u64 = 60_000;

/// One pass over the tiles of all heads.
struct Run<'a> {
    site: &'a Site<'a>,
    attend: &'a Attend,
    sizes: AttendSizes,
    family: Family,
}

impl<'a> Run<'a> {
    fn new(site: &'a Site<'a>, attend: &'a Attend) -> Self {
        let shapes: Vec<_> = site.inputs[..attend.operands()].iter().map(|(shape, _)| *shape).collect();
        let sizes = attend.sizes(&shapes).expect("checked when traced");
        Self { site, attend, sizes, family: family(site.limits) }
    }

    /// Returns queries, keys and values, then `more`, then the step scalars for dropout.
    fn memory(&self, more: &[Operand]) -> Vec<Operand> {
        let mut memory: Vec<Operand> = (0..self.attend.operands()).map(Operand::Input).collect();
        memory.extend_from_slice(more);
        if self.attend.dropout > 0.0 {
            memory.push(Operand::Input(self.site.inputs.len() - 1));
        }
        memory
    }

    fn documents(&self) -> Option<Operand> {
        self.attend.documents_of(self.site.inputs.len()).map(Operand::Input)
    }

    /// Returns the dispatches of a pass over `own` rows in each of `heads`, each with `others` rows of the other side for
    /// each of `times` heads, and `loops` loops over the vec4s of a head in each tile.
    fn launches(
        &self,
        pass: Pass,
        memory: &[Operand],
        [own, others, heads, times, loops]: [usize; 5],
    ) -> Vec<Launch<Operand>> {
        // Tiles of other rows that no own row sees are not visited.
        let band = if pass == Pass::Dkv { self.attend.band.transposed() } else { self.attend.band };
        let span = band.tiles(self.family.own, self.family.others, others);
        let iterations = (times * span) as u64;
        let Attend { packed, dropout, cap, documents, .. } = *self.attend;
        let kernel = self.family.passes.kernel(pass, [packed.is_some(), dropout > 0.0, cap > 0.0, documents]);
        let quads = self.sizes.size as u64 / 4;
        let most = (MAX_ITERATIONS / (self.family.steps * loops as u64 * quads + 32)).max(1);
        let tiles = own.div_ceil(self.family.own) as u64;
        let jobs = tiles * (heads * self.sizes.batch) as u64;
        let grid = fold(jobs, self.site.limits.max_workgroups);
        let one = |start: u64| Launch {
            kernel: kernel.clone(),
            constants: self.family.passes.constants(pass, quads),
            memory: memory.to_vec(),
            params: self.params(
                [tiles, jobs, u64::from(grid[0])],
                [start, iterations.min(start + most), span as u64],
                band,
            ),
            grid,
        };
        (0..iterations).step_by(most as usize).map(one).collect()
    }

    fn params(&self, grid: [u64; 3], range: [u64; 3], band: Band) -> Vec<u32> {
        let AttendSizes { heads, kv_heads, rows, cols, size, .. } = self.sizes;
        let quads = size / 4;
        let (q_pitch, kv_pitch, k_start, v_start) = match self.attend.packed {
            Some(_) => {
                let pitch = (heads + 2 * kv_heads) * quads;
                (pitch, pitch, heads * quads, (heads + kv_heads) * quads)
            }
            None => (heads * quads, kv_heads * quads, 0, 0),
        };
        let lengths =
            [heads, kv_heads, rows, cols, quads, q_pitch, kv_pitch, heads * quads, k_start, v_start];
        let p = self.attend.dropout;
        let mut words: Vec<u32> = grid.iter().map(|&word| word as u32).collect();
        words.extend(lengths.map(|word| word as u32));
        words.extend(range.map(|word| word as u32));
        let [first, all] = self.attend.layer_heads(heads);
        let lower = if self.attend.alibi { Attend::lower_power(all) } else { 0 };
        words.extend([band.before, band.after, self.attend.offset, self.sizes.batch as u32]);
        words.extend([first, all, lower].map(|word| word as u32));
        words.extend([self.attend.scale.to_bits(), self.attend.cap.to_bits(), self.attend.key]);
        // A weight is dropped where its 32 random bits are below p · 2³².
        words.extend([(p * 4_294_967_296.0) as u32, ((1.0 / (1.0 - p)) as f32).to_bits()]);
        words
    }

    fn forward(&self) -> Lowered {
        let AttendSizes { heads, rows, cols, .. } = self.sizes;
        let mut results = vec![Operand::Output(0), Operand::Output(1)];
        results.extend(self.documents());
        let memory = self.memory(&results);
        let launches = self.launches(Pass::Forward, &memory, [rows, cols, heads, 1, 2]);
        Lowered { launches, workspace: Vec::new() }
    }

    fn backward(&self) -> Lowered {
        let AttendSizes { batch, heads, kv_heads, rows, cols, size } = self.sizes;
        let own = self.attend.operands();
        let [o, lse, dy] = [own, own + 1, own + 2].map(Operand::Input);
        let stats = Operand::Workspace(0);
        let count = (batch * rows * heads) as u64;
        let mut memory = vec![dy, o, lse, stats];
        memory.extend(self.documents());
        let (means, threads) = match self.attend.documents {
            true => (&MEANS_WITHIN, count + (batch * cols) as u64),
            false => (&MEANS, count),
        };
        let words = [threads, count, rows as u64, heads as u64, size as u64 / 4].map(|word| word as u32);
        let means = per_thread(self.site, means, threads, memory, &words);
        let result = |i: usize| Operand::Output(if own == 1 { 0 } else { i });
        let kv = if own == 1 { vec![dy, stats, result(0)] } else { vec![dy, stats, result(1), result(2)] };
        let mut launches = vec![means];
        let extent = [cols, rows, kv_heads, heads / kv_heads, 3];
        launches.extend(self.launches(Pass::Dkv, &self.memory(&kv), extent));
        let extent = [rows, cols, heads, 1, 3];
        launches.extend(self.launches(Pass::Dq, &self.memory(&[dy, stats, result(0)]), extent));
        Lowered { launches, workspace: vec![threads * 8] }
    }
}

pub(super) fn attention(site: &Site, attend: &Attend) -> Lowered {
    let run = Run::new(site, attend);
    match site.op {
        Op::AttentionGrad(_) => run.backward(),
        _ => run.forward(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::shape::Shape;

    /// Tiles that no row of a workgroup sees are not visited, in any of the three passes: 4,096 positions, a window of 100.
    #[test]
    fn windows_bound_the_iterations() {
        for limits in Limits::NAMES.map(|name| Limits::named(name).expect("a preset")) {
            for (causal, window, reach) in
                [(true, Some(100), 99), (false, Some(100), 198), (false, None, 4096)]
            {
                let band = Band::new(causal, window);
                let attend = Attend {
                    packed: Some([4, 2]),
                    band,
                    documents: false,
                    offset: 0,
                    alibi: false,
                    scale: 1.0,
                    cap: 0.0,
                    dropout: 0.0,
                    key: 0,
                    heads_of: None,
                };
                let qkv = (Shape::from([1, 4096, 8, 64]), DType::F32);
                let of = |shape: &[usize]| (Shape::try_new(shape).expect("few dimensions"), DType::F32);
                let (o, lse) = (of(&[1, 4096, 4, 64]), of(&[1, 4, 4096]));
                let iterations = |op: Op, inputs: &[(Shape, DType)], outputs: &[(Shape, DType)]| {
                    let site = Site { op: &op, inputs, outputs, in_place: None, limits: &limits };
                    let mut of_passes = [0; 3];
                    for launch in attention(&site, &attend).launches {
                        let names = ["attention_packed", "attention_dq_", "attention_dkv_"];
                        if let Some(pass) = names.iter().position(|name| launch.kernel.name.starts_with(name))
                        {
                            of_passes[pass] += launch.params[14] - launch.params[13];
                        }
                    }
                    of_passes
                };
                let Family { own, others, .. } = family(&limits);
                let most = ((own + reach).div_ceil(others) + 1).min(4096 / others) as u32;
                let [forward, _, _] = iterations(Op::Attention(attend), &[qkv], &[o, lse]);
                let [_, dq, dkv] = iterations(Op::AttentionGrad(attend), &[qkv, o, lse, o], &[qkv]);
                assert!(0 < forward && forward <= most, "{}: {forward} of {most}", limits.name);
                assert!(0 < dq && dq <= most, "{}: {dq} of {most}", limits.name);
                // Two query heads for each key head.
                assert!(0 < dkv && dkv <= 2 * most, "{}: {dkv} of {most}", limits.name);
            }
        }
    }
}
