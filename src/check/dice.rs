//! Random draws that depend only on a seed and on how many came before.

use crate::random;

/// A counter-based random number generator.
pub(super) struct Dice {
    key: u64,
    thrown: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self { key: random::key(seed, "check"), thrown: 0 }
    }

    /// Draws one of `0..n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.thrown += 1;
        (random::bits(self.key, self.thrown) % n.max(1) as u64) as usize
    }

    /// Draws one of `choices`.
    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Draws true with probability 1/`n`.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Draws a number in [-1, 1).
    pub(super) fn number(&mut self) -> f32 {
        self.thrown += 1;
        random::uniform(self.key, self.thrown) * 2.0 - 1.0
    }
}
