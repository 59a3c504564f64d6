//! Attention: three passes over tiles of scores, each cut into dispatches that lavapipe's loops can finish.

use super::grid::{fold, per_thread};
use super::{Lowered, Operand, Site};
use crate::graph::{Attend, AttendSizes, Op};
use crate::kernels::table::{self, Pass, Passes};
use crate::kernels::{Kernel, Launch};
use crate::limits::{AdapterClass, Limits};

/// How kernels of an adapter cut the work.
struct Family {
    passes: &'static Passes,
    /// Own rows of a workgroup.
    own: u64,
    /// Rows that it takes a turn.
    others: u64,
    /// Turns of a kernel's loops for each quad of a head.
    steps: u64,
}

fn family(limits: &Limits) -> Family {
    match (limits.class, limits.min_subgroup) {
        (AdapterClass::Cpu, 8..) => Family { passes: &table::ATTENTION_CPU8, own: 32, others: 64, steps: 1 },
        (AdapterClass::Cpu, 4..) => Family { passes: &table::ATTENTION_CPU4, own: 32, others: 32, steps: 1 },
        _ => Family { passes: &table::ATTENTION_TILED, own: 64, others: 32, steps: 6 },
    }
}

/// Turns of loops that a thread may take: lavapipe ends them at 65,535.
const MAX_TURNS: u64 = 60_000;

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

    /// Queries, keys and values, then `more`, then the step scalars of a dropout.
    fn memory(&self, more: &[Operand]) -> Vec<Operand> {
        let mut memory: Vec<Operand> = (0..self.attend.operands()).map(Operand::Input).collect();
        memory.extend_from_slice(more);
        if self.attend.dropout > 0.0 {
            memory.push(Operand::Input(self.site.inputs.len() - 1));
        }
        memory
    }

    /// Dispatches of a pass that has `own` rows in each of `heads`, goes over `turns` tiles of the others, and takes
    /// `loops` loops over a head's quads in each.
    fn launches(
        &self,
        pass: &'static Pass,
        memory: &[Operand],
        [own, heads, turns, loops]: [u64; 4],
    ) -> Vec<Launch<Operand>> {
        let kernel: &'static Kernel = pass.of(self.attend.packed.is_some(), self.attend.dropout > 0.0);
        let quads = self.sizes.size as u64 / 4;
        let most = (MAX_TURNS / (self.family.steps * loops * quads + 32)).max(1);
        let tiles = own.div_ceil(self.family.own);
        let jobs = tiles * heads * self.sizes.batch as u64;
        let grid = fold(jobs, self.site.limits.max_workgroups);
        let one = |start: u64| Launch {
            kernel,
            constants: Vec::new(),
            memory: memory.to_vec(),
            params: self.params([tiles, jobs, u64::from(grid[0])], [start, turns.min(start + most)]),
            grid,
        };
        (0..turns).step_by(most as usize).map(one).collect()
    }

    fn params(&self, grid: [u64; 3], range: [u64; 2]) -> Vec<u32> {
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
        words.extend([u32::from(self.attend.causal), self.attend.scale.to_bits(), self.attend.key]);
        // A weight is dropped where its 32 random bits are below p · 2³².
        words.extend([(p * 4_294_967_296.0) as u32, ((1.0 / (1.0 - p)) as f32).to_bits()]);
        words
    }

    fn forward(&self) -> Lowered {
        let AttendSizes { heads, rows, cols, .. } = self.sizes;
        let memory = self.memory(&[Operand::Output(0), Operand::Output(1)]);
        let turns = (cols as u64).div_ceil(self.family.others);
        let extent = [rows as u64, heads as u64, turns, 2];
        let launches = self.launches(&self.family.passes.forward, &memory, extent);
        Lowered { launches, workspace: Vec::new() }
    }

    fn backward(&self) -> Lowered {
        let AttendSizes { batch, heads, kv_heads, rows, cols, size } = self.sizes;
        let own = self.attend.operands();
        let [o, lse, dy] = [own, own + 1, own + 2].map(Operand::Input);
        let stats = Operand::Workspace(0);
        let count = (batch * rows * heads) as u64;
        let words = [count as u32, rows as u32, heads as u32, size as u32 / 4];
        let means = per_thread(self.site, &table::ATTENTION_MEANS, count, vec![dy, o, lse, stats], &words);
        let result = |i: usize| Operand::Output(if own == 1 { 0 } else { i });
        let kv = if own == 1 { vec![dy, stats, result(0)] } else { vec![dy, stats, result(1), result(2)] };
        let others = self.family.others;
        let turns = (heads / kv_heads) as u64 * (rows as u64).div_ceil(others);
        let extent = [cols as u64, kv_heads as u64, turns, 3];
        let mut launches = vec![means];
        launches.extend(self.launches(&self.family.passes.dkv, &self.memory(&kv), extent));
        let extent = [rows as u64, heads as u64, (cols as u64).div_ceil(others), 3];
        launches.extend(self.launches(&self.family.passes.dq, &self.memory(&[dy, stats, result(0)]), extent));
        Lowered { launches, workspace: vec![count * 8] }
    }
}

pub(super) fn attention(site: &Site, attend: &Attend) -> Lowered {
    let run = Run::new(site, attend);
    match site.op {
        Op::AttentionGrad(_) => run.backward(),
        _ => run.forward(),
    }
}
