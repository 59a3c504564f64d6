//! skyline
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::instance::Instance;

/// Heights over slices: assign over a range, maximum over a range.
pub struct Floors {
    leaves: usize,
    max: Vec<u64>,
    set: Vec<Option<u64>>,
}

impl Floors {
    pub fn new(slices: usize) -> Self {
        let leaves = slices.next_power_of_two();
        Self { leaves, max: vec![0; 2 * leaves], set: vec![None; 2 * leaves] }
    }
    fn push(&mut self, node: usize) {
        if let Some(v) = self.set[node].take() {
            for c in [2 * node, 2 * node + 1] {
                self.max[c] = v;
                self.set[c] = Some(v);
            }
        }
    }
    pub fn assign(&mut self, first: u32, last: u32, v: u64) {
        self.go(1, 0, self.leaves, first as usize, last as usize, v);
    }
    fn go(&mut self, node: usize, a: usize, b: usize, f: usize, l: usize, v: u64) {
        if f <= a && b <= l {
            self.max[node] = v;
            self.set[node] = Some(v);
            return;
        }
        self.push(node);
        let mid = (a + b) / 2;
        if f < mid {
            self.go(2 * node, a, mid, f, l, v);
        }
        if l > mid {
            self.go(2 * node + 1, mid, b, f, l, v);
        }
        self.max[node] = self.max[2 * node].max(self.max[2 * node + 1]);
    }
    pub fn over(&self, first: u32, last: u32) -> u64 {
        self.q(1, 0, self.leaves, first as usize, last as usize)
    }
    fn q(&self, node: usize, a: usize, b: usize, f: usize, l: usize) -> u64 {
        if (f <= a && b <= l) || self.set[node].is_some() {
            return self.set[node].unwrap_or(self.max[node]);
        }
        let mid = (a + b) / 2;
        let mut v = 0;
        if f < mid {
            v = self.q(2 * node, a, mid, f, l);
        }
        if l > mid {
            v = v.max(self.q(2 * node + 1, mid, b, f, l));
        }
        v
    }
}

pub fn skyline(inst: &Instance, rank: &[u32]) -> (Vec<u64>, u64) {
    let mut floors = Floors::new(inst.slices);
    let n = inst.len();
    let mut heap: BinaryHeap<Reverse<(u64, u32, u32)>> =
        (0..n).map(|i| Reverse((0, rank[i], i as u32))).collect();
    let mut off = vec![0; n];
    let mut pops = 0;
    while let Some(Reverse((m, r, i))) = heap.pop() {
        pops += 1;
        let j = i as usize;
        let now = floors.over(inst.first[j], inst.last[j]).next_multiple_of(inst.alignment[j]);
        if now > m {
            heap.push(Reverse((now, r, i)));
            continue;
        }
        off[j] = m;
        floors.assign(inst.first[j], inst.last[j], m + inst.size[j]);
    }
    (off, pops)
}
