//! Draws that depend on a seed and their number alone.

use crate::random;

/// A die that remembers how often it was thrown.
pub(super) struct Dice {
    key: u64,
    thrown: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self { key: random::key(seed, "check"), thrown: 0 }
    }

    /// One of `0..n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.thrown += 1;
        (random::bits(self.key, self.thrown) % n.max(1) as u64) as usize
    }

    /// One of several.
    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Whether a chance of one in `n` comes true.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number in ±1.
    pub(super) fn number(&mut self) -> f32 {
        self.thrown += 1;
        random::uniform(self.key, self.thrown) * 2.0 - 1.0
    }
}
