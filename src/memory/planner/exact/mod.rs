//! Exact search: is there a packing no higher than a given capacity?
//!
//! The framework is that of MiniMalloc (Moffitt, ASPLOS 2023, doi 10.1145/3623278.3624752): build packings
//! from offset 0 upwards, prune by the bytes that each slice of time still has to hold, and split into
//! independent parts wherever no unplaced item crosses. The differences are:
//!
//! - A decision is "which item lies at this point of this slice, or none". It is taken at any local minimum
//!   of the skyline rather than at the lowest place of all, so that the search stays where space is tight.
//! - The slice is chosen by how often it failed (Boussemart et al., ECAI 2004).
//! - Every slice is checked as a machine with release times (Jackson 1955).
//! - Orders and choices alternate under growing node limits, which reduces the heavy tail of the running
//!   times of such searches (Gomes et al. 2000).

mod bounds;
mod search;
mod state;

use super::budget::Budget;
use super::greedy::Layout;
use super::instance::Instance;
use super::order::{Order, ranks};
use search::Choice;
use state::State;

/// Largest number of items for exact search: memory and time per node grow with it.
pub(super) const MOST_ITEMS: usize = 2500;

/// Where no thread with a stack of [`STACK_BYTES`] can be had: browsers give about 1 MB.
const MOST_ITEMS_IN_WASM: usize = 1000;

/// The search recurses twice per item.
const STACK_BYTES: usize = 64 << 20;

/// Answer to "does it fit this capacity?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It fits, with this layout.
    Found(Layout),
    /// Proved not to fit.
    Impossible,
    /// The budget ended first.
    Unknown,
}

/// The strategies that alternate: an order in which candidates are tried, and how the next slice is chosen.
const PORTFOLIO: [(Order, Choice); 10] = [
    (Order::Lifetime, Choice::LeastSlack),
    (Order::Slices, Choice::MostFailures),
    (Order::BreadthArea, Choice::MostFailures),
    (Order::Size, Choice::MostFailures),
    (Order::Area, Choice::MostFailures),
    (Order::Lifetime, Choice::MostFailures),
    (Order::Slices, Choice::LeastSlack),
    (Order::BreadthArea, Choice::LeastSlack),
    (Order::BreadthLifetime, Choice::MostFailures),
    (Order::Size, Choice::LeastSlack),
];

/// Whether `instance` is small enough for exact search.
pub(super) fn applies(instance: &Instance) -> bool {
    instance.len() <= MOST_ITEMS && instance.is_modest()
}

/// Looks for a packing of height at most `capacity` in one chunk. Each `seed` tries other perturbations of the
/// orders; seed 0 begins with the orders themselves.
pub(super) fn fits(instance: &Instance, capacity: u64, seed: u64, budget: &mut Budget) -> Outcome {
    let blocked =
        |i: usize| instance.size[i] > 0 && instance.fixed[i].unwrap_or(0) + instance.size[i] > capacity;
    if (0..instance.len()).any(blocked) {
        return Outcome::Impossible;
    }
    if cfg!(target_family = "wasm") {
        return match instance.len() <= MOST_ITEMS_IN_WASM {
            true => take_turns(instance, capacity, seed, budget),
            false => Outcome::Unknown,
        };
    }
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES);
        let run = worker.spawn_scoped(scope, || take_turns(instance, capacity, seed, budget));
        // If no thread can be spawned, there is no search.
        run.ok().and_then(|handle| handle.join().ok()).unwrap_or(Outcome::Unknown)
    })
}

fn take_turns(instance: &Instance, capacity: u64, seed: u64, budget: &mut Budget) -> Outcome {
    let mut state = State::new(instance, capacity);
    let orders: Vec<Vec<u32>> = PORTFOLIO.iter().map(|(order, _)| ranks(&order.of(instance))).collect();
    let mut nodes = 1000u64.max(2 * instance.len() as u64);
    let mut draws = Draws(1 + seed);
    for round in 0.. {
        for (rank, (_, choice)) in orders.iter().zip(PORTFOLIO) {
            let shaken = if seed == 0 && round == 0 { rank.clone() } else { draws.shake(rank) };
            match state.search(&shaken, choice, nodes, budget) {
                Some(true) => return Outcome::Found(state.layout()),
                Some(false) => return Outcome::Impossible,
                None if budget.left() == 0 => return Outcome::Unknown,
                None => {}
            }
        }
        nodes += nodes / 4;
    }
    Outcome::Unknown
}

/// Pseudo-random numbers, the same in every run: Knuth's MMIX generator.
struct Draws(u64);

impl Draws {
    /// Returns `rank` perturbed: each rank is raised by up to a fifth before sorting.
    fn shake(&mut self, rank: &[u32]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..rank.len() as u32).collect();
        order.sort_by_cached_key(|&item| {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let factor = 1000 + (self.0 >> 33) % 200;
            (u64::from(rank[item as usize]) * factor, item)
        });
        ranks(&order)
    }
}

/// Returns a common divisor of all heights that a packing pushed down to offset 0 can have.
pub(super) fn height_step(instance: &Instance) -> u64 {
    let sizes = instance.size.iter().copied();
    let alignments = instance.alignment.iter().copied().filter(|&alignment| alignment > 1);
    let fixed = instance.fixed.iter().flatten().copied();
    super::bound::common_alignment(sizes.chain(alignments).chain(fixed))
}

#[cfg(test)]
mod tests {
    use super::super::problem::Item;
    use super::*;

    fn of(items: &[Item], capacity: u64) -> Outcome {
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        fits(&instance, capacity, 0, &mut Budget::new(u64::MAX, None))
    }

    #[test]
    fn search_finds_packings_and_proves_impossibility() {
        // No packing meets the bound of 4: the pairs of size 1 cannot all be adjacent.
        let items = [
            Item::new("a", 0, 2, 2),
            Item::new("b", 1, 3, 1),
            Item::new("c", 2, 4, 2),
            Item::new("d", 3, 5, 1),
            Item::new("e", 0, 1, 1),
            Item::new("f", 4, 5, 2),
        ];
        assert!(matches!(of(&items, 3), Outcome::Found(layout) if layout.height() == 3));
        assert_eq!(of(&items, 2), Outcome::Impossible);
    }

    #[test]
    fn fixed_items_and_alignment_are_respected() {
        let items = [
            Item::new("held", 0, 4, 4).fixed_at(0, 4),
            Item::new("below", 0, 2, 4),
            Item::new("above", 1, 3, 3).aligned(8),
            Item::new("nothing", 0, 4, 0),
        ];
        assert_eq!(of(&items, 10), Outcome::Impossible);
        assert!(matches!(of(&items, 11), Outcome::Found(layout) if layout.offset[..3] == [4, 0, 8]));
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        assert_eq!(height_step(&instance), 1);
    }
}
