//! exact
use super::instance::Instance;

pub struct Search<'a> {
    inst: &'a Instance,
    cap: u64,
    rank: Vec<u32>,
    overlaps: Vec<Vec<u32>>,
    m: Vec<u64>,
    placed: Vec<bool>,
    rest: Vec<u64>,
    eff: Vec<u64>,
    acc: Vec<u64>,
    count: Vec<u32>,
    weight: Vec<u64>,
    trail: Vec<(u32, u64)>,
    done: Vec<u32>,
    pool: Vec<u32>,
    cands: Vec<u32>,
    sorted: Vec<(u64, u32)>,
    pub nodes: u64,
    pub budget: u64,
    pub fails: [u64; 6],
    pub opt: Opt,
}

#[derive(Clone, Copy)]
pub struct Opt {
    pub select: u32,
    pub release: bool,
    pub comp: u32,
}

pub struct OutOfBudget;

impl<'a> Search<'a> {
    pub fn new(inst: &'a Instance, cap: u64, rank: Vec<u32>, opt: Opt) -> Self {
        let n = inst.len();
        let overlaps = (0..n)
            .map(|i| (0..n).filter(|&j| i != j && inst.together(i, j)).map(|j| j as u32).collect())
            .collect();
        let mut rest = vec![0; inst.slices];
        for i in 0..n {
            for s in inst.first[i]..inst.last[i] {
                rest[s as usize] += inst.size[i];
            }
        }
        Self {
            inst,
            cap,
            rank,
            overlaps,
            m: vec![0; n],
            placed: vec![false; n],
            eff: vec![0; inst.slices],
            acc: vec![0; inst.slices],
            count: vec![0; inst.slices],
            weight: vec![1; inst.slices],
            rest,
            trail: vec![],
            done: vec![],
            pool: vec![],
            cands: vec![],
            sorted: vec![],
            nodes: 0,
            budget: u64::MAX,
            fails: [0; 6],
            opt,
        }
    }

    pub fn run(&mut self) -> Result<Option<Vec<u64>>, OutOfBudget> {
        let n = self.inst.len();
        let mut items: Vec<u32> = (0..n as u32).collect();
        items.sort_by_key(|&i| self.inst.first[i as usize]);
        self.pool = items;
        self.m.fill(0);
        self.placed.fill(false);
        self.trail.clear();
        let done = std::mem::take(&mut self.done);
        for i in done {
            let i = i as usize;
            for s in self.inst.first[i]..self.inst.last[i] {
                self.rest[s as usize] += self.inst.size[i];
            }
        }
        self.cands.clear();
        if self.components(0, n)? { Ok(Some(self.m.clone())) } else { Ok(None) }
    }

    /// splits pool[begin..end] (sorted by first) skipping placed
    fn components(&mut self, begin: usize, end: usize) -> Result<bool, OutOfBudget> {
        let base = self.pool.len();
        let mut comps: Vec<(u64, usize, usize, u32, u32)> = Vec::new();
        let mut start = base;
        let (mut x, mut y) = (0, 0);
        for k in begin..end {
            let i = self.pool[k];
            if self.placed[i as usize] {
                continue;
            }
            let (f, l) = (self.inst.first[i as usize], self.inst.last[i as usize]);
            if f >= y {
                if self.pool.len() > start {
                    comps.push((0, start, self.pool.len(), x, y));
                }
                start = self.pool.len();
                x = f;
                y = l;
            }
            y = y.max(l);
            self.pool.push(i);
        }
        if self.pool.len() > start {
            comps.push((0, start, self.pool.len(), x, y));
        }
        if comps.len() > 1 {
            for c in comps.iter_mut() {
                c.0 = match self.opt.comp {
                    0 => (c.2 - c.1) as u64,
                    1 => u64::MAX - (c.3..c.4).map(|s| self.weight[s as usize]).max().unwrap_or(0),
                    _ => {
                        u64::MAX
                            - (c.3..c.4).map(|s| self.weight[s as usize]).sum::<u64>() / (c.2 - c.1) as u64
                    }
                };
            }
            comps.sort();
        }
        for &(_, b, e, x, y) in &comps {
            if !self.search(b, e, x, y)? {
                self.pool.truncate(base);
                return Ok(false);
            }
        }
        self.pool.truncate(base);
        Ok(true)
    }

    fn undo(&mut self, trail: usize, done: usize) {
        while self.trail.len() > trail {
            let (i, old) = self.trail.pop().unwrap();
            self.m[i as usize] = old;
        }
        while self.done.len() > done {
            let i = self.done.pop().unwrap() as usize;
            self.placed[i] = false;
            for s in self.inst.first[i]..self.inst.last[i] {
                self.rest[s as usize] += self.inst.size[i];
            }
        }
    }

    fn place(&mut self, i: u32) -> bool {
        let i = i as usize;
        self.placed[i] = true;
        self.done.push(i as u32);
        let top = self.m[i] + self.inst.size[i];
        for s in self.inst.first[i]..self.inst.last[i] {
            self.rest[s as usize] -= self.inst.size[i];
        }
        for k in 0..self.overlaps[i].len() {
            let j = self.overlaps[i][k] as usize;
            if !self.placed[j] && self.m[j] < top {
                self.trail.push((j as u32, self.m[j]));
                let t = top.next_multiple_of(self.inst.alignment[j]);
                self.m[j] = t;
                if t + self.inst.size[j] > self.cap {
                    self.fails[0] += 1;
                    for s in
                        self.inst.first[j].max(self.inst.first[i])..self.inst.last[j].min(self.inst.last[i])
                    {
                        self.weight[s as usize] += 1;
                    }
                    return false;
                }
            }
        }
        true
    }

    fn bounds(&mut self, b: usize, e: usize, x: u32, y: u32) -> bool {
        let (x, y) = (x as usize, y as usize);
        self.eff[x..y].fill(u64::MAX);
        for k in b..e {
            let i = self.pool[k] as usize;
            let m = self.m[i];
            for v in &mut self.eff[self.inst.first[i] as usize..self.inst.last[i] as usize] {
                *v = (*v).min(m);
            }
        }
        for s in x..y {
            if self.rest[s] > 0 && self.eff[s] + self.rest[s] > self.cap {
                self.weight[s] += 1;
                self.fails[1] += 1;
                return false;
            }
        }
        if self.opt.release {
            let mut sorted = std::mem::take(&mut self.sorted);
            sorted.clear();
            sorted.extend(self.pool[b..e].iter().map(|&i| (self.m[i as usize], i)));
            sorted.sort_unstable();
            self.acc[x..y].fill(0);
            let mut bad = None;
            for &(m, i) in sorted.iter().rev() {
                let i = i as usize;
                let room = self.cap - m;
                let size = self.inst.size[i];
                let range = self.inst.first[i] as usize..self.inst.last[i] as usize;
                let mut top = 0;
                for v in &mut self.acc[range.clone()] {
                    *v += size;
                    top = top.max(*v);
                }
                if top > room {
                    bad = range.clone().find(|&s| self.acc[s] > room);
                    break;
                }
            }
            self.sorted = sorted;
            if let Some(s) = bad {
                self.weight[s] += 1;
                self.fails[2] += 1;
                return false;
            }
        }
        true
    }

    fn select(&mut self, b: usize, e: usize, x: u32, y: u32) -> (u32, u64) {
        let (x, y) = (x as usize, y as usize);
        self.count[x..y].fill(0);
        for k in b..e {
            let i = self.pool[k] as usize;
            let m = self.m[i];
            for s in self.inst.first[i] as usize..self.inst.last[i] as usize {
                self.count[s] += u32::from(self.eff[s] == m);
            }
        }
        let mut best: Option<(f64, usize)> = None;
        let lowest = (x..y).map(|s| self.eff[s]).min().unwrap();
        let mut s = x;
        while s < y {
            let mut t = s + 1;
            while t < y && self.eff[t] == self.eff[s] {
                t += 1;
            }
            let valley = (s == x || self.eff[s - 1] > self.eff[s]) && (t == y || self.eff[t] > self.eff[s]);
            if valley && self.eff[s] < u64::MAX && (self.opt.select & 8 == 0 || self.eff[s] == lowest) {
                for a in s..t {
                    let c = f64::from(self.count[a]);
                    let slack = (self.cap - self.eff[a] - self.rest[a]) as f64;
                    let score = match self.opt.select & 7 {
                        0 => self.weight[a] as f64 / c,
                        1 => -c * 1e12 - slack,
                        2 => -slack * 1e3 - c,
                        3 => -(slack + 1.0) * c / self.weight[a] as f64,
                        4 => -(slack + self.cap as f64 * 0.001) * c,
                        _ => self.weight[a] as f64,
                    };
                    if best.is_none_or(|(v, _)| score > v) {
                        best = Some((score, a));
                    }
                }
            }
            s = t;
        }
        let a = best.unwrap().1;
        (a as u32, self.eff[a])
    }

    fn search(&mut self, b: usize, e: usize, x: u32, y: u32) -> Result<bool, OutOfBudget> {
        let (trail, done, cands) = (self.trail.len(), self.done.len(), self.cands.len());
        loop {
            self.nodes += 1;
            if self.nodes > self.budget {
                return Err(OutOfBudget);
            }
            if !self.bounds(b, e, x, y) {
                break;
            }
            let (a, f) = self.select(b, e, x, y);
            self.cands.truncate(cands);
            for k in b..e {
                let i = self.pool[k];
                let j = i as usize;
                if self.m[j] == f && self.inst.first[j] <= a && a < self.inst.last[j] {
                    self.cands.push(i);
                }
            }
            let end = self.cands.len();
            let rank = &self.rank;
            self.cands[cands..end].sort_unstable_by_key(|&i| rank[i as usize]);
            for k in cands..end {
                let i = self.cands[k] as usize;
                let twin = (cands..k).any(|l| {
                    let j = self.cands[l] as usize;
                    self.inst.first[i] == self.inst.first[j]
                        && self.inst.last[i] == self.inst.last[j]
                        && self.inst.size[i] == self.inst.size[j]
                });
                if twin {
                    continue;
                }
                let (t, d) = (self.trail.len(), self.done.len());
                if self.place(i as u32) && self.components(b, e)? {
                    return Ok(true);
                }
                self.undo(t, d);
            }
            // waste
            let mut raised: Vec<(u64, u32)> = Vec::new();
            for k in cands..end {
                let i = self.cands[k] as usize;
                let mut base = u64::MAX;
                for &j in &self.overlaps[i] {
                    let j = j as usize;
                    let inside = self.m[j] == f && self.inst.first[j] <= a && a < self.inst.last[j];
                    if !self.placed[j] && !inside {
                        base = base.min(self.m[j] + self.inst.size[j]);
                    }
                }
                raised.push((base, i as u32));
            }
            raised.sort_unstable();
            let mut ok = true;
            let mut least = u64::MAX;
            for &(base, i) in &raised {
                let i = i as usize;
                let v = base.min(least);
                if v == u64::MAX || v.next_multiple_of(self.inst.alignment[i]) + self.inst.size[i] > self.cap
                {
                    ok = false;
                    self.fails[3] += 1;
                    self.weight[a as usize] += 1;
                    break;
                }
                self.trail.push((i as u32, self.m[i]));
                self.m[i] = v.next_multiple_of(self.inst.alignment[i]);
                least = least.min(self.m[i] + self.inst.size[i]);
            }
            if !ok {
                break;
            }
        }
        self.cands.truncate(cands);
        self.undo(trail, done);
        Ok(false)
    }
}

pub fn experiment(
    items: &[super::problem::Item],
    cap: u64,
    orders: &[&str],
    opt: Opt,
    restart: u64,
    max: u64,
) -> (u64, Option<Vec<u64>>, [u64; 6]) {
    let refs: Vec<_> = items.iter().collect();
    let inst = Instance::new(&refs);
    let live = super::order::live_bytes(&inst);
    let mut ranks = Vec::new();
    for o in orders {
        let key = |i: usize| -> Vec<u128> {
            o.chars()
                .map(|c| match c {
                    'W' => (items[i].upper - items[i].lower) as u128,
                    'C' => (inst.last[i] - inst.first[i]) as u128,
                    'A' => (items[i].upper - items[i].lower) as u128 * items[i].size as u128,
                    'Z' => items[i].size as u128,
                    _ => (inst.first[i]..inst.last[i]).map(|s| live[s as usize]).max().unwrap(),
                })
                .collect()
        };
        let mut idx: Vec<usize> = (0..items.len()).collect();
        idx.sort_by_key(|&i| (std::cmp::Reverse(key(i)), i));
        let mut rank = vec![0; items.len()];
        for (r, &i) in idx.iter().enumerate() {
            rank[i] = r as u32;
        }
        ranks.push(rank);
    }
    let mut s = Search::new(&inst, cap, ranks[0].clone(), opt);
    let mut limit = restart;
    loop {
        for r in &ranks {
            s.rank = r.clone();
            s.budget = s.nodes + limit;
            match s.run() {
                Ok(x) => return (s.nodes, x, s.fails),
                Err(_) => {}
            }
            if s.nodes > max {
                return (s.nodes, None, s.fails);
            }
        }
        limit *= 2;
    }
}

pub fn greedy_times(items: &[super::problem::Item]) {
    use super::{Fit, greedy, order::Order};
    let refs: Vec<_> = items.iter().collect();
    let inst = Instance::new(&refs);
    let lb = super::lower_bound(items).unwrap();
    for o in Order::ALL {
        let seq = o.of(&inst);
        for f in [Fit::First, Fit::Best] {
            let t = std::time::Instant::now();
            let l = greedy::pack(&inst, &seq, f, None).unwrap();
            print!(
                " {o}/{f}: {:.5} {:.0}ms;",
                l.height() as f64 / lb as f64,
                t.elapsed().as_secs_f64() * 1e3
            );
        }
    }
    println!();
}

pub fn squeaky(items: &[super::problem::Item], iters: usize, mode: u32) {
    use super::{Fit, greedy, order::Order};
    let refs: Vec<_> = items.iter().collect();
    let inst = Instance::new(&refs);
    let lb = super::lower_bound(items).unwrap();
    for o in Order::ALL {
        let mut seq = o.of(&inst);
        let t = std::time::Instant::now();
        let mut best = u64::MAX;
        let mut at = 0;
        let mut first = 0;
        for it in 0..iters {
            let l = greedy::pack(&inst, &seq, Fit::First, None).unwrap();
            if it == 0 {
                first = l.height();
            }
            if l.height() < best {
                best = l.height();
                at = it;
            }
            if best == lb {
                break;
            }
            let n = seq.len();
            let mut keyed: Vec<(usize, usize, u32)> = seq
                .iter()
                .enumerate()
                .map(|(p, &i)| {
                    let top = l.offset[i as usize] + inst.size[i as usize];
                    let bad = top > lb || (mode & 4 != 0 && top == l.height());
                    let q = if bad {
                        match mode & 3 {
                            0 => 0,
                            1 => 2 * p / 2 * 1,
                            2 => p,
                            _ => 2 * p,
                        }
                    } else {
                        2 * p + 1
                    };
                    (q, p, i)
                })
                .collect();
            keyed.sort();
            let _ = n;
            seq = keyed.into_iter().map(|k| k.2).collect();
        }
        print!(
            " {o}: {:.5}->{:.5}@{at} {:.0}ms;",
            first as f64 / lb as f64,
            best as f64 / lb as f64,
            t.elapsed().as_secs_f64() * 1e3
        );
    }
    println!();
}
pub fn rank_of(inst: &Instance, o: &str) -> Vec<u32> {
    let live = super::order::live_bytes(inst);
    let n = inst.len();
    let most: Vec<u128> = (0..n)
        .map(|i| live[inst.first[i] as usize..inst.last[i] as usize].iter().copied().max().unwrap())
        .collect();
    let key = |i: usize| -> Vec<u128> {
        let w = (inst.last[i] - inst.first[i]) as u128;
        o.chars()
            .map(|c| match c {
                'W' | 'C' => w,
                'A' => w * inst.size[i] as u128,
                'Z' => inst.size[i] as u128,
                'B' => w * w * inst.size[i] as u128,
                _ => most[i],
            })
            .collect()
    };
    let keys: Vec<_> = (0..n).map(key).collect();
    let mut idx: Vec<usize> = (0..n).collect();
    idx.sort_by_key(|&i| (std::cmp::Reverse(&keys[i]), i));
    let mut rank = vec![0; n];
    for (r, &i) in idx.iter().enumerate() {
        rank[i] = r as u32;
    }
    rank
}
pub fn sky(items: &[super::problem::Item]) {
    let refs: Vec<_> = items.iter().collect();
    let inst = Instance::new(&refs);
    let lb = super::lower_bound(items).unwrap();
    for o in ["WA", "TW", "TA", "TZ", "A", "Z", "B"] {
        let t = std::time::Instant::now();
        let r = rank_of(&inst, o);
        let t1 = t.elapsed().as_secs_f64() * 1e3;
        let (off, pops) = super::skyline::skyline(&inst, &r);
        let h = (0..inst.len()).map(|i| off[i] + inst.size[i]).max().unwrap();
        print!(
            " {o}: {:.5} {:.0}+{:.0}ms/{};",
            h as f64 / lb as f64,
            t1,
            t.elapsed().as_secs_f64() * 1e3 - t1,
            pops / inst.len() as u64
        );
    }
    println!();
}
pub fn sqsky(items: &[super::problem::Item], iters: usize, mode: u32) {
    let refs: Vec<_> = items.iter().collect();
    let inst = Instance::new(&refs);
    let lb = super::lower_bound(items).unwrap();
    for o in ["TA", "A", "TW", "B"] {
        let t = std::time::Instant::now();
        let mut rank = rank_of(&inst, o);
        let n = inst.len();
        let (mut best, mut at, mut first) = (u64::MAX, 0, 0);
        for it in 0..iters {
            let (off, _) = super::skyline::skyline(&inst, &rank);
            let h = (0..n).map(|i| off[i] + inst.size[i]).max().unwrap();
            if it == 0 {
                first = h;
            }
            if h < best {
                best = h;
                at = it;
            }
            if best <= lb {
                break;
            }
            let target = if mode & 4 != 0 { best - 1 } else { lb };
            let mut keyed: Vec<(u32, u32, usize)> = (0..n)
                .map(|i| {
                    let bad = off[i] + inst.size[i] > target;
                    let q = if bad {
                        match mode & 3 {
                            0 => 0,
                            1 => rank[i],
                            _ => rank[i] * 3 / 2,
                        }
                    } else {
                        2 * rank[i] + 1
                    };
                    (q, rank[i], i)
                })
                .collect();
            keyed.sort();
            for (p, k) in keyed.iter().enumerate() {
                rank[k.2] = p as u32;
            }
        }
        print!(
            " {o}: {:.5}->{:.5}@{at} {:.0}ms;",
            first as f64 / lb as f64,
            best as f64 / lb as f64,
            t.elapsed().as_secs_f64() * 1e3
        );
    }
    println!();
}
