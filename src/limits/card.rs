//! Cards as data, and the modelled time of a dispatch on one.

use std::str::FromStr;

/// A GPU by its data sheet, for modelled times. A card of one's own is a change of another:
/// `Card { bytes_per_s: 1e12, ..Card::default() }`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Name for [`Card::named`] and reports.
    pub name: &'static str,
    /// Units that each run workgroups of their own: NVIDIA's SMs, AMD's compute units, Intel's Xe cores,
    /// Apple's GPU cores.
    pub units: u32,
    /// Threads that one unit holds at once.
    pub unit_threads: u32,
    /// Bytes of workgroup memory of one unit.
    pub unit_shared_bytes: u32,
    /// `f32` operations per second; a multiplication with its addition counts as two.
    pub flops_per_s: f64,
    /// Operations per second of cooperative matrices with factors in `f16` and sums in `f32`, without
    /// sparsity; where there are none, `flops_per_s`.
    pub matrix_flops_per_s: f64,
    /// Bytes to and from memory per second.
    pub bytes_per_s: f64,
    /// Bytes per second between the device and the host's memory, in one direction at a time.
    pub host_bytes_per_s: f64,
    /// Seconds from the end of one dispatch's last workgroup to the start of the next dispatch's first: the
    /// launch, and the barrier that wgpu puts between dispatches.
    pub launch_s: f64,
    /// Where the numbers are from.
    pub source: &'static str,
}

/// Work of one dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// What it computes.
    pub kind: JobKind,
    /// Workgroups, of equal work.
    pub workgroups: u64,
    /// Threads of a workgroup.
    pub threads: u32,
    /// Bytes of workgroup memory of a workgroup.
    pub shared_bytes: u32,
}

/// What a dispatch computes, and so the part of a card's rate that it reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobKind {
    /// Functions of elements, norms, sums, copies: traffic decides.
    #[default]
    Elements,
    /// A product in tiles.
    Product,
    /// The same by cooperative matrices.
    MatrixProduct,
    /// A convolution in tiles, or a gradient of one.
    Convolution,
    /// The same by cooperative matrices.
    MatrixConvolution,
    /// A convolution with a thread for each result: depthwise ones.
    DirectConvolution,
    /// Attention or its gradient.
    Attention,
}

impl JobKind {
    /// Whether cooperative matrices compute it.
    pub fn uses_matrices(self) -> bool {
        matches!(self, Self::MatrixProduct | Self::MatrixConvolution)
    }

    /// The parts of a data sheet's arithmetic and bytes per second that large launches reach, as measured on an H100
    /// (`benches/results/h100.md`): 38 of 67 TFLOP/s by products, 24 by convolutions, 13 by attention, by cooperative
    /// matrices 120 of 989 and 25; 2.9 of 3.35 TB/s by copies, 1.3 by convolutions of few channels, 0.45 by depthwise
    /// ones, whose arithmetic does not decide.
    fn reached(self) -> (f64, f64) {
        match self {
            Self::Elements => (1.0, MOVED),
            Self::Product => (0.57, MOVED),
            Self::MatrixProduct => (0.12, MOVED),
            Self::Convolution => (0.36, 0.4),
            Self::MatrixConvolution => (0.025, MOVED),
            Self::DirectConvolution => (1.0, 0.13),
            Self::Attention => (0.2, MOVED),
        }
    }
}

/// The part of a data sheet's bytes per second that a copy reaches, as measured on an H100.
const MOVED: f64 = 0.87;

/// Copies over PCI Express, at three quarters of the specified rate: PCIe 4.0 ×16 carries 31.5 GB/s and
/// PCIe 5.0 twice that.
const PCIE4_X8: f64 = 12e9;
const PCIE4_X16: f64 = 24e9;
const PCIE5_X16: f64 = 48e9;

/// Launch and drain. NVIDIA 2 to 4 µs, AMD and Intel 5 to 10, Metal 2 to 3: the middle of what others measured;
/// not measured here.
const NVIDIA: f64 = 3e-6;
const AMD: f64 = 7.5e-6;
const INTEL: f64 = 7.5e-6;
const METAL: f64 = 2.5e-6;

/// All cards. The first is the default.
pub static CARDS: [Card; 9] = [
    Card {
        name: "rtx3060",
        units: 28,
        unit_threads: 1536,
        unit_shared_bytes: 100 << 10,
        flops_per_s: 12.7e12,
        matrix_flops_per_s: 25.5e12,
        bytes_per_s: 360e9,
        host_bytes_per_s: PCIE4_X16,
        launch_s: NVIDIA,
        source: "NVIDIA, GeForce RTX 3060 12 GB specifications: 3,584 cores at 1.78 GHz; GA102 whitepaper",
    },
    Card {
        name: "h200",
        units: 132,
        unit_threads: 2048,
        unit_shared_bytes: 228 << 10,
        flops_per_s: 67e12,
        matrix_flops_per_s: 989e12,
        bytes_per_s: 4.8e12,
        host_bytes_per_s: PCIE5_X16,
        launch_s: NVIDIA,
        source: "NVIDIA, H200 SXM data sheet; H100 architecture whitepaper",
    },
    Card {
        name: "h100",
        units: 132,
        unit_threads: 2048,
        unit_shared_bytes: 228 << 10,
        flops_per_s: 67e12,
        matrix_flops_per_s: 989e12,
        bytes_per_s: 3.35e12,
        host_bytes_per_s: PCIE5_X16,
        launch_s: NVIDIA,
        source: "NVIDIA, H100 SXM data sheet; H100 architecture whitepaper",
    },
    Card {
        name: "a100",
        units: 108,
        unit_threads: 2048,
        unit_shared_bytes: 164 << 10,
        flops_per_s: 19.5e12,
        matrix_flops_per_s: 312e12,
        bytes_per_s: 2039e9,
        host_bytes_per_s: PCIE4_X16,
        launch_s: NVIDIA,
        source: "NVIDIA, A100 80 GB SXM data sheet; A100 architecture whitepaper",
    },
    Card {
        name: "rtx4090",
        units: 128,
        unit_threads: 1536,
        unit_shared_bytes: 100 << 10,
        flops_per_s: 82.6e12,
        matrix_flops_per_s: 165.2e12,
        bytes_per_s: 1008e9,
        host_bytes_per_s: PCIE4_X16,
        launch_s: NVIDIA,
        source: "NVIDIA, Ada GPU architecture whitepaper, GeForce RTX 4090",
    },
    Card {
        name: "rx7900xtx",
        units: 96,
        unit_threads: 1024,
        unit_shared_bytes: 64 << 10,
        flops_per_s: 61.4e12,
        matrix_flops_per_s: 122.8e12,
        bytes_per_s: 960e9,
        host_bytes_per_s: PCIE4_X16,
        launch_s: AMD,
        source: "AMD, Radeon RX 7900 XTX specifications; RDNA 3 instruction set architecture guide",
    },
    Card {
        name: "arc-b580",
        units: 20,
        unit_threads: 1024,
        unit_shared_bytes: 128 << 10,
        flops_per_s: 13.7e12,
        matrix_flops_per_s: 116.5e12,
        bytes_per_s: 456e9,
        host_bytes_per_s: PCIE4_X8,
        launch_s: INTEL,
        source: "Intel, Arc B580 specifications: 2,560 lanes at 2.67 GHz, 233 int8 TOPS, half as many in f16; \
                 oneAPI GPU optimization guide, Xe2",
    },
    Card {
        name: "m2-max",
        units: 38,
        unit_threads: 1024,
        unit_shared_bytes: 32 << 10,
        flops_per_s: 13.6e12,
        matrix_flops_per_s: 13.6e12,
        bytes_per_s: 400e9,
        // The same memory: a copy reads and writes it.
        host_bytes_per_s: 200e9,
        launch_s: METAL,
        source: "Apple, announcement of M2 Pro and M2 Max of 17 January 2023, 38 cores; Metal feature set tables, \
                 limits of a threadgroup",
    },
    Card {
        name: "steam-deck",
        units: 8,
        unit_threads: 1024,
        unit_shared_bytes: 64 << 10,
        flops_per_s: 1.6e12,
        matrix_flops_per_s: 1.6e12,
        bytes_per_s: 88e9,
        host_bytes_per_s: 44e9,
        launch_s: AMD,
        source: "Valve, Steam Deck LCD technical specifications; AMD RDNA 2 instruction set architecture guide",
    },
];

/// Threads of a subgroup: a smaller workgroup takes the place of one.
const SUBGROUP: u32 = 32;
/// Most workgroups that a unit holds, whatever their size.
const MOST_GROUPS: u32 = 32;
/// A unit computes at its full rate with one thread in 8 of those that it holds, since independent
/// multiply-adds of a thread overlap, and moves bytes at its full rate with one in 2. Fewer are slower in
/// proportion.
const COMPUTING: u32 = 8;
const MOVING: u32 = 2;

impl Default for Card {
    /// `rtx3060`, a GeForce RTX 3060 with 12 GB: a card that many people have.
    fn default() -> Self {
        CARDS[0]
    }
}

impl Card {
    /// Returns a card by name; `None` if it is not in [`CARDS`].
    pub fn named(name: &str) -> Option<Self> {
        CARDS.iter().find(|card| card.name == name).copied()
    }

    /// Returns how many workgroups each unit runs, on average: below 1, some units have none.
    pub fn waves(&self, workgroups: u64) -> f64 {
        workgroups as f64 / f64::from(self.units.max(1))
    }

    fn rate(&self, job: &Job) -> f64 {
        if job.kind.uses_matrices() { self.matrix_flops_per_s } else { self.flops_per_s }
    }

    /// Returns the seconds of work at the card's full rates: the slower of arithmetic and traffic (Williams,
    /// Waterman & Patterson 2009, "Roofline").
    pub fn roofline(&self, job: &Job) -> f64 {
        (job.flops as f64 / self.rate(job)).max(job.bytes as f64 / self.bytes_per_s)
    }

    /// Returns the modelled seconds of a dispatch, at the parts of the card's rates that kernels reach. Units run their workgroups in rounds, as many at once as
    /// their threads and workgroup memory hold; in the last round most units may be idle, or hold too few
    /// threads to reach their full rate. Then the next dispatch is launched.
    pub fn seconds(&self, job: &Job) -> f64 {
        let units = u64::from(self.units.max(1));
        let workgroups = job.workgroups.max(1);
        let by_threads = self.unit_threads / job.threads.max(1).next_multiple_of(SUBGROUP);
        let by_memory = self.unit_shared_bytes.checked_div(job.shared_bytes).unwrap_or(MOST_GROUPS);
        let at_once = u64::from(by_threads.min(by_memory).clamp(1, MOST_GROUPS));
        let each = units as f64 / workgroups as f64;
        let (flops, bytes) = job.kind.reached();
        let computing = job.flops as f64 * each / (self.rate(job) * flops);
        let moving = job.bytes as f64 * each / (self.bytes_per_s * bytes);
        let round = |groups: u64| {
            let threads = (groups * u64::from(job.threads)) as f64 / f64::from(self.unit_threads);
            let slowed = |seconds: f64, share: u32| seconds / (threads * f64::from(share)).min(1.0);
            groups as f64 * slowed(computing, COMPUTING).max(slowed(moving, MOVING))
        };
        let full = workgroups / (units * at_once);
        let rest = (workgroups % (units * at_once)).div_ceil(units);
        let last = if rest > 0 { round(rest) } else { 0.0 };
        full as f64 * round(at_once) + last + self.launch_s
    }
}

impl FromStr for Card {
    type Err = String;

    /// Reads `NAME` or `NAME,NUMBER=VALUE..`, such as `rtx3060,host-bytes=50e9`: a card of [`CARDS`], with other
    /// numbers. They are units, flops, matrix-flops, bytes, host-bytes (per second) and launch (in seconds).
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut card = Self::named(name).ok_or_else(|| {
            format!("{text}: `{name}` is not one of {}", CARDS.map(|card| card.name).join(", "))
        })?;
        for part in parts {
            let wrong = || {
                format!(
                    "{text}: `{part}`: expected a positive number for one of units, flops, matrix-flops, bytes, host-bytes and \
                     launch, such as host-bytes=50e9"
                )
            };
            let (number, value) = part.split_once('=').ok_or_else(wrong)?;
            let value: f64 = value.trim().parse().map_err(|_| wrong())?;
            if !(value > 0.0 && value.is_finite()) {
                return Err(wrong());
            }
            match number.trim() {
                "units" if (1.0..1e6).contains(&value) => card.units = value as u32,
                "flops" => card.flops_per_s = value,
                "matrix-flops" => card.matrix_flops_per_s = value,
                "bytes" => card.bytes_per_s = value,
                "host-bytes" => card.host_bytes_per_s = value,
                "launch" => card.launch_s = value,
                _ => return Err(wrong()),
            }
            card.name = "custom";
        }
        Ok(card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(workgroups: u64) -> Job {
        Job { flops: workgroups << 24, bytes: 0, workgroups, threads: 256, ..Job::default() }
    }

    /// 10 units that hold four workgroups of 256 threads.
    fn card() -> Card {
        let rates =
            Card { flops_per_s: 1e12, matrix_flops_per_s: 4e12, bytes_per_s: 1e11, ..Card::default() };
        Card { units: 10, unit_threads: 1024, unit_shared_bytes: 64 << 10, launch_s: 0.0, ..rates }
    }

    #[test]
    fn names_are_unique_and_every_number_is_there() {
        for card in CARDS {
            assert_eq!(Card::named(card.name), Some(card));
            assert!(card.units > 0 && card.unit_threads >= 1024 && card.unit_shared_bytes >= 32 << 10);
            assert!(card.flops_per_s > 1e12 && card.matrix_flops_per_s >= card.flops_per_s, "{}", card.name);
            assert!(card.bytes_per_s > card.host_bytes_per_s && card.host_bytes_per_s > 1e9, "{}", card.name);
            assert!(card.launch_s > 0.0 && card.source.len() > 20, "{}", card.name);
        }
        assert_eq!(Card::named("voodoo"), None);
        assert_eq!((Card::default().name, Card::default().host_bytes_per_s), ("rtx3060", 24e9));
    }

    #[test]
    fn cards_are_read_by_name_with_other_numbers() {
        let card: Card = "h200, host-bytes=50e9,units=10".parse().expect("valid");
        let h200 = Card::named("h200").expect("listed");
        assert_eq!(card, Card { name: "custom", host_bytes_per_s: 50e9, units: 10, ..h200 });
        for wrong in ["", "voodoo", "h200,50e9", "h200,bytes=-1", "h200,units=0", "h200,speed=1"] {
            let message = wrong.parse::<Card>().expect_err(wrong);
            assert!(message.contains("h200"), "{message}");
        }
    }

    #[test]
    fn time_is_the_slower_of_compute_and_memory() {
        let job = |flops, bytes| Job { flops, bytes, workgroups: 1 << 20, threads: 256, ..Job::default() };
        let near = |job: Job, ideal: f64, reached: f64| {
            let (modelled, full) = (card().seconds(&job), card().roofline(&job));
            assert!((modelled / ideal * reached - 1.0).abs() < 1e-3, "{job:?}: {modelled}");
            assert!((full / ideal - 1.0).abs() < 1e-9, "{job:?}: {full}");
        };
        near(job(2_000_000_000_000, 100), 2.0, 1.0);
        near(job(100, 400_000_000_000), 4.0, MOVED);
        let of = |kind| Job { kind, ..job(2_000_000_000_000, 100) };
        near(of(JobKind::Product), 2.0, 0.57);
        near(of(JobKind::MatrixProduct), 0.5, 0.12);
        let launch = Card { launch_s: 1.0, ..card() };
        assert!((launch.seconds(&job(2_000_000_000_000, 0)) - 3.0).abs() < 1e-3);
    }

    /// A wave costs as much as its fullest unit takes.
    #[test]
    fn the_last_wave_takes_as_long_as_its_fullest_unit() {
        let one = card().seconds(&job(10));
        for (workgroups, rounds) in [(1, 1.0), (11, 2.0), (20, 2.0), (40, 4.0), (41, 5.0), (400, 40.0)] {
            let found = card().seconds(&job(workgroups));
            assert!((found / one - rounds).abs() < 1e-9, "{workgroups}: {found} of {one}");
        }
        assert_eq!((card().waves(5), card().waves(25)), (0.5, 2.5));
    }

    #[test]
    fn few_threads_do_not_reach_the_full_rate() {
        let with = |threads, shared_bytes| {
            card().seconds(&Job { threads, shared_bytes, ..job(1000) }) / card().roofline(&job(1000))
        };
        assert!((with(256, 0) - 1.0).abs() < 1e-9 && (with(256, 64 << 10) - 1.0).abs() < 1e-9);
        // One workgroup of 64 threads at once has half the threads that a unit needs.
        assert!((with(64, 64 << 10) - 2.0).abs() < 1e-9);
        assert!((with(64, 32 << 10) - 1.0).abs() < 1e-9);
        let moved = Job { flops: 0, bytes: 1 << 30, workgroups: 1000, threads: 256, ..Job::default() };
        let alone = Job { shared_bytes: 64 << 10, ..moved };
        assert!((card().seconds(&alone) / card().roofline(&alone) * MOVED - 2.0).abs() < 1e-9);
    }
}
