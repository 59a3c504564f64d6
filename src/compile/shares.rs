//! How many parts of a batch each rank computes.

use std::fmt;

use crate::error::{Error, Result};
use crate::units::Bytes;

/// How many parts of a batch each rank computes: as many each ([`Shares::EVEN`]), or a number of its own for each. The
/// latter is for ranks with different adapters, which [`Session::set_transport`](crate::exec::Session::set_transport)
/// refuses otherwise.
///
/// ```
/// use wgrad::compile::{Parallel, Shares};
///
/// // Rank 0 computes three parts of each four. Parts are dealt in rounds, to the ranks that still have some to compute.
/// let parallel = Parallel { shares: Shares::of(&[3, 1])?, ..Parallel::of(0, 2) };
/// assert_eq!(parallel.parts(8), [0, 2, 4, 5, 6, 7]);
/// # Ok::<(), wgrad::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Of the ranks below `ranks`.
    parts: [u8; Self::MOST_RANKS],
    /// 0 where the shares are even.
    ranks: u8,
}

impl Default for Shares {
    fn default() -> Self {
        Self::EVEN
    }
}

impl Shares {
    /// The most ranks whose shares may differ.
    pub const MOST_RANKS: usize = 64;

    /// As many parts for each of any number of ranks.
    pub const EVEN: Self = Self { parts: [0; Self::MOST_RANKS], ranks: 0 };

    /// The number of parts of each rank, or numbers in the same proportion.
    ///
    /// # Errors
    /// [`Error::Setting`] for no ranks, more than [`Shares::MOST_RANKS`], or a share of 0 or above 255.
    pub fn of(parts: &[u32]) -> Result<Self> {
        let refused = |why: String| Err(Error::setting("parallel.shares", why));
        if parts.is_empty() || parts.len() > Self::MOST_RANKS {
            let (ranks, most) = (parts.len(), Self::MOST_RANKS);
            return refused(format!(
                "shares of {ranks} ranks: from 1 to {most} ranks may have shares of their own"
            ));
        }
        let mut shares = Self { ranks: parts.len() as u8, ..Self::EVEN };
        for ((rank, &part), share) in parts.iter().enumerate().zip(&mut shares.parts) {
            match u8::try_from(part) {
                Ok(part @ 1..) => *share = part,
                _ => return refused(format!("a share of {part} for rank {rank}: from 1 to 255 parts")),
            }
        }
        Ok(shares)
    }

    /// Deals out `parts` parts by the memory of the ranks: one for each, and each further one to the rank that then has
    /// the fewest for its memory.
    ///
    /// # Errors
    /// As [`Shares::of`]; [`Error::Setting`] if there are fewer parts than ranks, or if a rank has no memory.
    pub fn by_memory(memory: &[Bytes], parts: u32) -> Result<Self> {
        if let Some(rank) = memory.iter().position(|bytes| bytes.0 == 0) {
            return Err(Error::setting(
                "parallel.shares",
                format!("rank {rank} has no memory for its share"),
            ));
        }
        let ranks = memory.len() as u32;
        if parts < ranks {
            let message = format!(
                "{parts} parts for {ranks} ranks: each computes one at least; set `accumulate` to {ranks} or more"
            );
            return Err(Error::setting("parallel.shares", message));
        }
        let mut shares = vec![1; memory.len()];
        for _ in ranks..parts {
            // Compares memory / share without rounding; of equal ranks the first.
            let load = |rank: usize| (u128::from(memory[rank].0), u128::from(shares[rank] + 1));
            let less = |a: usize, b: usize| load(b).0 * load(a).1 > load(a).0 * load(b).1;
            let next = (1..shares.len()).fold(0, |best, rank| if less(best, rank) { rank } else { best });
            shares[next] += 1;
        }
        Self::of(&shares)
    }

    /// Reads `even`; a number of parts for each rank, separated by commas; or the memory of each, which shares out `parts` parts
    /// ([`Shares::by_memory`]): `24GB,8GB`.
    ///
    /// # Errors
    /// [`Error::Setting`] for other text, and as these.
    pub fn named(text: &str, parts: u32) -> Result<Self> {
        if text == "even" {
            return Ok(Self::EVEN);
        }
        let listed = || text.split(',').map(str::trim);
        if let Some(own) = listed().map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>() {
            return Self::of(&own);
        }
        let message = format!(
            "shares {text}: expected even, or for each rank a number of parts or its memory, such as 3,1 or 24GB,8GB"
        );
        let memory = listed().map(|size| size.parse().ok()).collect::<Option<Vec<Bytes>>>();
        Self::by_memory(&memory.ok_or_else(|| Error::setting("parallel.shares", message))?, parts)
    }

    /// Whether these are [`Shares::EVEN`]; lists of equal numbers are not, and allow for different adapters.
    pub fn is_even(&self) -> bool {
        self.ranks == 0
    }

    /// The number of parts of each of `ranks` ranks, of `parts` in all.
    ///
    /// # Errors
    /// [`Error::Setting`] if the shares are of another number of ranks, or do not divide `parts`.
    pub(crate) fn counts(&self, ranks: u32, parts: u32) -> Result<Vec<u32>> {
        let refused = |why: String| Err(Error::setting("parallel.shares", why));
        let own = &self.parts[..usize::from(self.ranks)];
        if self.is_even() {
            return Ok(vec![parts / ranks.max(1); ranks as usize]);
        }
        if own.len() != ranks as usize {
            return refused(format!("shares {self} are of {} ranks, of {ranks} that there are", own.len()));
        }
        let sum: u32 = own.iter().map(|share| u32::from(*share)).sum();
        if !parts.is_multiple_of(sum) {
            let next = parts.div_ceil(sum) * sum;
            return refused(format!(
                "shares {self} of {parts} parts: set `accumulate` to a multiple of their sum, such as {next}"
            ));
        }
        Ok(own.iter().map(|share| u32::from(*share) * (parts / sum)).collect())
    }
}

/// The round and the rank of each part, in the order of the parts: in each round, the ranks that have parts left to compute have
/// one. `counts` are the numbers of parts of the ranks.
pub(super) fn dealt(counts: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    let rounds = counts.iter().copied().max().unwrap_or(0);
    let of_round = move |round| (0..).zip(counts).filter(move |(_, count)| **count > round);
    (0..rounds).flat_map(move |round| of_round(round).map(move |(rank, _)| (round, rank)))
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_even() {
            return f.write_str("even");
        }
        let own: Vec<String> = self.parts[..usize::from(self.ranks)].iter().map(u8::to_string).collect();
        f.write_str(&own.join(","))
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shares({self})")
    }
}
