//! Optimal checkpoints of a chain under a memory limit, by dynamic programming: Revolve (Griewank & Walther
//! 2000) for stages that differ in time and size.

use super::script::Retention;

/// A stage of a chain: the cost of running it, and of keeping its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stage {
    /// Time of the forward operations, in seconds.
    pub seconds: f64,
    /// Bytes of its input tensor.
    pub bytes: u64,
}

/// Number of units that the memory limit is quantized to: the table has one column per unit.
const UNITS: usize = 96;

/// The least time to reverse a chain, and the checkpoints that reach it.
#[derive(Debug)]
pub(super) struct Chain {
    /// Bytes of a unit.
    unit: u64,
    /// Units of each stage's input, rounded up.
    units: Vec<usize>,
    /// Total time of all stages before each stage.
    before: Vec<f64>,
    room: usize,
    /// For each first stage, last stage and number of units: the least time, and the first stage with a kept
    /// input, if any.
    table: Vec<(f64, Option<usize>)>,
}

impl Chain {
    /// Solves for at most `bytes` in addition to the input of the first stage, which is always kept.
    pub(super) fn new(stages: &[Stage], bytes: u64) -> Self {
        let unit = bytes.div_ceil(UNITS as u64).max(1);
        let units = stages.iter().map(|stage| stage.bytes.div_ceil(unit) as usize).collect();
        Self { unit, ..Self::counted(stages, units, (bytes / unit) as usize) }
    }

    fn counted(stages: &[Stage], units: Vec<usize>, room: usize) -> Self {
        let mut before = vec![0.0];
        for stage in stages {
            before.push(before[before.len() - 1] + stage.seconds);
        }
        let count = stages.len();
        let mut chain =
            Self { unit: 1, units, before, room, table: vec![(0.0, None); count * count * (room + 1)] };
        for length in 2..=count {
            for first in 0..=count - length {
                for room in 0..=room {
                    let last = first + length - 1;
                    let at = chain.at(first, last, room);
                    chain.table[at] = chain.best(first, last, room);
                }
            }
        }
        chain
    }

    fn at(&self, first: usize, last: usize, room: usize) -> usize {
        (first * self.units.len() + last) * (self.room + 1) + room
    }

    fn least(&self, first: usize, last: usize, room: usize) -> f64 {
        self.table[self.at(first, last, room)].0
    }

    /// Either nothing is kept up to the last stage, or the input of stage `k` is kept until all stages after
    /// it are reversed.
    fn best(&self, first: usize, last: usize, room: usize) -> (f64, Option<usize>) {
        let run = |to: usize| self.before[to] - self.before[first];
        let mut best = (run(last) + self.least(first, last - 1, room), None);
        for k in first + 1..=last {
            if self.units[k] <= room {
                let right = self.least(k, last, room - self.units[k]);
                let time = run(k) + right + self.least(first, k - 1, room);
                // Ties keep the input.
                if time <= best.0 {
                    best = (time, Some(k));
                }
            }
        }
        best
    }

    /// Time of all forward runs of a reversal, without the run of the last stage itself.
    #[cfg(test)]
    fn seconds(&self) -> f64 {
        self.least(0, self.units.len() - 1, self.room)
    }

    /// For the input of each stage, within `bytes`: kept by the forward pass, kept by a later run, or never kept.
    pub(super) fn retention(&self, bytes: u64) -> Vec<Retention> {
        let mut retention = vec![Retention::RecomputePerUse; self.units.len()];
        let Some(last) = self.units.len().checked_sub(1) else { return retention };
        retention[0] = Retention::Save;
        let room = self.room.min((bytes / self.unit) as usize);
        let mut open = vec![(0, last, room, Retention::Save)];
        while let Some((first, last, room, choice)) = open.pop() {
            if first >= last {
                continue;
            }
            match self.table[self.at(first, last, room)].1 {
                Some(k) => {
                    retention[k] = choice;
                    open.push((k, last, room - self.units[k], choice));
                    open.push((first, k - 1, room, Retention::RecomputeOnce));
                }
                None => open.push((first, last - 1, room, Retention::RecomputeOnce)),
            }
        }
        retention
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    fn choose(n: u64, k: u64) -> u64 {
        (0..k).fold(1, |product, i| product * (n - i) / (i + 1))
    }

    /// The formula of Griewank & Walther: `r l - C(s + r, r - 1)` forward steps for `l` stages with `s` kept
    /// states, the first included; `r` is the least number with `C(s + r, s) ≥ l`.
    fn revolve(l: u64, s: u64) -> u64 {
        let r = (0..).find(|&r| choose(s + r, s) >= l).expect("binomials grow");
        if r == 0 { 0 } else { r * l - choose(s + r, r - 1) }
    }

    #[test]
    fn uniform_chains_match_revolve() {
        for length in 1..=24 {
            let stages = vec![Stage { seconds: 1.0, bytes: 10 }; length];
            for kept in 1..=8 {
                let chain = Chain::counted(&stages, vec![1; length], kept - 1);
                assert_eq!(
                    chain.seconds(),
                    revolve(length as u64, kept as u64) as f64,
                    "{length} stages, {kept} kept"
                );
            }
        }
    }

    /// Tries every schedule that reverses a chain: from a kept state, run to any later stage, keep its input
    /// if it fits in memory, reverse the stages after it, and continue with the rest.
    fn brute(stages: &[Stage], first: usize, last: usize, room: u64) -> f64 {
        if first == last {
            return 0.0;
        }
        let run = |to: usize| stages[first..to].iter().map(|stage| stage.seconds).sum::<f64>();
        let direct = run(last) + brute(stages, first, last - 1, room);
        let keep = (first + 1..=last).filter(|&k| stages[k].bytes <= room).map(|k| {
            run(k) + brute(stages, k, last, room - stages[k].bytes) + brute(stages, first, k - 1, room)
        });
        keep.fold(direct, f64::min)
    }

    #[test]
    fn chain_schedules_match_brute_force() {
        for seed in 0..24 {
            let key = random::key(seed, "chain");
            let length = 2 + (seed as usize % 11).min(10);
            let stage = |i: usize| Stage {
                seconds: 1.0 + (random::bits(key, i as u64) % 9) as f64,
                bytes: 1 + random::bits(key, 100 + i as u64) % 5,
            };
            let stages: Vec<Stage> = (0..length).map(stage).collect();
            for room in [0, 3, 6] {
                let units = stages.iter().map(|stage| stage.bytes as usize).collect();
                let chain = Chain::counted(&stages, units, room);
                let least = brute(&stages, 0, length - 1, room as u64);
                assert_eq!(chain.seconds(), least, "seed {seed}, {length} stages, room {room}");
            }
        }
    }

    #[test]
    fn fates_follow_the_available_memory() {
        let stages = vec![Stage { seconds: 1.0, bytes: 1 << 20 }; 12];
        let all = Chain::new(&stages, 48 << 20).retention(48 << 20);
        assert_eq!(all, vec![Retention::Save; 12]);
        let none = Chain::new(&stages, 1 << 10).retention(1 << 10);
        assert_eq!((none[0], &none[1..]), (Retention::Save, &vec![Retention::RecomputePerUse; 11][..]));
        // Sizes are rounded up to units: memory for two and a half states holds two.
        let some = Chain::new(&stages, 5 << 19).retention(5 << 19);
        // The table of more memory has the answer for less.
        assert_eq!(Chain::new(&stages, 48 << 20).retention(5 << 19), some);
        let count = |choice: Retention| some.iter().filter(|&&other| other == choice).count();
        assert_eq!(count(Retention::Save), 3);
        assert!(count(Retention::RecomputeOnce) > 0 && count(Retention::RecomputePerUse) > 0, "{some:?}");
    }
}
