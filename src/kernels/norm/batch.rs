//! Batch norm: statistics of channels, normalization, gradient and running statistics.

use crate::dtype::DType;
use crate::graph::{Activation, Running};
use crate::kernels::conv::image;
use crate::kernels::grid::{fold, per_thread};
use crate::kernels::kernel::Variants;
use crate::kernels::{Kernel, Launch, Lowered, Operand, Site, and_in_place};
use crate::limits::AdapterClass;

/// Activations that a batch norm applies to its result; see [`code`].
pub(in crate::kernels) const ACTIVATIONS: Variants =
    &[&[("ACTIVATION", 0.0)], &[("ACTIVATION", 1.0)], &[("ACTIVATION", 2.0)]];

static STATS: Kernel = Kernel::new("batch_stats", "norm/batch_stats", &[], &[1, 2], 8, &[&[]]);
static STATS_END: Kernel =
    Kernel::new("batch_stats_end", "norm/batch_stats", &["END"], &[1, 2, 3, 4], 8, &[&[]]);
/// For channels that are one part each.
static STATS_WHOLE: Kernel =
    Kernel::new("batch_stats_whole", "norm/batch_stats", &["WHOLE"], &[1, 2, 3, 4], 8, &[&[]]);
static SUMS: Kernel =
    Kernel::new("batch_norm_sums", "norm/batch_norm_sums", &[], &[1, 2, 3, 4, 5, 6, 7], 8, &[&[]]);
static SUMS_END: Kernel = Kernel::new(
    "batch_norm_sums_end",
    "norm/batch_norm_sums",
    &["END"],
    &[1, 2, 3, 4, 5, 6, 7, 8],
    8,
    &[&[]],
);
/// For channels that are one part each, without an activation.
static SUMS_WHOLE: Kernel = Kernel::new(
    "batch_norm_sums_whole",
    "norm/batch_norm_sums",
    &["WHOLE"],
    &[1, 2, 3, 4, 5, 6, 7, 8],
    8,
    &[&[]],
);
static NORM: Kernel = Kernel::new("batch_norm", "norm/batch_norm", &[], &[1, 2, 3, 4, 5, 6], 64, ACTIVATIONS);
static GRAD: Kernel = Kernel::new(
    "batch_norm_grad",
    "norm/batch_norm",
    &["GRAD", "HELD_THIRD"],
    &[1, 2, 3, 4],
    64,
    ACTIVATIONS,
);
static RUNNING_STATS: Kernel =
    Kernel::new("running_stats", "norm/batch_stats", &["RUNNING"], &[1, 2, 3, 4], 64, &[&[]]);

const HALVES: [DType; 2] = [DType::F16, DType::BF16];

/// Returns the kernel that normalizes a tensor of this type.
fn norm_of(dtype: DType) -> Kernel {
    if dtype.is_half() { NORM.with("HELD_X") } else { NORM.clone() }
}

/// Returns the kernel of statistics that updates running ones too.
fn with_running(kernel: &Kernel) -> Kernel {
    kernel.with("RUNNING").with_slots(&[5, 6]).suffixed("running")
}

/// Threads of a workgroup that processes one part of a channel.
const GROUP: u32 = 128;

pub(super) fn kernels() -> Vec<Kernel> {
    let shared = |kernel: &Kernel| Kernel::HELD.map(|dtype| kernel.in_workgroups(GROUP).holding(dtype));
    let (whole, end) = ([STATS_WHOLE.clone(), with_running(&STATS_WHOLE)], with_running(&STATS_END));
    let sums =
        [&STATS, &SUMS, &SUMS_WHOLE, &whole[0], &whole[1]].into_iter().flat_map(shared).collect::<Vec<_>>();
    let others = [&STATS, &SUMS, &SUMS_WHOLE, &STATS_END, &SUMS_END, &RUNNING_STATS].into_iter().cloned();
    let ends = [&STATS_END, &SUMS_END, &end].map(|kernel| kernel.in_workgroups(GROUP));
    let others = others.chain(whole).chain([end]).chain(ends);
    let of = |kernel: &Kernel| [kernel.clone(), kernel.in_vec4()];
    let grads = Kernel::HELD.map(|dtype| of(&GRAD).map(|kernel| kernel.holding(dtype))).concat();
    let narrow = HALVES.map(|dtype| of(&norm_of(dtype)).map(|kernel| kernel.holding(dtype))).concat();
    [sums, others.collect(), and_in_place(&of(&NORM)), narrow, and_in_place(&grads)].concat()
}

/// Returns the code of an activation in `shaders/common/activation.wgsl`.
pub(in crate::kernels) fn code(activation: Activation) -> u32 {
    match activation {
        Activation::None => 0,
        Activation::Relu => 1,
        Activation::Relu6 => 2,
    }
}

/// Maximum elements that one thread sums over: below the 65,535 iterations at which lavapipe ends loops.
const MAX_PART: u64 = 16_384;

/// Split of each channel's elements into parts for the adapter.
struct Channels {
    channels: u64,
    plane: u64,
    count: u64,
    parts: u64,
    part_len: u64,
}

/// Returns the kernel with one thread, or one workgroup, for each job.
fn by_adapter(site: &Site, kernel: &Kernel) -> Kernel {
    if site.limits.class.is_cpu() { kernel.clone() } else { kernel.in_workgroups(GROUP) }
}

impl Channels {
    fn of(site: &Site) -> Self {
        let [n, c, h, w] = image(site.inputs[0].0).map(|dim| dim as u64);
        let count = n * h * w;
        let (jobs, smallest, longest) = match site.limits.class {
            AdapterClass::Cpu => (64, 256, MAX_PART),
            AdapterClass::Integrated | AdapterClass::Discrete => (1024, 2048, MAX_PART * 128),
        };
        let wanted = (jobs / c).min(count / smallest).max(count.div_ceil(longest)).max(1);
        let part_len = count.div_ceil(wanted);
        Self { channels: c, plane: h * w, count, parts: count.div_ceil(part_len), part_len }
    }

    fn launch(
        &self,
        site: &Site,
        kernel: &Kernel,
        jobs: u64,
        memory: Vec<Operand>,
        rest: &[u32],
    ) -> Launch<Operand> {
        let groups =
            if kernel.workgroup == GROUP { jobs } else { jobs.div_ceil(u64::from(kernel.workgroup)) };
        let grid = fold(groups, site.limits.max_workgroups);
        let Self { channels, plane, count, parts, part_len } = *self;
        let mut params = vec![grid[0]];
        params.extend([channels, plane, count, parts, part_len].map(|n| n as u32));
        params.extend_from_slice(rest);
        Launch { kernel: kernel.clone(), constants: Vec::new(), memory, params, grid }
    }

    /// Returns the launches of partial sums by `kernel`, and of their combination by `end`.
    fn sums(
        &self,
        site: &Site,
        [kernel, end]: [&Kernel; 2],
        first: &[Operand],
        then: &[Operand],
        rest: &[u32],
    ) -> Vec<Launch<Operand>> {
        let kernel = by_adapter(site, kernel).holding(site.inputs[0].1);
        let sums = [first, &[Operand::Workspace(0)]].concat();
        let ends = [&[Operand::Workspace(0)], then].concat();
        vec![
            self.launch(site, &kernel, self.channels * self.parts, sums, rest),
            self.launch(site, &by_adapter(site, end), self.channels, ends, rest),
        ]
    }

    fn scratch(&self) -> u64 {
        2 * self.parts * self.channels * 4
    }
}

pub(in crate::kernels) fn stats(site: &Site, eps: f32, running: Option<Running>) -> Lowered {
    let channels = Channels::of(site);
    let kernel = |kernel: &Kernel| if running.is_some() { with_running(kernel) } else { kernel.clone() };
    let Running { momentum, unbias } = running.unwrap_or(Running { momentum: 0.0, unbias: 0.0 });
    let rest = &[eps.to_bits(), 0, 0, momentum.to_bits(), unbias.to_bits()];
    let mut results = [0, 1, 2].map(Operand::Output).to_vec();
    results.extend(running.iter().flat_map(|_| [1, 2].map(Operand::Input)));
    if channels.parts == 1 {
        let memory = [&[Operand::Input(0)], &results[..]].concat();
        let kernel = by_adapter(site, &kernel(&STATS_WHOLE)).holding(site.inputs[0].1);
        return channels.launch(site, &kernel, channels.channels, memory, rest).into();
    }
    let kernels = [&STATS, &kernel(&STATS_END)];
    let launches = channels.sums(site, kernels, &[Operand::Input(0)], &results, rest);
    Lowered { launches, workspace: vec![channels.scratch()] }
}

/// Returns the launch with one thread per element, or per vec4 if no vec4 spans two channels.
fn elements(site: &Site, kernel: &Kernel, memory: Vec<Operand>, activation: Activation) -> Launch<Operand> {
    let [_, c, h, w] = image(site.inputs[0].0).map(|dim| dim as u64);
    let width = if h * w % 4 == 0 { 4 } else { 1 };
    let kernel = if width == 4 { kernel.in_vec4() } else { kernel.clone() };
    let kernel = kernel.holding(site.inputs[0].1);
    let total = site.inputs[0].0.numel() / width;
    let params = [total as u32, (h * w / width) as u32, c as u32];
    let mut launch = per_thread(site, &site.variant(&kernel), total, memory, &params);
    launch.constants = vec![("ACTIVATION", f64::from(code(activation)))];
    launch
}

pub(in crate::kernels) fn norm(site: &Site, activation: Activation) -> Launch<Operand> {
    let memory = site.placed(0, &[1, 2, 3, 4].map(Operand::Input));
    elements(site, &norm_of(site.inputs[0].1), memory, activation)
}

pub(in crate::kernels) fn grad(site: &Site, activation: Activation, training: bool) -> Lowered {
    let channels = Channels::of(site);
    let rest = &[0, code(activation), u32::from(training)];
    let both = Operand::Workspace(1);
    let results = [Operand::Output(1), Operand::Output(2), both];
    let inputs = |of: &[usize]| of.iter().map(|&i| Operand::Input(i)).collect::<Vec<_>>();
    let mut launches = if channels.parts == 1 && activation == Activation::None {
        let kernel = by_adapter(site, &SUMS_WHOLE).holding(site.inputs[0].1);
        let memory = [inputs(&[0, 5, 1, 2, 3]), results.to_vec()].concat();
        vec![channels.launch(site, &kernel, channels.channels, memory, rest)]
    } else {
        let then = [inputs(&[4, 1, 2, 3]), results.to_vec()].concat();
        channels.sums(site, [&SUMS, &SUMS_END], &inputs(&[0, 5, 1, 2, 3, 4]), &then, rest)
    };
    let memory = site.placed(5, &[Operand::Input(0), both]);
    launches.push(elements(site, &GRAD, memory, activation));
    Lowered { launches, workspace: vec![channels.scratch(), channels.channels * 32] }
}

pub(in crate::kernels) fn running_stats(site: &Site, running: Running) -> Launch<Operand> {
    let Running { momentum, unbias } = running;
    let channels = site.inputs[0].0.numel();
    let parts = site.inputs[2].0.numel() / channels;
    let params = [channels as u32, parts as u32, momentum.to_bits(), unbias.to_bits()];
    let memory = [0, 1, 2, 3].map(Operand::Input).to_vec();
    per_thread(site, &RUNNING_STATS, channels, memory, &params)
}
